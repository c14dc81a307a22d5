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
type Held = Vec<Arc<Kept<ResidentColumn>>>;

/// Output rows that one launch may yield.
const LAUNCH_OUTPUT_ROWS: u64 = 16 << 20;

/// A pipeline ready to run over resident columns, with the segments described on the device. It
/// can be kept: between runs it holds none of the columns, so that they may leave.
pub struct ResidentRun {
    /// Waits for the device when it is dropped, before the columns are.
    execution: CudaExecution,
    launches: Vec<Described>,
    columns: Vec<Weak<Kept<ResidentColumn>>>,
    /// The columns, until the first run is done, and while others are under way.
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

    /// Whether all columns are there, as far as is known before it begins: takes hold of them, unless none can have left
    /// since it last did.
    pub(crate) fn find(&mut self) -> bool {
        let departures = self.execution.device().resident().departures();
        self.held.is_some() || self.departures == Some(departures) || self.look()
    }

    /// Takes hold of the columns; whether all are there.
    fn look(&mut self) -> bool {
        let device = Arc::clone(self.execution.device());
        // What leaves from now on is counted beyond these.
        let departures = device.resident().departures();
        self.held = self.hold(device.resident().begin_query());
        self.departures = self.held.as_ref().map(|_| departures);
        self.held.is_some()
    }

    /// Begins to run, from nothing gathered: whether the device does all by itself. `None` if a column is not there any
    /// more. The columns are held until [`finish`](Self::finish) or [`abandon`](Self::abandon).
    ///
    /// # Errors
    /// [`CudaError::Gpu`]; nothing is under way then.
    pub(crate) fn begin(&mut self) -> Result<Option<bool>, CudaError> {
        let device = Arc::clone(self.execution.device());
        let is_loaded = self.execution.has_kernels_of(&self.launches);
        let known = self.departures.filter(|_| self.held.is_none() && is_loaded);
        if let Some(departures) = known {
            // There may be thousands of columns: they are taken hold of while the device works.
            let begun = device.resident().while_all_stay(departures, |query| {
                // SAFETY: all columns are there, and none leaves before they are held.
                let has_begun = unsafe { self.queue() }?;
                self.held = self.hold(query);
                if self.held.is_none() {
                    self.abandon();
                }
                Ok(self.held.as_ref().map(|_| has_begun))
            });
            if let Some(begun) = begun {
                return begun;
            }
        }
        if self.held.is_none() && !self.look() {
            return Ok(None);
        }
        // SAFETY: the columns are held.
        unsafe { self.queue() }.map(Some)
    }

    /// Queues all kernels, if the device alone can do all; whether it did. After an error nothing is under way.
    ///
    /// # Safety
    /// The columns must be there until the device was waited for.
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
    pub(crate) fn finish(
        &mut self,
        has_begun: bool,
        output: &RowOutput<'_>,
    ) -> Result<&mut CudaExecution, CudaError> {
        assert!(self.held.is_some(), "a run that has not begun");
        match has_begun {
            true => self.execution.finish_aggregation()?,
            // SAFETY: as in `queue`; the columns are held.
            false => unsafe { self.execution.run_described(&self.launches, output) }?,
        }
        // The device was waited for.
        self.held = None;
        Ok(&mut self.execution)
    }

    /// Waits for what is under way.
    pub(crate) fn abandon(&mut self) {
        self.execution.wait();
        self.held = None;
    }
}
