//! The race on devices: one thread per device drives reads, copies, launches and writes, and never
//! waits for a copy or a kernel while there is other work.
//!
//! ```text
//!           fill.rs                        finish.rs
//! slot:  free ─► reading ─► launched ─► (copied back) ─► (writing) ─► free
//!         ▲        │ reads, registrations, reads by the device                │
//!         └────────┴──────────────── driver.rs: what comes next ──────────────┘
//! ```

mod driver;
mod fill;
mod finish;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use headrace_io::{EXTENT_ALIGN_BYTES, IoError, Kept, block_signals};

use crate::feed::Bell;
use crate::lane::{DEVICE_ALIGN_BYTES, DeviceLane, DeviceRange};
use crate::registered::{RegisteredPiece, RegisteredPool, pieces};
use crate::report::Tally;
use crate::schedule::{Affinity, Schedule};
use crate::slots;
use crate::stop::{Stop, panic_message};
use crate::{
    AccessPath, BoxError, ChunkSpec, DevicesReport, MappingPool, Race, RaceError, RaceReport,
    ReadSpec,
};
use driver::{Driver, Event};

/// Mappings that several lanes share, if they are not kept between races.
const MAPPINGS_MAX: usize = 1024;

/// The registered pieces that a slot's copies read.
type Pins = Vec<Arc<Kept<RegisteredPiece>>>;

/// The shared state of a race's lanes.
struct Shared<'a, P> {
    race: &'a Race<P>,
    lanes: usize,
    start: Instant,
    stop: Stop,
    schedule: Schedule<'a, P>,
    /// Wakes the lanes when an empty feed has a chunk again.
    bell: Arc<Bell<Event>>,
    /// The race's number in the host cache.
    cache_race: u64,
    mappings: Option<Arc<MappingPool>>,
    /// Registered mappings, and the race's number with them; the reason if there are none.
    registered: Result<(Arc<RegisteredPool>, u64), String>,
}

impl<'a, P: Default> Shared<'a, P> {
    fn new(
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
    fn end(self) -> (Instant, Option<RaceError>) {
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

impl<P: Default + Send> Race<P> {
    /// Streams every chunk through the slots of a device lane. The calling thread drives reads,
    /// copies, launches and writes.
    ///
    /// # Errors
    /// The first error; see [`RaceError`]. The lane is synchronised in any case.
    pub fn run_device<L: DeviceLane<P> + ?Sized>(
        &self,
        lane: &mut L,
    ) -> Result<RaceReport, RaceError> {
        run(self, lane)
    }

    /// Streams every chunk, exactly once, through one of several lanes, each driven by its own
    /// thread. A lane begins the chunks that `affinity` gives it in order; an idle lane steals the
    /// last chunk of the lane with the most left. The first error ends all lanes.
    ///
    /// Reader threads are divided among the lanes; each lane has its own slots, queues and
    /// in-flight reads.
    ///
    /// # Errors
    /// The first error; see [`RaceError`]. All lanes are synchronised in any case.
    pub fn run_devices(
        &self,
        lanes: Vec<&mut (dyn DeviceLane<P> + Send)>,
        affinity: &Affinity,
    ) -> Result<DevicesReport, RaceError> {
        run_many(self, lanes, affinity)
    }
}

/// One lane, driven by the calling thread.
fn run<P: Default, L: DeviceLane<P> + ?Sized>(
    race: &Race<P>,
    lane: &mut L,
) -> Result<RaceReport, RaceError> {
    let affinity = Affinity::none();
    let shared = Shared::new(race, &[lane.slots()], &affinity)?;
    check_list_fits(race, lane)?;
    let tally = run_lane(&shared, 0, lane);
    let (start, error) = shared.end();
    race.verify_files(error)?;
    Ok(tally.finish(start.elapsed().as_nanos() as u64))
}

/// Several lanes, each on a thread of its own.
fn run_many<P: Default + Send>(
    race: &Race<P>,
    lanes: Vec<&mut (dyn DeviceLane<P> + Send)>,
    affinity: &Affinity,
) -> Result<DevicesReport, RaceError> {
    let lane_slots: Vec<usize> = lanes.iter().map(|lane| lane.slots()).collect();
    let owned = Shared::new(race, &lane_slots, affinity)?;
    let shared = &owned;
    lanes.iter().try_for_each(|lane| check_list_fits(race, &**lane))?;
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(lanes.len());
        for (number, lane) in lanes.into_iter().enumerate() {
            let drive = move || {
                block_signals();
                run_lane(shared, number, lane)
            };
            let named = std::thread::Builder::new().name(format!("drive-{number}"));
            match named.spawn_scoped(scope, drive) {
                Ok(thread) => threads.push(thread),
                Err(cause) => {
                    shared.stop.fail(RaceError::StartUp(IoError::Thread { cause }));
                    break;
                }
            }
        }
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|payload| {
                let message = panic_message(&*payload);
                shared.stop.fail(RaceError::Panic { chunk: None, message });
                Tally::default()
            })
        });
        joined.collect()
    });
    let (start, error) = owned.end();
    race.verify_files(error)?;
    Ok(Tally::merge(tallies, start.elapsed().as_nanos() as u64))
}

fn run_lane<P: Default, L: DeviceLane<P> + ?Sized>(
    shared: &Shared<'_, P>,
    number: usize,
    lane: &mut L,
) -> Tally {
    let before = lane.times();
    let mut tally = Tally::default();
    // Held until the device is idle, also if the driver fails: nothing may be unregistered under
    // a copy.
    let mut pins: Vec<Pins> = (0..lane.slots()).map(|_| Pins::new()).collect();
    let driven =
        catch_unwind(AssertUnwindSafe(|| match Driver::new(shared, number, lane, &mut pins) {
            Ok(driver) => tally = driver.run(),
            Err(error) => shared.stop.fail(error),
        }));
    if let Err(payload) = driven {
        let message = panic_message(&*payload);
        shared.stop.fail(RaceError::Panic { chunk: None, message });
    }
    // Whatever happened: after this the device touches no memory of the lane on our behalf. The
    // reads and writes have ended with the driver.
    match catch_unwind(AssertUnwindSafe(|| lane.synchronize())) {
        Ok(Ok(())) => drop(pins),
        Ok(Err(source)) => {
            // The context is lost: nothing is at work in it.
            drop(pins);
            shared.stop.fail(device_error(None, "waiting for the device", source));
        }
        Err(payload) => {
            // Copies may be running: what they read from is never given back.
            pins.leak();
            let message = panic_message(&*payload);
            shared.stop.fail(RaceError::Panic { chunk: None, message });
        }
    }
    let after = lane.times();
    let report = &mut tally.report;
    report.h2d_ns = after.h2d_ns.saturating_sub(before.h2d_ns);
    report.kernel_ns = after.kernel_ns.saturating_sub(before.kernel_ns);
    report.d2h_ns = after.d2h_ns.saturating_sub(before.d2h_ns);
    tally
}

/// Error unless all listed chunks fit the lane's slots.
fn check_list_fits<P, L: DeviceLane<P> + ?Sized>(
    race: &Race<P>,
    lane: &L,
) -> Result<(), RaceError> {
    let fits = |(chunk, spec): (usize, &ChunkSpec)| check_fits(race, lane, chunk, &spec.reads);
    race.chunks.iter().enumerate().try_for_each(fits)
}

/// Error unless a chunk fits the lane's slots.
fn check_fits<P, L: DeviceLane<P> + ?Sized>(
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
fn check_windows<P, L: DeviceLane<P> + ?Sized>(lane: &L, slot: usize) -> Result<(), RaceError> {
    for window in [lane.host_window(slot), lane.output_window(slot)] {
        if !window.as_ptr().addr().is_multiple_of(EXTENT_ALIGN_BYTES) {
            let what = format!("the host memory of slot {slot} is not aligned to a page");
            return Err(device_error(None, "starting", what.into()));
        }
    }
    Ok(())
}

/// The places of a chunk's buffers in device memory, and the memory that they need.
fn device_ranges(reads: &[ReadSpec]) -> (Vec<DeviceRange>, usize) {
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

fn device_error(chunk: Option<usize>, stage: &'static str, source: BoxError) -> RaceError {
    RaceError::Device { chunk, stage, source }
}
