//! `COLUMNS(..)` in a list of outputs: the outputs are as many as there are such columns, each called as its column.
//!
//! ```text
//! SELECT COLUMNS('^a') FROM t           SELECT a1 AS a1, a2 AS a2 FROM t
//! SELECT max(COLUMNS(*)) FROM t         SELECT max(a1) AS a1, max(a2) AS a2, max(b) AS b FROM t
//! SELECT COLUMNS(['b', 'a1']) FROM t    SELECT a1 AS a1, b AS b FROM t
//! ```
//!
//! Which columns FROM has the planner says, of a query that selects all of them.

use std::collections::{HashMap, HashSet};
use std::mem;

use datafusion::common::{DFSchemaRef, Result, plan_datafusion_err, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Array, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SetExpr, Statement, Value, Visitor, VisitorMut, With,
};
use regex::Regex;

use super::columns_calls::{Calls, arguments, has_columns};
use super::headers::Headers;
use super::nodes::plain_name;
use super::own::parse_query;
use super::walk::{self, Flow, ON, Stop};

const HINT: &str = "hint: COLUMNS(*), COLUMNS(t.*), COLUMNS('pattern') or COLUMNS(['a', 'b']), in a list of outputs";

/// Writes down the columns that COLUMNS stands for; those of the answer are called as they are.
///
/// # Errors
/// COLUMNS elsewhere, of anything else, or of no column.
pub async fn write_out(
    statement: &mut Statement,
    headers: &mut Headers,
    state: &SessionState,
) -> Result<()> {
    // An inner query first: the outer one's columns may be its.
    while let Some(from) = next_from(statement) {
        let plan = state.statement_to_plan(DFStatement::Statement(Box::new(from))).await?;
        let mut write = WriteOut { schema: plan.schema(), done: false };
        if let Statement::Query(query) = &*statement
            && is_first(query)
        {
            let items = projection_of(query).map(Vec::as_slice).unwrap_or_default();
            let names = |item: &SelectItem| write.names(item);
            *headers = headers.written_out(items, names)?;
        }
        walk::change(statement, &mut write)?;
    }
    walk::look(statement, &mut NowhereElse)
}

/// Whether the outermost query is the one whose turn it is: no other has COLUMNS.
fn is_first(query: &Query) -> bool {
    let mut own = Selects::default();
    walk::look_at_all(query, &mut own);
    own.with_columns == 1 && projection_of(query).is_some_and(|items| items.iter().any(has_columns))
}

fn projection_of(query: &Query) -> Option<&Vec<SelectItem>> {
    match query.body.as_ref() {
        SetExpr::Select(select) => Some(&select.projection),
        SetExpr::Query(query) => projection_of(query),
        _ => None,
    }
}

#[derive(Default)]
struct Selects {
    with_columns: usize,
}

impl Visitor for Selects {
    type Break = Stop;

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        self.with_columns += usize::from(select.projection.iter().any(has_columns));
        ON
    }
}

/// All that FROM has, of the first SELECT that has COLUMNS and no other in it that has.
fn next_from(statement: &Statement) -> Option<Statement> {
    let mut find = Find { withs: Vec::new(), found: None };
    walk::look_at_all(statement, &mut find);
    find.found.map(|query| Statement::Query(Box::new(query)))
}

struct Find {
    /// Those of the queries around.
    withs: Vec<Option<With>>,
    found: Option<Query>,
}

impl Visitor for Find {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        self.withs.push(query.with.clone());
        ON
    }

    fn post_visit_query(&mut self, _: &Query) -> Flow {
        self.withs.pop();
        ON
    }

    fn post_visit_select(&mut self, select: &Select) -> Flow {
        if self.found.is_some() || !select.projection.iter().any(has_columns) {
            return ON;
        }
        let Ok(mut query) = parse_query("SELECT * FROM t") else { return ON };
        if let SetExpr::Select(all) = query.body.as_mut() {
            all.from.clone_from(&select.from);
        }
        // A query may be called as one further out: the inner one hides it.
        let mut names = HashSet::new();
        for with in self.withs.iter().rev().flatten() {
            let tables =
                with.cte_tables.iter().filter(|cte| names.insert(plain_name(&cte.alias.name)));
            let tables = tables.cloned().collect();
            match &mut query.with {
                Some(inner) => {
                    let inner_tables = mem::replace(&mut inner.cte_tables, tables);
                    inner.cte_tables.extend(inner_tables);
                    inner.recursive |= with.recursive;
                }
                none => *none = Some(With { cte_tables: tables, ..with.clone() }),
            }
        }
        self.found = Some(query);
        ON
    }
}

/// Writes out the first SELECT that has COLUMNS and no other in it that has.
struct WriteOut<'a> {
    schema: &'a DFSchemaRef,
    done: bool,
}

impl VisitorMut for WriteOut<'_> {
    type Break = Stop;

    fn post_visit_select(&mut self, select: &mut Select) -> Flow {
        if self.done || !select.projection.iter().any(has_columns) {
            return ON;
        }
        self.done = true;
        let mut outputs = Vec::new();
        for item in mem::take(&mut select.projection) {
            match self.outputs(item) {
                Ok(written) => outputs.extend(written),
                Err(error) => return walk::stop(error),
            }
        }
        call_apart(&mut outputs);
        select.projection = outputs;
        ON
    }
}

impl WriteOut<'_> {
    /// What the outputs of one are called, if it has COLUMNS.
    fn names(&self, item: &SelectItem) -> Result<Option<Vec<String>>> {
        if !has_columns(item) {
            return Ok(None);
        }
        let outputs = self.outputs(item.clone())?.into_iter();
        let name = |output| match output {
            SelectItem::ExprWithAlias { alias, .. } => Some(alias.value),
            _ => None,
        };
        Ok(Some(outputs.filter_map(name).collect()))
    }

    fn outputs(&self, item: SelectItem) -> Result<Vec<SelectItem>> {
        let (expr, alias) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
            other => return Ok(vec![other]),
        };
        let mut calls = Calls::default();
        walk::look_at_all(&expr, &mut calls);
        let Some(first) = calls.found.first() else {
            return Ok(vec![match alias {
                Some(alias) => SelectItem::ExprWithAlias { expr, alias },
                None => SelectItem::UnnamedExpr(expr),
            }]);
        };
        if calls.found.iter().any(|other| other.to_string() != first.to_string()) {
            return plan_err!(
                "COLUMNS of two kinds in one output: {expr}\nhint: write two outputs"
            );
        }
        let columns = self.columns(first)?;
        let output = |(column, name): (Expr, String)| {
            let mut expr = expr.clone();
            walk::change_all(&mut expr, &mut Put { column: &column, queries: 0 });
            let alias = alias.clone().unwrap_or_else(|| Ident::with_quote('"', name));
            SelectItem::ExprWithAlias { expr, alias }
        };
        Ok(columns.into_iter().map(output).collect())
    }

    /// The columns of a call.
    fn columns(&self, call: &Expr) -> Result<Vec<(Expr, String)>> {
        let wrong = || plan_datafusion_err!("{call} is not offered\n{HINT}");
        let Some([FunctionArg::Unnamed(argument)]) = arguments(call) else { return Err(wrong()) };
        let mut chosen: Vec<usize> = match argument {
            FunctionArgExpr::Wildcard => (0..self.schema.fields().len()).collect(),
            FunctionArgExpr::QualifiedWildcard(table) => self.of_table(table),
            FunctionArgExpr::Expr(Expr::Value(value)) => {
                let Value::SingleQuotedString(pattern) = &value.value else { return Err(wrong()) };
                let pattern = Regex::new(pattern).map_err(|cause| {
                    plan_datafusion_err!("{call} is of no regular expression: {cause}\n{HINT}")
                })?;
                self.where_name(|name| pattern.is_match(name))
            }
            FunctionArgExpr::Expr(Expr::Array(Array { elem, .. })) => {
                elem.iter().map(|name| self.called(name, call)).collect::<Result<_>>()?
            }
            _ => return Err(wrong()),
        };
        // They come as they stand in FROM.
        chosen.sort_unstable();
        if chosen.is_empty() {
            return plan_err!("{call} is of no column\nhint: DESCRIBE shows what a table has");
        }
        let mut times: HashMap<&str, usize> = HashMap::new();
        for field in self.schema.fields() {
            *times.entry(field.name()).or_default() += 1;
        }
        let column = |at: usize| {
            let (table, field) = self.schema.qualified_field(at);
            let name = Ident::with_quote('"', field.name());
            let table = table.filter(|_| times.get(field.name().as_str()) > Some(&1));
            let expr = match table {
                Some(table) => {
                    let table = Ident::with_quote('"', table.table());
                    Expr::CompoundIdentifier(vec![table, name])
                }
                None => Expr::Identifier(name),
            };
            (expr, field.name().clone())
        };
        Ok(chosen.into_iter().map(column).collect())
    }

    fn where_name(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<usize> {
        let fields = self.schema.fields().iter().enumerate();
        fields.filter(|(_, field)| is_wanted(field.name())).map(|(at, _)| at).collect()
    }

    fn of_table(&self, table: &ObjectName) -> Vec<usize> {
        let Some(ObjectNamePart::Identifier(table)) = table.0.last() else { return Vec::new() };
        let is_of = |at: &usize| {
            self.schema.qualified_field(*at).0.is_some_and(|own| own.table() == plain_name(table))
        };
        (0..self.schema.fields().len()).filter(is_of).collect()
    }

    fn called(&self, name: &Expr, call: &Expr) -> Result<usize> {
        let Expr::Value(value) = name else {
            return plan_err!("{call} is of names that are no constants\n{HINT}");
        };
        let Value::SingleQuotedString(name) = &value.value else {
            return plan_err!("{call} is of names that are no texts\n{HINT}");
        };
        let exact = self.where_name(|own| own == name);
        let found = exact.first().copied();
        let found = found
            .or_else(|| self.where_name(|own| own.eq_ignore_ascii_case(name)).first().copied());
        found.ok_or_else(|| plan_datafusion_err!("{call}: there is no column '{name}'\n{HINT}"))
    }
}

/// Gives outputs of equal names others, but for the first; the answer's columns are called as they are anyway.
fn call_apart(outputs: &mut [SelectItem]) {
    let mut seen = HashSet::new();
    for (nth, item) in outputs.iter_mut().enumerate() {
        let SelectItem::ExprWithAlias { expr, alias } = item else { continue };
        let name = plain_name(alias);
        match expr {
            // It is called so by itself.
            Expr::Identifier(own) if plain_name(own) == name && !seen.contains(&name) => {
                *item = SelectItem::UnnamedExpr(expr.clone());
            }
            _ if seen.contains(&name) => {
                *alias = Ident::with_quote('"', format!("column {}", nth + 1));
            }
            _ => {}
        }
        seen.insert(name);
    }
}

/// Puts a column in the place of COLUMNS.
struct Put<'a> {
    column: &'a Expr,
    queries: usize,
}

impl VisitorMut for Put<'_> {
    type Break = Stop;

    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries += 1;
        ON
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries -= 1;
        ON
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if self.queries == 0 && arguments(expr).is_some() {
            *expr = self.column.clone();
        }
        ON
    }
}

/// COLUMNS that stands where no list of outputs is.
struct NowhereElse;

impl Visitor for NowhereElse {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        match arguments(expr) {
            Some(_) => {
                walk::stop(plan_datafusion_err!("{expr} stands in no list of outputs\n{HINT}"))
            }
            None => ON,
        }
    }
}
