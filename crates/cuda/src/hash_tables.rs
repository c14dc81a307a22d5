//! Hash tables of builds, filled on the device.
//!
//! The host has a build's keys by row. They go to the device as they lie there, and a kernel (`hash_table.cu`) enters
//! them: of equal keys the first row stays, from which the chain leads to the others. The host would take minutes where
//! the kernel takes milliseconds: every key is a cache miss.

use std::borrow::Cow;

use arrow_buffer::ToByteSlice;
use headrace_gpu::{DeviceBuffer, Grid, Source, Stream};
use headrace_pipeline::build::{BuildTable, Chains, Heads};
use headrace_pipeline::{ExecError, WhyNot};

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::headers::HEADERS;
use crate::tables::{KeyWidth, key_width, repr_bytes, slots_of};
use crate::words::queue_words;

/// Name of the kernel.
const KERNEL_NAME: &str = "headrace_hash_table";

/// Threads of a block of it, and blocks at most.
const BLOCK_THREADS: u32 = 256;
const BLOCKS_MAX: u64 = 1 << 16;

/// A row that has no key to be found by, and a slot without a key.
const EMPTY: u32 = u32::MAX;

/// The kernel's source.
pub fn hash_table_source() -> Source<'static> {
    let text = include_str!("../kernels/hash_table.cu");
    Source { name: "hash_table.cu", text, headers: &HEADERS }
}

/// The keys of a build, by entry.
pub struct HashedKeys<'b> {
    /// The bytes of one or two words an entry; `None`: the key of an entry is `base` more than its number.
    pub keys: Option<Cow<'b, [u8]>>,
    base: i64,
    /// Bits of a key that count.
    key_mask: u64,
    words: usize,
    /// The row of each entry, or `u32::MAX`; `None`: an entry is a row.
    pub rows: Option<Cow<'b, [u32]>>,
    entries: u64,
    /// Slots of the table: a power of two.
    pub slots: u64,
}

impl<'b> HashedKeys<'b> {
    /// Those of a build.
    ///
    /// # Errors
    /// [`ExecError::Internal`] for keys whose encoding is not that of their representations.
    pub fn of(build: &'b BuildTable, chains: &'b Chains) -> Result<Self, ExecError> {
        let why = |error: WhyNot| ExecError::Internal(error.0);
        let words = if key_width(build).map_err(why)? == KeyWidth::One { 1 } else { 2 };
        let key_bytes = build.key_reprs.first().map_or(Ok(8), repr_bytes).map_err(why)?;
        let key_mask = u64::MAX >> (64 - 8 * key_bytes.min(8));
        let slots = slots_of(build.rows);
        let by_number =
            Self { keys: None, base: 0, key_mask, words, rows: None, entries: 0, slots };
        Ok(match &chains.heads {
            Heads::Direct { base, heads } => Self {
                base: *base,
                entries: heads.len() as u64,
                rows: Some(Cow::Borrowed(heads)),
                ..by_number
            },
            Heads::Integers { keys, .. } => {
                let (entries, keys) = (keys.len() as u64, Cow::Borrowed(keys.to_byte_slice()));
                Self { keys: Some(keys), entries, ..by_number }
            }
            Heads::Encoded { keys, .. } => {
                let entries = keys.offsets.len() - 1;
                let mut packed = Vec::with_capacity(entries * words * 8);
                let mut rows = Vec::with_capacity(entries);
                for row in 0..entries {
                    let key = pack_key(build, keys.row(row))?;
                    rows.push(if key.is_some() { row as u32 } else { EMPTY });
                    packed.extend_from_slice(&key.unwrap_or_default().to_le_bytes()[..words * 8]);
                }
                let (keys, rows) = (Some(Cow::Owned(packed)), Some(Cow::Owned(rows)));
                Self { keys, rows, entries: entries as u64, key_mask: u64::MAX, ..by_number }
            }
        })
    }

    /// Bytes of the keys by slot.
    pub fn slot_keys_bytes(&self) -> usize {
        self.slots as usize * self.words * 8
    }

    /// The parameter struct of `hash_table.cu`, field by field, for the two times that it runs.
    pub fn params(
        &self,
        (slots, slot_keys): (u64, u64),
        (keys, rows): (Option<u64>, Option<u64>),
        has_entered: bool,
    ) -> [u64; 10] {
        [
            slots,
            slot_keys,
            self.slots - 1,
            keys.unwrap_or(0),
            self.base as u64,
            self.key_mask,
            self.words as u64,
            rows.unwrap_or(0),
            self.entries,
            has_entered.into(),
        ]
    }

    /// Rows by slot, and keys by slot, on a device. Waits for the stream.
    pub(crate) fn table(
        &self,
        device: &CudaDevice,
        stream: &Stream,
    ) -> Result<(DeviceBuffer, DeviceBuffer), CudaError> {
        let function = device.function(&hash_table_source(), KERNEL_NAME)?;
        let sent = |bytes: &[u8]| {
            let buffer = device.alloc(bytes.len())?;
            stream.upload(&buffer, 0, bytes)?;
            Ok::<_, CudaError>(buffer)
        };
        let keys = self.keys.as_ref().map(|keys| sent(keys)).transpose()?;
        let rows = self.rows.as_ref().map(|rows| sent(rows.to_byte_slice())).transpose()?;
        let slots = device.alloc(self.slots as usize * 4)?;
        let slot_keys = device.alloc(self.slot_keys_bytes())?;
        let addresses = (slots.ptr(), slot_keys.ptr());
        let entries = (keys.as_ref().map(|keys| keys.ptr()), rows.as_ref().map(|rows| rows.ptr()));
        // SAFETY: what was allocated here lives until the wait below, and nobody else has it.
        let emptied = unsafe { stream.fill_u32_async(&slots, 0, self.slots as usize, EMPTY) };
        let mut queued = emptied.map_err(CudaError::from);
        for (has_entered, count) in [(false, self.entries), (true, self.slots)] {
            let blocks = count.div_ceil(BLOCK_THREADS.into()).clamp(1, BLOCKS_MAX) as u32;
            let grid = Grid { blocks, threads: BLOCK_THREADS, shared_bytes: 0 };
            let words = self.params(addresses, entries, has_entered);
            // SAFETY: the struct is filled field by field as `hash_table.cu` declares it; the memory is as above.
            let queue = || unsafe { queue_words(&function, stream, grid, &words) };
            queued = queued.and_then(|()| queue());
        }
        stream.synchronize()?;
        queued?;
        Ok((slots, slot_keys))
    }
}

/// A key's values side by side, or `None` where one is NULL: probes look such keys up never.
fn pack_key(build: &BuildTable, mut bytes: &[u8]) -> Result<Option<u128>, ExecError> {
    let broken = || ExecError::Internal(format!("a key of build {} is cut short", build.name));
    let mut key = [0u8; 16];
    let mut filled = 0;
    for repr in &build.key_reprs {
        let width = repr_bytes(repr).map_err(|why| ExecError::Internal(why.0))?;
        let (null, rest) = bytes.split_first().ok_or_else(broken)?;
        if *null != 0 {
            return Ok(None);
        }
        let (value, rest) = rest.split_at_checked(width).ok_or_else(broken)?;
        key.get_mut(filled..filled + width).ok_or_else(broken)?.copy_from_slice(value);
        filled += width;
        bytes = rest;
    }
    if bytes.is_empty() { Ok(Some(u128::from_le_bytes(key))) } else { Err(broken()) }
}
