//! Consumers: slow, satisfied, failing, panicking; and races of unusual shape.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headrace_flow::{
    AccessPath, ChunkSpec, ConsumerLimit, RaceError, RaceOptions, Stage, Trace, Verdict,
};
use headrace_io::FaultPlan;

use crate::support::{Act, Collect, TestFile, check_bytes, forced_paths, race, read, slot_paths};

#[test]
fn no_chunks_and_no_consumers() {
    let file = TestFile::new(100);
    let empty = race(file.files(), Vec::new(), RaceOptions::default());
    let report = check_bytes(&empty, 2, &file.content).unwrap();
    assert_eq!((report.chunks, report.first_chunk_ns), (0, 0));
    assert!(report.bottleneck().is_none());
    let error = empty.run_host(Vec::<Collect>::new()).map(|_| ()).unwrap_err();
    assert!(matches!(error, RaceError::NoConsumer));
}

#[test]
fn empty_reads_and_empty_chunks_are_consumed_like_others() {
    let file = TestFile::new(10_000);
    for (name, options) in forced_paths() {
        let chunks = vec![
            ChunkSpec::default(),
            ChunkSpec { reads: vec![read(0, 0), read(5, 0)] },
            ChunkSpec { reads: vec![read(10_000, 0), read(9_000, 1_000), read(0, 0), read(1, 2)] },
        ];
        let race = race(file.files(), chunks, options);
        check_bytes(&race, 2, &file.content).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let empty = TestFile::new(0);
    let chunks = vec![ChunkSpec { reads: vec![read(0, 0)] }];
    check_bytes(&race(empty.files(), chunks, RaceOptions::default()), 1, &[]).unwrap();
}

#[test]
fn many_small_chunks() {
    let file = TestFile::new(300_000);
    for (name, options) in forced_paths() {
        let race = race(file.files(), file.chunks(100), options);
        assert_eq!(race.chunks().len(), 3000);
        check_bytes(&race, 3, &file.content).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_slow_consumer_holds_the_reads_back() {
    let file = TestFile::new(1_000_000);
    for (name, mut options) in slot_paths() {
        options.slots = 3;
        options.segment_bytes = 1 << 20;
        let twin = file.faulty(FaultPlan::default());
        let chunks: Vec<ChunkSpec> =
            (0..100).map(|number| ChunkSpec { reads: vec![read(number * 8192, 8192)] }).collect();
        let race = race(vec![twin.clone()], chunks, options);
        let first = AtomicBool::new(true);
        let consumer = Act(|_, _: &[&[u8]]| {
            if first.swap(false, Ordering::SeqCst) {
                // Long against whatever else a busy machine does meanwhile.
                std::thread::sleep(Duration::from_millis(400));
                // One chunk is being consumed: the others can only have filled the other slots.
                assert!(twin.reads() <= 3, "{name}: {} reads", twin.reads());
            }
            Ok(Verdict::Continue)
        });
        let (_, report) = race.run_host(vec![consumer]).unwrap();
        assert_eq!(report.chunks, 100);
        assert!(report.read_wait_ns >= 50_000_000, "{name}: {report:?}");
        assert_eq!(report.bottleneck().unwrap().stage, Stage::Execute, "{name}");
    }
}

/// As many as somebody says.
#[derive(Debug)]
struct Dial(AtomicUsize);

impl ConsumerLimit for Dial {
    fn consumers(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn a_limit_holds_consumers_back_and_lets_them_go_again() {
    let file = TestFile::new(1_000_000);
    for (name, options) in forced_paths() {
        let dial = Arc::new(Dial(AtomicUsize::new(0)));
        let options = RaceOptions { limit: Some(dial.clone()), slots: 6, ..options };
        let race = race(file.files(), file.chunks(5_000), options);
        let (begun, working) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // At most one, then four, then one again, some chunks after the dial was turned.
        let phases: [AtomicUsize; 3] = Default::default();
        let consumers = (0..4).map(|_| {
            Act(|_, _: &[&[u8]]| {
                let number = begun.fetch_add(1, Ordering::SeqCst);
                let at_once = working.fetch_add(1, Ordering::SeqCst) + 1;
                match number {
                    0..60 => phases[0].fetch_max(at_once, Ordering::SeqCst),
                    80..120 => phases[1].fetch_max(at_once, Ordering::SeqCst),
                    150.. => phases[2].fetch_max(at_once, Ordering::SeqCst),
                    _ => 0,
                };
                match number {
                    60 => dial.0.store(9, Ordering::SeqCst),
                    120 => dial.0.store(1, Ordering::SeqCst),
                    _ => {}
                }
                std::thread::sleep(Duration::from_millis(1));
                working.fetch_sub(1, Ordering::SeqCst);
                Ok(Verdict::Continue)
            })
        });
        let (consumers, report) = race.run_host(consumers.collect()).unwrap();
        assert_eq!((consumers.len(), report.chunks), (4, 200), "{name}");
        assert_eq!((report.consumers, report.consumers_min), (4, 1), "{name}");
        assert_eq!(phases.map(AtomicUsize::into_inner), [1, 4, 1], "{name}");
    }
}

#[test]
fn slow_storage_is_named_as_the_bottleneck() {
    let file = TestFile::new(200_000);
    for (name, mut options) in slot_paths() {
        options.segment_bytes = 1 << 20;
        let latency = Duration::from_millis(40);
        let twin = file.faulty(FaultPlan { latency, ..FaultPlan::default() });
        let report =
            check_bytes(&race(vec![twin], file.chunks(20_000), options), 2, &file.content).unwrap();
        assert_eq!(report.bottleneck().unwrap().stage, Stage::Read, "{name}");
        assert!(report.execute_wait_ns > 0);
        assert!(report.read_latency.p50_ns >= 40_000_000);
    }
}

#[test]
fn enough_ends_the_race_without_error_and_without_reading_on() {
    let file = TestFile::new(1_000_000);
    for (name, mut options) in forced_paths() {
        options.segment_bytes = 1 << 20;
        let latency = Duration::from_millis(1);
        let twin = file.faulty(FaultPlan { latency, ..FaultPlan::default() });
        let race = race(vec![twin.clone()], file.chunks(5_000), options);
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let mut seen = 0;
                Act(move |_, _: &[&[u8]]| {
                    seen += 1;
                    Ok(if seen == 3 { Verdict::Enough } else { Verdict::Continue })
                })
            })
            .collect();
        let (_, report) = race.run_host(consumers).unwrap();
        assert!(report.ended_early, "{name}");
        assert!(report.chunks < 10, "{name}: {}", report.chunks);
        assert!(twin.reads() < 60, "{name}: {} reads", twin.reads());
        assert_quiet(&twin);
    }
}

fn assert_quiet(twin: &headrace_io::FaultyFile) {
    let reads = twin.reads();
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(twin.reads(), reads, "somebody reads on");
}

#[test]
fn a_consumer_error_stops_the_race_and_is_returned() {
    let file = TestFile::new(500_000);
    for (name, options) in forced_paths() {
        let latency = Duration::from_millis(1);
        let twin = file.faulty(FaultPlan { latency, ..FaultPlan::default() });
        let race = race(vec![twin.clone()], file.chunks(10_000), options);
        let consumed = AtomicUsize::new(0);
        let act = |chunk: usize, _: &[&[u8]]| {
            consumed.fetch_add(1, Ordering::SeqCst);
            if chunk == 4 { Err("integer overflow".into()) } else { Ok(Verdict::Continue) }
        };
        let error = race.run_host(vec![Act(act), Act(act)]).map(|_| ()).unwrap_err();
        let RaceError::Consumer { chunk: 4, source } = &error else { panic!("{name}: {error}") };
        assert_eq!(source.to_string(), "integer overflow");
        assert!(consumed.load(Ordering::SeqCst) < 50, "{name}");
        assert_quiet(&twin);
    }
}

#[test]
fn a_consumer_panic_is_an_error_and_not_a_hang() {
    let file = TestFile::new(500_000);
    for (name, options) in forced_paths() {
        let race = race(file.files(), file.chunks(10_000), options);
        let act = |chunk: usize, _: &[&[u8]]| {
            assert!(chunk != 7, "chunk seven is unlucky");
            Ok(Verdict::Continue)
        };
        let start = Instant::now();
        let error = race.run_host(vec![Act(act), Act(act)]).map(|_| ()).unwrap_err();
        let RaceError::Panic { chunk: Some(7), message } = &error else {
            panic!("{name}: {error}");
        };
        assert!(message.contains("unlucky"), "{message}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn an_error_of_another_consumer_counts_although_one_had_enough() {
    let file = TestFile::new(100_000);
    let options = RaceOptions { access: AccessPath::Mapped, ..RaceOptions::default() };
    let race = race(file.files(), file.chunks(50_000), options);
    let both_work = std::sync::Barrier::new(2);
    let act = |chunk: usize, _: &[&[u8]]| {
        both_work.wait();
        if chunk == 0 {
            return Ok(Verdict::Enough);
        }
        std::thread::sleep(Duration::from_millis(50));
        Err("its rows are in the answer".into())
    };
    let error = race.run_host(vec![Act(act), Act(act)]).map(|_| ()).unwrap_err();
    assert!(matches!(error, RaceError::Consumer { chunk: 1, .. }), "{error}");
}

#[test]
fn a_race_can_be_run_again_and_leaves_nothing_behind() {
    let file = TestFile::new(100_000);
    for (name, options) in forced_paths() {
        let twin = file.faulty(FaultPlan::default());
        let race = race(vec![twin.clone()], file.chunks(10_000), options);
        for _ in 0..3 {
            check_bytes(&race, 2, &file.content).unwrap();
        }
        drop(race);
        assert_eq!(std::sync::Arc::strong_count(&twin), 1, "{name}");
    }
}

#[test]
fn the_trace_has_a_span_for_every_read_and_every_consumption() {
    let file = TestFile::new(100_000);
    let trace = Trace::new("test", 1000);
    let options = RaceOptions {
        access: AccessPath::Buffered,
        slots: 2,
        trace: Some(trace.clone()),
        ..RaceOptions::default()
    };
    check_bytes(&race(file.files(), file.chunks(10_000), options), 2, &file.content).unwrap();
    let spans = trace.spans();
    for name in ["read", "execute"] {
        let mut chunks: Vec<usize> =
            spans.iter().filter(|span| span.name == name).map(|span| span.chunk).collect();
        chunks.sort_unstable();
        assert!(chunks.into_iter().eq(0..10), "{name}");
    }
    assert!(spans.iter().all(|span| span.bytes == 10_000 && span.slot.is_some_and(|s| s < 2)));
    // A slot is in one place at a time.
    for slot in 0..2 {
        let mut times: Vec<(u64, u64)> = spans
            .iter()
            .filter(|span| span.track == format!("read slot {slot}"))
            .map(|span| (span.start_ns, span.start_ns + span.duration_ns))
            .collect();
        times.sort_unstable();
        assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{times:?}");
    }
    let mut out = Vec::new();
    trace.write_json(&mut out).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert!(document["traceEvents"].as_array().unwrap().len() > 20);
}

#[test]
fn reports_are_serialised() {
    let file = TestFile::new(10_000);
    let report = check_bytes(
        &race(file.files(), file.chunks(5_000), RaceOptions::default()),
        1,
        &file.content,
    )
    .unwrap();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["chunks"], 2);
    assert!(json["bytes_by_path"]["mapped"].is_u64());
}
