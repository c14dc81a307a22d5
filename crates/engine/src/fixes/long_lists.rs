//! `SELECT c0, c1, ..` of very many columns.
//!
//! ```sql
//! SELECT c0, c1, c2, .. FROM t  -- of thousands of columns
//! ```
//!
//! - DataFusion: Planned in the square of their number, minutes for twenty thousand: each output's name is compared with each
//!   other's; right is a time that grows as they do.
//! - Upstream: apache/datafusion#7698, apache/datafusion#5637.
//! - This can go when its canary finds the fault mended.
//!
//! The planner compares the name of each output with that of each other, which it spells anew each time: the time that takes is
//! the square of their number, minutes for twenty thousand. So a query of so many outputs becomes a subquery of itself, and
//! its list is planned here: each output beside nothing but the columns that it names.
//!
//! ```text
//! SELECT c0, c1 + 1 FROM t WHERE c2 ORDER BY c0    SELECT * FROM (SELECT c0, c1 + 1 FROM t WHERE c2) AS q ORDER BY c0
//! ```
//!
//! Aggregates, and what they are grouped by, are found in the same way by [`Groups`]. What is not known to mean the same so is
//! left to the planner: windows, subqueries and equal names.

use std::collections::HashSet;
use std::mem;

use datafusion::common::{Column, DFSchema, Result, internal_err, unqualified_field_not_found};
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Expr as PlannedExpr, ExprSchemable, LogicalPlan, Projection};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, Ident, LimitClause, ObjectNamePart, OrderByKind, Query, Select,
    SelectItem, SetExpr, Visitor,
};

use super::long_groups::Groups;
use super::parts::{Columns, ITEMS_MIN};
use super::whole_rows::{everything, is_list_of_rows, keeps_rows, keys};
use crate::sql::nodes::plain_name;
use crate::sql::own::put_into_from;
use crate::sql::walk::{self, Flow, ON, Stop};

/// What the subquery is called.
const NAME: &str = "rows of the list";

/// Makes a query of very many outputs a subquery of one that selects all of them.
pub fn put_apart(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    if !is_long(select) || query.limit_clause.as_ref().is_some_and(has_keys) {
        return;
    }
    let Some(names) = names(&select.projection) else { return };
    let is_output = |expr: &Expr| match expr {
        Expr::Identifier(name) => names.contains(&plain_name(name)),
        _ => false,
    };
    let by_outputs = query.order_by.as_ref().is_none_or(|order| match &order.kind {
        OrderByKind::Expressions(by) => by.iter().all(|by| is_output(&by.expr)),
        OrderByKind::All(_) => false,
    });
    if !by_outputs || !query.pipe_operators.is_empty() || !query.locks.is_empty() {
        return;
    }
    let (order, limit) = (query.order_by.take(), query.limit_clause.take());
    put_into_from(query, NAME);
    (query.order_by, query.limit_clause) = (order, limit);
}

fn has_keys(limit: &LimitClause) -> bool {
    matches!(limit, LimitClause::LimitOffset { limit_by, .. } if !limit_by.is_empty())
}

/// The names of outputs, as far as they have some; `None` if two are the same.
fn names(items: &[SelectItem]) -> Option<HashSet<String>> {
    let mut names = HashSet::with_capacity(items.len());
    for item in items {
        let name = match item {
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => plain_name(name),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => plain_name(parts.last()?),
            SelectItem::UnnamedExpr(expr) => expr.to_string(),
            SelectItem::ExprWithAlias { alias, .. } => plain_name(alias),
            _ => return None,
        };
        if !names.insert(name) {
            return None;
        }
    }
    Some(names)
}

/// Whether a SELECT is very many outputs of the rows of FROM, or of groups of them, each by itself.
pub fn is_long(select: &Select) -> bool {
    if select.projection.len() < ITEMS_MIN || !is_list_of_rows(select) {
        return false;
    }
    let is_key = |key: &Expr| match key {
        Expr::CompoundIdentifier(parts) => parts.len() == 2,
        other => matches!(other, Expr::Identifier(_)),
    };
    let by_columns = keys(select).is_some_and(|keys| keys.iter().all(is_key));
    let expr = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            let mut more = More(false);
            walk::look_at_all(expr, &mut more);
            !more.0
        }
        _ => false,
    };
    by_columns && select.projection.iter().all(expr)
}

/// Whether an expression is more than its row's columns make it.
struct More(bool);

impl Visitor for More {
    type Break = Stop;

    fn pre_visit_query(&mut self, _: &Query) -> Flow {
        self.0 = true;
        ON
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        self.0 |= match expr {
            Expr::Function(call) => call.over.is_some() || call.filter.is_some(),
            Expr::Lambda(_) | Expr::CompoundFieldAccess { .. } => true,
            Expr::CompoundIdentifier(parts) => parts.len() != 2,
            _ => false,
        };
        ON
    }
}

/// The list of a subquery, without its rows.
pub struct List {
    items: Vec<SelectItem>,
    keys: Vec<Expr>,
    /// The subquery as it was.
    whole: Box<Query>,
}

/// The list of a subquery, if its SELECT is a long one that can be planned here; `*` is then in its place.
pub fn take(query: &mut Query, context: &dyn RelationPlannerContext) -> Option<List> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let is_plain = query.order_by.is_none() && query.pipe_operators.is_empty();
    if !is_plain || !is_long(select) || names(&select.projection).is_none() {
        return None;
    }
    // A limit is of groups, not of their rows.
    let is_limited = query.limit_clause.is_some() || query.fetch.is_some();
    let provider = context.context_provider();
    let mut calls = Calls::default();
    select.projection.iter().for_each(|item| walk::look_at_all(item, &mut calls));
    let of_groups = |name: &String| provider.get_aggregate_meta(name).is_some();
    let is_known = |name: &String| provider.get_function_meta(name).is_some() || of_groups(name);
    let groups = !keeps_rows(select) || calls.0.iter().any(of_groups);
    if is_limited && groups || !calls.0.iter().all(is_known) {
        return None;
    }
    let whole = Box::new(query.clone());
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let keys = mem::replace(&mut select.group_by, GroupByExpr::Expressions(vec![], vec![]));
    let GroupByExpr::Expressions(keys, _) = keys else { return None };
    let everything = vec![everything()];
    let items = mem::replace(&mut select.projection, everything);
    Some(List { items, keys, whole })
}

/// The functions that are called.
#[derive(Default)]
struct Calls(HashSet<String>);

impl Visitor for Calls {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        if let Expr::Function(Function { name, .. }) = expr {
            let name = match name.0.as_slice() {
                [ObjectNamePart::Identifier(name)] => plain_name(name),
                // No function has such a name.
                _ => String::new(),
            };
            self.0.insert(name);
        }
        ON
    }
}

impl List {
    /// The list over the rows of a plan; the subquery as it was, if the planner has to say what it means.
    ///
    /// # Errors
    /// What the planner says of an output.
    pub fn planned(
        self,
        rows: LogicalPlan,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<std::result::Result<LogicalPlan, Box<Query>>> {
        let Self { items, keys, whole } = self;
        Ok(planned(rows, items, keys, context)?.ok_or(whole))
    }
}

fn planned(
    rows: LogicalPlan,
    items: Vec<SelectItem>,
    keys: Vec<Expr>,
    context: &mut dyn RelationPlannerContext,
) -> Result<Option<LogicalPlan>> {
    let schema = rows.schema().clone();
    let columns = Columns::of(&schema);
    let mut groups = Groups::default();
    for key in keys {
        // It may be the name of an output.
        let Ok(narrow) = named_by(&key, &schema, &columns, context) else { return Ok(None) };
        let key = context.sql_to_expr(key, &narrow)?;
        if !matches!(key, PlannedExpr::Column(_)) {
            return Ok(None);
        }
        groups.add_key(key, &narrow)?;
    }
    let mut outputs = Vec::with_capacity(items.len());
    for item in items {
        let (expr, alias) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
            other => return internal_err!("an output that is no expression: {other}"),
        };
        let narrow = named_by(&expr, &schema, &columns, context)?;
        let expr = match (&expr, narrow.fields().len()) {
            (Expr::Identifier(_), 1) => {
                PlannedExpr::Column(Column::from(narrow.qualified_field(0)))
            }
            _ => context.sql_to_expr(expr, &narrow)?,
        };
        groups.add_aggregates(&expr, &narrow)?;
        outputs.push((expr, alias.map(|alias| context.normalize_ident(alias)), narrow));
    }
    let (mut exprs, mut fields) = (Vec::new(), Vec::new());
    for (mut expr, alias, mut narrow) in outputs {
        if !groups.is_empty() {
            let Some(above) = groups.above(expr)? else { return Ok(None) };
            (expr, narrow) = above;
        }
        let expr = match alias {
            Some(alias) => expr.alias(alias),
            None => expr,
        };
        fields.push(expr.to_field(&narrow)?);
        exprs.push(expr);
    }
    let rows = match groups.is_empty() {
        true => rows,
        false => match groups.of_rows(rows)? {
            Some(grouped) => grouped,
            None => return Ok(None),
        },
    };
    let listed = DFSchema::new_with_metadata(fields, schema.metadata().clone())?;
    let list = Projection::try_new_with_schema(exprs, rows.into(), listed.into())?;
    Ok(Some(LogicalPlan::Projection(list)))
}

/// The columns that may be meant by the names in an expression.
fn named_by(
    expr: &Expr,
    schema: &DFSchema,
    columns: &Columns<'_>,
    context: &dyn RelationPlannerContext,
) -> Result<DFSchema> {
    let mut names = Names::default();
    walk::look_at_all(expr, &mut names);
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for parts in names.0 {
        // `a.b` is a column of a table, or a field of a column.
        let names = parts.into_iter().map(|name| context.normalize_ident(name));
        let names: Vec<String> = names.collect();
        let known: Vec<&String> =
            names.iter().filter(|name| !columns.named(name).is_empty()).collect();
        if let (true, Some(missing)) = (known.is_empty(), names.last()) {
            return Err(unqualified_field_not_found(missing, schema));
        }
        for name in known {
            let own = columns.named(name).iter().copied();
            found.extend(own.filter(|place| seen.insert(*place)));
        }
    }
    columns.at(found)
}

/// The names of columns.
#[derive(Default)]
struct Names(Vec<Vec<Ident>>);

impl Visitor for Names {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Identifier(name) => self.0.push(vec![name.clone()]),
            Expr::CompoundIdentifier(parts) => self.0.push(parts.clone()),
            _ => {}
        }
        ON
    }
}
