//! The product of a chunk on the cores: the terms of a tile, side by side and without regard to rows, so that many
//! factors are on their way from memory at once; then the sums of its rows, from the cache.

use std::ops::Range;

use headrace_flow::{BoxError, FedChunk, HostConsumer, Verdict};

use super::chunk::{Checked, Chunk, Word};
use super::csr::Csr;
use super::faults::Faults;
use super::plan::{Piece, TILE};
use super::sums::Sums;
use crate::NumberType;
use crate::vectors::Vectors;

/// Lanes that a row's terms are added in.
const LANES: usize = 8;

/// Multiplies chunks on a thread.
pub(crate) struct Multiplier<'a> {
    kernel: Kernel,
    index_end: u64,
    x: &'a Vectors,
    sums: &'a Sums,
    faults: &'a Faults,
}

type Kernel = fn(Piece, &[&[u8]], u64, &Vectors, &Sums) -> Checked<()>;

impl<'a> Multiplier<'a> {
    pub fn new(csr: &Csr, x: &'a Vectors, sums: &'a Sums, faults: &'a Faults) -> Multiplier<'a> {
        assert_eq!(x.length, csr.columns, "a factor for each column");
        let kernel = match csr.indptr.number.bytes() {
            4 => with_indices::<[u8; 4]>(csr),
            _ => with_indices::<[u8; 8]>(csr),
        };
        Multiplier { kernel, index_end: csr.index_end(), x, sums, faults }
    }
}

fn with_indices<P: Word>(csr: &Csr) -> Kernel {
    match csr.indices.number.bytes() {
        4 => with_values::<P, [u8; 4]>(csr),
        _ => with_values::<P, [u8; 8]>(csr),
    }
}

fn with_values<P: Word, I: Word>(csr: &Csr) -> Kernel {
    match csr.number() {
        Some(NumberType::F64) => multiply::<P, I, [u8; 8]>,
        // Or there are none.
        _ => multiply::<P, I, [u8; 4]>,
    }
}

impl HostConsumer<Piece> for Multiplier<'_> {
    fn consume(&mut self, chunk: &FedChunk<Piece>, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        (self.kernel)(chunk.payload, buffers, self.index_end, self.x, self.sums)
            .map_err(|fault| self.faults.note(fault))?;
        Ok(Verdict::Continue)
    }
}

/// A value as stored.
trait Value: bytemuck::Pod {
    fn widened(self) -> f64;
}

/// binary32.
impl Value for [u8; 4] {
    #[inline(always)]
    fn widened(self) -> f64 {
        f64::from(f32::from_le_bytes(self))
    }
}

/// binary64.
impl Value for [u8; 8] {
    #[inline(always)]
    fn widened(self) -> f64 {
        f64::from_le_bytes(self)
    }
}

fn multiply<P: Word, I: Word, V: Value>(
    piece: Piece,
    buffers: &[&[u8]],
    index_end: u64,
    x: &Vectors,
    sums: &Sums,
) -> Checked<()> {
    let chunk = Chunk::<P, I>::new(piece, buffers[0], buffers[1])?;
    let values: Option<&[V]> = buffers.get(2).map(|values| bytemuck::cast_slice(values));
    let mut terms = [0.0; TILE];
    let (mut begin, mut row) = (piece.from.entry, 0);
    while begin < piece.to.entry {
        let tile = begin..(begin / TILE * TILE + TILE).min(piece.to.entry);
        let here = tile.start - piece.from.entry..tile.end - piece.from.entry;
        chunk.check_indices(here.clone(), index_end)?;
        let (indices, values) = (&chunk.indices[here.clone()], values.map(|values| &values[here]));
        let mut next = row;
        for vector in 0..x.count {
            let terms = &mut terms[..tile.len()];
            fill(terms, indices, values, &x.values[vector * x.length..][..x.length]);
            next = add_rows(&chunk, row, tile.clone(), (vector, terms), sums);
        }
        (begin, row) = (tile.end, next);
    }
    Ok(())
}

/// The terms of entries whose columns were checked.
#[inline(always)]
fn fill<I: Word, V: Value>(terms: &mut [f64], indices: &[I], values: Option<&[V]>, x: &[f64]) {
    for (term, index) in terms.iter_mut().zip(indices) {
        *term = x[index.value() as usize];
    }
    for (term, value) in terms.iter_mut().zip(values.unwrap_or_default()) {
        *term *= value.widened();
    }
}

/// The sums of a tile's rows, from the first that has entries there. Returns the row that the next tile begins with.
#[inline(always)]
fn add_rows<P: Word, I: Word>(
    chunk: &Chunk<'_, P, I>,
    mut row: usize,
    tile: Range<usize>,
    (vector, terms): (usize, &[f64]),
    sums: &Sums,
) -> usize {
    while row < chunk.rows() {
        let (entries, begins) = chunk.row(row);
        if entries.start >= tile.end {
            break;
        }
        let here = entries.start.max(tile.start)..entries.end.min(tile.end);
        if !here.is_empty() {
            let sum = sum(&terms[here.start - tile.start..here.end - tile.start]);
            let place = chunk.piece.from.row + row;
            match begins && here.start == entries.start {
                true => sums.put(place, vector, sum),
                false => sums.put_head(tile.start / TILE, place, vector, sum),
            }
        }
        if entries.end > tile.end {
            break;
        }
        row += 1;
    }
    row
}

/// In lanes, then the lanes pairwise.
#[inline(always)]
fn sum(terms: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (whole, rest) = terms.as_chunks::<LANES>();
    for terms in whole {
        for (lane, term) in lanes.iter_mut().zip(terms) {
            *lane += term;
        }
    }
    for (lane, term) in lanes.iter_mut().zip(rest) {
        *lane += term;
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}
