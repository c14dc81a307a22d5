//! One NaN in what the planner's operators compute.
//!
//! ```sql
//! SELECT CAST('inf' AS DOUBLE) - x = CAST('nan' AS DOUBLE) FROM t  -- x: inf
//! ```
//!
//! - DataFusion: False, and less than 1: NaNs are compared by their bits, and hardware sets the sign of this one; right is
//!   true, since SQL has one NaN, the greatest value.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::floats::one_nan;
use crate::plans::map_expressions;
use crate::strict;

/// Puts [`OneNan`] around what may be a NaN of another pattern.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    // Expressions of statements that change tables are of those.
    if matches!(plan, LogicalPlan::Dml(_)) {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    map_expressions(plan, |expr| around(expr, false, &schema))
}

/// An expression with its outermost computations of floats in [`OneNan`]: what is computed within those has it, too.
fn around(expr: Expr, is_within: bool, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if matches!(&expr, Expr::ScalarFunction(call) if call.func.inner().is::<OneNan>()) {
        return Ok(Transformed::no(expr));
    }
    let computes = is_computation(&expr, schema)
        && expr.get_type(schema).is_ok_and(|data_type| data_type.is_floating());
    let rewritten = expr.map_children(|child| around(child, computes, schema))?;
    if !computes || is_within {
        return Ok(rewritten);
    }
    rewritten.transform_data(|expr| Ok(Transformed::yes(FUNCTION.call(vec![expr]))))
}

fn is_computation(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::BinaryExpr(_) | Expr::Negative(_) | Expr::ScalarFunction(_) => true,
        // A text may say '-nan'.
        Expr::Cast(Cast { expr: of, .. }) | Expr::TryCast(TryCast { expr: of, .. }) => {
            of.get_type(schema).is_ok_and(|data_type| data_type.is_string())
        }
        _ => false,
    }
}

static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::from(OneNan { signature: Signature::any(1, Volatility::Immutable) }))
});

/// A value with one pattern of bits for NaN; nothing else to whoever has one NaN, as pipelines have. It is shown as its
/// argument.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct OneNan {
    signature: Signature,
}

impl ScalarUDFImpl for OneNan {
    fn name(&self) -> &str {
        "one_nan"
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        args.first().map_or_else(|| internal_err!("one_nan of nothing"), |arg| Ok(arg.to_string()))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let name = |arg: &Expr| Ok(arg.schema_name().to_string());
        args.first().map_or_else(|| internal_err!("one_nan of nothing"), name)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value] => Ok(value.clone()),
            _ => internal_err!("one_nan of {} values", arguments.len()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        strict::return_field(self, &args)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(one_nan(values))),
            [ColumnarValue::Scalar(value)] => {
                let value = ScalarValue::try_from_array(&one_nan(&value.to_array()?), 0)?;
                Ok(ColumnarValue::Scalar(value))
            }
            _ => internal_err!("one_nan of {} values", args.args.len()),
        }
    }
}
