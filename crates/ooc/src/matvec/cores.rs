//! The products of a tile on the cores.
//!
//! Values are widened to binary64 as they are loaded and multiplied and summed there. The same code is compiled
//! for AVX-512, for AVX2 with FMA, and for whatever the build is for; which runs is chosen at run time. Where
//! there is no FMA, products of binary64 are rounded before they are added; those of binary32 and bf16 with
//! vectors of these are exact either way.

use headrace_flow::{BoxError, HostConsumer, Verdict};

use super::plan::{Plan, Tile};
use super::sums::{Counts, Gather};
use super::vectors::Vectors;
use crate::NumberType;

/// Partial sums of a row and a span, added pairwise at its end.
const LANES: usize = 16;

/// Rows that are added to the sums of columns at a time.
const ROWS: usize = 8;

/// A value as its bytes lie in the file.
trait Value: bytemuck::Pod {
    fn widen(self) -> f64;
}

/// bf16.
impl Value for [u8; 2] {
    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(f32::from_bits(u32::from(u16::from_le_bytes(self)) << 16))
    }
}

/// binary32.
impl Value for [u8; 4] {
    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(f32::from_le_bytes(self))
    }
}

/// binary64.
impl Value for [u8; 8] {
    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from_le_bytes(self)
    }
}

/// The vectors of a pass: for the matrix as it lies, and for the transposed one.
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
    fn consume(&mut self, chunk: usize, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        let mut sums = self.gather.take_buffer();
        // SAFETY: the kernel is one that this processor was found to have the instructions of.
        unsafe { (self.kernel)(&self.plan.tile(chunk), buffers, &self.operands, &mut sums) };
        self.gather.deliver(chunk, sums);
        Ok(Verdict::Continue)
    }
}

/// The fastest kernel that this processor can run.
fn kernel<V: Value>() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            return avx512::<V>;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return avx2::<V>;
        }
    }
    plain::<V>
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn avx512<V: Value>(tile: &Tile, buffers: &[&[u8]], operands: &Operands<'_>, sums: &mut [f64]) {
    multiply::<V, true>(tile, buffers, operands, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<V: Value>(tile: &Tile, buffers: &[&[u8]], operands: &Operands<'_>, sums: &mut [f64]) {
    multiply::<V, true>(tile, buffers, operands, sums);
}

fn plain<V: Value>(tile: &Tile, buffers: &[&[u8]], operands: &Operands<'_>, sums: &mut [f64]) {
    // Elsewhere than on x86-64 every processor has FMA.
    multiply::<V, { !cfg!(target_arch = "x86_64") }>(tile, buffers, operands, sums);
}

/// The rows of a tile.
struct Rows<'a, V> {
    buffers: &'a [&'a [u8]],
    columns: usize,
    by_row: bool,
    values: std::marker::PhantomData<V>,
}

impl<'a, V: Value> Rows<'a, V> {
    /// Some columns of a row.
    #[inline(always)]
    fn part(&self, row: usize, first: usize, columns: usize) -> &'a [V] {
        let (buffer, row) = if self.by_row { (row, 0) } else { (0, row) };
        let values: &[V] = bytemuck::cast_slice(self.buffers[buffer]);
        &values[row * self.columns + first..][..columns]
    }
}

/// Block by block, which both products find in cache.
#[inline(always)]
fn multiply<V: Value, const FUSED: bool>(
    tile: &Tile,
    buffers: &[&[u8]],
    operands: &Operands<'_>,
    sums: &mut [f64],
) {
    let Tile { columns, by_row, .. } = *tile;
    let rows = Rows::<V> { buffers, columns, by_row, values: std::marker::PhantomData };
    let Counts { forward, transposed } = operands.counts();
    let (of_rows, of_columns) = sums.split_at_mut(tile.forward_sums() * forward);
    of_columns[..tile.transposed_sums() * transposed].fill(0.0);
    for band in 0..tile.bands() {
        let first_row = band * tile.band_rows;
        let band_rows = first_row..(first_row + tile.band_rows).min(tile.rows);
        for span in 0..tile.spans() {
            let first = span * tile.span_columns;
            let block = Block {
                rows: band_rows.clone(),
                first,
                columns: tile.span_columns.min(tile.columns - first),
            };
            if let Some(x) = operands.forward {
                let sums = &mut of_rows[span * forward * tile.rows..][..forward * tile.rows];
                block.forward::<V, FUSED>(&rows, tile, x, sums);
            }
            if let Some(x) = operands.transposed {
                let sums = &mut of_columns[band * transposed * columns..][..transposed * columns];
                block.transposed::<V, FUSED>(&rows, tile, x, sums);
            }
        }
    }
}

/// Some rows of a tile, and some of their columns.
struct Block {
    rows: std::ops::Range<usize>,
    first: usize,
    columns: usize,
}

impl Block {
    #[inline(always)]
    fn forward<V: Value, const FUSED: bool>(
        &self,
        rows: &Rows<'_, V>,
        tile: &Tile,
        x: &Vectors,
        sums: &mut [f64],
    ) {
        let part = |vector: usize| {
            &x.values[vector * x.length + tile.first_column + self.first..][..self.columns]
        };
        for row in self.rows.clone() {
            let values = rows.part(row, self.first, self.columns);
            let mut vector = 0;
            while vector + 4 <= x.count {
                let parts = [part(vector), part(vector + 1), part(vector + 2), part(vector + 3)];
                for (sum, at) in dot::<V, 4, FUSED>(values, parts).into_iter().zip(vector..) {
                    sums[at * tile.rows + row] = sum;
                }
                vector += 4;
            }
            while vector < x.count {
                let [sum] = dot::<V, 1, FUSED>(values, [part(vector)]);
                sums[vector * tile.rows + row] = sum;
                vector += 1;
            }
        }
    }

    #[inline(always)]
    fn transposed<V: Value, const FUSED: bool>(
        &self,
        rows: &Rows<'_, V>,
        tile: &Tile,
        x: &Vectors,
        sums: &mut [f64],
    ) {
        let mut row = self.rows.start;
        while row < self.rows.end {
            let together = if row + ROWS <= self.rows.end { ROWS } else { 1 };
            for vector in 0..x.count {
                let sums = &mut sums[vector * tile.columns + self.first..][..self.columns];
                let factors = &x.values[vector * x.length + tile.first_row + row..][..together];
                if let Some(factors) = factors.as_array::<ROWS>() {
                    let part = |r: usize| rows.part(row + r, self.first, self.columns);
                    add_rows::<V, ROWS, FUSED>(std::array::from_fn(part), factors, sums);
                } else {
                    let part = rows.part(row, self.first, self.columns);
                    add_rows::<V, 1, FUSED>([part], &[factors[0]], sums);
                }
            }
            row += together;
        }
    }
}

/// `a * b + c`.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Products of a part of a row with parts of vectors: lane `i` sums the values `i`, `i + LANES`, and so on, and
/// then lanes are added pairwise. Fewer values than lanes are summed one by one.
#[inline(always)]
fn dot<V: Value, const X: usize, const FUSED: bool>(values: &[V], x: [&[f64]; X]) -> [f64; X] {
    if values.len() < LANES {
        return x.map(|x| {
            let products = values.iter().zip(x);
            products.fold(0.0, |sum, (a, x)| multiply_add::<FUSED>(a.widen(), *x, sum))
        });
    }
    let mut lanes = [[0.0; LANES]; X];
    let (whole, rest) = values.as_chunks::<LANES>();
    let x_whole = x.map(|x| &x.as_chunks::<LANES>().0[..whole.len()]);
    for (i, values) in whole.iter().enumerate() {
        for (lanes, x) in lanes.iter_mut().zip(&x_whole) {
            for lane in 0..LANES {
                lanes[lane] = multiply_add::<FUSED>(values[lane].widen(), x[i][lane], lanes[lane]);
            }
        }
    }
    for (lanes, x) in lanes.iter_mut().zip(&x) {
        for ((lane, a), x) in lanes.iter_mut().zip(rest).zip(&x[whole.len() * LANES..]) {
            *lane = multiply_add::<FUSED>(a.widen(), *x, *lane);
        }
    }
    lanes.map(|mut lanes| {
        let mut half = LANES / 2;
        while half > 0 {
            for lane in 0..half {
                lanes[lane] += lanes[lane + half];
            }
            half /= 2;
        }
        lanes[0]
    })
}

/// Adds rows, each multiplied by its factor, to the sums of columns, one after the other.
#[inline(always)]
fn add_rows<V: Value, const R: usize, const FUSED: bool>(
    rows: [&[V]; R],
    factors: &[f64; R],
    sums: &mut [f64],
) {
    let columns = sums.len();
    let (whole, rest) = sums.as_chunks_mut::<LANES>();
    let rows_whole = rows.map(|row| &row.as_chunks::<LANES>().0[..whole.len()]);
    for (i, sums) in whole.iter_mut().enumerate() {
        let mut lanes = *sums;
        for (row, factor) in rows_whole.iter().zip(factors) {
            for lane in 0..LANES {
                lanes[lane] = multiply_add::<FUSED>(row[i][lane].widen(), *factor, lanes[lane]);
            }
        }
        *sums = lanes;
    }
    let first = columns - rest.len();
    for (row, factor) in rows.iter().zip(factors) {
        for (sum, a) in rest.iter_mut().zip(&row[first..]) {
            *sum = multiply_add::<FUSED>(a.widen(), *factor, *sum);
        }
    }
}
