//! Hash tables of builds, filled on the device.
//!
//! The host has a build's keys by row. They go to the device as they lie there, and a kernel (`hash_table.cu`) enters
//! them: of equal keys the first row stays, from which the chain leads to the others. The host would take minutes where
//! the kernel takes milliseconds: every key is a cache miss.

use std::borrow::Cow;

use arrow_buffer::ToByteSlice;
use headrace_gpu::{DeviceBuffer, Grid, Source, Stream};
use headrace_pipeline::ExecError;
use headrace_pipeline::build::{BuildTable, Chains, Heads};

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

/// How the hash table of a build lies: rows by slot, then keys by slot.
#[derive(Clone, Copy, Debug)]
pub struct HashLayout {
    /// Slots of the table: a power of two.
    slots: u64,
    /// Words of a key.
    words: usize,
}

impl HashLayout {
    /// That of a build's.
    ///
    /// # Errors
    /// [`ExecError::Internal`] for keys that the device does not look up.
    pub fn of(build: &BuildTable) -> Result<Self, ExecError> {
        let width = key_width(build).map_err(|error| ExecError::Internal(error.0))?;
        let words = if width == KeyWidth::One { 1 } else { 2 };
        Ok(Self { slots: slots_of(build.rows), words })
    }

    /// Where the keys by slot begin.
    pub fn keys_at(self) -> u64 {
        self.slots * 4
    }

    /// Bytes of the table.
    pub fn bytes(self) -> u64 {
        self.keys_at() + self.slots * self.words as u64 * 8
    }
}

/// The keys of a build, by entry.
pub struct HashedKeys<'b> {
    /// How their table lies.
    pub layout: HashLayout,
    /// The bytes of one or two words an entry; `None`: the key of an entry is `base` more than its number.
    pub keys: Option<Cow<'b, [u8]>>,
    base: i64,
    /// Bits of a key that count.
    key_mask: u64,
    /// The row of each entry, or `u32::MAX`; `None`: an entry is a row.
    pub rows: Option<Cow<'b, [u32]>>,
    entries: u64,
}

impl<'b> HashedKeys<'b> {
    /// Those of a build.
    ///
    /// # Errors
    /// [`ExecError::Internal`] for keys whose encoding is not that of their representations.
    pub fn of(build: &'b BuildTable, chains: &'b Chains) -> Result<Self, ExecError> {
        let layout = HashLayout::of(build)?;
        let key_bytes = build.key_reprs.first().map_or(Ok(8), repr_bytes);
        let key_bytes = key_bytes.map_err(|error| ExecError::Internal(error.0))?;
        let key_mask = u64::MAX >> (64 - 8 * key_bytes.min(8));
        let by_number = Self { layout, keys: None, base: 0, key_mask, rows: None, entries: 0 };
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
                let (entries, key_bytes) = (keys.offsets.len() - 1, layout.words * 8);
                let mut packed = Vec::with_capacity(entries * key_bytes);
                let mut rows = Vec::with_capacity(entries);
                for row in 0..entries {
                    let key = pack_key(build, keys.row(row))?;
                    rows.push(if key.is_some() { row as u32 } else { EMPTY });
                    packed.extend_from_slice(&key.unwrap_or_default().to_le_bytes()[..key_bytes]);
                }
                let (keys, rows) = (Some(Cow::Owned(packed)), Some(Cow::Owned(rows)));
                Self { keys, rows, entries: entries as u64, key_mask: u64::MAX, ..by_number }
            }
        })
    }

    /// The parameter struct of `hash_table.cu`, field by field, for the two times that it runs.
    pub fn params(
        &self,
        table: u64,
        (keys, rows): (Option<u64>, Option<u64>),
        has_entered: bool,
    ) -> [u64; 10] {
        [
            table,
            table + self.layout.keys_at(),
            self.layout.slots - 1,
            keys.unwrap_or(0),
            self.base as u64,
            self.key_mask,
            self.layout.words as u64,
            rows.unwrap_or(0),
            self.entries,
            has_entered.into(),
        ]
    }

    /// Rows by slot, then keys by slot, on a device. Which slot a key has depends on who came first, so that the two are
    /// of use only together. Waits for the stream.
    pub(crate) fn table(
        &self,
        device: &CudaDevice,
        stream: &Stream,
    ) -> Result<DeviceBuffer, CudaError> {
        let function = device.function(&hash_table_source(), KERNEL_NAME)?;
        let sent = |bytes: &[u8]| {
            let buffer = device.alloc(bytes.len())?;
            stream.upload(&buffer, 0, bytes)?;
            Ok::<_, CudaError>(buffer)
        };
        let keys = self.keys.as_ref().map(|keys| sent(keys)).transpose()?;
        let rows = self.rows.as_ref().map(|rows| sent(rows.to_byte_slice())).transpose()?;
        let table = device.alloc(self.layout.bytes() as usize)?;
        let entries = (keys.as_ref().map(|keys| keys.ptr()), rows.as_ref().map(|rows| rows.ptr()));
        // SAFETY: what was allocated here lives until the wait below, and nobody else has it.
        let emptied =
            unsafe { stream.fill_u32_async(&table, 0, self.layout.slots as usize, EMPTY) };
        let mut queued = emptied.map_err(CudaError::from);
        for (has_entered, count) in [(false, self.entries), (true, self.layout.slots)] {
            let blocks = count.div_ceil(BLOCK_THREADS.into()).clamp(1, BLOCKS_MAX) as u32;
            let grid = Grid { blocks, threads: BLOCK_THREADS, shared_bytes: 0 };
            let words = self.params(table.ptr(), entries, has_entered);
            // SAFETY: the struct is filled field by field as `hash_table.cu` declares it; the memory is as above.
            let queue = || unsafe { queue_words(&function, stream, grid, &words) };
            queued = queued.and_then(|()| queue());
        }
        stream.synchronize()?;
        queued?;
        Ok(table)
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
