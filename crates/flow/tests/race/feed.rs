//! Races over feeds: chunks that are made while the race runs, late ones, and chunks in memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use headrace_flow::{
    AccessPath, Affinity, CancelToken, ChunkFeed, ChunkSpec, DeviceLane, FedChunk, FeedBounds,
    HostCache, InputPolicy, NextChunk, Race, RaceError, RaceOptions, ReadSpec, Verdict,
};
use headrace_io::{MemoryFile, ReadAt};

use crate::lane::{Plan, SimulatedLane};
use crate::support::{Act, Collect, TestFile, forced_paths, race, read};

/// Chunks of a list, some of them late.
#[derive(Debug)]
struct Fed {
    chunks: VecDeque<FedChunk>,
    given: Arc<AtomicUsize>,
    /// Every so many polls there is nothing yet, for a millisecond.
    late_every: usize,
    polls: usize,
    /// After this many chunks, nothing comes any more, or an error.
    end: Option<(usize, End)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Never,
    Error,
}

impl Fed {
    fn of(file: &Arc<dyn ReadAt>, chunks: Vec<ChunkSpec>) -> Fed {
        let fed = |spec: ChunkSpec| {
            let files = spec.reads.iter().map(|_| file.clone()).collect();
            FedChunk { reads: spec.reads, files, ..FedChunk::default() }
        };
        let chunks = chunks.into_iter().map(fed).collect();
        Fed { chunks, given: Arc::default(), late_every: usize::MAX, polls: 0, end: None }
    }
}

impl ChunkFeed for Fed {
    fn poll_next(&mut self, waker: &Waker) -> NextChunk {
        self.polls += 1;
        if self.polls.is_multiple_of(self.late_every) {
            let waker = waker.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(1));
                waker.wake();
            });
            return Poll::Pending;
        }
        let given = self.given.load(Ordering::SeqCst);
        match self.end {
            Some((chunks, End::Never)) if given == chunks => return Poll::Pending,
            Some((chunks, End::Error)) if given == chunks => {
                return Poll::Ready(Some(Err("the producer is out of order".into())));
            }
            _ => {}
        }
        let next = self.chunks.pop_front();
        self.given.fetch_add(usize::from(next.is_some()), Ordering::SeqCst);
        Poll::Ready(next.map(Ok))
    }
}

const SLOT_BYTES: usize = 64 << 10;

fn fed_race(feed: Fed, options: RaceOptions, token: &CancelToken) -> Race {
    let bounds = FeedBounds { bytes: None, chunks: None, slot_bytes: SLOT_BYTES };
    Race::fed(Box::new(feed), bounds, options, token.clone())
}

/// Every chunk exactly once, with the right bytes.
fn assert_chunks(mut got: Vec<(usize, Vec<Vec<u8>>)>, chunks: &[ChunkSpec], content: &[u8]) {
    got.sort();
    assert!(got.iter().map(|(chunk, _)| *chunk).eq(0..chunks.len()), "chunks went missing");
    for ((chunk, buffers), spec) in got.iter().zip(chunks) {
        let wanted = spec.reads.iter().map(|r| &content[r.offset as usize..][..r.bytes as usize]);
        assert!(buffers.iter().eq(wanted), "chunk {chunk}");
    }
}

fn lane() -> SimulatedLane {
    SimulatedLane::new(3, SLOT_BYTES, Plan::default())
}

fn borrowed(lanes: &mut [SimulatedLane]) -> Vec<&mut (dyn DeviceLane + Send)> {
    lanes.iter_mut().map(|lane| lane as &mut (dyn DeviceLane + Send)).collect()
}

#[test]
fn chunks_of_a_feed_arrive_once_by_every_path_however_late_they_are() {
    let file = TestFile::new(600_000);
    let (source, chunks): (Arc<dyn ReadAt>, _) = (file.open(), file.chunks(10_000));
    for (name, options) in forced_paths() {
        for late_every in [usize::MAX, 7] {
            let feed = Fed { late_every, ..Fed::of(&source, chunks.clone()) };
            let race = fed_race(feed, options.clone(), &CancelToken::new());
            let consumers = vec![Collect::default(), Collect::default()];
            let (consumers, report) =
                race.run_host(consumers).unwrap_or_else(|error| panic!("{name}: {error}"));
            let got = consumers.into_iter().flat_map(|consumer| consumer.chunks).collect();
            assert_chunks(got, &chunks, &file.content);
            assert_eq!((report.chunks, report.bytes_by_path.total()), (60, 600_000), "{name}");
            let error = race.run_host(vec![Collect::default()]).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains("runs once"), "{error}");
        }
    }
}

#[test]
fn chunks_of_a_feed_arrive_once_on_one_device_and_on_several() {
    let file = TestFile::new(600_000);
    let (source, chunks): (Arc<dyn ReadAt>, _) = (file.open(), file.chunks(10_000));
    for late_every in [usize::MAX, 3] {
        for (count, lanes) in [(1, None), (2, None), (2, Some(0)), (3, Some(2))] {
            let mut feed = Fed { late_every, ..Fed::of(&source, chunks.clone()) };
            feed.chunks.iter_mut().for_each(|chunk| chunk.lane = lanes);
            let race = fed_race(feed, RaceOptions::default(), &CancelToken::new());
            let mut lanes: Vec<_> = (0..count).map(|_| lane()).collect();
            let report = match lanes.as_mut_slice() {
                [lane] => race.run_device(lane).unwrap(),
                lanes => race.run_devices(borrowed(lanes), &Affinity::none()).unwrap().merged,
            };
            assert_eq!((report.chunks, report.bytes_by_path.total()), (60, 600_000));
            let got = lanes.iter().flat_map(SimulatedLane::take_results).collect();
            assert_chunks(got, &chunks, &file.content);
        }
    }
}

#[test]
fn a_feed_is_asked_only_for_what_is_worked_on_soon() {
    let file = TestFile::new(2_000_000);
    let (source, chunks): (Arc<dyn ReadAt>, _) = (file.open(), file.chunks(1_000));
    for (name, options) in forced_paths() {
        let feed = Fed::of(&source, chunks.clone());
        let given = Arc::clone(&feed.given);
        let consumed = AtomicUsize::new(0);
        let act = |_, _: &[&[u8]]| {
            // Between the two, the other consumer may have gone on.
            let given = given.load(Ordering::SeqCst);
            let ahead = given.saturating_sub(consumed.fetch_add(1, Ordering::SeqCst));
            // Two consumers, three slots, and the one that is being looked at.
            assert!(ahead <= 2 * 8 + 3 + 3 + 2, "{name}: {ahead} chunks ahead");
            Ok(Verdict::Continue)
        };
        let race = fed_race(feed, options, &CancelToken::new());
        let (_, report) = race.run_host(vec![Act(act), Act(act)]).unwrap();
        assert_eq!(report.chunks, 2000);
    }
}

#[test]
fn a_feed_that_fails_ends_the_race_with_its_error() {
    let file = TestFile::new(100_000);
    let (source, chunks): (Arc<dyn ReadAt>, _) = (file.open(), file.chunks(10_000));
    let feed = || Fed { end: Some((4, End::Error)), ..Fed::of(&source, chunks.clone()) };
    let race = || fed_race(feed(), RaceOptions::default(), &CancelToken::new());
    let host = race().run_host(vec![Collect::default()]).map(|_| ()).unwrap_err();
    let device = race().run_device(&mut lane()).map(|_| ()).unwrap_err();
    for error in [host, device] {
        assert!(matches!(&error, RaceError::Feed { .. }), "{error}");
        assert!(error.to_string().contains("out of order"), "{error}");
    }
}

#[test]
fn a_feed_that_never_goes_on_can_be_cancelled() {
    let file = TestFile::new(100_000);
    let (source, chunks): (Arc<dyn ReadAt>, _) = (file.open(), file.chunks(10_000));
    for on_device in [false, true] {
        let token = CancelToken::new();
        let feed = Fed { end: Some((4, End::Never)), ..Fed::of(&source, chunks.clone()) };
        let race = fed_race(feed, RaceOptions::default(), &token);
        let cancelled = std::thread::spawn({
            let token = token.clone();
            move || {
                std::thread::sleep(Duration::from_millis(50));
                token.cancel();
                Instant::now()
            }
        });
        let error = match on_device {
            true => race.run_device(&mut lane()).map(|_| ()).unwrap_err(),
            false => race.run_host(vec![Collect::default()]).map(|_| ()).unwrap_err(),
        };
        assert!(matches!(error, RaceError::Cancelled), "{error}");
        assert!(cancelled.join().unwrap().elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn a_chunk_larger_than_was_said_or_outside_its_file_is_an_error() {
    let file = TestFile::new(200_000);
    let source: Arc<dyn ReadAt> = file.open();
    let outside = ChunkSpec { reads: vec![read(199_999, 2)] };
    let large = ChunkSpec { reads: vec![read(0, 2 * SLOT_BYTES)] };
    let options = RaceOptions { access: AccessPath::Buffered, ..RaceOptions::default() };
    for (spec, cause) in [(outside, "do not lie inside"), (large, "needs a slot")] {
        let race = || {
            let feed = Fed::of(&source, vec![spec.clone()]);
            fed_race(feed, options.clone(), &CancelToken::new())
        };
        let host = race().run_host(vec![Collect::default()]).map(|_| ()).unwrap_err();
        let device = race().run_device(&mut lane()).map(|_| ()).unwrap_err();
        for error in [host, device] {
            assert!(error.to_string().contains(cause), "{error}");
        }
    }
}

/// A chunk of two buffers in memory, and the bytes that it consists of.
fn in_memory(number: usize) -> (FedChunk, Vec<Vec<u8>>) {
    let buffers: Vec<Vec<u8>> =
        [1000, 30].map(|bytes| (0..bytes).map(|i| (i * number) as u8).collect()).into();
    let held: Vec<Vec<u8>> = buffers.clone();
    let reads = held.iter().map(|buffer| {
        let offset = buffer.as_ptr().addr() as u64;
        // The first byte is not wanted.
        ReadSpec { file: 0, offset: offset + 1, bytes: buffer.len() as u64 - 1 }
    });
    let reads = reads.collect();
    let held = held.into_iter().map(|buffer| Box::new(buffer) as headrace_io::HeldBytes);
    let file: Arc<dyn ReadAt> = MemoryFile::new(&MemoryFile::named("batches"), held.collect());
    let files = vec![file.clone(), file];
    (FedChunk { reads, files, ..FedChunk::default() }, buffers)
}

#[test]
fn chunks_in_memory_are_looked_at_where_they_lie_unless_they_are_to_be_copied_first() {
    for copy_first in [false, true] {
        let (chunks, contents): (Vec<_>, Vec<_>) = (0..100).map(in_memory).unzip();
        let places: Vec<u64> = chunks.iter().map(|chunk| chunk.reads[0].offset).collect();
        let feed =
            Fed { chunks: chunks.into(), ..Fed::of(&(TestFile::new(1).open() as _), Vec::new()) };
        let policy = InputPolicy { copy_first, ..InputPolicy::default() };
        // A way that is forced concerns files.
        let options = RaceOptions { policy, access: AccessPath::Direct, ..RaceOptions::default() };
        let race = fed_race(feed, options, &CancelToken::new());
        let seen = AtomicUsize::new(0);
        let act = |chunk: usize, buffers: &[&[u8]]| {
            let in_place = buffers[0].as_ptr().addr() as u64 == places[chunk];
            assert_eq!(in_place, !copy_first);
            assert!(buffers.iter().zip(&contents[chunk]).all(|(got, all)| **got == all[1..]));
            seen.fetch_add(1, Ordering::SeqCst);
            Ok(Verdict::Continue)
        };
        let (_, report) = race.run_host(vec![Act(act), Act(act)]).unwrap();
        assert_eq!((seen.load(Ordering::SeqCst), report.bytes_by_path.memory), (100, 102_800));
        assert_eq!(report.bytes_by_path.total(), 102_800);
    }
}

#[test]
fn chunks_in_memory_are_copied_to_a_device_and_let_go_with_it() {
    let (chunks, contents): (Vec<_>, Vec<_>) = (0..100).map(in_memory).unzip();
    let files: Vec<Arc<dyn ReadAt>> = chunks.iter().map(|chunk| chunk.files[0].clone()).collect();
    let feed =
        Fed { chunks: chunks.into(), ..Fed::of(&(TestFile::new(1).open() as _), Vec::new()) };
    let race = fed_race(feed, RaceOptions::default(), &CancelToken::new());
    let mut lane = lane();
    let report = race.run_device(&mut lane).unwrap();
    assert_eq!((report.chunks, report.bytes_by_path.memory), (100, 102_800));
    for (chunk, buffers) in lane.take_results() {
        assert!(buffers.iter().zip(&contents[chunk]).all(|(got, all)| *got == all[1..]));
    }
    assert!(files.iter().all(|file| Arc::strong_count(file) == 1), "the race keeps chunks");
}

#[test]
fn an_input_that_is_not_cached_leaves_nothing_behind() {
    let file = TestFile::new(400_000);
    for cached in [true, false] {
        file.make_cold();
        let cache = HostCache::new(16 << 20);
        let policy = InputPolicy { cached, ..InputPolicy::default() };
        let options = RaceOptions { policy, cache: Some(cache.clone()), ..RaceOptions::default() };
        let race = race(file.files(), file.chunks(50_000), options);
        race.run_host(vec![Collect::default()]).unwrap();
        assert_eq!(cache.stats().held_bytes > 0, cached, "{:?}", cache.stats());
        assert_eq!(cache.stats().hits + cache.stats().misses > 0, cached);
    }
}

#[test]
fn an_input_that_fills_the_page_cache_is_found_there_again() {
    let file = TestFile::new(400_000);
    for fills_page_cache in [true, false] {
        file.make_cold();
        let policy = InputPolicy { fills_page_cache, ..InputPolicy::default() };
        let options = RaceOptions { policy, ..RaceOptions::default() };
        let run = || {
            let race = race(file.files(), file.chunks(50_000), options.clone());
            race.run_host(vec![Collect::default()]).unwrap().1.bytes_by_path
        };
        let (first, second) = (run(), run());
        match fills_page_cache {
            true => assert_eq!((first.buffered, second.mapped), (400_000, 400_000)),
            // Past it where the file system can.
            false => assert_eq!(first.direct > 0, second.direct > 0),
        }
    }
}

#[test]
fn what_is_copied_first_is_never_looked_at_in_a_mapping() {
    let file = TestFile::new(400_000);
    let policy = InputPolicy { copy_first: true, ..InputPolicy::default() };
    file.make_warm();
    let options = RaceOptions { policy, ..RaceOptions::default() };
    let auto = race(file.files(), file.chunks(50_000), options.clone());
    let (_, report) = auto.run_host(vec![Collect::default()]).unwrap();
    assert_eq!((report.bytes_by_path.mapped, report.bytes_by_path.buffered), (0, 400_000));
    let options = RaceOptions { access: AccessPath::Mapped, ..options };
    let forced = race(file.files(), file.chunks(50_000), options);
    let error = forced.run_host(vec![Collect::default()]).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("copied before it is looked at"), "{error}");
}
