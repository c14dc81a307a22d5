//! Which nodes above a merge go with it: those that Ballista sends as they are.
//!
//! Calls of functions stay: an executor knows functions by their names, and those of a session may be others. So does arithmetic,
//! which fails here where it overflows.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

/// Whether a node runs on the cluster if its child does.
pub fn is_lifted(node: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        return sort.expr().iter().all(|key| is_plain(&key.expr));
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        return projection.expr().iter().all(|column| column.expr.is::<Column>());
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        // A column is compared with constants of its type, and is sent as another one.
        return is_plain(filter.predicate()) && !has_dictionaries(&filter.input().schema());
    }
    node.is::<CoalescePartitionsExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<LocalLimitExec>()
        || node.is::<CooperativeExec>()
}

fn has_dictionaries(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Dictionary(..)))
}

/// Whether an expression is of columns, constants and comparisons alone.
fn is_plain(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let is_comparison = |operator: &Operator| {
        use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
        matches!(
            operator,
            Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom | And | Or
        )
    };
    let mut all = true;
    let walked = expr.apply(|part| {
        all &= match part.downcast_ref::<BinaryExpr>() {
            Some(binary) => is_comparison(binary.op()),
            None => {
                part.is::<Column>()
                    || part.is::<Literal>()
                    || part.is::<NotExpr>()
                    || part.is::<IsNullExpr>()
                    || part.is::<IsNotNullExpr>()
            }
        };
        Ok(if all { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    all && walked.is_ok()
}
