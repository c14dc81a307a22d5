//! `date_trunc` and `date_bin` of moments before 1677 and after 2262: the planner computes in nanoseconds, which have none.
//!
//! ```sql
//! SELECT date_trunc('month', t) FROM x  -- t: TIMESTAMP(6) of the year 9999
//! ```
//!
//! - DataFusion: An error, and NULL of `date_bin`: both compute in nanoseconds; right is the first of the month.
//! - Upstream: apache/datafusion#25432.
//! - This can go when its canary finds the fault mended.
//!
//! Values that nanoseconds have are the planner's function's; those of a batch with one that they have not are ours.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::{cast, max, min};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::functions::dates::{BIN, TRUNC};

/// The functions.
pub const NAMES: [&str; 2] = ["date_trunc", "date_bin"];

/// What nanoseconds have, and a part of a year less: the start of the last unit is one of them, too.
const NEAR_US: i64 = 9_200_000_000_000_000;

const MICROSECONDS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// A function that is one of far moments, too.
pub fn beyond_ns(near: Arc<ScalarUDF>) -> ScalarUDF {
    let (far, signature) = match near.name() {
        "date_bin" => (BIN.function(), Signature::user_defined(Volatility::Immutable)),
        _ => (TRUNC.function(), near.signature().clone()),
    };
    ScalarUDF::from(Far { near, far, signature })
}

/// The planner's function.
pub fn inner(function: &ScalarUDF) -> &ScalarUDF {
    match function.inner().downcast_ref::<Far>() {
        Some(far) => &far.near,
        None => function,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Far {
    near: Arc<ScalarUDF>,
    far: ScalarUDF,
    signature: Signature,
}

/// Whether a value is one that nanoseconds have not. Those of other zones than UTC have their own calendars.
fn is_far(value: &ColumnarValue) -> Result<bool> {
    let is_meant = match value.data_type() {
        DataType::Timestamp(unit, zone) => {
            unit != TimeUnit::Nanosecond
                && zone.is_none_or(|zone| ["UTC", "+00:00", "Z"].contains(&zone.as_ref()))
        }
        _ => false,
    };
    if !is_meant {
        return Ok(false);
    }
    let us = cast(&value.to_array(1)?, &MICROSECONDS)?;
    let us = us.as_primitive::<TimestampMicrosecondType>();
    let is_beyond = |us: Option<i64>| us.is_some_and(|us| us.unsigned_abs() > NEAR_US as u64);
    Ok(is_beyond(min(us)) || is_beyond(max(us)))
}

impl ScalarUDFImpl for Far {
    fn name(&self) -> &str {
        self.near.name()
    }

    fn aliases(&self) -> &[String] {
        self.near.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Those of `date_bin`: the planner makes all moments nanoseconds.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let width = DataType::Interval(IntervalUnit::MonthDayNano);
        let moment = |from: &DataType| match from {
            DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => from.clone(),
            _ => MICROSECONDS,
        };
        match types {
            [_, at] => Ok(vec![width, moment(at)]),
            [_, at, _] => {
                let origin = match moment(at) {
                    DataType::Timestamp(unit, zone) if unit != TimeUnit::Nanosecond => {
                        DataType::Timestamp(TimeUnit::Microsecond, zone)
                    }
                    other => other,
                };
                Ok(vec![width, moment(at), origin])
            }
            _ => plan_err!(
                "date_bin() takes a width, a timestamp and an origin\n\
                 hint: date_bin(interval '15 minutes', t, timestamp '2000-01-01')"
            ),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.near.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.near.return_field_from_args(args)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut has_far = false;
        for value in args.args.iter().skip(1) {
            has_far |= is_far(value)?;
        }
        if !has_far {
            if let Some(origin) = args.args.get_mut(2)
                && let DataType::Timestamp(_, zone) = origin.data_type()
            {
                *origin = origin.cast_to(&DataType::Timestamp(TimeUnit::Nanosecond, zone), None)?;
            }
            return self.near.invoke_with_args(args);
        }
        let result = args.return_field.data_type().clone();
        for value in args.args.iter_mut().skip(1) {
            *value = value.cast_to(&MICROSECONDS, None)?;
        }
        args.return_field = Arc::new(Field::new(self.name(), MICROSECONDS, true));
        self.far.invoke_with_args(args)?.cast_to(&result, None)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.near.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.near.documentation()
    }
}
