//! Keys of several columns as byte strings: equal keys have equal bytes.
//!
//! ```text
//! per key column:  0, value (fixed width, little-endian)    not NULL
//!                  0, length (u32), bytes                   text
//!                  0, bytes                                 bytes of one length
//!                  1                                        NULL
//! ```

use headrace_io::{for_each, huge, parts_mut};

use crate::simd::prefetch;
use crate::vector::{Data, Vector};

/// Steps of [`EncodedKeys::ask_for`].
pub const ASK_STEPS: usize = 2;

/// Encoded keys of some rows.
#[derive(Debug)]
pub struct EncodedKeys {
    /// All keys, one after the other.
    pub bytes: Vec<u8>,
    /// Start of each key, and the end of the last.
    pub offsets: Vec<usize>,
}

impl EncodedKeys {
    /// Keys one after the other.
    pub fn joined(parts: &[Self], threads: usize) -> Self {
        let bytes = || parts.iter().map(|part| part.bytes.len());
        let rows = || parts.iter().map(|part| part.offsets.len() - 1);
        let mut whole = Self {
            bytes: huge::zeroed(bytes().sum()),
            offsets: huge::zeroed(1 + rows().sum::<usize>()),
        };
        let (mut places, mut start) = (Vec::with_capacity(parts.len()), 0);
        let own_bytes = parts_mut(&mut whole.bytes, bytes());
        let own_ends = parts_mut(&mut whole.offsets[1..], rows());
        for (part, own) in parts.iter().zip(own_bytes.into_iter().zip(own_ends)) {
            places.push((part, start, own));
            start += part.bytes.len();
        }
        for_each(places.into_iter(), threads, |(part, start, (bytes, ends))| {
            bytes.copy_from_slice(&part.bytes);
            ends.iter_mut().zip(&part.offsets[1..]).for_each(|(end, own)| *end = start + own);
        });
        whole
    }

    /// The key of a row.
    #[inline]
    pub fn row(&self, row: usize) -> &[u8] {
        &self.bytes[self.offsets[row]..self.offsets[row + 1]]
    }

    /// A key will be read soon: of all such keys first where they lie, then the bytes.
    #[inline(always)]
    pub fn ask_for(&self, step: usize, row: usize) {
        match step {
            0 => prefetch(&raw const self.offsets[row]),
            _ => prefetch(self.bytes.as_ptr().wrapping_add(self.offsets[row])),
        }
    }
}

/// Encodes the keys of `rows` rows.
pub fn encode<'v, 'a: 'v>(
    columns: impl Iterator<Item = &'v Vector<'a>>,
    rows: usize,
) -> EncodedKeys {
    let columns: Vec<&Vector<'a>> = columns.collect();
    if let Some(keys) = encode_fixed(&columns, rows) {
        return keys;
    }
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

/// Keys of columns of fixed width without NULLs, a column at a time; `None` for others.
fn encode_fixed(columns: &[&Vector<'_>], rows: usize) -> Option<EncodedKeys> {
    let width = |column: &&Vector<'_>| match &column.data {
        _ if column.validity.is_some() || column.constant => None,
        Data::Bool(_) | Data::U8(_) | Data::I8(_) => Some(1),
        Data::I16(_) | Data::U16(_) => Some(2),
        Data::I32(_) | Data::U32(_) | Data::F32(_) => Some(4),
        Data::I64(_) | Data::U64(_) | Data::F64(_) => Some(8),
        Data::I128(_) => Some(16),
        Data::Str(_) | Data::Bytes(_) => None,
    };
    let widths = columns.iter().map(width).collect::<Option<Vec<usize>>>()?;
    if rows == 0 {
        return None;
    }
    let stride = widths.iter().map(|width| 1 + width).sum::<usize>();
    let mut bytes = vec![0u8; rows * stride];
    let mut at = 0;
    for (column, width) in columns.iter().zip(widths) {
        let mut places = bytes[at..].chunks_mut(stride).map(|key| &mut key[1..1 + width]);
        macro_rules! place {
            ($values:expr, $of:expr) => {
                places.by_ref().zip($values.iter()).for_each(|(place, &value)| {
                    place.copy_from_slice(&$of(value).to_le_bytes());
                })
            };
        }
        match &column.data {
            Data::Bool(values) | Data::U8(values) => place!(values, |v: u8| v),
            Data::I8(values) => place!(values, |v: i8| v),
            Data::I16(values) => place!(values, |v: i16| v),
            Data::I32(values) => place!(values, |v: i32| v),
            Data::I64(values) => place!(values, |v: i64| v),
            Data::U16(values) => place!(values, |v: u16| v),
            Data::U32(values) => place!(values, |v: u32| v),
            Data::U64(values) => place!(values, |v: u64| v),
            Data::F32(values) => place!(values, canonical_f32),
            Data::F64(values) => place!(values, canonical_f64),
            Data::I128(values) => place!(values, |v: i128| v),
            Data::Str(_) | Data::Bytes(_) => return None,
        }
        at += 1 + width;
    }
    let offsets = (0..=rows).map(|row| row * stride).collect();
    Some(EncodedKeys { bytes, offsets })
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
        Data::Bytes(values) => bytes.extend(values[row]),
    }
}

/// One bit pattern for all NaNs and one for both zeros.
#[inline]
pub fn canonical_f64(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

/// One bit pattern for all NaNs and one for both zeros.
#[inline]
pub(crate) fn canonical_f32(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value + 0.0 }
}

/// What hashes begin with.
pub(crate) const SEED: u64 = 0xa076_1d64_78bd_642f;

/// Multiply and fold, the mixing step of wyhash, <https://github.com/wangyi-fudan/wyhash>.
#[inline(always)]
pub fn fold(state: u64, word: u64) -> u64 {
    const FACTOR: u64 = 0xe703_7ed1_a0b4_28db;
    let product = u128::from(state ^ word) * u128::from(FACTOR);
    (product as u64) ^ (product >> 64) as u64
}

/// Hash of an encoded key, eight bytes at a time.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    let (words, tail) = key.as_chunks::<8>();
    let state = words.iter().fold(SEED, |state, word| fold(state, u64::from_le_bytes(*word)));
    let state = fold(state, last_word(key, tail) ^ (key.len() as u64) << 56);
    fold(state, SEED)
}

/// The bytes after a key's last whole word, as the low ones of a number. They are loaded as words: what is copied a byte at a
/// time and read as a word waits until everything before it is done.
#[inline(always)]
fn last_word(key: &[u8], tail: &[u8]) -> u64 {
    match (key.last_chunk::<8>(), tail) {
        (_, []) => 0,
        (Some(end), _) => u64::from_le_bytes(*end) >> (64 - 8 * tail.len()),
        (None, [a]) => u64::from(*a),
        (None, [a, .., z]) if tail.len() < 4 => {
            let middle = tail[tail.len() / 2];
            let shifted = |byte: u8, place: usize| u64::from(byte) << (8 * place);
            u64::from(*a) | shifted(middle, tail.len() / 2) | shifted(*z, tail.len() - 1)
        }
        (None, _) => {
            let half =
                |bytes: Option<&[u8; 4]>| bytes.map_or(0, |b| u64::from(u32::from_le_bytes(*b)));
            half(tail.first_chunk()) | half(tail.last_chunk()) << (8 * (tail.len() - 4))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_bytes_a_column_at_a_time() {
        let numbers: Vec<i32> = (0..100).map(|i| i * 7 - 300).collect();
        let floats: Vec<f64> = (0..100).map(|i| if i % 3 == 0 { -0.0 } else { f64::NAN }).collect();
        let wide: Vec<i128> = (0..100).map(|i| (i - 50) << 70).collect();
        let tiny: Vec<u8> = (0..100).collect();
        let columns = [
            Vector::new(Data::I32(numbers.into())),
            Vector::new(Data::F64(floats.into())),
            Vector::new(Data::I128(wide.into())),
            Vector::new(Data::U8(tiny.into())),
        ];
        let fast = encode(columns.iter(), 100);
        let mut slow = Vec::new();
        for row in 0..100 {
            columns.iter().for_each(|column| encode_value(column, row, &mut slow));
            assert_eq!(fast.offsets[row + 1], slow.len());
        }
        assert_eq!(fast.bytes, slow);
    }

    #[test]
    fn the_last_word_is_that_of_zeros_behind_the_tail() {
        let bytes: Vec<u8> = (0..40).map(|i| 0x81 + i * 3).collect();
        for len in 0..bytes.len() {
            let (key, mut last) = (&bytes[..len], [0; 8]);
            let tail = key.as_chunks::<8>().1;
            last[..tail.len()].copy_from_slice(tail);
            assert_eq!(last_word(key, tail), u64::from_le_bytes(last), "{len}");
        }
    }

    #[test]
    fn nulls_texts_and_constants_are_encoded_row_by_row() {
        let nulls = Vector::with_validity(Data::I32(vec![1, 2].into()), Some(vec![1, 0]));
        let one = Vector::constant(Data::I32(vec![1].into()), false);
        assert_eq!(encode([&one, &one].into_iter(), 0).offsets, [0]);
        let (nulls, one) = (encode([&nulls].into_iter(), 2), encode([&one].into_iter(), 2));
        assert_eq!((nulls.row(0), nulls.row(1)), (one.row(1), &[1u8][..]));
    }
}
