//! Clauses that the planner drops without a word: they are done here, or refused.
//!
//! ```sql
//! SELECT x FROM t TABLESAMPLE (0)
//! ```
//!
//! - DataFusion: All rows: the clause is dropped without a word, as are PREWHERE, WITH ROLLUP, FILTER of a scalar function,
//!   FOR UPDATE; right is what it says, or an error.
//! - Upstream: apache/datafusion#13563 of TABLESAMPLE, none known of the others.
//! - This can go when its canary finds the fault mended.
//!
//! `TABLESAMPLE (10 PERCENT)` is a condition with a random number for each row. `1_000` is 1000.

use std::collections::HashSet;

use datafusion::common::{DataFusionError, Result, plan_datafusion_err, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, ObjectNamePart, Query, Select,
    SelectItem, SetExpr, Statement, TableAlias, TableFactor, TableSample, TableSampleKind,
    TableSampleMethod, TableSampleUnit, TableWithJoins, Value, ValueWithSpan, VisitorMut,
};

use crate::sql::altered::Alteration;
use crate::sql::nodes::plain_name;
use crate::sql::own::{parse_expr, parse_query};
use crate::sql::walk::{self, Flow, ON, Stop};

/// Does what the planner would ignore.
///
/// # Errors
/// A clause that is not offered.
pub fn check(statement: &mut Statement, state: &SessionState) -> Result<()> {
    walk::change(statement, &mut Check(state))
}

struct Check<'a>(&'a SessionState);

impl VisitorMut for Check<'_> {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::Function(call) if has_clauses(call) && is_scalar(call, self.0) => {
                walk::stop(plan_datafusion_err!(
                    "{} is no aggregate: it has no FILTER, OVER, DISTINCT or ORDER BY",
                    call.name
                ))
            }
            Expr::Function(call) if elsewhere(call).is_some() => walk::stop(plan_datafusion_err!(
                "{} is not offered\nhint: {}",
                call.name,
                elsewhere(call).unwrap_or_default()
            )),
            Expr::Function(call) if is_of_distinct_rows(call) => walk::stop(plan_datafusion_err!(
                "DISTINCT of * is not offered\nhint: count the rows of SELECT DISTINCT * FROM .."
            )),
            _ => ON,
        }
    }

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> Flow {
        match statement {
            Statement::AlterTable(alter) => match Alteration::of(alter) {
                Ok(_) => ON,
                Err(error) => walk::stop(error),
            },
            _ => ON,
        }
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        match in_query(query) {
            Some(clause) => walk::stop(refused(clause)),
            None => ON,
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        if let Some(clause) = in_select(select) {
            return walk::stop(refused(clause));
        }
        if let Some(name) = named_twice(&select.from) {
            return walk::stop(plan_datafusion_err!(
                "two tables of FROM are called {name}\nhint: name one of them otherwise: {name} AS other"
            ));
        }
        let joins = select.from.iter().flat_map(|from: &TableWithJoins| &from.joins);
        match joins.filter_map(without_condition).next() {
            Some(error) => walk::stop(error),
            None => ON,
        }
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> Flow {
        match in_table(table) {
            Ok(()) => ON,
            Err(error) => walk::stop(error),
        }
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> Flow {
        if let Value::Number(number, _) = &mut value.value {
            number.retain(|c| c != '_');
        }
        ON
    }
}

fn has_clauses(call: &Function) -> bool {
    let is_distinct = match &call.args {
        FunctionArguments::List(list) => {
            list.duplicate_treatment == Some(DuplicateTreatment::Distinct)
                || !list.clauses.is_empty()
        }
        _ => false,
    };
    call.filter.is_some() || call.over.is_some() || !call.within_group.is_empty() || is_distinct
}

/// What is written in the place of calls that are no functions.
fn elsewhere(call: &Function) -> Option<&'static str> {
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else { return None };
    match name.value.to_lowercase().as_str() {
        "array" if matches!(call.args, FunctionArguments::Subquery(_)) => {
            Some("(SELECT array_agg(x ORDER BY y) FROM ..) is the list of a query's rows")
        }
        _ => None,
    }
}

/// `count(DISTINCT *)`.
fn is_of_distinct_rows(call: &Function) -> bool {
    let FunctionArguments::List(list) = &call.args else { return false };
    let is_star = |argument: &FunctionArg| {
        matches!(
            argument,
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::QualifiedWildcard(_))
        )
    };
    list.duplicate_treatment == Some(DuplicateTreatment::Distinct) && list.args.iter().any(is_star)
}

/// Whether a call is of a function of each row alone.
fn is_scalar(call: &Function, state: &SessionState) -> bool {
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else { return false };
    let name = plain_name(name);
    state.scalar_functions().contains_key(&name)
        && !state.aggregate_functions().contains_key(&name)
        && !state.window_functions().contains_key(&name)
}

fn refused(clause: &str) -> DataFusionError {
    plan_datafusion_err!("{clause} is not offered\nhint: write the query without it")
}

fn in_query(query: &Query) -> Option<&'static str> {
    let clauses = [
        (!query.locks.is_empty(), "FOR UPDATE or FOR SHARE: tables have no row locks, so it"),
        (query.for_clause.is_some(), "FOR XML or FOR JSON"),
        (query.settings.is_some(), "SETTINGS: settings are changed by SET, so it"),
        (query.format_clause.is_some(), "FORMAT: the shell has .mode and --format, so it"),
    ];
    clauses.into_iter().find_map(|(is_there, clause)| is_there.then_some(clause))
}

fn in_select(select: &Select) -> Option<&'static str> {
    let modifiers = match &select.group_by {
        GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers) => modifiers,
    };
    let by_pattern = |item: &SelectItem| match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
            options.opt_ilike.is_some()
        }
        _ => false,
    };
    let clauses = [
        (
            !modifiers.is_empty(),
            "WITH TOTALS, WITH ROLLUP or WITH CUBE: GROUP BY ROLLUP (..) is, so it",
        ),
        (select.projection.iter().any(by_pattern), "* ILIKE"),
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.connect_by.is_empty(), "CONNECT BY: WITH RECURSIVE is, so it"),
        (select.value_table_mode.is_some(), "SELECT AS STRUCT or AS VALUE"),
        (select.select_modifiers.is_some(), "such a word behind SELECT"),
    ];
    clauses.into_iter().find_map(|(is_there, clause)| is_there.then_some(clause))
}

/// What two tables are called.
fn named_twice(from: &[TableWithJoins]) -> Option<String> {
    let mut names = HashSet::new();
    let tables = from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
    });
    let name = |table: &TableFactor| match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(plain_name(&alias.name)),
        TableFactor::Table { name, args: None, .. } => {
            let parts = name.0.iter().map(|part| match part {
                ObjectNamePart::Identifier(part) => plain_name(part),
                other => other.to_string(),
            });
            Some(parts.collect::<Vec<_>>().join("."))
        }
        _ => None,
    };
    tables.filter_map(name).find(|name| !names.insert(name.clone()))
}

/// `a JOIN b` without ON is no cross join, but something forgotten.
fn without_condition(join: &Join) -> Option<DataFusionError> {
    let (JoinOperator::Join(constraint)
    | JoinOperator::Inner(constraint)
    | JoinOperator::Left(constraint)
    | JoinOperator::LeftOuter(constraint)
    | JoinOperator::Right(constraint)
    | JoinOperator::RightOuter(constraint)
    | JoinOperator::FullOuter(constraint)) = &join.join_operator
    else {
        return None;
    };
    matches!(constraint, JoinConstraint::None).then(|| {
        plan_datafusion_err!(
            "a join with {} has no condition\nhint: write ON .. or USING (..) behind it, or CROSS JOIN for all pairs",
            join.relation
        )
    })
}

fn in_table(table: &mut TableFactor) -> Result<()> {
    match table {
        TableFactor::Table { with_ordinality: true, .. }
        | TableFactor::Function { with_ordinality: true, .. } => {
            plan_err!("WITH ORDINALITY is not offered\nhint: use row_number() over ()")
        }
        TableFactor::Table { version: Some(_), .. } => {
            plan_err!("a table has one version: FOR SYSTEM_TIME is not offered")
        }
        TableFactor::Table { sample, .. } | TableFactor::Derived { sample, .. } => {
            let Some(share) = sample.take().as_ref().map(share).transpose()? else { return Ok(()) };
            *table = sampled(table, share)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The share of rows that a sample has.
fn share(sample: &TableSampleKind) -> Result<f64> {
    let (TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) =
        sample;
    let TableSample { name, quantity, seed, bucket, offset, .. } = sample.as_ref();
    if seed.is_some() {
        return plan_err!(
            "REPEATABLE is not offered: a sample has other rows each time\nhint: keep one by CREATE TABLE .. AS"
        );
    }
    let is_of_rows =
        matches!(name, None | Some(TableSampleMethod::Bernoulli | TableSampleMethod::System));
    let percent = match quantity {
        Some(quantity) if is_of_rows && bucket.is_none() && offset.is_none() => {
            let number = quantity.value.to_string().parse::<f64>().ok();
            let unit = quantity.unit.as_ref();
            number.filter(|_| matches!(unit, None | Some(TableSampleUnit::Percent)))
        }
        _ => None,
    };
    match percent {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => plan_err!(
            "such a sample is not offered: {sample}\nhint: TABLESAMPLE (10) takes about 10 percent of the rows; ORDER BY random() LIMIT 100 takes 100"
        ),
    }
}

/// A table of chance: some rows of another, under its name.
fn sampled(table: &mut TableFactor, share: f64) -> Result<TableFactor> {
    let alias = match table {
        TableFactor::Table { name, alias, .. } => {
            let own = name.0.last().and_then(ObjectNamePart::as_ident).cloned();
            alias.take().or_else(|| own.map(named))
        }
        TableFactor::Derived { alias, .. } => alias.take(),
        _ => None,
    };
    let mut subquery = parse_query("SELECT * FROM t")?;
    if let SetExpr::Select(select) = subquery.body.as_mut()
        && let Some(from) = select.from.first_mut()
    {
        std::mem::swap(&mut from.relation, table);
        select.selection = Some(parse_expr(&format!("random() < {share}"))?);
    }
    let subquery = Box::new(subquery);
    Ok(TableFactor::Derived { lateral: false, subquery, alias, sample: None })
}

fn named(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}
