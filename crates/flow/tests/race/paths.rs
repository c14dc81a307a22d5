//! Which way bytes take, and that the report says so.

use std::sync::Arc;

use headrace_flow::{
    AccessPath, CancelToken, ChunkSpec, DirectEngine, HostCache, MappingPool, Race, RaceError,
    RaceOptions,
};
use headrace_io::{FaultPlan, ReadAt, ReadMode, SetupFault, SourceFile};
use proptest::prelude::*;

use crate::lane::{Plan, SimulatedLane};
use crate::support::{Act, TestFile, check_bytes, chunks_of, forced_paths, race, read};

const SIZE: usize = 1_000_003;

#[test]
fn every_forced_path_gives_the_same_bytes_and_is_counted() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        file.make_cold();
        let race = race(file.files(), file.chunks(100_000), options);
        let report = check_bytes(&race, 2, &file.content).unwrap();
        let bytes = report.bytes_by_path;
        let expected = match name {
            "mapped" => (SIZE as u64, 0, 0),
            "buffered" => (0, SIZE as u64, 0),
            // The file's partial last block cannot be read directly.
            _ => (0, SIZE as u64 % 4096, (SIZE - SIZE % 4096) as u64),
        };
        assert_eq!((bytes.mapped, bytes.buffered, bytes.direct), expected, "{name}");
        assert!(report.path_reasons.is_empty(), "{name}: {:?}", report.path_reasons);
        assert!(report.first_chunk_ns > 0 && report.first_chunk_ns <= report.wall_ns);
        assert!(report.bottleneck().is_some() && report.gb_per_s() > 0.0);
        if name == "mapped" {
            assert!(report.engines.is_empty() && report.read_latency.count == 0);
        } else {
            assert_eq!(report.engines.len(), 1, "{name}");
            assert_eq!(report.read_latency.count, 22, "{name}");
            assert!(report.read_busy_ns > 0 && report.transferred_bytes >= SIZE as u64);
        }
    }
}

#[test]
fn auto_maps_what_is_warm_and_reads_what_is_cold_directly() {
    let file = TestFile::new(SIZE);
    let race = race(file.files(), file.chunks(100_000), RaceOptions::default());
    file.make_cold();
    let bytes = check_bytes(&race, 2, &file.content).unwrap().bytes_by_path;
    assert_eq!(bytes.direct, (SIZE - SIZE % 4096) as u64);
    // O_DIRECT leaves the page cache alone, so it is still cold.
    let bytes = check_bytes(&race, 1, &file.content).unwrap().bytes_by_path;
    assert!(bytes.direct > 0);
    file.make_warm();
    let report = check_bytes(&race, 2, &file.content).unwrap();
    assert_eq!(report.bytes_by_path.mapped, SIZE as u64);
    assert!(report.engines.is_empty(), "no reader was needed: {:?}", report.engines);
}

#[test]
fn a_cold_file_is_admitted_to_the_cache_and_the_next_race_hits() {
    let file = TestFile::new(SIZE);
    let cache = HostCache::new(4 << 20);
    let options = RaceOptions { cache: Some(cache.clone()), ..RaceOptions::default() };
    let race = race(file.files(), file.chunks(100_000), options);
    file.make_cold();
    let first = check_bytes(&race, 2, &file.content).unwrap().bytes_by_path;
    assert_eq!((first.cached, first.direct), (0, (SIZE - SIZE % 4096) as u64));
    let second = check_bytes(&race, 2, &file.content).unwrap();
    // The partial last block was read through the page cache, so its neighbour in the same block
    // may have been found there and not been admitted.
    assert!(second.bytes_by_path.cached >= SIZE as u64 - 4096);
    assert!(second.engines.is_empty());
    assert!(cache.stats().hits >= 20);

    // Another version of the file: nothing of the old one may be used.
    let other: Vec<u8> = file.content.iter().map(|byte| !byte).collect();
    std::fs::write(&file.path, &other).unwrap();
    file.make_cold();
    let options = RaceOptions { cache: Some(cache.clone()), ..RaceOptions::default() };
    let race = crate::support::race(file.files(), file.chunks(100_000), options);
    let third = check_bytes(&race, 2, &other).unwrap().bytes_by_path;
    assert_eq!(third.cached, 0);
}

#[test]
fn a_file_larger_than_the_cache_hits_in_part_and_keeps_the_budget() {
    let file = TestFile::new(SIZE);
    let cache = HostCache::new(500_000);
    let options = RaceOptions { cache: Some(cache.clone()), slots: 2, ..RaceOptions::default() };
    let race = race(file.files(), file.chunks(100_000), options);
    file.make_cold();
    check_bytes(&race, 2, &file.content).unwrap();
    for _ in 0..3 {
        let bytes = check_bytes(&race, 2, &file.content).unwrap().bytes_by_path;
        assert!(bytes.cached >= 300_000, "{bytes:?}");
        assert!(bytes.direct > 0, "{bytes:?}");
        assert!(cache.stats().held_bytes <= 500_000);
    }
}

#[test]
fn two_races_may_share_a_cache() {
    let file = TestFile::new(SIZE);
    let cache = HostCache::new(600_000);
    file.make_cold();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let options =
                    RaceOptions { cache: Some(cache.clone()), slots: 2, ..RaceOptions::default() };
                let race = race(file.files(), file.chunks(50_000), options);
                for _ in 0..5 {
                    check_bytes(&race, 2, &file.content).unwrap();
                }
            });
        }
    });
    assert!(cache.stats().held_bytes <= 600_000);
    assert!(cache.stats().hits > 0);
}

#[test]
fn a_file_in_memory_is_mapped() {
    let file = TestFile::in_folder("/dev/shm", SIZE);
    let race = race(file.files(), file.chunks(100_000), RaceOptions::default());
    let report = check_bytes(&race, 2, &file.content).unwrap();
    assert_eq!(report.bytes_by_path.mapped, SIZE as u64);
}

#[test]
fn without_io_uring_threads_read_directly_and_the_report_says_why() {
    let file = TestFile::new(SIZE);
    file.make_cold();
    let options = RaceOptions {
        inject_uring: Some(SetupFault::Setup(libc::EPERM)),
        ..RaceOptions::default()
    };
    let report =
        check_bytes(&race(file.files(), file.chunks(100_000), options.clone()), 2, &file.content)
            .unwrap();
    assert!(report.bytes_by_path.direct > 0);
    assert!(report.path_reasons.iter().any(|why| why.contains("seccomp")), "{report:?}");
    assert!(report.engines[0].contains("pread"));

    let forced =
        RaceOptions { access: AccessPath::Direct, direct_engine: DirectEngine::Uring, ..options };
    let error = check_bytes(&race(file.files(), file.chunks(100_000), forced), 2, &file.content)
        .unwrap_err();
    assert!(matches!(error, RaceError::PathUnavailable { .. }), "{error}");
    assert!(error.to_string().contains("seccomp"), "{error}");
}

#[test]
fn refused_direct_reads_are_counted_as_what_they_became() {
    let file = TestFile::new(SIZE);
    file.make_cold();
    let twin = file.faulty(FaultPlan { direct_refused: true, ..FaultPlan::default() });
    let race = race(vec![twin], file.chunks(100_000), RaceOptions::default());
    let report = check_bytes(&race, 2, &file.content).unwrap();
    assert_eq!(report.bytes_by_path.direct, 0);
    assert!(report.bytes_by_path.buffered > 0 && report.direct_refused_bytes > 0);
    assert!(report.path_reasons.iter().any(|why| why.contains("refused")), "{report:?}");
}

#[test]
fn refused_direct_reads_fail_a_race_that_goes_no_other_way() {
    let file = TestFile::new(SIZE);
    let run = |plan: FaultPlan, forbids_other_paths| {
        file.make_cold();
        let options =
            RaceOptions { access: AccessPath::Direct, forbids_other_paths, ..Default::default() };
        let race = race(vec![file.faulty(plan)], file.chunks(100_000), options);
        let on_host = check_bytes(&race, 2, &file.content);
        let mut lane = SimulatedLane::new(3, 128 << 10, Plan::default());
        let on_device = race.run_device(&mut lane);
        [on_host, on_device]
    };
    let refusing = || FaultPlan { direct_refused: true, ..FaultPlan::default() };
    for report in run(refusing(), false) {
        assert_eq!(report.unwrap().bytes_by_path.buffered, SIZE as u64);
    }
    for error in run(refusing(), true).map(Result::unwrap_err) {
        assert!(matches!(error, RaceError::PathUnavailable { .. }), "{error}");
        let text = error.to_string();
        for part in ["data.bin", "came through the page cache", "EINVAL", "hint: headrace doctor"] {
            assert!(text.contains(part), "{text}");
        }
    }
    // The partial last block is no detour.
    for report in run(FaultPlan::default(), true) {
        let bytes = report.unwrap().bytes_by_path;
        assert_eq!((bytes.buffered, bytes.total()), ((SIZE % 4096) as u64, SIZE as u64));
    }
}

/// A file whose bytes reads make.
#[derive(Debug)]
struct Made(Arc<dyn ReadAt>);

impl ReadAt for Made {
    fn source(&self) -> &SourceFile {
        self.0.source()
    }

    fn is_made(&self) -> bool {
        true
    }

    fn read_at(&self, mode: ReadMode, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read_at(mode, offset, into)
    }
}

#[test]
fn bytes_that_are_decoded_on_the_way_came_through_the_page_cache() {
    let file = TestFile::new(SIZE);
    let run = |access, forbids_other_paths| {
        let options = RaceOptions { access, forbids_other_paths, ..RaceOptions::default() };
        let made: Arc<dyn ReadAt> = Arc::new(Made(file.open()));
        check_bytes(&race(vec![made], file.chunks(100_000), options), 2, &file.content)
    };
    for access in AccessPath::ALL {
        let bytes = run(access, false).unwrap().bytes_by_path;
        assert_eq!(bytes.decoded, SIZE as u64, "{access:?}");
        match (access, run(access, true)) {
            (AccessPath::Auto | AccessPath::Buffered, report) => drop(report.unwrap()),
            (_, outcome) => {
                let error = outcome.unwrap_err().to_string();
                assert!(error.contains("decoded on the way"), "{error}");
            }
        }
    }
}

#[test]
fn large_races_register_their_slots_with_the_kernel() {
    let file = TestFile::new(SIZE);
    let options = RaceOptions {
        access: AccessPath::Direct,
        direct_engine: DirectEngine::Uring,
        slots: 1,
        ..RaceOptions::default()
    };
    let report =
        check_bytes(&race(file.files(), file.chunks(5_000), options), 2, &file.content).unwrap();
    assert!(report.engines[0].contains(", registered buffers"), "{:?}", report.engines);
}

#[test]
fn a_pool_keeps_mappings_and_replaces_poisoned_ones() {
    let file = TestFile::new(SIZE);
    let pool = MappingPool::new(2);
    let source: Arc<dyn ReadAt> = file.open();
    let first = pool.get(&source).unwrap();
    assert!(Arc::ptr_eq(&first, &pool.get(&source).unwrap()));
    let options = RaceOptions {
        mappings: Some(pool.clone()),
        access: AccessPath::Mapped,
        release_mapped: true,
        ..RaceOptions::default()
    };
    let race = race(vec![source.clone()], file.chunks(100_000), options);
    check_bytes(&race, 2, &file.content).unwrap();
    assert_eq!(pool.len(), 1);

    let others = [TestFile::new(10), TestFile::new(20)];
    for other in &others {
        let other: Arc<dyn ReadAt> = other.open();
        pool.get(&other).unwrap();
    }
    assert_eq!(pool.len(), 2);
    assert!(!Arc::ptr_eq(&first, &pool.get(&source).unwrap()), "the least used one left");

    let twin: Arc<dyn ReadAt> =
        file.faulty(FaultPlan { io_error_at: Some(0), ..FaultPlan::default() });
    pool.clear();
    assert!(pool.is_empty());
    let poisoned = pool.get(&twin).unwrap();
    assert_eq!(poisoned.bytes(0, 1).unwrap(), [0]);
    assert!(poisoned.check().is_err());
    assert!(!Arc::ptr_eq(&poisoned, &pool.get(&source).unwrap()));
}

#[test]
fn bad_chunks_are_refused_at_the_start() {
    let file = TestFile::new(10_000);
    let new = |reads, slot_bytes| {
        let options = RaceOptions { slot_bytes, ..RaceOptions::default() };
        let chunks = vec![ChunkSpec::default(), ChunkSpec { reads }];
        Race::new(file.files(), chunks, options, CancelToken::new()).map(|_| ())
    };
    new(vec![read(0, 10_000), read(10_000, 0)], Some(12_288)).unwrap();
    for reads in [vec![read(0, 10_001)], vec![read(usize::MAX, 2)], vec![read(10_001, 0)]] {
        let error = new(reads, None).unwrap_err();
        assert!(matches!(error, RaceError::BadChunk { chunk: 1, buffer: 0, .. }), "{error}");
    }
    let mut other = read(0, 1);
    other.file = 1;
    let error = new(vec![read(0, 1), other], None).unwrap_err();
    assert!(matches!(error, RaceError::BadChunk { chunk: 1, buffer: 1, .. }), "{error}");
    let error = new(vec![read(1, 4096), read(1, 4096)], Some(16_383)).unwrap_err();
    let RaceError::ChunkTooLarge { chunk, needed_bytes, slot_bytes } = error else {
        panic!("{error}");
    };
    assert_eq!((chunk, needed_bytes, slot_bytes), (1, 16_384, 16_383));
}

#[test]
fn many_files_make_one_stream() {
    let files: Vec<TestFile> = (1..=20).map(|number| TestFile::new(number * 3001)).collect();
    let chunks: Vec<ChunkSpec> = (0..19)
        .map(|number| {
            let mut first = read(number, 3000);
            first.file = number;
            let mut second = read(0, (number + 2) * 3001);
            second.file = number + 1;
            ChunkSpec { reads: vec![first, second] }
        })
        .collect();
    for (name, options) in forced_paths() {
        let sources = files.iter().map(|file| file.open() as Arc<dyn ReadAt>).collect();
        let race = race(sources, chunks.clone(), options);
        let consumer = Act(|chunk: usize, buffers: &[&[u8]]| {
            assert!(buffers[0] == &files[chunk].content[chunk..chunk + 3000]);
            assert!(buffers[1] == files[chunk + 1].content);
            Ok(headrace_flow::Verdict::Continue)
        });
        let (_, report) = race.run_host(vec![consumer]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(report.chunks, 19);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Random extents, in random chunks, under harmless faults: all paths give the same bytes.
    #[test]
    fn all_paths_agree(
        size in 1usize..400_000,
        shapes in prop::collection::vec(
            prop::collection::vec((0.0f64..1.0, 0.0f64..1.0), 0..4), 0..12),
        seed in any::<u64>(),
        consumers in 1usize..4,
        slots in 1usize..4,
        torn in prop::bool::ANY,
        cache_bytes in prop::option::of(0u64..600_000),
    ) {
        let file = TestFile::new(size);
        let chunks = chunks_of(size, &shapes);
        let twin = file.faulty(FaultPlan {
            seed,
            short_permille: 200,
            interrupted_permille: 100,
            torn_blocks_permille: if torn { 300 } else { 0 },
            ..FaultPlan::default()
        });
        let mut wanted = file.content.clone();
        twin.tear(0, &mut wanted);
        let auto = RaceOptions { segment_bytes: 16_384, ..RaceOptions::default() };
        let cache = cache_bytes.map(HostCache::new);
        for (_, options) in forced_paths().into_iter().chain([("auto", auto.clone()), ("auto", auto)]) {
            file.make_cold();
            let options = RaceOptions { slots, cache: cache.clone(), ..options };
            let race = race(vec![twin.clone()], chunks.clone(), options);
            check_bytes(&race, consumers, &wanted).unwrap();
        }
        if let Some(cache) = cache {
            prop_assert!(cache.stats().held_bytes <= cache_bytes.unwrap());
        }
    }
}
