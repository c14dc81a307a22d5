//! The products of a tile on the CPU.
//!
//! Values are widened to binary64 as they are loaded, then multiplied and summed. The same code is compiled for
//! AVX-512, for AVX2 with FMA, and for the build's baseline; the choice is made at run time, and all variants
//! have the same lanes. Without FMA, products of binary64 are rounded before they are added; those of binary32
//! and bf16 with vectors of these types are exact either way.

use std::ops::Range;

use headrace_flow::{BoxError, FedChunk, HostConsumer, Verdict};

#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{LANES, Lanes, Plain, Value, padded};
use super::plan::{Plan, Tile};
use super::sums::{Counts, Gather};
use crate::NumberType;
use crate::vectors::Vectors;

/// The vectors of a pass: for the matrix as stored, and for its transpose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operands<'a> {
    pub forward: Option<&'a Vectors>,
    pub transposed: Option<&'a Vectors>,
}

impl Operands<'_> {
    pub fn counts(&self) -> Counts {
        let count = |vectors: Option<&Vectors>| vectors.map_or(0, |vectors| vectors.count);
        Counts { forward: count(self.forward), transposed: count(self.transposed) }
    }
}

/// Multiplies chunks on a thread.
pub(crate) struct Multiplier<'a> {
    plan: &'a Plan,
    operands: Operands<'a>,
    gather: &'a Gather<'a>,
    kernel: Kernel,
}

type Kernel = unsafe fn(&Tile, &[&[u8]], &Operands<'_>, &mut [f64]);

impl<'a> Multiplier<'a> {
    pub fn new(
        plan: &'a Plan,
        number: NumberType,
        operands: Operands<'a>,
        gather: &'a Gather<'a>,
    ) -> Multiplier<'a> {
        let kernel = match number {
            NumberType::Bf16 => kernel::<[u8; 2]>(),
            NumberType::F32 => kernel::<[u8; 4]>(),
            NumberType::F64 => kernel::<[u8; 8]>(),
            _ => unreachable!("a matrix has floating-point numbers"),
        };
        Multiplier { plan, operands, gather, kernel }
    }
}

impl HostConsumer for Multiplier<'_> {
    fn consume(&mut self, chunk: &FedChunk, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        let mut sums = self.gather.take_buffer();
        // SAFETY: the kernel is one that this processor was found to have the instructions of.
        unsafe { (self.kernel)(&self.plan.tile(chunk.number), buffers, &self.operands, &mut sums) };
        self.gather.deliver(chunk.number, sums);
        Ok(Verdict::Continue)
    }
}

/// The fastest kernel for this processor.
fn kernel<V: Value>() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return avx512::<V>;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return avx2::<V>;
        }
    }
    multiply::<Plain, V>
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
fn avx512<V: Value>(tile: &Tile, buffers: &[&[u8]], operands: &Operands<'_>, sums: &mut [f64]) {
    multiply::<Avx512, V>(tile, buffers, operands, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<V: Value>(tile: &Tile, buffers: &[&[u8]], operands: &Operands<'_>, sums: &mut [f64]) {
    multiply::<Avx2, V>(tile, buffers, operands, sums);
}

/// Block by block, so that both products find the block in cache.
#[inline(always)]
fn multiply<L: Lanes, V: Value>(
    tile: &Tile,
    buffers: &[&[u8]],
    operands: &Operands<'_>,
    sums: &mut [f64],
) {
    let columns = tile.columns;
    let Counts { forward, transposed } = operands.counts();
    let (of_rows, of_columns) = sums.split_at_mut(tile.forward_sums() * forward);
    of_columns[..tile.transposed_sums() * transposed].fill(0.0);
    for band in 0..tile.bands() {
        let first_row = band * tile.band_rows;
        for span in 0..tile.spans() {
            let first = span * tile.span_columns;
            let block = Block {
                tile,
                buffers,
                rows: first_row..(first_row + tile.band_rows).min(tile.rows),
                first,
                columns: tile.span_columns.min(columns - first),
            };
            let of_rows = &mut of_rows[span * forward * tile.rows..][..forward * tile.rows];
            let of_columns = &mut of_columns[band * transposed * columns..][..transposed * columns];
            if let (Some(x), Some(x_transposed), (1, 1)) =
                (operands.forward, operands.transposed, (forward, transposed))
            {
                block.both::<L, V>((x, of_rows), (x_transposed, of_columns));
                continue;
            }
            if let Some(x) = operands.forward {
                block.forward::<L, V>(x, of_rows);
            }
            if let Some(x) = operands.transposed {
                block.transposed::<L, V>(x, of_columns);
            }
        }
    }
}

/// Some rows of a tile, and some of their columns.
struct Block<'a> {
    tile: &'a Tile,
    buffers: &'a [&'a [u8]],
    rows: Range<usize>,
    first: usize,
    columns: usize,
}

impl Block<'_> {
    /// The block's columns of some rows.
    #[inline(always)]
    fn rows<V: Value, const R: usize>(&self, row: usize) -> [&[V]; R] {
        std::array::from_fn(|r| {
            let (buffer, row) = if self.tile.by_row { (row + r, 0) } else { (0, row + r) };
            let values: &[V] = bytemuck::cast_slice(self.buffers[buffer]);
            &values[row * self.tile.columns + self.first..][..self.columns]
        })
    }

    /// Like `forward` and `transposed` together, for one vector each: every value is loaded once.
    #[inline(always)]
    fn both<L: Lanes, V: Value>(
        &self,
        (x, of_rows): (&Vectors, &mut [f64]),
        (x_transposed, of_columns): (&Vectors, &mut [f64]),
    ) {
        let x = &x.values[self.tile.first_column + self.first..][..self.columns];
        let of_columns = &mut of_columns[self.first..][..self.columns];
        let mut row = self.rows.start;
        while row < self.rows.end {
            let factors = &x_transposed.values[self.tile.first_row + row..];
            if let (Some(factors), true) = (factors.first_chunk(), row + 8 <= self.rows.end) {
                let sums = both::<L, V, 8>(self.rows(row), x, factors, of_columns);
                of_rows[row..row + 8].copy_from_slice(&sums);
                row += 8;
            } else {
                [of_rows[row]] = both::<L, V, 1>(self.rows(row), x, &[factors[0]], of_columns);
                row += 1;
            }
        }
    }

    /// The sums of rows: vector after vector.
    #[inline(always)]
    fn forward<L: Lanes, V: Value>(&self, x: &Vectors, sums: &mut [f64]) {
        let fours = x.count / 4;
        for four in 0..fours {
            self.forward_some::<L, V, 4, 4>(x, 4 * four, sums);
        }
        for vector in 4 * fours..x.count {
            self.forward_some::<L, V, 4, 1>(x, vector, sums);
        }
    }

    /// Like `forward`, for some of the vectors and some rows at a time.
    #[inline(always)]
    fn forward_some<L: Lanes, V: Value, const R: usize, const X: usize>(
        &self,
        x: &Vectors,
        vector: usize,
        sums: &mut [f64],
    ) {
        let first = self.tile.first_column + self.first;
        let x =
            std::array::from_fn(|v| &x.values[(vector + v) * x.length + first..][..self.columns]);
        let mut put = |row: usize, vectors: [f64; X]| {
            for (v, sum) in vectors.into_iter().enumerate() {
                sums[(vector + v) * self.tile.rows + row] = sum;
            }
        };
        let mut row = self.rows.start;
        while row + R <= self.rows.end {
            for (r, vectors) in (row..).zip(dots::<L, V, R, X>(self.rows(row), x)) {
                put(r, vectors);
            }
            row += R;
        }
        for row in row..self.rows.end {
            let [vectors] = dots::<L, V, 1, X>(self.rows(row), x);
            put(row, vectors);
        }
    }

    /// Adds to the sums of columns: vector after vector.
    #[inline(always)]
    fn transposed<L: Lanes, V: Value>(&self, x: &Vectors, sums: &mut [f64]) {
        let fours = x.count / 4;
        for four in 0..fours {
            self.transposed_some::<L, V, 8, 4>(x, 4 * four, sums);
        }
        for vector in 4 * fours..x.count {
            self.transposed_some::<L, V, 8, 1>(x, vector, sums);
        }
    }

    /// Like `transposed`, for some of the vectors and some rows at a time.
    #[inline(always)]
    fn transposed_some<L: Lanes, V: Value, const R: usize, const X: usize>(
        &self,
        x: &Vectors,
        vector: usize,
        sums: &mut [f64],
    ) {
        let x =
            |v: usize, row: usize| x.values[(vector + v) * x.length + self.tile.first_row + row];
        let mut rest = &mut sums[vector * self.tile.columns..][..X * self.tile.columns];
        let mut sums: [&mut [f64]; X] = std::array::from_fn(|_| {
            let (sums, after) = std::mem::take(&mut rest).split_at_mut(self.tile.columns);
            rest = after;
            &mut sums[self.first..][..self.columns]
        });
        let mut row = self.rows.start;
        while row + R <= self.rows.end {
            let factors = std::array::from_fn(|v| std::array::from_fn(|r| x(v, row + r)));
            add_rows::<L, V, R, X>(self.rows(row), &factors, &mut sums);
            row += R;
        }
        for row in row..self.rows.end {
            let factors = std::array::from_fn(|v| [x(v, row)]);
            add_rows::<L, V, 1, X>(self.rows(row), &factors, &mut sums);
        }
    }
}

/// Products of parts of rows with parts of vectors: lane `i` sums the values `i`, `i + LANES`, and so on, and then
/// lanes are added pairwise.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // Several arrays in step.
fn dots<L: Lanes, V: Value, const R: usize, const X: usize>(
    rows: [&[V]; R],
    x: [&[f64]; X],
) -> [[f64; X]; R] {
    let mut lanes = [[L::splat(0.0); X]; R];
    let columns = rows[0].len();
    let (whole, rest) = (columns / LANES, columns % LANES);
    let chunks = rows.map(|row| &row.as_chunks::<LANES>().0[..whole]);
    let x_chunks = x.map(|x| &x.as_chunks::<LANES>().0[..whole]);
    for i in 0..whole {
        for r in 0..R {
            L::prefetch(&chunks[r][i]);
            let a: L = V::widen(&chunks[r][i]);
            for v in 0..X {
                lanes[r][v] = a.multiply_add(L::load(&x_chunks[v][i]), lanes[r][v]);
            }
        }
    }
    if rest > 0 {
        for r in 0..R {
            let a: L = V::widen_rest(&rows[r][columns - rest..]);
            for v in 0..X {
                let x = L::load(&padded(&x[v][columns - rest..]));
                lanes[r][v] = a.multiply_add(x, lanes[r][v]);
            }
        }
    }
    let mut sums = [[0.0; X]; R];
    for r in 0..R {
        for v in 0..X {
            sums[r][v] = lanes[r][v].sum();
        }
    }
    sums
}

/// Adds rows, multiplied by their factors for each vector, to the sums of columns, one row after the
/// other.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // Several arrays in step.
fn add_rows<L: Lanes, V: Value, const R: usize, const X: usize>(
    rows: [&[V]; R],
    factors: &[[f64; R]; X],
    sums: &mut [&mut [f64]; X],
) {
    let columns = rows[0].len();
    let (whole, rest) = (columns / LANES, columns % LANES);
    let chunks = rows.map(|row| &row.as_chunks::<LANES>().0[..whole]);
    for i in 0..whole {
        let mut a = [L::splat(0.0); R];
        for r in 0..R {
            L::prefetch(&chunks[r][i]);
            a[r] = V::widen(&chunks[r][i]);
        }
        for v in 0..X {
            let sums = &mut sums[v].as_chunks_mut::<LANES>().0[i];
            let mut lanes = L::load(sums);
            for r in 0..R {
                lanes = a[r].multiply_add(L::splat(factors[v][r]), lanes);
            }
            lanes.store(sums);
        }
    }
    if rest > 0 {
        for v in 0..X {
            let sums = &mut sums[v][columns - rest..];
            let mut lanes = L::load(&padded(sums));
            for r in 0..R {
                let a: L = V::widen_rest(&rows[r][columns - rest..]);
                lanes = a.multiply_add(L::splat(factors[v][r]), lanes);
            }
            let mut stored = [0.0; LANES];
            lanes.store(&mut stored);
            sums.copy_from_slice(&stored[..rest]);
        }
    }
}

/// Like `dots` and `add_rows` together, for one vector each.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // Several arrays in step.
fn both<L: Lanes, V: Value, const R: usize>(
    rows: [&[V]; R],
    x: &[f64],
    factors: &[f64; R],
    of_columns: &mut [f64],
) -> [f64; R] {
    let mut lanes = [L::splat(0.0); R];
    let columns = rows[0].len();
    let (whole, rest) = (columns / LANES, columns % LANES);
    let chunks = rows.map(|row| &row.as_chunks::<LANES>().0[..whole]);
    let x_chunks = &x.as_chunks::<LANES>().0[..whole];
    let sums = &mut of_columns.as_chunks_mut::<LANES>().0[..whole];
    for i in 0..whole {
        let x = L::load(&x_chunks[i]);
        let mut sum = L::load(&sums[i]);
        for r in 0..R {
            L::prefetch(&chunks[r][i]);
            let a: L = V::widen(&chunks[r][i]);
            lanes[r] = a.multiply_add(x, lanes[r]);
            sum = a.multiply_add(L::splat(factors[r]), sum);
        }
        sum.store(&mut sums[i]);
    }
    if rest > 0 {
        let x = L::load(&padded(&x[columns - rest..]));
        let sums = &mut of_columns[columns - rest..];
        let mut sum = L::load(&padded(sums));
        for r in 0..R {
            let a: L = V::widen_rest(&rows[r][columns - rest..]);
            lanes[r] = a.multiply_add(x, lanes[r]);
            sum = a.multiply_add(L::splat(factors[r]), sum);
        }
        let mut stored = [0.0; LANES];
        sum.store(&mut stored);
        sums.copy_from_slice(&stored[..rest]);
    }
    lanes.map(|lanes| lanes.sum())
}
