//! Which buffers of the streamed table a query has to bring to the device, and which are there.
//!
//! Every device has a plan of its own over the same chunks: a chunk names all of its reads, and a
//! device says which of them it has. A chunk is dealt to a device by file, batch and row alone, so
//! that each device finds again what it kept. Another device that takes the chunk because it has
//! nothing to do keeps the columns too, and the chunk is its own from then on.

use std::sync::Arc;

use headrace_flow::{ChunkSpec, DEVICE_ALIGN_BYTES, ReadSpec};
use headrace_io::Kept;
use headrace_ir::{Extent, Segment};

use crate::bound::Bound;
use crate::cuda::execution::CudaExecution;
use crate::cuda::layout::{ColumnForm, ColumnLayout, SegmentLayout};
use crate::cuda::program::{CudaProgram, Tuning};
use crate::cuda::resident::{ColumnKey, FileId, ResidentColumn};
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

impl SegmentSource {
    /// One of `devices` devices, the same in each query.
    fn device(&self, devices: usize) -> usize {
        let file = self.file.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let part = self.segment.first_row / u64::from(self.segment.rows.max(1));
        let number = (file >> 32).wrapping_add(u64::from(self.segment.batch)).wrapping_add(part);
        (number % devices.max(1) as u64) as usize
    }
}

/// Segments that one device takes together.
#[derive(Clone, Debug, Default)]
pub struct ChunkSource {
    /// The device that takes it, unless another has its columns or nothing to do.
    pub device: usize,
    /// In the order of the table.
    pub segments: Vec<SegmentSource>,
}

/// Deals segments out to `devices` devices, in chunks of at most `chunk_bytes` bytes and
/// `segments_max` segments, but at least a segment.
pub fn chunked(
    segments: impl IntoIterator<Item = SegmentSource>,
    devices: usize,
    chunk_bytes: u64,
    segments_max: usize,
) -> Vec<ChunkSource> {
    let mut chunks: Vec<ChunkSource> = Vec::new();
    // The last chunk of each device, and its bytes.
    let mut open: Vec<Option<(usize, u64)>> = vec![None; devices.max(1)];
    for source in segments {
        let device = source.device(devices);
        let bytes: u64 = source.segment.extents().map(|extent| extent.bytes).sum();
        match &mut open[device] {
            Some((chunk, filled))
                if *filled + bytes <= chunk_bytes
                    && chunks[*chunk].segments.len() < segments_max =>
            {
                *filled += bytes;
                chunks[*chunk].segments.push(source);
            }
            last => {
                *last = Some((chunks.len(), bytes));
                chunks.push(ChunkSource { device, segments: vec![source] });
            }
        }
    }
    chunks
}

/// Where one column of a segment comes from.
#[derive(Clone, Debug)]
pub(super) enum ColumnOrigin {
    /// The kernel does not read it.
    Unread,
    /// It is on the device.
    Resident(Arc<Kept<ResidentColumn>>),
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
    /// Of each read whether the device has it.
    pub(super) resident: Vec<bool>,
    pub(super) resident_bytes: u64,
    /// Whether it is this device that is to take it.
    pub(super) is_own: bool,
}

/// Chunks with what a device has of them.
#[derive(Debug, Default)]
pub struct StreamPlan {
    pub(super) chunks: Vec<PlannedChunk>,
    pub(super) query: u64,
    /// The layout of all segments; `None` if there is none.
    pub(super) layout: Option<SegmentLayout>,
}

impl StreamPlan {
    /// Looks for each column that the kernels read among the resident columns of the execution's
    /// device; the rest is to be read from the files, which [`Segment::file`] counts.
    ///
    /// # Errors
    /// [`ExecError::Corrupt`] for an extent that is too short for its rows, and what loading
    /// the kernels gives.
    pub fn new(execution: &mut CudaExecution, chunks: &[ChunkSource]) -> Result<Self, ExecError> {
        let query = execution.device().resident().begin_query();
        let sources = chunks.iter().flat_map(|chunk| &chunk.segments);
        let in_files = sources.map(|source| SegmentLayout::of(&source.segment));
        let Some(in_files) = SegmentLayout::merged(in_files) else {
            return Ok(Self { query, ..Self::default() });
        };
        let read = columns_read(execution.bound(), &in_files)?;
        let mut files = FileIds::default();
        let mut plan = Self { chunks: Vec::with_capacity(chunks.len()), query, layout: None };
        for source in chunks {
            let mut chunk = PlannedChunk::default();
            for source in &source.segments {
                let file = files.of(execution, &source.file);
                let at = (file, query);
                let segment = plan_segment(execution, &read, &mut chunk, source, at)?;
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

    /// Says which chunks the device is to take.
    pub(super) fn set_own(&mut self, is_own: impl Fn(usize) -> bool) {
        for (number, chunk) in self.chunks.iter_mut().enumerate() {
            chunk.is_own = is_own(number);
        }
    }

    /// Bytes of a chunk that the device has.
    pub(super) fn resident_bytes(&self, chunk: usize) -> u64 {
        self.chunks[chunk].resident_bytes
    }

    /// Whether the device has all that it is to work on.
    pub fn is_resident(&self) -> bool {
        self.own_chunks().flat_map(|chunk| &chunk.resident).all(|resident| *resident)
    }

    /// Chunks that are the device's own.
    pub(super) fn own_chunks(&self) -> impl Iterator<Item = &PlannedChunk> {
        self.chunks.iter().filter(|chunk| chunk.is_own)
    }

    /// What a race has to read, chunk by chunk, where a device has nothing.
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

    /// Bytes that the largest chunk needs of a slot: on the host, where reads are widened, and on
    /// the device, where buffers are aligned.
    pub fn slot_bytes(&self) -> usize {
        let aligned = |read: &ReadSpec| (read.bytes as usize).next_multiple_of(DEVICE_ALIGN_BYTES);
        let bytes = |chunk: &PlannedChunk| {
            let on_device: usize = chunk.reads.iter().map(aligned).sum();
            on_device.max(ChunkSpec { reads: chunk.reads.clone() }.slot_bytes())
        };
        self.chunks.iter().map(bytes).max().unwrap_or(0)
    }
}

/// Numbers of the files of a plan: the segments of a file share what tells it from others.
#[derive(Default)]
struct FileIds {
    last: Option<(Arc<[u8]>, FileId)>,
}

impl FileIds {
    fn of(&mut self, execution: &CudaExecution, identity: &Arc<[u8]>) -> FileId {
        match &self.last {
            Some((known, id)) if Arc::ptr_eq(known, identity) => *id,
            _ => {
                let id = execution.device().resident().file_id(identity);
                self.last = Some((Arc::clone(identity), id));
                id
            }
        }
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
    (file, query): (FileId, u64),
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
            file,
            column: file_column,
            batch: segment.batch,
            first_row: segment.first_row,
            rows: segment.rows,
        };
        let extents = &segment.columns[column];
        let resident = execution.device().resident().get(&key, query);
        let is_resident = resident.is_some();
        let values = add_read(chunk, segment, extents.values, is_resident);
        let validity = extents.validity.map(|v| add_read(chunk, segment, v, is_resident));
        columns[column] = match resident {
            Some(resident) => ColumnOrigin::Resident(resident),
            None => {
                let form = ColumnForm::of(&extents.encoding);
                ColumnOrigin::Read { values, validity, form, key }
            }
        };
    }
    let remaps = segment.columns.iter().map(|c| c.remap).collect();
    Ok(PlannedSegment { rows: segment.rows, columns, remaps })
}

fn add_read(
    chunk: &mut PlannedChunk,
    segment: &Segment,
    extent: Extent,
    is_resident: bool,
) -> usize {
    chunk.resident.push(is_resident);
    chunk.resident_bytes += if is_resident { extent.bytes } else { 0 };
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
