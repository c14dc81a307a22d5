//! Prints the rows of PostgreSQL segment files, or measures how fast they are decoded.
//!
//! ```text
//! heap_rows DESCRIPTION SEGMENT...          rows on standard output, rerouted blocks on standard error
//! heap_rows --time SECONDS DESCRIPTION SEGMENT...
//! ```
//!
//! The description has a line for the relation and one for each attribute, fields separated by tabs:
//!
//! ```text
//! block_bytes   on|off (checksums)
//! name   type   precision   scale   attlen   attalign   dropped   not_null   missing   wanted
//! ```
//!
//! Truth values are `t` and `f`. A type that is not known is stepped over. The missing value is
//! empty or what the type's send function gives, in hexadecimal.
//!
//! A row is its block and its values, separated by tabs: NULL as `\N`, texts and bytes as
//! hexadecimal, floats as the hexadecimal of their bits, dates as days and times as microseconds.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::time::{Duration, Instant};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_schema::{DataType, TimeUnit};
use headrace_format::heap::{Align, Attribute, Decoder, HeapType, Length, Relation};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Segments have 1 GiB by default.
const SEGMENT_BYTES: u64 = 1 << 30;
/// Rows of a batch, so that batches stay in the processor's caches when time is taken.
const BATCH_ROWS: usize = 65_536;

fn main() -> Outcome<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = match arguments.first().map(String::as_str) {
        Some("--time") if arguments.len() > 1 => {
            let seconds = arguments[1].parse()?;
            arguments.drain(..2);
            Some(seconds)
        }
        _ => None,
    };
    let [description, segments @ ..] = &arguments[..] else {
        return Err("usage: heap_rows [--time SECONDS] DESCRIPTION SEGMENT...".into());
    };
    let (relation, wanted) = describe(&std::fs::read_to_string(description)?)?;
    let segments = segments.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
    match seconds {
        Some(seconds) => time(&relation, &wanted, &segments, Duration::from_secs(seconds)),
        None => print(&relation, &wanted, &segments),
    }
}

/// Blocks with their numbers. The last one may be cut off.
fn blocks<'a>(
    relation: &Relation,
    segments: &'a [Vec<u8>],
) -> impl Iterator<Item = (u32, &'a [u8])> {
    let block_bytes = relation.block_bytes;
    let per_segment = (SEGMENT_BYTES / block_bytes as u64) as u32;
    (0..).zip(segments).flat_map(move |(segment, bytes)| {
        let first = segment * per_segment;
        (first..).zip(bytes.chunks(block_bytes))
    })
}

fn print(relation: &Relation, wanted: &[usize], segments: &[Vec<u8>]) -> Outcome<()> {
    let mut decoder = Decoder::new(relation, wanted)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut line = String::new();
    for (block, page) in blocks(relation, segments) {
        if let Err(reroute) = decoder.decode(page, block) {
            eprintln!("{block}\t{reroute}");
        }
        let batch = decoder.finish()?;
        for row in 0..batch.num_rows() {
            line.clear();
            write!(line, "{block}")?;
            for column in batch.columns() {
                line.push('\t');
                push_value(&mut line, column, row)?;
            }
            writeln!(out, "{line}")?;
        }
    }
    Ok(out.flush()?)
}

fn time(
    relation: &Relation,
    wanted: &[usize],
    segments: &[Vec<u8>],
    least: Duration,
) -> Outcome<()> {
    let mut decoder = Decoder::new(relation, wanted)?;
    let start = Instant::now();
    let (mut bytes, mut rows, mut rerouted, mut kept) = (0, 0, 0, 0);
    while start.elapsed() < least {
        for (block, page) in blocks(relation, segments) {
            bytes += page.len();
            match decoder.decode(page, block) {
                Ok(decoded) => rows += decoded,
                Err(_) => rerouted += 1,
            }
            if decoder.rows() >= BATCH_ROWS {
                kept += decoder.finish()?.num_rows();
            }
        }
    }
    kept += decoder.finish()?.num_rows();
    assert_eq!(kept, rows);
    let elapsed = start.elapsed().as_secs_f64();
    println!(
        "{:.1} M rows/s, {:.2} GB/s of blocks, {rerouted} rerouted, one core",
        rows as f64 / elapsed / 1e6,
        bytes as f64 / elapsed / 1e9
    );
    Ok(())
}

fn describe(text: &str) -> Outcome<(Relation, Vec<usize>)> {
    let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let first = lines.next().filter(|fields| fields.len() == 2).ok_or("no line of the relation")?;
    let (block_bytes, checksums) = (first[0].parse()?, first[1] == "on");
    let (mut attributes, mut wanted) = (Vec::new(), Vec::new());
    for fields in lines {
        let fields: [&str; 10] =
            fields.try_into().map_err(|fields| format!("not ten fields: {fields:?}"))?;
        if fields[9] == "t" {
            wanted.push(attributes.len());
        }
        attributes.push(attribute(fields)?);
    }
    Ok((Relation { block_bytes, checksums, attributes, derived: Vec::new() }, wanted))
}

fn attribute(
    [name, kind, precision, scale, length, align, dropped, not_null, missing, _]: [&str; 10],
) -> Outcome<Attribute> {
    let kind = match kind {
        "bool" => Some(HeapType::Bool),
        "int2" => Some(HeapType::Int2),
        "int4" => Some(HeapType::Int4),
        "int8" => Some(HeapType::Int8),
        "float4" => Some(HeapType::Float4),
        "float8" => Some(HeapType::Float8),
        "numeric" if !precision.is_empty() => {
            Some(HeapType::Numeric { precision: precision.parse()?, scale: scale.parse()? })
        }
        "date" => Some(HeapType::Date),
        "time" => Some(HeapType::Time),
        "timestamp" => Some(HeapType::Timestamp),
        "timestamptz" => Some(HeapType::TimestampTz),
        "text" | "varchar" | "bpchar" => Some(HeapType::Text),
        "uuid" => Some(HeapType::Uuid),
        "bytea" => Some(HeapType::Bytea),
        _ => None,
    };
    let missing = (!missing.is_empty()).then(|| stored(kind, missing)).transpose()?;
    Ok(Attribute {
        name: name.to_string(),
        kind,
        length: match length.parse::<i16>()? {
            -1 => Length::Varlena,
            -2 => Length::CString,
            bytes => Length::Fixed(bytes.try_into()?),
        },
        align: match align {
            "c" => Align::Char,
            "s" => Align::Short,
            "i" => Align::Int,
            "d" => Align::Double,
            _ => return Err(format!("alignment {align}").into()),
        },
        dropped: dropped == "t",
        not_null: not_null == "t",
        missing,
    })
}

/// What a table stores of a value that a send function wrote, most significant bytes first.
fn stored(kind: Option<HeapType>, sent: &str) -> Outcome<Vec<u8>> {
    let digits = sent.as_bytes().chunks(2).map(std::str::from_utf8);
    let mut bytes =
        digits.map(|digits| Ok(u8::from_str_radix(digits?, 16)?)).collect::<Outcome<Vec<u8>>>()?;
    match kind {
        None => return Ok(Vec::new()),
        Some(HeapType::Text | HeapType::Bytea | HeapType::Uuid) => {}
        Some(HeapType::Numeric { .. }) => {
            // Sent: digits, weight, sign, display scale, then the digits.
            let words: Vec<u16> =
                bytes.as_chunks::<2>().0.iter().map(|word| u16::from_be_bytes(*word)).collect();
            let stored = [&[words[2] | words[3], words[1]], &words[4..]].concat();
            bytes = stored.into_iter().flat_map(u16::to_le_bytes).collect();
        }
        Some(_) => bytes.reverse(),
    }
    Ok(bytes)
}

fn push_value(line: &mut String, column: &dyn Array, row: usize) -> Outcome<()> {
    if column.is_null(row) {
        line.push_str("\\N");
        return Ok(());
    }
    match column.data_type() {
        DataType::Boolean => line.push(if column.as_boolean().value(row) { 't' } else { 'f' }),
        DataType::Int16 => write!(line, "{}", column.as_primitive::<Int16Type>().value(row))?,
        DataType::Int32 => write!(line, "{}", column.as_primitive::<Int32Type>().value(row))?,
        DataType::Int64 => write!(line, "{}", column.as_primitive::<Int64Type>().value(row))?,
        DataType::Float32 => {
            write!(line, "{:08x}", column.as_primitive::<Float32Type>().value(row).to_bits())?;
        }
        DataType::Float64 => {
            write!(line, "{:016x}", column.as_primitive::<Float64Type>().value(row).to_bits())?;
        }
        DataType::Decimal128(_, scale) => {
            push_decimal(line, column.as_primitive::<Decimal128Type>().value(row), *scale)?;
        }
        DataType::Date32 => write!(line, "{}", column.as_primitive::<Date32Type>().value(row))?,
        DataType::Time64(_) => {
            write!(line, "{}", column.as_primitive::<Time64MicrosecondType>().value(row))?;
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            write!(line, "{}", column.as_primitive::<TimestampMicrosecondType>().value(row))?;
        }
        DataType::Utf8 => push_hex(line, column.as_string::<i32>().value(row).as_bytes())?,
        DataType::Binary => push_hex(line, column.as_binary::<i32>().value(row))?,
        other => return Err(format!("no way to print {other}").into()),
    }
    Ok(())
}

/// As PostgreSQL prints it.
fn push_decimal(line: &mut String, value: i128, scale: i8) -> Outcome<()> {
    let sign = if value < 0 { "-" } else { "" };
    let digits = value.unsigned_abs().to_string();
    if scale <= 0 {
        let zeros = if value == 0 { 0 } else { usize::from(scale.unsigned_abs()) };
        write!(line, "{sign}{digits}{}", "0".repeat(zeros))?;
        return Ok(());
    }
    let places = usize::try_from(scale)?;
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    Ok(write!(line, "{sign}{whole}.{fraction}")?)
}

fn push_hex(line: &mut String, bytes: &[u8]) -> Outcome<()> {
    bytes.iter().try_for_each(|byte| write!(line, "{byte:02x}"))?;
    Ok(())
}
