//! Outputs of consumers on the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use headrace_flow::{
    BoxError, CancelToken, ChunkSpec, FedChunk, HostProducer, Outbox, OutputSpec, Race, RaceError,
    RaceOptions, Stage, Verdict, WriteAccess,
};
use headrace_io::FaultPlan;
use headrace_io::write::{FaultySink, WriteAt};

use crate::outputs::{Target, device_race, outputs, plus_one};
use crate::support::TestFile;

const SIZE: usize = 500_003;
const CHUNK: usize = 49_152;

/// Puts every byte out plus one, by way of as many buffers as the chunk has.
#[derive(Default)]
struct PlusOne {
    latency: Duration,
    fail_at: Option<usize>,
    enough_at: Option<usize>,
    produced: Vec<usize>,
}

/// Where the buffers of a chunk of [`TestFile::chunks`] lie.
fn place(chunks: &[ChunkSpec], chunk: usize, buffer: usize) -> OutputSpec {
    let read = chunks[chunk].reads[buffer];
    OutputSpec { sink: 0, offset: read.offset, bytes: read.bytes }
}

struct Producer<'a>(PlusOne, &'a [ChunkSpec]);

impl HostProducer for Producer<'_> {
    fn produce(
        &mut self,
        chunk: &FedChunk,
        buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError> {
        for (number, buffer) in buffers.iter().enumerate() {
            let mut output = outbox.buffer(place(self.1, chunk.number, number))?;
            assert_eq!(output.len(), buffer.len());
            for (to, from) in output.iter_mut().zip(*buffer) {
                *to = from.wrapping_add(1);
            }
            output.send();
        }
        std::thread::sleep(self.0.latency);
        if self.0.fail_at == Some(chunk.number) {
            return Err("failed by order".into());
        }
        self.0.produced.push(chunk.number);
        Ok(if self.0.enough_at == Some(chunk.number) { Verdict::Enough } else { Verdict::Continue })
    }
}

fn host_options(options: &RaceOptions) -> RaceOptions {
    RaceOptions {
        // Buffers do not begin with whole blocks.
        write_access: WriteAccess::Auto,
        output_slots: 4,
        output_slot_bytes: CHUNK,
        ..options.clone()
    }
}

#[test]
fn consumers_on_the_host_put_out_a_file() {
    let file = TestFile::new(SIZE);
    for (name, options) in crate::support::forced_paths() {
        let target = Target::new(SIZE);
        let chunks = file.chunks(CHUNK);
        let race =
            device_race(file.files(), chunks.clone(), host_options(&options), target.sink.clone());
        let producers = (0..3).map(|_| Producer(PlusOne::default(), &chunks)).collect();
        let (producers, report) = race.run_host_writing(producers).unwrap();
        assert!(target.committed() == plus_one(&file.content), "{name}");
        assert_eq!((report.written_bytes, report.chunks), (SIZE as u64, 11), "{name}");
        assert_eq!(report.write_latency.count, 22, "{name}");
        assert_eq!(producers.iter().map(|p| p.0.produced.len()).sum::<usize>(), 11);
    }
}

#[test]
fn chunks_without_reads_only_write() {
    let target = Target::new(1 << 20);
    let sink = target.faulty(FaultPlan {
        latency: Duration::from_millis(1),
        short_permille: 300,
        ..FaultPlan::default()
    });
    let options =
        RaceOptions { output_slots: 2, output_slot_bytes: 65_536, ..RaceOptions::default() };
    let chunks = vec![ChunkSpec::default(); 16];
    let race = device_race(Vec::new(), chunks, options, sink);
    struct Fill;
    impl HostProducer for Fill {
        fn produce(
            &mut self,
            chunk: &FedChunk,
            _: &[&[u8]],
            outbox: &mut Outbox<'_>,
        ) -> Result<Verdict, BoxError> {
            let to = OutputSpec { sink: 0, offset: chunk.number as u64 * 65_536, bytes: 65_536 };
            // One that is dropped is not written, and its memory comes back.
            drop(outbox.buffer(to)?);
            let mut output = outbox.buffer(to)?;
            output.fill(chunk.number as u8 + 1);
            output.send();
            Ok(Verdict::Continue)
        }
    }
    let (_, report) = race.run_host_writing(vec![Fill]).unwrap();
    assert_eq!((report.written_bytes, report.write_latency.count), (1 << 20, 16));
    assert!(report.short_writes > 0 && report.write_wait_ns > 0, "{report:?}");
    assert_eq!(report.bottleneck().unwrap().stage, Stage::Write, "{report:?}");
    let content = target.committed();
    assert!(
        content.chunks(65_536).zip(1u8..).all(|(part, value)| part.iter().all(|b| *b == value))
    );
}

#[test]
fn failures_and_cancellation_of_writing_consumers() {
    let file = TestFile::new(SIZE);
    let chunks = file.chunks(CHUNK);
    let slow = Duration::from_millis(2);
    let full = FaultPlan { full_at: Some(200_000), latency: slow, ..FaultPlan::default() };
    let well = FaultPlan { latency: slow, ..FaultPlan::default() };
    for case in ["full", "consumer", "enough", "cancel", "no sink"] {
        let target = Target::new(SIZE);
        let sink = target.faulty(if case == "full" { full.clone() } else { well.clone() });
        let token = CancelToken::new();
        let sinks: Vec<Arc<dyn WriteAt>> =
            if case == "no sink" { Vec::new() } else { vec![sink.clone()] };
        let options = host_options(&RaceOptions { slots: 3, ..RaceOptions::default() });
        let race = Race::new(file.files(), chunks.clone(), options, token.clone())
            .unwrap()
            .with_outputs(sinks);
        let producer = |fail_at, enough_at| {
            Producer(PlusOne { latency: slow, fail_at, enough_at, ..PlusOne::default() }, &chunks)
        };
        let producers = match case {
            "consumer" => vec![producer(Some(4), None), producer(Some(4), None)],
            "enough" => vec![producer(None, Some(2)), producer(None, Some(2))],
            _ => vec![producer(None, None), producer(None, None)],
        };
        let outcome = std::thread::scope(|scope| {
            if case == "cancel" {
                scope.spawn(|| {
                    while sink.writes() == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    token.cancel();
                });
            }
            race.run_host_writing(producers)
        });
        match (case, outcome) {
            ("enough", Ok((producers, report))) => {
                assert!(report.ended_early);
                let content = target.committed();
                let produced: Vec<usize> =
                    producers.iter().flat_map(|p| p.0.produced.clone()).collect();
                let bytes: u64 = produced.iter().map(|chunk| chunks[*chunk].bytes()).sum();
                assert_eq!(report.written_bytes, bytes);
                for chunk in produced {
                    let OutputSpec { offset, bytes, .. } = outputs(&chunks)[chunk];
                    let range = offset as usize..(offset + bytes) as usize;
                    assert!(content[range.clone()] == plus_one(&file.content[range]));
                }
            }
            ("full", Err(RaceError::Write { .. })) => {}
            ("consumer", Err(RaceError::Consumer { chunk: 4, .. })) => {}
            ("cancel", Err(RaceError::Cancelled)) => {}
            ("no sink", Err(RaceError::Consumer { source, .. })) => {
                assert!(source.to_string().contains("sink 0 of 0"), "{source}");
            }
            (_, outcome) => panic!("{case}: {:?}", outcome.map(|(_, report)| report)),
        }
        let writes = sink.writes();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(sink.writes(), writes, "{case}: writes went on after the race");
    }
}

#[test]
fn a_full_outbox_holds_the_consumers_back() {
    let file = TestFile::new(SIZE);
    let chunks = file.chunks(CHUNK);
    let target = Target::new(SIZE);
    let latency = Duration::from_millis(10);
    let sink = target.faulty(FaultPlan { latency, ..FaultPlan::default() });
    let options = RaceOptions {
        output_slots: 2,
        output_slot_bytes: CHUNK,
        writers: 1,
        ..RaceOptions::default()
    };
    let race = device_race(file.files(), chunks.clone(), options, sink.clone());
    let ahead = AtomicUsize::new(0);
    struct Watch<'a>(&'a AtomicUsize, &'a FaultySink, &'a [ChunkSpec], usize);
    impl HostProducer for Watch<'_> {
        fn produce(
            &mut self,
            chunk: &FedChunk,
            _: &[&[u8]],
            outbox: &mut Outbox<'_>,
        ) -> Result<Verdict, BoxError> {
            outbox.buffer(place(self.2, chunk.number, 0))?.send();
            self.3 += 1;
            self.0.fetch_max(self.3 - self.1.writes() as usize, Ordering::SeqCst);
            Ok(Verdict::Continue)
        }
    }
    race.run_host_writing(vec![Watch(&ahead, &sink, &chunks, 0)]).unwrap();
    assert!(ahead.load(Ordering::SeqCst) <= 3, "more was put out than the outbox holds");
}
