//! All five stages on a (simulated) device.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headrace_flow::{
    AccessPath, CancelToken, ChunkSpec, DirectEngine, OutputSpec, Race, RaceError, RaceOptions,
    Stage, Trace, WriteAccess,
};
use headrace_io::write::{FaultySink, SinkFile, WriteAt};
use headrace_io::{FaultPlan, ReadAt};
use proptest::prelude::*;

use crate::lane::{At, Plan, SimulatedLane, What};
use crate::support::{TestFile, assert_same, read};

const SIZE: usize = 500_003;
const CHUNK: usize = 49_152;
const SLOT: usize = 128 << 10;

/// A sink in a folder of its own.
pub struct Target {
    _dir: tempfile::TempDir,
    path: PathBuf,
    pub sink: Arc<SinkFile>,
}

impl Target {
    pub fn new(bytes: usize) -> Target {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("out.bin");
        let sink = SinkFile::create(&path, bytes as u64).unwrap();
        Target { _dir: dir, path, sink }
    }

    pub fn faulty(&self, plan: FaultPlan) -> Arc<FaultySink> {
        FaultySink::new(self.sink.clone(), plan)
    }

    pub fn committed(&self) -> Vec<u8> {
        self.sink.commit(false).unwrap();
        std::fs::read(&self.path).unwrap()
    }
}

/// Each chunk's output goes where its first byte lies in the file.
pub fn outputs(chunks: &[ChunkSpec]) -> Vec<OutputSpec> {
    let spec = |chunk: &ChunkSpec| OutputSpec {
        sink: 0,
        offset: chunk.reads.first().map_or(0, |read| read.offset),
        bytes: chunk.bytes(),
    };
    chunks.iter().map(spec).collect()
}

pub fn plus_one(content: &[u8]) -> Vec<u8> {
    content.iter().map(|byte| byte.wrapping_add(1)).collect()
}

/// Every way of writing that can be forced.
fn write_ways() -> Vec<(&'static str, RaceOptions)> {
    let with = |write_access, direct_engine| RaceOptions {
        write_access,
        direct_engine,
        segment_bytes: 8192,
        ..RaceOptions::default()
    };
    vec![
        ("buffered", with(WriteAccess::Buffered, DirectEngine::Auto)),
        ("io_uring", with(WriteAccess::Direct, DirectEngine::Uring)),
        ("direct threads", with(WriteAccess::Direct, DirectEngine::Threads)),
    ]
}

pub fn device_race(
    files: Vec<Arc<dyn ReadAt>>,
    chunks: Vec<ChunkSpec>,
    options: RaceOptions,
    sink: Arc<dyn WriteAt>,
) -> Race {
    Race::new(files, chunks, options, CancelToken::new()).unwrap().with_outputs(vec![sink])
}

#[test]
fn a_file_goes_through_the_device_into_a_file() {
    let file = TestFile::new(SIZE);
    for (name, options) in write_ways() {
        let target = Target::new(SIZE);
        let trace = Trace::new("test", 10_000);
        let options = RaceOptions { trace: Some(trace.clone()), ..options };
        let chunks = file.chunks(CHUNK);
        let race = device_race(file.files(), chunks.clone(), options, target.sink.clone());
        let mut lane = SimulatedLane::new(
            3,
            SLOT,
            Plan {
                outputs: outputs(&chunks),
                return_latency: Duration::from_millis(1),
                ..Plan::default()
            },
        );
        let report = race.run_device(&mut lane).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_same(&race, lane.take_results(), &file.content);
        assert!(target.committed() == plus_one(&file.content), "{name}");
        let direct = report.written_direct_bytes;
        assert_eq!((report.written_bytes, report.d2h_bytes), (SIZE as u64, SIZE as u64));
        assert_eq!(direct > 0, name != "buffered", "{name}: {report:?}");
        assert!(report.d2h_ns >= 11_000_000 && report.write_busy_ns > 0, "{report:?}");
        assert_eq!(report.write_latency.count, 11);
        assert!(report.engines.iter().any(|engine| engine.starts_with("writing: ")));
        assert_eq!(report.chunks, 11);
        let spans = trace.spans();
        let of = |name: &str| spans.iter().filter(|span| span.name == name).count();
        assert_eq!((of("read"), of("write")), (11, 11));
        // Every slot has its place at every moment.
        let slots = trace.counts().into_iter().filter(|count| count.counter == "slots");
        for count in slots {
            assert_eq!(count.values.iter().map(|(_, slots)| slots).sum::<u64>(), 3, "{count:?}");
        }
        let last = trace.counts().into_iter().rfind(|count| count.counter == "bytes").unwrap();
        assert_eq!(last.values.iter().map(|(_, bytes)| bytes).sum::<u64>(), SIZE as u64);
    }
}

#[test]
fn auto_writes_directly_where_it_can_and_says_why_not() {
    let file = TestFile::new(SIZE);
    for (chunk_bytes, aligned) in [(CHUNK, true), (50_000, false)] {
        let target = Target::new(SIZE);
        let chunks = file.chunks(chunk_bytes);
        let options = RaceOptions::default();
        let race = device_race(file.files(), chunks.clone(), options, target.sink.clone());
        let plan = Plan { outputs: outputs(&chunks), ..Plan::default() };
        let report = race.run_device(&mut SimulatedLane::new(2, SLOT, plan)).unwrap();
        assert!(target.committed() == plus_one(&file.content));
        let reason = report.path_reasons.iter().find(|r| r.contains("written through"));
        assert_eq!(reason.is_none(), aligned, "{report:?}");
        assert_eq!(report.written_buffered_bytes == 0, aligned, "{report:?}");
    }
}

#[test]
fn a_forced_way_of_writing_that_cannot_be_had_is_an_error() {
    let file = TestFile::new(SIZE);
    let target = Target::new(SIZE);
    let chunks = file.chunks(50_000);
    let options = RaceOptions { write_access: WriteAccess::Direct, ..RaceOptions::default() };
    let race = device_race(file.files(), chunks.clone(), options, target.sink.clone());
    let plan = Plan { outputs: outputs(&chunks), ..Plan::default() };
    let error = race.run_device(&mut SimulatedLane::new(2, SLOT, plan)).unwrap_err();
    assert!(matches!(error, RaceError::WriteUnavailable { .. }), "{error}");
}

#[test]
fn bad_outputs_are_refused() {
    let file = TestFile::new(SIZE);
    let chunks = file.chunks(CHUNK);
    let good = outputs(&chunks);
    for (change, what) in [
        (OutputSpec { sink: 1, ..good[3] }, "sink 1 of 1"),
        (OutputSpec { offset: SIZE as u64, ..good[3] }, "do not lie inside"),
        (OutputSpec { offset: u64::MAX, ..good[3] }, "do not lie inside"),
        (OutputSpec { offset: 0, bytes: SIZE as u64, sink: 0 }, "do not fit"),
    ] {
        let target = Target::new(SIZE);
        let options = RaceOptions::default();
        let race = device_race(file.files(), chunks.clone(), options, target.sink.clone());
        let mut outputs = good.clone();
        outputs[3] = change;
        let plan = Plan { outputs, ..Plan::default() };
        let error = race.run_device(&mut SimulatedLane::new(2, SLOT, plan)).unwrap_err();
        assert!(matches!(error, RaceError::BadOutput { chunk: 3, .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// What goes wrong at which stage, and how it must come out.
#[test]
fn an_error_at_any_of_the_five_stages_ends_the_race() {
    let file = TestFile::new(SIZE);
    let slow = Duration::from_millis(1);
    let stages: [(&str, FaultPlan, Option<At>, FaultPlan); 7] = [
        (
            "read",
            FaultPlan { io_error_at: Some(200_000), ..FaultPlan::default() },
            None,
            FaultPlan::default(),
        ),
        ("copy", FaultPlan::default(), Some(At::Copy), FaultPlan::default()),
        ("launch", FaultPlan::default(), Some(At::Launch), FaultPlan::default()),
        ("output", FaultPlan::default(), Some(At::Output), FaultPlan::default()),
        ("return", FaultPlan::default(), Some(At::Return), FaultPlan::default()),
        (
            "no room",
            FaultPlan::default(),
            None,
            FaultPlan { full_at: Some(200_000), ..FaultPlan::default() },
        ),
        (
            "write",
            FaultPlan::default(),
            None,
            FaultPlan { io_error_at: Some(200_000), ..FaultPlan::default() },
        ),
    ];
    for (write_way, write_options) in write_ways() {
        for (stage, read_plan, at, write_plan) in stages.clone() {
            for what in [What::Fail, What::Panic] {
                if at.is_none() && what == What::Panic {
                    continue;
                }
                let target = Target::new(SIZE);
                let sink = target.faulty(FaultPlan { latency: slow, ..write_plan.clone() });
                let twin = file.faulty(read_plan.clone());
                let options = RaceOptions { access: AccessPath::Buffered, ..write_options.clone() };
                let chunks = file.chunks(CHUNK);
                let race = device_race(vec![twin.clone()], chunks.clone(), options, sink.clone());
                let mut lane = SimulatedLane::new(
                    3,
                    SLOT,
                    Plan {
                        outputs: outputs(&chunks),
                        return_latency: slow,
                        happen: at.map(|at| (at, 4, what)),
                        ..Plan::default()
                    },
                );
                let error = race.run_device(&mut lane).unwrap_err();
                let name = format!("{write_way}, {stage}, {what:?}: {error}");
                assert!(lane.is_idle() && lane.synchronized == 1, "{name}");
                let as_planned = match (&error, stage) {
                    (RaceError::Read { chunk, .. }, "read") => (3..=5).contains(chunk),
                    (RaceError::Write { chunk, source }, "no room" | "write") => {
                        // Nothing behind the end of the room can be written.
                        let last = if stage == "write" { 4 } else { 10 };
                        (3..=last).contains(chunk)
                            && source.to_string().contains("out.bin")
                            && (source.to_string().contains("No space") == (stage == "no room"))
                    }
                    (RaceError::Device { .. }, _) => what == What::Fail,
                    (RaceError::Panic { .. }, _) => what == What::Panic,
                    _ => false,
                };
                assert!(as_planned, "{name}");
                let (reads, writes) = (twin.reads(), sink.writes());
                std::thread::sleep(Duration::from_millis(3));
                assert_eq!((twin.reads(), sink.writes()), (reads, writes), "{name}: went on");
                drop(race);
                assert_eq!((Arc::strong_count(&twin), Arc::strong_count(&sink)), (1, 1), "{name}");
            }
        }
    }
}

#[test]
fn cancellation_at_every_stage_ends_the_race() {
    let file = TestFile::new(SIZE);
    let slow = Duration::from_millis(2);
    for (write_way, options) in write_ways() {
        for at in [At::Copy, At::Launch, At::Output, At::Return, At::Execute, At::Retire] {
            let target = Target::new(SIZE);
            let sink = target.faulty(FaultPlan { latency: slow, ..FaultPlan::default() });
            let token = CancelToken::new();
            let chunks = file.chunks(CHUNK);
            let race = Race::new(file.files(), chunks.clone(), options.clone(), token.clone())
                .unwrap()
                .with_outputs(vec![sink.clone()]);
            let plan = Plan {
                outputs: outputs(&chunks),
                return_latency: slow,
                cancel: Some((at, 2, token)),
                ..Plan::default()
            };
            let mut lane = SimulatedLane::new(3, SLOT, plan);
            let error = race.run_device(&mut lane).unwrap_err();
            assert!(matches!(error, RaceError::Cancelled), "{write_way}, {at:?}: {error}");
            assert!(lane.is_idle() && lane.retired.len() < 11, "{write_way}, {at:?}");
            let writes = sink.writes();
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(sink.writes(), writes, "{write_way}, {at:?}: writes went on");
        }
    }
}

#[test]
fn cancellation_while_writes_are_under_way() {
    let file = TestFile::new(SIZE);
    for (name, options) in write_ways() {
        let target = Target::new(SIZE);
        let latency = Duration::from_millis(30);
        let sink = target.faulty(FaultPlan { latency, ..FaultPlan::default() });
        let token = CancelToken::new();
        let chunks = file.chunks(CHUNK);
        let options = RaceOptions { writers: 2, queue_depth: 2, ..options };
        let race = Race::new(file.files(), chunks.clone(), options, token.clone())
            .unwrap()
            .with_outputs(vec![sink.clone()]);
        let plan = Plan { outputs: outputs(&chunks), ..Plan::default() };
        let mut lane = SimulatedLane::new(3, SLOT, plan);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while sink.writes() == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                token.cancel();
            });
            let error = race.run_device(&mut lane).unwrap_err();
            assert!(matches!(error, RaceError::Cancelled), "{name}: {error}");
        });
        // All of it would be more than 60 writes of at most 8192 bytes.
        assert!(sink.writes() < 40, "{name}: {}", sink.writes());
    }
}

#[test]
fn what_was_launched_before_enough_is_written() {
    let file = TestFile::new(SIZE);
    for (name, options) in write_ways() {
        let target = Target::new(SIZE);
        let slow = Duration::from_millis(2);
        let sink = target.faulty(FaultPlan { latency: slow, ..FaultPlan::default() });
        let chunks = file.chunks(CHUNK);
        let race = device_race(file.files(), chunks.clone(), options, sink);
        let plan = Plan {
            outputs: outputs(&chunks),
            happen: Some((At::Retire, 1, What::Enough)),
            ..Plan::default()
        };
        let mut lane = SimulatedLane::new(3, SLOT, plan);
        let report = race.run_device(&mut lane).unwrap();
        assert!(report.ended_early && lane.retired.len() < 11, "{name}");
        let written: u64 = lane.retired.iter().map(|chunk| chunks[*chunk].bytes()).sum();
        assert_eq!(report.written_bytes, written, "{name}");
        let content = target.committed();
        for chunk in lane.retired.clone() {
            let OutputSpec { offset, bytes, .. } = outputs(&chunks)[chunk];
            let range = offset as usize..(offset + bytes) as usize;
            assert!(content[range.clone()] == plus_one(&file.content[range]), "{name}");
        }
    }
}

#[test]
fn slow_returns_and_slow_writes_are_named_as_the_bottleneck() {
    let file = TestFile::new(SIZE);
    // Long enough to stand out on a busy machine.
    let slow = Duration::from_millis(20);
    for (return_latency, write_latency, stage) in
        [(slow, Duration::ZERO, Stage::CopyToHost), (Duration::ZERO, slow, Stage::Write)]
    {
        let target = Target::new(SIZE);
        let sink = target.faulty(FaultPlan { latency: write_latency, ..FaultPlan::default() });
        let chunks = file.chunks(CHUNK);
        let options = RaceOptions {
            writers: 1,
            write_access: WriteAccess::Buffered,
            ..RaceOptions::default()
        };
        let race = device_race(file.files(), chunks.clone(), options, sink);
        let plan = Plan { outputs: outputs(&chunks), return_latency, ..Plan::default() };
        let report = race.run_device(&mut SimulatedLane::new(3, SLOT, plan)).unwrap();
        assert_eq!(report.bottleneck().unwrap().stage, stage, "{report:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Random chunks, slots and faults that must not show.
    #[test]
    fn outputs_are_right_whatever_the_sizes(
        sizes in prop::collection::vec(0usize..40_000, 0..12),
        slots in 1usize..4,
        seed in any::<u64>(),
        latency_us in 0u64..300,
    ) {
        let total = sizes.iter().sum::<usize>().max(1);
        let file = TestFile::new(total);
        let mut at = 0;
        let chunks: Vec<ChunkSpec> = sizes
            .iter()
            .map(|size| {
                at += size;
                ChunkSpec { reads: vec![read(at - size, size / 3), read(at - size + size / 3, size - size / 3)] }
            })
            .collect();
        let latency = Duration::from_micros(latency_us);
        for access in [WriteAccess::Auto, WriteAccess::Buffered] {
            let target = Target::new(total);
            let sink = target.faulty(FaultPlan {
                seed, short_permille: 200, interrupted_permille: 100, latency,
                ..FaultPlan::default()
            });
            let options = RaceOptions { write_access: access, ..RaceOptions::default() };
            let race = device_race(file.files(), chunks.clone(), options, sink);
            let plan = Plan { outputs: outputs(&chunks), return_latency: latency, ..Plan::default() };
            race.run_device(&mut SimulatedLane::new(slots, SLOT, plan)).unwrap();
            let wanted = if at == 0 { vec![0] } else { plus_one(&file.content) };
            prop_assert!(target.committed() == wanted);
        }
    }
}
