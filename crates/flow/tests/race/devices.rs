//! Several devices at once, and a device's own ways past the slots' host memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use headrace_flow::{
    AccessPath, Affinity, CancelToken, DeviceLane, HostCache, Race, RaceError, RaceOptions,
    RaceReport, RegisteredPool,
};
use headrace_io::{FaultPlan, IoError};

use crate::lane::{At, Plan, SimulatedLane, What};
use crate::support::{TestFile, assert_same, forced_paths, race, read};
use crate::ways::{Reader, Registrar};

const SIZE: usize = 500_003;
const CHUNK: usize = 50_000;
const SLOT: usize = 128 << 10;
const PIECE: usize = 64 << 10;

fn lanes(count: usize, plan: &Plan) -> Vec<SimulatedLane> {
    (0..count).map(|_| SimulatedLane::new(2, SLOT, plan.clone())).collect()
}

fn borrowed(lanes: &mut [SimulatedLane]) -> Vec<&mut (dyn DeviceLane + Send)> {
    lanes.iter_mut().map(|lane| lane as &mut (dyn DeviceLane + Send)).collect()
}

#[test]
fn several_devices_get_every_chunk_once() {
    let file = TestFile::new(SIZE);
    for count in [1, 2, 3] {
        for (name, options) in forced_paths() {
            let race = race(file.files(), file.chunks(CHUNK), options);
            let mut lanes = lanes(count, &Plan::default());
            let report = race.run_devices(borrowed(&mut lanes), &Affinity::none()).unwrap();
            let results = lanes.iter().flat_map(SimulatedLane::take_results).collect();
            assert_same(&race, results, &file.content);
            assert_eq!(report.lanes.len(), count, "{name}");
            assert_eq!(report.merged.chunks, 11, "{name}");
            assert_eq!(report.merged.bytes_by_path.total(), SIZE as u64, "{name}");
            let of_lanes: u64 = report.lanes.iter().map(|lane| lane.chunks).sum();
            assert_eq!(of_lanes, 11, "{name}");
            assert!(lanes.iter().all(|lane| lane.synchronized == 1 && lane.is_idle()), "{name}");
        }
    }
}

#[test]
fn a_device_keeps_to_its_files_until_it_has_nothing_else() {
    let (first, second) = (TestFile::new(SIZE), TestFile::new(SIZE));
    let mut chunks = first.chunks(CHUNK);
    let mut others = second.chunks(CHUNK);
    others.iter_mut().flat_map(|chunk| &mut chunk.reads).for_each(|read| read.file = 1);
    chunks.append(&mut others);
    let files = vec![first.files().remove(0), second.files().remove(0)];
    let race = race(files, chunks, RaceOptions::default());

    // Nobody takes what is not his while he has any of his own: what comes first is all his. The
    // last few may overtake each other on their way through the slots.
    let mut equal = lanes(2, &Plan { kernel_latency: Duration::from_millis(3), ..Plan::default() });
    let affinity = Affinity::by_file(vec![Some(1), Some(0)]);
    race.run_devices(borrowed(&mut equal), &affinity).unwrap();
    for (lane, file) in [(&equal[0], 1), (&equal[1], 0)] {
        let is_own = |chunk: &usize| *chunk / 11 == file;
        let own = lane.retired.iter().filter(|chunk| is_own(chunk)).count();
        let first = &lane.retired[..own.saturating_sub(2)];
        assert!(first.iter().all(is_own), "{:?}", lane.retired);
    }

    // All for the slow one: the other takes most of it, from the end.
    let mut uneven = lanes(2, &Plan::default());
    uneven[0].plan.kernel_latency = Duration::from_millis(20);
    let report = race
        .run_devices(borrowed(&mut uneven), &Affinity::by_file(vec![Some(0), Some(0)]))
        .unwrap();
    assert!(report.lanes[1].chunks > 0, "{report:?}");
    assert_eq!(report.lanes[1].stolen_chunks, report.lanes[1].chunks);
    assert_eq!((report.lanes[0].stolen_chunks, report.merged.chunks), (0, 22));
    assert!(uneven[1].retired.contains(&21), "{:?}", uneven[1].retired);
    let first = uneven[0].retired.first();
    assert!(first.is_none_or(|chunk| *chunk < 2), "{:?}", uneven[0].retired);
}

#[test]
fn an_error_panic_or_cancellation_at_one_device_ends_all() {
    let file = TestFile::new(SIZE);
    let latency = Duration::from_millis(1);
    for at in [At::Copy, At::Launch, At::Execute, At::Retire] {
        for what in [Some(What::Fail), Some(What::Panic), None] {
            let token = CancelToken::new();
            let twin = file.faulty(FaultPlan { latency, ..FaultPlan::default() });
            let options = RaceOptions { access: AccessPath::Buffered, ..RaceOptions::default() };
            let chunks = file.chunks(5_000);
            let race = Race::new(vec![twin.clone()], chunks, options, token.clone()).unwrap();
            let mut lanes = lanes(3, &Plan { kernel_latency: latency, ..Plan::default() });
            match what {
                // Chunk 4 is on the list of lane 1.
                Some(what) => lanes[1].plan.happen = Some((at, 4, what)),
                None => lanes[1].plan.cancel = Some((at, 4, token)),
            }
            let error = race.run_devices(borrowed(&mut lanes), &Affinity::none()).unwrap_err();
            let as_planned = matches!(
                (&error, what),
                (RaceError::Device { .. }, Some(What::Fail))
                    | (RaceError::Panic { .. }, Some(What::Panic))
                    | (RaceError::Cancelled, None)
            );
            assert!(as_planned, "{at:?}, {what:?}: {error}");
            assert!(lanes.iter().all(|lane| lane.synchronized == 1 && lane.is_idle()));
            let retired: usize = lanes.iter().map(|lane| lane.retired.len()).sum();
            assert!(retired < 100, "{at:?}, {what:?}");
            let reads = twin.reads();
            std::thread::sleep(Duration::from_millis(3));
            assert_eq!(twin.reads(), reads, "{at:?}, {what:?}: reads went on");
        }
    }
}

#[test]
fn enough_at_one_device_ends_all_without_error() {
    let file = TestFile::new(SIZE);
    let race = race(file.files(), file.chunks(5_000), RaceOptions::default());
    let mut lanes = lanes(2, &Plan { kernel_latency: Duration::from_millis(1), ..Plan::default() });
    lanes[1].plan.happen = Some((At::Retire, 5, What::Enough));
    let report = race.run_devices(borrowed(&mut lanes), &Affinity::none()).unwrap();
    assert!(report.merged.ended_early && report.merged.chunks < 101);
    for lane in &mut lanes {
        let mut launched: Vec<usize> = lane.take_results().into_iter().map(|(c, _)| c).collect();
        launched.sort_unstable();
        lane.retired.sort_unstable();
        assert_eq!(lane.retired, launched);
    }
}

#[test]
fn devices_share_one_race_of_the_host_cache() {
    let file = TestFile::new(SIZE);
    file.make_cold();
    let cache = HostCache::new(4 << 20);
    let options = RaceOptions { cache: Some(cache), ..RaceOptions::default() };
    let race = race(file.files(), file.chunks(CHUNK), options);
    race.run_devices(borrowed(&mut lanes(2, &Plan::default())), &Affinity::none()).unwrap();
    let mut again = lanes(2, &Plan::default());
    let report = race.run_devices(borrowed(&mut again), &Affinity::none()).unwrap();
    assert!(report.merged.bytes_by_path.cached >= SIZE as u64 - 4096, "{report:?}");
}

#[test]
fn no_lanes_and_lanes_that_are_too_small() {
    let file = TestFile::new(SIZE);
    let race = race(file.files(), file.chunks(CHUNK), RaceOptions::default());
    let error = race.run_devices(Vec::new(), &Affinity::none()).unwrap_err();
    assert!(matches!(error, RaceError::NoConsumer), "{error}");
    let mut lanes = vec![
        SimulatedLane::new(2, SLOT, Plan::default()),
        SimulatedLane::new(2, 8192, Plan::default()),
    ];
    let error = race.run_devices(borrowed(&mut lanes), &Affinity::none()).unwrap_err();
    assert!(matches!(error, RaceError::ChunkTooLarge { .. }), "{error}");
    assert!(lanes.iter().all(|lane| lane.retired.is_empty()));
}

#[test]
fn a_race_begins_before_all_slots_are_ready() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        let race = race(file.files(), file.chunks(5_000), options);
        let plan = Plan { ready_at_first: Some(1), ..Plan::default() };
        let mut lane = SimulatedLane::new(5, SLOT, plan);
        race.run_device(&mut lane).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_same(&race, lane.take_results(), &file.content);
        let none = Plan { ready_at_first: Some(0), ..Plan::default() };
        let error = race.run_device(&mut SimulatedLane::new(5, SLOT, none)).unwrap_err();
        assert!(error.to_string().contains("no slot became ready"), "{name}: {error}");
    }
}

fn registered(registrar: &Arc<Registrar>) -> Plan {
    Plan { registrar: Some(registrar.clone()), ..Plan::default() }
}

#[test]
fn a_registered_mapping_is_copied_from_directly_and_kept() {
    let file = TestFile::new(SIZE);
    let registrar = Arc::new(Registrar::default());
    let pool = RegisteredPool::with_pieces(1 << 20, PIECE);
    let options = RaceOptions {
        access: AccessPath::Registered,
        registered: Some(pool.clone()),
        ..RaceOptions::default()
    };
    let race = race(file.files(), file.chunks(CHUNK), options);
    let pieces = SIZE.div_ceil(PIECE);
    for round in 0..2 {
        let mut lane = SimulatedLane::new(3, SLOT, registered(&registrar));
        let report = race.run_device(&mut lane).unwrap();
        assert_same(&race, lane.take_results(), &file.content);
        assert_eq!(report.bytes_by_path.registered, SIZE as u64);
        assert_eq!((report.read_bytes, report.host_copied_bytes), (0, 0));
        assert_eq!(registrar.count.load(Ordering::SeqCst), pieces, "round {round}");
    }
    assert_eq!(pool.stats().registrations as usize, pieces);
    assert_eq!(registrar.live_bytes() as u64, pool.stats().held_bytes);
    // Two devices share them.
    let mut lanes = lanes(2, &registered(&registrar));
    race.run_devices(borrowed(&mut lanes), &Affinity::none()).unwrap();
    assert_eq!(registrar.count.load(Ordering::SeqCst), pieces);
    pool.clear();
    assert_eq!(registrar.live_bytes(), 0);
}

#[test]
fn a_small_budget_is_kept_and_what_does_not_fit_goes_another_way() {
    let file = TestFile::in_folder("/dev/shm", SIZE);
    for (budget, forced) in [(3 * PIECE, true), (3 * PIECE, false), (0, false), (0, true)] {
        let latency = Duration::from_millis(1);
        let registrar = Arc::new(Registrar { latency, ..Registrar::default() });
        let pool = RegisteredPool::with_pieces(budget as u64, PIECE);
        let access = if forced { AccessPath::Registered } else { AccessPath::Auto };
        let options =
            RaceOptions { access, registered: Some(pool.clone()), ..RaceOptions::default() };
        let race = race(file.files(), file.chunks(CHUNK), options);
        let plan = Plan { copy_latency: latency, ..registered(&registrar) };
        // One slot: a chunk touches at most two pieces.
        let mut lane = SimulatedLane::new(1, SLOT, plan);
        let outcome = race.run_device(&mut lane);
        assert!(pool.stats().held_bytes <= budget as u64);
        match outcome {
            Ok(report) => {
                assert_same(&race, lane.take_results(), &file.content);
                assert_eq!(report.bytes_by_path.total(), SIZE as u64);
                if budget == 0 {
                    assert_eq!(report.bytes_by_path.buffered, SIZE as u64);
                    assert!(report.path_reasons.iter().any(|r| r.contains("may be registered")));
                } else if forced {
                    assert_eq!(report.bytes_by_path.registered, SIZE as u64, "{report:?}");
                    assert!(pool.stats().evictions > 0);
                } else {
                    let bytes = report.bytes_by_path;
                    assert!(bytes.registered > 0 && bytes.buffered > 0, "{report:?}");
                    assert_eq!(pool.stats().evictions, 0);
                }
            }
            Err(error) => {
                assert!(budget == 0 && forced, "{error}");
                assert!(matches!(error, RaceError::PathUnavailable { .. }), "{error}");
            }
        }
    }
}

#[test]
fn auto_registers_what_lies_in_memory_and_only_if_it_is_kept() {
    let file = TestFile::in_folder("/dev/shm", SIZE);
    let registrar = Arc::new(Registrar::default());
    let run = |pool: Option<Arc<RegisteredPool>>, plan: Plan| {
        let options = RaceOptions { registered: pool, ..RaceOptions::default() };
        let race = race(file.files(), file.chunks(CHUNK), options);
        let mut lane = SimulatedLane::new(3, SLOT, plan);
        let report = race.run_device(&mut lane).unwrap();
        assert_same(&race, lane.take_results(), &file.content);
        report
    };
    let kept = run(Some(RegisteredPool::with_pieces(1 << 20, PIECE)), registered(&registrar));
    assert_eq!(kept.bytes_by_path.registered, SIZE as u64);
    assert!(kept.path_reasons.is_empty(), "{kept:?}");
    for (plan, pool, reason) in [
        (registered(&registrar), None, "no registered mappings are kept"),
        (Plan::default(), Some(RegisteredPool::new(1 << 20)), "registers no mappings"),
    ] {
        let slots = run(pool, plan);
        assert_eq!(slots.bytes_by_path.buffered, SIZE as u64);
        assert!(slots.path_reasons.iter().any(|r| r.contains(reason)), "{slots:?}");
    }
    // The driver refuses from some piece on.
    let refusing = Arc::new(Registrar { fail_after: Some(3), ..Registrar::default() });
    let mixed = run(Some(RegisteredPool::with_pieces(1 << 20, PIECE)), registered(&refusing));
    assert!(mixed.bytes_by_path.registered > 0 && mixed.bytes_by_path.buffered > 0, "{mixed:?}");
    assert!(mixed.path_reasons.iter().any(|r| r.contains("by order")), "{mixed:?}");
}

#[test]
fn a_forced_registration_that_fails_is_an_error_and_leaves_nothing() {
    let file = TestFile::new(SIZE);
    let options = RaceOptions { access: AccessPath::Registered, ..RaceOptions::default() };
    let race = race(file.files(), file.chunks(CHUNK), options);
    for fail_after in [Some(0), None] {
        let registrar = Arc::new(Registrar { fail_after, ..Registrar::default() });
        let mut lane = SimulatedLane::new(3, SLOT, registered(&registrar));
        match race.run_device(&mut lane) {
            // Without a pool for the next race, one for this race serves.
            Ok(_) => assert!(fail_after.is_none() && registrar.live_bytes() == 0),
            Err(error) => {
                assert!(matches!(error, RaceError::PathUnavailable { .. }), "{error}");
                assert!(fail_after.is_some() && error.to_string().contains("by order"), "{error}");
            }
        }
    }
    let error = race.run_device(&mut SimulatedLane::new(3, SLOT, Plan::default())).unwrap_err();
    assert!(error.to_string().contains("registers no mappings"), "{error}");
}

#[test]
fn a_file_that_shrinks_under_its_registered_mapping_is_a_changed_file() {
    for pieces_before in [0, 3] {
        let file = TestFile::in_folder("/dev/shm", SIZE);
        let latency = Duration::from_millis(1);
        let registrar = Arc::new(Registrar { latency, ..Registrar::default() });
        let pool = RegisteredPool::with_pieces(1 << 20, PIECE);
        let options = RaceOptions {
            access: AccessPath::Registered,
            registered: Some(pool),
            registrars: 1,
            ..RaceOptions::default()
        };
        let race = race(file.files(), file.chunks(CHUNK), options);
        let plan = Plan { copy_latency: latency, ..registered(&registrar) };
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                while registrar.count.load(Ordering::SeqCst) < pieces_before {
                    std::thread::sleep(Duration::from_micros(100));
                }
                let handle = std::fs::OpenOptions::new().write(true).open(&file.path).unwrap();
                handle.set_len(10_000).unwrap();
            });
            let mut lane = SimulatedLane::new(2, SLOT, plan);
            let outcome = race.run_device(&mut lane);
            // The other thread may have come too late for the race's own check.
            outcome.err()
        });
        if let Some(error) = error {
            let changed = matches!(error, RaceError::Changed(IoError::Changed { .. }));
            assert!(changed, "{error}");
        } else {
            assert_eq!(pieces_before, 0, "three pieces were registered long before the end");
        }
    }
}

#[test]
fn errors_and_cancellation_while_mappings_are_registered() {
    let file = TestFile::new(SIZE);
    let latency = Duration::from_millis(2);
    for at in [At::Copy, At::Launch, At::Execute, At::Retire] {
        for what in [Some(What::Fail), Some(What::Panic), None] {
            let registrar = Arc::new(Registrar { latency, ..Registrar::default() });
            let token = CancelToken::new();
            let options = RaceOptions { access: AccessPath::Registered, ..RaceOptions::default() };
            let race = Race::new(file.files(), file.chunks(CHUNK), options, token.clone()).unwrap();
            let plan = Plan {
                copy_latency: latency,
                kernel_latency: latency,
                happen: what.map(|what| (at, 2, what)),
                cancel: what.is_none().then_some((at, 2, token)),
                ..registered(&registrar)
            };
            let mut lane = SimulatedLane::new(3, SLOT, plan);
            // The lane itself checks that nothing is unregistered under a copy.
            race.run_device(&mut lane).unwrap_err();
            assert!(lane.is_idle());
            assert_eq!(registrar.live_bytes(), 0, "{at:?}, {what:?}");
        }
    }
}

fn with_reader(reader: &Arc<Reader>) -> Plan {
    Plan { reader: Some(reader.clone()), ..Plan::default() }
}

#[test]
fn the_devices_own_reader_brings_the_right_bytes() {
    let file = TestFile::new(SIZE);
    let options = RaceOptions { access: AccessPath::CuFile, ..RaceOptions::default() };
    for longest in [None, Some(7_001)] {
        let reader = Arc::new(Reader { longest, ..Reader::default() });
        let race = race(file.files(), file.chunks(CHUNK), options.clone());
        let mut lane = SimulatedLane::new(3, SLOT, with_reader(&reader));
        let report = race.run_device(&mut lane).unwrap();
        assert_same(&race, lane.take_results(), &file.content);
        assert_eq!(report.bytes_by_path.cufile, SIZE as u64);
        assert_eq!((report.h2d_ns, report.read_latency.count), (0, 22));
        assert!(report.engines.contains(&"simulated reader".to_string()), "{report:?}");
        let mut lanes = lanes(2, &Plan::default());
        for lane in &mut lanes {
            let reader = Arc::new(Reader { longest, ..Reader::default() });
            *lane = SimulatedLane::new(2, SLOT, with_reader(&reader));
        }
        race.run_devices(borrowed(&mut lanes), &Affinity::none()).unwrap();
        let results = lanes.iter().flat_map(SimulatedLane::take_results).collect();
        assert_same(&race, results, &file.content);
    }
}

#[test]
fn auto_takes_the_devices_reader_for_cold_files_if_it_is_direct() {
    let file = TestFile::new(SIZE);
    let run = |reader: Reader, cache: Option<Arc<HostCache>>| {
        file.make_cold();
        let options = RaceOptions { cache, ..RaceOptions::default() };
        let race = race(file.files(), file.chunks(CHUNK), options);
        let mut lane = SimulatedLane::new(3, SLOT, with_reader(&Arc::new(reader)));
        let report = race.run_device(&mut lane).unwrap();
        assert_same(&race, lane.take_results(), &file.content);
        report
    };
    let direct = run(Reader { direct: true, ..Reader::default() }, None);
    assert!(direct.bytes_by_path.cufile > 0 && direct.bytes_by_path.direct == 0, "{direct:?}");
    let bouncing = run(Reader::default(), None);
    assert!(bouncing.bytes_by_path.cufile == 0 && bouncing.bytes_by_path.direct > 0);
    assert!(bouncing.path_reasons.iter().any(|r| r.contains("go through slots")));
    let refusing = run(Reader { direct: true, refuses_files: true, ..Reader::default() }, None);
    assert_eq!(refusing.bytes_by_path.cufile, 0);
    assert!(refusing.path_reasons.iter().any(|r| r.contains("by order")), "{refusing:?}");
    let cached = run(Reader { direct: true, ..Reader::default() }, Some(HostCache::new(4 << 20)));
    assert_eq!(cached.bytes_by_path.cufile, 0);
}

/// A race that must read by the device's own reader and past host memory.
fn past_host_memory(file: &TestFile, reader: Option<Reader>) -> Result<RaceReport, RaceError> {
    let options = RaceOptions {
        access: AccessPath::CuFile,
        forbids_other_paths: true,
        ..RaceOptions::default()
    };
    let race = race(file.files(), file.chunks(CHUNK), options);
    let plan = Plan { reader: reader.map(Arc::new), ..Plan::default() };
    let mut lane = SimulatedLane::new(3, SLOT, plan);
    let report = race.run_device(&mut lane);
    assert!(lane.is_idle());
    if report.is_ok() {
        assert_same(&race, lane.take_results(), &file.content);
    }
    report
}

/// The text of an error that says which path cannot be had, of which file, and what helps.
fn unavailable(outcome: Result<RaceReport, RaceError>) -> String {
    let error = outcome.unwrap_err();
    assert!(matches!(error, RaceError::PathUnavailable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("CuFile was forced"), "{text}");
    assert!(text.contains("hint: headrace doctor --gds"), "{text}");
    text
}

#[test]
fn without_a_reader_nothing_comes_another_way() {
    let file = TestFile::new(SIZE);
    let text = unavailable(past_host_memory(&file, None));
    assert!(text.contains("has no reader") && text.contains("data.bin"), "{text}");
}

#[test]
fn a_file_that_the_reader_refuses_comes_no_other_way() {
    let file = TestFile::new(SIZE);
    let refusing = Reader { direct: true, refuses_files: true, ..Reader::default() };
    let text = unavailable(past_host_memory(&file, Some(refusing)));
    assert!(text.contains("by order") && text.contains("data.bin"), "{text}");
}

#[test]
fn a_reader_that_passes_host_memory_is_refused_before_it_reads() {
    let file = TestFile::new(SIZE);
    let text = unavailable(past_host_memory(&file, Some(Reader::default())));
    assert!(text.contains("simulated reader") && text.contains("data.bin"), "{text}");
}

#[test]
fn reads_that_turn_out_to_have_passed_host_memory_fail_the_race() {
    let file = TestFile::new(SIZE);
    let reader = Reader { direct: true, counts_detours: true, ..Reader::default() };
    let text = unavailable(past_host_memory(&file, Some(reader)));
    assert!(text.contains("22 of the reads meanwhile passed host memory"), "{text}");
}

#[test]
fn a_reader_past_host_memory_is_taken() {
    let file = TestFile::new(SIZE);
    let reader = Reader { direct: true, ..Reader::default() };
    let report = past_host_memory(&file, Some(reader)).unwrap();
    assert_eq!(report.bytes_by_path.cufile, SIZE as u64);
}

#[test]
fn failures_of_the_devices_reader_name_their_place() {
    let file = TestFile::new(SIZE);
    let options = RaceOptions { access: AccessPath::CuFile, ..RaceOptions::default() };
    let run = |reader: Reader| {
        let race = race(file.files(), file.chunks(CHUNK), options.clone());
        let mut lane = SimulatedLane::new(3, SLOT, with_reader(&Arc::new(reader)));
        let error = race.run_device(&mut lane).unwrap_err();
        assert!(lane.is_idle());
        error
    };
    let latency = Duration::from_millis(1);
    let failing = run(Reader { fail_from: Some(200_000), latency, ..Reader::default() });
    let text = failing.to_string();
    assert!(matches!(failing, RaceError::Device { chunk: Some(3..=10), .. }), "{text}");
    assert!(text.contains("data.bin at offset") && text.contains("by order"), "{text}");
    let panicking = run(Reader { panics: true, ..Reader::default() }).to_string();
    assert!(panicking.contains("panics by order"), "{panicking}");
    let refused = run(Reader { refuses_files: true, ..Reader::default() });
    assert!(matches!(refused, RaceError::PathUnavailable { .. }), "{refused}");
    // A file that ends early.
    let twin = file.faulty(FaultPlan { truncated_at: Some(300_000), ..FaultPlan::default() });
    let race = race(vec![twin], file.chunks(CHUNK), options.clone());
    let mut lane = SimulatedLane::new(3, SLOT, with_reader(&Arc::new(Reader::default())));
    let error = race.run_device(&mut lane).unwrap_err().to_string();
    // Chunks behind the end are read side by side with the one that reaches it.
    assert!(error.contains("data.bin ends at offset "), "{error}");
}

#[test]
fn ways_of_a_device_are_refused_on_the_host_and_need_no_host_slot() {
    let file = TestFile::new(SIZE);
    for access in [AccessPath::Registered, AccessPath::CuFile] {
        let options = RaceOptions { access, ..RaceOptions::default() };
        let whole = vec![headrace_flow::ChunkSpec { reads: vec![read(0, SIZE)] }];
        let race = race(file.files(), whole, options);
        let consumer = crate::support::Collect::default();
        let error = race.run_host(vec![consumer]).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("there is no device"), "{error}");
        // The chunk is larger than the slot's host memory.
        let plan = Plan {
            registrar: Some(Arc::new(Registrar::default())),
            reader: Some(Arc::new(Reader::default())),
            ..Plan::default()
        };
        let mut lane = SimulatedLane::new(2, 8192, plan).with_large_memory(1 << 20);
        race.run_device(&mut lane).unwrap();
        assert_same(&race, lane.take_results(), &file.content);
    }
}
