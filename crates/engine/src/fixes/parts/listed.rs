//! A long list of outputs or aggregates, as the optimizer sees it.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use datafusion::common::{DFSchemaRef, Result, internal_datafusion_err, internal_err};
use datafusion::logical_expr::{
    Aggregate, Expr, Extension, LogicalPlan, Projection, UserDefinedLogicalNodeCore,
};

use super::columns::Columns;

/// A node whose expressions have their types, and which nobody looks into until it becomes what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    /// What rows are grouped by, if these are aggregates.
    pub keys: Option<Vec<Expr>>,
    pub exprs: Arc<Vec<Expr>>,
    pub input: Arc<LogicalPlan>,
    pub schema: DFSchemaRef,
    /// Which columns of the input are named.
    needed: Vec<usize>,
    /// Whether the expressions are as simple as they get.
    pub is_simple: bool,
}

impl Listed {
    /// A list over an input.
    ///
    /// # Errors
    /// A column that the input does not have.
    pub fn new(
        keys: Option<Vec<Expr>>,
        exprs: Vec<Expr>,
        input: Arc<LogicalPlan>,
        schema: DFSchemaRef,
    ) -> Result<Self> {
        let needed = needed(keys.as_ref(), &exprs, &input)?;
        Ok(Self { keys, exprs: Arc::new(exprs), input, schema, needed, is_simple: false })
    }

    /// The list with expressions that are as simple as they get.
    pub fn simplified(&self, exprs: Vec<Expr>) -> Self {
        Self { exprs: Arc::new(exprs), is_simple: true, ..self.clone() }
    }

    /// The list that a node is, if it is one.
    pub fn of(plan: &LogicalPlan) -> Option<&Self> {
        match plan {
            LogicalPlan::Extension(Extension { node }) => node.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// The list as a node.
    pub fn node(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// What the list stands for.
    ///
    /// # Errors
    /// A schema of another number of columns.
    pub fn restored(&self) -> Result<LogicalPlan> {
        let (exprs, input) = (self.exprs.to_vec(), Arc::clone(&self.input));
        let schema = Arc::clone(&self.schema);
        Ok(match &self.keys {
            None => LogicalPlan::Projection(Projection::try_new_with_schema(exprs, input, schema)?),
            Some(keys) => LogicalPlan::Aggregate(Aggregate::try_new_with_schema(
                input,
                keys.clone(),
                exprs,
                schema,
            )?),
        })
    }
}

/// Which columns of an input a list names.
fn needed(keys: Option<&Vec<Expr>>, exprs: &[Expr], input: &LogicalPlan) -> Result<Vec<usize>> {
    let needed = Columns::of(input.schema()).places(keys.into_iter().flatten().chain(exprs));
    needed
        .ok_or_else(|| internal_datafusion_err!("a list names a column that its rows do not have"))
}

impl PartialOrd for Listed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for Listed {
    fn name(&self) -> &str {
        "Listed"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let shown =
            |exprs: &[Expr]| exprs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match &self.keys {
            None => write!(f, "Projection: {}", shown(&self.exprs)),
            Some(keys) => {
                write!(f, "Aggregate: groupBy=[[{}]], aggr=[[{}]]", shown(keys), shown(&self.exprs))
            }
        }
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (Some(input), None) = (inputs.pop(), inputs.pop()) else {
            return internal_err!("a list has one input");
        };
        // Each rule asks for the node anew: where the columns are the same, so are their places.
        let needed = match input.schema() == self.input.schema() {
            true => self.needed.clone(),
            false => needed(self.keys.as_ref(), &self.exprs, &input)?,
        };
        Ok(Self { input: Arc::new(input), needed, ..self.clone() })
    }

    fn necessary_children_exprs(&self, _: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![self.needed.clone()])
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.keys.is_none()
    }
}
