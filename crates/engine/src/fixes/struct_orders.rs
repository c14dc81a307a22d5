//! Windows that are ordered by structs: by their fields, one after the other, as rows are compared. The planner has no frames of
//! such an order.
//!
//! ```sql
//! SELECT rank() OVER (ORDER BY named_struct('a', x)) FROM t
//! ```
//!
//! - DataFusion: An internal error: frames know no structs; right is a rank.
//! - Upstream: apache/datafusion#24915.
//! - This can go when its canary finds the fault mended.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Expr, ExprSchemable};

/// A window by fields in the place of one by structs.
pub fn expanded(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::WindowFunction(mut window) = part else { return Ok(Transformed::no(part)) };
    let by = &window.params.order_by;
    let is_struct = |sort: &Sort| matches!(sort.expr.get_type(schema), Ok(DataType::Struct(_)));
    if !by.iter().any(is_struct) {
        return Ok(Transformed::no(Expr::WindowFunction(window)));
    }
    let mut fields = Vec::new();
    for sort in std::mem::take(&mut window.params.order_by) {
        add_fields(sort, schema, &mut fields)?;
    }
    window.params.order_by = fields;
    Ok(Transformed::yes(Expr::WindowFunction(window)))
}

/// A struct that is NULL stands where its order says; NULLs in it are greater than all values.
fn add_fields(sort: Sort, schema: &DFSchema, found: &mut Vec<Sort>) -> Result<()> {
    let DataType::Struct(fields) = sort.expr.get_type(schema)? else {
        found.push(sort);
        return Ok(());
    };
    if sort.expr.nullable(schema)? {
        found.push(sort.expr.clone().is_null().sort(!sort.nulls_first, false));
    }
    for field in &fields {
        let value = get_field(sort.expr.clone(), field.name().as_str());
        add_fields(value.sort(sort.asc, !sort.asc), schema, found)?;
    }
    Ok(())
}
