//! How alike two values of one length are: bits of bytes, floats of vectors.
//!
//! # The order of additions
//!
//! Floats of either width are multiplied and added as binary64, in [`LANES`] sums: float `i` goes to sum `i % LANES`,
//! then the upper half of the sums is added to the lower one until one is left. Products are rounded before they are
//! added. So every processor has the same bits; `kernels/distance.cuh` is equal line by line.

use headrace_ir::DataType;
use headrace_ir::function::Function;

use crate::simd::map_into;
use crate::vector::{Data, Vector};

/// Sums of a vector's floats.
const LANES: usize = 8;

/// Bytes of two values.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// The distance of two values of a type; `None`: it is no distance of such values. What is no bytes of that type is
/// compared as far as both go.
#[must_use]
pub fn between(function: Function, of: &DataType, left: &[u8], right: &[u8]) -> Option<f64> {
    let item_bytes = match of {
        DataType::FloatList { item_bytes, .. } => *item_bytes,
        _ => 0,
    };
    Some(match (function, item_bytes) {
        (Function::HammingDistance, 0) => differing((left, right)) as f64,
        (Function::Tanimoto, 0) => tanimoto((left, right)),
        (Function::Dot, 4) => dot::<4>((left, right)),
        (Function::Dot, 8) => dot::<8>((left, right)),
        (Function::L2Distance, 4) => l2_distance::<4>((left, right)),
        (Function::L2Distance, 8) => l2_distance::<8>((left, right)),
        (Function::CosineDistance, 4) => cosine_distance::<4>((left, right)),
        (Function::CosineDistance, 8) => cosine_distance::<8>((left, right)),
        _ => return None,
    })
}

/// The distances of two columns' rows; `None`: the function is no distance, or the columns are no bytes.
pub(crate) fn of_columns(
    function: Function,
    of: &DataType,
    left: &Vector<'_>,
    right: &Vector<'_>,
    rows: usize,
) -> Option<Data<'static>> {
    let (Data::Bytes(l), Data::Bytes(r)) = (&left.data, &right.data) else { return None };
    let row = |vector: &Vector<'_>, row| if vector.constant { 0 } else { row };
    let pairs: Vec<Pair<'_>> = (0..rows).map(|i| (l[row(left, i)], r[row(right, i)])).collect();
    let item_bytes = match of {
        DataType::FloatList { item_bytes, .. } => *item_bytes,
        _ => 0,
    };
    // Each is compiled for the machine's instructions.
    macro_rules! of_all {
        ($distance:expr) => {{
            let mut distances = vec![0.0; rows];
            map_into(&pairs, &mut distances, $distance);
            Some(Data::F64(distances.into()))
        }};
    }
    match (function, item_bytes) {
        (Function::HammingDistance, 0) => {
            let mut distances = vec![0; rows];
            map_into(&pairs, &mut distances, differing);
            Some(Data::I64(distances.into()))
        }
        (Function::Tanimoto, 0) => of_all!(tanimoto),
        (Function::Dot, 4) => of_all!(dot::<4>),
        (Function::Dot, 8) => of_all!(dot::<8>),
        (Function::L2Distance, 4) => of_all!(l2_distance::<4>),
        (Function::L2Distance, 8) => of_all!(l2_distance::<8>),
        (Function::CosineDistance, 4) => of_all!(cosine_distance::<4>),
        (Function::CosineDistance, 8) => of_all!(cosine_distance::<8>),
        _ => None,
    }
}

/// Ones among the bits of each value.
pub(crate) fn ones_of(values: &[&[u8]]) -> Vec<i64> {
    let mut counts = vec![0; values.len()];
    map_into(values, &mut counts, ones);
    counts
}

/// Ones among the bits.
#[inline(always)]
#[must_use]
pub fn ones(value: &[u8]) -> i64 {
    ones_of_both(
        (value, value),
        #[inline(always)]
        |a, _| a,
    )
}

/// Ones of what a function makes of the words of both.
#[inline(always)]
fn ones_of_both((left, right): Pair<'_>, of: impl Fn(u64, u64) -> u64) -> i64 {
    let (l, l_rest) = left.as_chunks::<8>();
    let (r, r_rest) = right.as_chunks::<8>();
    let word = |a: &[u8; 8], b: &[u8; 8]| of(u64::from_le_bytes(*a), u64::from_le_bytes(*b));
    let whole: u64 = l.iter().zip(r).map(|(a, b)| u64::from(word(a, b).count_ones())).sum();
    let rest = l_rest.iter().zip(r_rest).map(|(a, b)| of((*a).into(), (*b).into()).count_ones());
    (whole + u64::from(rest.sum::<u32>())).cast_signed()
}

#[inline(always)]
fn differing(pair: Pair<'_>) -> i64 {
    ones_of_both(
        pair,
        #[inline(always)]
        |a, b| a ^ b,
    )
}

#[inline(always)]
fn tanimoto(pair: Pair<'_>) -> f64 {
    let common = ones_of_both(
        pair,
        #[inline(always)]
        |a, b| a & b,
    );
    let either = ones_of_both(
        pair,
        #[inline(always)]
        |a, b| a | b,
    );
    if either == 0 { 1.0 } else { common as f64 / either as f64 }
}

/// A float of so many bytes.
#[inline(always)]
fn float<const BYTES: usize>(bytes: &[u8; BYTES]) -> f64 {
    match BYTES {
        4 => {
            let mut own = [0; 4];
            own.copy_from_slice(bytes);
            f32::from_le_bytes(own).into()
        }
        _ => {
            let mut own = [0; 8];
            own.copy_from_slice(bytes);
            f64::from_le_bytes(own)
        }
    }
}

/// The sum of what a function makes of the floats of both.
#[inline(always)]
fn sum<const BYTES: usize>((left, right): Pair<'_>, of: impl Fn(f64, f64) -> f64) -> f64 {
    let (left, right) = (left.as_chunks::<BYTES>().0, right.as_chunks::<BYTES>().0);
    let mut sums = [0.0; LANES];
    let (l, l_rest) = left.as_chunks::<LANES>();
    let (r, r_rest) = right.as_chunks::<LANES>();
    for (l, r) in l.iter().zip(r) {
        for lane in 0..LANES {
            sums[lane] += of(float(&l[lane]), float(&r[lane]));
        }
    }
    for (sum, (l, r)) in sums.iter_mut().zip(l_rest.iter().zip(r_rest)) {
        *sum += of(float(l), float(r));
    }
    for half in [4, 2, 1] {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
    }
    sums[0]
}

#[inline(always)]
fn dot<const BYTES: usize>(pair: Pair<'_>) -> f64 {
    sum::<BYTES>(
        pair,
        #[inline(always)]
        |a, b| a * b,
    )
}

#[inline(always)]
fn l2_distance<const BYTES: usize>(pair: Pair<'_>) -> f64 {
    sum::<BYTES>(
        pair,
        #[inline(always)]
        |a, b| (a - b) * (a - b),
    )
    .sqrt()
}

#[inline(always)]
fn cosine_distance<const BYTES: usize>(pair: Pair<'_>) -> f64 {
    let (left, right) = pair;
    let lengths = dot::<BYTES>((left, left)).sqrt() * dot::<BYTES>((right, right)).sqrt();
    let cosine = dot::<BYTES>(pair) / lengths;
    // Rounding may take it beyond.
    1.0 - cosine.clamp(-1.0, 1.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn floats<const BYTES: usize>(values: &[f64]) -> Vec<u8> {
        let bytes = values.iter().map(|&value| match BYTES {
            4 => (value as f32).to_le_bytes().to_vec(),
            _ => value.to_le_bytes().to_vec(),
        });
        bytes.collect::<Vec<_>>().concat()
    }

    fn list(item_bytes: u8, items: usize) -> DataType {
        DataType::FloatList { item_bytes, items: items as u32 }
    }

    #[test]
    fn bits_are_counted_one_by_one() {
        for width in [0, 1, 3, 7, 8, 9, 16, 31, 128] {
            let value = |seed: usize| -> Vec<u8> {
                (0..width).map(|i| (i * 37 + seed * 101 + seed * i) as u8).collect()
            };
            let (a, b) = (value(1), value(2));
            let bits = |of: fn(u8, u8) -> u8| -> u32 {
                a.iter().zip(&b).map(|(&a, &b)| of(a, b).count_ones()).sum()
            };
            let of = DataType::FixedBinary(width as u32);
            let between = |function| between(function, &of, &a, &b).unwrap();
            assert_eq!(ones(&a), i64::from(bits(|a, _| a)), "{width}");
            assert_eq!(
                between(Function::HammingDistance),
                f64::from(bits(|a, b| a ^ b)),
                "{width}"
            );
            let (common, either) = (bits(|a, b| a & b), bits(|a, b| a | b));
            let wanted = if either == 0 { 1.0 } else { f64::from(common) / f64::from(either) };
            assert_eq!(between(Function::Tanimoto), wanted, "{width}");
        }
    }

    #[test]
    fn vectors_are_compared_as_whole_numbers_are() {
        for items in [0, 1, 2, 7, 8, 9, 16, 100] {
            let a: Vec<f64> = (0..items).map(|i| f64::from((i * 7 % 13) - 6)).collect();
            let b: Vec<f64> = (0..items).map(|i| f64::from((i * 5 % 11) - 5)).collect();
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let apart: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
            for (of, l, r) in [
                (list(4, items as usize), floats::<4>(&a), floats::<4>(&b)),
                (list(8, items as usize), floats::<8>(&a), floats::<8>(&b)),
            ] {
                let between = |function| between(function, &of, &l, &r).unwrap();
                assert_eq!(between(Function::Dot), dot(&a, &b), "{of}");
                assert_eq!(between(Function::L2Distance), dot(&apart, &apart).sqrt(), "{of}");
                let cosine = dot(&a, &b) / (dot(&a, &a).sqrt() * dot(&b, &b).sqrt());
                let found = between(Function::CosineDistance);
                assert!(found == 1.0 - cosine || (found.is_nan() && cosine.is_nan()), "{of}");
            }
        }
    }

    #[test]
    fn a_vector_and_itself_are_no_less_than_nothing_apart() {
        let odd = floats::<8>(&[0.1, 0.7, 1e-3, 123.456, 5e7]);
        let far = between(Function::CosineDistance, &list(8, 5), &odd, &odd).unwrap();
        assert!((0.0..1e-15).contains(&far), "{far}");
        assert_eq!(between(Function::Dot, &DataType::FixedBinary(4), &odd, &odd), None);
        assert_eq!(between(Function::Tanimoto, &list(4, 1), &odd, &odd), None);
    }
}
