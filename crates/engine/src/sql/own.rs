//! Statements, and parts of them, that are made of texts of our own, and those around others.

use std::mem;

use datafusion::common::Result;
use datafusion::sql::parser::{CopyToSource, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{Expr, Query, SetExpr, Statement, TableFactor};
use datafusion::sql::sqlparser::parser::Parser;

use super::dialect::HeadraceDialect;

/// Makes a query a table, with a name of its own, of a query that selects everything of it.
pub fn put_into_from(query: &mut Query, name: &str) {
    let Ok(mut outer) = parse_query(&format!("select * from (select 1) as {name}")) else { return };
    let SetExpr::Select(select) = outer.body.as_mut() else { return };
    if let Some(table) = select.from.first_mut()
        && let TableFactor::Derived { subquery, .. } = &mut table.relation
    {
        mem::swap(subquery.as_mut(), query);
        mem::swap(query, &mut outer);
    }
}

/// A query of our own.
pub fn parse_query(text: &str) -> Result<Query> {
    Ok(*Parser::new(&HeadraceDialect).try_with_sql(text)?.parse_query()?)
}

/// An expression of our own.
pub fn parse_expr(text: &str) -> Result<Expr> {
    Ok(Parser::new(&HeadraceDialect).try_with_sql(text)?.parse_expr()?)
}

/// Changes a statement, the one that an EXPLAIN is about, or the query of a COPY.
pub fn change(
    statement: &mut DFStatement,
    change: impl FnOnce(&mut Statement) -> Result<()>,
) -> Result<()> {
    if let DFStatement::CopyTo(copy) = statement {
        let CopyToSource::Query(query) = &mut copy.source else { return Ok(()) };
        let nothing = Box::new(parse_query("SELECT 1")?);
        let mut inner = Statement::Query(mem::replace(query, nothing));
        change(&mut inner)?;
        if let Statement::Query(changed) = inner {
            *query = changed;
        }
        return Ok(());
    }
    sql_statement(statement).map_or(Ok(()), change)
}

/// The statement that an EXPLAIN is about, or the statement itself.
pub fn sql_statement(statement: &mut DFStatement) -> Option<&mut Statement> {
    match statement {
        DFStatement::Statement(inner) => Some(inner.as_mut()),
        DFStatement::Explain(explain) => sql_statement(&mut explain.statement),
        _ => None,
    }
}
