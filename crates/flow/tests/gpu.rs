//! The race on a real device. Run with `--ignored`, those that measure (`alone_`) one at a time.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

#[path = "gpu/stages.rs"]
mod stages;

use headrace_flow::{
    AccessPath, BoxError, CancelToken, ChunkSpec, CudaSlots, DeviceProgram, DeviceSlice, HostCache,
    Race, RaceError, RaceOptions, ReadSpec, SlotChunk, Verdict,
};
use headrace_gpu::{Device, DevicePool, PinnedBuffer, Stream, measure};
use headrace_io::{FaultPlan, FaultyFile, ReadAt, SourceFile, drop_cache};

/// Copies every buffer back, to see what arrived.
struct CopyBack {
    buffers: Vec<Vec<PinnedBuffer>>,
    lengths: Vec<Vec<usize>>,
    retired: usize,
    fail_at: Option<usize>,
    enough_at: Option<usize>,
    cancel_at: Option<(usize, CancelToken)>,
}

impl CopyBack {
    fn new(device: &Arc<Device>, race: &Race) -> CopyBack {
        let lengths: Vec<Vec<usize>> = race
            .chunks()
            .iter()
            .map(|chunk| chunk.reads.iter().map(|read| read.bytes as usize).collect())
            .collect();
        let allocate = |bytes: &usize| PinnedBuffer::new(device, (*bytes).max(1)).unwrap();
        CopyBack {
            buffers: lengths.iter().map(|chunk| chunk.iter().map(allocate).collect()).collect(),
            lengths,
            retired: 0,
            fail_at: None,
            enough_at: None,
            cancel_at: None,
        }
    }

    fn assert_same(&self, race: &Race, content: &[u8]) {
        for (chunk, spec) in race.chunks().iter().enumerate() {
            for (buffer, read) in spec.reads.iter().enumerate() {
                let got = &self.buffers[chunk][buffer].as_slice()[..self.lengths[chunk][buffer]];
                let wanted = &content[read.offset as usize..][..read.bytes as usize];
                assert!(got == wanted, "chunk {chunk}, buffer {buffer}");
            }
        }
        assert_eq!(self.retired, race.chunks().len());
    }
}

// SAFETY: it has no output.
unsafe impl DeviceProgram for &mut CopyBack {
    fn launch(
        &mut self,
        stream: &Stream,
        SlotChunk { chunk, .. }: SlotChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), BoxError> {
        if self.fail_at == Some(chunk) {
            return Err("failed by order".into());
        }
        for (buffer, slice) in buffers.iter().enumerate() {
            assert_eq!(slice.bytes, self.lengths[chunk][buffer]);
            assert_eq!(slice.address % 256, 0);
            if slice.bytes > 0 {
                let into = self.buffers[chunk][buffer].ptr().as_ptr();
                // SAFETY: the destination is pinned memory of this length that is read only after
                // the race, which ends with a synchronised device.
                unsafe { stream.copy_d2h_raw(into, slice.address, slice.bytes)? };
            }
        }
        Ok(())
    }

    fn retire(&mut self, SlotChunk { chunk, .. }: SlotChunk) -> Result<Verdict, BoxError> {
        self.retired += 1;
        if let Some((at, token)) = &self.cancel_at
            && *at == chunk
        {
            token.cancel();
        }
        Ok(if self.enough_at == Some(chunk) { Verdict::Enough } else { Verdict::Continue })
    }
}

/// Does nothing with what arrived.
struct Ignore;

// SAFETY: it has no output.
unsafe impl DeviceProgram for Ignore {
    fn launch(&mut self, _: &Stream, _: SlotChunk, _: &[DeviceSlice]) -> Result<(), BoxError> {
        Ok(())
    }
}

struct Bench {
    device: Arc<Device>,
    pool: Arc<DevicePool>,
}

impl Bench {
    fn new() -> Bench {
        let device = Device::open(0).expect("these tests need a GPU");
        let pool = DevicePool::new(&device, 2 << 30);
        Bench { device, pool }
    }
}

struct TestFile {
    _dir: tempfile::TempDir,
    file: Arc<SourceFile>,
    content: Vec<u8>,
}

impl TestFile {
    fn new(folder: &str, bytes: usize) -> TestFile {
        let dir = tempfile::tempdir_in(folder).unwrap();
        let path = dir.path().join("data.bin");
        let content: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251 + i / 65_521) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        TestFile { _dir: dir, file: SourceFile::open(&path).unwrap(), content }
    }

    /// Two buffers a chunk, unaligned, the second one short; and an empty one.
    fn chunks(&self, chunk_bytes: usize) -> Vec<ChunkSpec> {
        let size = self.content.len();
        let read = |offset: usize, end: usize| ReadSpec {
            file: 0,
            offset: offset as u64,
            bytes: (end - offset) as u64,
        };
        (0..size)
            .step_by(chunk_bytes)
            .map(|start| {
                let end = (start + chunk_bytes).min(size);
                let middle = start + (end - start) * 3 / 4;
                ChunkSpec { reads: vec![read(start, middle), read(end, end), read(middle, end)] }
            })
            .collect()
    }
}

const SIZE: usize = 50_000_003;
const CHUNK: usize = 3_000_000;

#[test]
#[ignore = "needs a GPU"]
fn gpu_every_path_brings_the_right_bytes() {
    let bench = Bench::new();
    let file = TestFile::new(".", SIZE);
    let mut slots = CudaSlots::new(&bench.pool, 3, CHUNK + 65_536).unwrap();
    let cache = HostCache::new(1 << 30);
    let with = |access, cache| RaceOptions { access, cache, ..RaceOptions::default() };
    for (name, options) in [
        ("mapped", with(AccessPath::Mapped, None)),
        ("buffered", with(AccessPath::Buffered, None)),
        ("cold", with(AccessPath::Auto, None)),
        ("cold, admitted", with(AccessPath::Auto, Some(cache.clone()))),
        ("cached", with(AccessPath::Auto, Some(cache))),
    ] {
        drop_cache(&*file.file).unwrap();
        let race =
            Race::new(vec![file.file.clone()], file.chunks(CHUNK), options, CancelToken::new())
                .unwrap();
        let mut program = CopyBack::new(&bench.device, &race);
        let report = race.run_device(&mut slots.lane(&mut program)).unwrap();
        program.assert_same(&race, &file.content);
        let bytes = report.bytes_by_path;
        assert_eq!(bytes.total(), SIZE as u64);
        match name {
            "mapped" => assert_eq!(bytes.mapped, SIZE as u64),
            "buffered" => assert_eq!(bytes.buffered, SIZE as u64),
            "cached" => assert_eq!(bytes.cached, SIZE as u64),
            // A folder in memory, or one without O_DIRECT, is read through the page cache.
            _ => assert!(bytes.direct + bytes.buffered == SIZE as u64),
        }
        assert!(report.h2d_ns > 0 && report.kernel_ns > 0, "{report:?}");
        println!("{name}: {:.1} GB/s, {report:?}", report.gb_per_s());
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_failures_leave_slots_that_work() {
    let bench = Bench::new();
    let file = TestFile::new(".", SIZE);
    let mut slots = CudaSlots::new(&bench.pool, 3, CHUNK + 65_536).unwrap();
    let token = CancelToken::new();
    let latency = Duration::from_millis(1);
    let twin = FaultyFile::new(
        file.file.clone(),
        FaultPlan { io_error_at: Some(SIZE as u64 / 2), latency, ..FaultPlan::default() },
    );
    let chunks = file.chunks(CHUNK);
    let run = |file: Arc<dyn ReadAt>,
               token: &CancelToken,
               slots: &mut CudaSlots,
               plan: &dyn Fn(&mut CopyBack)| {
        let options = RaceOptions { access: AccessPath::Buffered, ..RaceOptions::default() };
        let race = Race::new(vec![file], chunks.clone(), options, token.clone()).unwrap();
        let mut program = CopyBack::new(&bench.device, &race);
        plan(&mut program);
        (race.run_device(&mut slots.lane(&mut program)), program.retired)
    };
    let (result, _) = run(twin, &token, &mut slots, &|_| ());
    assert!(matches!(result, Err(RaceError::Read { .. })), "{result:?}");
    let (result, _) = run(file.file.clone(), &token, &mut slots, &|p| p.fail_at = Some(5));
    assert!(matches!(result, Err(RaceError::Device { chunk: Some(5), .. })), "{result:?}");
    let (result, retired) = run(file.file.clone(), &token, &mut slots, &|p| p.enough_at = Some(2));
    assert!(result.unwrap().ended_early && retired < 10);
    let (result, retired) =
        run(file.file.clone(), &token, &mut slots, &|p| p.cancel_at = Some((3, token.clone())));
    assert!(matches!(result, Err(RaceError::Cancelled)), "{result:?}");
    assert!(retired < 10);

    let race = Race::new(
        vec![file.file.clone()],
        file.chunks(CHUNK),
        RaceOptions::default(),
        CancelToken::new(),
    )
    .unwrap();
    let mut program = CopyBack::new(&bench.device, &race);
    race.run_device(&mut slots.lane(&mut program)).unwrap();
    program.assert_same(&race, &file.content);
}

/// A warm file must reach the device at a good part of the link's speed, or as fast as this host
/// copies from the page cache: reads, copies and launches overlap, and nothing waits for the host.
#[test]
#[ignore = "needs a GPU"]
fn alone_a_warm_file_fills_the_link() {
    const CHUNK: usize = 24 << 20;
    let bench = Bench::new();
    let link_gb_per_s = measure::h2d(&bench.device).unwrap().gb_per_s;
    for folder in [".", "/dev/shm"] {
        let file = TestFile::new(folder, 3_000_000_000);
        let mut slots = CudaSlots::new(&bench.pool, 6, CHUNK + 65_536).unwrap();
        slots.wait_until_ready().unwrap();
        let race = Race::new(
            vec![file.file.clone()],
            file.chunks(CHUNK),
            RaceOptions::default(),
            CancelToken::new(),
        )
        .unwrap();
        let (mut best, mut reading_part) = (0f64, 0f64);
        for _ in 0..5 {
            let report = race.run_device(&mut slots.lane(Ignore)).unwrap();
            assert_eq!(report.bytes_by_path.buffered, 3_000_000_000, "{report:?}");
            best = best.max(report.gb_per_s());
            reading_part = reading_part.max(report.read_busy_ns as f64 / report.wall_ns as f64);
            println!(
                "{folder}: {:.1} GB/s of {link_gb_per_s:.1}; first chunk {} us; {}; read busy {:.0}%, link {:.0}%",
                report.gb_per_s(),
                report.first_chunk_ns / 1000,
                report.bottleneck().unwrap(),
                report.read_busy_ns as f64 / report.wall_ns as f64 * 100.0,
                report.h2d_ns as f64 / report.wall_ns as f64 * 100.0,
            );
        }
        let is_link = best > link_gb_per_s * 0.75;
        let is_host = best > link_gb_per_s * 0.5 && reading_part > 0.9;
        assert!(is_link || is_host, "{folder}: {best:.1} of {link_gb_per_s:.1} GB/s");
    }
}
