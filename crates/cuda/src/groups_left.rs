//! Groups that a run left on its device, for a pipeline that reads them there.
//!
//! ```text
//! group table ─► columns of a window of groups ─► the reading pipeline's kernel ─► its own state
//!                 ▲                                        │
//!                 └────────── the next window ◄────────────┘
//! ```
//!
//! The table stays as it is: if the pipeline does not run here, its groups still go to the host.

use std::sync::Arc;

use headrace_gpu::DeviceBuffer;
use headrace_ir::{AggregateOutput, Source};
use headrace_pipeline::bound::{Bound, BoundSink};
use headrace_pipeline::{ExecError, SourceInfo, WhyNot};

use crate::device::CudaDevice;
use crate::device_state::{DeviceState, GroupBuffers};
use crate::error::CudaError;
use crate::execution::CudaExecution;
use crate::group_columns::{ColumnTarget, GroupColumn, all_fit};
use crate::layout::SegmentLayout;
use crate::program::{CudaProgram, DeviceColumn, DeviceSegment};
use crate::rows::RowOutput;
use crate::tuning::Tuning;

/// Device memory of the columns of all windows.
const WINDOW_BYTES_MAX: u64 = 1 << 30;

/// Groups of a window, at most and at least: what the kernels of a rows sink may put out at once, and what keeps a GPU
/// busy.
const WINDOW_ROWS_MAX: u64 = 16 << 20;
const WINDOW_ROWS_MIN: u64 = 1 << 16;

/// The groups of one run, all of them in the table of one device.
pub struct GroupsLeft<'a> {
    execution: &'a CudaExecution,
    state: &'a DeviceState,
    groups: &'a GroupBuffers,
    columns: Vec<GroupColumn>,
    rows: u64,
}

impl CudaExecution {
    /// Waits for all launches; the groups that they left, if these are all of the run's. `is_only`: no
    /// other device has any.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn groups_left(&self, is_only: bool) -> Result<GroupsLeft<'_>, WhyNot> {
        let BoundSink::Aggregate { output, .. } = &self.bound().sink else {
            return Err(WhyNot::new("rows come to the host"));
        };
        if !matches!(output, AggregateOutput::Final | AggregateOutput::OfNone(_)) {
            return Err(WhyNot::new("not all groups are wanted, or not as results"));
        }
        let state = self.state().ok_or_else(|| WhyNot::new("no row came"))?;
        let Some(groups) = &state.groups else {
            return Err(WhyNot::new("groups by number are few, and come to the host"));
        };
        if !is_only {
            return Err(WhyNot::new("groups of several GPUs are merged on the host"));
        }
        if self.has_flushed() {
            return Err(WhyNot::new("there were more groups than device memory may hold"));
        }
        let Some(program) = self.kernels().map(|kernel| &kernel.program).next() else {
            return Err(WhyNot::new("no row came"));
        };
        let columns = GroupColumn::of(self.bound(), &groups.layout, &program.accumulators)?;
        let failed = |error: CudaError| WhyNot::new(error.to_string());
        self.synchronize().map_err(failed)?;
        let used = state.take_groups_used(self.stream()).map_err(failed)?;
        let rows = groups.room.groups(used) as u64;
        if rows == 0 && matches!(output, AggregateOutput::OfNone(_)) {
            return Err(WhyNot::new("the groups of no rows are the host's"));
        }
        Ok(GroupsLeft { execution: self, state, groups, columns, rows })
    }
}

/// What a pipeline over the groups of several runs, one after the other, knows before it runs; `source` says which columns
/// it reads.
///
/// # Errors
/// [`ExecError::Internal`] for columns that they do not have; [`ExecError::WhyNot`] for texts of several dictionaries.
pub fn info_of(lefts: &[&GroupsLeft<'_>], source: &Source) -> Result<SourceInfo, ExecError> {
    let mut info = SourceInfo::default();
    for (number, left) in lefts.iter().enumerate() {
        let columns = left.read(source)?.into_iter().map(GroupColumn::info);
        match number {
            0 => info.columns = columns.collect(),
            _ => {
                for (column, other) in info.columns.iter_mut().zip(columns) {
                    *column = column.with(&other)?;
                }
            }
        }
        info.rows_max += left.rows.max(1);
    }
    Ok(info)
}

/// Runs a pipeline over groups that was bound for [`info_of`] these. Its rows go to `output`, as do hashed groups when their
/// table fills.
///
/// # Errors
/// What the CUDA processor cannot do, a result that does not fit its type, as a [`WhyNot`]; nothing
/// has gone to `output` then. The failure of a row, or [`CudaError::Gpu`].
pub(crate) fn run(
    lefts: &[&GroupsLeft<'_>],
    source: &Source,
    bound: &Arc<Bound>,
    output: &RowOutput<'_>,
) -> Result<CudaExecution, CudaError> {
    let Some((first, others)) = lefts.split_first() else {
        return Err(ExecError::Internal("groups of no run".into()).into());
    };
    let device = first.execution.device();
    if others.iter().any(|other| !Arc::ptr_eq(other.execution.device(), device)) {
        return Err(WhyNot::new("the groups lie on several GPUs").into());
    }
    let mut layouts: Vec<SegmentLayout> = Vec::with_capacity(lefts.len());
    for left in lefts {
        let layout = left.layout(source)?;
        if !layouts.contains(&layout) {
            CudaProgram::compile(Arc::clone(bound), &layout, Tuning::FULL)?;
            layouts.push(layout);
        }
        left.check_fit()?;
    }
    let mut execution = CudaExecution::new(device, bound, &layouts)?;
    // A kernel of another pipeline may load other columns ahead.
    let read: Vec<usize> =
        execution.kernels().flat_map(|kernel| kernel.program.columns_read()).collect();
    // All of them before the first row goes to the output: there may be too little memory.
    let window = |left: &&GroupsLeft<'_>| left.window(source, &read, lefts.len() as u64);
    let windows = lefts.iter().map(window).collect::<Result<Vec<_>, _>>()?;
    let ran = lefts.iter().zip(&windows).try_for_each(|(left, window)| {
        left.run_windows(&mut execution, (source, &read), window, output)
    });
    if ran.is_err() {
        // Kernels may still use a window.
        execution.wait();
    }
    ran.map(|()| execution)
}

impl GroupsLeft<'_> {
    /// How many there are.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    fn read(&self, source: &Source) -> Result<Vec<&GroupColumn>, ExecError> {
        let missing =
            || ExecError::Internal(format!("columns of {} that are not there", source.table));
        source.ordinals.iter().map(|&column| self.columns.get(column).ok_or_else(missing)).collect()
    }

    /// How the columns lie once they are made.
    fn layout(&self, source: &Source) -> Result<SegmentLayout, ExecError> {
        let columns = self.read(source)?.into_iter().map(GroupColumn::layout).collect();
        Ok(SegmentLayout { columns })
    }

    /// Of the registers that kernels read, which column each is.
    fn wanted(
        &self,
        source: &Source,
        read: &[usize],
    ) -> Result<Vec<(usize, &GroupColumn)>, ExecError> {
        let columns = self.read(source)?.into_iter().enumerate();
        Ok(columns.filter(|(register, _)| read.contains(register)).collect())
    }

    /// A window, of so many that there are at a time.
    fn window(&self, source: &Source, read: &[usize], windows: u64) -> Result<Window, CudaError> {
        let device = self.execution.device();
        Window::new(device, &self.wanted(source, read)?, self.rows, WINDOW_BYTES_MAX / windows)
    }

    /// Runs an execution over all of them, whose kernels may use the window until the execution has waited.
    fn run_windows(
        &self,
        execution: &mut CudaExecution,
        (source, read): (&Source, &[usize]),
        window: &Window,
        output: &RowOutput<'_>,
    ) -> Result<(), CudaError> {
        let layout = &self.layout(source)?;
        let columns = &self.wanted(source, read)?;
        for first in (0..self.rows).step_by(window.rows as usize) {
            if output.is_enough() {
                break;
            }
            let rows = (first, window.rows.min(self.rows - first));
            let segment = self.make(execution, window, columns, rows)?;
            let segments = std::slice::from_ref(&segment);
            // SAFETY: the window's buffers hold these rows in this layout, written earlier on the execution's
            // stream, and texts point into the table. Both stay until the kernels are done, for which the
            // execution waits in the call, and the caller if it fails.
            unsafe { execution.run(layout, segments, window.rows, output) }?;
        }
        Ok(())
    }

    /// That every result fits its type: nothing may be read before.
    fn check_fit(&self) -> Result<(), CudaError> {
        let (device, stream) = (self.execution.device(), self.execution.stream());
        let groups = (&self.state.group_addresses(self.groups), self.rows);
        // SAFETY: the execution holds the groups, and no kernel of it runs.
        match unsafe { all_fit(device, stream, &self.columns, groups) }? {
            true => Ok(()),
            false => Err(WhyNot::new("a result of a group does not fit its type").into()),
        }
    }

    /// Queues the making of the columns of a window in the stream of the pipeline that reads them.
    fn make(
        &self,
        execution: &CudaExecution,
        window: &Window,
        wanted: &[(usize, &GroupColumn)],
        rows: (u64, u64),
    ) -> Result<DeviceSegment, CudaError> {
        let groups = self.state.group_addresses(self.groups);
        let registers = execution.bound().source_registers;
        let mut columns = vec![DeviceColumn::default(); registers];
        for ((register, column), (values, validity)) in wanted.iter().zip(&window.columns) {
            let validity = validity.as_ref().map(DeviceBuffer::ptr);
            let to = ColumnTarget {
                values: values.ptr(),
                validity: validity.unwrap_or(0),
                misfit: window.misfit.ptr(),
            };
            // SAFETY: the buffers have room for a window of rows; they and the groups outlive the execution's
            // kernels, as `run` sees to.
            unsafe { column.queue(execution.device(), execution.stream(), &groups, rows, to) }?;
            columns[*register] = DeviceColumn {
                values: values.ptr(),
                form: column.layout().form,
                validity,
                ..DeviceColumn::default()
            };
        }
        Ok(DeviceSegment { rows: rows.1 as u32, columns })
    }
}

/// Buffers for the columns of so many groups.
struct Window {
    rows: u64,
    /// Values and validity.
    columns: Vec<(DeviceBuffer, Option<DeviceBuffer>)>,
    /// Nobody looks at it: all fits.
    misfit: DeviceBuffer,
}

impl Window {
    fn new(
        device: &CudaDevice,
        wanted: &[(usize, &GroupColumn)],
        groups: u64,
        bytes_max: u64,
    ) -> Result<Self, CudaError> {
        const SAMPLE_ROWS: u64 = 1 << 10;
        let bytes =
            |rows| wanted.iter().map(|(_, c)| c.value_bytes(rows) + c.validity_bytes(rows)).sum();
        let sample_bytes: u64 = bytes(SAMPLE_ROWS);
        let rows = (bytes_max * SAMPLE_ROWS / sample_bytes.max(1))
            .clamp(WINDOW_ROWS_MIN, WINDOW_ROWS_MAX)
            .min(groups)
            .max(1)
            .next_multiple_of(64);
        let buffers = |(_, column): &(usize, &GroupColumn)| {
            let values = device.alloc(column.value_bytes(rows) as usize)?;
            let validity = match column.validity_bytes(rows) {
                0 => None,
                bytes => Some(device.alloc(bytes as usize)?),
            };
            Ok((values, validity))
        };
        let columns = wanted.iter().map(buffers).collect::<Result<_, CudaError>>()?;
        Ok(Self { rows, columns, misfit: device.alloc(16)? })
    }
}
