//! A call as a node of a logical plan.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::common::{DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::functions::cuda_table::CudaTable;

/// A call of a function of a table.
#[derive(Clone, Debug)]
pub struct TableCall {
    /// The function.
    pub function: Arc<CudaTable>,
    /// A value for each parameter that is one.
    pub parameters: Vec<Expr>,
    /// The rows of its table.
    pub rows: LogicalPlan,
    /// The rows that the twin has in place of the answer.
    pub twin: Option<LogicalPlan>,
    /// What it returns.
    pub schema: DFSchemaRef,
}

impl TableCall {
    /// The call as a node.
    pub fn node(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// What the rows of two calls depend on beside their inputs.
    fn own(&self) -> (&headrace_ir::CudaTableFunction, &[Expr]) {
        (&self.function.function, &self.parameters)
    }
}

impl PartialEq for TableCall {
    fn eq(&self, other: &Self) -> bool {
        // A function that replaced another may differ in its bounds alone.
        Arc::ptr_eq(&self.function, &other.function)
            && self.own() == other.own()
            && (&self.rows, &self.twin) == (&other.rows, &other.twin)
    }
}

impl Eq for TableCall {}

impl Hash for TableCall {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.own(), &self.rows, &self.twin).hash(state);
    }
}

impl PartialOrd for TableCall {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for TableCall {
    fn name(&self) -> &str {
        "TableCall"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        [&self.rows].into_iter().chain(&self.twin).collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.parameters.clone()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let shown: Vec<_> = self.parameters.iter().map(ToString::to_string).collect();
        let twin = if self.twin.is_some() { ", or its twin" } else { "" };
        write!(f, "TableCall: {}({}) in CUDA{twin}", self.function.function.name, shown.join(", "))
    }

    fn with_exprs_and_inputs(
        &self,
        parameters: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> Result<Self> {
        let mut inputs = inputs.into_iter();
        match (inputs.next(), inputs.next(), inputs.next()) {
            (Some(rows), twin, None) if twin.is_some() == self.twin.is_some() => {
                Ok(Self { parameters, rows, twin, ..self.clone() })
            }
            _ => internal_err!("a call of a table has its rows, and those of its twin"),
        }
    }
}
