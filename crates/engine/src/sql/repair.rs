//! What is tried when the planner refuses a statement: names in another case than the table's,
//! columns of one name or of none, casts that are called as what they cast, and tables that are called as a column. A statement that cannot be mended fails as it did at first.

use std::mem;

use datafusion::common::{Column, DataFusionError, Result, SchemaError, TableReference};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;

use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, Expr, Ident, ObjectName, ObjectNamePart, Statement, VisitorMut,
};

use super::headers::{Headers, make_unique, make_way, name_by_lists, name_subqueries};
use super::own::sql_statement;
use super::walk::{self, Flow, ON, Stop};
use crate::fixes::{cast_names, outer_tables};

/// What the planner says of ORDER BY 1 where that is computed from keys of groups.
const NAMELESS: &str = "Column in ORDER BY must be in GROUP BY";
/// What it says of two columns, groups, aggregates or windows of one name.
const EQUAL_NAMES: &str = "require unique expression names";

fn wants_names(text: &str) -> bool {
    text.contains(NAMELESS) || text.contains(EQUAL_NAMES)
}

/// What was tried so far.
#[derive(Default)]
pub struct Repair {
    made_unique: bool,
    named_casts: bool,
    named_subqueries: bool,
    named_lists: bool,
    made_way: bool,
    plain_qualifiers: bool,
    /// Names of columns that were replaced.
    renamed: Vec<String>,
    first: Option<DataFusionError>,
}

impl Repair {
    /// Changes a statement that failed; false if it knows nothing more.
    pub fn after(
        &mut self,
        error: &DataFusionError,
        statement: &mut DFStatement,
        headers: &mut Headers,
    ) -> bool {
        let done = match error.find_root() {
            DataFusionError::SchemaError(schema, _) => match schema.as_ref() {
                SchemaError::FieldNotFound { field, valid_fields } => {
                    self.column(field, valid_fields, statement)
                }
                SchemaError::DuplicateQualifiedField { .. }
                | SchemaError::DuplicateUnqualifiedField { .. }
                | SchemaError::AmbiguousReference { .. } => {
                    return self.casts(statement)
                        || self.subqueries(statement)
                        || self.lists(statement)
                        || self.aliases(statement, headers);
                }
            },
            DataFusionError::Plan(text) if wants_names(text) => {
                if self.lists(statement) {
                    return true;
                }
                let named = !mem::replace(&mut self.made_unique, true);
                (named && make_unique(statement, headers)) || self.casts(statement)
            }
            _ => false,
        };
        if done && self.first.is_none() {
            self.first = Some(DataFusionError::Plan(error.find_root().message().to_string()));
        }
        done
    }

    /// Outputs that are subqueries: each is called as its column, which another output may be.
    fn subqueries(&mut self, statement: &mut DFStatement) -> bool {
        let done = mem::replace(&mut self.named_subqueries, true);
        !done && name_subqueries(statement)
    }

    /// Subqueries with two columns of one name, which a list behind their alias calls otherwise.
    fn lists(&mut self, statement: &mut DFStatement) -> bool {
        let done = mem::replace(&mut self.named_lists, true);
        !done && name_by_lists(statement)
    }

    /// Aliases that are called as a column of ORDER BY.
    fn aliases(&mut self, statement: &mut DFStatement, headers: &mut Headers) -> bool {
        let done = mem::replace(&mut self.made_way, true);
        !done && make_way(statement, headers)
    }

    /// Changes a statement whose plan takes a table for a column; false if it does not.
    pub fn planned(&mut self, plan: &LogicalPlan, statement: &mut DFStatement) -> bool {
        let done = mem::replace(&mut self.plain_qualifiers, true);
        let inner = sql_statement(statement).filter(|_| !done);
        inner.is_some_and(|inner| outer_tables::make_plain(inner, plan))
    }

    /// A column that is there only in another case.
    fn column(&mut self, missing: &Column, valid: &[Column], statement: &mut DFStatement) -> bool {
        let lower = missing.name.to_lowercase();
        let Some(inner) = sql_statement(statement) else { return false };
        // The planner takes the columns that an UPDATE sets as they are written.
        let is_set = targets(inner).iter().any(|name| is_unquoted(name, &lower));
        if (missing.name != lower && !is_set) || self.renamed.contains(&lower) {
            return false;
        }
        let mut exact: Vec<&str> =
            valid.iter().map(Column::name).filter(|name| name.to_lowercase() == lower).collect();
        exact.sort_unstable();
        exact.dedup();
        let &[exact] = exact.as_slice() else { return false };
        walk::change_all(inner, &mut RenameColumn { from: &lower, to: exact });
        for name in targets(inner).into_iter().filter(|name| is_unquoted(name, &lower)) {
            *name = Ident::with_quote('"', exact);
        }
        self.renamed.push(lower);
        true
    }

    /// Casts, where two things have one name.
    fn casts(&mut self, statement: &mut DFStatement) -> bool {
        let done = mem::replace(&mut self.named_casts, true);
        let Some(inner) = sql_statement(statement).filter(|_| !done) else { return false };
        cast_names::name(inner)
    }

    /// The error of the statement as it was written, where the last one speaks of what was made of it.
    pub fn first_error(self, last: DataFusionError) -> DataFusionError {
        let still = matches!(last.find_root(), DataFusionError::Plan(text) if wants_names(text));
        self.first.filter(|_| still).unwrap_or(last)
    }
}

/// The columns that a statement writes to.
fn targets(statement: &mut Statement) -> Vec<&mut Ident> {
    match statement {
        Statement::Insert(insert) => insert.columns.iter_mut().filter_map(column_of).collect(),
        Statement::Update(update) => {
            update.assignments.iter_mut().filter_map(|set| set_by(&mut set.target)).collect()
        }
        _ => Vec::new(),
    }
}

fn set_by(target: &mut AssignmentTarget) -> Option<&mut Ident> {
    match target {
        AssignmentTarget::ColumnName(name) => column_of(name),
        AssignmentTarget::Tuple(_) => None,
    }
}

fn column_of(name: &mut ObjectName) -> Option<&mut Ident> {
    match name.0.last_mut()? {
        ObjectNamePart::Identifier(name) => Some(name),
        ObjectNamePart::Function(_) => None,
    }
}

/// Gives tables that are there only in another case their own names.
pub fn tables(statement: &mut DFStatement, state: &SessionState) -> Result<()> {
    let references = state.resolve_table_references(statement)?;
    let Some(inner) = sql_statement(statement) else { return Ok(()) };
    for reference in references {
        if let Some(exact) = in_another_case(&reference, state) {
            walk::change_all(inner, &mut RenameTable { from: reference.table(), to: &exact });
        }
    }
    Ok(())
}

/// The one table whose name differs from a reference to no table only in case.
fn in_another_case(reference: &TableReference, state: &SessionState) -> Option<String> {
    let schema = state.schema_for_ref(reference.clone()).ok()?;
    if schema.table_exist(reference.table()) {
        return None;
    }
    let lower = reference.table().to_lowercase();
    let mut found = schema.table_names().into_iter().filter(|name| name.to_lowercase() == lower);
    let exact = found.next()?;
    found.next().is_none().then_some(exact)
}

fn is_unquoted(name: &Ident, lower: &str) -> bool {
    name.quote_style.is_none() && name.value.to_lowercase() == lower
}

struct RenameTable<'a> {
    from: &'a str,
    to: &'a str,
}

impl VisitorMut for RenameTable<'_> {
    type Break = Stop;

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> Flow {
        if let Some(ObjectNamePart::Identifier(name)) = relation.0.last_mut()
            && is_unquoted(name, self.from)
        {
            *name = Ident::with_quote('"', self.to);
        }
        ON
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::CompoundIdentifier(names) = expr
            && let [.., table, _] = names.as_mut_slice()
            && is_unquoted(table, self.from)
        {
            *table = Ident::with_quote('"', self.to);
        }
        ON
    }
}

struct RenameColumn<'a> {
    from: &'a str,
    to: &'a str,
}

impl VisitorMut for RenameColumn<'_> {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(names) => names.last_mut(),
            _ => None,
        };
        if let Some(name) = name
            && is_unquoted(name, self.from)
        {
            *name = Ident::with_quote('"', self.to);
        }
        ON
    }
}
