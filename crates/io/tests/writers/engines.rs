//! The engines without faults: the right file, by the way that was asked for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headrace_io::write::{WriteAt, WriteRequest};
use headrace_io::{FaultPlan, IoError, Placement, ReadMode, Transferred, Window};
use proptest::prelude::*;

use crate::support::{Bench, Folder, KINDS, content};

const WINDOW_BYTES: usize = 256 << 10;

#[test]
fn all_engines_leave_the_same_file() {
    for bytes in [1usize, 100, 4095, 4096, 4097, 8192, 50_001, 100_352] {
        let wanted = content(bytes);
        for kind in KINDS {
            for (piece_bytes, sync) in [(20_480, false), (bytes, true)] {
                let folder = Folder::new();
                let sink: Arc<dyn WriteAt> = folder.sink(bytes);
                let mut bench = Bench::new(kind, WINDOW_BYTES);
                let done = bench.write_all(&sink, &wanted, piece_bytes).unwrap();
                assert_eq!(done.direct_refused_bytes, 0, "{kind:?}");
                sink.commit(sync).unwrap();
                let got = std::fs::read(&folder.path).unwrap();
                assert!(got == wanted, "{kind:?}: {bytes} bytes in pieces of {piece_bytes}");
                assert_eq!(folder.names(), ["out.bin"]);
            }
        }
    }
}

#[test]
fn direct_writes_are_direct_and_padded_only_at_the_end_of_the_file() {
    let bytes = 10 * 4096 + 123;
    let wanted = content(bytes);
    for kind in KINDS.into_iter().filter(|kind| kind.mode() == ReadMode::Direct) {
        let folder = Folder::new();
        let sink = folder.sink(bytes);
        sink.direct().expect("the disk under the tests must support O_DIRECT");
        let mut bench = Bench::new(kind, WINDOW_BYTES);
        let done = bench.write(sink.clone(), 0, &wanted).unwrap();
        let padded = Transferred { direct_bytes: 45_056, ..Transferred::default() };
        assert_eq!(done, padded, "{kind:?}");
        // An end in the middle is not padded: what lies behind it stays.
        let done = bench.write(sink.clone(), 4096, &wanted[4096..9096]).unwrap();
        assert_eq!((done.direct_bytes, done.buffered_bytes), (4096, 904), "{kind:?}");
        let done = bench.write(sink.clone(), 8192, &wanted[8192..8193]).unwrap();
        assert_eq!((done.direct_bytes, done.buffered_bytes), (0, 1), "{kind:?}");
        sink.commit(false).unwrap();
        assert!(std::fs::read(&folder.path).unwrap() == wanted, "{kind:?}");
    }
}

#[test]
fn unaligned_beginnings_are_for_the_page_cache_alone() {
    let wanted = content(30_000);
    for kind in KINDS {
        let folder = Folder::new();
        let sink: Arc<dyn WriteAt> = folder.sink(wanted.len());
        let mut bench = Bench::new(kind, WINDOW_BYTES);
        let outcome = bench.write_all(&sink, &wanted, 4999);
        if kind.mode() == ReadMode::Direct {
            let error = outcome.unwrap_err();
            assert!(matches!(error, IoError::Window { offset: 4999, .. }), "{error}");
            assert!(error.to_string().contains("whole block"), "{error}");
        } else {
            assert_eq!(outcome.unwrap().buffered_bytes, 30_000);
            sink.commit(false).unwrap();
            assert!(std::fs::read(&folder.path).unwrap() == wanted, "{kind:?}");
        }
    }
}

#[test]
fn an_empty_file_has_an_empty_extent_and_no_other() {
    for kind in KINDS {
        let folder = Folder::new();
        let sink = folder.sink(0);
        assert!(sink.direct().unwrap_err().contains("empty"));
        let mut bench = Bench::new(kind, WINDOW_BYTES);
        assert_eq!(bench.write(sink.clone(), 0, &[]).unwrap(), Transferred::default());
        let error = bench.write(sink.clone(), 0, &[1]).unwrap_err();
        assert!(matches!(error, IoError::OutOfRange { size_bytes: 0, .. }), "{error}");
        sink.commit(true).unwrap();
        assert_eq!(std::fs::read(&folder.path).unwrap(), []);
    }
}

#[test]
fn extents_outside_the_file_and_bad_windows_are_refused() {
    for kind in KINDS {
        let folder = Folder::new();
        let sink = folder.sink(20_000);
        let mut bench = Bench::new(kind, 8192);
        let mut refusal = |offset, bytes| {
            bench.submit(sink.clone(), offset, bytes, 1);
            bench.completions.recv().unwrap().result.unwrap_err()
        };
        for (offset, bytes) in [(19_999, 2), (20_001, 0), (u64::MAX, 2), (0, u64::MAX)] {
            let error = refusal(offset, bytes);
            assert!(matches!(error, IoError::OutOfRange { .. }), "{error}");
        }
        let error = refusal(4096, 8193);
        assert!(matches!(error, IoError::Window { window_bytes: 8192, .. }), "{error}");
        let window = Window::new(bench.memory.as_ptr().wrapping_add(512), 4096);
        let (file, mode) = (sink.clone(), kind.mode());
        let request = WriteRequest { file, mode, offset: 0, bytes: 100, window, tag: 1 };
        // SAFETY: the window lies inside the memory, which outlives the engine.
        unsafe { bench.engine.submit(request) };
        let error = bench.completions.recv().unwrap().result.unwrap_err();
        assert!(error.to_string().contains("not aligned"), "{error}");
    }
}

#[test]
fn many_requests_at_once_come_each_from_its_own_window() {
    let wanted = content(1_000_001);
    for kind in KINDS {
        let folder = Folder::new();
        let sink = folder.sink(wanted.len());
        let mut bench = Bench::new(kind, 2 << 20);
        let pieces: Vec<&[u8]> = wanted.chunks(20_480).collect();
        let mut at = 0;
        for (tag, piece) in pieces.iter().enumerate().rev() {
            let offset = (tag * 20_480) as u64;
            let placement = Placement::of(offset, piece.len() as u64);
            bench.memory.as_mut_slice()[at..at + piece.len()].copy_from_slice(piece);
            let start = bench.memory.as_ptr().wrapping_add(at);
            let request = WriteRequest {
                file: sink.clone(),
                mode: bench.mode,
                offset,
                bytes: piece.len() as u64,
                window: Window::new(start, placement.window_bytes),
                tag: tag as u64,
            };
            // SAFETY: windows do not overlap, and the memory outlives the engine.
            unsafe { bench.engine.submit(request) };
            at += placement.window_bytes;
        }
        for _ in &pieces {
            bench.completions.recv().unwrap().result.unwrap();
        }
        sink.commit(false).unwrap();
        assert!(std::fs::read(&folder.path).unwrap() == wanted, "{kind:?}");
    }
}

#[test]
fn dropping_an_engine_in_flight_completes_everything_exactly_once() {
    for kind in KINDS {
        let folder = Folder::new();
        let plan = FaultPlan { latency: Duration::from_millis(5), ..Default::default() };
        let twin = folder.faulty(200_000, plan);
        let mut bench = Bench::new(kind, 1 << 20);
        for tag in 0..50 {
            bench.submit(twin.clone(), 0, 200_000, tag);
        }
        let Bench { engine, completions, memory, .. } = bench;
        let start = Instant::now();
        drop(engine);
        assert!(start.elapsed() < Duration::from_secs(5), "{kind:?}: the queue was not cancelled");
        let mut tags: Vec<u64> = Vec::new();
        let mut cancelled = 0;
        for completion in completions.try_iter() {
            tags.push(completion.tag);
            if let Err(error) = completion.result {
                assert!(matches!(error, IoError::Cancelled { .. }), "{error}");
                cancelled += 1;
            }
        }
        tags.sort_unstable();
        assert!(tags.iter().copied().eq(0..50), "{kind:?}");
        assert!(cancelled > 0, "{kind:?}: nothing was in the queue");
        // Everything that the engine held is gone: only our own handle of the file is left.
        assert_eq!(Arc::strong_count(&twin), 1, "{kind:?}");
        drop(memory);
        drop(twin);
        assert!(folder.names().is_empty(), "{kind:?}");
    }
}

#[test]
fn cancelled_requests_say_so() {
    for kind in KINDS {
        let folder = Folder::new();
        let mut bench = Bench::new(kind, 1 << 20);
        bench.engine.cancel_queued();
        let error = bench.write(folder.sink(10_000), 0, &content(10_000)).unwrap_err();
        assert!(matches!(error, IoError::Cancelled { .. }), "{kind:?}: {error}");
        assert!(error.to_string().contains("out.bin"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A file written piece by piece, in random order, under random harmless faults.
    #[test]
    fn random_pieces(
        bytes in 1usize..200_000,
        piece_blocks in 1usize..8,
        order in any::<u64>(),
        seed in any::<u64>(),
        kind in 0usize..KINDS.len(),
    ) {
        let wanted = content(bytes);
        let kind = KINDS[kind];
        let folder = Folder::new();
        let twin = folder.faulty(bytes, FaultPlan {
            seed,
            short_permille: 300,
            interrupted_permille: 100,
            ..FaultPlan::default()
        });
        let mut bench = Bench::new(kind, 1 << 20);
        let piece_bytes = piece_blocks * 4096;
        let mut pieces: Vec<(usize, &[u8])> = wanted.chunks(piece_bytes).enumerate().collect();
        // Any fixed shuffle will do.
        pieces.sort_by_key(|(index, _)| (*index as u64 ^ order).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for (index, piece) in pieces {
            bench.write(twin.clone(), (index * piece_bytes) as u64, piece).unwrap();
        }
        twin.commit(false).unwrap();
        prop_assert!(std::fs::read(&folder.path).unwrap() == wanted);
    }
}
