//! What the lanes of a race share, and what is asked of each.

use std::sync::Arc;
use std::time::Instant;

use headrace_io::{BoxError, Completion, EXTENT_ALIGN_BYTES, Kept, MappingPool, ReadSpec};

use crate::device_reads::DeviceReadDone;
use crate::feed::Bell;
use crate::lane::{DEVICE_ALIGN_BYTES, DeviceLane, DeviceRange};
use crate::registered::{Registered, RegisteredPiece, RegisteredPool, pieces};
use crate::schedule::{Affinity, Schedule};
use crate::slots;
use crate::stop::Stop;
use crate::{AccessPath, Race, RaceError};

/// What wakes the driver.
pub(super) enum Event {
    Read(Completion),
    DeviceRead(DeviceReadDone),
    Registered(Registered),
    Written(Completion),
    Fed,
}

/// Mappings that several lanes share, if they are not kept between races.
const MAPPINGS_MAX: usize = 1024;

/// The registered pieces that a slot's copies read.
pub(super) type Pins = Vec<Arc<Kept<RegisteredPiece>>>;

/// The shared state of a race's lanes.
pub(super) struct Shared<'a, P> {
    pub race: &'a Race<P>,
    pub lanes: usize,
    pub start: Instant,
    pub stop: Stop,
    pub schedule: Schedule<'a, P>,
    /// Wakes the lanes when an empty feed has a chunk again.
    pub bell: Arc<Bell<Event>>,
    /// The race's number in the host cache.
    pub cache_race: u64,
    pub mappings: Option<Arc<MappingPool>>,
    /// Registered mappings, and the race's number with them; the reason if there are none.
    pub registered: Result<(Arc<RegisteredPool>, u64), String>,
}

impl<'a, P: Default> Shared<'a, P> {
    pub fn new(
        race: &'a Race<P>,
        lane_slots: &[usize],
        affinity: &'a Affinity,
    ) -> Result<Self, RaceError> {
        if lane_slots.is_empty() || lane_slots.contains(&0) {
            return Err(RaceError::NoConsumer);
        }
        let options = &race.options;
        let lanes = lane_slots.len();
        if race.appends && lanes > 1 {
            let what = format!("chunks append to sinks on one device, not on {lanes}");
            return Err(RaceError::BadOutput { chunk: 0, what });
        }
        let own_mappings = || (lanes > 1).then(|| MappingPool::new(MAPPINGS_MAX));
        Ok(Shared {
            race,
            lanes,
            start: Instant::now(),
            stop: Stop::new(race.token.clone()),
            schedule: Schedule::new(race, lanes, affinity)?,
            bell: Bell::new(|| Event::Fed),
            cache_race: options.cache.as_ref().map_or(0, |cache| cache.begin_race()),
            mappings: options.mappings.clone().or_else(own_mappings),
            registered: registered_pool(race, lane_slots.iter().sum()).map(|pool| {
                let number = pool.begin_race();
                (pool, number)
            }),
        })
    }

    /// The start of the race, and its error. Mappings kept for this race alone are released here:
    /// unpinning takes time, which belongs to the race.
    pub fn end(self) -> (Instant, Option<RaceError>) {
        (self.start, self.stop.take_error())
    }
}

/// The pool of registered mappings: the given one, or one for this race if the path is forced.
fn registered_pool<P>(race: &Race<P>, slots: usize) -> Result<Arc<RegisteredPool>, String> {
    if let Some(pool) = &race.options.registered {
        return Ok(pool.clone());
    }
    if race.options.access != AccessPath::Registered {
        return Err("no registered mappings are kept for the next race".to_string());
    }
    let pool = RegisteredPool::new(u64::MAX);
    let piece_bytes = pool.piece_bytes();
    let of_chunk = |reads: &[ReadSpec]| -> u64 {
        let pieces_of = |read: &ReadSpec| pieces(read.offset, read.bytes, piece_bytes);
        reads.iter().map(pieces_of).map(|range| range.end - range.start).sum()
    };
    let listed = race.chunks.iter().map(|chunk| of_chunk(&chunk.reads)).max().unwrap_or(0);
    // Of chunks that are not known yet, an extent on every block of a slot: a bound, not an aim.
    let extents = (race.bounds.slot_bytes / EXTENT_ALIGN_BYTES) as u64;
    let chunk_pieces = if race.feed.is_some() { 2 * extents.max(1) } else { listed };
    // What all slots copy from, and as much registered ahead of being wanted or left over.
    let pieces_max = chunk_pieces.saturating_mul(2 * slots as u64);
    let budget_bytes = pieces_max.saturating_mul(piece_bytes as u64);
    Ok(RegisteredPool::with_pieces(budget_bytes, piece_bytes))
}

/// Error unless a chunk fits the lane's slots.
pub(super) fn check_fits<P, L: DeviceLane<P> + ?Sized>(
    race: &Race<P>,
    lane: &L,
    chunk: usize,
    reads: &[ReadSpec],
) -> Result<(), RaceError> {
    // What goes past the slots' host memory need not fit it.
    if !matches!(race.options.access, AccessPath::Registered | AccessPath::CuFile) {
        slots::check_fits(chunk, reads, lane.host_slot_bytes())?;
    }
    let (needed_bytes, slot_bytes) = (device_ranges(reads).1, lane.device_slot_bytes());
    match needed_bytes <= slot_bytes {
        true => Ok(()),
        false => Err(RaceError::ChunkTooLarge { chunk, needed_bytes, slot_bytes }),
    }
}

/// Error unless the slot's host memory can be read into.
pub(super) fn check_windows<P, L: DeviceLane<P> + ?Sized>(
    lane: &L,
    slot: usize,
) -> Result<(), RaceError> {
    for window in [lane.host_window(slot), lane.output_window(slot)] {
        if !window.as_ptr().addr().is_multiple_of(EXTENT_ALIGN_BYTES) {
            let what = format!("the host memory of slot {slot} is not aligned to a page");
            return Err(device_error(None, "starting", what.into()));
        }
    }
    Ok(())
}

/// The places of a chunk's buffers in device memory, and the memory that they need.
pub(super) fn device_ranges(reads: &[ReadSpec]) -> (Vec<DeviceRange>, usize) {
    let mut end = 0usize;
    let ranges = reads
        .iter()
        .map(|read| {
            let range = DeviceRange { offset: end, bytes: read.bytes as usize };
            end = (end + range.bytes).next_multiple_of(DEVICE_ALIGN_BYTES);
            range
        })
        .collect();
    (ranges, end)
}

pub(super) fn device_error(
    chunk: Option<usize>,
    stage: &'static str,
    source: BoxError,
) -> RaceError {
    RaceError::Device { chunk, stage, source }
}
