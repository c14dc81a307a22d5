//! Texts and bytes of any length.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{ByteArrayType, GenericBinaryType, GenericStringType};
use arrow_array::{ArrayRef, GenericByteArray, OffsetSizeTrait};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use headrace_ir::Encoding;

use super::bad::Bad;
use super::runs::{Piece, Runs};
use super::values::Values;
use super::{deltas, encodings};

enum Coding {
    /// Each behind its length in four bytes.
    Plain {
        at: usize,
    },
    Codes(Runs),
    /// Their bytes follow each other.
    Lengths {
        lengths: Vec<u32>,
        next: usize,
        at: usize,
    },
    /// Each begins as the one before: how many bytes of it, how many more.
    Prefixed {
        prefixes: Vec<u32>,
        lengths: Vec<u32>,
        next: usize,
        at: usize,
        last: Vec<u8>,
    },
}

/// A column of such values.
pub(super) struct Texts {
    is_text: bool,
    /// Of the dictionary: its bytes, and where its values lie there.
    known: Vec<u8>,
    places: Vec<(u32, u32)>,
    /// Bytes of the longest.
    longest: usize,
    coding: Coding,
    bytes: Vec<u8>,
    /// The end of each value: in all of a batch there may be more than 2^31 bytes.
    ends: Vec<u64>,
}

impl Texts {
    pub fn new(is_text: bool) -> Self {
        let (known, places, bytes, ends) = Default::default();
        Self { is_text, known, places, longest: 0, coding: Coding::Plain { at: 0 }, bytes, ends }
    }

    /// The values of the dictionary.
    pub fn known(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|&(from, length)| &self.known[from as usize..][..length as usize])
    }

    /// The values that were appended.
    pub fn appended(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, &to)| &self.bytes[from as usize..to as usize])
    }

    fn offsets<O: OffsetSizeTrait>(&self) -> OffsetBuffer<O> {
        let ends = self.ends.iter().map(|&end| O::usize_as(end as usize));
        let offsets: Vec<O> = std::iter::once(O::usize_as(0)).chain(ends).collect();
        OffsetBuffer::new(ScalarBuffer::from(offsets))
    }

    fn made<O: OffsetSizeTrait>(
        &mut self,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let offsets = self.offsets::<O>();
        self.ends.clear();
        let room = Vec::with_capacity(self.bytes.len());
        let bytes = Buffer::from_vec(std::mem::replace(&mut self.bytes, room));
        match self.is_text {
            true => made_of::<GenericStringType<O>>(offsets, bytes, nulls),
            false => made_of::<GenericBinaryType<O>>(offsets, bytes, nulls),
        }
    }
}

fn made_of<T: ByteArrayType>(
    offsets: OffsetBuffer<T::Offset>,
    bytes: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(GenericByteArray::<T>::try_new(offsets, bytes, nulls)?))
}

/// The value behind its length at a byte, which then is the one behind it.
fn plain(page: &[u8], at: &mut usize) -> Result<Range<usize>, Bad> {
    let cut = || Bad::new("a text is cut off");
    let length = page.get(*at..).and_then(|rest| rest.first_chunk()).ok_or_else(cut)?;
    let from = *at + 4;
    let to = from + u32::from_le_bytes(*length) as usize;
    if to > page.len() {
        return Err(cut());
    }
    *at = to;
    Ok(from..to)
}

impl Values for Texts {
    fn begin(&mut self) {
        self.known.clear();
        self.places.clear();
        self.longest = 0;
        self.clear();
    }

    fn text_bytes(&self) -> (usize, usize) {
        (self.bytes.len(), self.longest)
    }

    fn set_dictionary(&mut self, page: &[u8], values: usize) -> Result<(), Bad> {
        self.begin();
        self.known.extend(page);
        let mut at = 0;
        for _ in 0..values {
            let place = plain(page, &mut at)?;
            self.longest = self.longest.max(place.len());
            self.places.push((place.start as u32, place.len() as u32));
        }
        Ok(())
    }

    fn begin_page(
        &mut self,
        encoding: i32,
        page: &[u8],
        at: usize,
        values: usize,
    ) -> Result<(), Bad> {
        let mut at = at;
        self.coding = match encoding {
            encodings::PLAIN => Coding::Plain { at },
            encodings::PLAIN_DICTIONARY | encodings::RLE_DICTIONARY => {
                Coding::Codes(Runs::of_codes(page, at)?)
            }
            encodings::DELTA_LENGTH_BYTE_ARRAY => {
                let lengths = deltas::lengths(page, &mut at, values)?;
                Coding::Lengths { lengths, next: 0, at }
            }
            encodings::DELTA_BYTE_ARRAY => {
                let prefixes = deltas::lengths(page, &mut at, values)?;
                let lengths = deltas::lengths(page, &mut at, values)?;
                Coding::Prefixed { prefixes, lengths, next: 0, at, last: Vec::new() }
            }
            _ => return Err(Bad::encoding(encoding)),
        };
        Ok(())
    }

    fn append(&mut self, page: &[u8], count: usize) -> Result<(), Bad> {
        let cut = || Bad::new("the texts of a page are cut off");
        match &mut self.coding {
            Coding::Plain { at } => {
                self.ends.reserve(count);
                for _ in 0..count {
                    let place = plain(page, at)?;
                    self.bytes.extend_from_slice(&page[place]);
                    self.ends.push(self.bytes.len() as u64);
                }
            }
            Coding::Codes(runs) => {
                let mut left = count;
                self.ends.reserve(count);
                let places = self.places.as_slice();
                let beyond = |code: u32| {
                    Bad::new(format!("code {code} of a dictionary of {} texts", places.len()))
                };
                while left > 0 {
                    let (codes, same, times) = match runs.next(page, left)? {
                        Piece::Same(code, count) => (&[] as &[u32], code, count),
                        Piece::Each(codes) => (codes, 0, 0),
                    };
                    for code in codes.iter().copied().chain(std::iter::repeat_n(same, times)) {
                        let &(from, length) =
                            places.get(code as usize).ok_or_else(|| beyond(code))?;
                        let (from, length) = (from as usize, length as usize);
                        self.bytes.extend_from_slice(&self.known[from..from + length]);
                        self.ends.push(self.bytes.len() as u64);
                    }
                    left -= codes.len() + times;
                }
            }
            Coding::Lengths { lengths, next, at } => {
                let some = lengths.get(*next..*next + count).ok_or_else(cut)?;
                for &length in some {
                    let to = *at + length as usize;
                    self.bytes.extend_from_slice(page.get(*at..to).ok_or_else(cut)?);
                    self.ends.push(self.bytes.len() as u64);
                    *at = to;
                }
                *next += count;
            }
            Coding::Prefixed { prefixes, lengths, next, at, last } => {
                let prefixes = prefixes.get(*next..*next + count).ok_or_else(cut)?;
                let lengths = lengths.get(*next..*next + count).ok_or_else(cut)?;
                for (&prefix, &length) in prefixes.iter().zip(lengths) {
                    if prefix as usize > last.len() {
                        return Err(cut());
                    }
                    let to = *at + length as usize;
                    last.truncate(prefix as usize);
                    last.extend_from_slice(page.get(*at..to).ok_or_else(cut)?);
                    self.bytes.extend_from_slice(last);
                    self.ends.push(self.bytes.len() as u64);
                    *at = to;
                }
                *next += count;
            }
        }
        Ok(())
    }

    fn append_nulls(&mut self, count: usize) {
        self.ends.extend(std::iter::repeat_n(self.bytes.len() as u64, count));
    }

    fn spread(&mut self, levels: &[u32], there: usize) {
        let first = self.ends.len() - there;
        let before = if first == 0 { 0 } else { self.ends[first - 1] };
        self.append_nulls(levels.len() - there);
        let rows = &mut self.ends[first..];
        let mut next = there;
        for (row, level) in levels.iter().enumerate().rev() {
            // A NULL ends where the value before it does.
            rows[row] = if next == 0 { before } else { rows[next - 1] };
            next -= usize::from(*level == 1 && next > 0);
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn put(&mut self, _: &Encoding, _: usize, _: &mut [u8]) -> Result<(), Bad> {
        Err(Bad::new("text has no place among plain values"))
    }

    fn finish(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        match i32::try_from(self.bytes.len()) {
            Ok(_) => self.made::<i32>(nulls),
            Err(_) => self.made::<i64>(nulls),
        }
    }
}
