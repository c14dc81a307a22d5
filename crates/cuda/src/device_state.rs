//! What an execution gathers on the device: a status, accumulators and groups.
//!
//! ```text
//! | status | rows that each step left | groups used | accumulator 0 | accumulator 1 | ..
//! ```
//!
//! All of it is one buffer, so that it is cleared by one copy from an image of itself, and comes
//! back by one copy.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use headrace_gpu::{DeviceBuffer, Stream};
use headrace_pipeline::state::AccumulatorState;

use crate::accumulator::DeviceAccumulator;
use crate::decode::{accumulator_state, chunks};
use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::group_columns::GroupAddresses;
use crate::groups::{GroupRoom, GroupTableLayout};
use crate::pinned::PinnedLease;
use crate::program::CudaProgram;
use crate::status::STATUS_BYTES;
use crate::tuning::Tuning;

/// Where the rows lie that each step left, by its place in the pipeline.
const ROWS_LEFT_AT: usize = STATUS_BYTES;

/// The number of groups, and the bytes of the texts that they keep, which follow it.
const USED_BYTES: usize = 256;
const TEXTS_USED_AT: usize = 8;

/// Alignment of each accumulator.
const ALIGN_BYTES: usize = 256;

/// Up to this size an image is kept and all comes back through pinned memory. A larger state is
/// filled in place, and comes back through ordinary memory.
const IMAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes of a pattern from which a large accumulator is filled.
const PATTERN_BYTES: usize = 64 << 10;

/// An accumulator in the buffer.
struct Part {
    at: usize,
    bytes: usize,
    kind: DeviceAccumulator,
}

/// The table of hashed groups.
pub(crate) struct GroupBuffers {
    pub(crate) layout: GroupTableLayout,
    pub(crate) room: GroupRoom,
    pub(crate) slots: DeviceBuffer,
    pub(crate) keys: DeviceBuffer,
    /// What they keep apart from their keys.
    pub(crate) texts: Option<Arc<DeviceBuffer>>,
}

/// See the module.
pub(crate) struct DeviceState {
    buffer: DeviceBuffer,
    steps: usize,
    /// Where the number of groups lies.
    used_at: usize,
    parts: Vec<Part>,
    pub(crate) groups: Option<GroupBuffers>,
    clear: Clear,
    host: Option<PinnedLease>,
}

/// How the buffer is cleared.
enum Clear {
    /// By a copy of what it is before any row.
    Image(DeviceBuffer),
    /// In place; for each part a pattern, where its words differ.
    Fill(Vec<Option<DeviceBuffer>>),
}

impl DeviceState {
    /// The state of a program, not cleared yet.
    pub(crate) fn new(device: &Arc<CudaDevice>, program: &CudaProgram) -> Result<Self, CudaError> {
        let tile_groups = Tuning::FULL.tile_groups(program.matches_max);
        let room = program.group_table.as_ref();
        let room = room.map(|layout| layout.room(device.table_begins_with(), tile_groups));
        Self::with_room(device, program, room)
    }

    /// As [`new`](Self::new), with room for so many hashed groups.
    fn with_room(
        device: &Arc<CudaDevice>,
        program: &CudaProgram,
        room: Option<GroupRoom>,
    ) -> Result<Self, CudaError> {
        let groups = match program.group_table.as_ref().zip(room) {
            Some((layout, room)) => Some(GroupBuffers::new(device, layout, room)?),
            None => None,
        };
        let entries = groups.as_ref().map_or(program.groups, |groups| groups.room.capacity);
        let steps = program.bound.steps.len();
        let used_at = (ROWS_LEFT_AT + 8 * steps).next_multiple_of(ALIGN_BYTES);
        let mut end = used_at + USED_BYTES;
        let mut parts = Vec::with_capacity(program.accumulators.len());
        for &kind in &program.accumulators {
            let bytes = (kind.bytes() * entries) as usize;
            parts.push(Part { at: end, bytes, kind });
            end = (end + bytes).next_multiple_of(ALIGN_BYTES);
        }
        let buffer = device.alloc(end)?;
        let is_small = end <= IMAGE_BYTES_MAX;
        let clear = if is_small { image(device, &parts, end)? } else { patterns(device, &parts)? };
        let host = if is_small { Some(PinnedLease::take(device, end)?) } else { None };
        Ok(Self { buffer, steps, used_at, parts, groups, clear, host })
    }

    /// Device memory of all of it.
    pub(crate) fn device_bytes(&self) -> u64 {
        let groups = self.groups.iter();
        let of_groups = groups.flat_map(|g| [Some(&g.slots), Some(&g.keys), g.texts.as_deref()]);
        let bytes: u64 = of_groups.flatten().map(DeviceBuffer::capacity_bytes).sum();
        self.buffer.capacity_bytes() + bytes
    }

    /// Address of the status.
    pub(crate) fn status(&self) -> u64 {
        self.buffer.ptr()
    }

    /// Address of the number of groups.
    pub(crate) fn groups_used(&self) -> u64 {
        self.buffer.ptr() + self.used_at as u64
    }

    /// Address of the number of bytes of the texts that groups keep.
    pub(crate) fn group_texts_used(&self) -> u64 {
        self.groups_used() + TEXTS_USED_AT as u64
    }

    /// Address of the number of rows that the step at a place of the pipeline left.
    pub(crate) fn rows_left_at(&self, place: usize) -> u64 {
        assert!(place < self.steps, "a step of another pipeline");
        self.buffer.ptr() + (ROWS_LEFT_AT + 8 * place) as u64
    }

    /// Status, rows and number of groups.
    fn header_bytes(&self) -> usize {
        self.used_at + USED_BYTES
    }

    /// Where hashed groups lie.
    pub(crate) fn group_addresses(&self, groups: &GroupBuffers) -> GroupAddresses {
        GroupAddresses {
            keys: groups.keys.ptr(),
            texts: groups.texts.as_ref().map_or(0, |texts| texts.ptr()),
            accumulators: (0..self.parts.len()).map(|index| self.accumulator(index)).collect(),
        }
    }

    /// Address of the keys of hashed groups and of each accumulator, and the bytes of a group there.
    pub(crate) fn arrays(&self) -> Vec<(u64, u64)> {
        let keys = |groups: &GroupBuffers| (groups.keys.ptr(), groups.layout.key_bytes() as u64);
        let parts =
            self.parts.iter().map(|part| (self.buffer.ptr() + part.at as u64, part.kind.bytes()));
        self.groups.iter().map(keys).chain(parts).collect()
    }

    /// A state for some of these groups, whose texts it shares: of so many, which are to be filled in. Waits for the
    /// stream.
    pub(crate) fn of_some(
        &self,
        device: &Arc<CudaDevice>,
        program: &CudaProgram,
        stream: &Stream,
        count: u64,
    ) -> Result<Self, CudaError> {
        let room = self.groups.as_ref().map(|groups| groups.room.of_some(count));
        let mut some = Self::with_room(device, program, room)?;
        if let (Some(to), Some(from)) = (&mut some.groups, &self.groups) {
            to.texts.clone_from(&from.texts);
            to.room.texts_bytes = from.room.texts_bytes;
        }
        // SAFETY: both states are held until the wait below, and the stream alone uses them.
        let queued = unsafe { some.begin_as(self, count as u32, stream) };
        stream.synchronize()?;
        queued.map(|()| some)
    }

    /// Queues the status and counters of a state of the same pipeline, with so many groups.
    ///
    /// # Safety
    /// As [`clear`](Self::clear), for both.
    unsafe fn begin_as(&self, other: &Self, groups: u32, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe {
            stream.copy_d2d_async(&self.buffer, 0, &other.buffer, 0, self.header_bytes())?;
            stream.fill_u32_async(&self.buffer, self.used_at, 1, groups)?;
        }
        Ok(())
    }

    /// Address of an accumulator.
    pub(crate) fn accumulator(&self, index: usize) -> u64 {
        self.buffer.ptr() + self.parts[index].at as u64
    }

    /// Queues what makes the state that of no row.
    ///
    /// # Safety
    /// The state must live until the stream has done it, and nothing else use it meanwhile.
    pub(crate) unsafe fn clear(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { self.clear_from(0, stream) }
    }

    /// Queues what leaves no group. The rows that steps left are counted on.
    ///
    /// # Safety
    /// As [`clear`](Self::clear).
    pub(crate) unsafe fn clear_groups(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { self.clear_from(self.used_at, stream) }
    }

    /// The same state with a larger table of groups, whose slots are free still, and the number of groups. `None`: there
    /// is no memory for it. Waits for the stream.
    pub(crate) fn larger(
        &self,
        device: &Arc<CudaDevice>,
        program: &CudaProgram,
        stream: &Stream,
    ) -> Result<Option<(Self, u32)>, CudaError> {
        let Some(groups) = &self.groups else { return Ok(None) };
        let tile_groups = Tuning::FULL.tile_groups(program.matches_max);
        let used = self.take_groups_used(stream)?;
        let max = device.table_max();
        let Some(room) = groups.layout.larger(&groups.room, used, max, tile_groups) else {
            return Ok(None);
        };
        let used = groups.room.groups(used);
        let texts_used = self.take_group_texts(stream, groups)?.map_or(0, |(_, bytes)| bytes);
        let larger = match Self::with_room(device, program, Some(room)) {
            Err(error) if error.is_out_of_memory() => return Ok(None),
            larger => larger?,
        };
        // SAFETY: both states are held until the wait below, and the stream alone uses them.
        let queued = unsafe { larger.take_groups_of(self, (used, texts_used as usize), stream) };
        // Whatever was queued writes to a state that goes if the rest failed.
        stream.synchronize()?;
        queued.map(|()| Some((larger, used as u32)))
    }

    /// Queues what gives a state the groups of another one with less room, but for their slots.
    ///
    /// # Safety
    /// As [`clear`](Self::clear), for both.
    unsafe fn take_groups_of(
        &self,
        other: &Self,
        (used, texts_used): (usize, usize),
        stream: &Stream,
    ) -> Result<(), CudaError> {
        let copy = |to: (&DeviceBuffer, usize), from: (&DeviceBuffer, usize), bytes: usize| {
            if bytes == 0 {
                return Ok(());
            }
            // SAFETY: the caller's promise, here and below.
            unsafe { stream.copy_d2d_async(to.0, to.1, from.0, from.1, bytes) }
        };
        // SAFETY: as above. The number of groups loses the bit that says that texts take more than half of their room.
        unsafe {
            self.clear(stream)?;
            self.begin_as(other, used as u32, stream)?;
        }
        for (to, from) in self.parts.iter().zip(&other.parts) {
            let bytes = used * from.kind.bytes() as usize;
            copy((&self.buffer, to.at), (&other.buffer, from.at), bytes)?;
        }
        if let (Some(to), Some(from)) = (&self.groups, &other.groups) {
            copy((&to.keys, 0), (&from.keys, 0), used * from.layout.key_bytes())?;
            if let (Some(to), Some(from)) = (&to.texts, &from.texts) {
                copy((to, 0), (from, 0), texts_used)?;
            }
        }
        Ok(())
    }

    /// Clears what lies in the buffer from here on, and the table of groups.
    ///
    /// # Safety
    /// As [`clear`](Self::clear).
    unsafe fn clear_from(&self, at: usize, stream: &Stream) -> Result<(), CudaError> {
        match &self.clear {
            Clear::Image(image) => {
                let bytes = image.bytes() - at;
                // SAFETY: both buffers live as long as the state: the caller's promise.
                unsafe { stream.copy_d2d_async(&self.buffer, at, image, at, bytes) }?;
            }
            Clear::Fill(patterns) => {
                // SAFETY: as above.
                unsafe { stream.fill_async(&self.buffer, at, self.header_bytes() - at, 0) }?;
                for (part, pattern) in self.parts.iter().zip(patterns) {
                    // SAFETY: as above.
                    unsafe { self.fill(stream, part, pattern.as_ref()) }?;
                }
            }
        }
        if let Some(groups) = &self.groups {
            let slots = groups.room.slots() as usize;
            // SAFETY: as above. A free slot is all ones.
            unsafe { stream.fill_u32_async(&groups.slots, 0, slots, u32::MAX) }?;
        }
        Ok(())
    }

    /// Fills a part, doubling what is filled already.
    ///
    /// # Safety
    /// As [`clear`](Self::clear).
    unsafe fn fill(
        &self,
        stream: &Stream,
        part: &Part,
        pattern: Option<&DeviceBuffer>,
    ) -> Result<(), CudaError> {
        let Some(pattern) = pattern else {
            let [word, _] = part.kind.initial_words();
            // SAFETY: the caller's promise.
            unsafe { stream.fill_u32_async(&self.buffer, part.at, part.bytes / 4, word) }?;
            return Ok(());
        };
        let mut done = pattern.bytes().min(part.bytes);
        // SAFETY: the caller's promise.
        unsafe { stream.copy_d2d_async(&self.buffer, part.at, pattern, 0, done) }?;
        while done < part.bytes {
            let bytes = done.min(part.bytes - done);
            let to = part.at + done;
            // SAFETY: the caller's promise; the ranges meet and do not overlap.
            unsafe { stream.copy_d2d_async(&self.buffer, to, &self.buffer, part.at, bytes) }?;
            done += bytes;
        }
        Ok(())
    }

    /// Waits for the stream and reads the status alone; the number of output rows starts anew.
    pub(crate) fn take_status(&mut self, stream: &Stream) -> Result<[u8; STATUS_BYTES], CudaError> {
        let mut status = [0u8; STATUS_BYTES];
        stream.download(&self.buffer, 0, &mut status)?;
        // SAFETY: only this stream uses the state, whose owner waits for it before it goes.
        unsafe { stream.fill_async(&self.buffer, 0, 8, 0) }?;
        Ok(status)
    }

    /// Whether all of it comes back by one copy.
    pub(crate) fn is_pinned(&self) -> bool {
        self.host.is_some() && self.groups.is_none()
    }

    /// Queues the copy of all of it to the host, where it is small. [`Self::fetch`] waits for it.
    pub(crate) fn begin_fetch(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let bytes = self.buffer.bytes();
        if let (Some(host), None) = (&mut self.host, &self.groups) {
            // SAFETY: the pinned memory is the state's own, which waits for the stream before it
            // goes, and is read by `fetch`, which waits too.
            unsafe { stream.copy_d2h_async(&self.buffer, 0, &mut host.as_mut_slice()[..bytes]) }?;
        }
        Ok(())
    }

    /// Waits for the stream; everything, after [`Self::begin_fetch`].
    pub(crate) fn fetch(&mut self, stream: &Stream) -> Result<Fetched<'_>, CudaError> {
        stream.synchronize()?;
        let bytes = self.buffer.bytes();
        let all = match &self.host {
            Some(host) if self.is_pinned() => Cow::Borrowed(&host.as_slice()[..bytes]),
            _ => {
                // Of hashed groups only those that are there come back: see `queue_groups`.
                let bytes = if self.groups.is_some() { self.header_bytes() } else { bytes };
                let mut all = vec![0u8; bytes];
                stream.download(&self.buffer, 0, &mut all)?;
                Cow::Owned(all)
            }
        };
        Ok(Fetched { all, parts: &self.parts })
    }

    /// Queues the copy of the number of hashed groups, a `u32`.
    ///
    /// # Safety
    /// `to` must be pinned and untouched until the stream has done it; so long the state must live.
    pub(crate) unsafe fn queue_groups_used(
        &self,
        stream: &Stream,
        to: &mut [u8],
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        Ok(unsafe { stream.copy_d2h_async(&self.buffer, self.used_at, to) }?)
    }

    /// Waits for the stream; the number of hashed groups, as a launch leaves it.
    pub(crate) fn take_groups_used(&self, stream: &Stream) -> Result<u32, CudaError> {
        let mut used = [0u8; 4];
        stream.download(&self.buffer, self.used_at, &mut used)?;
        Ok(u32::from_le_bytes(used))
    }

    /// As above; the address of the texts that they keep, and the bytes that these take.
    pub(crate) fn take_group_texts(
        &self,
        stream: &Stream,
        groups: &GroupBuffers,
    ) -> Result<Option<(u64, u64)>, CudaError> {
        let Some(texts) = &groups.texts else { return Ok(None) };
        let mut used = [0u8; 8];
        stream.download(&self.buffer, self.used_at + TEXTS_USED_AT, &mut used)?;
        Ok(Some((texts.ptr(), u64::from_le_bytes(used).min(groups.room.texts_bytes))))
    }

    /// Waits for the stream; the rows that each step left, by its place in the pipeline. `is_fetched`:
    /// what [`Self::begin_fetch`] copied is still so.
    pub(crate) fn take_rows_left(
        &self,
        stream: &Stream,
        is_fetched: bool,
    ) -> Result<Vec<u64>, CudaError> {
        let mut left = vec![0u8; 8 * self.steps];
        match &self.host {
            Some(host) if is_fetched && self.is_pinned() => {
                stream.synchronize()?;
                left.copy_from_slice(&host.as_slice()[ROWS_LEFT_AT..][..8 * self.steps]);
            }
            _ if left.is_empty() => {}
            _ => stream.download(&self.buffer, ROWS_LEFT_AT, &mut left)?,
        }
        Ok(chunks::<8>(&left).map(u64::from_le_bytes).collect())
    }

    /// Bytes of a hashed group on its way to the host.
    pub(crate) fn group_bytes(&self, groups: &GroupBuffers) -> usize {
        let parts: u64 = self.parts.iter().map(|part| part.kind.bytes()).sum();
        groups.layout.key_bytes() + parts as usize
    }

    /// Queues the copy of hashed groups: their keys, then each accumulator.
    ///
    /// # Safety
    /// As [`Self::queue_groups_used`].
    pub(crate) unsafe fn queue_groups(
        &self,
        stream: &Stream,
        groups: &GroupBuffers,
        range: Range<usize>,
        to: &mut [u8],
    ) -> Result<(), CudaError> {
        let stride = groups.layout.key_bytes();
        let (keys, mut rest) = to.split_at_mut(range.len() * stride);
        // SAFETY: the caller's promise, here and below.
        unsafe { stream.copy_d2h_async(&groups.keys, range.start * stride, keys) }?;
        for part in &self.parts {
            let bytes = part.kind.bytes() as usize;
            let (to, left) = rest.split_at_mut(range.len() * bytes);
            let at = part.at + range.start * bytes;
            // SAFETY: as above.
            unsafe { stream.copy_d2h_async(&self.buffer, at, to) }?;
            rest = left;
        }
        Ok(())
    }

    /// Keys and entries of groups `range` of the `count` that [`Self::queue_groups`] brought.
    pub(crate) fn arrived<'a>(
        &'a self,
        groups: &GroupBuffers,
        (arrived, count): (&'a [u8], usize),
        range: Range<usize>,
    ) -> (&'a [u8], impl Iterator<Item = (DeviceAccumulator, &'a [u8])>) {
        let stride = groups.layout.key_bytes();
        let (keys, mut rest) = arrived.split_at(count * stride);
        let keys = &keys[range.start * stride..range.end * stride];
        let entries = self.parts.iter().map(move |part| {
            let bytes = part.kind.bytes() as usize;
            let (all, left) = rest.split_at(count * bytes);
            rest = left;
            (part.kind, &all[range.start * bytes..range.end * bytes])
        });
        (keys, entries)
    }
}

/// A state on the host.
pub(crate) struct Fetched<'a> {
    all: Cow<'a, [u8]>,
    parts: &'a [Part],
}

impl Fetched<'_> {
    /// The status.
    pub(crate) fn status(&self) -> [u8; STATUS_BYTES] {
        let mut status = [0u8; STATUS_BYTES];
        status.copy_from_slice(&self.all[..STATUS_BYTES]);
        status
    }

    /// The accumulators of dense groups.
    pub(crate) fn accumulators(&self) -> Vec<AccumulatorState> {
        let state = |p: &Part| accumulator_state(p.kind, &self.all[p.at..p.at + p.bytes]);
        self.parts.iter().map(state).collect()
    }
}

fn image(device: &CudaDevice, parts: &[Part], bytes: usize) -> Result<Clear, CudaError> {
    let mut image = vec![0u8; bytes];
    for part in parts {
        let entry = entry_bytes(part.kind);
        image[part.at..part.at + part.bytes].copy_from_slice(&entry.repeat(part.bytes / 8));
    }
    let buffer = device.alloc(bytes)?;
    device.upload_into(&buffer, &image)?;
    Ok(Clear::Image(buffer))
}

fn patterns(device: &CudaDevice, parts: &[Part]) -> Result<Clear, CudaError> {
    let pattern = |part: &Part| {
        let [low, high] = part.kind.initial_words();
        if low == high {
            return Ok(None);
        }
        let buffer = device.alloc(PATTERN_BYTES)?;
        device.upload_into(&buffer, &entry_bytes(part.kind).repeat(PATTERN_BYTES / 8))?;
        Ok(Some(buffer))
    };
    Ok(Clear::Fill(parts.iter().map(pattern).collect::<Result<_, CudaError>>()?))
}

/// The words before any row, which repeat.
fn entry_bytes(kind: DeviceAccumulator) -> Vec<u8> {
    kind.initial_words().iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl GroupBuffers {
    fn new(
        device: &CudaDevice,
        layout: &GroupTableLayout,
        room: GroupRoom,
    ) -> Result<Self, CudaError> {
        let texts_bytes = room.texts_bytes as usize;
        Ok(Self {
            texts: match texts_bytes {
                0 => None,
                bytes => Some(Arc::new(device.alloc(bytes)?)),
            },
            slots: device.alloc(room.slots() as usize * 4)?,
            keys: device.alloc(room.capacity as usize * layout.key_bytes())?,
            layout: layout.clone(),
            room,
        })
    }
}
