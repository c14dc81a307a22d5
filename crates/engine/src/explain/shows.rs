//! Which plans show other ones.

use datafusion::physical_plan::ExecutionPlan;

/// Whether the rows of a plan are a plan.
pub fn is_explained(plan: &dyn ExecutionPlan) -> bool {
    matches!(plan.name(), "ExplainExec" | "AnalyzeExec")
}
