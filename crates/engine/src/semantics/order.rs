//! Intervals by their length, and one zero, wherever values are compared.
//!
//! The planner compares intervals by their parts, so that 24 hours are not a day and the difference of two moments is less
//! than any interval of days; SQL compares lengths, a day of 24 hours and a month of 30 days (as PostgreSQL does). Its windows take -0.0 and 0.0 for
//! two values; SQL knows one zero. [`comparable`] is of an interval its nanoseconds, and of a float the
//! float without the sign of a zero. It stands around what is compared and what is ordered by.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::functions::core::nullif::NullIfFunc;
use datafusion::logical_expr::expr::{Between, Case, InList, Sort, WindowFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit, when,
};

use crate::floats::one_zero;
use crate::plans::map_expressions;
use crate::strict;

const DAY_NS: i128 = 86_400_000_000_000;
const MONTH_DAYS: i128 = 30;

/// Makes what is compared comparable.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    // Expressions of statements that change tables are of those.
    if matches!(plan, LogicalPlan::Dml(_)) {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    if let LogicalPlan::Sort(mut sort) = plan {
        let mut changed = false;
        for expr in &mut sort.expr {
            changed |= make_comparable(&mut expr.expr, &schema, is_interval)?;
        }
        let sort = LogicalPlan::Sort(sort);
        return Ok(if changed { Transformed::yes(sort) } else { Transformed::no(sort) });
    }
    map_expressions(plan, |expr| expr.transform_up(|part| compared(part, &schema)))
}

/// An operator with comparable operands.
fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut expr = match searched(&expr, schema)? {
        Some(searched) => return Ok(Transformed::yes(searched)),
        None => expr,
    };
    let changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            all(vec![left, right], schema)?
        }
        Expr::Between(Between { expr, low, high, .. }) => all(vec![expr, low, high], schema)?,
        Expr::InList(list) if list.expr.get_type(schema)?.is_floating() => in_floats(list, schema)?,
        Expr::InList(InList { expr, list, .. }) => {
            all(list.iter_mut().chain([expr.as_mut()]).collect(), schema)?
        }
        Expr::WindowFunction(window) => in_window(window, schema)?,
        _ => false,
    };
    Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// `CASE x WHEN y ..` and `nullif(x, y)` of floats and intervals, by `x = y`: the planner compares bits there.
fn searched(expr: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let is_meant = |expr: &Expr| -> Result<bool> {
        let data_type = expr.get_type(schema)?;
        Ok(data_type.is_floating() || is_interval(&data_type))
    };
    let equal = |x: &Expr, y: &Expr| -> Result<Expr> {
        Ok(compared(x.clone().eq(y.clone()), schema)?.data)
    };
    Ok(match expr {
        Expr::Case(Case { expr: Some(x), when_then_expr, else_expr }) if is_meant(x)? => {
            let branches =
                when_then_expr.iter().map(|(y, then)| Ok((Box::new(equal(x, y)?), then.clone())));
            let when_then_expr = branches.collect::<Result<_>>()?;
            Some(Expr::Case(Case { expr: None, when_then_expr, else_expr: else_expr.clone() }))
        }
        Expr::ScalarFunction(call) if call.func.inner().is::<NullIfFunc>() => {
            let [x, y] = call.args.as_slice() else { return Ok(None) };
            if !is_meant(x)? {
                return Ok(None);
            }
            let null = ScalarValue::try_from(x.get_type(schema)?)?;
            Some(when(equal(x, y)?, lit(null)).otherwise(x.clone())?)
        }
        _ => None,
    })
}

/// Values of a list that are bits to the planner, which it hashes where there are many: zeros, and what is no constant.
const HASHED_MIN: usize = 4;

/// Makes `x IN (..)` of floats know one zero.
fn in_floats(list: &mut InList, schema: &DFSchema) -> Result<bool> {
    let is_known = |y: &Expr| match y {
        Expr::Literal(ScalarValue::Float64(Some(y)), _) => *y != 0.0,
        Expr::Literal(ScalarValue::Float32(Some(y)), _) => *y != 0.0,
        Expr::Literal(value, _) => value.is_null(),
        _ => false,
    };
    if list.list.len() < HASHED_MIN || list.list.iter().all(is_known) {
        return Ok(false);
    }
    let mut changed = false;
    for expr in list.list.iter_mut().chain([list.expr.as_mut()]) {
        changed |= make_comparable(expr, schema, DataType::is_floating)?;
    }
    Ok(changed)
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Makes operands comparable if all are intervals.
fn all(operands: Vec<&mut Expr>, schema: &DFSchema) -> Result<bool> {
    for operand in &operands {
        if !is_interval(&operand.get_type(schema)?) {
            return Ok(false);
        }
    }
    for operand in operands {
        make_comparable(operand, schema, is_interval)?;
    }
    Ok(true)
}

fn in_window(window: &mut WindowFunction, schema: &DFSchema) -> Result<bool> {
    let params = &mut window.params;
    let order = params.order_by.iter_mut().map(|Sort { expr, .. }| expr);
    let mut changed = false;
    for expr in params.partition_by.iter_mut().chain(order) {
        changed |= make_comparable(expr, schema, |t| is_interval(t) || t.is_floating())?;
    }
    Ok(changed)
}

pub(super) fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

/// Puts [`comparable`] around an expression of some types.
fn make_comparable(
    expr: &mut Expr,
    schema: &DFSchema,
    is_meant: impl Fn(&DataType) -> bool,
) -> Result<bool> {
    let is_done = matches!(expr, Expr::ScalarFunction(f) if f.func.inner().is::<Comparable>());
    if is_done || !is_meant(&expr.get_type(schema)?) {
        return Ok(false);
    }
    *expr = comparable(std::mem::take(expr));
    Ok(true)
}

/// The value of an interval or a float by which SQL compares it.
pub(super) fn comparable(expr: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Comparable { signature }))
    });
    FUNCTION.call(vec![expr])
}

/// Of an interval its length, of a float the float with one zero.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Comparable {
    signature: Signature,
}

impl ScalarUDFImpl for Comparable {
    fn name(&self) -> &str {
        "comparable"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(match arguments {
            [DataType::Interval(_)] => DataType::Decimal128(38, 0),
            [other] => other.clone(),
            _ => DataType::Null,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        strict::return_field(self, &args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let values = match arrays.first() {
            Some(array) if is_interval(array.data_type()) => lengths(array)?,
            Some(array) => one_zero(array),
            None => return internal_err!("comparable of nothing"),
        };
        Ok(match &args.args[..] {
            [ColumnarValue::Scalar(_)] => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)
            }
            _ => ColumnarValue::Array(values),
        })
    }
}

/// The lengths of intervals in nanoseconds.
fn lengths(intervals: &ArrayRef) -> Result<ArrayRef> {
    let intervals = cast(intervals, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let length = |part: IntervalMonthDayNano| {
        let days = i128::from(part.months) * MONTH_DAYS + i128::from(part.days);
        days * DAY_NS + i128::from(part.nanoseconds)
    };
    let lengths: Decimal128Array =
        intervals.as_primitive::<IntervalMonthDayNanoType>().unary(length);
    Ok(Arc::new(lengths.with_precision_and_scale(38, 0)?))
}
