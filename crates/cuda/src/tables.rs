//! Builds as the device holds them.

use headrace_columns::repr::Repr;
use headrace_pipeline::build::{BuildIndex, BuildTable, Chains, Heads, PayloadData, Presence};
use headrace_pipeline::{ExecError, WhyNot};

/// A part of a build as the device holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BuildPiece {
    /// Bitmap of present keys of a direct build.
    Present,
    /// Values of a payload column.
    Payload(usize),
    /// Validity bits of a payload column.
    Validity(usize),
    /// Slots of a hash build: build rows.
    HashRows,
    /// Keys of the slots of a hash build.
    HashKeys,
    /// For each row of a hash build the next row of the same key.
    HashNext,
}

/// Words of a hash build's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyWidth {
    /// At most 64 bits.
    One,
    /// At most 128 bits.
    Two,
}

pub(crate) fn repr_bytes(repr: &Repr) -> Result<usize, WhyNot> {
    Ok(match repr {
        Repr::Bool | Repr::I8 | Repr::U8 => 1,
        Repr::I16 | Repr::U16 => 2,
        Repr::I32 | Repr::U32 | Repr::Code(_) => 4,
        Repr::I64 | Repr::U64 => 8,
        Repr::I128 => 16,
        Repr::F32 | Repr::F64 | Repr::Str => {
            return Err(WhyNot::new(
                "hash builds over floats or text are not on the CUDA processor",
            ));
        }
    })
}

/// Bytes of all keys of a build side by side.
fn key_bytes(build: &BuildTable) -> Result<usize, WhyNot> {
    build.key_reprs.iter().map(repr_bytes).sum()
}

/// Words that the keys of a build take.
pub(crate) fn key_width(build: &BuildTable) -> Result<KeyWidth, WhyNot> {
    match key_bytes(build)? {
        0..=8 => Ok(KeyWidth::One),
        9..=16 => Ok(KeyWidth::Two),
        bytes => Err(WhyNot::new(format!(
            "the keys of build {} take {bytes} bytes, the CUDA processor has 16",
            build.name
        ))),
    }
}

/// Slots of the device's hash table for a number of rows: at most half are taken.
pub(crate) fn slots_of(rows: u64) -> u64 {
    (rows * 2).next_power_of_two().max(16)
}

/// The finaliser of MurmurHash3 (public domain, Austin Appleby), as in `probe.cuh`.
fn mix(mut key: u64) -> u64 {
    key ^= key >> 33;
    key = key.wrapping_mul(0xff51_afd7_ed55_8ccd);
    key ^= key >> 33;
    key = key.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ (key >> 33)
}

/// The bytes of a part of a build, padded to 16.
///
/// # Errors
/// [`ExecError::Internal`] for a part that the build does not have, or keys whose encoding is
/// not that of their representations.
pub fn piece_bytes(build: &BuildTable, piece: BuildPiece) -> Result<Vec<u8>, ExecError> {
    let missing = || ExecError::Internal(format!("build {} has no {piece:?}", build.name));
    let mut bytes = match (piece, &build.index) {
        // Behind the last key stands an absent one, for keys outside.
        (BuildPiece::Present, BuildIndex::Direct(Presence { domain, words: present, .. })) => {
            let mut present = present.clone();
            present.push(0);
            if let Some(last) = present.get_mut((domain / 64) as usize) {
                *last &= (1 << (domain % 64)) - 1;
            }
            words(&present)
        }
        (BuildPiece::Payload(column), index) => {
            let data = &build.payload.get(column).ok_or_else(missing)?.data;
            let mut bytes = payload_bytes(data);
            if let (BuildIndex::Direct(Presence { domain, .. }), shape) =
                (index, payload_shape(data))
            {
                bytes.truncate((domain * shape.width_bytes) as usize);
                bytes.resize(bytes.len() + shape.width_bytes as usize, u8::MAX);
            }
            bytes
        }
        (BuildPiece::Validity(column), _) => {
            let payload = build.payload.get(column).ok_or_else(missing)?;
            words(payload.validity.as_deref().ok_or_else(missing)?)
        }
        (BuildPiece::HashRows, BuildIndex::Chains(chains)) => hash_table(build, chains)?.0,
        (BuildPiece::HashKeys, BuildIndex::Chains(chains)) => hash_table(build, chains)?.1,
        (BuildPiece::HashNext, BuildIndex::Chains(chains)) => {
            chains.next.iter().flat_map(|row| row.to_le_bytes()).collect()
        }
        _ => return Err(missing()),
    };
    if let BuildIndex::Direct(Presence { domain, .. }) = &build.index {
        let entry_bits = match piece {
            BuildPiece::Payload(column) => {
                payload_shape(&build.payload[column].data).width_bytes * 8
            }
            _ => 1,
        };
        let absent_bits = if matches!(piece, BuildPiece::Validity(_)) { 0 } else { entry_bits };
        if (bytes.len() as u64) * 8 < domain * entry_bits + absent_bits {
            return Err(ExecError::Internal(format!(
                "{piece:?} of build {} is shorter than its {domain} keys",
                build.name
            )));
        }
    }
    bytes.resize(bytes.len().next_multiple_of(16).max(16), 0);
    Ok(bytes)
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn payload_bytes(data: &PayloadData) -> Vec<u8> {
    match data {
        PayloadData::U8 { raw, .. } | PayloadData::Bool(raw) => raw.clone(),
        PayloadData::U16 { raw, .. } => raw.iter().flat_map(|v| v.to_le_bytes()).collect(),
        PayloadData::U32 { raw, .. } => raw.iter().flat_map(|v| v.to_le_bytes()).collect(),
        PayloadData::I64(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        PayloadData::U64(values) => words(values),
        PayloadData::F64(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        PayloadData::I128(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

/// Rows by slot, and keys by slot. Of rows with equal keys the first stays, from which the chain
/// leads to the others.
fn hash_table(build: &BuildTable, chains: &Chains) -> Result<(Vec<u8>, Vec<u8>), ExecError> {
    let why = |error: WhyNot| ExecError::Internal(error.0);
    let key_words = if key_width(build).map_err(why)? == KeyWidth::One { 1 } else { 2 };
    let slots = slots_of(build.rows) as usize;
    let mut rows = vec![u32::MAX; slots];
    let mut keys = vec![0u64; slots * key_words];
    for (row, key) in packed_keys(build, chains)? {
        let (low, high) = (key as u64, (key >> 64) as u64);
        let hash = if key_words == 1 { mix(low) } else { mix(low ^ mix(high)) };
        let mut slot = hash as u32 as usize & (slots - 1);
        loop {
            let same = |slot: usize| match key_words {
                1 => keys[slot] == low,
                _ => keys[2 * slot] == low && keys[2 * slot + 1] == high,
            };
            if rows[slot] == u32::MAX {
                rows[slot] = row;
                keys[slot * key_words] = low;
                if key_words == 2 {
                    keys[2 * slot + 1] = high;
                }
                break;
            }
            if same(slot) {
                break;
            }
            slot = (slot + 1) & (slots - 1);
        }
    }
    Ok((rows.iter().flat_map(|row| row.to_le_bytes()).collect(), words(&keys)))
}

/// The keys that are not NULL, as [`pack_key`], and rows that have them: of each key the first comes first.
fn packed_keys(build: &BuildTable, chains: &Chains) -> Result<Vec<(u32, u128)>, ExecError> {
    let integer = |(row, key): (u32, i64)| {
        let repr = build.key_reprs.first().map_or(Ok(8), repr_bytes);
        let bits = 8 * repr.map_err(|why| ExecError::Internal(why.0))? as u32;
        Ok((row, u128::from(key as u64 & u64::MAX >> (64 - bits.min(64)))))
    };
    match &chains.heads {
        Heads::Direct { base, heads } => {
            let heads = heads.iter().enumerate().filter(|(_, row)| **row != u32::MAX);
            heads.map(|(at, &row)| integer((row, base.wrapping_add(at as i64)))).collect()
        }
        Heads::Integers { keys, .. } => {
            keys.iter().enumerate().map(|(row, &key)| integer((row as u32, key))).collect()
        }
        Heads::Encoded { keys, .. } => {
            let rows = 0..keys.offsets.len() - 1;
            let packed = rows.map(|row| Ok((row as u32, pack_key(build, keys.row(row))?)));
            let known = |key: Result<(u32, Option<u128>), ExecError>| {
                key.map(|(row, key)| key.map(|key| (row, key))).transpose()
            };
            packed.filter_map(known).collect()
        }
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

/// The entries of a payload column.
pub(crate) struct PayloadShape {
    /// C++ type of the entries.
    pub(crate) c_type: &'static str,
    pub(crate) width_bytes: u64,
    /// Base of narrow raw values.
    pub(crate) base: Option<i64>,
    /// The entry that marks an absent key of a direct build.
    pub(crate) absent: Option<u32>,
}

/// How the values of a payload column lie.
pub(crate) fn payload_shape(data: &PayloadData) -> PayloadShape {
    let shape =
        |c_type, width_bytes, base, absent| PayloadShape { c_type, width_bytes, base, absent };
    match data {
        PayloadData::U8 { base, .. } => shape("u8", 1, Some(*base), Some(u32::from(u8::MAX))),
        PayloadData::U16 { base, .. } => shape("u16", 2, Some(*base), Some(u32::from(u16::MAX))),
        PayloadData::U32 { base, .. } => shape("u32", 4, Some(*base), Some(u32::MAX)),
        PayloadData::I64(_) => shape("i64", 8, None, None),
        PayloadData::U64(_) => shape("u64", 8, None, None),
        PayloadData::F64(_) => shape("f64", 8, None, None),
        PayloadData::I128(_) => shape("i128", 16, None, None),
        PayloadData::Bool(_) => shape("u8", 1, None, Some(u32::from(u8::MAX))),
    }
}
