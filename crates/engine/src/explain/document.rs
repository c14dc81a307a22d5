//! EXPLAIN as JSON: the planner's document of a physical plan, in which each pipeline has its stages and
//! its report.
//!
//! `EXPLAIN (FORMAT JSON)` of the planner shows the logical plan, and a node as one line of text. Here it shows
//! the plan that would run, as `EXPLAIN (ANALYZE, FORMAT JSON)` shows the one that ran.

use std::sync::Arc;

use datafusion::common::format::ExplainFormat;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, PlanType, StringifiedPlan};
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use headrace_runner::RunReport;
use serde_json::{Map, Value, json};

use super::stages::Shown;
use crate::exec::PipelineExec;

/// The plan that shows another one as JSON, if that is what a statement asks for.
///
/// # Errors
/// What planning the other one gives.
pub async fn explained(
    state: &SessionState,
    logical: &LogicalPlan,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let LogicalPlan::Explain(explain) = logical else { return Ok(None) };
    if explain.explain_format != ExplainFormat::PostgresJSON {
        return Ok(None);
    }
    let plan = state.create_physical_plan(&explain.plan).await?;
    let planned = displayable(plan.as_ref()).pgjson(false).to_string();
    let text = StringifiedPlan::new(PlanType::FinalPhysicalPlan, with_pipelines(&planned, &plan)?);
    let schema = Arc::clone(explain.schema.inner());
    Ok(Some(Arc::new(ExplainExec::new(schema, vec![text], false))))
}

/// The plan that ran below EXPLAIN ANALYZE, if it is to be shown as JSON.
pub fn analyzed(plan: &dyn ExecutionPlan) -> Option<Arc<dyn ExecutionPlan>> {
    let analyze = plan.downcast_ref::<AnalyzeExec>()?;
    let is_json = *analyze.format() == ExplainFormat::PostgresJSON;
    is_json.then(|| Arc::clone(analyze.input()))
}

/// The planner's document of a plan, its pipelines shown in full.
///
/// # Errors
/// A document that is not one of this plan.
pub fn with_pipelines(document: &str, plan: &Arc<dyn ExecutionPlan>) -> Result<String> {
    let broken = |cause: &str| DataFusionError::Internal(format!("EXPLAIN as JSON: {cause}"));
    let mut document: Value = serde_json::from_str(document).map_err(|e| broken(&e.to_string()))?;
    let root = document.pointer_mut("/0/Plan").ok_or_else(|| broken("no plan"))?;
    add_pipelines(root, plan.as_ref()).ok_or_else(|| broken("another plan"))?;
    serde_json::to_string_pretty(&document).map_err(|e| broken(&e.to_string()))
}

/// Goes through both trees at once; `None`: they differ.
fn add_pipelines(node: &mut Value, plan: &dyn ExecutionPlan) -> Option<()> {
    let node = node.as_object_mut()?;
    if node.get("Node Type")?.as_str()? != plan.name() {
        return None;
    }
    if let Some(pipeline) = plan.downcast_ref::<PipelineExec>() {
        node.remove("Details");
        node.insert("Pipeline".into(), pipeline_value(pipeline)?);
    }
    let children = plan.children();
    let shown = node.get_mut("Plans")?.as_array_mut()?;
    if shown.len() != children.len() {
        return None;
    }
    shown.iter_mut().zip(children).try_for_each(|(node, plan)| add_pipelines(node, plan.as_ref()))
}

fn pipeline_value(node: &PipelineExec) -> Option<Value> {
    let report = node.report();
    let shown = Shown::new(node, report.as_ref());
    let why_not: Vec<String> = node.why_not().iter().map(ToString::to_string).collect();
    Some(json!({
        "stages": serde_json::to_value(shown.stages()).ok()?,
        "why_not_above": why_not,
        "run": report.as_ref().map(run_value),
    }))
}

/// What the whole run did; its stages stand where they are shown.
fn run_value(report: &RunReport) -> Value {
    let RunReport { build_ms, builds_made, builds_cached, build_bytes, streamed, .. } = report;
    let bottleneck = streamed.race.bottleneck().map(|bottleneck| bottleneck.to_string());
    let mut run = Map::new();
    run.insert("wall_ms".into(), json!(streamed.wall_ms));
    run.insert("build_ms".into(), json!(build_ms));
    run.insert("builds_made".into(), json!(builds_made));
    run.insert("builds_cached".into(), json!(builds_cached));
    run.insert("build_bytes".into(), json!(build_bytes));
    run.insert("gpu_service".into(), json!(report.served));
    run.insert("gpu_service_why_not".into(), json!(report.served_why_not));
    run.insert("bottleneck".into(), json!(bottleneck));
    Value::Object(run)
}
