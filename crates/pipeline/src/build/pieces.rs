//! Rows of a build in the making. Each worker gathered a part of them; threads take pieces of parts.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use headrace_columns::column::Column;
use headrace_columns::convert::integers;
use headrace_columns::repr::Repr;
use headrace_columns::vector::Vector;
use headrace_io::{huge, parts_mut, try_for_each, try_map};
use headrace_ir::Field;

use crate::ExecError;

/// Rows of a piece: its values stay in a core's cache.
const PIECE_ROWS: usize = 1 << 16;

/// One column of a build in the making.
pub(crate) struct BuildColumn<'a> {
    pub(crate) field: Field,
    pub(crate) repr: Repr,
    /// Its values, by part.
    pub(crate) parts: Vec<&'a Column>,
}

impl<'a> BuildColumn<'a> {
    /// Rows of each part.
    pub(crate) fn part_rows(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(|part| part.rows())
    }

    /// Whether any of it may be NULL.
    pub(crate) fn may_have_nulls(&self) -> bool {
        self.parts.iter().any(|part| part.validity().is_some())
    }

    /// The values of a piece.
    pub(crate) fn of(&self, piece: &Piece) -> Vector<'a> {
        self.parts[piece.part].slice(piece.rows.clone())
    }

    /// Does something with a piece's values as numbers, and which of them are no NULLs.
    pub(crate) fn with_integers<T>(
        &self,
        piece: &Piece,
        then: impl FnOnce(&[i64], Option<&[u8]>) -> T,
    ) -> Result<T, ExecError> {
        let vector = self.of(piece);
        let values = integers(&vector.data).ok_or_else(|| self.held_otherwise())?;
        Ok(then(&values, vector.validity.as_deref()))
    }

    /// The error of values that are not what their column says.
    pub(crate) fn held_otherwise(&self) -> ExecError {
        ExecError::Internal(format!("a build's column {} held as {:?}", self.field.name, self.repr))
    }
}

/// Some rows of a part.
pub(crate) struct Piece {
    pub(crate) part: usize,
    /// Rows of the part.
    pub(crate) rows: Range<usize>,
    /// Number of the first of them among all rows.
    pub(crate) first: usize,
}

impl Piece {
    /// Its rows among all rows.
    pub(crate) fn numbers(&self) -> Range<usize> {
        self.first..self.first + self.rows.len()
    }
}

/// All rows in pieces, and threads for them.
pub(crate) struct Pieces {
    all: Vec<Piece>,
    rows: usize,
    threads: usize,
}

impl Pieces {
    /// The rows of parts that have so many.
    pub(crate) fn of(part_rows: impl Iterator<Item = usize>, threads: usize) -> Self {
        let (mut all, mut first) = (Vec::new(), 0);
        for (part, rows) in part_rows.enumerate() {
            for start in (0..rows).step_by(PIECE_ROWS) {
                let end = (start + PIECE_ROWS).min(rows);
                all.push(Piece { part, rows: start..end, first });
                first += end - start;
            }
        }
        Self { all, rows: first, threads: threads_for(first, threads) }
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Piece> {
        self.all.iter()
    }

    /// How many threads may work on them.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Something of every piece.
    pub(crate) fn map<T: Send>(
        &self,
        of: impl Fn(&Piece) -> Result<T, ExecError> + Sync,
    ) -> Result<Vec<T>, ExecError> {
        try_map(self.all.len(), (1, self.threads), |piece| of(&self.all[piece]))
    }

    /// A value for every row.
    pub(crate) fn values<T: Copy + Default + Send>(
        &self,
        write: impl Fn(&Piece, &mut [T]) -> Result<(), ExecError> + Sync,
    ) -> Result<Vec<T>, ExecError> {
        let mut values = huge::zeroed(self.rows);
        let parts = parts_mut(&mut values, self.all.iter().map(|piece| piece.rows.len()));
        let parts = self.all.iter().zip(parts);
        try_for_each(parts, self.threads, |(piece, own)| write(piece, own))?;
        Ok(values)
    }
}

/// Threads for so many rows: few are done before another thread has begun.
pub(crate) fn threads_for(rows: usize, threads: usize) -> usize {
    if rows < PIECE_ROWS { 1 } else { threads.max(1) }
}

/// Numbers that several threads may write.
///
/// # Safety
/// Those that are shared must lie as the numbers do, and take every value that these take.
pub(crate) unsafe trait Shareable: Sized {
    type Shared: Sync;
}

// SAFETY: an atomic number lies as the number does.
unsafe impl Shareable for u8 {
    type Shared = AtomicU8;
}

// SAFETY: as above.
unsafe impl Shareable for u32 {
    type Shared = AtomicU32;
}

// SAFETY: as above.
unsafe impl Shareable for u64 {
    type Shared = AtomicU64;
}

/// Numbers as several threads write them.
pub(crate) fn shared<T: Shareable>(numbers: &mut [T]) -> &[T::Shared] {
    const { assert!(align_of::<T>() == align_of::<T::Shared>()) };
    // SAFETY: they lie alike, and this borrow is the only one.
    unsafe { &*(std::ptr::from_mut(numbers) as *const [T::Shared]) }
}

/// Bits that several threads set.
pub(crate) struct Bits<'a>(&'a [AtomicU64]);

impl<'a> Bits<'a> {
    pub(crate) fn of(words: &'a mut [u64]) -> Self {
        Self(shared(words))
    }

    /// Sets some bits.
    pub(crate) fn set(&self, places: impl Iterator<Item = usize>) {
        self.runs(places, |_, _| true);
    }

    /// Sets some bits; `false`: one of them was set before, and not all may be now.
    pub(crate) fn set_new(&self, places: impl Iterator<Item = usize>) -> bool {
        self.runs(places, |bits, known| bits & known == 0)
    }

    /// Sets bits, those that follow each other in one word together: as long as `goes_on` says so of new bits and those
    /// that were there.
    #[inline(always)]
    fn runs(
        &self,
        places: impl Iterator<Item = usize>,
        goes_on: impl Fn(u64, u64) -> bool,
    ) -> bool {
        let (mut word, mut bits) = (usize::MAX, 0u64);
        let put = |word: usize, bits: u64| {
            bits == 0 || goes_on(bits, self.0[word].fetch_or(bits, Ordering::Relaxed))
        };
        for place in places {
            let bit = 1 << (place % 64);
            if place / 64 != word {
                if !put(word, bits) {
                    return false;
                }
                (word, bits) = (place / 64, 0);
            } else if !goes_on(bit, bits) {
                return false;
            }
            bits |= bit;
        }
        put(word, bits)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pieces_are_all_rows_in_their_order() {
        let parts = [0, 3 * PIECE_ROWS + 5, 1, PIECE_ROWS];
        for threads in [0, 1, 4] {
            let pieces = Pieces::of(parts.into_iter(), threads);
            assert_eq!(pieces.rows(), 4 * PIECE_ROWS + 6);
            let numbers = pieces.map(|piece| Ok((piece.part, piece.numbers()))).unwrap();
            let ends = numbers.windows(2).all(|two| two[0].1.end == two[1].1.start);
            assert!(ends && numbers[0].1.start == 0, "{numbers:?}");
            let write = |piece: &Piece, own: &mut [usize]| {
                own.iter_mut().zip(piece.numbers()).for_each(|(own, number)| *own = number);
                Ok(())
            };
            assert!(pieces.values(write).unwrap().into_iter().eq(0..pieces.rows()));
        }
        let none = Pieces::of(std::iter::empty(), 4);
        assert_eq!((none.rows(), none.values(|_, _: &mut [u8]| Ok(())).unwrap()), (0, vec![]));
    }

    #[test]
    fn bits_that_were_set_before_are_told() {
        let mut words = vec![0u64; 4];
        let bits = Bits::of(&mut words);
        assert!(bits.set_new([1, 2, 200, 3].into_iter()) && bits.set_new([0, 64].into_iter()));
        assert!(!bits.set_new([5, 5].into_iter()) && !bits.set_new([200].into_iter()));
        assert!(!bits.set_new([7, 70, 7].into_iter()) && bits.set_new(std::iter::empty()));
        bits.set([70, 70, 1, 130].into_iter());
        assert_eq!(words, [0b1000_1111, 0b100_0001, 0b100, 1 << 8]);
    }
}
