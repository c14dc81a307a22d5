//! Which buffers of the streamed table a query has to bring to the device, and which are there.

use std::sync::Arc;

use headrace_flow::{ChunkSpec, DEVICE_ALIGN_BYTES, ReadSpec};
use headrace_ir::{Extent, Segment};

use crate::bound::Bound;
use crate::cuda::execution::CudaExecution;
use crate::cuda::layout::{ColumnForm, ColumnLayout, SegmentLayout};
use crate::cuda::program::{CudaProgram, Tuning};
use crate::cuda::resident::{ColumnKey, ResidentColumn};
use crate::error::ExecError;

/// A segment and where it is from, as far as its columns may stay on the device.
#[derive(Clone, Debug)]
pub struct SegmentSource {
    /// The row range and its extents.
    pub segment: Segment,
    /// Identity of the file: bytes that differ when the file does.
    pub file: Arc<[u8]>,
    /// For each source register, the index of its column in the file.
    pub columns: Arc<[u32]>,
}

/// Where one column of a segment comes from.
#[derive(Clone, Debug)]
pub(super) enum ColumnOrigin {
    /// The kernel does not read it.
    Unread,
    /// It is on the device.
    Resident(Arc<ResidentColumn>),
    /// It is read: positions among the chunk's reads.
    Read { values: usize, validity: Option<usize>, form: ColumnForm, key: ColumnKey },
}

/// A segment as the lane launches it.
#[derive(Clone, Debug)]
pub(super) struct PlannedSegment {
    pub(super) rows: u32,
    pub(super) columns: Vec<ColumnOrigin>,
    pub(super) remaps: Vec<Option<u32>>,
}

/// A chunk as the lane launches it.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedChunk {
    pub(super) segments: Vec<PlannedSegment>,
    pub(super) reads: Vec<ReadSpec>,
    pub(super) resident_bytes: u64,
}

/// Chunks with the reads that they still need.
#[derive(Debug, Default)]
pub struct StreamPlan {
    pub(super) chunks: Vec<PlannedChunk>,
    pub(super) query: u64,
    /// The layout of all segments; `None` if there is none.
    pub(super) layout: Option<SegmentLayout>,
}

impl StreamPlan {
    /// Looks for each column that the kernels read among the resident columns; the rest is to
    /// be read from the files, which [`Segment::file`] counts.
    ///
    /// # Errors
    /// [`ExecError::Corrupt`] for an extent that is too short for its rows, and what loading
    /// the kernels gives.
    pub fn new(
        execution: &mut CudaExecution,
        chunks: &[Vec<SegmentSource>],
    ) -> Result<Self, ExecError> {
        let query = execution.device().resident().begin_query();
        let in_files = chunks.iter().flatten().map(|source| SegmentLayout::of(&source.segment));
        let Some(in_files) = SegmentLayout::merged(in_files) else {
            return Ok(Self { query, ..Self::default() });
        };
        let read = columns_read(execution.bound(), &in_files)?;
        let mut plan = Self { chunks: Vec::with_capacity(chunks.len()), query, layout: None };
        for sources in chunks {
            let mut chunk = PlannedChunk::default();
            for source in sources {
                let segment = plan_segment(execution, &read, &mut chunk, source, query)?;
                chunk.segments.push(segment);
            }
            plan.chunks.push(chunk);
        }
        let segments = plan.chunks.iter().flat_map(|chunk| &chunk.segments);
        plan.layout = SegmentLayout::merged(segments.map(PlannedSegment::layout));
        if let Some(layout) = &plan.layout {
            execution.prepare(layout)?;
        }
        Ok(plan)
    }

    /// Whether nothing needs to be read.
    pub fn is_resident(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.reads.is_empty())
    }

    /// What a race has to read, chunk by chunk. Chunks without reads are launched as they are.
    pub fn chunk_specs(&self) -> Vec<ChunkSpec> {
        self.chunks.iter().map(|chunk| ChunkSpec { reads: chunk.reads.clone() }).collect()
    }

    /// Rows of the largest chunk.
    pub(super) fn chunk_rows_max(&self) -> u64 {
        let rows = |chunk: &PlannedChunk| chunk.segments.iter().map(|s| u64::from(s.rows)).sum();
        self.chunks.iter().map(rows).max().unwrap_or(0)
    }

    /// Most segments of a chunk.
    pub(super) fn chunk_segments_max(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.segments.len()).max().unwrap_or(0)
    }

    /// Device bytes that the largest chunk's reads need, each buffer aligned.
    pub(super) fn device_bytes_max(&self) -> usize {
        let bytes = |chunk: &PlannedChunk| {
            chunk
                .reads
                .iter()
                .map(|read| (read.bytes as usize).next_multiple_of(DEVICE_ALIGN_BYTES))
                .sum()
        };
        self.chunks.iter().map(bytes).max().unwrap_or(0)
    }

    /// Host bytes that the largest chunk's reads need.
    pub(super) fn host_bytes_max(&self) -> usize {
        self.chunk_specs().iter().map(ChunkSpec::slot_bytes).max().unwrap_or(0)
    }
}

impl PlannedSegment {
    fn layout(&self) -> SegmentLayout {
        let column = |origin: &ColumnOrigin| match origin {
            ColumnOrigin::Unread => ColumnLayout::plain(),
            ColumnOrigin::Resident(column) => {
                ColumnLayout { form: column.form, validity: column.validity.is_some() }
            }
            ColumnOrigin::Read { validity, form, .. } => {
                ColumnLayout { form: *form, validity: validity.is_some() }
            }
        };
        SegmentLayout { columns: self.columns.iter().map(column).collect() }
    }
}

/// Source columns that a kernel reads, however they lie.
fn columns_read(bound: &Arc<Bound>, layout: &SegmentLayout) -> Result<Vec<usize>, ExecError> {
    let program = CudaProgram::compile(Arc::clone(bound), layout, Tuning::FULL)
        .map_err(|why| ExecError::Internal(format!("not for the CUDA processor: {why}")))?;
    Ok(program.columns_read())
}

fn plan_segment(
    execution: &CudaExecution,
    read: &[usize],
    chunk: &mut PlannedChunk,
    source: &SegmentSource,
    query: u64,
) -> Result<PlannedSegment, ExecError> {
    let segment = &source.segment;
    let bound = Arc::clone(execution.bound());
    let mut columns = vec![ColumnOrigin::Unread; segment.columns.len()];
    for &column in read {
        check_extents(&bound, segment, column)?;
        let Some(&file_column) = source.columns.get(column) else {
            return Err(ExecError::Internal(format!("column {column} has no file column")));
        };
        let key = ColumnKey {
            file: Arc::clone(&source.file),
            column: file_column,
            batch: segment.batch,
            first_row: segment.first_row,
            rows: segment.rows,
        };
        let extents = &segment.columns[column];
        let resident = execution.device().resident().get(&key, query);
        columns[column] = match resident {
            Some(resident) => {
                chunk.resident_bytes +=
                    extents.values.bytes + extents.validity.map_or(0, |v| v.bytes);
                ColumnOrigin::Resident(resident)
            }
            None => {
                let values = add_read(chunk, segment, extents.values);
                let validity = extents.validity.map(|v| add_read(chunk, segment, v));
                let form = ColumnForm::of(&extents.encoding);
                ColumnOrigin::Read { values, validity, form, key }
            }
        };
    }
    let remaps = segment.columns.iter().map(|c| c.remap).collect();
    Ok(PlannedSegment { rows: segment.rows, columns, remaps })
}

fn add_read(chunk: &mut PlannedChunk, segment: &Segment, extent: Extent) -> usize {
    chunk.reads.push(ReadSpec {
        file: segment.file as usize,
        offset: extent.offset,
        bytes: extent.bytes,
    });
    chunk.reads.len() - 1
}

/// The kernel reads what the number of rows asks for, so the buffers must have it.
fn check_extents(bound: &Bound, segment: &Segment, column: usize) -> Result<(), ExecError> {
    let info = &bound.registers[column];
    let extents = &segment.columns[column];
    let rows = u64::from(segment.rows);
    let corrupt = |cause: String| Err(ExecError::Corrupt { column: info.name.clone(), cause });
    let Some(needed) = extents.encoding.values_bytes(&info.data_type, rows) else {
        return corrupt("text that lies as offsets and bytes".into());
    };
    if extents.values.bytes < needed {
        let have = extents.values.bytes;
        return corrupt(format!("{rows} rows need {needed} bytes of values, there are {have}"));
    }
    match extents.validity {
        Some(validity) if validity.bytes < rows.div_ceil(8) => {
            corrupt(format!("{rows} rows have {} bytes of validity", validity.bytes))
        }
        _ => Ok(()),
    }
}
