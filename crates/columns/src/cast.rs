//! Conversions between numbers, truth values, dates and timestamps.

use std::borrow::Cow;

use headrace_ir::{CastFailure, DataType};

use crate::ColumnError;
use crate::calendar::{DAY_SECONDS, ticks};
use crate::convert::empty_data;
use crate::decimal;
use crate::fault::{Fault, Target};
use crate::repr::Repr;
use crate::vector::{Data, Vector};

/// Whether [`cast`] converts between these types.
pub fn is_supported(from: &DataType, to: &DataType) -> bool {
    use DataType::{Bool, Date32, Decimal128, Time64, Timestamp};
    let number = |t: &DataType| t.is_numeric();
    if from == to {
        return true;
    }
    match (from, to) {
        (Bool, t) => t.is_integer() || t.is_float(),
        (f, Bool) => f.is_integer() || f.is_float(),
        (Date32, t) | (t, Date32) if matches!(t, DataType::Int32 | DataType::Int64) => true,
        (Date32, Timestamp { timezone: None, .. }) => true,
        (Timestamp { timezone: None, .. }, Date32) => true,
        (Timestamp { timezone: a, .. }, Timestamp { timezone: b, .. }) => a == b,
        (Timestamp { .. } | Time64(_), DataType::Int64)
        | (DataType::Int64, Timestamp { .. } | Time64(_)) => true,
        (Decimal128 { .. }, t) if t.is_float() || number(t) => true,
        (f, t) => number(f) && number(t),
    }
}

/// Converts a column.
pub fn cast<'a>(
    target: Target<'_>,
    vector: &Vector<'a>,
    from: &DataType,
    on_failure: CastFailure,
) -> Result<Vector<'a>, ColumnError> {
    let to = target.data_type;
    if from == to {
        return Ok(vector.clone());
    }
    if vector.is_null_constant() {
        return Ok(Vector::constant(empty_data(target.repr, 1)?, true));
    }
    if let Some(data) = widen(&vector.data, from, to, target.repr) {
        let validity = vector.validity.as_deref().map(|v| Cow::Owned(v.to_vec()));
        return Ok(Vector { data, validity, constant: vector.constant });
    }
    let mut output = Converted::new(vector, on_failure);
    let data = convert(&mut output, vector, from, to, target.repr).ok_or_else(|| {
        ColumnError::Internal(format!("no conversion from {from} in {}", target.text))
    })?;
    if output.failed {
        return Err(Fault::Cast.at(target));
    }
    let mut result = Vector::with_validity(data, output.valid);
    result.constant = vector.constant;
    Ok(result)
}

/// Conversions that cannot fail, in loops that vectorise.
fn widen(data: &Data<'_>, from: &DataType, to: &DataType, repr: &Repr) -> Option<Data<'static>> {
    if !(from.is_integer() || from.is_float()) || !(to.is_integer() || to.is_float()) {
        return None;
    }
    macro_rules! widened {
        ($to:ident, $type:ty, $($from:ident),+) => {
            match data {
                $(Data::$from(v) => Data::$to(v.iter().map(|&v| v as $type).collect()),)+
                _ => return None,
            }
        };
    }
    Some(match repr {
        Repr::I64 => widened!(I64, i64, I32, I16, I8, U32, U16, U8),
        Repr::U64 => widened!(U64, u64, U32, U16, U8),
        Repr::I32 => widened!(I32, i32, I16, I8),
        Repr::F64 => widened!(F64, f64, F32, I64, I32, I16, I8, U64, U32, U16, U8),
        Repr::F32 => widened!(F32, f32, F64, I64, I32, I16, I8, U64, U32, U16, U8),
        _ => return None,
    })
}

/// Validity of the output, and whether a failure was seen that is an error.
struct Converted {
    valid: Option<Vec<u8>>,
    failed: bool,
    on_failure: CastFailure,
    rows: usize,
}

impl Converted {
    fn new(vector: &Vector<'_>, on_failure: CastFailure) -> Self {
        let valid = vector.validity.as_deref().map(<[u8]>::to_vec);
        Self { valid, failed: false, on_failure, rows: vector.data.count() }
    }

    /// Converts valid rows; failures become NULL or an error.
    fn map<T: Copy, U: Default>(
        &mut self,
        values: &[T],
        convert: impl Fn(T) -> Option<U>,
    ) -> Vec<U> {
        let mut output = Vec::with_capacity(self.rows);
        for (row, &value) in values.iter().enumerate() {
            if self.valid.as_ref().is_some_and(|v| v[row] == 0) {
                output.push(U::default());
                continue;
            }
            let converted = convert(value);
            if converted.is_none() {
                match self.on_failure {
                    CastFailure::Error => self.failed = true,
                    CastFailure::Null => {
                        self.valid.get_or_insert_with(|| vec![1; self.rows])[row] = 0;
                    }
                }
            }
            output.push(converted.unwrap_or_default());
        }
        output
    }
}

/// The values of integer-like data as 128-bit integers.
fn integers(data: &Data<'_>) -> Option<Vec<i128>> {
    macro_rules! wide {
        ($values:expr) => {
            $values.iter().map(|&v| i128::from(v)).collect()
        };
    }
    Some(match data {
        Data::Bool(v) => wide!(v),
        Data::I8(v) => wide!(v),
        Data::I16(v) => wide!(v),
        Data::I32(v) => wide!(v),
        Data::I64(v) => wide!(v),
        Data::U8(v) => wide!(v),
        Data::U16(v) => wide!(v),
        Data::U32(v) => wide!(v),
        Data::U64(v) => wide!(v),
        Data::I128(v) => v.to_vec(),
        Data::F32(_) | Data::F64(_) | Data::Str(_) | Data::Bytes(_) => return None,
    })
}

fn floats(data: &Data<'_>) -> Option<Vec<f64>> {
    match data {
        Data::F32(v) => Some(v.iter().map(|&v| f64::from(v)).collect()),
        Data::F64(v) => Some(v.to_vec()),
        _ => None,
    }
}

fn convert(
    output: &mut Converted,
    vector: &Vector<'_>,
    from: &DataType,
    to: &DataType,
    repr: &Repr,
) -> Option<Data<'static>> {
    use DataType::Decimal128;
    if let Decimal128 { scale, .. } = from {
        return from_decimal(output, &integers(&vector.data)?, *scale, to, repr);
    }
    if let Some(values) = floats(&vector.data) {
        return from_float(output, &values, to, repr);
    }
    let values = integers(&vector.data)?;
    match to {
        Decimal128 { precision, scale } => Some(Data::I128(
            output.map(&values, |v| decimal::change_scale(v, 0, *scale, *precision)).into(),
        )),
        DataType::Bool => Some(Data::Bool(output.map(&values, |v| Some(u8::from(v != 0))).into())),
        to if to.is_float() => {
            let values: Vec<f64> = values.iter().map(|&v| v as f64).collect();
            float_data(repr, values)
        }
        to => {
            let (multiply, divide) = time_ratio(from, to);
            // As in Arrow: a day before 1970 is the one in which the moment lies, a coarser
            // timestamp is cut off towards 1970.
            let to_day = *to == DataType::Date32;
            let scaled = |v: i128| {
                let v = v.checked_mul(multiply)?;
                Some(if to_day { v.div_euclid(divide) } else { v / divide })
            };
            narrow_integers(output, &values, scaled, repr)
        }
    }
}

/// Factor and divisor between dates and timestamps.
fn time_ratio(from: &DataType, to: &DataType) -> (i128, i128) {
    let per_second = |t: &DataType| match t {
        DataType::Timestamp { unit, .. } | DataType::Time64(unit) => Some(ticks(*unit)),
        _ => None,
    };
    let (multiply, divide) = match (from, to) {
        (DataType::Date32, t) => (per_second(t).map_or(1, |ticks| ticks * DAY_SECONDS), 1),
        (t, DataType::Date32) => (1, per_second(t).map_or(1, |ticks| ticks * DAY_SECONDS)),
        (f, t) => match (per_second(f), per_second(t)) {
            (Some(f), Some(t)) if t >= f => (t / f, 1),
            (Some(f), Some(t)) => (1, f / t),
            _ => (1, 1),
        },
    };
    (i128::from(multiply), i128::from(divide))
}

fn narrow_integers<T: Copy>(
    output: &mut Converted,
    values: &[T],
    convert: impl Fn(T) -> Option<i128>,
    repr: &Repr,
) -> Option<Data<'static>> {
    macro_rules! narrow {
        ($type:ty, $variant:ident) => {
            Data::$variant(output.map(values, |v| <$type>::try_from(convert(v)?).ok()).into())
        };
    }
    Some(match repr {
        Repr::I8 => narrow!(i8, I8),
        Repr::I16 => narrow!(i16, I16),
        Repr::I32 => narrow!(i32, I32),
        Repr::I64 => narrow!(i64, I64),
        Repr::U8 => narrow!(u8, U8),
        Repr::U16 => narrow!(u16, U16),
        Repr::U32 => narrow!(u32, U32),
        Repr::U64 => narrow!(u64, U64),
        _ => return None,
    })
}

fn float_data(repr: &Repr, values: Vec<f64>) -> Option<Data<'static>> {
    match repr {
        Repr::F64 => Some(Data::F64(values.into())),
        Repr::F32 => Some(Data::F32(values.iter().map(|&v| v as f32).collect())),
        _ => None,
    }
}

fn from_decimal(
    output: &mut Converted,
    values: &[i128],
    scale: i8,
    to: &DataType,
    repr: &Repr,
) -> Option<Data<'static>> {
    match to {
        DataType::Decimal128 { precision, scale: to_scale } => Some(Data::I128(
            output.map(values, |v| decimal::change_scale(v, scale, *to_scale, *precision)).into(),
        )),
        to if to.is_float() => {
            let factor = 10f64.powi(i32::from(scale));
            float_data(repr, values.iter().map(|&v| v as f64 / factor).collect())
        }
        to if to.is_integer() => {
            // Digits after the point are cut off, as Arrow does.
            let power = 10i128.checked_pow(u32::from(scale.unsigned_abs()))?;
            narrow_integers(
                output,
                values,
                |v| if scale >= 0 { Some(v / power) } else { v.checked_mul(power) },
                repr,
            )
        }
        _ => None,
    }
}

fn from_float(
    output: &mut Converted,
    values: &[f64],
    to: &DataType,
    repr: &Repr,
) -> Option<Data<'static>> {
    match to {
        DataType::Bool => Some(Data::Bool(output.map(values, |v| Some(u8::from(v != 0.0))).into())),
        DataType::Decimal128 { precision, scale } => {
            let factor = 10f64.powi(i32::from(*scale));
            let limit = decimal::magnitude_limit(*precision);
            let convert = |v: f64| {
                let unscaled = float_to_integer((v * factor).round())?;
                (unscaled.unsigned_abs() < limit.unsigned_abs()).then_some(unscaled)
            };
            Some(Data::I128(output.map(values, convert).into()))
        }
        _ => narrow_integers(output, values, |v| float_to_integer(v.trunc()), repr),
    }
}

/// `None` for NaN, infinities and what 128 bits cannot hold.
fn float_to_integer(value: f64) -> Option<i128> {
    (value.is_finite() && value.abs() < 1.7e38).then_some(value as i128)
}
