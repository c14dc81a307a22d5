//! Arrow files for tests of foreign tables, the same each time:
//! `cargo run -p headrace-format --example arrow_tables -- FOLDER`.
//!
//! - `facts.arrow`, in record batches of 1000 rows, and its values for PostgreSQL's COPY, `facts.copy`;
//!   `packed.arrow`: the same, compressed
//! - `odd.arrow`: types that PostgreSQL has under another width, unit or layout, or not at all
//! - `sales/`: folders `year=.../region=...`
//! - `wrong/`: what must be an error

use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{FixedSizeBinaryBuilder, ListBuilder};
use arrow_array::types::{Float16Type, Int8Type};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Date32Array, Date64Array,
    Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, PrimitiveArray, RecordBatch,
    StringArray, StringViewArray, Time32SecondArray, Time64MicrosecondArray, Time64NanosecondArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array, builder::Int32Builder,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{Field, Schema};
use headrace_format::arrow::{ArrowWriter, WriterOptions};

type Outcome = Result<(), Box<dyn Error>>;

const ROWS: i64 = 6000;
const DAY_MICROSECONDS: i64 = 86_400_000_000;
/// 2020-01-01.
const FIRST_DAY: i32 = 18_262;

/// A value, or NULL every so many rows.
fn some<T>(row: i64, every: i64, value: T) -> Option<T> {
    (row % every > 0).then_some(value)
}

fn uuid(row: i64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(row * 7919 % 977).to_be_bytes());
    bytes
}

fn text(row: i64) -> String {
    match row % 50 {
        0 => String::new(),
        7 => "tab\tand \\ and \"quote\"".into(),
        n => format!("text {n} äöü"),
    }
}

/// A row's values, as COPY reads them.
struct Fact {
    b: Option<bool>,
    i2: Option<i16>,
    i4: Option<i32>,
    i8: Option<i64>,
    f4: Option<f32>,
    f8: Option<f64>,
    n: Option<i128>,
    d: Option<i32>,
    ti: Option<i64>,
    ts: Option<i64>,
    tz: Option<i64>,
    t: Option<String>,
    u: Option<[u8; 16]>,
    bin: Option<Vec<u8>>,
}

fn fact(row: i64) -> Fact {
    Fact {
        b: some(row, 7, row % 3 == 0),
        i2: some(row, 5, (row % 1000 - 500) as i16),
        i4: some(row, 6, (row * 7919 % 100_000 - 50_000) as i32),
        i8: some(row, 8, row * 1_000_003 - 2_000_000_000),
        f4: some(row, 9, (row % 401 - 200) as f32 / 16.0),
        f8: some(row, 10, (row % 7001 - 3500) as f64 / 16.0),
        n: some(row, 4, i128::from(row * 37 % 200_001 - 100_000)),
        d: some(row, 12, FIRST_DAY + (row / 10) as i32),
        ti: some(row, 13, row * 86_399 % 86_400 * 1_000_000),
        ts: some(row, 14, (row - 3000) * 37 * 60_000_000),
        tz: some(row, 15, (row - 3000) * 11 * 3_600_000_000),
        t: some(row, 6, text(row)),
        u: some(row, 9, uuid(row)),
        bin: some(row, 11, row.to_be_bytes()[6..].to_vec()),
    }
}

fn facts() -> Result<RecordBatch, Box<dyn Error>> {
    let facts: Vec<Fact> = (0..ROWS).map(fact).collect();
    macro_rules! column {
        ($array:ty, $field:ident) => {
            Arc::new(facts.iter().map(|f| f.$field).collect::<$array>()) as ArrayRef
        };
    }
    let numeric = facts.iter().map(|f| f.n).collect::<Decimal128Array>();
    let mut uuids = FixedSizeBinaryBuilder::new(16);
    for fact in &facts {
        match fact.u {
            Some(uuid) => uuids.append_value(uuid)?,
            None => uuids.append_null(),
        }
    }
    let zoned = facts.iter().map(|f| f.tz).collect::<TimestampMicrosecondArray>();
    let texts: StringArray = facts.iter().map(|f| f.t.as_deref()).collect();
    let codes: DictionaryArray<Int8Type> = facts.iter().map(|f| f.t.as_deref()).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int32Array::from_iter_values(0..ROWS as i32))),
        ("b", column!(BooleanArray, b)),
        ("i2", column!(Int16Array, i2)),
        ("i4", column!(Int32Array, i4)),
        ("i8", column!(Int64Array, i8)),
        ("f4", column!(Float32Array, f4)),
        ("f8", column!(Float64Array, f8)),
        ("n", Arc::new(numeric.with_precision_and_scale(12, 2)?)),
        ("d", column!(Date32Array, d)),
        ("ti", column!(Time64MicrosecondArray, ti)),
        ("ts", column!(TimestampMicrosecondArray, ts)),
        ("tz", Arc::new(zoned.with_timezone("UTC"))),
        ("t", Arc::new(texts)),
        ("code", Arc::new(codes)),
        ("u", Arc::new(uuids.finish())),
        ("bin", Arc::new(facts.iter().map(|f| f.bin.as_deref()).collect::<BinaryArray>())),
    ];
    let tagged = [("ARROW:extension:name".to_string(), "arrow.uuid".to_string())];
    let field = |(name, array): &(&str, ArrayRef)| {
        let field = Field::new(*name, array.data_type().clone(), *name != "id");
        if *name == "u" { field.with_metadata(tagged.clone().into()) } else { field }
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    Ok(RecordBatch::try_new(Arc::new(schema), arrays)?)
}

/// The rows as COPY reads them. Moments are those of [`fact`], written by the calendar.
fn copy_text() -> Result<String, Box<dyn Error>> {
    let mut all = String::new();
    for row in 0..ROWS {
        let f = fact(row);
        let null = || "\\N".to_string();
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        let moment = |us: i64, zone: &str| {
            let (day, rest) = (us.div_euclid(DAY_MICROSECONDS), us.rem_euclid(DAY_MICROSECONDS));
            format!("{} {}{zone}", date(day as i32), time(rest))
        };
        let escaped = f.t.map(|t| t.replace('\\', "\\\\").replace('\t', "\\t"));
        let fields = [
            row.to_string(),
            f.b.map_or_else(null, |b| b.to_string()),
            f.i2.map_or_else(null, |i| i.to_string()),
            f.i4.map_or_else(null, |i| i.to_string()),
            f.i8.map_or_else(null, |i| i.to_string()),
            f.f4.map_or_else(null, |x| x.to_string()),
            f.f8.map_or_else(null, |x| x.to_string()),
            f.n.map_or_else(null, |n| {
                let sign = if n < 0 { "-" } else { "" };
                format!("{sign}{}.{:02}", n.abs() / 100, n.abs() % 100)
            }),
            f.d.map_or_else(null, date),
            f.ti.map_or_else(null, time),
            f.ts.map_or_else(null, |us| moment(us, "")),
            f.tz.map_or_else(null, |us| moment(us, "+00")),
            escaped.clone().unwrap_or_else(null),
            escaped.unwrap_or_else(null),
            f.u.map_or_else(null, |u| hex(&u)),
            f.bin.map_or_else(null, |bytes| format!("\\\\x{}", hex(&bytes))),
        ];
        all.push_str(&fields.join("\t"));
        all.push('\n');
    }
    Ok(all)
}

fn time(microseconds: i64) -> String {
    let seconds = microseconds / 1_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:06}", seconds % 60, microseconds % 1_000_000)
}

/// Days since 1970 by the calendar, counted year by year.
fn date(mut days: i32) -> String {
    let is_leap = |year: i32| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let mut year = 1970;
    while days < 0 {
        year -= 1;
        days += if is_leap(year) { 366 } else { 365 };
    }
    while days >= if is_leap(year) { 366 } else { 365 } {
        days -= if is_leap(year) { 366 } else { 365 };
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

/// Types under another width, unit or layout, and two that PostgreSQL does not have.
fn odd() -> Result<RecordBatch, Box<dyn Error>> {
    fn values<T: ArrowPrimitiveType>(values: [T::Native; 3]) -> PrimitiveArray<T> {
        let [a, b, c] = values;
        PrimitiveArray::from_iter([Some(a), Some(b), None, Some(c)])
    }
    let texts = [Some("one"), Some(""), None, Some("drei äöü")];
    let half = |value: f32| half_of(value);
    let mut list = ListBuilder::new(Int32Builder::new());
    for _ in 0..4 {
        list.values().append_value(1);
        list.append(true);
    }
    let zoned = values::<arrow_array::types::TimestampMillisecondType>([-1, 0, 1_577_836_800_001]);
    let bytes =
        LargeBinaryArray::from_opt_vec(vec![Some(b"\0\x01"), Some(b""), None, Some(b"\xff")]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i1", Arc::new(Int8Array::from(vec![Some(-128), Some(127), None, Some(0)]))),
        ("u1", Arc::new(UInt8Array::from(vec![Some(255), Some(0), None, Some(1)]))),
        ("u2", Arc::new(UInt16Array::from(vec![Some(65_535), Some(0), None, Some(1)]))),
        ("u4", Arc::new(UInt32Array::from(vec![Some(u32::MAX), Some(0), None, Some(1)]))),
        ("u8", Arc::new(UInt64Array::from(vec![Some(u64::MAX), Some(0), None, Some(1)]))),
        ("f2", Arc::new(values::<Float16Type>([half(1.5), half(-0.25), half(0.0)]))),
        (
            "d64",
            Arc::new(Date64Array::from(vec![Some(-86_400_000), Some(0), None, Some(86_400_000)])),
        ),
        ("t32", Arc::new(Time32SecondArray::from(vec![Some(0), Some(86_399), None, Some(1)]))),
        ("t64n", Arc::new(Time64NanosecondArray::from(vec![Some(0), Some(999), None, Some(1001)]))),
        ("ts_s", Arc::new(TimestampSecondArray::from(vec![Some(-1), Some(0), None, Some(1)]))),
        (
            "ts_ms",
            Arc::new(TimestampMillisecondArray::from(vec![Some(-1), Some(0), None, Some(1)])),
        ),
        (
            "ts_ns",
            Arc::new(TimestampNanosecondArray::from(vec![Some(-1), Some(0), None, Some(1999)])),
        ),
        ("tz_ms", Arc::new(zoned.with_timezone("Europe/Berlin"))),
        ("large", Arc::new(LargeStringArray::from(texts.to_vec()))),
        ("view", Arc::new(StringViewArray::from(texts.to_vec()))),
        ("big", Arc::new(bytes)),
        ("list", Arc::new(list.finish())),
        ("Mixed Case", Arc::new(Int64Array::from(vec![1, 2, 3, 4]))),
        (
            "scaled",
            Arc::new(Decimal128Array::from(vec![1, 2, 3, 4]).with_precision_and_scale(5, -2)?),
        ),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )?)
}

/// A float of 16 bits, of those few that are needed.
fn half_of(value: f32) -> <Float16Type as ArrowPrimitiveType>::Native {
    <Float16Type as ArrowPrimitiveType>::Native::from_f32(value)
}

fn write(path: &Path, batch: &RecordBatch, rows_per_batch: usize) -> Outcome {
    let options = WriterOptions { rows_per_batch, ..WriterOptions::default() };
    let mut writer = ArrowWriter::create(path, &batch.schema(), options)?;
    writer.write(batch)?;
    writer.finish()?;
    Ok(())
}

/// As other programs write files.
fn write_foreign(path: &Path, batch: &RecordBatch, codec: Option<CompressionType>) -> Outcome {
    let options = IpcWriteOptions::default().try_with_compression(codec)?;
    let file = File::create(path)?;
    let mut writer = FileWriter::try_new_with_options(file, &batch.schema(), options)?;
    writer.write(batch)?;
    Ok(writer.finish()?)
}

fn one(name: &str, array: ArrayRef) -> Result<RecordBatch, Box<dyn Error>> {
    Ok(RecordBatch::try_from_iter_with_nullable([(name, array, true)])?)
}

fn sales(folder: &Path) -> Outcome {
    let mut id = 0;
    for year in ["2021", "2022", "2023"] {
        for region in ["north", "s%C3%BCd", "__HIVE_DEFAULT_PARTITION__"] {
            let folder = folder.join(format!("year={year}/region={region}"));
            fs::create_dir_all(&folder)?;
            for part in 0..2 {
                let ids = Int64Array::from_iter_values(id..id + 500);
                let amounts = (id..id + 500).map(|i| some(i, 10, i % 97)).collect::<Int64Array>();
                id += 500;
                let columns: [(&str, ArrayRef); 2] =
                    [("id", Arc::new(ids)), ("amount", Arc::new(amounts))];
                let batch = RecordBatch::try_from_iter(columns)?;
                write(&folder.join(format!("part-{part}.arrow")), &batch, 250)?;
            }
        }
    }
    Ok(())
}

fn wrong(folder: &Path, facts: &RecordBatch) -> Outcome {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("garbage.arrow"), "this is not an Arrow file, though its name says so")?;
    let whole = folder.join("truncated.arrow");
    write(&whole, facts, 1000)?;
    let bytes = fs::read(&whole)?;
    fs::write(&whole, &bytes[..bytes.len() / 2])?;
    // The end says that all is well, and the middle is something else.
    let mut damaged = bytes;
    let middle = damaged.len() / 2;
    damaged[middle - 60_000..middle + 60_000].fill(0xee);
    fs::write(folder.join("damaged.arrow"), damaged)?;
    let zero: ArrayRef = Arc::new(StringArray::from(vec!["ok", "a\0b"]));
    write(&folder.join("zero_byte.arrow"), &one("t", zero)?, 1000)?;
    let days: ArrayRef = Arc::new(Date32Array::from(vec![0, i32::MAX - 1]));
    write(&folder.join("calendar.arrow"), &one("d", days)?, 1000)
}

fn main() -> Outcome {
    let folder = std::env::args_os().nth(1).ok_or("usage: arrow_tables FOLDER")?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let facts = facts()?;
    write(&folder.join("facts.arrow"), &facts, 1000)?;
    fs::write(folder.join("facts.copy"), copy_text()?)?;
    write_foreign(&folder.join("packed.arrow"), &facts, Some(CompressionType::LZ4_FRAME))?;
    write_foreign(&folder.join("odd.arrow"), &odd()?, None)?;
    write(&folder.join("nothing.arrow"), &facts.slice(0, 0), 1000)?;
    sales(&folder.join("sales"))?;
    wrong(&folder.join("wrong"), &facts)
}
