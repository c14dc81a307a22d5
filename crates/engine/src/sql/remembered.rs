//! Statements that are planned anew whenever they are used: those of PREPARE, and the queries of views.
//!
//! The planner keeps their plans. But files are replaced and tables made again: what is kept here is the text. EXECUTE is
//! the prepared statement with the parameters' values in their places, of the types that they were prepared with.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, TableReference, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement as Planned};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    CastKind, Expr, ObjectNamePart, Statement, Value, ValueWithSpan, Visitor,
};
use parking_lot::RwLock;

use super::describe::type_name;
use super::nodes::plain_name;
use super::own::{parse_expr, sql_statement};
use super::parse::parse;
use super::walk::{self, Flow, ON, Stop};

/// The texts of a session.
#[derive(Debug, Default)]
pub struct Remembered {
    prepared: RwLock<HashMap<String, Prepared>>,
    /// Sessions over the same tables have the same.
    views: Arc<RwLock<HashMap<String, View>>>,
}

/// A view.
#[derive(Clone, Debug)]
pub struct View {
    /// The statement that made it.
    pub text: String,
    /// Where that is kept, if it is.
    pub file: Option<PathBuf>,
}

/// A statement that was prepared.
#[derive(Clone, Debug)]
struct Prepared {
    /// The text of the whole PREPARE.
    text: String,
    /// The types of its parameters, in SQL, as far as they are known.
    types: Vec<String>,
}

/// What a statement changes here, once it has taken effect.
pub enum Change {
    /// Nothing.
    Nothing,
    /// A statement was prepared.
    Prepared(String, Vec<String>),
    /// A prepared statement was given up.
    Deallocated(String),
    /// A view was made.
    View(String),
    /// A view was dropped.
    NoView(String),
}

impl Change {
    /// What a plan would change.
    pub fn of(plan: &LogicalPlan, options: &ConfigOptions) -> Self {
        match plan {
            LogicalPlan::Statement(Planned::Prepare(prepare)) => {
                let types = prepare.fields.iter().map(|field| type_name(field.data_type()));
                Self::Prepared(prepare.name.clone(), types.collect())
            }
            LogicalPlan::Statement(Planned::Deallocate(name)) => {
                Self::Deallocated(name.name.clone())
            }
            LogicalPlan::Ddl(DdlStatement::CreateView(view)) if is_own(&view.name, options) => {
                Self::View(view.name.table().to_string())
            }
            LogicalPlan::Ddl(DdlStatement::DropView(view)) if is_own(&view.name, options) => {
                Self::NoView(view.name.table().to_string())
            }
            _ => Self::Nothing,
        }
    }
}

/// Whether a name is one of the schema that is always there: views of others are not remembered.
pub fn is_own(name: &TableReference, options: &ConfigOptions) -> bool {
    let own = &options.catalog;
    name.schema().is_none_or(|schema| schema == own.default_schema)
        && name.catalog().is_none_or(|catalog| catalog == own.default_catalog)
}

impl Remembered {
    /// Remembers what a statement has changed, of a view the file that has it, too; what was known of that view.
    pub fn apply(&self, change: Change, text: &str, file: Option<PathBuf>) -> Option<View> {
        let text = text.to_string();
        match change {
            Change::Nothing => None,
            Change::Prepared(name, types) => {
                self.prepared.write().insert(name, Prepared { text, types });
                None
            }
            Change::Deallocated(name) => {
                self.prepared.write().remove(&name);
                None
            }
            Change::View(name) => self.views.write().insert(name, View { text, file }),
            Change::NoView(name) => self.views.write().remove(&name),
        }
    }

    /// Has a view be as it was.
    pub fn put_back(&self, name: &str, earlier: Option<View>) {
        let mut views = self.views.write();
        match earlier {
            Some(view) => views.insert(name.to_string(), view),
            None => views.remove(name),
        };
    }

    /// For another session over the same tables: it has prepared nothing.
    pub fn beside(&self) -> Self {
        Self { prepared: RwLock::default(), views: Arc::clone(&self.views) }
    }

    /// What is known of a view.
    pub fn view(&self, name: &str) -> Option<View> {
        self.views.read().get(name).cloned()
    }
}

/// What an EXECUTE runs.
pub struct Execution {
    /// The text that the statement stands in.
    pub text: String,
    /// The values of its parameters.
    pub values: Vec<Expr>,
}

/// Puts the prepared statement, whose parameters have no values yet, in the place of an EXECUTE.
///
/// # Errors
/// Other parameters than it was prepared with.
pub fn executed(statement: &mut DFStatement, state: &SessionState) -> Result<Option<Execution>> {
    let Some(inner) = sql_statement(statement) else { return Ok(None) };
    let Statement::Execute { name: Some(name), parameters, immediate: false, using, .. } = inner
    else {
        return Ok(None);
    };
    let ([ObjectNamePart::Identifier(name)], true) = (name.0.as_slice(), using.is_empty()) else {
        return Ok(None);
    };
    let remembered: Option<Arc<Remembered>> = state.config().get_extension();
    let known = remembered.and_then(|texts| texts.prepared.read().get(&plain_name(name)).cloned());
    let Some(Prepared { text, types }) = known else { return Ok(None) };
    let DFStatement::Statement(prepare) = parse(&text, state)? else { return Ok(None) };
    let Statement::Prepare { statement: meant, data_types, .. } = *prepare else { return Ok(None) };
    let mut parameters_of = Parameters(0);
    walk::look_at_all(meant.as_ref(), &mut parameters_of);
    let count = parameters_of.0.max(data_types.len());
    if parameters.len() != count {
        return plan_err!(
            "{name} was prepared with {count} parameters, and is executed with {}",
            parameters.len()
        );
    }
    let mut values = Vec::new();
    for (nth, value) in parameters.drain(..).enumerate() {
        walk::look(&value, &mut Constant)?;
        let declared = data_types.get(nth).map(ToString::to_string);
        values.push(match declared.as_ref().or(types.get(nth)) {
            Some(data_type) => of_type(value, data_type),
            None => value,
        });
    }
    *inner = *meant;
    Ok(Some(Execution { text, values }))
}

/// A value as one of a type, if that has a name in SQL.
fn of_type(value: Expr, data_type: &str) -> Expr {
    match parse_expr(&format!("cast(null as {data_type})")) {
        Ok(Expr::Cast { kind, data_type, array, format, .. }) if kind == CastKind::Cast => {
            Expr::Cast { kind, expr: Box::new(value), data_type, array, format }
        }
        _ => value,
    }
}

/// The highest number of a parameter.
struct Parameters(usize);

impl Visitor for Parameters {
    type Break = Stop;

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> Flow {
        if let Value::Placeholder(place) = &value.value
            && let Some(nth) = place.strip_prefix('$').and_then(|nth| nth.parse().ok())
        {
            self.0 = self.0.max(nth);
        }
        ON
    }
}

/// Refuses what is no value by itself.
struct Constant;

impl Visitor for Constant {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        let is_of_rows = matches!(
            expr,
            Expr::Identifier(_)
                | Expr::CompoundIdentifier(_)
                | Expr::Subquery(_)
                | Expr::Exists { .. }
                | Expr::InSubquery { .. }
        );
        match is_of_rows {
            true => walk::stop(datafusion::common::plan_datafusion_err!(
                "{expr} is no value\nhint: EXECUTE takes constants, such as 42 or 'a text'"
            )),
            false => ON,
        }
    }
}
