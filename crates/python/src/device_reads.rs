//! Columns of Arrow files as they lie, copied into a GPU's memory that somebody else has allocated: from the files' own pages
//! where these are registered, else through a few pinned slots, which stay in the cores' cache between the read and the GPU's
//! copy.
//!
//! ```text
//! pages of a file ────────────────copies by the GPU──► tensor    registered beside, once a file is read again
//! file ──pread──► slot ──copy by the GPU─────────────► tensor    a thread: two slots, one read while the other is copied
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use headrace_engine::failure::Class;
use headrace_flow::{CudaRegistrar, RegisteredExtent, RegisteredFiles, RegisteredPool};
use headrace_format::FormatError;
use headrace_gpu::{Device, Event, GpuError, HostCopies, PinnedBuffer, Stream};
use headrace_io::ReadAt;
use headrace_io::system::{SysRoot, available_memory_bytes};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::chunks::{Chunks, raised};
use crate::failures;

/// Bytes of a slot.
const SLOT_BYTES: usize = 1 << 20;

/// Reads whose copies may be queued at once: so many tensors wait for their rows.
const QUEUED_MAX: usize = 3;

/// The registered pages of the process, as long as somebody reads so.
static POOL: Mutex<Weak<RegisteredPool>> = Mutex::new(Weak::new());

/// Reads into one GPU's memory. Lanes are kept from read to read, since to pin memory takes long.
#[pyclass(module = "headrace._headrace", frozen)]
pub struct DeviceReads {
    device: Arc<Device>,
    /// Of the copies from registered pages, and of whoever uses the memory before and after.
    stream: Stream,
    /// Dropped after the copies from them: see `drop`.
    queued: Mutex<VecDeque<Queued>>,
    files: RegisteredFiles,
    lanes: Mutex<Vec<Lane>>,
    registered_bytes: AtomicU64,
    slots_bytes: AtomicU64,
}

/// Copies that the GPU has not done, perhaps, and what they copy from.
struct Queued {
    done: Event,
    _from: Vec<RegisteredExtent>,
}

/// What a thread reads through.
struct Lane {
    stream: Stream,
    slots: [(PinnedBuffer, Event); 2],
    next: usize,
}

/// Rows that are neighbours in a window, no more than fit a slot.
struct Group {
    column: usize,
    /// Bytes of a value.
    width: usize,
    to: u64,
    bytes: usize,
    parts: Vec<Part>,
}

/// Rows of a chunk, and their place in the group, in bytes.
struct Part {
    place: (usize, usize),
    rows: Range<u64>,
    at: usize,
}

enum ReadError {
    Format(FormatError),
    Gpu(GpuError),
}

impl From<FormatError> for ReadError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

impl From<GpuError> for ReadError {
    fn from(error: GpuError) -> Self {
        Self::Gpu(error)
    }
}

#[pymethods]
impl DeviceReads {
    /// Of the GPU of a number, as the driver counts them. `registered_bytes`: how much memory of files may be registered at
    /// once, in all of the process; half of what is available, unless somebody else's readers have said.
    #[new]
    #[pyo3(signature = (ordinal, registered_bytes=None))]
    fn new(py: Python<'_>, ordinal: usize, registered_bytes: Option<u64>) -> PyResult<Self> {
        py.detach(|| Self::open(ordinal, registered_bytes))
            .map_err(|cause| failures::of_value(py, Class::Device, cause))
    }

    /// The handle of the stream in which memory must be free before a read of it, and in which what was read can be used.
    #[getter]
    fn stream(&self) -> usize {
        self.stream.address()
    }

    /// Bytes that came from registered pages, and through slots; and why pages were not registered.
    fn ways(&self) -> (u64, u64, Option<String>) {
        let bytes = |counted: &AtomicU64| counted.load(Ordering::Relaxed);
        (bytes(&self.registered_bytes), bytes(&self.slots_bytes), self.files.refusal())
    }

    /// Reads pieces, as [`Chunks::read`] takes them, of columns into device memory: an address, and how many bytes there are, for
    /// each. The copies are in the stream, or done, when it returns. `again`: the rows were read before, and their pages are
    /// worth registering.
    fn read(
        &self,
        py: Python<'_>,
        chunks: &Chunks,
        pieces: Vec<(usize, u64, u64, u64)>,
        memory: Vec<(u64, usize)>,
        threads: usize,
        again: bool,
    ) -> PyResult<()> {
        let Some(groups) = groups(chunks, &pieces, &memory) else {
            let cause = format!("pieces that do not fit {memory:?}");
            return Err(failures::of_value(py, Class::Setting, cause));
        };
        py.detach(|| {
            let others = self.copy_registered(chunks, groups, again)?;
            if others.is_empty() {
                return Ok(());
            }
            // What used the memory before has to be done with it: slots are copied in streams of their own.
            self.stream.synchronize()?;
            self.read_all(chunks, &others, threads)
        })
        .map_err(|error| match error {
            ReadError::Format(error) => raised(py, &error),
            ReadError::Gpu(error) => failures::of_value(py, Class::Device, error.to_string()),
        })
    }
}

impl Drop for DeviceReads {
    fn drop(&mut self) {
        // The GPU may still copy from registered pages. An error: it copies nothing any more.
        let _ = self.stream.synchronize();
    }
}

/// The pieces cut and put together; `None`: one does not fit its memory, or there is no such chunk.
fn groups(
    chunks: &Chunks,
    pieces: &[(usize, u64, u64, u64)],
    memory: &[(u64, usize)],
) -> Option<Vec<Group>> {
    let widths = chunks.widths();
    if memory.len() != widths.len() {
        return None;
    }
    let mut groups = Vec::new();
    for (column, (&width, &(address, room))) in widths.iter().zip(memory).enumerate() {
        let rows_max = (SLOT_BYTES / width.max(1)).max(1) as u64;
        let mut end = None;
        for &(chunk, mut first, mut rows, mut at) in pieces {
            let place = chunks.place(chunk)?;
            let bytes = |rows: u64| usize::try_from(rows).ok()?.checked_mul(width);
            if bytes(at.checked_add(rows)?)? > room {
                return None;
            }
            while rows > 0 {
                // A group goes on where its neighbour ends.
                let open = groups.last_mut().filter(|group: &&mut Group| {
                    end == Some(at)
                        && group.column == column
                        && ((group.bytes / width.max(1)) as u64) < rows_max
                });
                let group = match open {
                    Some(group) => group,
                    None => {
                        let to = address + bytes(at)? as u64;
                        groups.push(Group { column, width, to, bytes: 0, parts: Vec::new() });
                        groups.last_mut()?
                    }
                };
                let room = rows_max - (group.bytes / width.max(1)) as u64;
                let take = rows.min(room);
                let part = first..first.checked_add(take)?;
                group.parts.push(Part { place, rows: part, at: group.bytes });
                group.bytes += bytes(take)?;
                (first, rows, at) = (first + take, rows - take, at + take);
                end = Some(at);
            }
        }
    }
    Some(groups)
}

impl DeviceReads {
    fn open(ordinal: usize, registered_bytes: Option<u64>) -> Result<Self, String> {
        let device = Device::open(ordinal).map_err(|error| error.to_string())?;
        let stream = device.stream().map_err(|error| error.to_string())?;
        let pool = {
            let mut kept = POOL.lock();
            kept.upgrade().unwrap_or_else(|| {
                let available = || available_memory_bytes(&SysRoot::host()).unwrap_or(0) / 2;
                let pool = RegisteredPool::new(registered_bytes.unwrap_or_else(available));
                *kept = Arc::downgrade(&pool);
                pool
            })
        };
        let files = RegisteredFiles::new(&pool, Arc::new(CudaRegistrar::new(&device)));
        let files = files.map_err(|error| error.to_string())?;
        let (registered_bytes, slots_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let (queued, lanes) = (Mutex::default(), Mutex::default());
        Ok(Self { device, stream, queued, files, lanes, registered_bytes, slots_bytes })
    }

    /// Queues the copies of all groups whose pages are registered; the others.
    fn copy_registered(
        &self,
        chunks: &Chunks,
        groups: Vec<Group>,
        again: bool,
    ) -> Result<Vec<Group>, ReadError> {
        let (mut copies, mut from) = (HostCopies::default(), Vec::new());
        let (mut others, mut bytes) = (Vec::new(), 0);
        for group in groups {
            let mut found = Vec::with_capacity(group.parts.len());
            for part in &group.parts {
                let (file, extent) =
                    chunks.plain_extent(part.place, group.column, part.rows.clone())?;
                let file: Arc<dyn ReadAt> = file;
                let extent = (extent.start, extent.end - extent.start);
                found.extend(self.files.extent(&file, extent, again));
            }
            if found.len() < group.parts.len() {
                others.push(group);
                continue;
            }
            for (part, extent) in group.parts.iter().zip(&found) {
                extent.copies_to(group.to + part.at as u64, &mut copies);
            }
            from.extend(found);
            bytes += group.bytes as u64;
        }
        if copies.is_empty() {
            return Ok(others);
        }
        let mut queued = self.queued.lock();
        while queued.len() >= QUEUED_MAX
            && let Some(oldest) = queued.pop_front()
        {
            oldest.done.synchronize()?;
        }
        let done = self.device.event()?;
        // SAFETY: the device memory is as large as the caller said, who is one of this package's own modules and uses it
        // behind this stream. The pages are registered as long as their extents live: until the event, which comes behind the
        // copies, was waited for, or the stream. Other processes may write to the file, as any copy of it may see.
        let copied = unsafe { self.stream.copy_h2d_batch(&mut copies) };
        if let Err(error) = copied.and_then(|()| done.record(&self.stream)) {
            // Some of them may be queued.
            let _ = self.stream.synchronize();
            return Err(error.into());
        }
        queued.push_back(Queued { done, _from: from });
        self.registered_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(others)
    }

    fn lane(&self, slot_bytes: usize) -> Result<Lane, GpuError> {
        if let Some(lane) = self.lanes.lock().pop()
            && lane.slots.iter().all(|(slot, _)| slot.bytes() >= slot_bytes)
        {
            return Ok(lane);
        }
        let stream = self.device.stream()?;
        let slot = || -> Result<(PinnedBuffer, Event), GpuError> {
            let event = self.device.event()?;
            event.record(&stream)?;
            Ok((PinnedBuffer::new(&self.device, slot_bytes)?, event))
        };
        let slots = [slot()?, slot()?];
        Ok(Lane { stream, slots, next: 0 })
    }

    fn read_all(&self, chunks: &Chunks, groups: &[Group], threads: usize) -> Result<(), ReadError> {
        let next = AtomicUsize::new(0);
        let bytes = groups.iter().map(|group| group.bytes as u64).sum();
        self.slots_bytes.fetch_add(bytes, Ordering::Relaxed);
        let slot_bytes = groups.iter().map(|group| group.bytes).max().unwrap_or(0).max(SLOT_BYTES);
        let work = || -> Result<(), ReadError> {
            let mut lane = self.lane(slot_bytes)?;
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = lane.read(chunks, group) {
                    next.store(groups.len(), Ordering::Relaxed);
                    // Its slots may still be copied: the stream is waited for before they go.
                    lane.stream.synchronize()?;
                    return Err(error);
                }
            }
            lane.stream.synchronize()?;
            self.lanes.lock().push(lane);
            Ok(())
        };
        std::thread::scope(|scope| {
            let others = 1..threads.min(groups.len());
            let others: Vec<_> = others.map(|_| scope.spawn(work)).collect();
            let own = work();
            others.into_iter().map(|thread| thread.join()).fold(own, |done, joined| match joined {
                Ok(result) => done.and(result),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }
}

impl Lane {
    fn read(&mut self, chunks: &Chunks, group: &Group) -> Result<(), ReadError> {
        let (slot, copied) = &mut self.slots[self.next % 2];
        self.next += 1;
        copied.synchronize()?;
        for Part { place, rows, at } in &group.parts {
            let bytes = group.width * (rows.end - rows.start) as usize;
            let into = &mut slot.as_mut_slice()[*at..*at + bytes];
            chunks.read_plain(*place, group.column, rows.clone(), into)?;
        }
        // SAFETY: the slot is the lane's, which waits for the copy before it reads into it again or goes. The device memory is
        // as large as the caller said, who is one of this package's own modules and holds it until the call returns.
        unsafe { self.stream.copy_h2d_raw(group.to, slot.ptr().as_ptr(), group.bytes) }?;
        copied.record(&self.stream)?;
        Ok(())
    }
}
