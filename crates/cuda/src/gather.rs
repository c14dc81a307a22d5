//! Texts of output rows and of groups on their way to the host.
//!
//! A launch leaves them as addresses and lengths. What they point to (a chunk's bytes, resident columns,
//! constants, what groups keep) stays until the rows are with the host. The host reads the lengths of some rows, says where
//! each text goes, and a kernel writes them there, to pinned memory.

use std::sync::Arc;

use headrace_gpu::{Function, Grid, Source, Stream};

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::headers::HEADERS;
use crate::pinned::PinnedLease;
use crate::text_values::{TEXT_PORTION_BYTES, TEXT_VALUE_BYTES, text_lengths};
use crate::words::queue_words;

/// Name of the kernel.
const GATHER_KERNEL_NAME: &str = "headrace_gather";

/// Threads of a block of the kernel, of which 32 take a text, and blocks at most.
const BLOCK_THREADS: usize = 256;
const BLOCK_TEXTS: usize = BLOCK_THREADS / 32;
const BLOCKS_MAX: usize = 1024;

/// Bytes of an offset.
const OFFSET_BYTES: usize = 8;

/// The kernel's source.
pub fn gather_source() -> Source<'static> {
    Source { name: "gather.cu", text: include_str!("../kernels/gather.cu"), headers: &HEADERS }
}

/// The texts of some rows, as they come.
pub(crate) struct Gathering {
    device: Arc<CudaDevice>,
    function: Function,
    /// The values that the device does not have, offsets of all columns, then the texts of the first column, and so on.
    staging: Option<PinnedLease>,
    /// Where the texts of each column begin in the staging, and their bytes.
    columns: Vec<(usize, usize)>,
}

impl Gathering {
    /// For rows of a device.
    ///
    /// # Errors
    /// The kernel does not load.
    pub(crate) fn new(device: &Arc<CudaDevice>) -> Result<Self, CudaError> {
        let function = device.function(&gather_source(), GATHER_KERNEL_NAME)?;
        Ok(Self { device: Arc::clone(device), function, staging: None, columns: Vec::new() })
    }

    /// Has the texts gathered of `rows` rows: for each column the device address of its values, unless they are to be sent,
    /// and the values.
    ///
    /// # Errors
    /// [`ColumnError::Memory`](headrace_columns::ColumnError::Memory) for pinned memory, [`CudaError::Gpu`].
    ///
    /// # Safety
    /// The values must be those that the device has at that address, and both they and what they point to must stay, until
    /// the stream has done it.
    pub(crate) unsafe fn queue(
        &mut self,
        stream: &Stream,
        rows: usize,
        texts: &[(Option<u64>, &[u8])],
    ) -> Result<(), CudaError> {
        let (values_bytes, offsets_bytes) = (rows * TEXT_VALUE_BYTES, rows * OFFSET_BYTES);
        let sent = texts.iter().filter(|(address, _)| address.is_none()).count();
        let offsets_at = sent * values_bytes;
        let mut end = offsets_at + texts.len() * offsets_bytes;
        self.columns.clear();
        for (_, values) in texts {
            let bytes = text_lengths(values).take(rows).sum();
            self.columns.push((end, bytes));
            end += bytes;
        }
        let mut staging = match self.staging.take() {
            Some(staging) if staging.as_slice().len() >= end => staging,
            _ => PinnedLease::take(&self.device, end.max(TEXT_PORTION_BYTES))?,
        };
        let base = staging.device_address();
        let mut sent_at = 0;
        for (column, (address, values)) in texts.iter().enumerate() {
            let address = address.unwrap_or_else(|| {
                let to = &mut staging.as_mut_slice()[sent_at..sent_at + values_bytes];
                to.copy_from_slice(&values[..values_bytes]);
                sent_at += values_bytes;
                base + (sent_at - values_bytes) as u64
            });
            let at = offsets_at + column * offsets_bytes;
            let to = &mut staging.as_mut_slice()[at..at + offsets_bytes];
            let mut offset = 0u64;
            for (to, length) in to.chunks_exact_mut(OFFSET_BYTES).zip(text_lengths(values)) {
                to.copy_from_slice(&offset.to_le_bytes());
                offset += length as u64;
            }
            let params =
                [address, base + at as u64, base + self.columns[column].0 as u64, rows as u64];
            let grid = Grid {
                blocks: rows.div_ceil(BLOCK_TEXTS).clamp(1, BLOCKS_MAX) as u32,
                threads: BLOCK_THREADS as u32,
                shared_bytes: 0,
            };
            // SAFETY: the struct is filled field by field as `gather.cu` declares it. The texts lie where
            // the caller promised; their lengths are those that were counted, so that they end in the
            // staging, which is this gathering's and is touched again when the stream has done it.
            unsafe { queue_words(&self.function, stream, grid, &params) }?;
        }
        self.staging = Some(staging);
        Ok(())
    }

    /// The texts of a column that have arrived, one behind the other.
    pub(crate) fn arrived(&self, column: usize) -> &[u8] {
        let (at, bytes) = self.columns.get(column).copied().unwrap_or_default();
        let staging = self.staging.as_ref().map_or(&[][..], PinnedLease::as_slice);
        staging.get(at..at + bytes).unwrap_or_default()
    }
}
