//! What a statement changes, as it is written: for doors that let some users only read.

use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{Query, SetExpr, Statement, Visit, Visitor};

use super::cuda_function::FunctionStatement;
use super::parse::parse;
use super::remembered::executed;
use super::summarize;
use super::walk::{self, Flow, ON, Stop};

/// What a statement changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing: a query, or what is told of one.
    Reads,
    /// The session: a setting, a prepared statement.
    Session,
    /// The functions in CUDA of the session: code that runs wherever tables of others are.
    Functions,
    /// Tables, views or files. Whatever is not known to change less is taken for that.
    Writes,
}

impl Effect {
    /// That of a text; of one that is no statement it is nothing, since it fails.
    pub fn of(text: &str, state: &SessionState) -> Self {
        if summarize::subject(text).is_some() {
            return Self::Reads;
        }
        if !matches!(FunctionStatement::of(text, state), Ok(None)) {
            return Self::Functions;
        }
        let Ok(mut statement) = parse(text, state) else { return Self::Reads };
        // An EXECUTE does what was prepared; one that is refused does nothing.
        match executed(&mut statement, state) {
            Ok(_) => of_statement(&statement),
            Err(_) => Self::Reads,
        }
    }
}

fn of_statement(statement: &DFStatement) -> Effect {
    match statement {
        DFStatement::Statement(inner) => of_sql(inner),
        // To plan is not to run; what EXPLAIN ANALYZE runs is its statement.
        DFStatement::Explain(explain) if !explain.options.analyze => Effect::Reads,
        DFStatement::Explain(explain) => of_statement(&explain.statement),
        DFStatement::Reset(_) => Effect::Session,
        DFStatement::CreateExternalTable(_) | DFStatement::CopyTo(_) => Effect::Writes,
    }
}

fn of_sql(statement: &Statement) -> Effect {
    match statement {
        Statement::Query(query) if writes(query) => Effect::Writes,
        Statement::Query(_)
        | Statement::ExplainTable { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowFunctions { .. }
        | Statement::ShowVariable { .. }
        | Statement::ShowVariables { .. }
        | Statement::ShowSchemas { .. }
        | Statement::ShowDatabases { .. }
        | Statement::ShowViews { .. }
        // Nothing of this name was prepared.
        | Statement::Execute { .. } => Effect::Reads,
        Statement::Explain { analyze: false, .. } => Effect::Reads,
        Statement::Explain { statement, .. } => of_sql(statement),
        Statement::Prepare { statement, .. } => of_sql(statement).max(Effect::Session),
        Statement::Deallocate { .. } | Statement::Set(_) | Statement::Discard { .. } => {
            Effect::Session
        }
        _ => Effect::Writes,
    }
}

/// Whether a query has a part that inserts, updates or deletes, or puts its rows into a table.
fn writes(query: &Query) -> bool {
    struct Writing;
    impl Visitor for Writing {
        type Break = Stop;

        fn pre_visit_query(&mut self, query: &Query) -> Flow {
            let is_read = match query.body.as_ref() {
                SetExpr::Insert(_)
                | SetExpr::Update(_)
                | SetExpr::Delete(_)
                | SetExpr::Merge(_) => false,
                SetExpr::Select(select) => select.into.is_none(),
                _ => true,
            };
            if is_read {
                ON
            } else {
                walk::stop(datafusion::common::plan_datafusion_err!("it writes"))
            }
        }
    }
    query.visit(&mut Writing).is_break()
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn statements_are_known_by_what_they_change() {
        let state = SessionContext::new().state();
        for (text, effect) in [
            ("select 1", Effect::Reads),
            ("from t", Effect::Reads),
            ("with x as (select 1) select * from x", Effect::Reads),
            ("values (1)", Effect::Reads),
            ("explain select 1", Effect::Reads),
            ("explain analyze select 1", Effect::Reads),
            ("explain insert into t values (1)", Effect::Reads),
            ("explain analyze insert into t values (1)", Effect::Writes),
            ("explain analyze copy t to 'x.csv'", Effect::Writes),
            ("show tables", Effect::Reads),
            ("show all", Effect::Reads),
            ("describe t", Effect::Reads),
            ("summarize t", Effect::Reads),
            ("selec", Effect::Reads),
            ("set headrace.threads = 2", Effect::Session),
            ("reset headrace.threads", Effect::Session),
            ("prepare p as select $1", Effect::Session),
            ("prepare p as insert into t values ($1)", Effect::Writes),
            ("execute p(1)", Effect::Reads),
            ("deallocate p", Effect::Session),
            ("insert into t values (1)", Effect::Writes),
            ("create table t as select 1", Effect::Writes),
            ("create view t as select 1", Effect::Writes),
            ("create external table t stored as csv location 'x'", Effect::Writes),
            ("drop table t", Effect::Writes),
            ("copy t to 'x.csv'", Effect::Writes),
            ("copy (select 1) to 'x.csv'", Effect::Writes),
            ("select 1 into t", Effect::Writes),
            ("with x as (insert into t values (1)) select 1", Effect::Writes),
            ("select * from (select 1 into t)", Effect::Writes),
            ("delete from t", Effect::Writes),
            ("update t set a = 1", Effect::Writes),
            ("truncate table t", Effect::Writes),
            ("alter table t rename to u", Effect::Writes),
            ("create function f() returns int return 1", Effect::Functions),
            (
                "create function f(a int) returns int language cuda as $$ $$ twin 'a'",
                Effect::Functions,
            ),
            (
                "-- why\nCREATE OR REPLACE FUNCTION f(a int) returns int language cuda as ''",
                Effect::Functions,
            ),
            ("/* why */ create function f(a int)", Effect::Functions),
            ("drop function f", Effect::Functions),
            (
                "prepare p as create function f(a int) returns int language cuda as ''",
                Effect::Writes,
            ),
            (
                "explain analyze create function f(a int) returns int language cuda as ''",
                Effect::Writes,
            ),
            ("begin", Effect::Writes),
        ] {
            assert_eq!(Effect::of(text, &state), effect, "{text}");
        }
    }
}
