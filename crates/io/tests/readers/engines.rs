//! The engines: right bytes without faults, right bytes or the right error with them.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use headrace_io::{
    AlignedBuffer, Completion, CompletionSink, Engine, FaultPlan, IoError, Placement, PreadPool,
    ReadAt, ReadMode, ReadRequest, UringEngine, UringOptions, Window, drop_cache,
};
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::support::{Bench, KINDS, Kind, TestFile, edges};

const WINDOW_BYTES: usize = 256 << 10;

#[test]
fn all_engines_give_the_same_bytes_at_every_edge() {
    for size in [1usize, 100, 4095, 4096, 4097, 8192, 50_001, 100_352] {
        let file = TestFile::new(size);
        for kind in KINDS {
            let mut bench = Bench::new(kind, WINDOW_BYTES);
            for (offset, bytes) in edges(size as u64) {
                let (got, done) = bench.read(file.open(), offset, bytes).unwrap();
                let wanted = &file.content[offset as usize..(offset + bytes) as usize];
                assert!(got == wanted, "{kind:?}: {bytes} bytes at {offset} of {size}");
                assert_eq!(done.direct_refused_bytes, 0, "{kind:?}");
            }
        }
    }
}

#[test]
fn direct_reads_are_direct_up_to_the_partial_last_block() {
    let size = 10 * 4096 + 123;
    let file = TestFile::new(size);
    for kind in KINDS.into_iter().filter(|kind| kind.mode() == ReadMode::Direct) {
        let source = file.open();
        source.direct().expect("the disk under the tests must support O_DIRECT");
        let mut bench = Bench::new(kind, WINDOW_BYTES);
        let (_, done) = bench.read(source.clone(), 100, 5000).unwrap();
        assert_eq!((done.direct_bytes, done.buffered_bytes), (8192, 0), "{kind:?}");
        let (_, done) = bench.read(source.clone(), 0, size as u64).unwrap();
        assert_eq!((done.direct_bytes, done.buffered_bytes), (40_960, 123), "{kind:?}");
        let (_, done) = bench.read(source, 40_970, 100).unwrap();
        assert_eq!((done.direct_bytes, done.buffered_bytes), (0, 100), "{kind:?}");
    }
}

#[test]
fn cold_files_and_holes() {
    let file = TestFile::new(0);
    let handle = std::fs::OpenOptions::new().write(true).open(&file.path).unwrap();
    handle.set_len(70_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&handle, b"island", 50_000).unwrap();
    let mut wanted = vec![0u8; 70_000];
    wanted[50_000..50_006].copy_from_slice(b"island");
    for kind in KINDS {
        let source = file.open();
        drop_cache(&*source).unwrap();
        let (got, _) = Bench::new(kind, WINDOW_BYTES).read(source, 0, 70_000).unwrap();
        assert!(got == wanted, "{kind:?}");
    }
}

#[test]
fn an_empty_file_has_an_empty_extent_and_no_other() {
    let file = TestFile::new(0);
    for kind in KINDS {
        let mut bench = Bench::new(kind, WINDOW_BYTES);
        assert!(bench.read(file.open(), 0, 0).unwrap().0.is_empty());
        let error = bench.read(file.open(), 0, 1).unwrap_err();
        assert!(matches!(error, IoError::OutOfRange { size_bytes: 0, .. }), "{error}");
    }
}

#[test]
fn extents_outside_the_file_and_bad_windows_are_refused() {
    let file = TestFile::new(10_000);
    for kind in KINDS {
        let mut bench = Bench::new(kind, 8192);
        for (offset, bytes) in [(9_999, 2), (10_001, 0), (u64::MAX, 2), (0, u64::MAX)] {
            let error = bench.read(file.open(), offset, bytes).unwrap_err();
            assert!(matches!(error, IoError::OutOfRange { .. }), "{error}");
        }
        let error = {
            bench.submit(file.open(), 4095, 4098, 1);
            bench.completions.recv().unwrap().result.unwrap_err()
        };
        assert!(matches!(error, IoError::Window { window_bytes: 8192, .. }), "{error}");
    }
}

#[test]
fn short_and_interrupted_reads_are_resumed() {
    let file = TestFile::new(100_001);
    for kind in KINDS {
        let mut short_reads = 0;
        for seed in 0..4 {
            let twin = file.faulty(FaultPlan {
                seed,
                short_permille: 600,
                interrupted_permille: 300,
                ..FaultPlan::default()
            });
            let mut bench = Bench::new(kind, WINDOW_BYTES);
            let (got, done) = bench.read(twin, 777, 99_000).unwrap();
            assert!(got == file.content[777..99_777], "{kind:?}");
            short_reads += done.short;
        }
        assert!(short_reads > 0, "{kind:?}: the twin injected nothing");
    }
}

#[test]
fn an_io_error_names_file_offset_and_cause() {
    let file = TestFile::new(100_000);
    for kind in KINDS {
        let plan = FaultPlan { io_error_at: Some(40_000), ..FaultPlan::default() };
        let twin = file.faulty(plan);
        let mut bench = Bench::new(kind, WINDOW_BYTES);
        let error = bench.read(twin.clone(), 10, 99_000).unwrap_err();
        let IoError::Read { path, offset, bytes, cause } = &error else {
            panic!("{kind:?}: {error}");
        };
        assert_eq!(path, &file.path);
        assert!((*offset..offset + bytes).contains(&40_000), "{kind:?}: {error}");
        assert_eq!(cause.raw_os_error(), Some(libc_eio()));
        assert!(error.to_string().contains("data.bin"), "{error}");
        // The rest of the file is as good as before.
        let (got, _) = bench.read(twin, 50_000, 1000).unwrap();
        assert!(got == file.content[50_000..51_000], "{kind:?}");
    }
}

fn libc_eio() -> i32 {
    5
}

#[test]
fn truncation_is_an_error_that_says_where_the_file_ends() {
    let file = TestFile::new(100_000);
    for kind in KINDS {
        for end in [0u64, 8192, 30_000, 99_999] {
            let twin = file.faulty(FaultPlan { truncated_at: Some(end), ..FaultPlan::default() });
            let mut bench = Bench::new(kind, WINDOW_BYTES);
            let error = bench.read(twin, 0, 100_000).unwrap_err();
            let IoError::UnexpectedEnd { offset, .. } = error else {
                panic!("{kind:?}: {error}");
            };
            // Another segment, wholly behind the end, may be the first to notice.
            assert!(offset >= end, "{kind:?}: {offset} < {end}");
        }
    }
}

#[test]
fn a_file_that_really_shrinks_is_an_error_too() {
    for kind in KINDS {
        let file = TestFile::new(100_000);
        let source = file.open();
        let mut bench = Bench::new(kind, WINDOW_BYTES);
        bench.read(source.clone(), 0, 100_000).unwrap();
        let handle = std::fs::OpenOptions::new().write(true).open(&file.path).unwrap();
        handle.set_len(50_001).unwrap();
        let error = bench.read(source.clone(), 0, 100_000).unwrap_err();
        assert!(matches!(error, IoError::UnexpectedEnd { .. }), "{kind:?}: {error}");
        assert!(matches!(source.check_unchanged(), Err(IoError::Changed { .. })));
    }
}

#[test]
fn torn_blocks_arrive_as_they_are_through_every_engine() {
    let file = TestFile::new(60_000);
    let plan = FaultPlan { seed: 9, torn_blocks_permille: 500, ..FaultPlan::default() };
    let twin = file.faulty(plan);
    let mut wanted = file.content[1000..56_000].to_vec();
    twin.tear(1000, &mut wanted);
    assert!(wanted != file.content[1000..56_000], "the twin tore nothing");
    for kind in KINDS {
        let (got, _) = Bench::new(kind, WINDOW_BYTES).read(twin.clone(), 1000, 55_000).unwrap();
        assert!(got == wanted, "{kind:?}");
    }
}

#[test]
fn refused_direct_reads_go_through_the_page_cache_and_are_counted() {
    let file = TestFile::new(40_960);
    for kind in KINDS.into_iter().filter(|kind| kind.mode() == ReadMode::Direct) {
        let twin = file.faulty(FaultPlan { direct_refused: true, ..FaultPlan::default() });
        let (got, done) = Bench::new(kind, WINDOW_BYTES).read(twin, 0, 40_960).unwrap();
        assert!(got == file.content, "{kind:?}");
        assert_eq!((done.direct_bytes, done.direct_refused_bytes), (0, 40_960), "{kind:?}");
        assert_eq!(done.buffered_bytes, 40_960);
    }
}

#[test]
fn latency_is_felt_and_measured() {
    let file = TestFile::new(4096);
    let latency = Duration::from_millis(30);
    for kind in KINDS {
        let twin = file.faulty(FaultPlan { latency, ..FaultPlan::default() });
        let mut bench = Bench::new(kind, 8192);
        bench.submit(twin, 0, 4096, 1);
        let completion = bench.completions.recv().unwrap();
        completion.result.unwrap();
        assert!(completion.latency_ns >= latency.as_nanos() as u64, "{kind:?}");
    }
}

#[test]
fn a_transient_error_is_an_error_once() {
    let file = TestFile::new(4096);
    let plan = FaultPlan { io_error_at: Some(5), io_error_times: Some(1), ..FaultPlan::default() };
    for kind in KINDS {
        let twin = file.faulty(plan.clone());
        let mut bench = Bench::new(kind, 8192);
        assert!(matches!(bench.read(twin.clone(), 0, 4096), Err(IoError::Read { .. })));
        assert!(bench.read(twin, 0, 4096).unwrap().0 == file.content);
    }
}

#[test]
fn dropping_an_engine_completes_everything_exactly_once() {
    let file = TestFile::new(200_000);
    for kind in KINDS {
        let twin =
            file.faulty(FaultPlan { latency: Duration::from_millis(5), ..FaultPlan::default() });
        let mut bench = Bench::new(kind, 1 << 20);
        for tag in 0..50 {
            bench.submit(twin.clone(), 0, 200_000, tag);
        }
        let Bench { engine, completions, memory, .. } = bench;
        let start = Instant::now();
        drop(engine);
        assert!(start.elapsed() < Duration::from_secs(5), "{kind:?}: the queue was not cancelled");
        let mut tags: Vec<u64> = completions.try_iter().map(|completion| completion.tag).collect();
        tags.sort_unstable();
        assert!(tags.iter().copied().eq(0..50), "{kind:?}");
        // Everything that the engine held is gone: only our own handle of the file is left.
        assert_eq!(Arc::strong_count(&twin), 1, "{kind:?}");
        drop(memory);
    }
}

/// The engine's memory may be freed once it was dropped: whatever came between, the drop waits
/// until nobody works on it any more, and ends.
#[test]
fn an_engine_whose_sink_panics_can_be_dropped() {
    const BYTES: usize = 8 << 20;
    const REQUESTS: usize = 4;
    let file = TestFile::new(BYTES);
    let (delivered, deliveries) = crossbeam_channel::unbounded();
    let sink: CompletionSink = Arc::new(move |_| {
        delivered.send(()).unwrap();
        // Not in the thread that submits, which is this test's own.
        let is_engine = std::thread::current().name().is_some_and(|it| it.starts_with("read-"));
        assert!(!is_engine, "a sink that panics, by order");
    });
    for pool in [true, false] {
        let memory = AlignedBuffer::allocate(REQUESTS * BYTES).unwrap();
        let engine: Box<dyn Engine<ReadRequest>> = if pool {
            Box::new(PreadPool::start(2, usize::MAX, sink.clone()).unwrap())
        } else {
            let options = UringOptions { depth: 64, segment_bytes: 1 << 20, inject: None };
            // SAFETY: nothing is registered.
            Box::new(unsafe { UringEngine::start(&options, &[], sink.clone()) }.unwrap())
        };
        let source = file.open();
        for number in 0..REQUESTS {
            let request = ReadRequest {
                file: source.clone(),
                mode: ReadMode::Direct,
                offset: 0,
                // The first is done while the kernel still works on the others.
                bytes: if number == 0 { 4096 } else { BYTES as u64 },
                window: Window::new(memory.as_ptr().wrapping_add(number * BYTES), BYTES),
                tag: number as u64,
            };
            // SAFETY: windows do not overlap, and the memory outlives the engine.
            unsafe { engine.submit(request) };
        }
        deliveries.recv_timeout(Duration::from_secs(20)).unwrap();
        drop(engine);
        assert_eq!(deliveries.try_iter().count(), REQUESTS - 1, "pool: {pool}");
        assert_eq!(Arc::strong_count(&source), 1, "pool: {pool}");
        let sample = || -> Vec<u8> {
            std::hint::black_box(memory.as_slice()).iter().step_by(4096).copied().collect()
        };
        let at_the_drop = sample();
        std::thread::sleep(Duration::from_millis(50));
        assert!(at_the_drop == sample(), "pool: {pool}: the memory changed after the drop");
    }
}

#[test]
fn a_sink_that_panics_loses_no_other_completion() {
    const REQUESTS: u64 = 100;
    let file = TestFile::new(50_000);
    for kind in KINDS {
        let (delivered, deliveries) = crossbeam_channel::unbounded();
        let mut bench = Bench::with_sink(
            kind,
            1 << 20,
            Arc::new(move |completion: Completion| {
                delivered.send(completion.tag).unwrap();
                assert!(!completion.tag.is_multiple_of(3), "a sink that panics, by order");
            }),
        );
        let source = file.open();
        for tag in 0..REQUESTS {
            bench.submit(source.clone(), 0, 50_000, tag);
            // One at a time: they share the memory.
            let got = deliveries.recv_timeout(Duration::from_secs(20));
            assert_eq!(got, Ok(tag), "{kind:?}");
        }
    }
}

/// The last reference to an engine may go in its own sink: that must not wait for itself, and what
/// is owed comes all the same.
#[test]
fn an_engine_dropped_in_its_own_sink_delivers_the_rest_and_ends() {
    const BYTES: usize = 1 << 20;
    const REQUESTS: usize = 20;
    let file = TestFile::new(BYTES);
    for kind in KINDS {
        let slot: Arc<Mutex<Option<Box<dyn Engine<ReadRequest>>>>> = Arc::default();
        let (delivered, deliveries) = crossbeam_channel::unbounded();
        let held = slot.clone();
        let bench = Bench::with_sink(
            kind,
            REQUESTS * BYTES,
            Arc::new(move |completion: Completion| {
                let engine = held.lock().take();
                drop(engine);
                delivered.send(completion.tag).unwrap();
            }),
        );
        let Bench { engine, memory, mode, .. } = bench;
        let source = file.open();
        // Nothing is delivered before the slot is filled.
        let mut filled = slot.lock();
        for number in 0..REQUESTS {
            let request = ReadRequest {
                file: source.clone(),
                mode,
                offset: 0,
                bytes: BYTES as u64,
                window: Window::new(memory.as_ptr().wrapping_add(number * BYTES), BYTES),
                tag: number as u64,
            };
            // SAFETY: windows do not overlap, and the memory is kept until all are completed.
            unsafe { engine.submit(request) };
        }
        *filled = Some(engine);
        drop(filled);
        let mut tags = Vec::new();
        loop {
            match deliveries.recv_timeout(Duration::from_secs(20)) {
                Ok(tag) => tags.push(tag),
                // The sink is gone, and with it the last thread that could deliver.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{kind:?}: only {tags:?} came"),
            }
        }
        tags.sort_unstable();
        assert!(tags.iter().copied().eq(0..REQUESTS as u64), "{kind:?}: {tags:?}");
        drop(memory);
    }
}

#[test]
fn cancelled_requests_say_so() {
    let file = TestFile::new(10_000);
    for kind in KINDS {
        let mut bench = Bench::new(kind, 1 << 20);
        bench.engine.cancel_queued();
        let error = bench.read(file.open(), 0, 10_000).unwrap_err();
        assert!(matches!(error, IoError::Cancelled { .. }), "{kind:?}: {error}");
    }
}

#[test]
fn plain_reads_see_the_same_faults() {
    let file = TestFile::new(20_000);
    let mut into = vec![0u8; 15_000];
    let plan = FaultPlan { short_permille: 900, ..FaultPlan::default() };
    file.faulty(plan).read_exact_at(3000, &mut into).unwrap();
    assert!(into == file.content[3000..18_000]);

    let twin = file.faulty(FaultPlan { truncated_at: Some(9000), ..FaultPlan::default() });
    let error = twin.read_exact_at(3000, &mut into).unwrap_err();
    assert!(matches!(error, IoError::UnexpectedEnd { offset: 9000, missing_bytes: 9000, .. }));
    let error = twin.read_exact_at(3000, &mut vec![0; 30_000]).unwrap_err();
    assert!(matches!(error, IoError::OutOfRange { .. }));
    let twin = file.faulty(FaultPlan { interrupted_permille: 1000, ..FaultPlan::default() });
    let error = twin.read_exact_at(0, &mut into).unwrap_err();
    let IoError::Read { cause, .. } = error else { panic!("{error}") };
    assert_eq!(cause.kind(), io::ErrorKind::Interrupted);
    let twin = file.faulty(FaultPlan { changed: true, ..FaultPlan::default() });
    assert!(matches!(twin.check_unchanged(), Err(IoError::Changed { .. })));
}

#[test]
fn many_requests_at_once_go_each_to_its_own_window() {
    let file = TestFile::new(300_000);
    for kind in KINDS {
        let bench = Bench::new(kind, 4 << 20);
        let source = file.open();
        let extents: Vec<(u64, u64)> = (0..60).map(|i| (i * 4999 % 250_000, 50_000)).collect();
        let mut windows = Vec::new();
        let mut at = 0;
        for (tag, (offset, bytes)) in extents.iter().enumerate() {
            let placement = Placement::of(*offset, *bytes);
            assert!(at + placement.window_bytes <= bench.memory.len());
            let request = ReadRequest {
                file: source.clone(),
                mode: bench.mode,
                offset: *offset,
                bytes: *bytes,
                window: Window::new(bench.memory.as_ptr().wrapping_add(at), placement.window_bytes),
                tag: tag as u64,
            };
            // SAFETY: windows do not overlap, and the memory outlives the engine.
            unsafe { bench.engine.submit(request) };
            windows.push(at + placement.head_bytes);
            at += placement.window_bytes;
        }
        for _ in &extents {
            bench.completions.recv().unwrap().result.unwrap();
        }
        for ((offset, bytes), at) in extents.iter().zip(windows) {
            let got = &bench.memory.as_slice()[at..at + *bytes as usize];
            assert!(got == &file.content[*offset as usize..][..*bytes as usize], "{kind:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random extents of a random file under random harmless faults: the right bytes.
    #[test]
    fn random_extents(
        size in 1u64..200_000,
        extents in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0), 1..6),
        seed in any::<u64>(),
        kind in 0usize..KINDS.len(),
    ) {
        let file = TestFile::new(size as usize);
        let kind: Kind = KINDS[kind];
        let twin = file.faulty(FaultPlan {
            seed,
            short_permille: 300,
            interrupted_permille: 100,
            ..FaultPlan::default()
        });
        let mut bench = Bench::new(kind, 1 << 20);
        for (from, part) in extents {
            let offset = (from * size as f64) as u64;
            let bytes = (part * (size - offset) as f64) as u64;
            let (got, _) = bench.read(twin.clone(), offset, bytes).unwrap();
            prop_assert!(got == file.content[offset as usize..(offset + bytes) as usize]);
        }
    }
}
