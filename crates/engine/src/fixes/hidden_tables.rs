//! `WITH a AS (..) SELECT (WITH a AS (..) SELECT * FROM a)`: a WITH of an inner query hides one of a query around it.
//!
//! ```sql
//! WITH a AS (SELECT 1 AS x) SELECT (WITH a AS (SELECT 2 AS x) SELECT x FROM a) FROM a
//! ```
//!
//! - DataFusion: Refused, since `a` is there twice; right is 2.
//! - Upstream: no upstream issue known; the review of apache/datafusion#18956 tells of it.
//! - This can go when its canary finds the fault mended.
//!
//! The planner knows one table of a name. So what hides another is called otherwise, wherever the inner query names it.

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectNamePart, Query, Statement, TableAlias, TableFactor, VisitorMut,
};

use crate::sql::nodes::plain_name;
use crate::sql::walk::{self, Flow, ON, Stop};

/// Gives such tables names of their own.
pub fn rename(statement: &mut Statement) {
    walk::change_all(statement, &mut Scopes::default());
}

/// The names that the queries around a node give tables.
#[derive(Default)]
struct Scopes {
    names: Vec<Vec<String>>,
    renamed: usize,
}

impl VisitorMut for Scopes {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.names.push(tables.map(|table| plain_name(&table.alias.name)).collect());
        ON
    }

    // Those within a query have other names by then.
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        for name in self.names.pop().unwrap_or_default() {
            if self.names.iter().flatten().any(|outer| *outer == name) {
                self.renamed += 1;
                hide(query, &name, &format!("{name} within, {}", self.renamed));
            }
        }
        ON
    }
}

/// Calls a table of a query's WITH otherwise, and says so to what follows it.
fn hide(query: &mut Query, name: &str, other: &str) {
    let mut references = References { name, other };
    let Some(mut with) = query.with.take() else { return };
    let own = with.cte_tables.iter().position(|table| plain_name(&table.alias.name) == name);
    if let Some(own) = own {
        // What stands before, and itself unless it is recursive, means the outer one.
        let from = if with.recursive { own } else { own + 1 };
        with.cte_tables[own].alias.name = Ident::with_quote('"', other);
        for table in with.cte_tables.iter_mut().skip(from) {
            walk::change_all(&mut table.query, &mut references);
        }
        walk::change_all(query, &mut references);
    }
    query.with = Some(with);
}

struct References<'a> {
    name: &'a str,
    other: &'a str,
}

impl VisitorMut for References<'_> {
    type Break = Stop;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> Flow {
        if let TableFactor::Table { name, alias, args: None, .. } = table
            && let [ObjectNamePart::Identifier(written)] = name.0.as_mut_slice()
            && plain_name(written) == self.name
        {
            let (explicit, columns) = (true, Vec::new());
            let name = std::mem::replace(written, Ident::with_quote('"', self.other));
            alias.get_or_insert(TableAlias { explicit, name, columns, at: None });
        }
        ON
    }
}
