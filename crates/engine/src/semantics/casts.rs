//! Casts that lose digits round, and say so.
//!
//! SQL leaves open whether `CAST(2.5 AS INT)` is rounded; PostgreSQL and DuckDB round, the planner cuts off. And where a cast is
//! compared with a constant, the planner casts the constant back instead: `CAST(d AS DECIMAL(9, 1)) = 1.3` becomes `d = 1.30`,
//! which is not true of 1.34. So what a cast loses is lost by a function below it, and the cast itself loses nothing:
//!
//! ```text
//! CAST(decimal AS INT), AS DECIMAL(p, s)   CAST(round(decimal, s) AS ..)       halves away from zero
//! CAST(float AS INT)                       CAST(rint(float) AS INT)            halves to even
//! CAST(timestamp AS TIMESTAMP(0))          CAST(date_trunc('second', ..) AS ..)
//! TRY_CAST(bigint AS INT)                  CASE WHEN bigint BETWEEN .. THEN TRY_CAST(..) END
//! ```
//!
//! Of texts: one that is cast to a list or a struct is refused (the planner makes a list of the one text), a time needs its colon,
//! and `'\\x41'::BYTEA` is a byte.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err, plan_err};
use datafusion::functions::datetime::expr_fn::date_trunc;
use datafusion::functions::math::expr_fn::round;
use datafusion::logical_expr::expr::TryCast;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast, lit, when,
};

use super::moment_texts;
use crate::plans::map_expressions;
use crate::strict;

/// Puts what casts lose below them.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    // Expressions of statements that change tables are of those.
    if matches!(plan, LogicalPlan::Dml(_)) {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    map_expressions(plan, |expr| expr.transform_up(|part| rounded(part, &schema)))
}

fn rounded(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (value, to) = match &part {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            (expr.as_ref(), field.data_type())
        }
        _ => return Ok(Transformed::no(part)),
    };
    let from = value.get_type(schema)?;
    if from.is_string() {
        return of_text(part.clone(), value, to);
    }
    if to.is_string() && moment_texts::is_meant(&from) {
        let text = Box::new(moment_texts::text(value.clone()));
        return Ok(Transformed::yes(with_value(part, text)));
    }
    if let (Expr::TryCast(_), Some((low, high))) = (&part, narrower(&from, to)?) {
        if matches!(value, Expr::Literal(..)) {
            return Ok(Transformed::no(part));
        }
        let fits = value.clone().between(lit(low), lit(high));
        let otherwise = lit(ScalarValue::try_from(to)?);
        return Ok(Transformed::yes(when(fits, part).otherwise(otherwise)?));
    }
    let Some(lossless) = lossless(value, &from, to) else { return Ok(Transformed::no(part)) };
    Ok(Transformed::yes(with_value(part, Box::new(lossless))))
}

/// A cast of another value.
fn with_value(part: Expr, expr: Box<Expr>) -> Expr {
    match part {
        Expr::TryCast(TryCast { field, .. }) => Expr::TryCast(TryCast { expr, field }),
        Expr::Cast(Cast { field, .. }) => Expr::Cast(Cast { expr, field }),
        other => other,
    }
}

/// Casts of texts that the planner takes for something else.
fn of_text(part: Expr, text: &Expr, to: &DataType) -> Result<Transformed<Expr>> {
    let constant = match text {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    };
    if to.is_nested() {
        return plan_err!(
            "a text is not cast to a list or a struct\nhint: write [1, 2], or split it: string_to_array(text, ',')"
        );
    }
    match (to, constant) {
        (DataType::Timestamp(..), Some(text)) if let Some(text) = with_seconds(text) => {
            Ok(Transformed::yes(cast(lit(text), to.clone())))
        }
        (DataType::Time32(_) | DataType::Time64(_), Some(text)) if !text.contains(':') => {
            plan_err!("'{text}' is no time of day\nhint: such as '11:30' or '11:30:00'")
        }
        (DataType::Binary | DataType::LargeBinary | DataType::BinaryView, Some(text))
            if text.starts_with("\\x") =>
        {
            match hex(&text[2..]) {
                Some(bytes) => {
                    let bytes = lit(ScalarValue::Binary(Some(bytes)));
                    Ok(Transformed::yes(cast(bytes, to.clone())))
                }
                None => plan_err!("'{text}' has no pairs of hexadecimal digits behind \\x"),
            }
        }
        _ => Ok(Transformed::no(part)),
    }
}

/// `2024-05-31 10:00` with the seconds that the planner wants.
fn with_seconds(text: &str) -> Option<String> {
    let at = text.find(':')?;
    let (date, time) = text.split_at(at.checked_sub(3)?);
    let is_digit = |place: usize| time.as_bytes().get(place).is_some_and(u8::is_ascii_digit);
    let is_time = time.starts_with([' ', 'T']) && [1, 2, 4, 5].into_iter().all(is_digit);
    let rest = time.get(6..)?;
    let ends = rest.is_empty() || rest.starts_with(['+', '-', 'Z', ' ']);
    (is_time && ends).then(|| format!("{date}{}:00{rest}", &time[..6]))
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect()).flatten()
}

/// A value of the same type of which the cast loses nothing; `None` if that is so already.
fn lossless(value: &Expr, from: &DataType, to: &DataType) -> Option<Expr> {
    use DataType::{Decimal32, Decimal64, Decimal128, Decimal256, List, Timestamp};
    if matches!(value, Expr::ScalarFunction(call) if is_rounding(call.func.name())) {
        return None;
    }
    let scale = |data_type: &DataType| match data_type {
        Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale) | Decimal256(_, scale) => {
            Some(*scale)
        }
        integer if integer.is_integer() => Some(0),
        _ => None,
    };
    match (from, to) {
        (List(from), List(to)) if from.data_type().is_floating() && to.data_type().is_integer() => {
            Some(RINT.call(vec![value.clone()]))
        }
        (List(item), List(to)) if item.data_type().is_decimal() => {
            let scale = scale(to.data_type())?;
            let Decimal128(precision, own) = item.data_type() else { return None };
            let item = item.as_ref().clone().with_data_type(Decimal128(*precision, scale));
            (scale < *own).then(|| cast(value.clone(), List(Arc::new(item))))
        }
        (Timestamp(from, _), Timestamp(to, _)) if to < from => {
            Some(date_trunc(lit(unit_name(*to)), value.clone()))
        }
        (float, to) if float.is_floating() && to.is_integer() => {
            Some(RINT.call(vec![value.clone()]))
        }
        (from, to) if from.is_decimal() => match (scale(from), scale(to)) {
            (Some(from), Some(to)) if to < from => {
                Some(round(vec![value.clone(), lit(i32::from(to))]))
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_rounding(name: &str) -> bool {
    matches!(name, "round" | "rint" | "date_trunc" | "trunc" | "floor" | "ceil")
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "second",
        TimeUnit::Millisecond => "millisecond",
        TimeUnit::Microsecond => "microsecond",
        TimeUnit::Nanosecond => "nanosecond",
    }
}

/// The range of an integer type that does not hold all values of another.
fn narrower(from: &DataType, to: &DataType) -> Result<Option<(ScalarValue, ScalarValue)>> {
    if !(from.is_integer() && to.is_integer()) {
        return Ok(None);
    }
    let range = |data_type: &DataType| -> Result<(i128, i128)> {
        let value = |scalar: Option<ScalarValue>| match scalar {
            Some(scalar) => scalar.to_string().parse().or_else(|_| internal_err!("{scalar}")),
            None => internal_err!("{data_type} has no bounds"),
        };
        Ok((value(ScalarValue::min(data_type))?, value(ScalarValue::max(data_type))?))
    };
    let (own, wanted) = (range(from)?, range(to)?);
    if wanted.0 <= own.0 && own.1 <= wanted.1 {
        return Ok(None);
    }
    let bound = |value: i128| ScalarValue::try_from_string(value.to_string(), from);
    Ok(Some((bound(own.0.max(wanted.0))?, bound(own.1.min(wanted.1))?)))
}

/// `rint(x)`: the nearest whole number, of two as near the even one, as PostgreSQL casts floats.
pub fn rint() -> ScalarUDF {
    RINT.as_ref().clone()
}

static RINT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let list = |item| DataType::new_list(item, true);
    let (float, double) = (DataType::Float32, DataType::Float64);
    let types = vec![float.clone(), double.clone(), list(float), list(double)];
    let signature = Signature::uniform(1, types, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Rint { signature }))
});

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Rint {
    signature: Signature,
}

impl ScalarUDFImpl for Rint {
    fn name(&self) -> &str {
        "rint"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments.first().cloned().unwrap_or(DataType::Null))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        strict::return_field(self, &args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &args.args[..] {
            [ColumnarValue::Scalar(ScalarValue::Float64(value))] => {
                let rounded = ScalarValue::Float64(value.map(f64::round_ties_even));
                Ok(ColumnarValue::Scalar(rounded))
            }
            [ColumnarValue::Scalar(ScalarValue::Float32(value))] => {
                let rounded = ScalarValue::Float32(value.map(f32::round_ties_even));
                Ok(ColumnarValue::Scalar(rounded))
            }
            [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(rounded_array(array)?)),
            [ColumnarValue::Scalar(list @ ScalarValue::List(_))] => {
                let rounded = rounded_array(&list.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&rounded, 0)?))
            }
            _ => internal_err!("rint of no float"),
        }
    }
}

/// The nearest whole numbers of floats, or of lists of floats.
fn rounded_array(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Float32 => Arc::new(
            array.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even),
        ),
        DataType::Float64 => Arc::new(
            array.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even),
        ),
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            Arc::new(ListArray::new(
                Arc::clone(item),
                list.offsets().clone(),
                rounded_array(list.values())?,
                list.nulls().cloned(),
            ))
        }
        other => return internal_err!("rint of {other}"),
    })
}
