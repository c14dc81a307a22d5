//! Bytes as a file that is read from front to back: separated values, JSON, a stream of Arrow batches; packed or not.
//!
//! Two bytes of options come first: which kind, and how many bytes before the end of a block the text begins.

use std::io::{BufReader, Cursor, Write};
use std::path::{Path, PathBuf};

use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use flate2::{Compression, write::GzEncoder};
use headrace_engine::catalog::{Block, Blocks, Records, Separators};

use crate::sessions::Sessions;

/// What is read at once, at least: blocks end behind it.
const BLOCK_BYTES: usize = 1 << 16;

/// Columns of a text whose rows are counted.
const COLUMNS_MAX: usize = 64;

/// Kinds of files by their names.
const EXTENSIONS: [&str; 5] = ["csv", "tsv", "json", "jsonl", "arrows"];

thread_local! {
    static SESSIONS: Sessions = Sessions::new();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Packed {
    Not,
    /// The bytes are taken for packed ones.
    Already(&'static str),
    By(&'static str),
}

/// Feeds a file.
pub fn run(data: &[u8]) -> bool {
    let Some((&[options, before], text)) = data.split_first_chunk::<2>() else { return false };
    let extension = EXTENSIONS[usize::from(options & 7) % EXTENSIONS.len()];
    let packed = match (options >> 3) & 7 {
        _ if extension == "arrows" => Packed::Not,
        1 => Packed::By("gz"),
        2 => Packed::By("zst"),
        3 => Packed::Already("gz"),
        4 => Packed::Already("zst"),
        _ => Packed::Not,
    };
    if matches!(packed, Packed::Not) {
        match extension {
            "csv" | "tsv" => cut_separated(text, usize::from(before)),
            "json" => cut_json(text, usize::from(before)),
            _ => {}
        }
    }
    SESSIONS.with(|sessions| query(sessions, text, extension, packed, before))
}

fn query(sessions: &Sessions, text: &[u8], extension: &str, packed: Packed, chosen: u8) -> bool {
    let plain = sessions.folder().join(format!("t.{extension}"));
    let (path, bytes) = match packed {
        Packed::Not => (plain.clone(), text.to_vec()),
        Packed::Already(by) => (PathBuf::from(format!("{}.{by}", plain.display())), text.to_vec()),
        Packed::By(by) => (PathBuf::from(format!("{}.{by}", plain.display())), pack(by, text)),
    };
    let Some(columns) = open(sessions, &path, &bytes) else { return false };
    let a = columns.get(usize::from(chosen) % columns.len().max(1)).map_or("1", String::as_str);
    let has_rows = sessions.compare("select * from t", true);
    let sql = match chosen % 3 {
        0 => format!("select count(*), count({a}), min({a}), max({a}) from t"),
        1 => format!("select {a}, count(*) from t group by {a}"),
        _ => format!("select count(*) from t where {a} is not null"),
    };
    sessions.compare(&sql, true);
    if matches!(packed, Packed::By(_)) {
        let unpacked = sessions.rows("select * from t");
        if open(sessions, &plain, text).is_some() {
            assert_eq!(unpacked, sessions.rows("select * from t"), "rows of a packed file");
        }
    }
    let _ = std::fs::remove_file(&plain);
    has_rows
}

fn pack(by: &str, text: &[u8]) -> Vec<u8> {
    match by {
        "gz" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).and_then(|()| encoder.finish()).unwrap_or_default()
        }
        _ => zstd::encode_all(text, 1).unwrap_or_default(),
    }
}

/// Makes a file table t of both sessions; its columns, if it can be one.
fn open(sessions: &Sessions, path: &Path, bytes: &[u8]) -> Option<Vec<String>> {
    let _ = std::fs::remove_file(path);
    std::fs::write(path, bytes).expect("the file");
    let mut columns = Vec::new();
    let names = std::cell::RefCell::new(&mut columns);
    let opened = sessions.both(async |session| match session.register_as("t", path).await {
        Ok(table) => {
            let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
            let fields = table.schema();
            **names.borrow_mut() = fields.fields().iter().map(|f| quoted(f.name())).collect();
            Ok(())
        }
        Err(error) => {
            // What an error says of broken bytes must not fail either.
            let _ = error.to_string();
            Err(())
        }
    });
    opened.then_some(columns)
}

/// None where they are refused: separated values that are not UTF-8, and whatever does not end where a record ends.
fn blocks(bytes: &[u8], records: Records) -> Option<Vec<Block>> {
    let is_text = std::str::from_utf8(bytes).is_ok() || matches!(records, Records::Values);
    let input = Box::new(BufReader::new(Cursor::new(bytes.to_vec())));
    let mut blocks = Blocks::new(input, records, 1);
    let blocks: Result<Vec<_>, _> = std::iter::from_fn(|| blocks.next(1).transpose()).collect();
    match blocks {
        Ok(blocks) => {
            assert!(is_text, "what is not UTF-8 was cut");
            Some(blocks)
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!is_text || text.starts_with("line "), "a text is refused: {text}");
            None
        }
    }
}

/// As they were before a block that begins with a byte order mark got an empty line before it.
fn joined(blocks: &[Block]) -> Vec<u8> {
    let own = |block: &Block| match block.bytes.as_slice() {
        [b'\n', rest @ ..] if !block.is_first && rest.starts_with(b"\xEF\xBB\xBF") => rest.to_vec(),
        bytes => bytes.to_vec(),
    };
    blocks.iter().flat_map(own).collect()
}

/// Wherever reading stops, blocks have the rows that the whole text has.
fn cut_separated(text: &[u8], before: usize) {
    let before = before.min(text.len()).max(1);
    let columns = text.split(|b| *b == b'\n').next().unwrap_or_default();
    let columns = 1 + columns.iter().filter(|b| **b == b',').count();
    if columns > COLUMNS_MAX {
        return;
    }
    let mut padded = padding(columns, BLOCK_BYTES - before);
    padded.extend_from_slice(text);
    let Some(cut) = blocks(&padded, Records::Separated(Separators::of(b','))) else { return };
    let Some(whole) = rows(&padded, columns) else { return };
    let parts: Option<Vec<_>> = cut.iter().map(|block| rows(&block.bytes, columns)).collect();
    assert!(
        parts.is_some_and(|parts| parts.concat() == whole),
        "rows of blocks are not those of the text"
    );
}

/// Rows of about so many bytes.
fn padding(columns: usize, bytes: usize) -> Vec<u8> {
    let row = format!("{}\n", ",".repeat(columns - 1));
    let first = format!("{}{}", "x".repeat(bytes % row.len()), row);
    let mut padded = first.into_bytes();
    while padded.len() + row.len() <= bytes {
        padded.extend_from_slice(row.as_bytes());
    }
    padded
}

fn rows(text: &[u8], columns: usize) -> Option<Vec<String>> {
    let fields = (0..columns).map(|i| Field::new(format!("c{i}"), DataType::Utf8, true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let reader = csv::ReaderBuilder::new(schema.into())
        .with_batch_size(1024)
        .build(Cursor::new(text))
        .ok()?;
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch.ok()?;
        // What stands in the padding is of no interest.
        let padding = |row: &usize| (0..columns).all(|c| batch.column(c).is_null(*row));
        for row in (0..batch.num_rows()).filter(|row| !padding(row)) {
            rows.push(format!("{:?}", batch.slice(row, 1).columns()));
        }
    }
    Some(rows)
}

/// Wherever reading stops, values are laid out as in the whole text, and none is cut.
fn cut_json(text: &[u8], before: usize) {
    let before = before.min(text.len()).max(1);
    let mut padded = vec![b' '; BLOCK_BYTES - before];
    padded.extend_from_slice(text);
    let (Some(whole), Some(cut)) =
        (blocks(text, Records::Values), blocks(&padded, Records::Values))
    else {
        return;
    };
    let (whole, cut_text) = (joined(&whole), joined(&cut));
    assert!(cut_text.trim_ascii() == whole.trim_ascii(), "JSON depends on where reading stops");
    let Some(values) = values(&whole) else { return };
    let parts: Option<Vec<_>> = cut.iter().map(|block| self::values(&block.bytes)).collect();
    assert!(parts.is_some_and(|parts| parts.concat() == values), "a value was cut");
}

fn values(text: &[u8]) -> Option<Vec<serde_json::Value>> {
    serde_json::Deserializer::from_slice(text).into_iter().collect::<Result<_, _>>().ok()
}
