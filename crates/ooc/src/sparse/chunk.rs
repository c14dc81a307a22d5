//! The bytes of a chunk as rows and entries. What cannot be true of them is found here, before any is used.

use std::ops::Range;

use bytemuck::Pod;

use super::plan::{Piece, TILE};

/// A little-endian integer in a file, at any alignment. Negative ones are larger than any length.
pub(crate) trait Word: Pod {
    fn value(self) -> u64;
}

impl Word for [u8; 4] {
    #[inline(always)]
    fn value(self) -> u64 {
        u64::from(u32::from_le_bytes(self))
    }
}

impl Word for [u8; 8] {
    #[inline(always)]
    fn value(self) -> u64 {
        u64::from_le_bytes(self)
    }
}

/// What is wrong with a matrix, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `indptr` decreases, or does not lie between its ends, at a row.
    Indptr { row: usize },
    /// An entry's column is none of the matrix.
    Index { entry: usize, column: u64 },
}

/// What a kernel comes to.
pub(crate) type Checked<T> = std::result::Result<T, Fault>;

/// The rows and entries of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk<'a, P, I> {
    pub piece: Piece,
    /// Where its rows begin, and the row behind them.
    starts: &'a [P],
    /// The columns of its entries.
    pub indices: &'a [I],
}

impl<'a, P: Word, I: Word> Chunk<'a, P, I> {
    /// # Errors
    /// [`Fault::Indptr`]: rows that do not follow each other, or that the plan found elsewhere.
    pub fn new(piece: Piece, starts: &'a [u8], indices: &'a [u8]) -> Checked<Self> {
        let chunk: Chunk<'a, P, I> = Chunk {
            piece,
            starts: bytemuck::cast_slice(starts),
            indices: bytemuck::cast_slice(indices),
        };
        let Piece { from, to, .. } = piece;
        assert_eq!(chunk.starts.len(), to.row - from.row + 1, "the plan's rows");
        assert_eq!(chunk.indices.len(), to.entry - from.entry, "the plan's entries");
        let first = chunk.starts[0].value();
        // What goes on from an earlier chunk was cut between tiles.
        let is_whole = first == from.entry as u64;
        if first > from.entry as u64 || !(is_whole || from.entry.is_multiple_of(TILE)) {
            return Err(Fault::Indptr { row: from.row });
        }
        let mut last = from.entry as u64;
        for (row, start) in chunk.starts.iter().enumerate().skip(1) {
            let start = start.value();
            if start < last || start > to.entry as u64 {
                return Err(Fault::Indptr { row: from.row + row });
            }
            last = start;
        }
        Ok(chunk)
    }

    /// Rows with entries in the chunk, and perhaps others.
    pub fn rows(&self) -> usize {
        self.starts.len()
    }

    /// The entries of a row that lie in the chunk, counted through the file, and whether the row begins with them.
    #[inline(always)]
    pub fn row(&self, row: usize) -> (Range<usize>, bool) {
        let start = self.starts[row].value() as usize;
        let end = self.starts.get(row + 1).map_or(self.piece.to.entry, |end| end.value() as usize);
        (start.max(self.piece.from.entry)..end, start >= self.piece.from.entry)
    }

    /// # Errors
    /// [`Fault::Index`] if one of these entries, counted from the chunk's first, is in no column below `index_end`.
    #[inline(always)]
    pub fn check_indices(&self, entries: Range<usize>, index_end: u64) -> Checked<()> {
        let largest = self.indices[entries.clone()]
            .iter()
            .fold(0, |largest, index| index.value().max(largest));
        if entries.is_empty() || largest < index_end {
            return Ok(());
        }
        Err(self.bad_index(entries, index_end))
    }

    #[cold]
    fn bad_index(&self, entries: Range<usize>, index_end: u64) -> Fault {
        let is_bad = |entry: &usize| self.indices[*entry].value() >= index_end;
        let entry = entries.clone().find(is_bad).unwrap_or(entries.start);
        Fault::Index { entry: self.piece.from.entry + entry, column: self.indices[entry].value() }
    }
}
