//! Columns of Arrow files as they lie, read into a GPU's memory that somebody else has allocated: through a few pinned slots,
//! which stay in the cores' cache between the read and the GPU's copy.
//!
//! ```text
//! file ──pread──► slot ──copy by the GPU──► tensor      a thread: two slots, one read while the other is copied
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use headrace_engine::failure::Class;
use headrace_format::FormatError;
use headrace_gpu::{Device, Event, GpuError, PinnedBuffer, Stream};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::chunks::{Chunks, raised};
use crate::failures;

/// Bytes of a slot.
const SLOT_BYTES: usize = 1 << 20;

/// Reads into one GPU's memory. Lanes are kept from read to read, since to pin memory takes long.
#[pyclass(module = "headrace._headrace", frozen)]
pub struct DeviceReads {
    device: Arc<Device>,
    lanes: Mutex<Vec<Lane>>,
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
    parts: Vec<((usize, usize), Range<u64>, usize)>,
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
    /// Of the GPU of a number, as the driver counts them.
    #[new]
    fn new(py: Python<'_>, ordinal: usize) -> PyResult<Self> {
        let device = py.detach(|| Device::open(ordinal));
        let device =
            device.map_err(|error| failures::of_value(py, Class::Device, error.to_string()))?;
        Ok(Self { device, lanes: Mutex::default() })
    }

    /// Reads pieces, as [`Chunks::read`] takes them, of columns into device memory: an address, and how many bytes there are, for
    /// each. All copies are done when it returns.
    fn read(
        &self,
        py: Python<'_>,
        chunks: &Chunks,
        pieces: Vec<(usize, u64, u64, u64)>,
        memory: Vec<(u64, usize)>,
        threads: usize,
    ) -> PyResult<()> {
        let Some(groups) = groups(chunks, &pieces, &memory) else {
            let cause = format!("pieces that do not fit {memory:?}");
            return Err(failures::of_value(py, Class::Setting, cause));
        };
        py.detach(|| self.read_all(chunks, &groups, threads)).map_err(|error| match error {
            ReadError::Format(error) => raised(py, &error),
            ReadError::Gpu(error) => failures::of_value(py, Class::Device, error.to_string()),
        })
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
                group.parts.push((place, first..first.checked_add(take)?, group.bytes));
                group.bytes += bytes(take)?;
                (first, rows, at) = (first + take, rows - take, at + take);
                end = Some(at);
            }
        }
    }
    Some(groups)
}

impl DeviceReads {
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
        for (place, rows, at) in &group.parts {
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
