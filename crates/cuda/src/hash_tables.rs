//! Hash tables of builds, filled on the device.
//!
//! The host has a build's keys by row: as numbers, or as bytes. They go to the device as they lie there, and a kernel
//! (`hash_table.cu`) makes words of them and enters these: of equal keys the first row stays, from which the chain leads to the
//! others. The host would take minutes where the kernel takes milliseconds: every key is a cache miss.
//!
//! ```text
//! narrow keys (16 bytes at most, no text, no NULL):   rows by slot | keys by slot
//! wide keys:                                          rows by slot | keys by row | bytes of all keys, for long texts
//! ```

use std::borrow::Cow;

use arrow_buffer::ToByteSlice;
use headrace_columns::key::EncodedKeys;
use headrace_gpu::{DeviceBuffer, Grid, Source, Stream};
use headrace_pipeline::build::{BuildTable, Chains, Heads};
use headrace_pipeline::{ExecError, WhyNot};

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::headers::HEADERS;
use crate::keys::{KeyLayout, KeyPart, TEXT_KEY_BYTES, fixed_bytes};
use crate::tables::slots_of;
use crate::words::{queue_words, word_bytes};

/// Name of the kernel.
const KERNEL_NAME: &str = "headrace_hash_table";

/// Threads of a block of it, and blocks at most.
const BLOCK_THREADS: u32 = 256;
const BLOCKS_MAX: u64 = 1 << 16;

/// A slot without a key.
const EMPTY: u32 = u32::MAX;

/// Words of a narrow key at most.
const NARROW_WORDS_MAX: usize = 2;

/// The launches of the kernel, as it numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launch {
    Pack = 0,
    Enter = 1,
    Settle = 2,
}

/// The kernel's source.
pub fn hash_table_source() -> Source<'static> {
    let text = include_str!("../kernels/hash_table.cu");
    Source { name: "hash_table.cu", text, headers: &HEADERS }
}

/// How the hash table of a build lies.
#[derive(Clone, Debug)]
pub struct HashLayout {
    /// Slots of the table: a power of two.
    slots: u64,
    rows: u64,
    /// How keys lie.
    pub(crate) keys: KeyLayout,
    /// Whether they are found by row, with their NULLs and texts.
    pub(crate) is_wide: bool,
}

impl HashLayout {
    /// That of a build's.
    ///
    /// # Errors
    /// Keys of too many bytes.
    pub(crate) fn of(build: &BuildTable) -> Result<Self, WhyNot> {
        let columns: Vec<_> =
            build.key_reprs.iter().map(|repr| (repr, build.nulls_equal)).collect();
        let keys = KeyLayout::of(&columns, &format!("build {}", build.name))?;
        let is_wide = build.nulls_equal || keys.texts > 0 || keys.words > NARROW_WORDS_MAX;
        Ok(Self { slots: slots_of(build.rows), rows: build.rows, keys, is_wide })
    }

    /// Where the keys begin.
    pub fn keys_at(&self) -> u64 {
        self.slots * 4
    }

    /// Where the bytes of all keys begin.
    pub fn texts_at(&self) -> u64 {
        let keys = if self.is_wide { self.rows } else { self.slots };
        self.keys_at() + (keys * self.keys.bytes() as u64).next_multiple_of(16)
    }
}

/// The keys of a build, by entry.
pub struct HashedKeys<'b> {
    /// How their table lies.
    pub layout: HashLayout,
    keys: Keys<'b>,
    entries: u64,
    /// Bits of a key of one word that count.
    key_mask: u64,
}

/// From where the kernel has keys.
enum Keys<'b> {
    /// The key of an entry is so much more than its number, and its row one of these, or `u32::MAX`.
    Numbered(i64, &'b [u32]),
    /// One word a row.
    Words(&'b [i64]),
    /// Bytes, row by row.
    Encoded(&'b EncodedKeys),
}

/// Memory that the kernel wants beside the table, with what lies there at first.
pub struct Scratch<'b> {
    /// Bytes; 0: none is wanted, its address is 0.
    pub bytes: usize,
    /// What it begins with, if that matters.
    pub from: Option<Cow<'b, [u8]>>,
}

/// How many of them there are.
const SCRATCHES: usize = 6;

impl<'b> HashedKeys<'b> {
    /// Those of a build.
    ///
    /// # Errors
    /// [`ExecError::Internal`] for keys that the device does not look up.
    pub fn of(build: &'b BuildTable, chains: &'b Chains) -> Result<Self, ExecError> {
        let layout = HashLayout::of(build).map_err(|why| ExecError::Internal(why.0))?;
        let key_bytes = build.key_reprs.first().and_then(fixed_bytes).unwrap_or(8);
        let key_mask = u64::MAX >> (64 - 8 * key_bytes.min(8));
        let (keys, entries) = match &chains.heads {
            Heads::Direct { base, heads } => (Keys::Numbered(*base, heads), heads.len()),
            Heads::Integers { keys, .. } => (Keys::Words(keys), keys.len()),
            Heads::Encoded { keys, .. } => (Keys::Encoded(keys), keys.offsets.len() - 1),
        };
        let (is_encoded, entries) = (matches!(keys, Keys::Encoded(_)), entries as u64);
        if layout.is_wide && (!is_encoded || entries != layout.rows) {
            let name = &build.name;
            return Err(ExecError::Internal(format!("wide keys of build {name} lie otherwise")));
        }
        // Several keys of one word are bytes, all of which count.
        let key_mask = if is_encoded { u64::MAX } else { key_mask };
        Ok(Self { layout, keys, entries, key_mask })
    }

    /// Bytes of the table.
    pub fn table_bytes(&self) -> u64 {
        self.layout.texts_at() + self.texts().map_or(0, |bytes| bytes.len() as u64)
    }

    /// The bytes that must lie in the table from [`HashLayout::texts_at`] on before the kernel runs.
    pub fn texts(&self) -> Option<&'b [u8]> {
        match &self.keys {
            Keys::Encoded(keys) if self.layout.keys.texts > 0 => Some(&keys.bytes),
            _ => None,
        }
    }

    /// What the kernel wants beside the table: keys, rows, bytes, where they begin, their parts, and a `u32` that is not 0 in
    /// the end where bytes are not those of such keys.
    pub fn scratch(&self) -> [Scratch<'b>; SCRATCHES] {
        let sent = |bytes: Cow<'b, [u8]>| Scratch { bytes: bytes.len(), from: Some(bytes) };
        let made = |bytes: usize| Scratch { bytes, from: None };
        let none = || made(0);
        let entries = self.entries as usize;
        match &self.keys {
            Keys::Numbered(_, rows) => {
                let rows = sent(rows.to_byte_slice().into());
                [none(), rows, none(), none(), none(), none()]
            }
            Keys::Words(keys) => {
                let keys = sent(keys.to_byte_slice().into());
                [keys, none(), none(), none(), none(), none()]
            }
            Keys::Encoded(keys) => {
                let own_keys =
                    if self.layout.is_wide { 0 } else { entries * self.layout.keys.bytes() };
                let bytes = match self.texts() {
                    Some(_) => none(),
                    None => sent(keys.bytes.as_slice().into()),
                };
                let offsets = keys.offsets.iter().map(|offset| *offset as u64);
                let parts: Vec<u64> = self.part_words().flatten().collect();
                [
                    made(own_keys),
                    none(),
                    bytes,
                    sent(offsets.flat_map(u64::to_le_bytes).collect::<Vec<_>>().into()),
                    sent(word_bytes(&parts).into()),
                    sent(vec![0; 16].into()),
                ]
            }
        }
    }

    /// The launches: each with the parameter struct of `hash_table.cu`, field by field, and how many things it goes through.
    pub fn launches(
        &self,
        table: u64,
        scratch: [u64; SCRATCHES],
    ) -> impl Iterator<Item = (Vec<u64>, u64)> {
        let [keys, rows, bytes, offsets, parts, broken] = scratch;
        let (layout, entries) = (&self.layout, self.entries);
        let keys = if layout.is_wide { table + layout.keys_at() } else { keys };
        let bytes = if self.texts().is_some() { table + layout.texts_at() } else { bytes };
        let base = if let Keys::Numbered(base, _) = self.keys { base as u64 } else { 0 };
        let is_encoded = matches!(self.keys, Keys::Encoded(_));
        let launches = [
            is_encoded.then_some((Launch::Pack, entries)),
            Some((Launch::Enter, entries)),
            (!layout.is_wide).then_some((Launch::Settle, layout.slots)),
        ];
        let words = [
            table,
            table + layout.keys_at(),
            layout.slots - 1,
            keys,
            base,
            self.key_mask,
            layout.keys.words as u64,
            layout.is_wide.into(),
            layout.keys.texts as u64,
            rows,
            entries,
            bytes,
            offsets,
            parts,
            layout.keys.parts.len() as u64,
            broken,
        ];
        launches.into_iter().flatten().map(move |(launch, count)| {
            (std::iter::once(launch as u64).chain(words).collect(), count)
        })
    }

    /// Rows by slot, and keys, on a device. Which slot a key has depends on who came first, so that the two are
    /// of use only together. Waits for the stream.
    pub(crate) fn table(
        &self,
        device: &CudaDevice,
        stream: &Stream,
    ) -> Result<DeviceBuffer, CudaError> {
        let function = device.function(&hash_table_source(), KERNEL_NAME)?;
        let table = device.alloc((self.table_bytes() as usize).next_multiple_of(16))?;
        if let Some(texts) = self.texts() {
            stream.upload(&table, self.layout.texts_at() as usize, texts)?;
        }
        let mut buffers: [Option<DeviceBuffer>; SCRATCHES] = Default::default();
        for (buffer, scratch) in buffers.iter_mut().zip(self.scratch()) {
            if scratch.bytes > 0 {
                let own = device.alloc(scratch.bytes.next_multiple_of(16))?;
                if let Some(from) = scratch.from {
                    stream.upload(&own, 0, &from)?;
                }
                *buffer = Some(own);
            }
        }
        let addresses = buffers.each_ref().map(|buffer| buffer.as_ref().map_or(0, |b| b.ptr()));
        // SAFETY: what was allocated here lives until the wait below, and nobody else has it.
        let emptied =
            unsafe { stream.fill_u32_async(&table, 0, self.layout.slots as usize, EMPTY) };
        let mut queued = emptied.map_err(CudaError::from);
        for (words, count) in self.launches(table.ptr(), addresses) {
            let blocks = count.div_ceil(BLOCK_THREADS.into()).clamp(1, BLOCKS_MAX) as u32;
            let grid = Grid { blocks, threads: BLOCK_THREADS, shared_bytes: 0 };
            // SAFETY: the struct is filled field by field as `hash_table.cu` declares it; the memory is as above.
            let queue = || unsafe { queue_words(&function, stream, grid, &words) };
            queued = queued.and_then(|()| queue());
        }
        stream.synchronize()?;
        queued?;
        if let [.., Some(broken)] = &buffers {
            let mut is_broken = [0; 4];
            stream.download(broken, 0, &mut is_broken)?;
            if is_broken != [0; 4] {
                let what = "the keys of a build are not as their types say".to_string();
                return Err(ExecError::Internal(what).into());
            }
        }
        Ok(table)
    }

    /// The parts of a key as the kernel has them.
    fn part_words(&self) -> impl Iterator<Item = [u64; 2]> {
        let texts = self.layout.keys.texts;
        let of = move |part: &KeyPart| {
            let is_text = part.at < texts * TEXT_KEY_BYTES;
            [part.at as u64, if is_text { 0 } else { part.bytes as u64 }]
        };
        self.layout.keys.parts.iter().map(of)
    }
}
