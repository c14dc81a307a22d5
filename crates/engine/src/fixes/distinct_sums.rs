//! Sums of decimals beside a DISTINCT.
//!
//! ```sql
//! SELECT sum(x) > max(x), count(DISTINCT y) FROM t  -- x: DECIMAL(20, 4)
//! ```
//!
//! - DataFusion: The comparison fails: `single_distinct_aggregation_to_group_by` makes a sum of sums, of ten digits more than
//!   the plan above was made for; right is an answer.
//! - Upstream: apache/datafusion#17699.
//! - This can go when its canary finds the fault mended.
//!
//! `single_distinct_aggregation_to_group_by` makes a sum of sums out of such a sum: it has ten digits
//! more than the plan above was made for, and comparing them fails. Such aggregates go without the rule.

use datafusion::logical_expr::{Expr, LogicalPlan};

/// Whether a plan's own node has a sum of decimals over all rows: a sum of such sums has more digits.
pub fn are_of_decimals(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(aggregate) = plan else { return false };
    let has_sum = aggregate.aggr_expr.iter().any(|expr| {
        matches!(expr, Expr::AggregateFunction(call) if !call.params.distinct && call.func.name() == "sum")
    });
    has_sum && aggregate.schema.fields().iter().any(|field| field.data_type().is_decimal())
}
