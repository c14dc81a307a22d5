//! Which buffers of the streamed table a query has to bring to the device, and which are there.
//!
//! Every device has a plan of its own over the same chunks: a chunk names all of its reads, and a
//! device says which of them it has. A chunk is dealt to a device by file, batch and row alone, so
//! that each device finds again what it kept. Where all that was planned fits the devices, a chunk
//! goes to its own; else another device that takes it because it has nothing to do keeps the
//! columns too, and the chunk is its own from then on.
//!
//! What is there when a run is made is planned at once: whether all of it is resident, and one
//! layout for all, are asked of the whole. Chunks that come while the race runs are planned by the
//! device that begins them, and forgotten when it is done with them.

use std::collections::HashMap;
use std::sync::Arc;

use headrace_columns::ColumnError;
use headrace_io::Kept;
use headrace_ir::pages::PagePlan;
use headrace_ir::{Encoding, Extent, Segment};
use headrace_pipeline::ExecError;
use headrace_pipeline::bound::Bound;

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::execution::CudaExecution;
use crate::layout::{ColumnForm, ColumnLayout, SegmentLayout, base_of};
use crate::pages::PageDecoding;
use crate::program::CudaProgram;
use crate::resident::{ColumnKey, FileId, KeptPages, NO_COLUMN, PagesKey, ResidentColumn};
use crate::stream_chunks::{ChunkSource, SegmentSource};
use crate::tuning::Tuning;

/// Where one column of a segment comes from.
#[derive(Clone, Debug)]
pub(crate) enum ColumnOrigin {
    /// The kernel does not read it.
    Unread,
    /// It is on the device.
    Resident(Arc<Kept<ResidentColumn>>),
    /// It is read: positions among the chunk's reads.
    Read {
        values: usize,
        offsets: Option<usize>,
        /// What offsets, or differences, count from.
        base: i64,
        validity: Option<usize>,
        form: ColumnForm,
        key: Option<ColumnKey>,
    },
    /// It lies in pages, and will lie so.
    Decoded(ColumnLayout),
}

/// A segment as the lane launches it.
#[derive(Clone, Debug)]
pub(crate) struct PlannedSegment {
    pub(crate) rows: u32,
    pub(crate) columns: Vec<ColumnOrigin>,
    pub(crate) remaps: Vec<Option<u32>>,
    /// Where its rows are in pages: it has none yet, or they are kept ones.
    pub(crate) pages: Option<PlannedPages>,
}

/// The pages of a segment.
#[derive(Clone, Debug)]
pub(crate) struct PlannedPages {
    pub(crate) segment: Segment,
    /// Their position among the chunk's reads; `None`: their rows were kept.
    pub(crate) read: Option<usize>,
    /// Under what their columns may stay.
    pub(crate) key: Option<PagesKey>,
}

/// A chunk as the lane launches it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedChunk {
    pub(crate) segments: Vec<PlannedSegment>,
    /// Of each read whether the device has it.
    pub(crate) resident: Vec<bool>,
    pub(crate) resident_bytes: u64,
    /// Whether it is this device that is to take it.
    pub(crate) is_own: bool,
}

/// Chunks with what a device has of them.
#[derive(Debug, Default)]
pub(crate) struct StreamPlan {
    chunks: Vec<PlannedChunk>,
    /// Chunks of the rest that the device works on, by number.
    later: HashMap<usize, PlannedChunk>,
    files: FileIds,
    pub(crate) query: u64,
    /// Columns that the kernels read.
    pub(crate) read: Vec<usize>,
    /// One layout for all segments so far; `None` if there is none.
    pub(crate) layout: Option<SegmentLayout>,
    /// How pages become columns.
    pub(crate) pages: Option<PageDecoding>,
}

impl StreamPlan {
    /// Looks for each column that the kernels read among the resident columns of the execution's
    /// device; the rest is to be read. `in_files` is the layout of the segments as they lie, those
    /// of the chunks and those that come later, or will when they are decoded by the plan of `pages`;
    /// without any, nothing comes.
    ///
    /// # Errors
    /// [`ColumnError::Corrupt`] for an extent that is too short for its rows, and what loading
    /// the kernels gives.
    pub(crate) fn new(
        execution: &mut CudaExecution,
        chunks: &[ChunkSource],
        in_files: Option<&SegmentLayout>,
        pages: Option<&PagePlan>,
    ) -> Result<Self, CudaError> {
        let query = execution.device().resident().begin_query();
        let Some(in_files) = in_files else { return Ok(Self { query, ..Self::default() }) };
        let read = columns_read(execution.bound(), in_files)?;
        let pages = pages.map(|pages| PageDecoding::new(pages, &read)).transpose();
        let pages = pages.map_err(|why| ExecError::Internal(why.to_string()))?;
        let mut plan = Self { query, read, pages, ..Self::default() };
        for chunk in chunks {
            let planned = plan.planned(execution, chunk)?;
            plan.chunks.push(planned);
        }
        let segments = plan.chunks.iter().flat_map(|chunk| &chunk.segments);
        let layouts = segments.map(PlannedSegment::layout);
        // Without any, what is to come is taken for what it is said to be.
        let layout = SegmentLayout::merged(layouts).unwrap_or_else(|| in_files.only(&plan.read));
        execution.prepare(&layout)?;
        plan.layout = Some(layout);
        Ok(plan)
    }

    fn planned(
        &mut self,
        execution: &CudaExecution,
        chunk: &ChunkSource,
    ) -> Result<PlannedChunk, CudaError> {
        let mut planned = PlannedChunk::default();
        for source in &chunk.segments {
            let file = source.file.as_ref().map(|file| self.files.of(execution, file));
            if source.segment.is_pages() {
                let segment = self.plan_pages(execution, &mut planned, source, file)?;
                planned.segments.push(segment);
                continue;
            }
            let at = (file, self.query);
            let segment = plan_segment(execution, &self.read, &mut planned, source, at)?;
            planned.segments.push(segment);
        }
        Ok(planned)
    }

    fn plan_pages(
        &self,
        execution: &CudaExecution,
        chunk: &mut PlannedChunk,
        source: &SegmentSource,
        file: Option<FileId>,
    ) -> Result<PlannedSegment, CudaError> {
        let segment = source.segment.clone();
        let (Some(pages), Some(extents)) = (&self.pages, segment.columns.first()) else {
            return Err(ExecError::Internal("pages of a table that has none".into()).into());
        };
        let bound = execution.bound();
        let mut columns = vec![ColumnOrigin::Unread; bound.source_registers];
        if let Some(kept) = &source.kept {
            for (&register, column) in self.read.iter().zip(&kept.columns) {
                columns[register] = ColumnOrigin::Resident(Arc::clone(column));
            }
            chunk.resident_bytes += extents.values.bytes;
            let remaps = vec![None; columns.len()];
            let pages = Some(PlannedPages { segment, read: None, key: None });
            return Ok(PlannedSegment { rows: kept.rows, columns, remaps, pages });
        }
        for column in pages.columns() {
            // Only where it is declared without NULLs does a kernel look whether there is a bitmap.
            let validity = column.nullable && !bound.registers[column.register].nullable;
            let layout = ColumnLayout { form: column.form, validity };
            columns[column.register] = ColumnOrigin::Decoded(layout);
        }
        let read = Some(add_read(chunk, extents.values, false));
        let key = file.map(|file| PagesKey {
            key: key_of(source, file, NO_COLUMN),
            columns: Arc::clone(&source.columns),
        });
        let pages = Some(PlannedPages { segment, read, key });
        Ok(PlannedSegment { rows: 0, columns, remaps: Vec::new(), pages })
    }

    /// Makes ready to work on a chunk: one of the rest is planned now, and the layout grows
    /// where it lies otherwise than those before.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn begin(
        &mut self,
        execution: &mut CudaExecution,
        number: usize,
        chunk: &ChunkSource,
    ) -> Result<(), CudaError> {
        if number < self.chunks.len() {
            return Ok(());
        }
        let planned = self.planned(execution, chunk)?;
        let layouts = planned.segments.iter().map(PlannedSegment::layout);
        let layout = SegmentLayout::merged(self.layout.clone().into_iter().chain(layouts));
        if layout != self.layout
            && let Some(layout) = &layout
        {
            execution.prepare(layout)?;
        }
        self.layout = layout;
        self.later.insert(number, planned);
        Ok(())
    }

    /// A chunk that was planned, or was begun.
    pub(crate) fn chunk_mut(&mut self, number: usize) -> Option<&mut PlannedChunk> {
        match self.chunks.get_mut(number) {
            Some(chunk) => Some(chunk),
            None => self.later.get_mut(&number),
        }
    }

    /// The work on a chunk is done.
    pub(crate) fn retire(&mut self, number: usize) {
        self.later.remove(&number);
    }

    /// Says which chunks the device is to take.
    pub(crate) fn set_own(&mut self, is_own: impl Fn(usize) -> bool) {
        for (number, chunk) in self.chunks.iter_mut().enumerate() {
            chunk.is_own = is_own(number);
        }
    }

    /// Bytes of a chunk that the device has.
    pub(crate) fn resident_bytes(&self, chunk: usize) -> u64 {
        self.chunks[chunk].resident_bytes
    }

    /// Whether the device has all that it is to work on.
    pub(crate) fn is_resident(&self) -> bool {
        self.own_chunks().flat_map(|chunk| &chunk.resident).all(|resident| *resident)
    }

    /// Chunks that are the device's own.
    pub(crate) fn own_chunks(&self) -> impl Iterator<Item = &PlannedChunk> {
        self.chunks.iter().filter(|chunk| chunk.is_own)
    }
}

/// Numbers of the files of a plan: the segments of a file share what tells it from others.
#[derive(Debug, Default)]
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
            ColumnOrigin::Decoded(layout) => layout.clone(),
        };
        SegmentLayout { columns: self.columns.iter().map(column).collect() }
    }
}

/// Source columns that a kernel reads, however they lie.
fn columns_read(bound: &Arc<Bound>, layout: &SegmentLayout) -> Result<Vec<usize>, CudaError> {
    let program = CudaProgram::compile(Arc::clone(bound), layout, Tuning::FULL)
        .map_err(|why| ExecError::Internal(format!("not for the CUDA processor: {why}")))?;
    Ok(program.columns_read())
}

fn plan_segment(
    execution: &CudaExecution,
    read: &[usize],
    chunk: &mut PlannedChunk,
    source: &SegmentSource,
    (file, query): (Option<FileId>, u64),
) -> Result<PlannedSegment, CudaError> {
    let segment = &source.segment;
    let bound = Arc::clone(execution.bound());
    let mut columns = vec![ColumnOrigin::Unread; segment.columns.len()];
    for &column in read {
        check_extents(&bound, segment, column)?;
        let Some(&file_column) = source.columns.get(column) else {
            return Err(ExecError::Internal(format!("column {column} has no file column")).into());
        };
        let extents = &segment.columns[column];
        let key = file.map(|file| key_of(source, file, file_column));
        let resident = key.and_then(|key| execution.device().resident().get(&key, query));
        let is_resident = resident.is_some();
        let values = add_read(chunk, extents.values, is_resident);
        let offsets = extents.offsets.map(|offsets| add_read(chunk, offsets, is_resident));
        let validity = extents.validity.map(|v| add_read(chunk, v, is_resident));
        columns[column] = match resident {
            Some(resident) => ColumnOrigin::Resident(resident),
            None => {
                let form = ColumnForm::of(&extents.encoding);
                let base = base_of(&extents.encoding, extents.offsets_base);
                ColumnOrigin::Read { values, offsets, base, validity, form, key }
            }
        };
    }
    let remaps = segment.columns.iter().map(|c| c.remap).collect();
    Ok(PlannedSegment { rows: segment.rows, columns, remaps, pages: None })
}

pub(crate) fn key_of(source: &SegmentSource, file: FileId, column: u32) -> ColumnKey {
    let (stamp, &Segment { batch, first_row, rows, .. }) = (source.stamp, &source.segment);
    let (first_row, rows) = match source.segment.columns.first().map(|column| &column.encoding) {
        Some(&Encoding::Pages { block_bytes }) => {
            let Extent { offset, bytes } = source.segment.columns[0].values;
            let pages = |bytes: u64| bytes / u64::from(block_bytes.max(1));
            (pages(offset), pages(bytes) as u32)
        }
        _ => (first_row, rows),
    };
    ColumnKey { file, column, batch, first_row, rows, stamp }
}

/// What a device has kept of the rows of a segment of pages, if that is all that is read.
pub(crate) fn kept_pages(
    (number, device): (usize, &CudaDevice),
    query: u64,
    read: &[usize],
    source: &SegmentSource,
) -> Option<KeptPages> {
    let (resident, identity) = (device.resident(), source.file.as_ref()?);
    let file = resident.file_id(identity);
    let get = |column: u32| resident.get(&key_of(source, file, column), query);
    let column = |&register: &usize| get(*source.columns.get(register)?);
    let columns: Vec<_> = match read {
        [] => vec![get(NO_COLUMN)?],
        read => read.iter().map(column).collect::<Option<_>>()?,
    };
    let rows = columns.first()?.rows;
    Some(KeptPages { device: number, rows, columns })
}

/// Bytes of a chunk's columns that a device has.
pub(crate) fn resident_bytes(device: &CudaDevice, read: &[usize], chunk: &ChunkSource) -> u64 {
    let resident = device.resident();
    let of_segment = |source: &SegmentSource| -> u64 {
        let Some(identity) = &source.file else { return 0 };
        let file = resident.file_id(identity);
        let of_column = |&column: &usize| {
            let key = key_of(source, file, *source.columns.get(column)?);
            let extents = source.segment.columns.get(column)?;
            let others = extents.offsets.into_iter().chain(extents.validity);
            let bytes = extents.values.bytes + others.map(|extent| extent.bytes).sum::<u64>();
            resident.has(&key).then_some(bytes)
        };
        read.iter().filter_map(of_column).sum()
    };
    chunk.segments.iter().map(of_segment).sum()
}

/// The next of a chunk's reads, which stand in the order of [`ChunkSource::reads`].
fn add_read(chunk: &mut PlannedChunk, extent: Extent, is_resident: bool) -> usize {
    chunk.resident.push(is_resident);
    chunk.resident_bytes += if is_resident { extent.bytes } else { 0 };
    chunk.resident.len() - 1
}

/// The kernel reads what the number of rows asks for, so the buffers must have it.
fn check_extents(bound: &Bound, segment: &Segment, column: usize) -> Result<(), ExecError> {
    let info = &bound.registers[column];
    let extents = &segment.columns[column];
    let rows = u64::from(segment.rows);
    let corrupt =
        |cause: String| Err(ColumnError::Corrupt { column: info.name.clone(), cause }.into());
    let (values, needed) = match (&extents.encoding, extents.offsets) {
        // What they point into, the kernel checks.
        (Encoding::Offsets { offset_bytes }, Some(offsets)) => {
            (offsets, (rows + 1) * u64::from(*offset_bytes))
        }
        (encoding, _) => match encoding.values_bytes(&info.data_type, rows) {
            Some(needed) => (extents.values, needed),
            None => return corrupt("it does not lie as a column".into()),
        },
    };
    if values.bytes < needed {
        let have = values.bytes;
        return corrupt(format!("{rows} rows need {needed} bytes of values, there are {have}"));
    }
    match extents.validity {
        Some(validity) if validity.bytes < rows.div_ceil(8) => {
            corrupt(format!("{rows} rows have {} bytes of validity", validity.bytes))
        }
        _ => Ok(()),
    }
}
