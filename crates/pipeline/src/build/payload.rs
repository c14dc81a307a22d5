//! Payload columns: as narrow as their values allow, text as codes of the texts that occur.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_buffer::ToByteSlice;
use headrace_columns::repr::{Dictionary, Repr};
use headrace_columns::vector::{Data, Element};
use headrace_io::huge;
use headrace_ir::ValueRange;

use crate::ExecError;
use crate::build::pieces::{Bits, BuildColumn, Piece, Pieces};
use crate::build::texts::{code_texts, number_texts, occurring};
use crate::build::{PayloadColumn, PayloadData, Presence};

/// Where the rows' values go.
pub(crate) enum Placement<'p> {
    /// One entry a row, in their order.
    Rows,
    /// The entry of the row's key.
    Keys(UniqueKeys<'p>),
}

/// A key that no two rows have.
pub(crate) struct UniqueKeys<'p> {
    key: &'p BuildColumn<'p>,
    base: i64,
    /// Keys that there may be.
    domain: usize,
}

impl<'p> UniqueKeys<'p> {
    /// The set of the keys, which are integers of a domain; `None`: two rows have the same key.
    pub(crate) fn of(
        key: &'p BuildColumn<'p>,
        pieces: &Pieces,
        (base, domain): (i64, u64),
    ) -> Result<Option<(Presence, Self)>, ExecError> {
        let mut present = Presence::empty(base, domain);
        let bits = Bits::of(&mut present.words);
        let is_twice = AtomicBool::new(false);
        pieces.map(|piece| {
            if is_twice.load(Ordering::Relaxed) {
                return Ok(());
            }
            key.with_integers(piece, |keys, _| {
                if !bits.set_new(keys.iter().map(|&key| entry_of(key, base))) {
                    is_twice.store(true, Ordering::Relaxed);
                }
            })
        })?;
        let keys = Self { key, base, domain: domain as usize };
        Ok((!is_twice.into_inner()).then_some((present, keys)))
    }
}

/// The place of a number in a domain.
#[inline(always)]
pub(crate) fn entry_of(number: i64, base: i64) -> usize {
    number.wrapping_sub(base) as u64 as usize
}

/// Places of a slice that several threads write, each some of them.
struct Places<'a, T> {
    start: *mut T,
    count: usize,
    of: PhantomData<&'a mut [T]>,
}

// SAFETY: all that a thread does with another one's slice is to put values there.
unsafe impl<T: Send> Sync for Places<'_, T> {}

impl<'a, T: Copy> Places<'a, T> {
    fn of(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), count: slice.len(), of: PhantomData }
    }

    /// # Safety
    /// No other thread may write the same places.
    unsafe fn write_all(&self, first: usize, values: &[T]) {
        let end = first.checked_add(values.len());
        assert!(end.is_some_and(|end| end <= self.count), "entries outside of their build");
        // SAFETY: the places are of the slice, which is borrowed for this alone; the values are another one's.
        unsafe { self.start.add(first).copy_from_nonoverlapping(values.as_ptr(), values.len()) }
    }

    /// # Safety
    /// No other thread may write the same place.
    #[inline(always)]
    unsafe fn write(&self, place: usize, value: T) {
        assert!(place < self.count, "an entry outside of its build");
        // SAFETY: the place is one of the slice, which is borrowed for this alone.
        unsafe { self.start.add(place).write(value) }
    }
}

/// The entries of a piece's rows.
enum Entries<'a, U> {
    Rows(&'a mut [U]),
    /// By the rows' keys, which are unique.
    Keys {
        keys: &'a [i64],
        base: i64,
        places: &'a Places<'a, U>,
    },
}

impl<U: Copy> Entries<'_, U> {
    /// Puts a value for each row.
    fn put(self, values: impl Iterator<Item = U>) {
        match self {
            Self::Rows(entries) => entries.iter_mut().zip(values).for_each(|(e, value)| *e = value),
            Self::Keys { keys, base, places } => {
                for (&key, value) in keys.iter().zip(values) {
                    // SAFETY: keys are unique, so that each place belongs to one row, and rows to one piece.
                    unsafe { places.write(entry_of(key, base), value) }
                }
            }
        }
    }
}

impl Placement<'_> {
    fn entries(&self, pieces: &Pieces) -> usize {
        match self {
            Self::Rows => pieces.rows(),
            Self::Keys(keys) => keys.domain,
        }
    }

    /// Every entry's value; `fill` where there is no row.
    fn place<U: Copy + Default + PartialEq + Send + Sync>(
        &self,
        pieces: &Pieces,
        fill: U,
        put: impl Fn(&Piece, Entries<'_, U>) -> Result<(), ExecError> + Sync,
    ) -> Result<Vec<U>, ExecError> {
        let keys = match self {
            Self::Rows => return pieces.values(|piece, own| put(piece, Entries::Rows(own))),
            Self::Keys(keys) => keys,
        };
        let mut placed = huge::filled(fill, keys.domain, pieces.threads());
        let (places, base) = (&Places::of(&mut placed), keys.base);
        pieces.map(|piece| {
            keys.key
                .with_integers(piece, |keys, _| put(piece, Entries::Keys { keys, base, places }))?
        })?;
        Ok(placed)
    }

    /// Which entries are not NULL; `None` where none can be.
    fn validity(
        &self,
        column: &BuildColumn<'_>,
        pieces: &Pieces,
    ) -> Result<Option<Arc<[u64]>>, ExecError> {
        if !column.may_have_nulls() {
            return Ok(None);
        }
        let mut words = huge::zeroed(self.entries(pieces).div_ceil(64));
        let bits = Bits::of(&mut words);
        pieces.map(|piece| {
            let vector = column.of(piece);
            let rows = (0..piece.rows.len()).filter(|&row| vector.is_valid(row));
            match self {
                Self::Rows => bits.set(rows.map(|row| piece.first + row)),
                Self::Keys(UniqueKeys { key, base, .. }) => {
                    key.with_integers(piece, |keys, _| {
                        bits.set(rows.map(|row| entry_of(keys[row], *base)));
                    })?
                }
            }
            Ok(())
        })?;
        Ok(Some(words.into()))
    }
}

impl PayloadData {
    /// The bytes of all entries.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::U8 { raw, .. } | Self::Bool(raw) => raw,
            Self::U16 { raw, .. } => raw.to_byte_slice(),
            Self::U32 { raw, .. } => raw.to_byte_slice(),
            Self::I64(values) => values.to_byte_slice(),
            Self::U64(values) => values.to_byte_slice(),
            Self::F64(values) => values.to_byte_slice(),
            Self::I128(values) => values.to_byte_slice(),
            Self::Bytes { raw, .. } => raw,
        }
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }
}

/// Numbers of a piece, and which of them are no NULLs.
type Numbers<'a> =
    &'a (dyn Fn(&Piece, &mut dyn FnMut(&[i64], Option<&[u8]>)) -> Result<(), ExecError> + Sync);

/// Lays out one payload column. `is_passed_on`: whether texts may be twice in their dictionary, and in any order.
pub(crate) fn encode(
    column: &BuildColumn<'_>,
    placement: &Placement<'_>,
    pieces: &Pieces,
    is_passed_on: bool,
) -> Result<PayloadColumn, ExecError> {
    let laid_out = Laid { column, placement, pieces };
    let validity = placement.validity(column, pieces)?;
    let (repr, data, range) = match &column.repr {
        Repr::Str => {
            let numbered = if is_passed_on { number_texts(column, pieces)? } else { None };
            let (dictionary, codes) = match numbered {
                Some(numbered) => numbered,
                None => code_texts(column, pieces)?,
            };
            laid_out.coded(dictionary, &|piece, then| {
                let codes = codes[piece.numbers()].iter().map(|&code| i64::from(code));
                then(&codes.collect::<Vec<_>>(), column.of(piece).validity.as_deref());
                Ok(())
            })?
        }
        Repr::Code(all) => {
            let (dictionary, new_codes) = occurring(all, column, pieces)?;
            // What stands for NULL may be any code.
            let new = |&code: &i64| new_codes.get(code as usize).map_or(0, |&new| new.max(0));
            laid_out.coded(dictionary, &|piece, then| {
                column.with_integers(piece, |codes, valid| {
                    then(&codes.iter().map(new).collect::<Vec<_>>(), valid);
                })
            })?
        }
        Repr::U64 => (Repr::U64, PayloadData::U64(laid_out.typed(|value: u64| value)?), None),
        Repr::F64 => (Repr::F64, PayloadData::F64(laid_out.typed(|value: f64| value)?), None),
        Repr::F32 => {
            (Repr::F32, PayloadData::F64(laid_out.typed(|value: f32| value.into())?), None)
        }
        Repr::I128 => (Repr::I128, PayloadData::I128(laid_out.typed(|value: i128| value)?), None),
        Repr::Bytes(width) => (
            Repr::Bytes(*width),
            PayloadData::Bytes { width: *width, raw: laid_out.bytes(*width)? },
            None,
        ),
        Repr::Bool => {
            let numbers: Numbers<'_> = &|piece, then| column.with_integers(piece, then);
            let truths = placement.place(pieces, u8::MAX, |piece, entries| {
                let Data::Bool(values) = column.of(piece).data else {
                    return Err(column.held_otherwise());
                };
                entries.put(values.iter().copied());
                Ok(())
            })?;
            (Repr::Bool, PayloadData::Bool(truths), laid_out.range(numbers)?)
        }
        repr => {
            let numbers: Numbers<'_> = &|piece, then| column.with_integers(piece, then);
            let range = laid_out.range(numbers)?;
            (repr.clone(), laid_out.narrow(range, numbers)?, range)
        }
    };
    Ok(PayloadColumn { field: column.field.clone(), repr, range, data, validity })
}

/// A column that is laid out.
struct Laid<'a> {
    column: &'a BuildColumn<'a>,
    placement: &'a Placement<'a>,
    pieces: &'a Pieces,
}

impl Laid<'_> {
    /// Values of a type of their own, zero where there is no row.
    fn typed<T: Element, U: Copy + Default + PartialEq + Send + Sync>(
        &self,
        convert: impl Fn(T) -> U + Sync,
    ) -> Result<Vec<U>, ExecError> {
        self.placement.place(self.pieces, U::default(), |piece, entries| {
            let vector = self.column.of(piece);
            let values = T::values(&vector.data).ok_or_else(|| self.column.held_otherwise())?;
            entries.put(values.iter().map(|&value| convert(value)));
            Ok(())
        })
    }

    /// Bytes of one length, zeros where there is no row.
    fn bytes(&self, width: usize) -> Result<Vec<u8>, ExecError> {
        let mut raw = huge::zeroed(self.placement.entries(self.pieces).saturating_mul(width));
        let places = &Places::of(&mut raw);
        self.pieces.map(|piece| {
            let vector = self.column.of(piece);
            let Data::Bytes(values) = &vector.data else {
                return Err(self.column.held_otherwise());
            };
            let put = |entries: &mut dyn Iterator<Item = usize>| {
                for (entry, value) in entries.zip(values) {
                    assert!(value.len() == width, "a value of another length");
                    // SAFETY: an entry belongs to one row, as keys are unique, and rows to one piece.
                    unsafe { places.write_all(entry * width, value) }
                }
            };
            match self.placement {
                Placement::Rows => put(&mut piece.numbers()),
                Placement::Keys(UniqueKeys { key, base, .. }) => {
                    key.with_integers(piece, |keys, _| {
                        put(&mut keys.iter().map(|&key| entry_of(key, *base)));
                    })?;
                }
            }
            Ok(())
        })?;
        Ok(raw)
    }

    fn coded(
        &self,
        dictionary: Dictionary,
        codes: Numbers<'_>,
    ) -> Result<(Repr, PayloadData, Option<ValueRange>), ExecError> {
        let range = self.range(codes)?;
        Ok((Repr::Code(Arc::new(dictionary)), self.narrow(range, codes)?, range))
    }

    /// Bounds of the numbers that are no NULLs.
    fn range(&self, numbers: Numbers<'_>) -> Result<Option<ValueRange>, ExecError> {
        let ranges = self.pieces.map(|piece| {
            let mut range = None;
            numbers(piece, &mut |values, valid| range = range_of(values, valid))?;
            Ok(range)
        })?;
        Ok(ranges.into_iter().flatten().reduce(wider))
    }

    /// Raw values from the smallest on, the largest raw value kept free. NULLs become raw 0.
    fn narrow(
        &self,
        range: Option<ValueRange>,
        numbers: Numbers<'_>,
    ) -> Result<PayloadData, ExecError> {
        let ValueRange { min: base, max } = range.unwrap_or(ValueRange { min: 0, max: 0 });
        let span = i128::from(max) - i128::from(base);
        let raw = |value: i64| {
            if (base..=max).contains(&value) { value.wrapping_sub(base) as u64 } else { 0 }
        };
        macro_rules! raws {
            ($variant:ident, $type:ty) => {
                PayloadData::$variant {
                    base,
                    raw: self.numbers(<$type>::MAX, numbers, |value| raw(value) as $type)?,
                }
            };
        }
        Ok(if span < i128::from(u8::MAX) {
            raws!(U8, u8)
        } else if span < i128::from(u16::MAX) {
            raws!(U16, u16)
        } else if span < i128::from(u32::MAX) {
            raws!(U32, u32)
        } else {
            PayloadData::I64(self.numbers(0, numbers, |value| value)?)
        })
    }

    fn numbers<U: Copy + Default + PartialEq + Send + Sync>(
        &self,
        fill: U,
        numbers: Numbers<'_>,
        convert: impl Fn(i64) -> U + Sync,
    ) -> Result<Vec<U>, ExecError> {
        self.placement.place(self.pieces, fill, |piece, entries| {
            let mut entries = Some(entries);
            numbers(piece, &mut |values, _| {
                if let Some(entries) = entries.take() {
                    entries.put(values.iter().map(|&value| convert(value)));
                }
            })
        })
    }
}

/// Bounds of numbers that are no NULLs.
pub(crate) fn range_of(values: &[i64], valid: Option<&[u8]>) -> Option<ValueRange> {
    let Some(valid) = valid else {
        let (min, max) = (values.iter().copied().min()?, values.iter().copied().max()?);
        return Some(ValueRange { min, max });
    };
    let present = values.iter().zip(valid).filter(|(_, valid)| **valid != 0);
    present.map(|(&value, _)| ValueRange { min: value, max: value }).reduce(wider)
}

/// What both are within.
pub(crate) fn wider(a: ValueRange, b: ValueRange) -> ValueRange {
    ValueRange { min: a.min.min(b.min), max: a.max.max(b.max) }
}
