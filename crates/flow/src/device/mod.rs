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
mod shared;
mod slot;

use std::panic::{AssertUnwindSafe, catch_unwind};

use headrace_io::IoError;

use crate::lane::DeviceLane;
use crate::report::Tally;
use crate::schedule::Affinity;
use crate::stop::panic_message;
use crate::{ChunkSpec, DevicesReport, Race, RaceError, RaceReport};
use driver::Driver;
use shared::{Pins, Shared, check_fits, device_error};

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
        let affinity = Affinity::none();
        let shared = Shared::new(self, &[lane.slots()], &affinity)?;
        check_list_fits(self, lane)?;
        let tally = run_lane(&shared, 0, lane);
        let (start, error) = shared.end();
        self.verify_files(error)?;
        Ok(tally.finish(start.elapsed().as_nanos() as u64))
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
        let lane_slots: Vec<usize> = lanes.iter().map(|lane| lane.slots()).collect();
        let owned = Shared::new(self, &lane_slots, affinity)?;
        let shared = &owned;
        lanes.iter().try_for_each(|lane| check_list_fits(self, &**lane))?;
        let tallies: Vec<Tally> = headrace_io::scope(|scope| {
            let mut threads = Vec::with_capacity(lanes.len());
            for (number, lane) in lanes.into_iter().enumerate() {
                match scope.spawn(move || run_lane(shared, number, lane)) {
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
        self.verify_files(error)?;
        Ok(Tally::merge(tallies, start.elapsed().as_nanos() as u64))
    }
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
