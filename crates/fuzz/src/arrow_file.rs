//! Bytes as the file of a table: opened, planned into chunks, read as batches, and queried.

use std::path::{Path, PathBuf};

use headrace_format::arrow::ArrowTable;
use headrace_format::{ChunkOptions, ColumnBound, Feed, Result};

use crate::sessions::Sessions;

/// Rows that a table may have to be queried: damaged metadata claim any number where no column contradicts.
const ROWS_MAX: u64 = 1 << 14;

/// Rows that it may have to be planned in small chunks.
const CHUNKED_ROWS_MAX: u64 = 1 << 22;

/// What a batch may take to be read.
const BATCH_BYTES_MAX: u64 = 64 << 20;

thread_local! {
    static SESSIONS: Sessions = with_table();
}

fn file(sessions: &Sessions) -> PathBuf {
    sessions.folder().join("t.arrow")
}

fn with_table() -> Sessions {
    let sessions = Sessions::new();
    std::fs::write(file(&sessions), []).expect("a file");
    assert!(sessions.both(async |session| session.register_path(&file(&sessions))), "a table");
    sessions
}

/// Feeds a file.
pub fn run(data: &[u8]) -> bool {
    SESSIONS.with(|sessions| {
        let path = file(sessions);
        // A new file each time: mappings of earlier ones stay what they were.
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, data).expect("the file");
        match examine(&path, data.len() as u64) {
            Ok(Some(table)) => query(sessions, &table, data),
            Ok(None) => false,
            Err(error) => error.to_string().is_empty(),
        }
    })
}

/// Does with a file what can be done without a query; the table, if it may be queried.
fn examine(path: &Path, file_bytes: u64) -> Result<Option<ArrowTable>> {
    let table = ArrowTable::open(&[path.to_path_buf()])?;
    let columns: Vec<usize> =
        (0..table.schema().fields().len()).filter(|i| table.column_support(*i).is_ok()).collect();
    for column in &columns {
        let conditions = [ColumnBound { column: *column, min: Some(5), max: Some(50) }];
        chunks(&table, &[*column], &conditions, ChunkOptions::default(), file_bytes)?;
    }
    for chunk_rows_max in [64, 1 << 20] {
        if table.rows() <= CHUNKED_ROWS_MAX {
            let options = ChunkOptions { chunk_rows_max, ..ChunkOptions::default() };
            chunks(&table, &columns, &[], options, file_bytes)?;
        }
    }
    let mut is_small = table.rows() <= ROWS_MAX;
    for (number, file) in table.files().iter().enumerate() {
        for batch in 0..file.batches() {
            if table.batch_bytes_max(number, batch)? > BATCH_BYTES_MAX {
                is_small = false;
                continue;
            }
            // Another column may still be read.
            let _ = table.read_batch(number, batch, None).map_err(|error| error.to_string());
        }
    }
    table.check_unchanged()?;
    Ok(is_small.then_some(table))
}

/// Plans chunks, whose bytes must lie in the file.
fn chunks(
    table: &ArrowTable,
    columns: &[usize],
    conditions: &[ColumnBound],
    options: ChunkOptions,
    file_bytes: u64,
) -> Result<()> {
    let feed = table.feed(columns, conditions, options)?;
    let (facts, mut rows) = (feed.facts(), 0);
    for chunk in feed {
        let chunk = chunk?;
        rows += chunk.segments.iter().map(|segment| u64::from(segment.rows)).sum::<u64>();
        for extent in chunk.segments.iter().flat_map(|segment| segment.extents()) {
            let end = extent.offset.checked_add(extent.bytes);
            assert!(end.is_some_and(|end| end <= file_bytes), "{extent:?} of {file_bytes} bytes");
        }
    }
    assert!(facts.rows.is_none_or(|bound| rows <= bound), "{rows} rows, {facts:?}");
    Ok(())
}

/// One query of several: which, the bytes decide.
fn query(sessions: &Sessions, table: &ArrowTable, data: &[u8]) -> bool {
    let fields = table.schema().fields();
    let chosen = data
        .iter()
        .fold(0_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let number = (chosen >> 8) as usize;
    let name = |at: usize| match fields.get(at.checked_rem(fields.len()).unwrap_or(0)) {
        Some(field) => format!("\"{}\"", field.name().replace('"', "\"\"")),
        None => "1".to_string(),
    };
    let (a, b) = (name(number), name(number / 7));
    // Conditions and joins prune batches by the file's statistics, which the planner's own scan does not read: where
    // they lie, rows are left out.
    let claims = (0..fields.len()).any(|column| table.column_stats(column).min.is_some());
    let (sql, is_compared) = match chosen % 6 {
        0 => ("select * from t".to_string(), true),
        1 => (format!("select count(*), count({a}), min({a}), max({a}), count({b}) from t"), true),
        2 => (format!("select {a}, count(*), count({b}), max({b}) from t group by {a}"), true),
        3 => (format!("select {a}, sum({b}) from t where {a} is not null group by {a}"), true),
        4 => (format!("select {a}, {b} from t where {a} > '5' or {b} = '1'"), !claims),
        _ => (
            format!("select x.{a}, count(*) from t x join t y on x.{a} = y.{a} group by x.{a}"),
            !claims,
        ),
    };
    sessions.compare(&sql, is_compared)
}
