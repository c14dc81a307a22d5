//! The name of a table as the argument of a function of a table is the subquery of all its columns: so it is opened as any other.

use datafusion::common::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, ObjectName, ObjectNamePart, Statement, TableFactor,
    VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;

use super::dialect::HeadraceDialect;
use super::walk::{self, Flow, ON, Stop};
use crate::functions::cuda_table::Known;

/// Spells out the tables of calls.
///
/// # Errors
/// None that planning does not tell better.
pub fn spell_out(statement: &mut Statement, state: &SessionState) -> Result<()> {
    walk::change(statement, &mut Speller { state })
}

struct Speller<'a> {
    state: &'a SessionState,
}

impl VisitorMut for Speller<'_> {
    type Break = Stop;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        let TableFactor::Table { name, args: Some(args), .. } = factor else { return ON };
        if !self.is_known(name) {
            return ON;
        }
        if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(table))) = args.args.first_mut()
            && matches!(table, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        {
            let text = format!("SELECT * FROM {table}");
            let query = Parser::new(&HeadraceDialect)
                .try_with_sql(&text)
                .and_then(|mut parser| parser.parse_query());
            match query {
                Ok(query) => *table = Expr::Subquery(query),
                Err(error) => return walk::stop(error.into()),
            }
        }
        ON
    }
}

impl Speller<'_> {
    fn is_known(&self, name: &ObjectName) -> bool {
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else { return false };
        let name = match ident.quote_style {
            None => ident.value.to_ascii_lowercase(),
            Some(_) => ident.value.clone(),
        };
        let known = self.state.table_functions().get(&name);
        known.is_some_and(|known| {
            let known: &dyn std::any::Any = known.function().as_ref();
            known.is::<Known>()
        })
    }
}
