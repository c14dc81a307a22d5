//! A table of very many segments through a whole run: its first chunk comes at once, and memory is
//! bounded whatever their number.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::{DataType as ArrowType, Field, Schema, SchemaRef};
use headrace_flow::CancelToken;
use headrace_format::{
    ChunkOptions, ChunkTotals, ColumnBound, ColumnStats, Feed, FeedFacts, Result, Table,
};
use headrace_io::{
    ChunkFeed, FedChunk, FeedBounds, FileIdentity, NextChunk, ReadAt, ReadSpec, SourceFile,
};
use headrace_ir::{
    AggregateCall, AggregateFunction, Chunk, ColumnExtents, DataType, Encoding, Extent, Pipeline,
    Program, Segment, Sink,
};
use headrace_runner::{Fallback, Processor, Request, Runner, RunnerOptions, Settings, StreamTable};

/// The system's allocator, counting what is alive.
struct Counting;

static ALIVE_BYTES: AtomicU64 = AtomicU64::new(0);
static PEAK_BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let alive = ALIVE_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        PEAK_BYTES.fetch_max(alive + layout.size() as u64, Ordering::Relaxed);
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

const SEGMENT_ROWS: u32 = 64;

/// Segments that all lie in the same place of one file: numbers from 0 on.
#[derive(Debug)]
struct Repeated {
    schema: SchemaRef,
    file: Arc<SourceFile>,
    segments: u64,
    /// When the first chunk was asked for a second time, or was told to be the last.
    second: Mutex<Option<Instant>>,
}

impl Table for Repeated {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn rows(&self) -> Option<u64> {
        Some(self.segments * u64::from(SEGMENT_ROWS))
    }

    fn column_stats(&self, _column: usize) -> ColumnStats {
        let bytes = self.segments * u64::from(SEGMENT_ROWS) * 8;
        ColumnStats { bytes, null_count: Some(0), ..ColumnStats::default() }
    }

    fn column_support(&self, _column: usize) -> std::result::Result<(), String> {
        Ok(())
    }

    fn feed(
        self: Arc<Self>,
        _columns: &[usize],
        _conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>> {
        Ok(Box::new(Repeating { table: self, options, totals: ChunkTotals::default() }))
    }

    fn file_count(&self) -> usize {
        1
    }

    fn file_identity(&self, _file: usize) -> FileIdentity {
        self.file.identity()
    }
}

#[derive(Debug)]
struct Repeating {
    table: Arc<Repeated>,
    options: ChunkOptions,
    totals: ChunkTotals,
}

impl ChunkFeed<Chunk> for Repeating {
    fn poll_next(&mut self, _waker: &Waker) -> NextChunk<Chunk> {
        let left = (self.table.segments - self.totals.segments).min(64);
        if self.totals.chunks == 1 {
            self.table.second.lock().unwrap().get_or_insert_with(Instant::now);
        }
        if left == 0 {
            return Poll::Ready(None);
        }
        let values = Extent { offset: 0, bytes: u64::from(SEGMENT_ROWS) * 8 };
        let column = ColumnExtents {
            encoding: Encoding::Plain,
            values,
            offsets: None,
            offsets_base: 0,
            validity: None,
            remap: None,
        };
        let segment = |number| Segment {
            file: 0,
            batch: (self.totals.segments + number) as u32,
            first_row: 0,
            rows: SEGMENT_ROWS,
            columns: vec![column.clone()],
        };
        let chunk = Chunk { segments: (0..left).map(segment).collect() };
        self.totals.chunks += 1;
        self.totals.segments += left;
        self.totals.rows += chunk.rows();
        self.totals.bytes += chunk.bytes();
        let extents = chunk.segments.iter().flat_map(Segment::extents);
        let read =
            |extent: Extent| ReadSpec { file: 0, offset: extent.offset, bytes: extent.bytes };
        let reads: Vec<_> = extents.map(read).collect();
        let files = reads.iter().map(|_| Arc::clone(&self.table.file) as _).collect();
        Poll::Ready(Some(Ok(FedChunk { reads, files, payload: chunk, ..FedChunk::default() })))
    }
}

impl Feed for Repeating {
    fn facts(&self) -> FeedFacts {
        let segment = u64::from(SEGMENT_ROWS) * 8 + self.options.extent_extra_bytes;
        FeedFacts {
            bounds: FeedBounds {
                bytes: Some(self.table.column_stats(0).bytes),
                chunks: Some(self.table.segments),
                slot_bytes: 64 * segment as usize,
            },
            rows: self.table.rows(),
            segment_bytes: segment,
            encodings: vec![Encoding::Plain],
        }
    }

    fn remaps(&self) -> &[Arc<[i32]>] {
        &[]
    }

    fn totals(&self) -> ChunkTotals {
        self.totals
    }
}

/// Bytes that were alive at most beside those before, and the time to the first chunk.
fn sum_of(segments: u64, processor: Processor) -> (u64, Duration) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers");
    let numbers: Vec<u8> = (0..i64::from(SEGMENT_ROWS)).flat_map(i64::to_le_bytes).collect();
    std::fs::write(&path, numbers).unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("n", ArrowType::Int64, false)]));
    let file = SourceFile::open(&path).unwrap();
    let repeated = Arc::new(Repeated { schema, file, segments, second: Mutex::new(None) });
    let table = Arc::new(StreamTable::new("t", Arc::clone(&repeated) as _));
    let source = table.source_over(0, &["n"]).unwrap();
    let sum = AggregateFunction::Sum;
    let calls = vec![AggregateCall::new("s", sum, Some(source.register(0)), DataType::Int64)];
    let sink = Sink::aggregate(vec![], calls);
    let program = Program::new(vec![], Pipeline { source, steps: vec![], sink });
    let runner = Runner::new(&RunnerOptions::default());
    let settings =
        Settings { processor, fallback: Fallback::Forbid, threads: 2, ..Settings::default() };
    let answer = Mutex::new(Vec::new());
    let (tables, token) = ([table], CancelToken::new());
    let request = Request {
        program: &program,
        parameters: &[],
        tables: &tables,
        settings: &settings,
        token: &token,
        known: None,
    };
    let alive = ALIVE_BYTES.load(Ordering::Relaxed);
    PEAK_BYTES.store(alive, Ordering::Relaxed);
    let started = Instant::now();
    let report = runner
        .run(&request, &|batch| {
            answer.lock().unwrap().push(batch);
            true
        })
        .unwrap();
    let peak = PEAK_BYTES.load(Ordering::Relaxed) - alive;
    let wall = started.elapsed();
    let of_segment: i64 = (0..i64::from(SEGMENT_ROWS)).sum();
    let answer = answer.into_inner().unwrap();
    let answer = answer.iter().find(|batch| batch.num_rows() == 1).unwrap();
    let total = answer.column(0).as_primitive::<Int64Type>().value(0);
    assert_eq!(total, of_segment * segments as i64);
    assert_eq!(report.streamed.rows_in, segments * u64::from(SEGMENT_ROWS));
    let second = repeated.second.lock().unwrap().unwrap();
    let first = second.duration_since(started);
    println!("{segments} segments in {wall:?}: first chunk after {first:?}, {peak} bytes");
    (peak, first)
}

/// One test, because what is counted is of the whole process.
#[test]
fn memory_does_not_grow_with_the_number_of_segments() {
    let (few, _) = sum_of(4_000, Processor::Cpu);
    let (many, first) = sum_of(200_000, Processor::Cpu);
    assert!(many < few + (1 << 20), "{few} bytes for few, {many} for many");
    assert!(first < Duration::from_secs(1), "{first:?}");
}

#[test]
#[ignore = "ten million segments: run it alone, optimised"]
fn ten_million_segments() {
    let (bytes, first) = sum_of(10_000_000, Processor::Cpu);
    assert!(bytes < 32 << 20 && first < Duration::from_secs(1), "{bytes} {first:?}");
}

#[test]
#[ignore = "needs a GPU; ten million segments: run it alone, optimised"]
fn gpu_ten_million_segments() {
    let (bytes, _) = sum_of(10_000_000, Processor::Cuda);
    // Half a million of them are planned at once.
    assert!(bytes < 1 << 30, "{bytes}");
}
