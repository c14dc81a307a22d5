//! Segments on their way to devices: which device a segment is dealt to, and what is read of a
//! chunk of them.
//!
//! Segments are dealt to the GPUs near their file by file, batch and row. A chunk belongs to the GPU that holds most of its reads, and
//! where a run fits its GPUs, none takes another's chunks. Else an idle GPU takes those of another that are as near to it.

use std::sync::Arc;

use headrace_flow::{DEVICE_ALIGN_BYTES, ReadSpec};
use headrace_io::{Lanes, Placement, ReadAt};
use headrace_ir::{Extent, Segment};

use crate::resident::KeptPages;

/// Pages of a file of which a device is dealt so many in a row.
const PAGES_PART_BYTES: u64 = 16 << 20;

/// A segment and where it is from, as far as its columns may stay on the device.
#[derive(Clone, Debug)]
pub struct SegmentSource {
    /// The row range and its extents.
    pub segment: Segment,
    /// Where the extents lie; `None`: there are none.
    pub from: Option<Arc<dyn ReadAt>>,
    /// Identity of the file: bytes that differ when the file does. `None`: no column stays.
    pub file: Option<Arc<[u8]>>,
    /// For each source register, the index of its column in the file.
    pub columns: Arc<[u32]>,
    /// The stamp of pages that may stay; 0 of a file as it is.
    pub stamp: u64,
    /// The rows of its pages, where a device has kept them: nothing of it is read.
    pub kept: Option<KeptPages>,
    /// The devices that are nearest to where the extents lie.
    pub near: Lanes,
}

impl SegmentSource {
    /// One of the nearest of `devices` devices, the same in each query, or the one that has kept its rows.
    fn device(&self, devices: usize) -> usize {
        if let Some(kept) = &self.kept {
            return kept.device;
        }
        let identity = self.file.iter().flat_map(|file| file.iter());
        let file = identity.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let part = match self.segment.columns.first() {
            Some(column) if self.segment.is_pages() => column.values.offset / PAGES_PART_BYTES,
            _ => self.segment.first_row / u64::from(self.segment.rows.max(1)),
        };
        let number = (file >> 32).wrapping_add(u64::from(self.segment.batch)).wrapping_add(part);
        let near = match self.near.of(devices).count() {
            0 => Lanes::ALL,
            _ => self.near,
        };
        let among = near.of(devices).count().max(1) as u64;
        near.of(devices).nth((number % among) as usize).unwrap_or(0)
    }

    /// Bytes that it takes of a slot, all columns read.
    fn slot_bytes(&self) -> u64 {
        match &self.kept {
            Some(_) => 0,
            None => self.segment.extents().map(|extent| extent_slot_bytes(extent) as u64).sum(),
        }
    }

    fn rows(&self) -> u32 {
        self.kept.as_ref().map_or(self.segment.rows, |kept| kept.rows)
    }

    /// Segments of a chunk are of one kind: of columns, of pages, or kept.
    fn kind(&self) -> (bool, bool) {
        (self.segment.is_pages(), self.kept.is_some())
    }
}

/// Bytes that an extent takes of a slot: on the host, where reads are widened, or on the device,
/// where buffers are aligned.
fn extent_slot_bytes(extent: Extent) -> usize {
    let on_device = (extent.bytes as usize).next_multiple_of(DEVICE_ALIGN_BYTES);
    on_device.max(Placement::of(extent.offset, extent.bytes).window_bytes)
}

/// Segments that one device takes together, of columns or of pages.
#[derive(Clone, Debug, Default)]
pub struct ChunkSource {
    /// The device that takes it, unless another has its columns or nothing to do.
    pub device: usize,
    /// In the order of the table.
    pub segments: Vec<SegmentSource>,
}

impl ChunkSource {
    /// Rows of all segments.
    pub fn rows(&self) -> u64 {
        self.segments.iter().map(|source| u64::from(source.rows())).sum()
    }

    /// The devices that are near to all of it.
    pub(crate) fn near(&self) -> Lanes {
        self.segments.iter().fold(Lanes::ALL, |near, source| near.and(source.near))
    }

    /// Whether it is rows that a device has kept: no other can take it.
    pub(crate) fn is_kept(&self) -> bool {
        self.segments.iter().any(|source| source.kept.is_some())
    }

    /// Whether its columns may stay on a device.
    pub(crate) fn has_identity(&self) -> bool {
        self.segments.iter().all(|source| source.file.is_some())
    }

    /// What is read of the columns: values, offsets, validity, of each column of each segment; of pages
    /// all, whatever the columns, or nothing where they are kept.
    fn extents<'a>(
        &'a self,
        columns: &'a [usize],
    ) -> impl Iterator<Item = (&'a SegmentSource, Extent)> {
        self.segments.iter().filter(|source| source.kept.is_none()).flat_map(move |source| {
            let columns = if source.segment.is_pages() { &[0] } else { columns };
            let there = columns.iter().filter_map(|&column| source.segment.columns.get(column));
            there
                .flat_map(|column| {
                    std::iter::once(column.values).chain(column.offsets).chain(column.validity)
                })
                .map(move |extent| (source, extent))
        })
    }

    /// The reads of the columns, and where from. [`ReadSpec::file`] is the segment's number of its
    /// file.
    pub(crate) fn reads(&self, columns: &[usize]) -> (Vec<ReadSpec>, Vec<Arc<dyn ReadAt>>) {
        let read = |(source, Extent { offset, bytes }): (&SegmentSource, Extent)| {
            let read = ReadSpec { file: source.segment.file as usize, offset, bytes };
            source.from.as_ref().map(|from| (read, Arc::clone(from)))
        };
        self.extents(columns).filter_map(read).unzip()
    }

    /// Bytes that are read of the columns.
    pub(crate) fn bytes(&self, columns: &[usize]) -> u64 {
        self.extents(columns).map(|(_, extent)| extent.bytes).sum()
    }

    /// Bytes of a slot that takes the columns, on the host and on the device.
    pub(crate) fn slot_bytes(&self, columns: &[usize]) -> usize {
        self.extents(columns).map(|(_, extent)| extent_slot_bytes(extent)).sum()
    }
}

/// How large chunks may be; one has a segment at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Bytes of a slot that they take.
    pub slot_bytes: u64,
    /// Segments.
    pub segments: usize,
    /// Rows.
    pub rows: u64,
}

/// Deals segments out to devices, and puts those of a device together to chunks.
#[derive(Debug)]
pub struct Chunker {
    limits: ChunkLimits,
    /// By device: the chunk that is not full yet, with its bytes and rows.
    open: Vec<Option<(ChunkSource, u64, u64)>>,
}

impl Chunker {
    /// For `devices` devices, at least one.
    pub fn new(devices: usize, limits: ChunkLimits) -> Self {
        Self { limits, open: (0..devices.max(1)).map(|_| None).collect() }
    }

    /// How large chunks may be.
    pub fn limits(&self) -> ChunkLimits {
        self.limits
    }

    /// Adds a segment; the chunk that it does not fit any more, if there is one.
    pub fn push(&mut self, source: SegmentSource) -> Option<ChunkSource> {
        let device = source.device(self.open.len());
        let (more_bytes, more_rows) = (source.slot_bytes(), u64::from(source.rows()));
        let limits = self.limits;
        match &mut self.open[device] {
            Some((chunk, bytes, rows))
                if chunk.segments.last().is_some_and(|last| last.kind() == source.kind())
                    && *bytes + more_bytes <= limits.slot_bytes
                    && *rows + more_rows <= limits.rows
                    && chunk.segments.len() < limits.segments =>
            {
                *bytes += more_bytes;
                *rows += more_rows;
                chunk.segments.push(source);
                None
            }
            open => {
                let chunk = ChunkSource { device, segments: vec![source] };
                open.replace((chunk, more_bytes, more_rows)).map(|(chunk, ..)| chunk)
            }
        }
    }

    /// A chunk as far as it was filled; `None` where every segment was given out.
    pub fn take(&mut self) -> Option<ChunkSource> {
        self.open.iter_mut().find_map(Option::take).map(|(chunk, ..)| chunk)
    }
}

/// Chunks of all these segments.
pub fn chunked(
    segments: impl IntoIterator<Item = SegmentSource>,
    devices: usize,
    limits: ChunkLimits,
) -> Vec<ChunkSource> {
    let mut chunker = Chunker::new(devices, limits);
    let mut chunks: Vec<_> = segments.into_iter().filter_map(|s| chunker.push(s)).collect();
    chunks.extend(std::iter::from_fn(|| chunker.take()));
    chunks
}
