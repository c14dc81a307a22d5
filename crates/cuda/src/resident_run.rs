//! A pipeline over columns that are all on the device: one launch, again and again.
//!
//! Segment descriptors in device memory replace a launch for each chunk.
//!
//! Resident kernels are bound by instructions, latency and sparse sectors, not by the bytes of columns: plain and
//! narrow columns take the same time. Work per run of tiles instead of per tile, and L2 fetching single sectors,
//! brought a third; asking L2 for the next tile ahead brought nothing.

use std::sync::{Arc, Weak};

use headrace_io::Kept;
use headrace_pipeline::ExecError;

use crate::error::CudaError;
use crate::execution::{CudaExecution, Described};
use crate::program::DeviceSegment;
use crate::resident::ResidentColumn;
use crate::rows::RowOutput;
use crate::stream_plan::{ColumnOrigin, StreamPlan};
use crate::stream_program::on_device;

/// Columns that stay where they are.
pub(crate) type Held = Vec<Arc<Kept<ResidentColumn>>>;

/// Output rows that one launch may yield.
const LAUNCH_OUTPUT_ROWS: u64 = 16 << 20;

/// A pipeline ready to run over resident columns, with the segments described on the device. It
/// can be kept: between runs it holds none of the columns, so that they may leave.
pub struct ResidentRun {
    execution: CudaExecution,
    launches: Vec<Described>,
    columns: Vec<Weak<Kept<ResidentColumn>>>,
    /// The columns, until the first run.
    held: Option<Held>,
    /// How many columns had left the device when all of these were last seen there.
    departures: Option<u64>,
    resident_bytes: u64,
    chunks: u64,
}

impl ResidentRun {
    /// Describes the chunks that are the device's own.
    ///
    /// # Errors
    /// [`ExecError::Internal`] for a plan that is not resident, and what describing gives.
    pub(crate) fn new(mut execution: CudaExecution, plan: &StreamPlan) -> Result<Self, CudaError> {
        if !plan.is_resident() {
            return Err(ExecError::Internal("a plan that is not resident".into()).into());
        }
        let mut segments: Vec<DeviceSegment> = Vec::new();
        let mut held = Vec::new();
        for segment in plan.own_chunks().flat_map(|chunk| &chunk.segments) {
            for origin in &segment.columns {
                if let ColumnOrigin::Resident(column) = origin {
                    held.push(Arc::clone(column));
                }
            }
            segments.push(on_device(segment, &[]));
        }
        let launches = match &plan.layout {
            Some(layout) => execution.describe_launches(layout, &segments, LAUNCH_OUTPUT_ROWS)?,
            None => Vec::new(),
        };
        Ok(Self {
            execution,
            launches,
            columns: held.iter().map(Arc::downgrade).collect(),
            held: Some(held),
            departures: None,
            resident_bytes: plan.own_chunks().map(|chunk| chunk.resident_bytes).sum(),
            chunks: plan.own_chunks().count() as u64,
        })
    }

    /// Chunks that it takes the place of.
    pub(crate) fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Whether it is worth making again: it runs another pipeline's kernel.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.execution.is_borrowed()
    }

    /// Device memory that it has of its own.
    pub(crate) fn device_bytes(&self) -> u64 {
        let descriptors: u64 = self.launches.iter().map(Described::bytes).sum();
        descriptors + self.execution.state_bytes()
    }

    /// The columns, if all of them are still there: as long as they are held, they stay.
    fn hold(&self, query: u64) -> Option<Held> {
        let hold = |column: &Weak<Kept<ResidentColumn>>| {
            let column = column.upgrade().filter(|column| !column.has_left())?;
            column.touch(query);
            Some(column)
        };
        self.columns.iter().map(hold).collect()
    }

    /// Begins to run, from nothing gathered: the columns, and whether the device does all by itself. `None` if a column
    /// is not there any more.
    ///
    /// # Errors
    /// [`CudaError::Gpu`]; nothing is under way then.
    ///
    /// # Safety
    /// The columns must be held until [`Self::finish`] or [`Self::abandon`] was called.
    pub(crate) unsafe fn begin(&mut self) -> Result<Option<(Held, bool)>, CudaError> {
        let device = Arc::clone(self.execution.device());
        let resident = device.resident();
        let known = self.departures.filter(|_| self.execution.has_kernels_of(&self.launches));
        if let Some(departures) = known {
            // There may be thousands of columns: they are taken hold of while the device works.
            let begun = resident.while_all_stay(departures, |query| {
                // SAFETY: all columns are there, and none leaves before they are held.
                let has_begun = unsafe { self.queue() }?;
                let held = self.hold(query);
                if held.is_none() {
                    self.abandon();
                }
                Ok(held.map(|held| (held, has_begun)))
            });
            if let Some(begun) = begun {
                return begun;
            }
        }
        let departures = resident.departures();
        let held = match self.held.take() {
            Some(held) => held,
            None => match self.hold(resident.begin_query()) {
                // What leaves from now on is counted beyond `departures`.
                Some(held) => {
                    self.departures = Some(departures);
                    held
                }
                None => return Ok(None),
            },
        };
        // SAFETY: the columns are held.
        let has_begun = unsafe { self.queue() }?;
        Ok(Some((held, has_begun)))
    }

    /// Queues all kernels, if the device alone can do all; whether it did. After an error nothing is under way.
    ///
    /// # Safety
    /// The columns must be there until [`Self::finish`] or [`Self::abandon`] was called.
    unsafe fn queue(&mut self) -> Result<bool, CudaError> {
        let queued = self.execution.reset().and_then(|()| {
            self.execution.stats.resident_bytes = self.resident_bytes;
            // SAFETY: these are the columns that were described, and they stay; they are complete (they were entered when
            // their copies were done), as long as their extents were for these rows, and nobody writes to them.
            unsafe { self.execution.queue_described(&self.launches) }
        });
        if queued.is_err() {
            self.abandon();
        }
        queued
    }

    /// Does what is left after [`Self::begin`], all if that did nothing; the answer is in the
    /// execution.
    ///
    /// # Errors
    /// The failure of a row, or [`CudaError::Gpu`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn finish(
        &mut self,
        has_begun: bool,
        output: &RowOutput<'_>,
    ) -> Result<&mut CudaExecution, CudaError> {
        match has_begun {
            true => self.execution.finish_aggregation()?,
            // SAFETY: as in `begin`.
            false => unsafe { self.execution.run_described(&self.launches, output) }?,
        }
        Ok(&mut self.execution)
    }

    /// Waits for what is under way.
    pub(crate) fn abandon(&self) {
        self.execution.wait();
    }
}
