//! Comparison kernels.
//!
//! Empty texts are compared by length first: an empty text may have no address, and the C library compares zero
//! bytes at no address two hundred times slower than lengths are compared (`is_same_text`).

use std::cmp::Ordering;

use headrace_ir::{CompareOp, DataType};

use crate::ColumnError;
use crate::simd::map_into;
use crate::vector::{Data, Element, Operand, Vector, both_valid};

/// Compares two columns of one representation; decimals may differ in scale.
pub fn compare<'a>(
    op: CompareOp,
    (left, left_type): (&Vector<'a>, &DataType),
    (right, right_type): (&Vector<'a>, &DataType),
    rows: usize,
) -> Result<Vector<'a>, ColumnError> {
    if left.is_null_constant() || right.is_null_constant() {
        return Ok(Vector::constant(Data::Bool(vec![0].into()), true));
    }
    let (left_scale, right_scale) = (scale(left_type), scale(right_type));
    let values = if left_scale != right_scale {
        compare_decimals(op, (left, left_scale), (right, right_scale), rows)
    } else {
        compare_data(op, left, right, rows)
    };
    let values = values
        .ok_or_else(|| ColumnError::Internal(format!("{left_type} compared with {right_type}")))?;
    Ok(Vector::bools(values, both_valid(left, right, rows)))
}

/// Digits behind the point, of decimals.
pub fn scale(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128 { scale, .. } => *scale,
        _ => 0,
    }
}

macro_rules! by_element {
    ($data:expr, $type:ident => $body:expr, text => $text:expr) => {
        match $data {
            Data::Bool(_) => return None,
            Data::I8(_) => {
                type $type = i8;
                $body
            }
            Data::I16(_) => {
                type $type = i16;
                $body
            }
            Data::I32(_) => {
                type $type = i32;
                $body
            }
            Data::I64(_) => {
                type $type = i64;
                $body
            }
            Data::U8(_) => {
                type $type = u8;
                $body
            }
            Data::U16(_) => {
                type $type = u16;
                $body
            }
            Data::U32(_) => {
                type $type = u32;
                $body
            }
            Data::U64(_) => {
                type $type = u64;
                $body
            }
            Data::F32(_) => {
                type $type = f32;
                $body
            }
            Data::F64(_) => {
                type $type = f64;
                $body
            }
            Data::I128(_) => {
                type $type = i128;
                $body
            }
            Data::Str(_) | Data::Bytes(_) => $text,
        }
    };
}

fn compare_data(
    op: CompareOp,
    left: &Vector<'_>,
    right: &Vector<'_>,
    rows: usize,
) -> Option<Vec<u8>> {
    if let (Data::Bool(l), Data::Bool(r)) = (&left.data, &right.data) {
        let operand = |values: &'_ [u8], constant| match constant {
            true => vec![values[0]; rows],
            false => values.to_vec(),
        };
        let (l, r) = (operand(l, left.constant), operand(r, right.constant));
        return Some(compare_values(op, Operand::Rows(&l), Operand::Rows(&r), rows));
    }
    if let (Data::Bytes(l), Data::Bytes(r)) = (&left.data, &right.data) {
        let pair = |row: usize| {
            (l[if left.constant { 0 } else { row }], r[if right.constant { 0 } else { row }])
        };
        return Some((0..rows).map(pair).map(|(l, r)| u8::from(holds(op, l.cmp(r)))).collect());
    }
    by_element!(&left.data, T => {
        Some(compare_values(op, left.operand::<T>()?, right.operand::<T>()?, rows))
    }, text => {
        let (Data::Str(l), Data::Str(r)) = (&left.data, &right.data) else { return None };
        let pair = |row: usize| {
            (l[if left.constant { 0 } else { row }], r[if right.constant { 0 } else { row }])
        };
        let pairs = (0..rows).map(pair);
        Some(match op {
            CompareOp::Eq => pairs.map(|(l, r)| u8::from(is_same_text(l, r))).collect(),
            CompareOp::Ne => pairs.map(|(l, r)| u8::from(!is_same_text(l, r))).collect(),
            _ => pairs.map(|(l, r)| u8::from(holds(op, text_order(l, r)))).collect(),
        })
    })
}

/// Whether texts are the same. An empty one's place in memory may be none, and the C library's comparison of no bytes at no
/// place is two hundred times slower than that of lengths.
#[inline]
pub(crate) fn is_same_text(left: &str, right: &str) -> bool {
    left.len() == right.len() && (left.is_empty() || left == right)
}

/// The order of texts, as quickly told where one is empty.
#[inline]
pub fn text_order(left: &str, right: &str) -> Ordering {
    match left.is_empty() || right.is_empty() {
        true => left.len().cmp(&right.len()),
        false => left.cmp(right),
    }
}

/// Whether a comparison holds for an ordering of its operands.
pub(crate) fn holds(op: CompareOp, ordering: Ordering) -> bool {
    match op {
        CompareOp::Eq => ordering.is_eq(),
        CompareOp::Ne => ordering.is_ne(),
        CompareOp::Lt => ordering.is_lt(),
        CompareOp::Le => ordering.is_le(),
        CompareOp::Gt => ordering.is_gt(),
        CompareOp::Ge => ordering.is_ge(),
    }
}

fn compare_values<T: Element>(
    op: CompareOp,
    left: Operand<'_, T>,
    right: Operand<'_, T>,
    rows: usize,
) -> Vec<u8> {
    match op {
        CompareOp::Eq => pairs(left, right, rows, |a, b| a.equal(b)),
        CompareOp::Ne => pairs(left, right, rows, |a, b| !a.equal(b)),
        CompareOp::Lt => pairs(left, right, rows, |a, b| a.less(b)),
        CompareOp::Ge => pairs(left, right, rows, |a, b| !a.less(b)),
        CompareOp::Gt => pairs(left, right, rows, |a, b| b.less(a)),
        CompareOp::Le => pairs(left, right, rows, |a, b| !b.less(a)),
    }
}

/// One loop per combination of column and constant, each of which vectorises.
#[inline(always)]
fn pairs<T: Element>(
    left: Operand<'_, T>,
    right: Operand<'_, T>,
    rows: usize,
    test: impl Fn(T, T) -> bool,
) -> Vec<u8> {
    let mut truth = vec![0u8; rows];
    match (left, right) {
        (Operand::Rows(l), Operand::One(r)) => {
            map_into(l, &mut truth, |l| u8::from(test(l, r)));
        }
        (Operand::One(l), Operand::Rows(r)) => {
            map_into(r, &mut truth, |r| u8::from(test(l, r)));
        }
        (Operand::Rows(l), Operand::Rows(r)) => {
            truth
                .iter_mut()
                .zip(l.iter().zip(r))
                .for_each(|(t, (&l, &r))| *t = u8::from(test(l, r)));
        }
        (Operand::One(l), Operand::One(r)) => truth.fill(u8::from(test(l, r))),
    }
    truth
}

fn compare_decimals(
    op: CompareOp,
    (left, left_scale): (&Vector<'_>, i8),
    (right, right_scale): (&Vector<'_>, i8),
    rows: usize,
) -> Option<Vec<u8>> {
    let (l, r) = (left.operand::<i128>()?, right.operand::<i128>()?);
    Some(
        (0..rows)
            .map(|row| {
                let ordering = decimal_order(l.get(row), left_scale, r.get(row), right_scale);
                u8::from(holds(op, ordering))
            })
            .collect(),
    )
}

/// Order of two decimals of different scale, without overflow.
pub(crate) fn decimal_order(left: i128, left_scale: i8, right: i128, right_scale: i8) -> Ordering {
    let digits = i32::from(left_scale) - i32::from(right_scale);
    let factor = 10i128.checked_pow(digits.unsigned_abs());
    let (scaled_is_left, scaled, other) =
        if digits < 0 { (true, left, right) } else { (false, right, left) };
    let order = match factor.and_then(|f| scaled.checked_mul(f)) {
        Some(scaled) => scaled.cmp(&other),
        // The scaled one is larger in magnitude than anything in 128 bits.
        None if scaled == 0 => 0.cmp(&other),
        None => scaled.signum().cmp(&0),
    };
    if scaled_is_left { order } else { order.reverse() }
}
