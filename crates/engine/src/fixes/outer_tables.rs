//! `city.id` is a column of the table `city`, of an outer query, too, before it is a field of a column `city`.
//!
//! ```sql
//! SELECT (SELECT city.id FROM t) FROM city  -- t has a column city with a field id
//! ```
//!
//! - DataFusion: The field of `t`'s column; right is the column of the table `city`.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! The planner looks for a column `city` of the subquery's own tables first. Which columns those have is known to it alone;
//! so where it has taken a table for a column, the outer tables that subqueries name get names that no column has.

use std::collections::HashSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr as Planned, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias, TableFactor, VisitorMut,
};

use crate::sql::nodes::plain_name;
use crate::sql::walk::{self, Flow, ON, Stop};

/// Gives the outer tables that subqueries name other names, if a plan took one for a column; whether it did.
pub fn make_plain(statement: &mut Statement, plan: &LogicalPlan) -> bool {
    let fields_of = columns_with_fields(plan);
    if fields_of.is_empty() {
        return false;
    }
    let mut find = Walk::default();
    walk::change_all(statement, &mut find);
    let mut renamed = find.found;
    renamed.retain(|(_, name)| fields_of.contains(name));
    if renamed.is_empty() {
        return false;
    }
    walk::change_all(statement, &mut Walk { renamed: Some(renamed), ..Walk::default() });
    true
}

/// The columns of which a plan takes fields.
fn columns_with_fields(plan: &LogicalPlan) -> HashSet<String> {
    let mut columns = HashSet::new();
    let mut see = |part: &Planned| {
        if let Planned::ScalarFunction(call) = part
            && call.func.name() == "get_field"
            && let Some(Planned::Column(column)) = call.args.first()
        {
            columns.insert(column.name.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    };
    let seen =
        plan.apply_with_subqueries(|node| node.apply_expressions(|expr| expr.apply(&mut see)));
    // What was not seen is not renamed.
    let _ = seen;
    columns
}

/// A table's name in the query of a number.
type Named = (usize, String);

/// The queries around a node.
#[derive(Default)]
struct Walk {
    queries: usize,
    scopes: Vec<(usize, HashSet<String>)>,
    /// Tables that subqueries name, to be found.
    found: HashSet<Named>,
    /// Tables that are renamed.
    renamed: Option<HashSet<Named>>,
}

impl Walk {
    /// The query whose table a name is, and whether it is an outer one.
    fn owner(&self, name: &str) -> Option<(usize, bool)> {
        let place = self.scopes.iter().rposition(|(_, tables)| tables.contains(name))?;
        Some((self.scopes[place].0, place + 1 < self.scopes.len()))
    }

    fn see(&mut self, name: &mut Ident) {
        let plain = plain_name(name);
        let Some((query, is_outer)) = self.owner(&plain) else { return };
        match &self.renamed {
            Some(renamed) if renamed.contains(&(query, plain.clone())) => *name = other(&plain),
            None if is_outer => {
                self.found.insert((query, plain));
            }
            _ => {}
        }
    }

    fn rename_tables(&self, select: &mut Select, query: usize) {
        let Some(renamed) = &self.renamed else { return };
        for from in &mut select.from {
            let joined = from.joins.iter_mut().map(|join| &mut join.relation);
            for table in std::iter::once(&mut from.relation).chain(joined) {
                rename(table, |name| renamed.contains(&(query, name.to_string())));
            }
        }
    }
}

/// A name that no column has.
fn other(name: &str) -> Ident {
    Ident::with_quote('"', format!("table {name}"))
}

fn name_of(table: &TableFactor) -> Option<String> {
    match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(plain_name(&alias.name)),
        TableFactor::Table { name, .. } => match name.0.last() {
            Some(ObjectNamePart::Identifier(name)) => Some(plain_name(name)),
            _ => None,
        },
        _ => None,
    }
}

fn rename(table: &mut TableFactor, is_renamed: impl Fn(&str) -> bool) {
    let Some(name) = name_of(table).filter(|name| is_renamed(name)) else { return };
    match table {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::UNNEST { alias, .. } => match alias {
            Some(alias) => alias.name = other(&name),
            None => {
                *alias = Some(TableAlias {
                    explicit: true,
                    name: other(&name),
                    columns: Vec::new(),
                    at: None,
                });
            }
        },
        _ => {}
    }
}

/// The SELECTs of a query's own.
fn selects<'a>(body: &'a mut SetExpr, visit: &mut dyn FnMut(&'a mut Select)) {
    match body {
        SetExpr::Select(select) => visit(select),
        SetExpr::SetOperation { left, right, .. } => {
            selects(left, visit);
            selects(right, visit);
        }
        _ => {}
    }
}

impl VisitorMut for Walk {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        let number = self.queries;
        self.queries += 1;
        let mut tables = HashSet::new();
        selects(&mut query.body, &mut |select| {
            for from in &select.from {
                let joined = from.joins.iter().map(|join| &join.relation);
                let all = std::iter::once(&from.relation).chain(joined);
                tables.extend(all.filter_map(name_of));
            }
        });
        self.scopes.push((number, tables));
        selects(&mut query.body, &mut |select| self.rename_tables(select, number));
        ON
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.scopes.pop();
        ON
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(ObjectName(parts)),
                _,
            ) = item
                && let [ObjectNamePart::Identifier(name)] = parts.as_mut_slice()
            {
                self.see(name);
            }
        }
        ON
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::CompoundIdentifier(names) = expr
            && let [table, _, ..] = names.as_mut_slice()
        {
            self.see(table);
        }
        ON
    }
}
