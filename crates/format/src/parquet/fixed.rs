//! Values of one width each.

use std::fmt;

use arrow_array::{ArrayRef, BooleanArray, make_array};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, ToByteSlice};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};
use headrace_ir::Encoding;

use super::bad::Bad;
use super::runs::{Piece, Runs};
use super::{deltas, encodings};

/// How a value lies in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Bit,
    Four,
    Eight,
    /// Signed, the first byte the highest: decimals.
    BigEndian(usize),
}

impl Stored {
    /// Bytes of a value; none for bits.
    fn bytes(self) -> usize {
        match self {
            Self::Bit => 0,
            Self::Four => 4,
            Self::Eight => 8,
            Self::BigEndian(bytes) => bytes,
        }
    }
}

/// A value as a batch has it: the bits of all types of its width.
pub(super) trait Value: ArrowNativeType + fmt::Debug {
    fn of(value: i64) -> Self;
    fn of_wide(value: i128) -> Self;
}

macro_rules! value_of {
    ($($native:ty)*) => {$(
        impl Value for $native {
            fn of(value: i64) -> Self {
                value as Self
            }

            fn of_wide(value: i128) -> Self {
                value as Self
            }
        }
    )*};
}

value_of!(i8 i16 i32 i64 i128 u8 u16 u32);

/// What becomes of the numbers of a file.
#[derive(Clone, Copy)]
enum Kept {
    /// They themselves.
    Whole,
    /// Differences from this one.
    From(i64),
}

impl Kept {
    /// Appends numbers; whether all of them have a place.
    fn append<T: Value>(self, numbers: impl Iterator<Item = i64>, out: &mut Vec<T>) -> bool {
        let Self::From(base) = self else {
            out.extend(numbers.map(T::of));
            return true;
        };
        let mut bits = 0;
        out.extend(numbers.map(|number| {
            let delta = number.wrapping_sub(base);
            bits |= delta as u64;
            T::of(delta)
        }));
        // A difference below 0 has the highest bits.
        size_of::<T>() >= 8 || bits >> (8 * size_of::<T>()) == 0
    }

    /// The same of wide ones.
    fn append_wide<T: Value>(self, numbers: impl Iterator<Item = i128>, out: &mut Vec<T>) -> bool {
        let Self::From(base) = self else {
            out.extend(numbers.map(T::of_wide));
            return true;
        };
        let mut bits = 0;
        out.extend(numbers.map(|number| {
            let delta = number.wrapping_sub(base.into());
            bits |= delta as u128;
            T::of_wide(delta)
        }));
        bits >> (8 * size_of::<T>()) == 0
    }
}

/// Decimals of a width that the compiler knows: it then loads each at once.
fn big_endian<T: Value, const WIDTH: usize>(kept: Kept, bytes: &[u8], out: &mut Vec<T>) -> bool {
    let values = bytes.as_chunks::<WIDTH>().0.iter();
    if WIDTH <= 8 {
        let number = |bytes: &[u8; WIDTH]| {
            let mut high = [0; 8];
            high[..WIDTH].copy_from_slice(bytes);
            i64::from_be_bytes(high) >> (64 - 8 * WIDTH)
        };
        kept.append(values.map(number), out)
    } else {
        let number = |bytes: &[u8; WIDTH]| {
            let mut high = [0; 16];
            high[..WIDTH].copy_from_slice(bytes);
            i128::from_be_bytes(high) >> (128 - 8 * WIDTH)
        };
        kept.append_wide(values.map(number), out)
    }
}

macro_rules! big_endian_of {
    ($kept:expr, $width:expr, $bytes:expr, $out:expr, $($known:literal)*) => {
        match $width {
            $($known => big_endian::<T, $known>($kept, $bytes, $out),)*
            _ => true,
        }
    };
    ($kept:expr, $width:expr, $bytes:expr, $out:expr) => {
        big_endian_of!($kept, $width, $bytes, $out, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
    };
}

/// A file that contradicts itself: pruning would go wrong, too.
fn beyond_claims() -> Bad {
    Bad::new("a value lies beyond what the statistics of its column say")
}

/// Values whose bytes are split: the first bytes of all values, then the second bytes of all, and so on.
fn together(split: &[u8], width: usize) -> Vec<u8> {
    let values = split.len() / width;
    let bytes = |value| (0..width).map(move |byte| split[byte * values + value]);
    (0..values).flat_map(bytes).collect()
}

/// So many bytes from one on.
pub(super) fn place(into: &mut [u8], at: usize, bytes: usize) -> Result<&mut [u8], Bad> {
    let place = into.get_mut(at..).and_then(|rest| rest.get_mut(..bytes));
    place.ok_or_else(|| Bad::new("more values than rows"))
}

/// How the values of the current page lie.
enum Coding {
    Plain {
        at: usize,
    },
    /// One bit each, from a bit of the page on.
    Bits {
        at: usize,
    },
    /// Codes of the dictionary.
    Codes(Runs),
    /// The values themselves.
    Numbers(Runs),
    /// Decoded when the page was begun.
    Ready {
        values: Vec<i64>,
        at: usize,
    },
    /// As plain ones, which were made of others when the page was begun.
    Made {
        values: Vec<u8>,
        at: usize,
    },
}

/// A column of such values.
pub(super) struct Fixed<T> {
    stored: Stored,
    kept: Kept,
    data_type: DataType,
    dictionary: Vec<T>,
    coding: Coding,
    out: Vec<T>,
}

impl<T: Value> Fixed<T> {
    pub fn new(stored: Stored, data_type: DataType) -> Self {
        let (kept, coding) = (Kept::Whole, Coding::Plain { at: 0 });
        Self { stored, kept, data_type, dictionary: Vec::new(), coding, out: Vec::new() }
    }

    /// Of which differences from a number are kept; that they have a place is what the file claims.
    pub fn from_base(stored: Stored, data_type: DataType, base: i64) -> Self {
        Self { kept: Kept::From(base), ..Self::new(stored, data_type) }
    }

    /// Codes from here on are of these values.
    pub fn set_values(&mut self, values: impl IntoIterator<Item = T>) {
        self.dictionary.clear();
        self.dictionary.extend(values);
    }

    /// What was appended.
    pub fn appended(&self) -> &[T] {
        &self.out
    }

    /// Appends a value that is there already.
    pub fn push(&mut self, value: T) {
        self.out.push(value);
    }

    fn append_plain(
        (stored, kept): (Stored, Kept),
        bytes: &[u8],
        out: &mut Vec<T>,
    ) -> Result<(), Bad> {
        let have_a_place = match stored {
            Stored::Bit => true,
            Stored::Four => {
                let values = bytes.as_chunks().0.iter();
                kept.append(values.map(|bytes| i32::from_le_bytes(*bytes).into()), out)
            }
            Stored::Eight => {
                let values = bytes.as_chunks().0.iter();
                kept.append(values.map(|bytes| i64::from_le_bytes(*bytes)), out)
            }
            Stored::BigEndian(width) => big_endian_of!(kept, width, bytes, out),
        };
        if have_a_place { Ok(()) } else { Err(beyond_claims()) }
    }
}

impl<T: Value> super::values::Values for Fixed<T> {
    fn begin(&mut self) {
        self.dictionary.clear();
        self.out.clear();
    }

    fn set_dictionary(&mut self, page: &[u8], values: usize) -> Result<(), Bad> {
        let bytes = values.checked_mul(self.stored.bytes()).and_then(|size| page.get(..size));
        let bytes = bytes.filter(|_| self.stored != Stored::Bit);
        let bytes =
            bytes.ok_or_else(|| Bad::new(format!("a dictionary of {values} values is cut off")))?;
        self.dictionary.clear();
        Self::append_plain((self.stored, self.kept), bytes, &mut self.dictionary)
    }

    fn begin_page(
        &mut self,
        encoding: i32,
        page: &[u8],
        at: usize,
        values: usize,
    ) -> Result<(), Bad> {
        self.coding = match (encoding, self.stored) {
            (encodings::PLAIN, Stored::Bit) => Coding::Bits { at: at * 8 },
            (encodings::PLAIN, _) => Coding::Plain { at },
            (encodings::RLE, Stored::Bit) => Coding::Numbers(Runs::of_levels(at + 4)),
            (encodings::PLAIN_DICTIONARY | encodings::RLE_DICTIONARY, _) => {
                Coding::Codes(Runs::of_codes(page, at)?)
            }
            (encodings::DELTA_BINARY_PACKED, Stored::Four | Stored::Eight) => {
                let values = deltas::integers(page, &mut { at }, values)?;
                Coding::Ready { values, at: 0 }
            }
            (encodings::DELTA_BYTE_ARRAY, Stored::BigEndian(width)) => {
                Coding::Made { values: deltas::prefixed(page, at, values, width)?, at: 0 }
            }
            (encodings::BYTE_STREAM_SPLIT, Stored::Four | Stored::Eight | Stored::BigEndian(_)) => {
                Coding::Made { values: together(&page[at..], self.stored.bytes()), at: 0 }
            }
            _ => return Err(Bad::encoding(encoding)),
        };
        Ok(())
    }

    fn append(&mut self, page: &[u8], count: usize) -> Result<(), Bad> {
        let cut = || Bad::new("the values of a page are cut off");
        match &mut self.coding {
            Coding::Plain { at } => {
                let to =
                    count.checked_mul(self.stored.bytes()).and_then(|size| at.checked_add(size));
                let to = to.ok_or_else(cut)?;
                let bytes = page.get(*at..to).ok_or_else(cut)?;
                Self::append_plain((self.stored, self.kept), bytes, &mut self.out)?;
                *at = to;
            }
            Coding::Bits { at } => {
                if *at + count > page.len() * 8 {
                    return Err(cut());
                }
                let bits = (*at..*at + count).map(|bit| page[bit / 8] >> (bit % 8) & 1);
                self.out.extend(bits.map(|bit| T::of(bit.into())));
                *at += count;
            }
            Coding::Codes(runs) => {
                let dictionary = self.dictionary.as_slice();
                let beyond = |code: u32| {
                    Bad::new(format!("code {code} of a dictionary of {} values", dictionary.len()))
                };
                let mut left = count;
                while left > 0 {
                    left -= match runs.next(page, left)? {
                        Piece::Same(code, count) => {
                            let value =
                                dictionary.get(code as usize).ok_or_else(|| beyond(code))?;
                            self.out.extend(std::iter::repeat_n(*value, count));
                            count
                        }
                        Piece::Each(codes) => {
                            let largest = codes.iter().copied().max().unwrap_or(0);
                            if largest as usize >= dictionary.len() {
                                return Err(beyond(largest));
                            }
                            self.out.extend(codes.iter().map(|&code| dictionary[code as usize]));
                            codes.len()
                        }
                    };
                }
            }
            Coding::Numbers(runs) => {
                let mut left = count;
                while left > 0 {
                    left -= match runs.next(page, left)? {
                        Piece::Same(number, count) => {
                            self.out.extend(std::iter::repeat_n(T::of(number.into()), count));
                            count
                        }
                        Piece::Each(numbers) => {
                            self.out.extend(numbers.iter().map(|&number| T::of(number.into())));
                            numbers.len()
                        }
                    };
                }
            }
            Coding::Made { values, at } => {
                let to = *at + count * self.stored.bytes();
                let bytes = values.get(*at..to).ok_or_else(cut)?;
                Self::append_plain((self.stored, self.kept), bytes, &mut self.out)?;
                *at = to;
            }
            Coding::Ready { values, at } => {
                let some = values.get(*at..*at + count).ok_or_else(cut)?;
                if !self.kept.append(some.iter().copied(), &mut self.out) {
                    return Err(beyond_claims());
                }
                *at += count;
            }
        }
        Ok(())
    }

    fn append_nulls(&mut self, count: usize) {
        self.out.extend(std::iter::repeat_n(T::default(), count));
    }

    fn spread(&mut self, levels: &[u32], there: usize) {
        let first = self.out.len() - there;
        self.append_nulls(levels.len() - there);
        let rows = &mut self.out[first..];
        let mut next = there;
        for (row, _) in levels.iter().enumerate().rev().filter(|(_, level)| **level == 1) {
            next -= 1;
            rows[row] = rows[next];
        }
    }

    fn clear(&mut self) {
        self.out.clear();
    }

    fn put(&mut self, encoding: &Encoding, row: usize, into: &mut [u8]) -> Result<(), Bad> {
        match encoding {
            Encoding::Bits => {
                let bytes = place(into, row / 8, self.out.len().div_ceil(8))?;
                for (byte, bits) in bytes.iter_mut().zip(self.out.chunks(8)) {
                    let bits = bits.iter().enumerate();
                    *byte =
                        bits.fold(0, |all, (at, bit)| all | u8::from(*bit != T::default()) << at);
                }
            }
            _ => {
                let values = self.out.as_slice().to_byte_slice();
                place(into, row * size_of::<T>(), values.len())?.copy_from_slice(values);
            }
        }
        self.out.clear();
        Ok(())
    }

    fn finish(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let rows = self.out.len();
        if self.stored == Stored::Bit {
            let values = BooleanBuffer::collect_bool(rows, |row| self.out[row] != T::default());
            self.out.clear();
            return Ok(std::sync::Arc::new(BooleanArray::new(values, nulls)));
        }
        let made = Vec::with_capacity(rows);
        let values = Buffer::from_vec(std::mem::replace(&mut self.out, made));
        let data =
            ArrayData::builder(self.data_type.clone()).len(rows).add_buffer(values).nulls(nulls);
        Ok(make_array(data.build()?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::values::Values;
    use super::*;

    /// Differences from 10 as a page of plain values has them.
    fn deltas<T: Value>(stored: Stored, page: &[u8], values: usize) -> Result<Vec<u8>, Bad> {
        let mut column = Fixed::<T>::from_base(stored, DataType::Int64, 10);
        column.begin_page(encodings::PLAIN, page, 0, values)?;
        column.append(page, values)?;
        let mut into = vec![0xaa; values * size_of::<T>()];
        column.put(&Encoding::Plain, 0, &mut into)?;
        Ok(into)
    }

    #[test]
    fn what_a_file_claims_of_its_values_is_checked() {
        let eight =
            |values: &[i64]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        let wide =
            |values: &[i128]| -> Vec<u8> { values.iter().flat_map(|v| v.to_be_bytes()).collect() };
        let all = deltas::<u8>(Stored::Eight, &eight(&[10, 265, 11]), 3).unwrap();
        assert_eq!(all, [0, 255, 1]);
        let all = deltas::<u16>(Stored::BigEndian(16), &wide(&[10, 266]), 2).unwrap();
        assert_eq!(all, [0, 0, 0, 1]);
        for beyond in [9, 266, i64::MIN, i64::MAX] {
            let page = eight(&[10, beyond]);
            assert!(deltas::<u8>(Stored::Eight, &page, 2).is_err(), "{beyond}");
        }
        for beyond in [9, 1 << 80, i128::MIN] {
            let page = wide(&[beyond]);
            assert!(deltas::<u32>(Stored::BigEndian(16), &page, 1).is_err(), "{beyond}");
        }
        let mut column = Fixed::<u8>::from_base(Stored::Eight, DataType::Int64, 10);
        assert!(column.set_dictionary(&eight(&[12, 9]), 2).is_err());
    }
}
