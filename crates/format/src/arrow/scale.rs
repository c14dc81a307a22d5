//! The cost of metadata for very many record batches, on simulated files.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use arrow_schema::{DataType, Field};
use headrace_ir::Extent;

use super::ArrowTable;
use super::batches::Batches;
use super::fields::FileField;
use super::file::ArrowFile;
use super::message::{BatchMessage, Node};
use super::schema::{FileSchema, Shared};
use super::statistics;
use crate::Feed;
use crate::{ChunkOptions, ColumnBound};

const ROWS: u64 = 1 << 16;

fn schema(columns: usize) -> FileSchema {
    let field = |i: usize| FileField {
        field: Field::new(format!("c{i}"), DataType::Int32, true),
        dictionary: None,
        children: Vec::new(),
        is_positions: false,
    };
    FileSchema::new((0..columns).map(field).collect(), Default::default(), false)
}

fn file(shared: &Shared, number: u64, columns: usize, batches: usize) -> ArrowFile {
    let schema = shared.schema(schema(columns));
    let bytes = ROWS * 4;
    let message = |batch: u64| {
        let buffer = |i: u64| {
            let at = (batch * columns as u64 * 2 + i) * bytes;
            Extent { offset: at, bytes: if i.is_multiple_of(2) { ROWS / 8 } else { bytes } }
        };
        BatchMessage {
            rows: ROWS,
            nodes: vec![Node { rows: ROWS, nulls: Some(batch % 2) }; columns],
            buffers: (0..columns as u64 * 2).map(buffer).collect(),
            variadics: Vec::new(),
            compression: None,
        }
    };
    let mut all = Batches::new(schema.total);
    (0..batches as u64).for_each(|batch| all.push(&message(batch)));
    let values: Vec<String> =
        (0..batches as u64).map(|batch| (number * 1000 + batch % 1000).to_string()).collect();
    let text = values.join(",");
    let extremes = || statistics::from_text(&text, &text, batches).unwrap();
    let joined = Batches::joined(schema.total, vec![all]);
    ArrowFile::imagined(schema, joined, (0..columns).map(|_| Some(extremes())).collect())
}

fn table(files: usize, columns: usize, batches: usize) -> ArrowTable {
    let shared = Shared::default();
    let files = (0..files).map(|i| file(&shared, i as u64, columns, batches).into()).collect();
    let names = (0..columns).map(|i| format!("c{i}")).collect();
    ArrowTable::unite(names, files, Vec::new()).unwrap()
}

/// Resident memory of the process: valid only if this test runs alone.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn measure(files: usize, columns: usize, batches: usize) -> f64 {
    let before = resident_bytes();
    let table = table(files, columns, batches);
    let kept = resident_bytes() - before;
    let segments = (files * batches) as u64;
    let each = kept as f64 / (segments * columns as u64) as f64;
    let all: Vec<usize> = (0..columns).collect();
    let mut feed = table.feed(&all, &[], ChunkOptions::default()).unwrap();
    let started = Instant::now();
    let survey = feed.survey().unwrap();
    let surveyed = started.elapsed();
    let started = Instant::now();
    let bounds = table.feed(&all, &[], ChunkOptions::default()).unwrap().facts().bounds;
    let first = feed.next().unwrap().unwrap();
    let first_after = started.elapsed();
    assert!(first_after < Duration::from_secs(1), "{first_after:?}");
    assert!(survey.bytes_max <= bounds.slot_bytes as u64 && survey.bytes <= bounds.bytes.unwrap());
    let rest: usize = feed.by_ref().map(|chunk| chunk.unwrap().segments.len()).sum();
    let fed = started.elapsed();
    assert_eq!(first.segments.len() + rest, segments as usize);
    assert_eq!((survey, survey.segments), (feed.totals(), segments));
    let conditions = [ColumnBound { column: 0, min: Some(5_500), max: Some(5_600) }];
    let started = Instant::now();
    let pruned = table.feed(&all, &conditions, ChunkOptions::default()).unwrap().survey().unwrap();
    assert_eq!(pruned.segments + pruned.pruned_batches, segments);
    println!(
        "{segments} segments of {columns} columns: {:.1} MB, {each:.1} bytes a segment and column; \
         surveyed in {surveyed:?}, all chunks in {fed:?}, the first after {first_after:?}; \
         pruned to {} in {:?}",
        kept as f64 / 1e6,
        pruned.segments,
        started.elapsed()
    );
    each
}

#[test]
#[ignore = "takes a gigabyte and half a minute"]
fn ten_million_segments() {
    assert!(measure(10, 10, 100_000) <= 100.0);
    assert!(measure(100, 2, 100_000) <= 100.0);
}
