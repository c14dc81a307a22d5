//! `a NATURAL JOIN b` is `a JOIN b USING (..)` of the columns that both have, in the order of `a`.
//!
//! ```sql
//! SELECT k FROM a NATURAL RIGHT JOIN b
//! ```
//!
//! - DataFusion: NULL in rows that `b` alone has; right is its `k`.
//! - Upstream: apache/datafusion#22881.
//! - This can go when its canary finds the fault mended.
//!
//! Which columns tables have is known where a statement is planned. Of what is no table by name, such as a subquery, the
//! planner finds them; then `*` has the columns of both where the first side has them.

use std::collections::{HashMap, HashSet};

use datafusion::common::{Result, TableReference};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{
    Cte, Ident, Join, JoinConstraint, ObjectName, ObjectNamePart, Query, Select, Statement,
    TableFactor, Visitor, VisitorMut,
};

use super::using_columns;
use crate::sql::nodes::plain_name;
use crate::sql::walk::{self, Flow, ON, Stop};

/// Spells out NATURAL joins of tables.
///
/// # Errors
/// A table that cannot be looked at.
pub async fn spell_out(statement: &mut Statement, state: &SessionState) -> Result<()> {
    let mut found = Found::default();
    walk::look_at_all(statement, &mut found);
    let mut columns = HashMap::new();
    for name in found.tables.difference(&found.hidden) {
        let schema = state.schema_for_ref(TableReference::bare(name.as_str()))?;
        if let Some(table) = schema.table(name).await? {
            let names = table.schema().fields().iter().map(|field| field.name().clone()).collect();
            columns.insert(name.clone(), names);
        }
    }
    if !columns.is_empty() {
        walk::change_all(statement, &mut SpellOut(columns));
    }
    Ok(())
}

/// The tables beside NATURAL, and the queries of WITH, which hide tables.
#[derive(Default)]
struct Found {
    tables: HashSet<String>,
    hidden: HashSet<String>,
}

impl Visitor for Found {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        self.hidden.extend(with.map(|Cte { alias, .. }| plain_name(&alias.name)));
        ON
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        for from in &select.from {
            if from.joins.iter().any(is_natural) {
                let joined = from.joins.iter().map(|join| &join.relation);
                self.tables.extend(std::iter::once(&from.relation).chain(joined).filter_map(table));
            }
        }
        ON
    }
}

fn is_natural(join: &Join) -> bool {
    matches!(using_columns::constraint_of(join), Some(JoinConstraint::Natural))
}

/// The name of a table without a schema and without names for its columns.
fn table(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { name, alias, args: None, .. }
            if alias.as_ref().is_none_or(|alias| alias.columns.is_empty()) =>
        {
            match name.0.as_slice() {
                [ObjectNamePart::Identifier(name)] => Some(plain_name(name)),
                _ => None,
            }
        }
        _ => None,
    }
}

struct SpellOut(HashMap<String, Vec<String>>);

impl VisitorMut for SpellOut {
    type Break = Stop;

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for from in &mut select.from {
            let columns = |factor: &TableFactor| table(factor).and_then(|name| self.0.get(&name));
            let Some(mut left) = columns(&from.relation).cloned() else { continue };
            for join in &mut from.joins {
                let Some(right) = columns(&join.relation).cloned() else { break };
                if is_natural(join)
                    && let Some(constraint) = using_columns::constraint(&mut join.join_operator)
                {
                    let both = left.iter().filter(|name| right.contains(name));
                    let both: Vec<ObjectName> = both.map(|name| quoted(name)).collect();
                    // Without any, all pairs are joined.
                    if !both.is_empty() {
                        *constraint = JoinConstraint::Using(both);
                    }
                }
                let known: HashSet<String> = left.iter().cloned().collect();
                left.extend(right.into_iter().filter(|name| !known.contains(name)));
            }
        }
        ON
    }
}

fn quoted(name: &str) -> ObjectName {
    ObjectName::from(vec![Ident::with_quote('"', name)])
}
