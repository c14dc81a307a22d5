//! Values as they lie in bytes.

use crate::simd::U24;

/// Which rows of a segment are wanted.
#[derive(Clone, Copy)]
pub(super) enum Rows<'r> {
    Range { start: usize, rows: usize },
    Picked { start: usize, picked: &'r [u32] },
}

impl Rows<'_> {
    pub(super) fn for_each(self, mut f: impl FnMut(usize)) {
        match self {
            Self::Range { start, rows } => (start..start + rows).for_each(f),
            Self::Picked { start, picked } => picked.iter().for_each(|&i| f(start + i as usize)),
        }
    }

    pub(super) fn len(self) -> usize {
        match self {
            Self::Range { rows, .. } => rows,
            Self::Picked { picked, .. } => picked.len(),
        }
    }

    /// From the first to the last, if these rows are at least half of all between them.
    pub(super) fn dense(self) -> Option<std::ops::Range<usize>> {
        match self {
            Self::Range { start, rows } => Some(start..start + rows),
            Self::Picked { start, picked } => {
                let (first, last) = (*picked.first()? as usize, *picked.last()? as usize);
                let is_dense = first <= last && last - first < 2 * picked.len();
                is_dense.then_some(start + first..start + last + 1)
            }
        }
    }
}

/// Integers as they lie; unsigned ones are differences from a base.
#[derive(Clone, Copy)]
pub enum Small<'a> {
    /// 8 bits, signed.
    I8(&'a [i8]),
    /// 16 bits.
    I16(&'a [i16]),
    /// 32 bits.
    I32(&'a [i32]),
    /// 8 bits, unsigned.
    U8(&'a [u8]),
    /// 16 bits.
    U16(&'a [u16]),
    /// 24 bits.
    U24(&'a [U24]),
}

/// A column of integers as it lies.
#[derive(Clone, Copy)]
pub struct SmallColumn<'a> {
    /// Its values, or differences.
    pub values: Small<'a>,
    /// What the differences are from; 0 for values.
    pub base: i32,
    /// Validity bits, if any.
    pub validity: Option<&'a [u8]>,
}

/// The texts of many rows as one, and its first byte, if together they are UTF-8: to see that of all at
/// once costs a fraction of seeing it of each.
pub(super) fn joined_texts(bytes: &[u8], range: std::ops::Range<usize>) -> Option<(&str, usize)> {
    let first = range.start;
    Some((simdutf8::basic::from_utf8(bytes.get(range)?).ok()?, first))
}

pub(super) fn unpack_bits(bits: &[u8], rows: Rows<'_>) -> Vec<u8> {
    match rows {
        Rows::Range { start, rows } if start % 8 == 0 => {
            let mut bytes = Vec::with_capacity(rows.next_multiple_of(8));
            for &packed in &bits[start / 8..(start + rows).div_ceil(8)] {
                bytes.extend((0..8).map(|bit| (packed >> bit) & 1));
            }
            bytes.truncate(rows);
            bytes
        }
        rows => {
            let mut bytes = Vec::with_capacity(rows.len());
            rows.for_each(|row| bytes.push((bits[row / 8] >> (row % 8)) & 1));
            bytes
        }
    }
}

/// A fixed-width little-endian value for which every bit pattern is a value.
///
/// # Safety
/// Implementors have no padding and no invalid bit pattern.
pub(super) unsafe trait Plain: Copy + 'static {
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: primitive numbers have neither padding nor invalid bit patterns.
        unsafe impl Plain for $type {
            #[inline(always)]
            fn from_bytes(bytes: &[u8]) -> Self {
                let mut value = [0; size_of::<$type>()];
                value.copy_from_slice(bytes);
                <$type>::from_le_bytes(value)
            }
        }
    )*};
}

plain!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, i128);

// SAFETY: three bytes without padding, of which any are a number.
unsafe impl Plain for U24 {
    #[inline(always)]
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut value = [0; 3];
        value.copy_from_slice(bytes);
        Self(value)
    }
}

/// The bytes as values, where they happen to be aligned and the machine is little-endian.
pub(super) fn aligned_values<T: Plain>(bytes: &[u8]) -> Option<&[T]> {
    if cfg!(target_endian = "big") {
        return None;
    }
    let whole = bytes.len() - bytes.len() % size_of::<T>();
    // SAFETY: `Plain` types are valid for every bit pattern; `align_to` cares for alignment.
    let (head, values, tail) = unsafe { bytes[..whole].align_to::<T>() };
    (head.is_empty() && tail.is_empty()).then_some(values)
}
