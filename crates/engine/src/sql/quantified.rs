//! `x < ALL (SELECT ..)` and `x < ANY (SELECT ..)` over a table that is in the outer query, too.
//!
//! The planner sets the comparison above the subquery, where a column of the outer query that is called as one of the
//! subquery's, by the same table's name, is taken for it: every row is compared with itself. A subquery that is a
//! table with a name of its own hides the names of its tables. It can no longer look outside, so only subqueries are given
//! one whose tables are named elsewhere in the statement; what looks outside under such a name is refused by the planner.

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectNamePart, Statement, TableFactor, Visit, Visitor, VisitorMut,
};

use super::walk::{self, Flow, ON, Stop};

/// What such a subquery is called.
const NAME: &str = "quantified";

/// Gives subqueries of ANY and ALL names of their own where their tables' names are also others'.
pub fn name(statement: &mut Statement) {
    let all = Names::of(statement);
    walk::change_all(statement, &mut Name(all));
}

/// How often tables of a name are in some part of a statement.
#[derive(Default)]
struct Names(HashMap<String, usize>);

impl Names {
    fn of(part: &impl Visit) -> Self {
        let mut names = Self::default();
        walk::look_at_all(part, &mut names);
        names
    }
}

impl Visitor for Names {
    type Break = Stop;

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> Flow {
        if let TableFactor::Table { name, alias, .. } = table {
            let ident = match (alias, name.0.last()) {
                (Some(alias), _) => Some(&alias.name),
                (None, Some(ObjectNamePart::Identifier(last))) => Some(last),
                (None, _) => None,
            };
            if let Some(ident) = ident {
                *self.0.entry(ident.value.to_lowercase()).or_default() += 1;
            }
        }
        ON
    }
}

struct Name(Names);

impl VisitorMut for Name {
    type Break = Stop;

    // Subqueries of a subquery come before it.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = expr
            && let Expr::Subquery(query) = right.as_mut()
            && Names::of(&**query).0.iter().any(|(name, inside)| self.0.0.get(name) > Some(inside))
        {
            super::put_into_from(query, NAME);
        }
        ON
    }
}
