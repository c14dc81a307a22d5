//! Keys of several columns as byte strings: equal keys have equal bytes.
//!
//! ```text
//! per key column:  0, value (fixed width, little-endian)    not NULL
//!                  0, length (u32), bytes                   text
//!                  1                                        NULL
//! ```

use crate::cpu::vector::{Data, Vector};

/// Encoded keys of some rows.
pub struct EncodedKeys {
    /// All keys, one after the other.
    pub bytes: Vec<u8>,
    /// Start of each key, and the end of the last.
    pub offsets: Vec<usize>,
}

impl EncodedKeys {
    /// The key of a row.
    #[inline]
    pub fn row(&self, row: usize) -> &[u8] {
        &self.bytes[self.offsets[row]..self.offsets[row + 1]]
    }
}

/// Encodes the keys of `rows` rows.
pub fn encode<'v, 'a: 'v>(
    columns: impl Iterator<Item = &'v Vector<'a>>,
    rows: usize,
) -> EncodedKeys {
    let columns: Vec<&Vector<'a>> = columns.collect();
    let mut keys = EncodedKeys { bytes: Vec::new(), offsets: Vec::with_capacity(rows + 1) };
    keys.offsets.push(0);
    for row in 0..rows {
        for column in &columns {
            encode_value(column, row, &mut keys.bytes);
        }
        keys.offsets.push(keys.bytes.len());
    }
    keys
}

fn encode_value(column: &Vector<'_>, row: usize, bytes: &mut Vec<u8>) {
    if !column.is_valid(row) {
        bytes.push(1);
        return;
    }
    bytes.push(0);
    let row = if column.constant { 0 } else { row };
    match &column.data {
        Data::Bool(values) | Data::U8(values) => bytes.push(values[row]),
        Data::I8(values) => bytes.extend(values[row].to_le_bytes()),
        Data::I16(values) => bytes.extend(values[row].to_le_bytes()),
        Data::I32(values) => bytes.extend(values[row].to_le_bytes()),
        Data::I64(values) => bytes.extend(values[row].to_le_bytes()),
        Data::U16(values) => bytes.extend(values[row].to_le_bytes()),
        Data::U32(values) => bytes.extend(values[row].to_le_bytes()),
        Data::U64(values) => bytes.extend(values[row].to_le_bytes()),
        Data::F32(values) => bytes.extend(canonical_f32(values[row]).to_le_bytes()),
        Data::F64(values) => bytes.extend(canonical_f64(values[row]).to_le_bytes()),
        Data::I128(values) => bytes.extend(values[row].to_le_bytes()),
        Data::Str(values) => {
            bytes.extend((values[row].len() as u32).to_le_bytes());
            bytes.extend(values[row].as_bytes());
        }
    }
}

/// One bit pattern for all NaNs and one for both zeros.
pub fn canonical_f64(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

/// One bit pattern for all NaNs and one for both zeros.
pub fn canonical_f32(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value + 0.0 }
}

/// Hash of an encoded key: eight bytes at a time, multiply and fold (the mixing step of
/// wyhash, <https://github.com/wangyi-fudan/wyhash>).
pub fn hash(key: &[u8]) -> u64 {
    const SEED: u64 = 0xa076_1d64_78bd_642f;
    const FACTOR: u64 = 0xe703_7ed1_a0b4_28db;
    let fold = |state: u64, word: u64| {
        let product = u128::from(state ^ word) * u128::from(FACTOR);
        (product as u64) ^ (product >> 64) as u64
    };
    let (words, tail) = key.as_chunks::<8>();
    let state = words.iter().fold(SEED, |state, word| fold(state, u64::from_le_bytes(*word)));
    let mut last = [0u8; 8];
    last[..tail.len()].copy_from_slice(tail);
    let state = fold(state, u64::from_le_bytes(last) ^ (key.len() as u64) << 56);
    fold(state, SEED)
}
