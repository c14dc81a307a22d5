//! The memory, streams and events of a lane.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use headrace_gpu::{
    CuFile, DeviceBuffer, DevicePool, Event, GpuError, HostCopies, PinnedBuffer, PinnedSlots,
    Stream,
};
use headrace_io::EXTENT_ALIGN_BYTES;

use super::ways::{CuFileReader, CudaRegistrar};
use super::{DeviceSlice, More};
use crate::DeviceTimes;

/// The memory, streams and events of a lane.
#[derive(Debug)]
pub struct CudaSlots {
    // First, so that it is dropped first: nothing may be at work on the memory below.
    pub(super) idle: IdleOnDrop,
    pub(super) slots: Vec<Slot>,
    pub(super) pinned: PinnedSlots,
    pub(super) slot_bytes: usize,
    pub(super) times: DeviceTimes,
    /// One moment on both clocks, which ties the device's events to the host's time.
    pub(super) clock: Option<(Event, Instant)>,
    pub(super) registrar: Arc<CudaRegistrar>,
    pub(super) reader: OnceLock<Result<Arc<CuFileReader>, String>>,
}

/// The streams; waits for all when dropped.
#[derive(Debug)]
pub(super) struct IdleOnDrop {
    /// Copies to the device.
    pub copy: Stream,
    pub compute: Stream,
    /// Copies from the device.
    pub back: Stream,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub memory: Arc<DeviceBuffer>,
    /// The buffers of the chunk that was launched.
    pub buffers: Vec<DeviceSlice>,
    /// Device address of the chunk's output.
    pub output_address: u64,
    /// The chunk's appended data.
    pub appended: Vec<DeviceSlice>,
    /// The chunk that was launched.
    pub chunk: usize,
    /// The data of the chunk that is copied back.
    pub returning: Returning,
    /// Time of the parts that were copied back, and of work after the launch.
    returned_ns: u64,
    worked_ns: u64,
    /// Copies of the chunk in the slot, until all of them are enqueued.
    pub copies: HostCopies,
    /// Whether the chunk had any.
    pub is_copied: bool,
    /// Before the first copy of the chunk, and after the last.
    pub copy_begin: Event,
    pub copied: Event,
    pub execute_begin: Event,
    pub executed: Event,
    pub return_begin: Event,
    pub returned: Event,
}

/// The data of a launched chunk that is copied back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Returning {
    /// Nothing yet.
    Nothing,
    /// Its output, copied by the race.
    Output,
    /// A part that the program fetched, or more of its work.
    Part(More),
    /// Everything that the program fetched has arrived.
    Done,
}

impl Slot {
    fn new(pool: &Arc<DevicePool>, slot_bytes: usize) -> Result<Slot, GpuError> {
        let device = pool.device();
        Ok(Slot {
            memory: Arc::new(pool.alloc(slot_bytes)?),
            buffers: Vec::new(),
            output_address: 0,
            appended: Vec::new(),
            chunk: 0,
            returning: Returning::Nothing,
            returned_ns: 0,
            worked_ns: 0,
            copies: HostCopies::default(),
            is_copied: false,
            copy_begin: device.event()?,
            copied: device.event()?,
            execute_begin: device.event()?,
            executed: device.event()?,
            return_begin: device.event()?,
            returned: device.event()?,
        })
    }

    /// Adds up the chunk's times; all of its events have passed.
    pub fn take_times(&mut self, times: &mut DeviceTimes) -> Result<(), GpuError> {
        if self.is_copied {
            times.h2d_ns += nanoseconds(self.copy_begin.elapsed_ms(&self.copied)?);
        }
        times.kernel_ns += nanoseconds(self.execute_begin.elapsed_ms(&self.executed)?);
        times.kernel_ns += self.worked_ns;
        if self.returning == Returning::Output {
            self.add_returned_ns()?;
        }
        times.d2h_ns += self.returned_ns;
        self.forget();
        Ok(())
    }

    /// Adds up the time of a finished copy back, or of more work.
    pub fn add_returned_ns(&mut self) -> Result<(), GpuError> {
        let took_ns = nanoseconds(self.return_begin.elapsed_ms(&self.returned)?);
        match self.returning {
            Returning::Part(More::Work) => self.worked_ns += took_ns,
            _ => self.returned_ns += took_ns,
        }
        Ok(())
    }

    /// The event that passes when all enqueued work of the chunk is done: copies back wait for the
    /// execution.
    pub fn last_event(&self) -> &Event {
        match self.returning {
            Returning::Output | Returning::Part(_) => &self.returned,
            Returning::Nothing | Returning::Done => &self.executed,
        }
    }

    /// The chunk has left.
    pub fn forget(&mut self) {
        self.copies.clear();
        self.is_copied = false;
        self.returning = Returning::Nothing;
        (self.returned_ns, self.worked_ns) = (0, 0);
    }
}

fn nanoseconds(milliseconds: f32) -> u64 {
    (f64::from(milliseconds) * 1e6) as u64
}

impl CudaSlots {
    /// Slots of pinned host memory and device memory.
    ///
    /// Keep the ring small (100 to 150 MB): reader threads write it and the device reads it, and
    /// while it stays in the processor's last-level cache neither waits for memory. On one H200
    /// with a link of 55.4 GB/s a warm file arrived at 52.7 GB/s through 6 slots of 24 MiB, and at
    /// 29 GB/s through 12 of them.
    ///
    /// Allocates `slots` slots (at least 1) of `slot_bytes` bytes (rounded up to
    /// [`EXTENT_ALIGN_BYTES`]) of device memory from the pool, and returns while the same amount of
    /// pinned host memory is prepared in the background: a race begins with the slots that are
    /// ready.
    ///
    /// # Errors
    /// Those of the device allocations; out of memory names the tier. A failure of pinned memory is
    /// an error of the race that needs it.
    pub fn new(
        pool: &Arc<DevicePool>,
        slots: usize,
        slot_bytes: usize,
    ) -> Result<CudaSlots, GpuError> {
        let slot_bytes = slot_bytes.max(1).next_multiple_of(EXTENT_ALIGN_BYTES);
        let device = pool.device();
        // First, because it fails at once where there is too little.
        let memory = (0..slots.max(1))
            .map(|_| Slot::new(pool, slot_bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let pinned = PinnedSlots::start(device, memory.len(), slot_bytes)?;
        Ok(CudaSlots {
            idle: IdleOnDrop {
                copy: device.stream()?,
                compute: device.stream()?,
                back: device.stream()?,
            },
            slots: memory,
            pinned,
            slot_bytes,
            times: DeviceTimes::default(),
            clock: None,
            registrar: Arc::new(CudaRegistrar::new(device)),
            reader: OnceLock::new(),
        })
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Size of a slot, in host and in device memory.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Waits until all slots are ready, so that a measured race does not pay for them.
    ///
    /// # Errors
    /// Those of [`headrace_gpu::PinnedBuffer::new`].
    pub fn wait_until_ready(&self) -> Result<(), GpuError> {
        self.pinned.wait(self.slots.len())
    }

    /// The stream in which programs run.
    pub fn compute_stream(&self) -> &Stream {
        &self.idle.compute
    }

    /// The cuFile reader, opened at its first use because that is slow. Unless forced, only if the
    /// kernel module for reads past host memory is loaded.
    pub(super) fn cufile_reader(&self, forced: bool) -> Result<Arc<CuFileReader>, String> {
        if !forced && CuFile::nvidia_fs().is_none() {
            return Err("nvidia-fs is not loaded: cuFile would bounce through host memory too, \
                        and is used only if it is forced"
                .to_string());
        }
        let open = || {
            let memory = self.slots.iter().map(|slot| slot.memory.clone()).collect();
            CuFileReader::open(memory).map(Arc::new)
        };
        self.reader.get_or_init(open).clone()
    }

    pub(super) fn read_clocks(&self) -> Result<(Event, Instant), GpuError> {
        let zero = self.idle.copy.device().event()?;
        zero.record(&self.idle.copy)?;
        zero.synchronize()?;
        Ok((zero, Instant::now()))
    }

    /// The host's time of an event that has happened.
    pub(super) fn host_time(&self, event: &Event) -> Option<Instant> {
        let (zero, at) = self.clock.as_ref()?;
        let ms = f64::from(zero.elapsed_ms(event).ok()?).max(0.0);
        Some(*at + Duration::from_secs_f64(ms / 1e3))
    }

    /// A slot's host memory; `None` until it is ready.
    pub(super) fn host(&self, slot: usize) -> Option<&PinnedBuffer> {
        self.pinned.slot(slot)
    }
}

impl Drop for IdleOnDrop {
    fn drop(&mut self) {
        // An error means that the context is lost; then nothing is at work either.
        for stream in [&self.copy, &self.compute, &self.back] {
            let _ = stream.synchronize();
        }
    }
}
