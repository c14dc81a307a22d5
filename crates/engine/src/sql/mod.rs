//! What users of other databases write, in the words of the planner.
//!
//! The parsed statement is changed, never its text: `FROM t`, `SUMMARIZE t`, names that differ from
//! a table's or column's only in case, results with two columns of one name. A statement that the
//! planner takes as it stands is left as it stands, except for `FROM t`, which it takes for a
//! query without columns, and `SHOW TABLES`, which lists its own too.
//!
//! It must never know who asks.

pub(crate) mod altered;
pub(crate) mod asof;
mod cell;
mod chosen;
mod columns_calls;
pub(crate) mod cuda_function;
mod describe;
pub(crate) mod dialect;
pub mod effect;
pub mod filled;
mod first_rows;
mod functions;
mod headers;
pub mod keywords;
pub mod lines;
pub(crate) mod nodes;
mod numerals;
pub(crate) mod own;
mod parse;
mod remembered;
mod repair;
mod respelled;
mod reworded;
mod rows_asked;
mod settings;
mod sugar;
mod summarize;
mod table_calls;
mod text;
mod turned;
mod types;
mod values;
pub(crate) mod walk;

use datafusion::common::{Result, TableReference};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Select, SelectFlavor, SelectItem, Statement, VisitorMut, WildcardAdditionalOptions,
};

use crate::catalog::Call;
use crate::fixes::{
    columnless_values, deep_expressions, hidden_tables, ignored_clauses, is_distinct_from,
    named_windows, natural_joins, order_by_outputs, row_comparisons, stars, using_columns,
};
use altered::{Alteration, Residence};

pub use asof::OfAsOfJoins;
pub use cell::CellText;
pub use describe::type_name;
pub use dialect::{HeadraceDialect, of as dialect_of};
pub use headers::Headers;
use own::{change, sql_statement};
use parse::parse;
pub use remembered::{Change, Remembered, View, is_own};
use repair::Repair;
pub use rows_asked::RowsAsked;
pub use text::Places;
use walk::{Flow, ON, Stop};

/// Without the planner's own tables.
const SHOW_TABLES: &str = "select table_name as name from information_schema.tables \
                           where table_schema <> 'information_schema' order by name";

/// A statement that was parsed; its tables may be opened before it is planned.
pub struct Parsed {
    statement: DFStatement,
    headers: Headers,
    /// The query that a SUMMARIZE is about.
    summarized: Option<String>,
    /// Files that it names by functions, by the names that tables of them have.
    calls: Vec<(String, Call)>,
    /// It stands in the place of an EXECUTE, which means another statement in another session.
    is_executed: bool,
    /// It makes a table that is not to last.
    is_temporary: bool,
    /// Where the table that it makes is to be kept.
    residence: Option<Residence>,
}

/// A statement as the planner sees it.
pub struct Planned {
    /// Its plan.
    pub logical: LogicalPlan,
    /// What the columns of its answer are called.
    pub headers: Headers,
}

/// What a text is to whoever makes larger queries of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A query, which may stand in parentheses as a table does.
    Query,
    /// A query without a LIMIT, which may follow.
    Open,
    /// Something else.
    Other,
}

impl Written {
    /// That of a text.
    pub fn of(text: &str, state: &SessionState) -> Self {
        if summarize::subject(text).is_some() {
            return Self::Other;
        }
        match parse(text, state) {
            Ok(DFStatement::Statement(inner)) => match inner.as_ref() {
                Statement::Query(query) => {
                    let is_cut = query.limit_clause.is_some() || query.fetch.is_some();
                    if is_cut || !query.locks.is_empty() { Self::Query } else { Self::Open }
                }
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

impl Parsed {
    /// Parses one statement; names of tables that are there only in another case are theirs.
    ///
    /// # Errors
    /// A text that is no statement.
    pub fn of(text: &str, state: &SessionState) -> Result<Self> {
        let summarized = summarize::subject(text);
        let text = summarized.as_deref().unwrap_or(text);
        let mut statement = parse(text, state)?;
        if let Some(spelled) = settings::spelled(&statement, state.config_options())? {
            statement = parse(&spelled, state)?;
        }
        reworded::copies(&mut statement)?;
        let executed = remembered::executed(&mut statement, state)?;
        let (is_executed, is_temporary) = (executed.is_some(), is_temporary(&mut statement));
        let text = executed.as_ref().map_or(text, |executed| &executed.text);
        let residence = match sql_statement(&mut statement) {
            Some(inner) => Residence::take(inner)?,
            None => None,
        };
        let calls = functions::name(&mut statement, state)?;
        if sql_statement(&mut statement).is_some_and(|inner| is_show_tables(inner)) {
            statement = parse(SHOW_TABLES, state)?;
        }
        change(&mut statement, |inner| {
            table_calls::spell_out(inner, state)?;
            deep_expressions::check(inner)?;
            walk::change_all(inner, &mut FromFirst);
            hidden_tables::rename(inner);
            Ok(())
        })?;
        let headers = Headers::of(&mut statement, text, state);
        if let Some(executed) = &executed {
            change(&mut statement, |inner| {
                crate::functions::fill(inner, &executed.values);
                Ok(())
            })?;
        }
        change(&mut statement, |inner| {
            crate::functions::spell_out(inner)?;
            columnless_values::check(inner)?;
            turned::spell_out(inner)?;
            is_distinct_from::restore(inner);
            first_rows::spell_out(inner)?;
            reworded::spell_out(inner)?;
            ignored_clauses::check(inner, state)?;
            sugar::spell_out(inner);
            row_comparisons::spell_out(inner)?;
            numerals::spell_out(inner);
            types::spell_out(inner);
            named_windows::write_out(inner)
        })?;
        repair::tables(&mut statement, state)?;
        Ok(Self { statement, headers, summarized, calls, is_executed, is_temporary, residence })
    }

    /// Where the table that it makes is to be kept.
    pub fn residence(&self) -> Option<Residence> {
        self.residence
    }

    /// What it alters, if that is what it does.
    ///
    /// # Errors
    /// Whatever else an ALTER TABLE would change.
    pub fn alteration(&self) -> Result<Option<Alteration>> {
        match &self.statement {
            DFStatement::Statement(inner) => match inner.as_ref() {
                Statement::AlterTable(alter) => Alteration::of(alter).map(Some),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Whether it is a query.
    pub fn is_query(&self) -> bool {
        match &self.statement {
            DFStatement::Statement(inner) => matches!(inner.as_ref(), Statement::Query(_)),
            _ => false,
        }
    }

    /// Whether its text means the same in every session of the same settings.
    pub fn is_of_its_text(&self) -> bool {
        !self.is_executed
    }

    /// Whether it makes a table that is not to last.
    pub fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    /// What it calls that reads files, to be made known before it is planned.
    pub fn take_calls(&mut self) -> Vec<(String, Call)> {
        std::mem::take(&mut self.calls)
    }

    /// The tables that it names.
    ///
    /// # Errors
    /// A name of more parts than the planner knows.
    pub fn tables(&self, state: &SessionState) -> Result<Vec<TableReference>> {
        state.resolve_table_references(&self.statement)
    }

    /// Plans it.
    ///
    /// # Errors
    /// What the planner says of it.
    pub async fn plan(self, state: &SessionState) -> Result<Planned> {
        let summarized = self.summarized.clone();
        let planned = self.plan_statement(state).await?;
        let Some(query) = summarized else { return Ok(planned) };
        let query = summarize::query_of(planned.logical.schema(), &query);
        Self::of(&query, state)?.plan_statement(state).await
    }

    async fn plan_statement(mut self, state: &SessionState) -> Result<Planned> {
        if let Some(inner) = sql_statement(&mut self.statement) {
            natural_joins::spell_out(inner, state).await?;
            chosen::write_out(inner, &mut self.headers, state).await?;
        }
        change(&mut self.statement, |inner| {
            using_columns::merge(inner)?;
            asof::fold(inner);
            order_by_outputs::outside(inner);
            Ok(())
        })?;
        stars::leave_out(&mut self.statement)?;
        let mut repair = Repair::default();
        loop {
            let error = match state.statement_to_plan(self.statement.clone()).await {
                Ok(logical) => {
                    if repair.planned(&logical, &mut self.statement) {
                        continue;
                    }
                    return Ok(Planned {
                        logical: describe::in_sql(stars::restore(logical)?)?,
                        headers: self.headers,
                    });
                }
                Err(error) => error,
            };
            if !repair.after(&error, &mut self.statement, &mut self.headers) {
                return Err(repair.first_error(error));
            }
        }
    }
}

/// Whether it makes a table that is not to last.
fn is_temporary(statement: &mut DFStatement) -> bool {
    let inner = sql_statement(statement);
    inner.is_some_and(|inner| matches!(inner, Statement::CreateTable(table) if table.temporary))
}

fn is_show_tables(statement: &Statement) -> bool {
    matches!(statement, Statement::ShowTables { .. }) && statement.to_string() == "SHOW TABLES"
}

/// `FROM t` is `SELECT * FROM t`.
struct FromFirst;

impl VisitorMut for FromFirst {
    type Break = Stop;

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        }
        select.flavor = SelectFlavor::Standard;
        ON
    }
}
