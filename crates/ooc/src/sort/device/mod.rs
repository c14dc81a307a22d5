//! A sort on a GPU.
//!
//! ```text
//! chunks ──► slot ──► take: to its place in an array, digits are counted ──► a sweep for each digit that differs
//!                                                                      ├──► the other array, and back
//! output ◄── slot ◄── (gathered, if records are wide) ◄────────────────┘
//! ```
//!
//! If the records do not fit, the CPU partitions them into a temporary file, and the device sorts as many buckets at
//! a time as fit. Records of up to four 32-bit words are moved themselves; for wider records their keys and numbers
//! are.

mod arrays;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod emulated;
mod kernels;
mod programs;
mod shape;

use std::sync::Arc;

use headrace_flow::{ChunkSpec, CudaSlots, OutputSpec, Race, ReadSpec};
use headrace_gpu::Stream;
use headrace_io::{EXTENT_ALIGN_BYTES, MemoryUse, ReadAt, Reservation};

use super::gather::Units;
use super::partition::{Partitioned, cut};
use super::sizes::Sizes;
use super::work::Work;
use crate::{DeviceRoom, OocError, Result};
use arrays::Arrays;
use kernels::Kernels;
use programs::{Giver, Taker};

/// Slots and their size: together they stay in a processor's last-level cache.
const SLOTS: usize = 6;
const CHUNK_BYTES: u64 = 16 << 20;

/// A device with the kernels for the work.
pub(super) struct OnDevice<'a> {
    room: &'a DeviceRoom,
    kernels: Kernels,
    stream: Stream,
    slots: usize,
    /// Whole records.
    chunk_bytes: u64,
    record_bytes: u64,
}

impl<'a> OnDevice<'a> {
    /// Compiles the kernels for the work.
    pub fn new(work: &Work<'_>, room: &'a DeviceRoom) -> Result<OnDevice<'a>> {
        let record_bytes = work.records.record_bytes() as u64;
        let wanted_bytes = work.options.chunk_bytes.map_or(CHUNK_BYTES, |bytes| bytes as u64);
        let wanted_bytes = wanted_bytes.min(work.input.size_bytes());
        Ok(OnDevice {
            room,
            kernels: Kernels::load(room, &work.job.layout, work.job.order)?,
            stream: room.pool.device().stream()?,
            slots: work.options.slots.unwrap_or(SLOTS).max(1),
            chunk_bytes: (wanted_bytes / record_bytes).max(1) * record_bytes,
            record_bytes,
        })
    }

    /// Bytes of a slot: a chunk at any alignment.
    fn slot_bytes(&self) -> u64 {
        self.chunk_bytes.next_multiple_of(EXTENT_ALIGN_BYTES as u64) + EXTENT_ALIGN_BYTES as u64
    }

    /// Bytes of records that fit on the device at a time.
    pub fn capacity_bytes(&self) -> u64 {
        let copies = if self.kernels.is_wide() { 2 } else { 1 };
        let slots_bytes = copies * self.slots as u64 * (self.slot_bytes() + (2 << 20));
        let free_bytes = self.room.free_bytes().saturating_sub(slots_bytes);
        let needed = |records| Arrays::bytes(&self.kernels, records, self.record_bytes);
        let (mut fit, mut too_many) =
            (0, free_bytes / self.kernels.sorted.shape.record_bytes() as u64 + 1);
        while fit + 1 < too_many {
            let middle = fit + (too_many - fit) / 2;
            match needed(middle) <= free_bytes {
                true => fit = middle,
                false => too_many = middle,
            }
        }
        fit * self.record_bytes
    }

    /// Sorts the non-empty input into the output.
    pub fn sort(&self, work: &mut Work<'_>) -> Result<()> {
        let bytes = work.input.size_bytes();
        let capacity_bytes = self.capacity_bytes();
        if bytes <= capacity_bytes {
            let (mut ring, _pinned) = self.ring(work)?;
            let mut arrays = self.arrays(bytes)?;
            let all = ReadSpec { file: 0, offset: 0, bytes };
            let files = [work.input.clone()];
            work.planned();
            return self.sort_part(work, &mut ring, &mut arrays, (&files, &[all]), 0);
        }
        self.sort_parts(work, capacity_bytes)
    }

    /// Sorts input that does not fit, in parts that do.
    fn sort_parts(&self, work: &mut Work<'_>, capacity_bytes: u64) -> Result<()> {
        let bytes = work.input.size_bytes();
        // A slot for a part is counted with what its extents are widened by.
        if capacity_bytes < 2 * self.slot_bytes() {
            return Err(OocError::Memory {
                what: format!("sorting {}", work.input.path().display()),
                memory: "device memory",
                wanted_bytes: self.room.free_bytes() + 4 * self.slot_bytes(),
                limit_bytes: self.room.free_bytes(),
                remedy: "raise the limit of device memory, or sort on the cores".to_string(),
            });
        }
        let (limit_bytes, threads) = (work.room.memory.limit_bytes(), work.room.threads);
        let chunk_bytes = work.options.chunk_bytes;
        let of = (bytes, capacity_bytes);
        let sizes = Sizes::of_parts(work.records, of, limit_bytes, threads, chunk_bytes);
        let input = work.input.clone();
        let all = ReadSpec { file: 0, offset: 0, bytes };
        let partitioned = Partitioned::of_extents(work, &[input], &[all], &sizes, false)?;
        work.notes.push(format!("partitioned by {} threads", sizes.threads));
        let mut units = Units::default();
        units.add(work, partitioned, &sizes)?;
        let parts: Vec<ChunkSpec> = units.specs().collect();
        let largest_bytes = parts.iter().map(ChunkSpec::bytes).max().unwrap_or(0);
        let (files, (mut ring, _pinned)) = (units.files(), self.ring(work)?);
        let mut arrays = self.arrays(largest_bytes)?;
        let mut offset = 0;
        for part in &parts {
            self.sort_part(work, &mut ring, &mut arrays, (&files, &part.reads), offset)?;
            offset += part.bytes();
        }
        Ok(())
    }

    /// As many slots as host memory allows.
    fn ring(&self, work: &Work<'_>) -> Result<(CudaSlots, Reservation)> {
        let (memory, slot_bytes) = (&work.room.memory, self.slot_bytes());
        let reserve = |slots: usize| {
            let bytes = slots as u64 * slot_bytes;
            Some((slots, memory.reserve_free(MemoryUse::Slots, bytes)?))
        };
        let found = (1..=self.slots).rev().find_map(reserve);
        let (slots, reserved) = match found {
            Some(found) => found,
            None => (1, memory.reserve(MemoryUse::Slots, slot_bytes)?),
        };
        Ok((CudaSlots::new(&self.room.pool, slots, slot_bytes as usize)?, reserved))
    }

    fn arrays(&self, bytes: u64) -> Result<Arrays> {
        Arrays::new(self.room, &self.kernels, bytes / self.record_bytes, self.record_bytes)
    }

    /// Sorts the records of extents, all of which fit, to a place in the output.
    fn sort_part(
        &self,
        work: &mut Work<'_>,
        ring: &mut CudaSlots,
        arrays: &mut Arrays,
        (files, extents): (&[Arc<dyn ReadAt>], &[ReadSpec]),
        offset: u64,
    ) -> Result<()> {
        arrays.clear(&self.stream)?;
        let chunks = cut(extents, self.record_bytes, self.chunk_bytes, self.slot_bytes());
        let bytes: u64 = chunks.iter().map(ChunkSpec::bytes).sum();
        let mut before = 0;
        let firsts = chunks.iter().map(|chunk| {
            let first = before;
            before += chunk.bytes() / self.record_bytes;
            first
        });
        let firsts: Vec<u64> = firsts.collect();
        let (options, token) = (work.options.race(), work.options.token.clone());
        let race = Race::new(files.to_vec(), chunks, options.clone(), token.clone())?;
        let (kernels, record_bytes) = (&self.kernels, self.record_bytes);
        let taker = Taker { kernels, arrays, firsts: &firsts, record_bytes };
        let outcome = race.run_device(&mut ring.lane(taker));
        work.ran("read", outcome)?;
        arrays.sort(&self.stream, kernels, bytes / record_bytes)?;
        let outputs = outputs(offset, bytes, ring.slot_bytes() as u64);
        let nothing = vec![ChunkSpec::default(); outputs.len()];
        let race = Race::new(Vec::new(), nothing, options, token)?;
        let race = race.with_outputs(vec![work.output.clone()]);
        let gathered = match kernels.is_wide() {
            true => (0..ring.slots()).map(|_| self.room.pool.alloc(ring.slot_bytes())).collect(),
            false => Ok(Vec::new()),
        };
        let gathered = gathered?;
        let giver =
            Giver { kernels, arrays, outputs: &outputs, first_byte: offset, gathered, address: 0 };
        let outcome = race.run_device(&mut ring.lane(giver));
        work.ran("write", outcome)
    }
}

/// Pieces of the output that begin with whole blocks, except the first, and fit a window.
fn outputs(offset: u64, bytes: u64, window_bytes: u64) -> Vec<OutputSpec> {
    let (mut at, end) = (offset, offset + bytes);
    let mut outputs = Vec::new();
    while at < end {
        let next = (at / window_bytes + 1) * window_bytes;
        outputs.push(OutputSpec { sink: 0, offset: at, bytes: next.min(end) - at });
        at = next;
    }
    outputs
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stdout)]
    use headrace_gpu::{Compiler, Source};

    use super::shape::Shape;
    use super::*;
    use crate::sort::{Order, RecordLayout};
    use headrace_io::random::Random;

    use crate::{NumberType, Options, Processor, Room};

    #[test]
    fn outputs_follow_each_other_on_blocks() {
        for (offset, bytes) in [(0, 0), (0, 5), (0, 8192), (100, 8000), (8191, 2), (4096, 50_000)] {
            let pieces = outputs(offset, bytes, 8192);
            let mut at = offset;
            for piece in &pieces {
                assert!(piece.offset == at && piece.bytes > 0);
                assert!(at == offset || at.is_multiple_of(4096));
                assert!(at % 4096 + piece.bytes <= 8192);
                at += piece.bytes;
            }
            assert_eq!(at, offset + bytes);
        }
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn nvrtc_compiles_the_kernels_for_every_shape() {
        let compiler = Compiler::load(None).unwrap();
        let shapes = shape::all_layouts();
        let shapes = shapes.iter().filter_map(|layout| Shape::of(layout, Order::Ascending));
        let mut texts: Vec<String> =
            shapes.chain([Shape::NUMBERED]).map(|it| it.source()).collect();
        texts.sort();
        texts.dedup();
        for text in texts {
            let source = Source { name: "radix.cu", text: &text, headers: &[] };
            let cubin = compiler.compile(&source, "sm_90", &[]).unwrap();
            assert_eq!(cubin.warnings, "", "{}", &text[..100]);
        }
    }

    /// Records per second in device memory: all digits counted, then swept.
    #[test]
    #[ignore = "needs a GPU, measures"]
    fn gpu_speed_in_device_memory() {
        let records: u64 = std::env::var("RECORDS").map_or(1 << 28, |text| text.parse().unwrap());
        for (key, record_bytes) in [
            (NumberType::I64, 8),
            (NumberType::I32, 4),
            (NumberType::F64, 8),
            (NumberType::I32, 8),
            (NumberType::I64, 16),
        ] {
            let layout = RecordLayout { record_bytes, key, key_offset: 0 };
            let options = Options { processor: Processor::Cuda, ..Options::default() };
            let room = Room::new(&options, None).unwrap();
            let room = room.device.unwrap();
            let kernels = Kernels::load(&room, &layout, Order::Ascending).unwrap();
            let stream = room.pool.device().stream().unwrap();
            let mut arrays = Arrays::new(&room, &kernels, records, record_bytes as u64).unwrap();
            let mut random = Random(1);
            let words = 0..records as usize * record_bytes / 8;
            let words: Vec<u64> = words.map(|_| random.draw()).collect();
            let input = room.pool.alloc(words.len() * 8).unwrap();
            stream.upload(&input, 0, bytemuck::cast_slice(&words)).unwrap();
            let mut best = [f32::MAX; 2];
            for _ in 0..4 {
                arrays.clear(&stream).unwrap();
                let events: Vec<_> = (0..3).map(|_| room.pool.device().event().unwrap()).collect();
                events[0].record(&stream).unwrap();
                // SAFETY: the arrays have room for as many records as the input has.
                unsafe {
                    let from = (input.ptr(), records);
                    kernels.take(&stream, from, &arrays.records, 0, &arrays.counts).unwrap();
                }
                events[1].record(&stream).unwrap();
                arrays.sort(&stream, &kernels, records).unwrap();
                events[2].record(&stream).unwrap();
                events[2].synchronize().unwrap();
                let ms = [events[0].elapsed_ms(&events[1]), events[1].elapsed_ms(&events[2])];
                best = [0, 1].map(|i: usize| best[i].min(*ms[i].as_ref().unwrap()));
            }
            let rate = |ms: f32| records as f64 / f64::from(ms) / 1e6;
            println!(
                "{records} records of {record_bytes} bytes by {key}: taken at {:.2} G/s, sorted at {:.2} G/s, \
                 together {:.2} G/s",
                rate(best[0]),
                rate(best[1]),
                rate(best[0] + best[1])
            );
        }
    }
}
