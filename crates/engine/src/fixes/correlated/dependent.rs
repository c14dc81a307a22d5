//! A plan that looks at an outer row, made one for all outer rows at once.
//!
//! The values that the plan asks of outer rows are made a table, and sent down to where they are asked for; every row carries its
//! values up again ("Unnesting Arbitrary Queries", Neumann and Kemper, 2015):
//!
//! ```text
//! values = SELECT DISTINCT o.at FROM o
//! (SELECT .. FROM t WHERE t.at < o.at LIMIT 1)   asks for o.at
//! values JOIN t ON t.at < values.at              the rows of all, each with its value
//! numbered within each value, of which the first   what LIMIT makes of them
//! ```
//!
//! Where equalities say what the values are (`t.k = o.k`), the rows have them already, and there is no such table. Then there may
//! be rows of values that no outer row has.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, DFSchema, DataFusionError, ExprSchema, NullEquality, Result, TableReference,
};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, ExprFunctionExt, ExprSchemable, FetchType, Join,
    JoinType, Limit, LogicalPlan, LogicalPlanBuilder, Operator, SkipType, SortExpr, Union,
    Values as Rows, Window, binary_expr, lit, try_cast,
};

use super::outer::{Numbers, asked_by, conditions_of, has_subquery, may_differ, subquery_of};
use super::stable::Stable;
use crate::plans::{columns_of, renamed, through, with_default, with_filter};

/// Why there is no such plan.
pub enum Refused {
    /// It has something that is not offered.
    Other,
    Failed(DataFusionError),
}

impl From<DataFusionError> for Refused {
    fn from(error: DataFusionError) -> Self {
        Self::Failed(error)
    }
}

pub type Planned<T> = Result<T, Refused>;

/// What outer rows give a plan.
pub struct Values {
    /// Their columns that it asks for.
    outer: Vec<Column>,
    /// The values of these, none twice.
    plan: LogicalPlan,
    number: usize,
    is_used: Cell<bool>,
}

impl Values {
    /// The columns of outer rows that a plan asks for: none, if it asks for those of a query further out alone.
    pub fn of(plan: &LogicalPlan, outer: &LogicalPlan, numbers: &Numbers) -> Result<Self> {
        let columns: Vec<Column> = asked_by(plan)?
            .into_iter()
            .filter(|column| outer.schema().has_column(column))
            .collect();
        let own = Self {
            outer: columns,
            plan: outer.clone(),
            number: numbers.next(),
            is_used: Cell::new(false),
        };
        let rows = Stable::of(outer, &own.outer)?;
        let keys = rows.values.into_iter().zip(own.keys());
        let keys = keys.map(|(value, key)| value.unalias().alias(key.name));
        let values = LogicalPlanBuilder::from(rows.rows).project(keys)?.distinct()?;
        let plan = values.alias(own.table("values"))?.build()?;
        Ok(Self { plan, ..own })
    }

    fn table(&self, kind: &str) -> TableReference {
        TableReference::bare(format!("__{kind}_{}", self.number))
    }

    fn column(&self, kind: &str, name: &str) -> Column {
        Column::new(Some(self.table(kind)), format!("{name}_{}", self.number))
    }

    fn columns(&self, kind: &str, name: &str, count: usize) -> Vec<Column> {
        let named =
            |nth| Column::new(Some(self.table(kind)), format!("{name}_{}_{nth}", self.number));
        (0..count).map(named).collect()
    }

    /// Columns of outer rows, in the order of [`keys`](Self::keys).
    pub fn outer(&self) -> &[Column] {
        &self.outer
    }

    /// What they are called in plans for all.
    pub fn keys(&self) -> Vec<Column> {
        self.columns("values", "key", self.outer.len())
    }

    /// The keys in the table of what is found for them.
    pub fn found_keys(&self) -> Vec<Column> {
        self.columns("found", "key", self.outer.len())
    }

    /// So many values in that table.
    pub fn found_values(&self, count: usize) -> Vec<Column> {
        self.columns("found", "value", count)
    }

    /// The one thing of a name in that table.
    pub fn found(&self, name: &str) -> Column {
        self.column("found", name)
    }

    /// The mark of a join with that table.
    pub fn mark(&self) -> Column {
        Column::new(Some(self.table("found")), "mark")
    }

    /// Whether the outer rows themselves are asked for their values, so that they are read twice.
    pub fn is_used(&self) -> bool {
        self.is_used.get()
    }

    /// Whether the values may be others than those of the outer rows.
    pub fn may_differ(&self) -> Result<bool> {
        may_differ(&self.plan)
    }

    /// How a plan for all is joined with the outer rows: those whose values are known by an equality have none that is NULL.
    pub fn null_equality(&self) -> NullEquality {
        match self.is_used() {
            true => NullEquality::NullEqualsNull,
            false => NullEquality::NullEqualsNothing,
        }
    }

    fn key_exprs(&self) -> Vec<Expr> {
        self.keys().into_iter().map(Expr::Column).collect()
    }

    /// A plan for all of the values: its columns, and the keys.
    ///
    /// # Errors
    /// Something that is not offered asks for them.
    pub fn for_all(&self, plan: &LogicalPlan) -> Planned<LogicalPlan> {
        if self.outer.is_empty() {
            return Ok(plan.clone());
        }
        if !self.is_asked(plan)? {
            return Ok(self.with_each(plan.clone(), Vec::new())?);
        }
        match plan {
            LogicalPlan::Filter(_) => self.filtered(plan),
            LogicalPlan::Projection(projection) => {
                let below = self.for_all(&projection.input)?;
                let exprs = self.of_values_all(&projection.expr)?;
                Ok(self.project(below, renamed(exprs, projection.schema.columns()))?)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let below = self.for_all(&alias.input)?;
                let columns = columns_of(&alias.input);
                Ok(self.project(below, renamed(columns, alias.schema.columns()))?)
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.for_all(&sort.input),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                Ok(LogicalPlanBuilder::from(self.for_all(input)?).distinct()?.build()?)
            }
            LogicalPlan::Limit(limit) => self.limited(limit),
            LogicalPlan::Aggregate(aggregate) => self.aggregated(aggregate),
            LogicalPlan::Window(window) => self.windows(window),
            LogicalPlan::Union(union) => self.united(union),
            LogicalPlan::Join(join) => self.joined(join),
            LogicalPlan::Values(values) => self.rows(values),
            LogicalPlan::Subquery(subquery) => self.for_all(&subquery.subquery),
            LogicalPlan::Unnest(unnest) => {
                let lists = LogicalPlanBuilder::from(self.for_all(&unnest.input)?);
                let (columns, options) = (unnest.exec_columns.clone(), unnest.options.clone());
                let rows = lists.unnest_columns_with_options(columns, options)?.build()?;
                Ok(self.project(rows, columns_of(plan))?)
            }
            _ => Err(Refused::Other),
        }
    }

    /// Rows with each of the values for which conditions are true.
    fn with_each(&self, rows: LogicalPlan, on: Vec<Expr>) -> Result<LogicalPlan> {
        self.is_used.set(true);
        let values = LogicalPlanBuilder::from(self.plan.clone());
        match on.is_empty() {
            true => values.cross_join(rows)?.build(),
            false => values.join_on(rows, JoinType::Inner, on)?.build(),
        }
    }

    fn project(
        &self,
        plan: LogicalPlan,
        exprs: impl IntoIterator<Item = Expr>,
    ) -> Result<LogicalPlan> {
        let exprs = exprs.into_iter().chain(self.key_exprs());
        LogicalPlanBuilder::from(plan).project(exprs)?.build()
    }

    fn filtered(&self, plan: &LogicalPlan) -> Planned<LogicalPlan> {
        let (conditions, rows) = conditions_of(plan);
        if self.is_asked(rows)? {
            let conditions = self.of_values_all(&conditions)?;
            return Ok(with_filter(self.for_all(rows)?, conditions)?);
        }
        let is_asking = |condition: &Expr| self.is_asked_by(condition);
        let (asking, own): (Vec<_>, Vec<_>) = conditions.into_iter().partition(is_asking);
        let own = with_filter(rows.clone(), own)?;
        let asking = self.of_values_all(&asking)?;
        if let Some(known) = self.known(&own, &asking)? {
            return Ok(known);
        }
        // No join asks a subquery.
        let (above, on): (Vec<_>, Vec<_>) = asking.into_iter().partition(has_subquery);
        Ok(with_filter(self.with_each(own, on)?, above)?)
    }

    /// Rows whose conditions say what each of the values is.
    fn known(&self, rows: &LogicalPlan, conditions: &[Expr]) -> Result<Option<LogicalPlan>> {
        let keys = self.keys();
        let mut known = vec![None; keys.len()];
        let mut rest = Vec::new();
        for condition in conditions {
            match self.key(condition, rows.schema()) {
                Some((nth, expr)) if known[nth].is_none() => known[nth] = Some(expr),
                _ => rest.push(condition.clone()),
            }
        }
        let Some(known) = known.into_iter().collect::<Option<Vec<Expr>>>() else {
            return Ok(None);
        };
        let mut conditions = through(rest, &keys, &known)?;
        conditions.extend(known.iter().map(|expr| expr.clone().is_not_null()));
        let named = renamed(known, keys);
        let columns = columns_of(rows);
        let rows = LogicalPlanBuilder::from(with_filter(rows.clone(), conditions)?);
        rows.project(columns.into_iter().chain(named))?.build().map(Some)
    }

    /// Which value a condition says, and how: an expression of the rows that equals it, and is the same wherever it does.
    fn key(&self, condition: &Expr, rows: &DFSchema) -> Option<(usize, Expr)> {
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
            return None;
        };
        let keys = self.keys();
        let nth_of = |expr: &Expr| match widened(expr) {
            Expr::Column(column) => keys.iter().position(|key| key == column),
            _ => None,
        };
        let (nth, key, expr) = match (nth_of(left), nth_of(right)) {
            (Some(nth), None) => (nth, left, right.as_ref()),
            (None, Some(nth)) => (nth, right, left.as_ref()),
            _ => return None,
        };
        let is_of_rows = !expr.column_refs().into_iter().any(|column| keys.contains(column));
        if !is_of_rows || !expr.any_column_refs() || expr.is_volatile() || has_subquery(expr) {
            return None;
        }
        let value_type = self.plan.schema().field_from_column(&keys[nth]).ok()?.data_type().clone();
        let expr_type = expr.get_type(rows).ok()?;
        if !same_where_equal(&expr_type, &value_type) {
            return None;
        }
        match key.as_ref() {
            Expr::Column(_) => Some((nth, expr.clone())),
            // An integer that the value's type does not have equals none.
            _ if expr_type.is_signed_integer()
                && value_type.is_signed_integer()
                && value_type.primitive_width() <= expr_type.primitive_width() =>
            {
                Some((nth, try_cast(expr.clone(), value_type)))
            }
            _ => None,
        }
    }

    fn limited(&self, limit: &Limit) -> Planned<LogicalPlan> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Err(Refused::Other);
        };
        let rank = self.column("values", "rank");
        let numbered = self.numbered(&limit.input, &rank)?;
        let mut conditions = Vec::new();
        let rank = || Expr::Column(rank.clone());
        if skip > 0 {
            conditions.push(rank().gt(lit(skip as u64)));
        }
        if let Some(fetch) = fetch {
            conditions.push(rank().lt_eq(lit(skip.saturating_add(fetch) as u64)));
        }
        let columns = columns_of(&limit.input);
        Ok(self.project(with_filter(numbered, conditions)?, columns)?)
    }

    /// A plan for all with the number of each row within its value, from 1, in the plan's order.
    fn numbered(&self, plan: &LogicalPlan, rank: &Column) -> Planned<LogicalPlan> {
        if let LogicalPlan::Projection(projection) = plan
            && is_ordered(&projection.input)
        {
            let below = self.numbered(&projection.input, rank)?;
            let exprs = self.of_values_all(&projection.expr)?;
            let exprs = renamed(exprs, projection.schema.columns());
            return Ok(self.project(below, exprs.chain([Expr::Column(rank.clone())]))?);
        }
        let (rows, order) = match plan {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                (sort.input.as_ref(), &sort.expr[..])
            }
            other => (other, &[][..]),
        };
        let order = order.iter().map(|sort| {
            Ok::<_, Refused>(SortExpr { expr: self.of_values(&sort.expr)?, ..sort.clone() })
        });
        let order = order.collect::<Planned<Vec<_>>>()?;
        let number = row_number().partition_by(self.key_exprs()).order_by(order).build()?;
        let below = self.for_all(rows)?;
        let window = LogicalPlan::Window(Window::try_new(vec![number], Arc::new(below))?);
        let number = window.schema().columns().pop().ok_or(Refused::Other)?;
        let columns = columns_of(plan).into_iter();
        let number = renamed([Expr::Column(number)], vec![rank.clone()]);
        Ok(self.project(window, columns.chain(number))?)
    }

    fn aggregated(&self, aggregate: &Aggregate) -> Planned<LogicalPlan> {
        let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
        if aggregate.group_expr.iter().any(is_set) {
            return Err(Refused::Other);
        }
        let groups = self.of_values_all(&aggregate.group_expr)?;
        let outputs = aggregate.schema.columns();
        let (grouped, calls) = self.grouped(aggregate, &groups)?;
        let columns = grouped.schema().columns();
        let made = columns.iter().take(groups.len()).chain(&calls).cloned().map(Expr::Column);
        if !groups.is_empty() {
            return Ok(self.project(grouped, renamed(made, outputs))?);
        }
        // One row for each value, also where nothing was found.
        self.is_used.set(true);
        let again = self.again();
        let keys = renamed(self.key_exprs(), again.clone());
        let made = renamed(made, outputs.clone());
        let found = LogicalPlanBuilder::from(grouped).project(keys.chain(made))?.build()?;
        let all = LogicalPlanBuilder::from(self.plan.clone()).join_detailed(
            found,
            JoinType::Left,
            (self.keys(), again),
            None,
            NullEquality::NullEqualsNull,
        )?;
        let values = outputs.iter().zip(&aggregate.aggr_expr).map(|(column, call)| {
            let value = with_default(Expr::Column(column.clone()), call, aggregate)?;
            Ok(value.alias_qualified(column.relation.clone(), &column.name))
        });
        Ok(self.project(all.build()?, values.collect::<Result<Vec<_>>>()?)?)
    }

    /// An aggregate by groups and the keys; columns: those of the groups, the keys, and those of the calls, which are told.
    pub fn grouped(
        &self,
        aggregate: &Aggregate,
        groups: &[Expr],
    ) -> Planned<(LogicalPlan, Vec<Column>)> {
        let below = Arc::new(self.for_all(&aggregate.input)?);
        let calls = self.of_values_all(&aggregate.aggr_expr)?;
        let groups = [groups, &self.key_exprs()].concat();
        let calls_from = groups.len();
        let grouped = LogicalPlan::Aggregate(Aggregate::try_new(below, groups, calls)?);
        let calls = grouped.schema().columns().split_off(calls_from);
        Ok((grouped, calls))
    }

    fn windows(&self, window: &Window) -> Planned<LogicalPlan> {
        let below = self.for_all(&window.input)?;
        let within = |expr: Expr| {
            let within = expr.transform_up(|part| match part {
                Expr::WindowFunction(mut call) => {
                    call.params.partition_by.extend(self.key_exprs());
                    Ok(Transformed::yes(Expr::WindowFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            });
            within.map(|t| t.data)
        };
        let calls = self.of_values_all(&window.window_expr)?;
        let calls = calls.into_iter().map(within).collect::<Result<Vec<_>>>()?;
        let count = calls.len();
        let made = LogicalPlan::Window(Window::try_new(calls, Arc::new(below))?);
        let mut columns = made.schema().columns();
        let calls = columns.split_off(columns.len() - count);
        let own = window.input.schema().columns().into_iter().chain(calls).map(Expr::Column);
        Ok(self.project(made, renamed(own, window.schema.columns()))?)
    }

    fn united(&self, union: &Union) -> Planned<LogicalPlan> {
        let outputs = union.schema.columns();
        let part = |input: &Arc<LogicalPlan>| {
            let columns = columns_of(input);
            let part = self.project(self.for_all(input)?, renamed(columns, outputs.clone()))?;
            Ok::<_, Refused>(Arc::new(part))
        };
        let parts = union.inputs.iter().map(part).collect::<Planned<Vec<_>>>()?;
        self.all_of(parts, outputs)
    }

    /// The rows of all parts, which have these columns and the keys.
    fn all_of(&self, parts: Vec<Arc<LogicalPlan>>, outputs: Vec<Column>) -> Planned<LogicalPlan> {
        if let [part] = parts.as_slice() {
            return Ok(LogicalPlan::clone(part));
        }
        let all = LogicalPlan::Union(Union::try_new_with_loose_types(parts)?);
        let columns = columns_of(&all);
        let named = renamed(columns, outputs.into_iter().chain(self.keys()).collect());
        Ok(LogicalPlanBuilder::from(all).project(named)?.build()?)
    }

    /// Each of VALUES' rows for each of the values.
    fn rows(&self, values: &Rows) -> Planned<LogicalPlan> {
        self.is_used.set(true);
        let outputs = values.schema.columns();
        let part = |row: &Vec<Expr>| {
            let row = self.of_values_all(row)?;
            let part = self.project(self.plan.clone(), renamed(row, outputs.clone()))?;
            Ok::<_, Refused>(Arc::new(part))
        };
        let parts = values.values.iter().map(part).collect::<Planned<Vec<_>>>()?;
        self.all_of(parts, outputs)
    }

    /// Each side has the values that it asks for, and those whose rows come out without a match need them.
    fn joined(&self, join: &Join) -> Planned<LogicalPlan> {
        let (keeps_left, keeps_right) = match join.join_type {
            JoinType::Inner => (false, false),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                (true, false)
            }
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => (false, true),
            _ => return Err(Refused::Other),
        };
        if join.null_aware {
            return Err(Refused::Other);
        }
        let right_has = keeps_right || self.is_asked(&join.right)?;
        let left_has = keeps_left || self.is_asked(&join.left)? || !right_has;
        let side = |plan: &LogicalPlan, has| match has {
            true => self.for_all(plan),
            false => Ok(plan.clone()),
        };
        let (mut left, mut right) = (side(&join.left, left_has)?, side(&join.right, right_has)?);

        let is_asking = |(left, right): &(Expr, Expr)| [left, right].map(|e| self.is_asked_by(e));
        let (asking, on): (Vec<_>, Vec<_>) =
            join.on.iter().cloned().partition(|pair| is_asking(pair).contains(&true));
        let conditions = asking.into_iter().map(|(left, right)| left.eq(right));
        let conditions: Vec<Expr> = conditions.chain(join.filter.clone()).collect();
        let mut conditions = self.of_values_all(&conditions)?;
        if left_has && right_has {
            // The keys are those of the side whose rows all come out.
            let again = self.again();
            let of_other = if keeps_right { &mut left } else { &mut right };
            let own = of_other.schema().columns().into_iter().map(|column| {
                let nth = self.keys().iter().position(|key| *key == column);
                let name = nth.map_or_else(|| column.clone(), |nth| again[nth].clone());
                (Expr::Column(column), name)
            });
            let (own, names): (Vec<_>, Vec<_>) = own.unzip();
            *of_other =
                LogicalPlanBuilder::from(of_other.clone()).project(renamed(own, names))?.build()?;
            conditions.extend(self.key_exprs().into_iter().zip(again).map(|(key, again)| {
                binary_expr(key, Operator::IsNotDistinctFrom, Expr::Column(again))
            }));
        }
        let joined = LogicalPlan::Join(Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            conjunction(conditions),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            false,
        )?);
        let columns = join.schema.columns();
        let mut made: Vec<Expr> = columns.iter().cloned().map(Expr::Column).collect();
        if let (JoinType::LeftMark, Some(mark)) = (join.join_type, made.last_mut()) {
            *mark = Expr::Column(joined.schema().columns().pop().ok_or(Refused::Other)?);
        }
        Ok(self.project(joined, renamed(made, columns))?)
    }

    /// Other names for the keys.
    fn again(&self) -> Vec<Column> {
        self.columns("values", "again", self.outer.len())
    }

    /// Expressions that ask for the keys instead of the outer row.
    pub fn of_values_all(&self, exprs: &[Expr]) -> Planned<Vec<Expr>> {
        exprs.iter().map(|expr| self.of_values(expr)).collect()
    }

    /// An expression that does.
    pub fn of_values(&self, expr: &Expr) -> Planned<Expr> {
        if expr.exists(|part| Ok(subquery_of(part).is_some_and(|plan| self.is_asked_in(plan))))? {
            return Err(Refused::Other);
        }
        let keys = self.keys();
        let asking = expr.clone().transform_up(|part| match &part {
            Expr::OuterReferenceColumn(_, column) => {
                let nth = self.outer.iter().position(|own| own == column);
                Ok(nth.map_or(Transformed::no(part), |nth| {
                    Transformed::yes(Expr::Column(keys[nth].clone()))
                }))
            }
            _ => Ok(Transformed::no(part)),
        })?;
        Ok(asking.data)
    }

    fn is_asked(&self, plan: &LogicalPlan) -> Result<bool> {
        Ok(asked_by(plan)?.iter().any(|column| self.outer.contains(column)))
    }

    fn is_asked_in(&self, plan: &LogicalPlan) -> bool {
        self.is_asked(plan).unwrap_or(true)
    }

    fn is_asked_by(&self, expr: &Expr) -> bool {
        let asks = |part: &Expr| {
            let names = matches!(part, Expr::OuterReferenceColumn(_, c) if self.outer.contains(c));
            Ok(names || subquery_of(part).is_some_and(|plan| self.is_asked_in(plan)))
        };
        expr.exists(asks).unwrap_or(true)
    }
}

fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(sort) => sort.fetch.is_none(),
        LogicalPlan::Projection(projection) => is_ordered(&projection.input),
        _ => false,
    }
}

/// What a cast to a type of more integers is of.
fn widened(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) if cast.field.data_type().is_signed_integer() => cast.expr.as_ref(),
        other => other,
    }
}

/// Whether two values of one type are one value if both equal a value of the other. Not so where integers are compared as floats.
fn same_where_equal(a: &DataType, b: &DataType) -> bool {
    let is_text = |data_type: &DataType| match data_type {
        DataType::Dictionary(_, values) => values.is_string(),
        other => other.is_string(),
    };
    a == b || a.is_signed_integer() && b.is_signed_integer() || is_text(a) && is_text(b)
}
