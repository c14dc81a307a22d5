//! Several long vectors as one matrix of few columns, vector after vector: products, rotations, an orthonormal basis. Sums
//! are those of strips of rows, in their order: the same bits for any number of threads.

use std::ops::Range;

use headrace_io::for_each;
use headrace_io::random::drawn_at;

/// Rows whose sums are added first: those of all columns stay in the cache.
const STRIP_ROWS: usize = 1 << 12;

/// Sums that are added side by side.
const LANES: usize = 8;

/// A vector that keeps less of its length than this beside its projections is projected once more: twice is enough.
const KEPT_MIN: f64 = 0.7;

/// One that keeps less than this lies in the span of the others, but for roundings.
const REST_MIN: f64 = 1e-12;

/// Vectors of one length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub length: usize,
    pub count: usize,
    pub threads: usize,
}

/// A value of a vector that has no pattern, between -1 and 1.
pub(super) fn without_pattern(seed: u64, place: usize) -> f64 {
    drawn_at(seed, place as u64) as i64 as f64 / 2f64.powi(63)
}

/// Bytes that the sums of strips take at most, for this many vectors.
pub(super) fn sums_bytes(length: usize, count: usize) -> u64 {
    (length.div_ceil(STRIP_ROWS) * count * count * 8) as u64
}

fn rows_of(strip: usize, length: usize) -> Range<usize> {
    strip * STRIP_ROWS..((strip + 1) * STRIP_ROWS).min(length)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (whole_a, rest_a) = a.as_chunks::<LANES>();
    let (whole_b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in whole_a.iter().zip(whole_b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(rest_a.iter().zip(rest_b)) {
        *lane += a * b;
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// `width` sums over all rows, each of them the sum of those of strips.
fn summed(
    (length, threads): (usize, usize),
    width: usize,
    of_strip: impl Fn(Range<usize>, &mut [f64]) + Sync,
) -> Vec<f64> {
    let mut parts = vec![0.0; length.div_ceil(STRIP_ROWS) * width];
    for_each(parts.chunks_mut(width.max(1)).enumerate(), threads, |(strip, sums)| {
        of_strip(rows_of(strip, length), sums);
    });
    let mut all = vec![0.0; width];
    for sums in parts.chunks(width.max(1)) {
        all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
    }
    all
}

/// The products of the vectors of `a` with those of `b`: the `i`-th with the `j`-th at `i * (those of b) + j`.
pub(super) fn products(a: &[f64], b: &[f64], Shape { length, threads, .. }: Shape) -> Vec<f64> {
    let (of_a, of_b) = (a.len() / length, b.len() / length);
    summed((length, threads), of_a * of_b, |rows, sums| {
        let part = |vector: usize| vector * length + rows.start..vector * length + rows.end;
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum = dot(&a[part(at / of_b)], &b[part(at % of_b)]);
        }
    })
}

/// The largest magnitude; NaN and infinities are an infinite one.
pub(super) fn largest(values: &[f64]) -> f64 {
    let finite = |value: &f64| if value.is_finite() { value.abs() } else { f64::INFINITY };
    values.iter().map(finite).fold(0.0, f64::max)
}

/// The lengths of the differences `w - v * value` of each vector, where `scale` is 1: what is large is divided by it first.
pub(super) fn residuals(
    v: &[f64],
    w: &[f64],
    values: &[f64],
    scale: f64,
    shape: Shape,
) -> Vec<f64> {
    let Shape { length, count, threads } = shape;
    let sums = summed((length, threads), count, |rows, sums| {
        for (vector, (sum, value)) in sums.iter_mut().zip(values).enumerate() {
            let part = vector * length + rows.start..vector * length + rows.end;
            let value = value / scale;
            let squares = v[part.clone()].iter().zip(&w[part]).map(|(v, w)| {
                let away = w / scale - value * v;
                away * away
            });
            *sum = squares.sum();
        }
    });
    sums.into_iter().map(f64::sqrt).collect()
}

/// The block times a square matrix, in its place.
pub(super) fn rotate(values: &mut [f64], turn: &[f64], Shape { length, count, threads }: Shape) {
    for_each(strips(values, length).into_iter(), threads, |mut strip| {
        let rows = strip.first().map_or(0, |column| column.len());
        let mut turned = vec![0.0; rows * count];
        for (j, out) in turned.chunks_mut(rows.max(1)).enumerate() {
            for (i, column) in strip.iter().enumerate() {
                let factor = turn[i * count + j];
                out.iter_mut().zip(&**column).for_each(|(out, value)| *out += factor * value);
            }
        }
        for (column, turned) in strip.iter_mut().zip(turned.chunks(rows.max(1))) {
            column.copy_from_slice(turned);
        }
    });
}

/// The rows of each strip, of all vectors.
fn strips(values: &mut [f64], length: usize) -> Vec<Vec<&mut [f64]>> {
    let mut strips: Vec<_> = (0..length.div_ceil(STRIP_ROWS)).map(|_| Vec::new()).collect();
    for column in values.chunks_mut(length) {
        for (strip, part) in strips.iter_mut().zip(column.chunks_mut(STRIP_ROWS)) {
            strip.push(part);
        }
    }
    strips
}

/// Replaces vectors by an orthonormal basis of what they span: Gram-Schmidt, each against all before it, twice where it
/// must be. One that depends on others becomes one without pattern, from `fresh`, which counts them. Returns whether all
/// were finite.
pub(super) fn orthonormalise(
    values: &mut [f64],
    shape: Shape,
    seed: u64,
    fresh: &mut usize,
) -> bool {
    let length = shape.length;
    for vector in 0..shape.count {
        let (basis, rest) = values.split_at_mut(vector * length);
        let y = &mut rest[..length];
        loop {
            let size = largest(y);
            if !size.is_finite() {
                return false;
            }
            if size > 0.0 && stand_off(basis, y, size, shape) {
                break;
            }
            let first = (shape.count + *fresh) * length;
            y.iter_mut().enumerate().for_each(|(row, y)| *y = without_pattern(seed, first + row));
            *fresh += 1;
        }
    }
    true
}

/// Makes a vector, whose largest magnitude is known, one of length 1 that is orthogonal to a basis; returns whether that can be.
fn stand_off(basis: &[f64], y: &mut [f64], size: f64, shape: Shape) -> bool {
    divide(y, size, shape);
    let of_all = length_of(y, shape);
    divide(y, of_all, shape);
    let mut left = project(basis, y, shape);
    if left < KEPT_MIN {
        if left <= REST_MIN {
            return false;
        }
        divide(y, left, shape);
        left = project(basis, y, shape);
    }
    divide(y, left, shape);
    true
}

/// Takes the projections on a basis off a vector; returns its length then.
fn project(basis: &[f64], y: &mut [f64], shape: Shape) -> f64 {
    let parts = products(basis, y, shape);
    for_each(y.chunks_mut(STRIP_ROWS).enumerate(), shape.threads, |(strip, y)| {
        let rows = rows_of(strip, shape.length);
        for (column, part) in basis.chunks(shape.length).zip(&parts) {
            y.iter_mut().zip(&column[rows.clone()]).for_each(|(y, q)| *y -= part * q);
        }
    });
    length_of(y, shape)
}

fn length_of(y: &[f64], shape: Shape) -> f64 {
    products(y, y, shape)[0].sqrt()
}

fn divide(y: &mut [f64], by: f64, shape: Shape) {
    for_each(y.chunks_mut(STRIP_ROWS), shape.threads, |y| y.iter_mut().for_each(|y| *y /= by));
}

/// Turns vectors so that the first of their largest components is positive: a vector and its opposite are the same answer.
pub(super) fn point_up(values: &mut [f64], length: usize) {
    for vector in values.chunks_mut(length) {
        let first = vector.iter().fold(
            0.0,
            |first: f64, value| {
                if value.abs() > first.abs() { *value } else { first }
            },
        );
        if first < 0.0 {
            vector.iter_mut().for_each(|value| *value = -*value);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn block(length: usize, count: usize, seed: u64) -> Vec<f64> {
        (0..length * count).map(|at| without_pattern(seed, at)).collect()
    }

    fn assert_orthonormal(values: &[f64], shape: Shape) {
        for (at, product) in products(values, values, shape).into_iter().enumerate() {
            let wanted = f64::from(at / shape.count == at % shape.count);
            assert!((product - wanted).abs() < 1e-13, "{shape:?} {at}: {product}");
        }
    }

    #[test]
    fn a_basis_is_orthonormal_whatever_it_is_made_of() {
        for (length, count) in [(1, 1), (5, 5), (STRIP_ROWS + 7, 6), (3 * STRIP_ROWS, 3)] {
            let shape = Shape { length, count, threads: 2 };
            let random = block(length, count, 1);
            // All nearly equal, all equal, all 0, huge, tiny.
            let near = (0..length * count).map(|at| random[at % length] + 1e-9 * random[at]);
            let equal = (0..length * count).map(|at| random[at % length]);
            let cases: [Vec<f64>; 6] = [
                random.clone(),
                near.collect(),
                equal.collect(),
                vec![0.0; length * count],
                random.iter().map(|value| value * 1e307).collect(),
                random.iter().map(|value| value * 1e-300).collect(),
            ];
            for mut values in cases {
                assert!(orthonormalise(&mut values, shape, 9, &mut 0));
                assert_orthonormal(&values, shape);
            }
        }
    }

    #[test]
    fn a_basis_spans_what_it_was_made_of_and_has_the_same_bits_for_any_threads() {
        let mut shape = Shape { length: 2 * STRIP_ROWS + 99, count: 4, threads: 1 };
        let start = block(shape.length, shape.count, 3);
        let mut basis = start.clone();
        orthonormalise(&mut basis, shape, 9, &mut 0);
        for vector in start.chunks(shape.length) {
            let whole = products(vector, vector, shape)[0];
            let found: f64 = products(&basis, vector, shape).iter().map(|part| part * part).sum();
            assert!((found - whole).abs() < 1e-12 * whole);
        }
        for threads in [2, 3, 7] {
            shape.threads = threads;
            let mut again = start.clone();
            orthonormalise(&mut again, shape, 9, &mut 0);
            assert!(again == basis, "{threads} threads");
        }
    }

    #[test]
    fn what_is_not_finite_is_no_basis() {
        for wrong in [f64::NAN, f64::INFINITY] {
            let shape = Shape { length: 10, count: 2, threads: 1 };
            let mut values = block(10, 2, 1);
            values[13] = wrong;
            assert!(!orthonormalise(&mut values, shape, 9, &mut 0));
        }
    }

    #[test]
    fn a_rotation_is_a_product() {
        let shape = Shape { length: STRIP_ROWS + 3, count: 3, threads: 2 };
        let (start, turn) = (block(shape.length, 3, 1), block(3, 3, 2));
        let mut turned = start.clone();
        rotate(&mut turned, &turn, shape);
        for row in [0, 17, STRIP_ROWS + 2] {
            for j in 0..3 {
                let wanted: f64 =
                    (0..3).map(|i| start[i * shape.length + row] * turn[i * 3 + j]).sum();
                assert!((turned[j * shape.length + row] - wanted).abs() < 1e-15);
            }
        }
    }
}
