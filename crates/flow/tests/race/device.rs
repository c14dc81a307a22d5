//! The race on a (simulated) device: right bytes on every path, faults at every stage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headrace_flow::{
    AccessPath, CancelToken, ChunkSpec, HostCache, Race, RaceError, RaceOptions, RaceReport, Stage,
};
use headrace_io::{FaultPlan, IoError, ReadAt};
use proptest::prelude::*;

use crate::lane::{At, Plan, SimulatedLane, What};
use crate::support::{TestFile, assert_same, chunks_of, forced_paths, race, read};

const SIZE: usize = 500_003;
const CHUNK: usize = 50_000;
const SLOT: usize = 128 << 10;

fn lane(plan: Plan) -> SimulatedLane {
    SimulatedLane::new(3, SLOT, plan)
}

fn check(race: &Race, lane: &mut SimulatedLane, content: &[u8]) -> Result<RaceReport, RaceError> {
    let synchronized = lane.synchronized;
    let result = race.run_device(lane);
    assert!(lane.synchronized > synchronized && lane.is_idle(), "the device was left at work");
    let report = result?;
    assert_same(race, lane.take_results(), content);
    assert_eq!(report.bytes_by_path.total(), race.bytes());
    assert_eq!(report.chunks, race.chunks().len() as u64);
    Ok(report)
}

#[test]
fn every_path_brings_the_same_bytes_to_the_device() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        file.make_cold();
        let race = race(file.files(), file.chunks(CHUNK), options);
        let mut lane = lane(Plan {
            copy_latency: Duration::from_millis(1),
            kernel_latency: Duration::from_millis(1),
            ..Plan::default()
        });
        let report =
            check(&race, &mut lane, &file.content).unwrap_or_else(|e| panic!("{name}: {e}"));
        let bytes = report.bytes_by_path;
        match name {
            "mapped" => assert_eq!(bytes.mapped, SIZE as u64),
            "buffered" => assert_eq!(bytes.buffered, SIZE as u64),
            _ => assert_eq!(bytes.direct, (SIZE - SIZE % 4096) as u64),
        }
        assert!(report.h2d_ns >= 22_000_000 && report.kernel_ns >= 11_000_000, "{report:?}");
        assert!(lane.executing_max > 1, "{name}: slots were not used side by side");
        // Again on the same lane: times are those of this race.
        let again = check(&race, &mut lane, &file.content).unwrap();
        assert!(again.h2d_ns < 2 * report.h2d_ns);
    }
}

#[test]
fn auto_reads_warm_chunks_buffered_and_cold_ones_directly() {
    let file = TestFile::new(SIZE);
    let race = race(file.files(), file.chunks(CHUNK), RaceOptions::default());
    file.make_cold();
    let bytes = check(&race, &mut lane(Plan::default()), &file.content).unwrap().bytes_by_path;
    assert_eq!(bytes.direct, (SIZE - SIZE % 4096) as u64);
    file.make_warm();
    let bytes = check(&race, &mut lane(Plan::default()), &file.content).unwrap().bytes_by_path;
    assert_eq!(bytes.buffered, SIZE as u64);
}

#[test]
fn cold_chunks_are_admitted_to_the_host_cache_on_their_way() {
    let file = TestFile::new(SIZE);
    for budget in [4 << 20, 200_000] {
        file.make_cold();
        let cache = HostCache::new(budget);
        let options = RaceOptions { cache: Some(cache.clone()), ..RaceOptions::default() };
        let race = race(file.files(), file.chunks(CHUNK), options);
        let first = check(&race, &mut lane(Plan::default()), &file.content).unwrap();
        assert!(first.bytes_by_path.direct > 0 && first.bytes_by_path.cached == 0);
        assert!(first.transferred_bytes < SIZE as u64 + 22 * 8192, "copies count as reads");
        let second = check(&race, &mut lane(Plan::default()), &file.content).unwrap();
        if budget > SIZE as u64 * 2 {
            // The partial last block was read through the page cache, so its neighbour in the
            // same block may have been found there and not been admitted.
            assert!(second.bytes_by_path.cached >= SIZE as u64 - 4096);
        } else {
            assert!(second.bytes_by_path.cached > 0 && second.bytes_by_path.direct > 0);
        }
        assert_eq!(second.host_copied_bytes > second.read_bytes, budget > SIZE as u64 * 2);
        assert!(cache.stats().held_bytes <= budget);
    }
}

#[test]
fn resident_chunks_are_neither_read_nor_copied() {
    let file = TestFile::new(SIZE);
    let twin = file.faulty(FaultPlan { io_error_at: Some(0), ..FaultPlan::default() });
    let race = race(vec![twin.clone()], file.chunks(CHUNK), RaceOptions::default());
    let buffers = |(chunk, spec): (usize, &ChunkSpec)| -> Vec<(usize, usize)> {
        (0..spec.reads.len()).map(|buffer| (chunk, buffer)).collect()
    };
    let resident: Vec<_> = race.chunks().iter().enumerate().flat_map(buffers).collect();
    let mut all = lane(Plan { resident, ..Plan::default() });
    let report = race.run_device(&mut all).unwrap();
    assert_eq!(report.bytes_by_path.resident_device, SIZE as u64);
    assert_eq!((report.chunks, twin.reads(), report.h2d_ns), (11, 0, 0));

    // Only the first chunk, whose bytes cannot be read.
    let first = (0..race.chunks()[0].reads.len()).map(|buffer| (0, buffer)).collect();
    let mut one = lane(Plan { resident: first, ..Plan::default() });
    let report = race.run_device(&mut one).unwrap();
    assert_eq!(report.bytes_by_path.resident_device, CHUNK as u64);
    assert_eq!(report.bytes_by_path.total(), SIZE as u64);
}

#[test]
fn a_chunk_may_be_resident_in_part() {
    let file = TestFile::new(SIZE);
    let race = race(file.files(), file.chunks(CHUNK), RaceOptions::default());
    let resident = (0..race.chunks().len()).map(|chunk| (chunk, 0)).collect();
    let mut lane = lane(Plan { resident, ..Plan::default() });
    let report = race.run_device(&mut lane).unwrap();
    let first: u64 = race.chunks().iter().map(|chunk| chunk.reads[0].bytes).sum();
    assert_eq!(report.bytes_by_path.resident_device, first);
    assert_eq!(report.bytes_by_path.total(), SIZE as u64);
    for (chunk, buffers) in lane.take_results() {
        assert!(buffers[0].is_empty(), "what is resident has no room in the slot");
        for (bytes, read) in buffers.iter().zip(&race.chunks()[chunk].reads).skip(1) {
            assert!(bytes[..] == file.content[read.offset as usize..][..read.bytes as usize]);
        }
    }
}

#[test]
fn empty_chunks_and_no_chunks() {
    let file = TestFile::new(10_000);
    for (name, options) in forced_paths() {
        let chunks = vec![
            ChunkSpec::default(),
            ChunkSpec { reads: vec![read(0, 0), read(10, 3), read(10_000, 0)] },
            ChunkSpec { reads: vec![read(0, 0)] },
        ];
        let race = race(file.files(), chunks, options.clone());
        check(&race, &mut lane(Plan::default()), &file.content)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let none = crate::support::race(file.files(), Vec::new(), options);
        assert_eq!(check(&none, &mut lane(Plan::default()), &file.content).unwrap().chunks, 0);
    }
}

#[test]
fn many_small_chunks() {
    let file = TestFile::new(100_000);
    let race = race(file.files(), file.chunks(100), RaceOptions::default());
    check(&race, &mut lane(Plan::default()), &file.content).unwrap();
}

#[test]
fn chunks_that_do_not_fit_are_refused_before_anything_is_read() {
    let file = TestFile::new(SIZE);
    let twin = file.faulty(FaultPlan::default());
    let race = race(vec![twin.clone()], file.chunks(200_000), RaceOptions::default());
    let error = race.run_device(&mut lane(Plan::default())).unwrap_err();
    assert!(matches!(error, RaceError::ChunkTooLarge { slot_bytes: SLOT, .. }), "{error}");
    // Enough host memory, too little device memory.
    let mut small = SimulatedLane::new(2, 1 << 20, Plan::default()).with_device_bytes(150_000);
    let error = race.run_device(&mut small).unwrap_err();
    let RaceError::ChunkTooLarge { needed_bytes, slot_bytes: 150_000, .. } = error else {
        panic!("{error}");
    };
    assert!((200_000..200_600).contains(&needed_bytes));
    assert_eq!(twin.reads(), 0);
}

#[test]
fn an_error_or_panic_at_any_stage_of_the_device_ends_the_race() {
    let file = TestFile::new(SIZE);
    for at in [At::Copy, At::Launch, At::Execute, At::Retire] {
        for what in [What::Fail, What::Panic] {
            for (name, options) in forced_paths() {
                let latency = Duration::from_millis(1);
                let twin = file.faulty(FaultPlan { latency, ..FaultPlan::default() });
                let race = race(vec![twin.clone()], file.chunks(CHUNK), options);
                let mut lane = lane(Plan {
                    copy_latency: latency,
                    kernel_latency: latency,
                    happen: Some((at, 4, what)),
                    ..Plan::default()
                });
                let error = check(&race, &mut lane, &file.content).unwrap_err();
                let as_planned = match (&error, what) {
                    (RaceError::Device { source, .. }, What::Fail) => {
                        source.to_string().contains("by order")
                    }
                    (RaceError::Panic { message, .. }, What::Panic) => message.contains("by order"),
                    _ => false,
                };
                assert!(as_planned, "{name}, {at:?}, {what:?}: {error}");
                let reads = twin.reads();
                std::thread::sleep(Duration::from_millis(3));
                assert_eq!(twin.reads(), reads, "{name}: reads went on after the race");
                drop(race);
                assert_eq!(Arc::strong_count(&twin), 1, "{name}");
            }
        }
    }
}

#[test]
fn cancellation_at_every_stage_of_the_device() {
    let file = TestFile::new(SIZE);
    for at in [At::Copy, At::Launch, At::Execute, At::Retire] {
        for (name, options) in forced_paths() {
            let token = CancelToken::new();
            let race = Race::new(file.files(), file.chunks(CHUNK), options, token.clone()).unwrap();
            let mut lane = lane(Plan {
                copy_latency: Duration::from_millis(1),
                kernel_latency: Duration::from_millis(2),
                cancel: Some((at, 2, token)),
                ..Plan::default()
            });
            let error = check(&race, &mut lane, &file.content).unwrap_err();
            assert!(matches!(error, RaceError::Cancelled), "{name}, {at:?}: {error}");
            assert!(lane.retired.len() < 11, "{name}, {at:?}");
        }
    }
}

#[test]
fn cancellation_while_reads_are_under_way() {
    let file = TestFile::new(SIZE);
    for (name, options) in crate::support::slot_paths() {
        let token = CancelToken::new();
        let latency = Duration::from_millis(30);
        let twin = file.faulty(FaultPlan { latency, ..FaultPlan::default() });
        let race =
            Race::new(vec![twin.clone()], file.chunks(CHUNK), options, token.clone()).unwrap();
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while twin.reads() == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                token.cancel();
            });
            let error = check(&race, &mut lane(Plan::default()), &file.content).unwrap_err();
            assert!(matches!(error, RaceError::Cancelled), "{name}: {error}");
        });
        assert!(start.elapsed() < Duration::from_secs(1), "{name}");
    }
}

#[test]
fn enough_is_no_error_and_what_was_launched_is_retired() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        let race = race(file.files(), file.chunks(CHUNK), options);
        let mut lane = lane(Plan {
            kernel_latency: Duration::from_millis(2),
            happen: Some((At::Retire, 1, What::Enough)),
            ..Plan::default()
        });
        let report = race.run_device(&mut lane).unwrap();
        assert!(report.ended_early, "{name}");
        let mut launched: Vec<usize> =
            lane.take_results().into_iter().map(|(chunk, _)| chunk).collect();
        launched.sort_unstable();
        lane.retired.sort_unstable();
        assert_eq!(lane.retired, launched, "{name}");
        assert!(launched.len() < 11, "{name}");
    }
}

#[test]
fn faults_of_the_file_end_the_race_with_their_place() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        for plan in [
            FaultPlan { io_error_at: Some(300_000), ..FaultPlan::default() },
            FaultPlan { truncated_at: Some(270_000), ..FaultPlan::default() },
        ] {
            let race = race(vec![file.faulty(plan)], file.chunks(CHUNK), options.clone());
            let error = check(&race, &mut lane(Plan::default()), &file.content).unwrap_err();
            let RaceError::Read { chunk, source } = &error else { panic!("{name}: {error}") };
            // A mapping is damaged for everybody at once: of several readers, one that is at work
            // on a sound chunk may be the first to notice.
            assert!(name == "mapped" || *chunk >= 5, "{name}: {error}");
            assert_eq!(source.path().unwrap(), file.path, "{name}");
        }
        let twin = file.faulty(FaultPlan { changed: true, ..FaultPlan::default() });
        let race = race(vec![twin], file.chunks(CHUNK), options);
        let error = check(&race, &mut lane(Plan::default()), &file.content).unwrap_err();
        assert!(matches!(error, RaceError::Changed(IoError::Changed { .. })), "{name}: {error}");
    }
}

#[test]
fn the_bottleneck_is_where_the_time_goes() {
    let file = TestFile::new(SIZE);
    // Long against whatever else a busy machine does meanwhile.
    let slow = Duration::from_millis(40);
    for (plan, read_latency, stage) in [
        (Plan { copy_latency: slow, ..Plan::default() }, Duration::ZERO, Stage::CopyToDevice),
        (Plan { kernel_latency: slow, ..Plan::default() }, Duration::ZERO, Stage::Execute),
        (Plan::default(), slow, Stage::Read),
    ] {
        let twin: Arc<dyn ReadAt> =
            file.faulty(FaultPlan { latency: read_latency, ..FaultPlan::default() });
        let options = RaceOptions { access: AccessPath::Buffered, ..RaceOptions::default() };
        let race = race(vec![twin], file.chunks(CHUNK), options);
        let report = check(&race, &mut lane(plan), &file.content).unwrap();
        assert_eq!(report.bottleneck().unwrap().stage, stage, "{report:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Random extents, slots and latencies: all paths bring the same bytes.
    #[test]
    fn all_paths_agree_on_the_device(
        size in 1usize..100_000,
        shapes in prop::collection::vec(
            prop::collection::vec((0.0f64..1.0, 0.0f64..1.0), 0..4), 0..10),
        seed in any::<u64>(),
        slots in 1usize..4,
        latency_us in 0u64..300,
        cache_bytes in prop::option::of(0u64..200_000),
    ) {
        let file = TestFile::new(size);
        let chunks = chunks_of(size, &shapes);
        let twin = file.faulty(FaultPlan { seed, short_permille: 200, ..FaultPlan::default() });
        let cache = cache_bytes.map(HostCache::new);
        let latency = Duration::from_micros(latency_us);
        let auto = RaceOptions::default();
        for (_, options) in forced_paths().into_iter().chain([("auto", auto.clone()), ("auto", auto)]) {
            file.make_cold();
            let options = RaceOptions { cache: cache.clone(), ..options };
            let race = race(vec![twin.clone()], chunks.clone(), options);
            let plan = Plan { copy_latency: latency, kernel_latency: latency, ..Plan::default() };
            let mut lane = SimulatedLane::new(slots, 1 << 20, plan);
            check(&race, &mut lane, &file.content).unwrap();
        }
    }
}
