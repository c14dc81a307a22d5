//! Arithmetic kernels. What is computed for a row whose operand is NULL is never seen and
//! never an error.

use std::borrow::Cow;

use headrace_ir::{ArithmeticOp, DataType};

use crate::ColumnError;
use crate::convert::empty_data;
use crate::decimal;
use crate::fault::{Fault, Target};
use crate::vector::{Data, Element, Operand, Vector, both_valid};

/// An operand and its type.
pub type Side<'v, 'a> = (&'v Vector<'a>, &'v DataType);

/// What becomes of results that leave their range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Overflow of integers and decimals is impossible or wraps.
    pub wrap: bool,
    /// Floats that leave their range are a fault.
    pub strict: bool,
}

/// `left op right`.
pub fn binary<'a>(
    target: Target<'_>,
    op: ArithmeticOp,
    (left, left_type): Side<'_, 'a>,
    (right, right_type): Side<'_, 'a>,
    limits: Limits,
    rows: usize,
) -> Result<Vector<'a>, ColumnError> {
    if left.is_null_constant() || right.is_null_constant() {
        return Ok(Vector::constant(empty_data(target.repr, 1)?, true));
    }
    let constant = left.constant && right.constant;
    let rows = if constant { 1 } else { rows };
    let validity = both_valid(left, right, rows);
    let valid = validity.as_deref();
    let Limits { wrap, strict } = limits;
    let data = match &left.data {
        Data::I8(_) => integers::<i8>(op, left, right, wrap, rows, valid),
        Data::I16(_) => integers::<i16>(op, left, right, wrap, rows, valid),
        Data::I32(_) => integers::<i32>(op, left, right, wrap, rows, valid),
        Data::I64(_) => integers::<i64>(op, left, right, wrap, rows, valid),
        Data::U8(_) => integers::<u8>(op, left, right, wrap, rows, valid),
        Data::U16(_) => integers::<u16>(op, left, right, wrap, rows, valid),
        Data::U32(_) => integers::<u32>(op, left, right, wrap, rows, valid),
        Data::U64(_) => integers::<u64>(op, left, right, wrap, rows, valid),
        Data::F32(_) => floats::<f32>(op, left, right, strict, rows, valid),
        Data::F64(_) => floats::<f64>(op, left, right, strict, rows, valid),
        Data::I128(_) => decimals(
            target.data_type,
            op,
            (left, left_type),
            (right, right_type),
            wrap,
            rows,
            valid,
        ),
        Data::Bool(_) | Data::Str(_) | Data::Bytes(_) => None,
    };
    let data = data
        .ok_or_else(|| {
            ColumnError::Internal(format!("arithmetic over mixed types in {}", target.text))
        })?
        .map_err(|fault| fault.at(target))?;
    let mut vector = Vector::with_validity(data, validity);
    vector.constant = constant;
    Ok(vector)
}

type Outcome = Option<Result<Data<'static>, Fault>>;

/// Integers of at most 64 bits.
pub trait Int: Element + Default + Ord {
    /// Result and whether it wrapped.
    fn add(self, other: Self) -> (Self, bool);
    /// Result and whether it wrapped.
    fn subtract(self, other: Self) -> (Self, bool);
    /// Result and whether it wrapped.
    fn multiply(self, other: Self) -> (Self, bool);
    /// Quotient and whether it wrapped; the divisor is not 0.
    fn divide(self, other: Self) -> (Self, bool);
    /// Remainder; the divisor is not 0.
    fn remainder(self, other: Self) -> Self;
    /// Negation and whether it wrapped.
    fn negate(self) -> (Self, bool);
}

macro_rules! int {
    ($($type:ty),*) => {$(
        impl Int for $type {
            #[inline(always)]
            fn add(self, other: Self) -> (Self, bool) { self.overflowing_add(other) }
            #[inline(always)]
            fn subtract(self, other: Self) -> (Self, bool) { self.overflowing_sub(other) }
            #[inline(always)]
            fn multiply(self, other: Self) -> (Self, bool) { self.overflowing_mul(other) }
            #[inline(always)]
            fn divide(self, other: Self) -> (Self, bool) { self.overflowing_div(other) }
            #[inline(always)]
            fn remainder(self, other: Self) -> Self { self.wrapping_rem(other) }
            #[inline(always)]
            fn negate(self) -> (Self, bool) { self.overflowing_neg() }
        }
    )*};
}

int!(i8, i16, i32, i64, u8, u16, u32, u64);

fn integers<T: Int>(
    op: ArithmeticOp,
    left: &Vector<'_>,
    right: &Vector<'_>,
    wrap: bool,
    rows: usize,
    valid: Option<&[u8]>,
) -> Outcome {
    let (l, r) = (left.operand::<T>()?, right.operand::<T>()?);
    let result = match (op, wrap) {
        (ArithmeticOp::Add, true) => Ok(map2(l, r, rows, |a, b| a.add(b).0)),
        (ArithmeticOp::Subtract, true) => Ok(map2(l, r, rows, |a, b| a.subtract(b).0)),
        (ArithmeticOp::Multiply, true) => Ok(map2(l, r, rows, |a, b| a.multiply(b).0)),
        (ArithmeticOp::Add, false) => flagged(l, r, rows, valid, T::add),
        (ArithmeticOp::Subtract, false) => flagged(l, r, rows, valid, T::subtract),
        (ArithmeticOp::Multiply, false) => flagged(l, r, rows, valid, T::multiply),
        (ArithmeticOp::Divide, wrap) => checked(l, r, rows, valid, |a, b| {
            if b == T::default() {
                return Err(Fault::DivisionByZero);
            }
            match a.divide(b) {
                (_, true) if !wrap => Err(Fault::Overflow),
                (quotient, _) => Ok(quotient),
            }
        }),
        (ArithmeticOp::Modulo, _) => checked(l, r, rows, valid, |a, b| {
            if b == T::default() { Err(Fault::DivisionByZero) } else { Ok(a.remainder(b)) }
        }),
    };
    Some(result.map(T::data))
}

/// One loop per combination of column and constant.
#[inline(always)]
pub(crate) fn map2<T: Copy, U>(
    left: Operand<'_, T>,
    right: Operand<'_, T>,
    rows: usize,
    f: impl Fn(T, T) -> U,
) -> Vec<U> {
    match (left, right) {
        (Operand::Rows(l), Operand::One(r)) => l.iter().map(|&l| f(l, r)).collect(),
        (Operand::One(l), Operand::Rows(r)) => r.iter().map(|&r| f(l, r)).collect(),
        (Operand::Rows(l), Operand::Rows(r)) => l.iter().zip(r).map(|(&l, &r)| f(l, r)).collect(),
        (Operand::One(l), Operand::One(r)) => (0..rows).map(|_| f(l, r)).collect(),
    }
}

/// Computes all rows and looks for the culprit only if any row overflowed.
#[inline(always)]
fn flagged<T: Int>(
    left: Operand<'_, T>,
    right: Operand<'_, T>,
    rows: usize,
    valid: Option<&[u8]>,
    f: impl Fn(T, T) -> (T, bool),
) -> Result<Vec<T>, Fault> {
    let mut any = false;
    let mut values = Vec::with_capacity(rows);
    values.extend((0..rows).map(|row| {
        let (value, overflow) = f(left.get(row), right.get(row));
        any |= overflow;
        value
    }));
    let real = any
        && (0..rows)
            .any(|row| valid.is_none_or(|v| v[row] != 0) && f(left.get(row), right.get(row)).1);
    if real { Err(Fault::Overflow) } else { Ok(values) }
}

/// Computes valid rows one by one.
#[inline(always)]
pub(crate) fn checked<T: Copy + Default>(
    left: Operand<'_, T>,
    right: Operand<'_, T>,
    rows: usize,
    valid: Option<&[u8]>,
    f: impl Fn(T, T) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    (0..rows)
        .map(|row| match valid {
            Some(valid) if valid[row] == 0 => Ok(T::default()),
            _ => f(left.get(row), right.get(row)),
        })
        .collect()
}

fn floats<T>(
    op: ArithmeticOp,
    left: &Vector<'_>,
    right: &Vector<'_>,
    strict: bool,
    rows: usize,
    valid: Option<&[u8]>,
) -> Outcome
where
    T: Element
        + Into<f64>
        + std::ops::Add<Output = T>
        + std::ops::Sub<Output = T>
        + std::ops::Mul<Output = T>
        + std::ops::Div<Output = T>
        + std::ops::Rem<Output = T>,
{
    let (l, r) = (left.operand::<T>()?, right.operand::<T>()?);
    let values = match op {
        ArithmeticOp::Add => map2(l, r, rows, |a, b| a + b),
        ArithmeticOp::Subtract => map2(l, r, rows, |a, b| a - b),
        ArithmeticOp::Multiply => map2(l, r, rows, |a, b| a * b),
        ArithmeticOp::Divide => map2(l, r, rows, |a, b| a / b),
        ArithmeticOp::Modulo => map2(l, r, rows, |a, b| a % b),
    };
    let is_valid = |row: &usize| valid.is_none_or(|valid| valid[*row] != 0);
    let fault =
        |row: usize| float_fault(op, l.get(row).into(), r.get(row).into(), values[row].into());
    let fault = (0..rows).filter(|_| strict).filter(is_valid).find_map(fault);
    Some(fault.map_or(Ok(T::data(values)), Err))
}

/// Why a result of floats is none where arithmetic is strict.
fn float_fault(op: ArithmeticOp, left: f64, right: f64, result: f64) -> Option<Fault> {
    let divides = matches!(op, ArithmeticOp::Divide | ArithmeticOp::Modulo);
    if divides && right == 0.0 && !left.is_nan() {
        return Some(Fault::DivisionByZero);
    }
    let overflows = result.is_infinite() && left.is_finite() && right.is_finite();
    let underflows = match op {
        ArithmeticOp::Multiply => result == 0.0 && left != 0.0 && right != 0.0,
        ArithmeticOp::Divide => result == 0.0 && left != 0.0 && right.is_finite(),
        _ => false,
    };
    (overflows || underflows).then_some(Fault::Overflow)
}

fn decimals(
    result: &DataType,
    op: ArithmeticOp,
    (left, left_type): Side<'_, '_>,
    (right, right_type): Side<'_, '_>,
    wrap: bool,
    rows: usize,
    valid: Option<&[u8]>,
) -> Outcome {
    let (l, r) = (left.operand::<i128>()?, right.operand::<i128>()?);
    let scale = |t: &DataType| match t {
        DataType::Decimal128 { scale, .. } => Some(*scale),
        _ => None,
    };
    let DataType::Decimal128 { precision, scale: result_scale } = *result else {
        return None;
    };
    let scales = decimal::Scales {
        left: scale(left_type)?,
        right: scale(right_type)?,
        result: result_scale,
    };
    let limit = if wrap { None } else { Some(decimal::magnitude_limit(precision)) };
    let values = checked(l, r, rows, valid, |a, b| decimal::compute(op, a, b, scales, limit));
    Some(values.map(i128::data))
}

/// Unary minus.
pub fn negate<'a>(
    target: Target<'_>,
    vector: &Vector<'a>,
    wrap: bool,
) -> Result<Vector<'a>, ColumnError> {
    let valid = vector.validity.as_deref();
    macro_rules! ints {
        ($values:expr, $variant:ident) => {
            Data::$variant(negate_integers($values, wrap, valid).map_err(|f| f.at(target))?.into())
        };
    }
    let data = match &vector.data {
        Data::I8(values) => ints!(values, I8),
        Data::I16(values) => ints!(values, I16),
        Data::I32(values) => ints!(values, I32),
        Data::I64(values) => ints!(values, I64),
        Data::U8(values) => ints!(values, U8),
        Data::U16(values) => ints!(values, U16),
        Data::U32(values) => ints!(values, U32),
        Data::U64(values) => ints!(values, U64),
        Data::F32(values) => Data::F32(values.iter().map(|v| -v).collect()),
        Data::F64(values) => Data::F64(values.iter().map(|v| -v).collect()),
        // Decimals are symmetric.
        Data::I128(values) => Data::I128(values.iter().map(|v| v.wrapping_neg()).collect()),
        Data::Bool(_) | Data::Str(_) | Data::Bytes(_) => {
            return Err(ColumnError::Internal(format!("minus of {}", target.text)));
        }
    };
    let validity = vector.validity.as_deref().map(|v| Cow::Owned(v.to_vec()));
    Ok(Vector { data, validity, constant: vector.constant })
}

fn negate_integers<T: Int>(
    values: &[T],
    wrap: bool,
    valid: Option<&[u8]>,
) -> Result<Vec<T>, Fault> {
    let overflows =
        |(row, value): (usize, &T)| valid.is_none_or(|v| v[row] != 0) && value.negate().1;
    if !wrap && values.iter().enumerate().any(overflows) {
        return Err(Fault::Overflow);
    }
    Ok(values.iter().map(|v| v.negate().0).collect())
}
