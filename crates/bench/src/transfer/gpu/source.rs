//! Content generated on GPUs, copied back and written: the race backwards.

use std::collections::BTreeMap;
use std::time::Instant;

use headrace_flow::{
    Affinity, BoxError, ChunkSpec, CudaSlots, DeviceLane, DeviceOutput, DeviceProgram, DeviceSlice,
    DirectEngine, OutputSpec, Race, RaceOptions, SlotChunk, Verdict, WriteAccess,
};
use headrace_gpu::{DeviceBuffer, GpuError, Stream};

use super::kernels::Kernels;
use super::{Gpu, Gpus, slot_bytes};
use crate::transfer::consumer::verdict;
use crate::transfer::counters::Counters;
use crate::transfer::host::race_options;
use crate::transfer::record::Latency;
use crate::transfer::stop::StopSignal;
use crate::transfer::write::{WriteJob, Written};
use crate::transfer::{BenchError, BenchPlan, PathChoice, Progress, Target};

/// Generates each chunk's content in device memory.
#[derive(Debug)]
struct Fill<'a> {
    outputs: &'a [OutputSpec],
    kernels: &'a Kernels,
    /// As many as chunks in flight.
    memory: Vec<DeviceBuffer>,
    free: Vec<usize>,
    used: BTreeMap<usize, usize>,
    signal: &'a StopSignal,
    progress: &'a Progress,
    done: Vec<usize>,
}

// SAFETY: its output lies in buffers of its own, which live as long as the value that the lane borrows.
unsafe impl DeviceProgram for &mut Fill<'_> {
    fn launch(
        &mut self,
        stream: &Stream,
        SlotChunk { chunk, .. }: SlotChunk,
        _buffers: &[DeviceSlice],
    ) -> Result<(), BoxError> {
        let buffer = self.free.pop().ok_or("more chunks are under way than there are slots")?;
        self.used.insert(chunk, buffer);
        let output = &self.outputs[chunk];
        let data = self.memory[buffer].ptr();
        // SAFETY: the buffer holds the largest chunk, in whole words; it is this chunk's until
        // it is retired, and outlives the lane, which is synchronised at the end of the race.
        unsafe { self.kernels.fill(stream, data, output.bytes.div_ceil(8), output.offset / 8)? };
        Ok(())
    }

    fn output(
        &mut self,
        chunk: usize,
        _buffers: &[DeviceSlice],
    ) -> Result<Option<DeviceOutput>, BoxError> {
        let buffer = self.used.get(&chunk).ok_or("a chunk that was not launched")?;
        let address = self.memory[*buffer].ptr();
        Ok(Some(DeviceOutput { address, to: self.outputs[chunk] }))
    }

    fn retire(&mut self, SlotChunk { chunk, .. }: SlotChunk) -> Result<Verdict, BoxError> {
        self.free.extend(self.used.remove(&chunk));
        self.done.push(chunk);
        self.progress.add(self.outputs[chunk].bytes);
        Ok(verdict(self.signal))
    }
}

impl Gpus {
    /// Writes every chunk once, generated on the plan's GPUs in turn.
    pub fn write(&mut self, job: &WriteJob<'_>) -> Result<(Written, Counters), BenchError> {
        let Target::Gpus(ordinals) = &job.plan.target else {
            return Err(BenchError::plan("no GPU is the source", "--to gpu"));
        };
        let slot_bytes = slot_bytes(job.chunks);
        for &ordinal in ordinals {
            self.gpu(ordinal)?.prepare(job.plan.slot_count(), slot_bytes, true)?;
        }
        let mut gpus: Vec<(usize, Gpu)> = ordinals
            .iter()
            .filter_map(|ordinal| self.open.remove(ordinal).map(|gpu| (*ordinal, gpu)))
            .collect();
        let written = write(job, &mut gpus, slot_bytes);
        self.open.extend(gpus);
        written
    }
}

fn options(plan: &BenchPlan) -> RaceOptions {
    let (write_access, direct_engine) = match plan.path {
        PathChoice::Uring => (WriteAccess::Direct, DirectEngine::Uring),
        PathChoice::Direct => (WriteAccess::Direct, DirectEngine::Threads),
        PathChoice::Pread => (WriteAccess::Buffered, DirectEngine::Auto),
        _ => (WriteAccess::Auto, DirectEngine::Auto),
    };
    RaceOptions { write_access, direct_engine, writers: plan.threads, ..race_options(plan) }
}

fn write(
    job: &WriteJob<'_>,
    gpus: &mut [(usize, Gpu)],
    slot_bytes: usize,
) -> Result<(Written, Counters), BenchError> {
    let outputs: Vec<OutputSpec> = job
        .chunks
        .iter()
        .flat_map(|chunk| &chunk.reads)
        .map(|extent| OutputSpec { sink: extent.file, offset: extent.offset, bytes: extent.bytes })
        .collect();
    // Nothing is read: the chunks of the race are empty, and only put something out.
    let empty = vec![ChunkSpec::default(); outputs.len()];
    let race = Race::new(Vec::new(), empty, options(job.plan), job.token.clone())?
        .with_outputs(job.sinks.to_vec());
    let (mut programs, mut rings) = (Vec::new(), Vec::new());
    for (_, gpu) in gpus.iter_mut() {
        let (Some(kernels), Some(ring)) = (&gpu.kernels, gpu.slots.as_mut()) else { continue };
        let buffers = (0..ring.slots()).map(|_| gpu.pool.alloc(slot_bytes));
        let memory: Vec<DeviceBuffer> = buffers.collect::<Result<_, GpuError>>()?;
        programs.push(Fill {
            outputs: &outputs,
            kernels,
            free: (0..memory.len()).collect(),
            memory,
            used: BTreeMap::new(),
            signal: job.signal,
            progress: job.progress,
            done: Vec::new(),
        });
        rings.push(ring);
    }
    let counters = job.watch.start();
    let start = Instant::now();
    let report = run_lanes(&race, &mut rings, &mut programs)?;
    let wall_ns = start.elapsed().as_nanos() as u64;
    let bytes = report.written_bytes;
    let written = Written {
        bytes,
        chunks: programs.into_iter().flat_map(|program| program.done).collect(),
        // Padding is not wanted bytes: it is all on the side of O_DIRECT.
        buffered_bytes: report.written_buffered_bytes.min(bytes),
        direct_bytes: bytes - report.written_buffered_bytes.min(bytes),
        direct_refused_bytes: report.direct_refused_bytes,
        short_writes: report.short_writes,
        latency: Latency::from(report.write_latency),
        requests: report.write_requests,
        stages: vec![
            ("execute", report.kernel_ns, bytes),
            ("d2h", report.d2h_ns, report.d2h_bytes),
            ("write", report.write_busy_ns, bytes),
        ],
        wall_ns,
        engines: report.engines,
        reasons: report.path_reasons,
    };
    Ok((written, counters))
}

fn run_lanes(
    race: &Race,
    rings: &mut [&mut CudaSlots],
    programs: &mut [Fill<'_>],
) -> Result<headrace_flow::RaceReport, BenchError> {
    let mut lanes: Vec<_> =
        rings.iter_mut().zip(programs).map(|(ring, program)| ring.lane(program)).collect();
    match lanes.as_mut_slice() {
        [lane] => Ok(race.run_device(lane)?),
        lanes => {
            let lanes = lanes.iter_mut().map(|lane| lane as &mut (dyn DeviceLane + Send));
            Ok(race.run_devices(lanes.collect(), &Affinity::none())?.merged)
        }
    }
}
