//! The tables of a statement as they are now: those of files opened, views planned over what they name.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, TableReference, plan_err};
use datafusion::datasource::ViewTable;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::optimizer::Analyzer;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;

use crate::catalog::with_opened;
use crate::session::{GivenTables, Session};
use crate::sql::Parsed;

impl Session {
    /// Those of the tables that are of paths, as their files are now, and views, as their tables are now, by their names.
    /// `views` are those that the statement stands in.
    pub(crate) async fn open_now(
        &self,
        references: &[TableReference],
        options: &ConfigOptions,
        views: &[String],
    ) -> Result<Vec<(String, Arc<dyn TableProvider>)>> {
        let (names, mut opened) = (&options.catalog, Vec::new());
        for reference in references {
            let named = reference.clone().resolve(&names.default_catalog, &names.default_schema);
            if *named.catalog != names.default_catalog {
                continue;
            }
            if let Some(schema) = self.tables_of(&named.schema) {
                let table = schema.open(&named.table).await?;
                opened.extend(table.map(|table| (schema.key(&named.table), table)));
            } else if *named.schema == names.default_schema {
                let Some(table) = self.tables.open(&named.table).await? else { continue };
                let name = named.table.to_string();
                let view = self.remembered.view(&name).filter(|_| table.is::<ViewTable>());
                let anew = match view {
                    Some(view) => {
                        let anew = Box::pin(self.view(&name, &view.text, views)).await?;
                        // Nor is there what had its name before.
                        if anew.is_none() && table.schema().fields().is_empty() {
                            return plan_err!("the view {name} reads itself");
                        }
                        anew
                    }
                    None => None,
                };
                opened.push((name, anew.unwrap_or(table)));
            }
        }
        Ok(opened)
    }

    /// A text parsed, and the tables that it names.
    pub(crate) fn named(
        &self,
        text: &str,
        state: &SessionState,
    ) -> Result<(Parsed, Vec<TableReference>)> {
        let mut parsed = Parsed::of(text, state)?;
        self.tables.add_calls(parsed.take_calls());
        let references = parsed.tables(state)?;
        Ok((parsed, references))
    }

    /// The plan of a text over the tables as they are now and those that are given; `views` as in
    /// [`open_now`](Self::open_now).
    async fn logical_over(
        &self,
        (parsed, references): (Parsed, Vec<TableReference>),
        state: &SessionState,
        given: GivenTables,
        views: &[String],
    ) -> Result<LogicalPlan> {
        let opened = self.open_now(&references, state.config_options(), views).await?;
        let tables = opened.into_iter().chain(given).collect();
        Ok(with_opened(tables, parsed.plan(state)).await?.logical)
    }

    /// The types of a statement's parameters `$1`, `$2`, .. as far as they follow from where they stand.
    ///
    /// # Errors
    /// What the planner says of the statement.
    pub async fn parameter_types(
        &self,
        text: &str,
        given: GivenTables,
    ) -> Result<Vec<Option<DataType>>> {
        let state = self.context().state();
        let named = self.named(text, &state)?;
        let known = self.logical_over(named, &state, given, &[]).await?.get_parameter_types()?;
        let nth = |name: &String| name.strip_prefix('$').and_then(|nth| nth.parse::<usize>().ok());
        let count = known.keys().filter_map(nth).max().unwrap_or(0);
        Ok((1..=count).map(|nth| known.get(&format!("${nth}")).cloned().flatten()).collect())
    }

    /// A query as a table, over the session's tables as they are now and those that are given.
    ///
    /// # Errors
    /// What the planner says of it.
    pub async fn view_over(
        &self,
        query: &str,
        given: GivenTables,
    ) -> Result<Arc<dyn TableProvider>> {
        let state = self.context().state();
        let named = self.named(&format!("CREATE VIEW v AS\n{query}"), &state)?;
        let logical = self.logical_over(named, &state, given, &[]).await?;
        view_of(logical, state.config_options())
    }

    /// A view of the tables as they are now; `None` of one that stands on what had its name before.
    async fn view(
        &self,
        name: &str,
        text: &str,
        views: &[String],
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        let state = self.context().state();
        let named = self.named(text, &state)?;
        let views = [views, &[name.to_string()]].concat();
        if named.1.iter().any(|table| views.iter().any(|view| view == table.table())) {
            return Ok(None);
        }
        let logical = self.logical_over(named, &state, GivenTables::new(), &views).await?;
        view_of(logical, state.config_options()).map(Some)
    }
}

/// The view that a CREATE VIEW makes.
fn view_of(logical: LogicalPlan, options: &ConfigOptions) -> Result<Arc<dyn TableProvider>> {
    match logical {
        LogicalPlan::Ddl(DdlStatement::CreateView(view)) => {
            let coerced = Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]);
            let rows = Arc::unwrap_or_clone(view.input);
            let rows = coerced.execute_and_check(rows, options, |_, _| {})?;
            Ok(Arc::new(ViewTable::new(rows, view.definition)))
        }
        // A file of a view may have any text.
        _ => plan_err!("a view is made by CREATE VIEW, and its text is another statement"),
    }
}
