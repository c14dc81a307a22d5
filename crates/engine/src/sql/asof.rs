//! `a ASOF JOIN b ON a.k = b.k AND a.t >= b.t`: with each row of `a` the latest row of `b` until then.
//!
//! ```text
//! a ASOF LEFT JOIN b ON ..    the parser reads  a ASOF JOIN b MATCH_CONDITION ('left') ON ..
//! ```
//!
//! Which row is the latest is found in one order of the rows of both sides, never by pairs:
//!
//! ```text
//! rows of a: k, t, NULL ──┐
//!                         ├─► max(u) OVER (PARTITION BY k ORDER BY t) ─► rows of a, with u ──┐
//! rows of b: k, t, u = t ─┘                                                                  ├─► k, u = t
//! rows of b, one of each k, t ───────────────────────────────────────────────────────────────┘
//! ```
//!
//! All of that are the planner's own operators, which spill. Of several rows of `b` at the same time one is taken.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, JoinType, Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprFunctionExt, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator,
    WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, cast, lit,
};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Join, JoinConstraint, JoinOperator, Select, Statement, TableFactor,
    TableWithJoins, Value, VisitorMut,
};

use super::walk::{self, Flow, ON, Stop};

/// What stands for the condition of a join that is written as DuckDB has it.
const INNER: &str = "inner";
const LEFT: &str = "left";

/// What an ASOF JOIN that is written as DuckDB has it gets behind its second table, for the parser.
pub fn mark(is_left: bool) -> String {
    format!("MATCH_CONDITION ('{}') ", if is_left { LEFT } else { INNER })
}

/// Whether a join is one that [`mark`] was written into: its USING ends with the time.
pub fn is_marked(join: &JoinOperator) -> bool {
    matches!(join, JoinOperator::AsOf { match_condition, .. } if mark_of(match_condition).is_some())
}

fn mark_of(condition: &SqlExpr) -> Option<&str> {
    match condition {
        SqlExpr::Value(value) => match &value.value {
            Value::SingleQuotedString(mark) => Some(mark),
            _ => None,
        },
        _ => None,
    }
}

/// Makes each ASOF JOIN, with what stands before it, one table, which [`OfAsOfJoins`] plans.
pub fn fold(statement: &mut Statement) {
    walk::change_all(statement, &mut Fold);
}

struct Fold;

impl VisitorMut for Fold {
    type Break = Stop;

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        select.from.iter_mut().for_each(fold_chain);
        ON
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> Flow {
        // One that is folded has the join alone.
        if let TableFactor::NestedJoin { table_with_joins, .. } = table
            && table_with_joins.joins.len() > 1
        {
            fold_chain(table_with_joins);
        }
        ON
    }
}

fn fold_chain(chain: &mut TableWithJoins) {
    let is_asof = |join: &Join| matches!(join.join_operator, JoinOperator::AsOf { .. });
    while let Some(place) = chain.joins.iter().position(is_asof) {
        let behind = chain.joins.split_off(place + 1);
        let Some(join) = chain.joins.pop() else { return };
        let before = std::mem::replace(chain, TableWithJoins { joins: behind, ..chain.clone() });
        let relation = match before.joins.is_empty() {
            true => before.relation,
            false => nested(before),
        };
        chain.relation = nested(TableWithJoins { relation, joins: vec![join] });
    }
}

fn nested(chain: TableWithJoins) -> TableFactor {
    TableFactor::NestedJoin { table_with_joins: Box::new(chain), alias: None }
}

/// Plans ASOF JOINs that are tables of their own.
#[derive(Debug)]
pub struct OfAsOfJoins;

impl RelationPlanner for OfAsOfJoins {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::NestedJoin { table_with_joins, alias } = relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let TableWithJoins { relation, mut joins } = *table_with_joins;
        let (1, Some(Join { join_operator: JoinOperator::AsOf { .. }, .. })) =
            (joins.len(), joins.first())
        else {
            let table_with_joins = Box::new(TableWithJoins { relation, joins });
            let relation = TableFactor::NestedJoin { table_with_joins, alias };
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(join) = joins.pop() else { return internal_err!("a join that was just there") };
        let (left, right) = (context.plan(relation)?, context.plan(join.relation)?);
        let JoinOperator::AsOf { match_condition, constraint } = join.join_operator else {
            return internal_err!("an ASOF JOIN that was just there");
        };
        let (is_left, conditions) = conditions(match_condition, constraint)?;
        let schema = left.schema().join(right.schema())?;
        let mut parts = Vec::new();
        for condition in conditions {
            let condition = context.sql_to_expr(condition, &schema)?;
            parts.extend(split_conjunction_owned(condition));
        }
        let keys = Keys::of(parts, left.schema(), right.schema())?;
        let sides = Sides { left, right, keys, is_left };
        let plan = sides.joined(context)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

/// Whether rows without another stay, and what a join is about.
fn conditions(
    matched: SqlExpr,
    constraint: JoinConstraint,
) -> Result<(bool, impl Iterator<Item = SqlExpr>)> {
    let mark = mark_of(&matched).map(str::to_string);
    let on = match constraint {
        JoinConstraint::On(on) => Some(on),
        JoinConstraint::None if mark.is_none() => None,
        _ => {
            return plan_err!(
                "an ASOF JOIN has no condition that can be told\nhint: write ON a.k = b.k AND a.t >= b.t"
            );
        }
    };
    Ok(match mark {
        Some(mark) => (mark == LEFT, on.into_iter().chain(None)),
        // That is Snowflake's: rows without another stay.
        None => (true, on.into_iter().chain(Some(matched))),
    })
}

/// What two sides are joined by; the left side's expression first.
struct Keys {
    equal: Vec<(Expr, Expr)>,
    time: (Expr, Expr),
    /// How the left side's time is to the right one's.
    op: Operator,
}

impl Keys {
    fn of(parts: Vec<Expr>, left: &DFSchema, right: &DFSchema) -> Result<Self> {
        const HINT: &str = "hint: write ON a.k = b.k AND a.t >= b.t, and other conditions into WHERE, or into a subquery \
                            of either side";
        let (mut equal, mut times) = (Vec::new(), Vec::new());
        for part in parts {
            let Some((op, one, other)) = compared(&part, left, right) else {
                return plan_err!(
                    "ASOF JOIN compares columns of one side with columns of the other, by = and once by >=, >, <= or <: \
                     not {part}\n{HINT}"
                );
            };
            match op {
                Operator::Eq => equal.push((one, other)),
                op => times.push((op, (one, other))),
            }
        }
        match (times.pop(), times.is_empty()) {
            (Some((op, time)), true) => Ok(Self { equal, time, op }),
            (None, _) => plan_err!("ASOF JOIN has no >=, >, <= or < between its sides\n{HINT}"),
            _ => plan_err!("ASOF JOIN has several of >=, >, <= and < between its sides\n{HINT}"),
        }
    }
}

/// A comparison of both sides, the left one's first, in the type in which they meet.
fn compared(part: &Expr, left: &DFSchema, right: &DFSchema) -> Option<(Operator, Expr, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left: one, op, right: other }) = part else { return None };
    let is_meant =
        matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
    let is_of = |expr: &Expr, schema: &DFSchema| {
        let columns = expr.column_refs();
        !columns.is_empty() && columns.iter().all(|column| schema.has_column(column))
    };
    let (op, one, other) = if !is_meant {
        return None;
    } else if is_of(one, left) && is_of(other, right) {
        (*op, one, other)
    } else if is_of(one, right) && is_of(other, left) {
        (op.swap()?, other, one)
    } else {
        return None;
    };
    let (own, others) = (one.get_type(left).ok()?, other.get_type(right).ok()?);
    let met = comparison_coercion(&own, &others)?;
    let in_type = |expr: &Expr, own| {
        if own == met { expr.clone() } else { cast(expr.clone(), met.clone()) }
    };
    Some((op, in_type(one, own), in_type(other, others)))
}

struct Sides {
    left: LogicalPlan,
    right: LogicalPlan,
    keys: Keys,
    is_left: bool,
}

// Columns of the plan's parts. No table has such a name.
const TIME: &str = "asof time";
const OTHER: &str = "asof other time";
const SIDE: &str = "asof side";

fn key(nth: usize) -> String {
    format!("asof key {nth}")
}

/// The columns of a side, under names of their own.
fn hidden(schema: &DFSchema, side: &str) -> Vec<(Expr, String)> {
    let columns = schema.columns().into_iter().enumerate();
    columns.map(|(nth, column)| (Expr::Column(column), format!("asof {side} {nth}"))).collect()
}

fn named(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

impl Sides {
    fn joined(self, context: &dyn RelationPlannerContext) -> Result<LogicalPlan> {
        let lefts = hidden(self.left.schema(), LEFT);
        let rights = hidden(self.right.schema(), "right");
        let matched = self.matched(&lefts, context)?;
        let others = self.others(&rights, context)?;
        let equal = (0..self.keys.equal.len()).map(|nth| {
            let other = format!("asof other key {nth}");
            named(&key(nth)).eq(named(&other))
        });
        let conditions = equal.chain([named(OTHER).eq(named("asof time of other"))]);
        let join = if self.is_left { JoinType::Left } else { JoinType::Inner };
        let shown = |schema: &DFSchema, hidden: &[(Expr, String)]| {
            let names = schema.columns().into_iter().zip(hidden);
            let shown = names.map(|(column, (_, name))| {
                named(name).alias_qualified(column.relation, column.name)
            });
            shown.collect::<Vec<_>>()
        };
        let outputs = shown(self.left.schema(), &lefts).into_iter();
        let outputs = outputs.chain(shown(self.right.schema(), &rights));
        LogicalPlanBuilder::from(matched)
            .join_on(others, join, conditions)?
            .project(outputs)?
            .build()
    }

    /// The left side's rows, each with the time of the right side's that it goes with.
    fn matched(
        &self,
        lefts: &[(Expr, String)],
        context: &dyn RelationPlannerContext,
    ) -> Result<LogicalPlan> {
        let Keys { equal, time, op } = &self.keys;
        let null = |data_type: &DataType| {
            ScalarValue::try_from(data_type).map(|null| Expr::Literal(null, None))
        };
        let time_type = time.0.get_type(self.left.schema())?;
        let ours = lefts.iter().map(|(column, name)| column.clone().alias(name));
        let ours = ours
            .chain(equal.iter().enumerate().map(|(nth, (one, _))| one.clone().alias(key(nth))))
            .chain([
                time.0.clone().alias(TIME),
                null(&time_type)?.alias(OTHER),
                lit(true).alias(SIDE),
            ]);
        let ours = LogicalPlanBuilder::from(self.left.clone()).project(ours)?.build()?;
        let nulls = lefts
            .iter()
            .map(|(column, name)| Ok(null(&column.get_type(self.left.schema())?)?.alias(name)));
        let theirs = nulls.collect::<Result<Vec<_>>>()?.into_iter();
        let theirs = theirs
            .chain(equal.iter().enumerate().map(|(nth, (_, one))| one.clone().alias(key(nth))))
            .chain([
                time.1.clone().alias(TIME),
                time.1.clone().alias(OTHER),
                lit(false).alias(SIDE),
            ]);
        let theirs = LogicalPlanBuilder::from(self.right.clone()).project(theirs)?.build()?;
        let is_backwards = matches!(op, Operator::Gt | Operator::GtEq);
        // At the same moment the other's row comes before those that it goes with.
        let theirs_first = matches!(op, Operator::GtEq | Operator::LtEq);
        let nearest = if is_backwards { "max" } else { "min" };
        let Some(nearest) = context.context_provider().get_aggregate_meta(nearest) else {
            return internal_err!("there is no {nearest}()");
        };
        let definition = WindowFunctionDefinition::AggregateUDF(nearest);
        let window = Expr::from(WindowFunction::new(definition, vec![named(OTHER)]))
            .partition_by((0..equal.len()).map(|nth| named(&key(nth))).collect())
            .order_by(vec![
                named(TIME).sort(is_backwards, false),
                named(SIDE).sort(theirs_first, false),
            ])
            .window_frame(WindowFrame::new_bounds(
                WindowFrameUnits::Rows,
                WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                WindowFrameBound::CurrentRow,
            ))
            .build()?;
        let found = named(&window.schema_name().to_string());
        // Rows without a time are the last of all.
        let found = datafusion::logical_expr::when(named(TIME).is_not_null(), found).end()?;
        let kept = lefts.iter().map(|(_, name)| named(name));
        let kept = kept.chain((0..equal.len()).map(|nth| named(&key(nth))));
        LogicalPlanBuilder::from(ours)
            .union(theirs)?
            .window([window])?
            .filter(named(SIDE))?
            .project(kept.chain([found.alias(OTHER)]))?
            .build()
    }

    /// The right side's rows, one of each time.
    fn others(
        &self,
        rights: &[(Expr, String)],
        context: &dyn RelationPlannerContext,
    ) -> Result<LogicalPlan> {
        let Keys { equal, time, .. } = &self.keys;
        let names: Vec<String> = (0..equal.len())
            .map(|nth| format!("asof other key {nth}"))
            .chain(["asof time of other".to_string()])
            .collect();
        let keys = equal.iter().map(|(_, other)| other).chain([&time.1]);
        let columns = rights.iter().map(|(column, name)| column.clone().alias(name));
        let columns = columns.chain(keys.zip(&names).map(|(key, name)| key.clone().alias(name)));
        let Some(number) = context.context_provider().get_window_meta("row_number") else {
            return internal_err!("there is no row_number()");
        };
        let definition = WindowFunctionDefinition::WindowUDF(number);
        let number = Expr::from(WindowFunction::new(definition, Vec::new()))
            .partition_by(names.iter().map(|name| named(name)).collect())
            .build()?;
        let is_first = named(&number.schema_name().to_string()).eq(lit(1_u64));
        let kept = rights.iter().map(|(_, name)| named(name));
        let kept: Vec<Expr> = kept.chain(names.iter().map(|name| named(name))).collect();
        LogicalPlanBuilder::from(Arc::new(self.right.clone()))
            .project(columns)?
            .window([number])?
            .filter(is_first)?
            .project(kept)?
            .build()
    }
}
