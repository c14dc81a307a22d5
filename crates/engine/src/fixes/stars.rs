//! `SELECT *` of all that FROM has is no list of columns.
//!
//! ```sql
//! SELECT * FROM t  -- of thousands of columns
//! ```
//!
//! - DataFusion: Planned in the square of their number: `*` is spelled out, and each name compared with each other; right is
//!   a time that grows as they do.
//! - Upstream: apache/datafusion#7698, apache/datafusion#5637.
//! - This can go when its canary finds the fault mended.
//!
//! The planner spells `*` out and compares each column of a list with each other, again whenever it makes the list anew: the
//! time that takes is the square of their number, minutes for twenty thousand. But where `*` stands alone, a list says nothing:
//! the rows of FROM are the answer. So the planner is given [`Everything`] in its place, and from the plan that it makes
//! the list is taken away. That is done to the query of a statement, and to the subqueries in FROM.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, TableReference, internal_err};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{
    ColumnarValue, Expr as PlannedExpr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableAlias,
    TableFactor, VisitorMut, WildcardAdditionalOptions,
};

use super::long_lists;
use super::whole_rows::{NAME, call, everything, keeps_rows};
use crate::sql::own;
use crate::sql::walk::{self, Flow, ON, Stop};

/// What a subquery is called while the planner makes its plan.
const SUBQUERY: &str = "rows of every column";

/// Puts [`Everything`] in the place of `*` where that is all that a query selects.
///
/// # Errors
/// None.
pub fn leave_out(statement: &mut DFStatement) -> Result<()> {
    // The folders of a COPY are named by columns, which the planner looks for.
    match statement {
        DFStatement::CopyTo(copy) if !copy.partitioned_by.is_empty() => Ok(()),
        other => own::change(other, |inner| {
            in_statement(inner);
            Ok(())
        }),
    }
}

fn in_statement(statement: &mut Statement) {
    match statement {
        Statement::Query(query) => long_lists::put_apart(query),
        Statement::CreateTable(table) if table.columns.is_empty() => {
            table.query.iter_mut().for_each(|query| long_lists::put_apart(query));
        }
        _ => {}
    }
    walk::change_all(statement, &mut Subqueries);
    match statement {
        Statement::Query(query) => in_query(query),
        Statement::CreateTable(table) if table.columns.is_empty() => {
            table.query.iter_mut().for_each(|query| in_query(query));
        }
        Statement::CreateView(view) if view.columns.is_empty() => in_query(&mut view.query),
        _ => {}
    }
}

struct Subqueries;

impl VisitorMut for Subqueries {
    type Break = Stop;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> Flow {
        if let TableFactor::Derived { lateral: false, subquery, sample: None, .. } = table {
            in_query(subquery);
        }
        ON
    }
}

fn in_query(query: &mut Query) {
    let by_columns = query.order_by.as_ref().is_none_or(|order| match &order.kind {
        // A number would be the place of a column.
        OrderByKind::Expressions(by) => by.iter().all(|by| is_column(&by.expr)),
        OrderByKind::All(_) => false,
    });
    if let SetExpr::Select(select) = query.body.as_mut()
        && by_columns
        && query.pipe_operators.is_empty()
        && is_everything(select)
    {
        select.projection = vec![everything()];
    }
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// Whether a SELECT is `*` of a FROM and whatever keeps its columns.
fn is_everything(select: &Select) -> bool {
    let [SelectItem::Wildcard(options)] = select.projection.as_slice() else { return false };
    let plain = WildcardAdditionalOptions {
        wildcard_token: options.wildcard_token.clone(),
        ..WildcardAdditionalOptions::default()
    };
    *options == plain && keeps_rows(select)
}

/// Takes lists of [`Everything`] out of a plan.
///
/// # Errors
/// None that the plan itself does not have.
pub fn restore(plan: LogicalPlan) -> Result<LogicalPlan> {
    let without = plan.transform_down(|node| match node {
        LogicalPlan::Projection(list) if list.expr.iter().any(is_star) => {
            let mut rows = Arc::unwrap_or_clone(list.input);
            while let LogicalPlan::Projection(list) = &rows
                && list.expr.iter().any(is_star)
            {
                rows = LogicalPlan::clone(&list.input);
            }
            Ok(Transformed::new(rows, true, TreeNodeRecursion::Continue))
        }
        node => Ok(Transformed::no(node)),
    });
    without.map(|without| without.data)
}

/// Whether an expression is [`Everything`], or what the planner made of it: below an ORDER BY of more it is computed.
fn is_star(expr: &PlannedExpr) -> bool {
    match expr {
        PlannedExpr::Alias(alias) => is_star(&alias.expr),
        PlannedExpr::ScalarFunction(call) => call.func.name() == NAME,
        PlannedExpr::Column(column) => column.name.strip_suffix("()") == Some(NAME),
        _ => false,
    }
}

/// Plans subqueries that select [`Everything`].
#[derive(Debug)]
pub struct OfSubqueries;

impl RelationPlanner for OfSubqueries {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::Derived { lateral, subquery, alias, sample } = relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let planned = alias.as_ref().is_some_and(|alias| alias.name.value == SUBQUERY);
        let mut subquery = subquery;
        let list = if lateral { None } else { long_lists::take(&mut subquery, context) };
        if planned || !selects_everything(&subquery) {
            let relation = TableFactor::Derived { lateral, subquery, alias, sample };
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let called = TableAlias {
            explicit: true,
            name: Ident::with_quote('"', SUBQUERY),
            columns: Vec::new(),
            at: None,
        };
        let renamed = Some(called);
        let rows =
            TableFactor::Derived { lateral, subquery, alias: renamed, sample: sample.clone() };
        match context.plan(rows)? {
            LogicalPlan::SubqueryAlias(of) if of.alias == TableReference::bare(SUBQUERY) => {
                let rows = restore(Arc::unwrap_or_clone(of.input))?;
                let rows = match list {
                    Some(list) => match list.planned(rows, context)? {
                        Ok(planned) => planned,
                        Err(subquery) => {
                            let relation =
                                TableFactor::Derived { lateral, subquery, alias, sample };
                            return Ok(RelationPlanning::Original(Box::new(relation)));
                        }
                    },
                    None => rows,
                };
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(rows, alias))))
            }
            _ => internal_err!("a subquery of every column is planned under another name"),
        }
    }
}

fn selects_everything(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let [SelectItem::UnnamedExpr(Expr::Function(function))] = select.projection.as_slice() else {
        return false;
    };
    *function == call()
}

/// The function in the place of `*`, which no plan computes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Everything {
    signature: Signature,
}

impl Everything {
    /// As sessions register it.
    pub fn function() -> ScalarUDF {
        ScalarUDF::from(Self { signature: Signature::nullary(Volatility::Volatile) })
    }
}

impl ScalarUDFImpl for Everything {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Null)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{NAME} of no rows")
    }
}
