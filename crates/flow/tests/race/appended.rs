//! Output whose size is known when a chunk was worked on: appended in the order of the chunks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headrace_flow::{
    Affinity, BoxError, CancelToken, DeviceLane, DirectEngine, FedChunk, HostProducer, Outbox,
    OutputSpec, Race, RaceError, RaceOptions, RaceReport, Verdict, WriteAccess,
};
use headrace_io::write::{FaultySink, SinkFile, WriteAt};
use headrace_io::{FaultPlan, ReadAt};
use proptest::prelude::*;

use crate::lane::{At, Plan, SimulatedLane, What};
use crate::support::{TestFile, read};

/// Files that grow, in a folder of their own.
struct Targets {
    dir: tempfile::TempDir,
    sinks: Vec<Arc<SinkFile>>,
}

impl Targets {
    fn new(sinks: usize) -> Targets {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let sinks = (0..sinks).map(|sink| SinkFile::growing(path(&dir, sink)).unwrap()).collect();
        Targets { dir, sinks }
    }

    fn sinks(&self) -> Vec<Arc<dyn WriteAt>> {
        self.sinks.iter().map(|sink| Arc::clone(sink) as _).collect()
    }

    fn committed(&self) -> Vec<Vec<u8>> {
        let commit = |(number, sink): (usize, &Arc<SinkFile>)| {
            sink.commit(false).unwrap();
            std::fs::read(path(&self.dir, number)).unwrap()
        };
        self.sinks.iter().enumerate().map(commit).collect()
    }

    /// What lies in the folder when all sinks are gone.
    fn left(self) -> usize {
        drop(self.sinks);
        std::fs::read_dir(self.dir.path()).unwrap().count()
    }
}

fn path(dir: &tempfile::TempDir, sink: usize) -> PathBuf {
    dir.path().join(format!("out-{sink}"))
}

/// Deals the bytes of a chunk out to sinks by their values, those below `kept` alone, in pieces.
#[derive(Clone, Copy)]
struct Deal {
    sinks: usize,
    kept: u8,
    piece_bytes: usize,
    /// Of chunks whose number is a multiple of this.
    late: usize,
}

impl Deal {
    fn of(&self, sink: usize, bytes: &[u8]) -> Vec<u8> {
        let is_wanted = |byte: &&u8| **byte < self.kept && usize::from(**byte) % self.sinks == sink;
        bytes.iter().filter(is_wanted).copied().collect()
    }
}

impl HostProducer for Deal {
    fn produce(
        &mut self,
        chunk: &FedChunk,
        buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError> {
        if chunk.number.is_multiple_of(self.late) {
            std::thread::sleep(Duration::from_millis(2));
        }
        for sink in 0..self.sinks {
            for buffer in buffers {
                for piece in self.of(sink, buffer).chunks(self.piece_bytes) {
                    // More room than it needs, which is known only then.
                    let mut memory = outbox.append(sink, self.piece_bytes)?;
                    memory[..piece.len()].copy_from_slice(piece);
                    memory.send_first(piece.len());
                }
            }
        }
        Ok(Verdict::Continue)
    }
}

fn run(
    file: &TestFile,
    source: Arc<dyn ReadAt>,
    (chunk_bytes, options): (usize, RaceOptions),
    sinks: Vec<Arc<dyn WriteAt>>,
    producers: Vec<impl HostProducer>,
) -> Result<RaceReport, RaceError> {
    let race = Race::new(vec![source], file.chunks(chunk_bytes), options, CancelToken::new())?;
    race.with_appended(sinks).run_host_writing(producers).map(|(_, report)| report)
}

/// What the sinks must hold: chunk by chunk, and buffer by buffer.
fn wanted(file: &TestFile, chunk_bytes: usize, deal: &Deal) -> Vec<Vec<u8>> {
    let of_sink = |sink| {
        let chunks = file.chunks(chunk_bytes);
        let reads = chunks.iter().flat_map(|chunk| &chunk.reads);
        reads
            .flat_map(|read| {
                deal.of(sink, &file.content[read.offset as usize..][..read.bytes as usize])
            })
            .collect()
    };
    (0..deal.sinks).map(of_sink).collect()
}

fn options(windows: usize, piece_bytes: usize, way: usize) -> RaceOptions {
    let (write_access, direct_engine) = [
        (WriteAccess::Buffered, DirectEngine::Auto),
        (WriteAccess::Direct, DirectEngine::Uring),
        (WriteAccess::Direct, DirectEngine::Threads),
    ][way];
    RaceOptions {
        write_access,
        direct_engine,
        slots: 3,
        output_slots: windows,
        output_slot_bytes: piece_bytes + 4096,
        ..RaceOptions::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn sinks_have_what_was_appended_in_the_order_of_the_chunks(
        bytes in 0..200_000_usize,
        chunk_bytes in 500..60_000_usize,
        (consumers, windows) in (1..5_usize, 1..5_usize),
        (sinks, kept, piece_bytes) in (1..4_usize, any::<u8>(), 1..9000_usize),
        (late, way, is_cold) in (1..9_usize, 0..3_usize, any::<bool>()),
    ) {
        // Tiny pieces of much are slow, and show nothing more.
        let piece_bytes = piece_bytes.max(bytes / 400 + 1);
        let deal = Deal { sinks, kept, piece_bytes, late };
        let (file, targets) = (TestFile::new(bytes), Targets::new(sinks));
        if is_cold && bytes > 0 {
            file.make_cold();
        }
        let given = (chunk_bytes, options(windows, piece_bytes, way));
        let report = run(&file, file.open(), given, targets.sinks(), vec![deal; consumers]).unwrap();
        let wanted = wanted(&file, chunk_bytes, &deal);
        let ends: Vec<u64> = wanted.iter().map(|bytes| bytes.len() as u64).collect();
        prop_assert_eq!(&report.appended_bytes, &ends);
        prop_assert_eq!(report.written_bytes, ends.iter().sum::<u64>());
        prop_assert!(targets.committed() == wanted);
        // All but the last block of a sink is written past the page cache, whatever the pieces' sizes.
        prop_assert!(way == 0 || report.written_buffered_bytes == 0, "{report:?}");
    }
}

/// Copies, and is done with the first chunk last of all.
struct FirstLast {
    others: Arc<std::sync::Barrier>,
}

impl HostProducer for FirstLast {
    fn produce(
        &mut self,
        chunk: &FedChunk,
        buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError> {
        if chunk.number == 0 {
            // The others have taken all windows that they can get.
            self.others.wait();
            std::thread::sleep(Duration::from_millis(50));
        } else if chunk.number == 3 {
            self.others.wait();
        }
        for piece in buffers.concat().chunks(1000) {
            let mut memory = outbox.append(0, piece.len())?;
            memory.copy_from_slice(piece);
            memory.send();
        }
        Ok(Verdict::Continue)
    }
}

#[test]
fn a_first_chunk_that_is_late_finds_memory_for_its_output() {
    for windows in 1..4 {
        let (file, targets) = (TestFile::new(100_000), Targets::new(1));
        let others = Arc::new(std::sync::Barrier::new(2));
        let producers = (0..4).map(|_| FirstLast { others: Arc::clone(&others) }).collect();
        let given = (5000, options(windows, 1000, 0));
        let report = run(&file, file.open(), given, targets.sinks(), producers).unwrap();
        assert_eq!(report.appended_bytes, [100_000]);
        assert!(targets.committed() == [file.content.clone()]);
    }
}

/// A device that deals out what a chunk has, a piece a sink and buffer.
fn lane_of(deal: Deal, slots: usize, slot_bytes: usize) -> SimulatedLane {
    let of_sink = move |sink: usize, buffers: &[Vec<u8>]| -> Vec<(usize, Vec<u8>)> {
        buffers.iter().map(|buffer| (sink, deal.of(sink, buffer))).collect()
    };
    let appends =
        move |buffers: &[Vec<u8>]| (0..deal.sinks).flat_map(|s| of_sink(s, buffers)).collect();
    let return_latency = Duration::from_micros(200);
    let plan = Plan { appends: Some(Arc::new(appends)), return_latency, ..Plan::default() };
    SimulatedLane::new(slots, slot_bytes, plan)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_device_appends_as_the_host_does(
        bytes in 0..200_000_usize,
        chunk_bytes in 3000..60_000_usize,
        (sinks, kept, slots) in (1..4_usize, any::<u8>(), 1..5_usize),
        (way, is_cold) in (0..3_usize, any::<bool>()),
    ) {
        let deal = Deal { sinks, kept, piece_bytes: 1, late: 1 };
        let (file, targets) = (TestFile::new(bytes), Targets::new(sinks));
        if is_cold && bytes > 0 {
            file.make_cold();
        }
        let given = options(1, 1, way);
        let race = Race::new(file.files(), file.chunks(chunk_bytes), given, CancelToken::new()).unwrap();
        let race = race.with_appended(targets.sinks());
        let mut lane = lane_of(deal, slots, 128 << 10);
        let report = race.run_device(&mut lane).unwrap();
        let wanted = wanted(&file, chunk_bytes, &deal);
        let ends: Vec<u64> = wanted.iter().map(|bytes| bytes.len() as u64).collect();
        let total = ends.iter().sum::<u64>();
        prop_assert_eq!(&report.appended_bytes, &ends);
        prop_assert_eq!((report.written_bytes, report.d2h_bytes), (total, total));
        prop_assert_eq!(lane.retired.len(), race.chunks().len());
        prop_assert!(targets.committed() == wanted);
        prop_assert!(way == 0 || report.written_buffered_bytes == 0, "{report:?}");
    }
}

#[test]
fn an_error_at_any_stage_of_a_device_that_appends_ends_the_race() {
    let file = TestFile::new(150_000);
    let deal = Deal { sinks: 2, kept: 200, piece_bytes: 1, late: 1 };
    for at in [At::Launch, At::Output, At::Execute, At::Return, At::Retire] {
        for what in [What::Fail, What::Panic, What::Enough] {
            let targets = Targets::new(2);
            let given = options(1, 1, 1);
            let race =
                Race::new(file.files(), file.chunks(10_000), given, CancelToken::new()).unwrap();
            let race = race.with_appended(targets.sinks());
            let mut lane = lane_of(deal, 3, 64 << 10);
            lane.plan.happen = Some((at, 4, what));
            match (race.run_device(&mut lane), what) {
                (Err(error), What::Fail) => {
                    assert!(matches!(error, RaceError::Device { .. }), "{error}")
                }
                (Err(error), What::Panic) => {
                    assert!(matches!(error, RaceError::Panic { .. }), "{error}")
                }
                // Said at another stage than the last it means nothing.
                (Ok(report), What::Enough) => {
                    let wanted = wanted(&file, 10_000, &deal);
                    let found = targets.committed();
                    let ends: Vec<u64> = found.iter().map(|bytes| bytes.len() as u64).collect();
                    assert_eq!(report.appended_bytes, ends, "{at:?}");
                    assert!(wanted.iter().zip(&found).all(|(w, f)| w.starts_with(f)), "{at:?}");
                    assert_eq!(found == wanted, at != At::Retire, "{at:?}");
                    continue;
                }
                (outcome, _) => panic!("{at:?}, {what:?}: {:?}", outcome.map(drop)),
            }
            assert!(lane.is_idle() && lane.synchronized == 1, "{at:?}, {what:?}");
            drop(race);
            assert_eq!(targets.left(), 0, "{at:?}, {what:?}");
        }
    }
}

#[test]
fn what_does_not_fit_an_output_window_or_comes_from_two_devices_is_refused() {
    let file = TestFile::new(60_000);
    let deal = Deal { sinks: 3, kept: 255, piece_bytes: 1, late: 1 };
    let race = |targets: &Targets| {
        let chunks = file.chunks(30_000);
        Race::new(file.files(), chunks, RaceOptions::default(), CancelToken::new())
            .unwrap()
            .with_appended(targets.sinks())
    };
    let targets = Targets::new(3);
    let error = race(&targets).run_device(&mut lane_of(deal, 2, 44 << 10)).unwrap_err().to_string();
    assert!(error.contains("of an output window of 45056"), "{error}");
    let (mut one, mut other) = (lane_of(deal, 2, 64 << 10), lane_of(deal, 2, 64 << 10));
    let lanes: Vec<&mut (dyn DeviceLane + Send)> = vec![&mut one, &mut other];
    let error = race(&targets).run_devices(lanes, &Affinity::none()).unwrap_err().to_string();
    assert!(error.contains("on one device, not on 2"), "{error}");
}

#[test]
fn consumers_do_not_wait_all_for_a_chunk_that_is_read_late() {
    let (late, early, targets) = (TestFile::new(5000), TestFile::new(50_000), Targets::new(1));
    late.make_cold();
    early.make_warm();
    let plan = FaultPlan { latency: Duration::from_millis(100), ..FaultPlan::default() };
    let files: Vec<Arc<dyn ReadAt>> = vec![late.faulty(plan), early.open()];
    let of_early = early.chunks(5000).into_iter().map(|mut chunk| {
        chunk.reads.iter_mut().for_each(|read| read.file = 1);
        chunk
    });
    let chunks = late.chunks(5000).into_iter().chain(of_early).collect();
    let race = Race::new(files, chunks, options(2, 1000, 0), CancelToken::new()).unwrap();
    let deal = Deal { sinks: 1, kept: 255, piece_bytes: 1000, late: 100 };
    race.with_appended(targets.sinks()).run_host_writing(vec![deal; 2]).unwrap();
    let wanted = [deal.of(0, &late.content), deal.of(0, &early.content)].concat();
    assert!(targets.committed() == [wanted]);
}

#[test]
fn a_fault_in_any_stage_is_an_error_and_leaves_no_file() {
    let deal = Deal { sinks: 2, kept: 200, piece_bytes: 3000, late: 2 };
    let file = TestFile::new(150_000);
    for fault in 0..3 {
        let targets = Targets::new(2);
        let mut sinks = targets.sinks();
        let mut source: Arc<dyn ReadAt> = file.open();
        match fault {
            0 => {
                let plan = FaultPlan { io_error_at: Some(8192), ..FaultPlan::default() };
                sinks[1] = FaultySink::new(targets.sinks[1].clone(), plan);
            }
            1 => {
                let plan = FaultPlan { io_error_at: Some(90_000), ..FaultPlan::default() };
                source = file.faulty(plan);
            }
            _ => {}
        }
        file.make_cold();
        let given = (10_000, options(3, 3000, 1));
        let error = match fault {
            2 => run(&file, source, given, sinks, vec![Fails; 3]).unwrap_err(),
            _ => run(&file, source, given, sinks, vec![deal; 3]).unwrap_err(),
        };
        let is_right = match fault {
            0 => matches!(error, RaceError::Write { .. }),
            1 => matches!(error, RaceError::Read { .. }),
            _ => matches!(error, RaceError::Consumer { chunk: 7, .. }),
        };
        assert!(is_right, "{fault}: {error:?}");
        assert_eq!(targets.left(), 0, "{fault}");
    }
}

#[derive(Clone)]
struct Fails;

impl HostProducer for Fails {
    fn produce(
        &mut self,
        chunk: &FedChunk,
        buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError> {
        outbox.append(0, 1000)?[..10].copy_from_slice(&buffers[0][..10]);
        if chunk.number == 7 { Err("enough of it".into()) } else { Ok(Verdict::Continue) }
    }
}

/// Appends each chunk's first byte, and has enough at one of them.
struct Until(usize);

impl HostProducer for Until {
    fn produce(
        &mut self,
        chunk: &FedChunk,
        buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError> {
        let mut memory = outbox.append(0, 1)?;
        memory[0] = buffers[0][0];
        memory.send();
        Ok(if chunk.number == self.0 { Verdict::Enough } else { Verdict::Continue })
    }
}

#[test]
fn a_race_that_ends_early_has_appended_what_came_before_its_end() {
    let file = TestFile::new(60_000);
    let targets = Targets::new(1);
    let producers = (0..3).map(|_| Until(5)).collect();
    let given = (1000, options(2, 64, 0));
    let report = run(&file, file.open(), given, targets.sinks(), producers).unwrap();
    let firsts: Vec<u8> = file.content.iter().step_by(1000).copied().collect();
    let found = targets.committed().remove(0);
    assert_eq!(report.appended_bytes, [found.len() as u64]);
    assert!(report.ended_early && (6..=9).contains(&found.len()), "{report:?}");
    assert!(firsts.starts_with(&found));
}

#[test]
fn a_race_that_runs_again_says_anew_where_its_sinks_end() {
    let (file, targets) = (TestFile::new(20_000), Targets::new(1));
    let given = options(2, 5000, 0);
    let race = Race::new(file.files(), file.chunks(5000), given, CancelToken::new()).unwrap();
    let race = race.with_appended(targets.sinks());
    let deal = |kept| Deal { sinks: 1, kept, piece_bytes: 5000, late: 100 };
    for kept in [100, 200, 50] {
        race.run_host_writing(vec![deal(kept)]).unwrap();
    }
    assert!(targets.committed() == wanted(&file, 5000, &deal(50)));
}

/// Asks for one output.
#[derive(Clone, Copy)]
enum Asks {
    Append { sink: usize, bytes: usize },
    At,
}

impl HostProducer for Asks {
    fn produce(
        &mut self,
        _chunk: &FedChunk,
        _buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError> {
        match *self {
            Asks::Append { sink, bytes } => outbox.append(sink, bytes)?.send(),
            Asks::At => outbox.buffer(OutputSpec { sink: 0, offset: 0, bytes: 1 })?.send(),
        }
        Ok(Verdict::Continue)
    }
}

#[test]
fn output_that_cannot_be_is_refused() {
    let file = TestFile::new(100);
    let chunk = headrace_flow::ChunkSpec { reads: vec![read(0, 100)] };
    let run = |asks, is_appended: bool, sink: Arc<SinkFile>| {
        let given = options(2, 5000, 0);
        let race = Race::new(file.files(), vec![chunk.clone()], given, CancelToken::new()).unwrap();
        let race = if is_appended {
            race.with_appended(vec![sink])
        } else {
            race.with_outputs(vec![sink])
        };
        race.run_host_writing(vec![asks]).map(drop).unwrap_err().to_string()
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let growing = || SinkFile::growing(dir.path().join("out")).unwrap();
    let append = |sink, bytes| Asks::Append { sink, bytes };
    assert!(run(append(1, 1), true, growing()).contains("sink 1 of 1"));
    assert!(run(append(0, 8193), true, growing()).contains("room for 8192"));
    assert!(run(append(0, 1), false, growing()).contains("say where their output goes"));
    assert!(run(Asks::At, true, growing()).contains("append to its sinks"));
    let sized = SinkFile::create(dir.path().join("out"), 4097).unwrap();
    assert!(run(append(0, 4100), true, sized).contains("3 bytes more than the 4097"));
}
