//! Tables of very many files and batches: what they allocate, counted, and how long they take.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use arrow_array::types::Int8Type;
use arrow_array::*;
use headrace_format::arrow::{ArrowTable, ArrowWriter, WriterOptions};
use headrace_format::{ChunkOptions, Feed};
use headrace_io::ReadAt;

/// The system's allocator, counting what is alive and what was ever asked for.
struct Counting;

static ALIVE_BYTES: AtomicU64 = AtomicU64::new(0);
static ASKED_BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALIVE_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        ASKED_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALIVE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts are of the whole process: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// What `f` yields, what it asked for, and what is alive of that.
fn counted<T>(f: impl FnOnce() -> T) -> (T, u64, u64) {
    let (alive, asked) = (ALIVE_BYTES.load(Ordering::Relaxed), ASKED_BYTES.load(Ordering::Relaxed));
    let value = f();
    let asked = ASKED_BYTES.load(Ordering::Relaxed) - asked;
    (value, asked, ALIVE_BYTES.load(Ordering::Relaxed).saturating_sub(alive))
}

fn write(path: &Path, rows_per_batch: usize, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let options = WriterOptions { rows_per_batch, ..WriterOptions::default() };
    let mut writer = ArrowWriter::create(path, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

fn columns(rows: i32) -> Vec<(&'static str, ArrayRef)> {
    let keys = (0..rows).map(|i| ["north", "south", "east"][i as usize % 3]);
    vec![
        ("i", Arc::new(Int32Array::from_iter_values(0..rows))),
        ("n", Arc::new(Int64Array::from_iter((0..rows).map(|i| (i % 3 > 0).then_some(i.into()))))),
        ("d", Arc::new(Date32Array::from_iter_values(0..rows))),
        ("m", Arc::new(Decimal128Array::from_iter_values((0..rows).map(i128::from)))),
        ("s", Arc::new(StringArray::from_iter_values((0..rows).map(|i| i.to_string())))),
        ("k", Arc::new(keys.collect::<DictionaryArray<Int8Type>>())),
    ]
}

#[test]
fn a_segment_and_column_keep_at_most_100_bytes_and_a_feed_none() {
    const BATCHES: i32 = 20_000;
    let _one = ONE.lock().unwrap();
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("t.arrow"), 1, columns(BATCHES));
    let (table, _, kept) = counted(|| ArrowTable::open(&[dir.path().to_path_buf()]).unwrap());
    let each = kept as f64 / f64::from(BATCHES * 6);
    println!("{each:.1} bytes a segment and column");
    assert!(each <= 100.0, "{each:.1}");
    let all: Vec<usize> = (0..6).collect();
    let feed = table.feed(&all, &[], ChunkOptions::default()).unwrap();
    let mut most = 0;
    let mut feed = feed.inspect(|_| most = most.max(ALIVE_BYTES.load(Ordering::Relaxed)));
    let before = ALIVE_BYTES.load(Ordering::Relaxed);
    let rows: u64 = feed.by_ref().map(|chunk| chunk.unwrap().rows()).sum();
    drop(feed);
    assert_eq!(rows, BATCHES as u64);
    // One chunk of 1,024 segments at a time.
    assert!(most - before < 4 << 20, "{} bytes alive", most - before);
}

/// Every file brings values that no other has.
#[test]
fn opening_files_of_different_dictionaries_costs_in_proportion() {
    let _one = ONE.lock().unwrap();
    let cost = |files: usize| {
        let dir = tempfile::tempdir().unwrap();
        for file in 0..files {
            let texts: Vec<String> = (0..100).map(|i| format!("{file:05} {i:03}")).collect();
            let keys: DictionaryArray<Int8Type> = texts.iter().map(String::as_str).collect();
            write(&dir.path().join(format!("{file:05}.arrow")), 100, vec![("k", Arc::new(keys))]);
        }
        let open = || ArrowTable::open(&[dir.path().to_path_buf()]).unwrap();
        let (table, asked, _) = counted(open);
        assert_eq!(table.dictionary(0).unwrap().len(), files * 100);
        let ((remaps, chunks), planned, _) = counted(|| {
            let mut feed = table.feed(&[0], &[], ChunkOptions::default()).unwrap();
            let chunks: Vec<_> = feed.by_ref().map(Result::unwrap).collect();
            (feed.remaps().to_vec(), chunks)
        });
        let rows: u64 = chunks.iter().map(headrace_ir::Chunk::rows).sum();
        assert_eq!((remaps.len(), rows), (files - 1, files as u64 * 100));
        (asked, planned)
    };
    let (few, many) = (cost(50), cost(400));
    println!("opening: {few:?} and {many:?} bytes asked for");
    assert!(many.0 < few.0 * 12 && many.1 < few.1 * 12, "{few:?} {many:?}");
}

/// Files of one schema and one dictionary keep both once.
#[test]
fn files_that_are_alike_share_what_they_have_in_common() {
    const FILES: usize = 300;
    let _one = ONE.lock().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("0.arrow");
    write(&first, 10, columns(10));
    (1..FILES).for_each(|i| {
        std::fs::copy(&first, dir.path().join(format!("{i}.arrow"))).unwrap();
    });
    let (table, _, kept) = counted(|| ArrowTable::open(&[dir.path().to_path_buf()]).unwrap());
    let each = kept / FILES as u64;
    println!("{each} bytes a file");
    assert_eq!(table.files().len(), FILES);
    assert!(each < 1600, "{each} bytes a file");
}

#[test]
#[ignore = "makes 100,000 files"]
fn a_hundred_thousand_files_under_a_limit_of_256_open_ones() {
    const FILES: usize = 100_000;
    let _one = ONE.lock().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("000000.arrow");
    write(&first, 100, columns(100));
    (1..FILES).for_each(|i| {
        std::fs::copy(&first, dir.path().join(format!("{i:06}.arrow"))).unwrap();
    });
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    println!("{}", limits.lines().find(|line| line.starts_with("Max open files")).unwrap());
    let started = Instant::now();
    let (table, _, kept) = counted(|| ArrowTable::open(&[dir.path().to_path_buf()]).unwrap());
    println!("opened in {:?}, {} bytes a file", started.elapsed(), kept / FILES as u64);
    let started = Instant::now();
    let mut feed = table.feed(&[0, 4, 5], &[], ChunkOptions::default()).unwrap();
    let totals = feed.survey().unwrap();
    println!("surveyed in {:?}: {totals:?}", started.elapsed());
    let chunk = feed.next().unwrap().unwrap();
    println!("first chunk after {:?}", started.elapsed());
    let sources: Vec<_> = table.files().iter().map(|file| file.source()).collect();
    let read = |chunk: &headrace_ir::Chunk| {
        for segment in &chunk.segments {
            for extent in segment.extents() {
                let mut bytes = vec![0; extent.bytes as usize];
                sources[segment.file as usize].read_exact_at(extent.offset, &mut bytes).unwrap();
            }
        }
        chunk.rows()
    };
    let mut rows = read(&chunk);
    println!("first chunk read after {:?}", started.elapsed());
    rows += feed.map(|chunk| read(&chunk.unwrap())).sum::<u64>();
    println!("everything read after {:?}", started.elapsed());
    assert_eq!((rows, totals.rows), (FILES as u64 * 100, FILES as u64 * 100));
    let started = Instant::now();
    let batches = (0..FILES).map(|file| table.read_batch(file, 0, None).unwrap().num_rows());
    assert_eq!(batches.sum::<usize>(), FILES * 100);
    table.check_unchanged().unwrap();
    println!("as batches, and checked: {:?}", started.elapsed());
}
