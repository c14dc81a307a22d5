//! How fast queries stream and repeat: against the link's own speed, and against their kernels.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use headrace_cuda::{
    ChunkLimits, CudaAnswer, CudaDevice, CudaOptions, CudaRun, RunSource, SegmentSource, chunked,
};
use headrace_flow::{CancelToken, RaceOptions, RaceReport, RegisteredPool};
use headrace_gpu::measure::h2d;
use headrace_io::{ReadAt, SourceFile};
use headrace_ir::{ColumnExtents, Encoding, Extent, Segment};
use headrace_pipeline::bound::Bound;
use headrace_pipeline::state::finish_dense;

use crate::differential::{lines, rows_of_none};
use crate::ssb;
use crate::timing::{BLOCK_ROWS, SEGMENT_ROWS, lineorder_column};

/// Record batches of a million rows: 4.2 GB for a query of four columns.
const SEGMENTS: usize = 250;

/// Chunks of a size of which a ring fits the processor's last-level cache.
const CHUNK_BYTES: u64 = 23 << 20;

/// Columns of a query, batch by batch, in a file.
struct Stored {
    _folder: tempfile::TempDir,
    sources: Vec<SegmentSource>,
    bytes: u64,
}

impl Stored {
    fn write(folder: &Path, query: &ssb::Query) -> Self {
        let folder = tempfile::tempdir_in(folder).unwrap();
        let path = folder.path().join("lineorder");
        let registers = &query.bound.registers[..query.bound.source_registers];
        let blocks: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let block = |name| scope.spawn(move || lineorder_column(name, &ssb::SF100));
            let threads: Vec<_> = registers.iter().map(|r| block(r.name.as_str())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut file = std::fs::File::create(&path).unwrap();
        // Where an Arrow file's buffers lie: on multiples of 64 bytes.
        file.write_all(&[0; 64]).unwrap();
        let mut offset = 64;
        let mut segments = Vec::new();
        let identity: Arc<[u8]> = path.display().to_string().into_bytes().into();
        let columns: Arc<[u32]> = (0..blocks.len() as u32).collect();
        for batch in 0..SEGMENTS {
            let from = batch * SEGMENT_ROWS % BLOCK_ROWS * 4;
            let mut extents = Vec::new();
            for block in &blocks {
                file.write_all(&block[from..from + SEGMENT_ROWS * 4]).unwrap();
                let values = Extent { offset, bytes: SEGMENT_ROWS as u64 * 4 };
                offset += values.bytes;
                extents.push(ColumnExtents {
                    encoding: Encoding::Plain,
                    values,
                    offsets: None,
                    offsets_base: 0,
                    validity: None,
                    remap: None,
                });
            }
            let segment = Segment {
                file: 0,
                batch: batch as u32,
                first_row: 0,
                rows: SEGMENT_ROWS as u32,
                columns: extents,
            };
            segments.push(segment);
        }
        let from: Arc<dyn ReadAt> = SourceFile::open(&path).unwrap();
        let source = |segment| SegmentSource {
            segment,
            from: Some(Arc::clone(&from)),
            file: Some(Arc::clone(&identity)),
            columns: Arc::clone(&columns),
            stamp: 0,
            kept: None,
            near: headrace_io::Lanes::ALL,
        };
        let sources = segments.into_iter().map(source).collect();
        Self { _folder: folder, sources, bytes: offset - 64 }
    }

    fn run(&self, devices: &[Arc<CudaDevice>], query: &ssb::Query) -> CudaRun {
        let limits = ChunkLimits { slot_bytes: CHUNK_BYTES, segments: 64, rows: u64::MAX };
        let chunks = chunked(self.sources.iter().cloned(), devices.len(), limits);
        CudaRun::new(devices, &query.bound, RunSource::of(chunks)).unwrap()
    }

    fn stream(
        &self,
        devices: &[Arc<CudaDevice>],
        query: &ssb::Query,
        options: &RaceOptions,
    ) -> (Vec<String>, RaceReport) {
        let run = self.run(devices, query);
        let output = rows_of_none(&query.bound);
        let (answer, report) =
            run.stream(options.clone(), &CancelToken::new(), &output, None).unwrap();
        assert_eq!(report.bytes_by_path.total(), self.bytes);
        (text(&query.bound, answer), report)
    }
}

fn text(bound: &Bound, answer: CudaAnswer) -> Vec<String> {
    lines(&[finish_dense(bound, &answer.state.unwrap()).unwrap()])
}

fn query() -> ssb::Query {
    ssb::queries(&ssb::SF100).remove(0)
}

/// Devices that keep no columns.
fn streaming(ordinals: &[usize]) -> Vec<Arc<CudaDevice>> {
    let options = CudaOptions { resident_bytes: Some(0), ..CudaOptions::default() };
    ordinals.iter().map(|ordinal| CudaDevice::open(*ordinal, options).unwrap()).collect()
}

/// The best of several rounds, in GB/s; every round gives the same answer.
fn best_of(
    stored: &Stored,
    query: &ssb::Query,
    devices: &[Arc<CudaDevice>],
    options: &RaceOptions,
    name: &str,
) -> (f64, Vec<String>) {
    let (mut best, mut answer) = (0f64, None);
    for round in 0..6 {
        let started = Instant::now();
        let (lines, report) = stored.stream(devices, query, options);
        let wall_ms = started.elapsed().as_secs_f64() * 1e3;
        assert_eq!(answer.get_or_insert_with(|| lines.clone()), &lines);
        best = best.max(report.gb_per_s());
        println!(
            "{name} {round}: {:.1} GB/s, race {:.1} ms, all {wall_ms:.1} ms, h2d {:.1} ms, {} stolen, {:?}",
            report.gb_per_s(),
            report.wall_ns as f64 / 1e6,
            report.h2d_ns as f64 / 1e6,
            report.stolen_chunks,
            report.bytes_by_path,
        );
    }
    (best, answer.unwrap())
}

#[test]
#[ignore = "needs a GPU"]
fn alone_streamed_queries_fill_the_link() {
    let query = query();
    let devices = streaming(&[0]);
    let link = h2d(devices[0].device()).unwrap().gb_per_s;
    println!("link: {link:.1} GB/s");
    let disk = Stored::write(Path::new("."), &query);
    let memory = Stored::write(Path::new("/dev/shm"), &query);
    let registered =
        RaceOptions { registered: Some(RegisteredPool::new(8 << 30)), ..RaceOptions::default() };
    let plain = RaceOptions::default();
    let (cached, one) = best_of(&disk, &query, &devices, &plain, "page cache");
    let (slots, two) = best_of(&memory, &query, &devices, &plain, "tmpfs by slots");
    let (pinned, three) = best_of(&memory, &query, &devices, &registered, "tmpfs registered");
    assert!(one == two && two == three);
    println!("of {link:.1} GB/s: {cached:.1}, {slots:.1}, {pinned:.1}");
    assert!(pinned > link * 0.9 && cached.max(slots) > link * 0.7);
    // Slots and their pinned memory are those of the first round.
    assert!(devices[0].pinned_bytes() < 180 << 20, "{}", devices[0].pinned_bytes());
}

#[test]
#[ignore = "needs two GPUs"]
fn two_gpus_stream_faster_than_one() {
    let query = query();
    let stored = Stored::write(Path::new("/dev/shm"), &query);
    let options =
        RaceOptions { registered: Some(RegisteredPool::new(8 << 30)), ..RaceOptions::default() };
    let (one, answer) = best_of(&stored, &query, &streaming(&[0]), &options, "one GPU");
    let (two, same) = best_of(&stored, &query, &streaming(&[0, 1]), &options, "two GPUs");
    assert_eq!(answer, same);
    println!("{:.2} times as fast", two / one);
    assert!(two > 1.5 * one, "{two:.1} of {one:.1} GB/s");
}

/// What a repeated query costs beside its kernels.
#[test]
#[ignore = "needs a GPU"]
fn alone_a_repeated_query_costs_little_more_than_its_kernel() {
    let query = query();
    let stored = Stored::write(Path::new("/dev/shm"), &query);
    let devices = [CudaDevice::open(0, CudaOptions::default()).unwrap()];
    let (answer, _) = stored.stream(&devices, &query, &RaceOptions::default());
    let planning = Instant::now();
    let run = stored.run(&devices, &query);
    assert!(run.is_resident());
    let mut runs = run.into_resident().unwrap();
    println!("made ready in {:.2} ms", planning.elapsed().as_secs_f64() * 1e3);
    let output = rows_of_none(&query.bound);
    let mut best_ms = f64::INFINITY;
    for _ in 0..20 {
        let started = Instant::now();
        let (found, report) = runs.run(&output, None).unwrap().unwrap();
        let wall_ms = started.elapsed().as_secs_f64() * 1e3;
        let kernel_ms = report.kernel_ns as f64 / 1e6;
        assert_eq!(text(&query.bound, found), answer);
        println!("{wall_ms:.3} ms, kernel {kernel_ms:.3} ms");
        best_ms = best_ms.min(wall_ms - kernel_ms);
    }
    assert!(best_ms < 0.3, "{best_ms:.3} ms beside the kernel");
}
