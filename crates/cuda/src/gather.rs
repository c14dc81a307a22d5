//! Texts of output rows and of groups on their way to the host.
//!
//! A launch leaves them as addresses and lengths. What they point to (a chunk's bytes, resident columns,
//! constants, what groups keep) stays until the rows are with the host. The host reads the lengths of some rows, says where
//! each text goes, and a kernel writes them there, to pinned memory.

use std::sync::Arc;

use headrace_gpu::{Function, Grid, LaunchArgs, Source, Stream, launch};
use headrace_pipeline::ExecError;

use crate::device::CudaDevice;
use crate::host_memory::PinnedLease;
use crate::program::HEADERS;

/// Name of the kernel.
pub(crate) const GATHER_KERNEL_NAME: &str = "headrace_gather";

/// Bytes of a text as a launch leaves it: its address, its length in 4 bytes, and 4 that mean nothing.
pub const TEXT_VALUE_BYTES: usize = 16;
const LENGTH_AT: usize = 8;

/// Bytes of texts that are gathered at once, unless one is longer.
const PORTION_BYTES: usize = 8 << 20;

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

/// The length of each text of some rows as a launch left them.
pub fn text_lengths(values: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let length = |value: &[u8; TEXT_VALUE_BYTES]| {
        let bytes = value[LENGTH_AT..].first_chunk::<4>().copied().unwrap_or_default();
        u32::from_le_bytes(bytes) as usize
    };
    values.as_chunks::<TEXT_VALUE_BYTES>().0.iter().map(length)
}

/// Texts that lie one behind the other, by their lengths; `None` for one that breaks off.
pub(crate) fn cut(
    mut texts: &[u8],
    lengths: impl Iterator<Item = usize>,
) -> impl Iterator<Item = Option<&[u8]>> {
    lengths.map(move |length| {
        let (text, rest) = texts.split_at_checked(length)?;
        texts = rest;
        Some(text)
    })
}

/// How many of the rows of these columns of texts go together: one at least.
pub(crate) fn rows_together(columns: &[&[u8]], rows: usize) -> usize {
    let mut lengths: Vec<_> = columns.iter().map(|values| text_lengths(values)).collect();
    let mut bytes = 0;
    let fits = |_: &usize| {
        bytes += lengths.iter_mut().filter_map(Iterator::next).sum::<usize>();
        bytes <= PORTION_BYTES
    };
    (0..rows).take_while(fits).count().clamp(1.min(rows), rows)
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
    pub(crate) fn new(device: &Arc<CudaDevice>) -> Result<Self, ExecError> {
        let function = device.gather_function()?;
        Ok(Self { device: Arc::clone(device), function, staging: None, columns: Vec::new() })
    }

    /// Has the texts gathered of `rows` rows: for each column the device address of its values, unless they are to be sent,
    /// and the values.
    ///
    /// # Errors
    /// [`ExecError::Memory`] for pinned memory, [`ExecError::Gpu`].
    ///
    /// # Safety
    /// The values must be those that the device has at that address, and both they and what they point to must stay, until
    /// the stream has done it.
    pub(crate) unsafe fn queue(
        &mut self,
        stream: &Stream,
        rows: usize,
        texts: &[(Option<u64>, &[u8])],
    ) -> Result<(), ExecError> {
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
            _ => PinnedLease::take(&self.device, end.max(PORTION_BYTES))?,
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
            let mut args = LaunchArgs::new();
            let params =
                [address, base + at as u64, base + self.columns[column].0 as u64, rows as u64];
            args.push_bytes(params.map(u64::to_le_bytes).as_flattened());
            let grid = Grid {
                blocks: rows.div_ceil(BLOCK_TEXTS).clamp(1, BLOCKS_MAX) as u32,
                threads: BLOCK_THREADS as u32,
                shared_bytes: 0,
            };
            // SAFETY: the struct is filled field by field as `gather.cu` declares it. The texts lie where
            // the caller promised; their lengths are those that were counted, so that they end in the
            // staging, which is this gathering's and is touched again when the stream has done it.
            unsafe { launch(&self.function, grid, stream, &mut args) }?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn values(lengths: &[u32]) -> Vec<u8> {
        let value = |length: &u32| {
            let mut value = [0xff; TEXT_VALUE_BYTES];
            value[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_le_bytes());
            value
        };
        lengths.iter().flat_map(value).collect()
    }

    #[test]
    fn rows_go_together_as_long_as_their_texts_fit_and_one_always_goes() {
        let half = (PORTION_BYTES / 2) as u32;
        let (one, other) = (values(&[half, 10, half, half]), values(&[half, 0, 1, 1]));
        assert_eq!(rows_together(&[&one], 4), 2);
        assert_eq!(rows_together(&[&one, &other], 4), 1);
        assert_eq!(rows_together(&[&values(&[u32::MAX, 1])], 2), 1);
        assert_eq!(rows_together(&[&values(&[1, 2, 3])], 3), 3);
        assert_eq!(rows_together(&[], 7), 7);
        assert_eq!(rows_together(&[&[]], 0), 0);
    }
}
