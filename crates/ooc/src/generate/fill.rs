//! Files filled by all threads in parallel.

use std::path::PathBuf;
use std::time::Instant;

use headrace_flow::{
    BoxError, ChunkSpec, FedChunk, HostProducer, Outbox, OutputSpec, Race, RaceOptions, Verdict,
};
use headrace_io::MemoryUse;

use crate::{Options, Processor, Report, Result, Room};

/// The unit of a thread's writes.
const CHUNK_BYTES: u64 = 4 << 20;

/// A file to be filled.
pub(super) struct Filled {
    pub path: PathBuf,
    pub bytes: u64,
}

/// Memory and threads; a GPU has no part in this.
pub(super) fn on_cores(options: &Options) -> Result<Room> {
    let cores = Options { processor: Processor::Cpu, ..options.clone() };
    Ok(Room { why_not_cuda: None, ..Room::new(&cores, None)? })
}

/// Fills files: `fill` gets the file's number, an offset that is a multiple of [`CHUNK_BYTES`], and the
/// bytes from there on.
pub(super) fn fill(
    files: &[Filled],
    options: &Options,
    room: &Room,
    fill: impl Fn(usize, u64, &mut [u8]) + Sync,
) -> Result<Report> {
    let start = Instant::now();
    let sinks: Vec<_> = files
        .iter()
        .map(|file| options.files.create(&file.path, file.bytes))
        .collect::<Result<_>>()?;
    let outputs: Vec<OutputSpec> = files
        .iter()
        .enumerate()
        .flat_map(|(sink, file)| {
            (0..file.bytes.div_ceil(CHUNK_BYTES)).map(move |chunk| {
                let offset = chunk * CHUNK_BYTES;
                OutputSpec { sink, offset, bytes: CHUNK_BYTES.min(file.bytes - offset) }
            })
        })
        .collect();
    let windows = room.threads * 2 + 2;
    let _windows = room.memory.reserve(MemoryUse::Slots, windows as u64 * CHUNK_BYTES)?;
    let race_options = RaceOptions {
        slots: 1,
        output_slots: windows,
        output_slot_bytes: CHUNK_BYTES as usize,
        ..options.race()
    };
    let chunks = vec![ChunkSpec::default(); outputs.len()];
    let race = Race::new(Vec::new(), chunks, race_options, options.token.clone())?
        .with_outputs(sinks.clone());
    let (outputs, fill) = (&outputs, &fill);
    let thread = |_| Filler { outputs, fill };
    let (_, race) = race.run_host_writing((0..room.threads).map(thread).collect())?;
    for sink in &sinks {
        sink.commit(options.sync)?;
    }
    let mut report = room.report(vec![("write", race)]);
    report.output_bytes = files.iter().map(|file| file.bytes).sum();
    report.wall_ns = start.elapsed().as_nanos() as u64;
    Ok(report)
}

struct Filler<'a, F> {
    outputs: &'a [OutputSpec],
    fill: &'a F,
}

impl<F: Fn(usize, u64, &mut [u8]) + Sync> HostProducer for Filler<'_, F> {
    fn produce(
        &mut self,
        chunk: &FedChunk,
        _buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> std::result::Result<Verdict, BoxError> {
        let output = self.outputs[chunk.number];
        let mut window = outbox.buffer(output)?;
        (self.fill)(output.sink, output.offset, &mut window);
        window.send();
        Ok(Verdict::Continue)
    }
}
