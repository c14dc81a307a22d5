//! The rule that has parts of a finished plan run by the cluster.
//!
//! From the leaves upwards: a pipeline becomes shares and their merge, what can go with it goes with it, and a node stands in the
//! place of what is sent. Everything else stays, and runs here. So no leaf is ever sent but rows of shares.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use headrace_engine::exec::PipelineExec;
use headrace_engine::scan::HeadraceScanExec;

use crate::home::AtHomeExec;
use crate::job::{ClusterExec, check_sent};
use crate::lift::is_lifted;
use crate::settings::Scheduler;
use crate::split::split;

/// The rule.
#[derive(Debug)]
pub struct ClusterRule {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// Shares of each table; `None`: by its bytes.
    pub shares: Option<usize>,
}

/// Where a plan runs.
enum Placed {
    Here(Arc<dyn ExecutionPlan>),
    Cluster {
        sent: Arc<dyn ExecutionPlan>,
        /// What it is in place of.
        plan: Arc<dyn ExecutionPlan>,
    },
}

impl ClusterRule {
    fn place(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Placed> {
        if reads_files(&plan) {
            let why = "the planner reads these files, and no pipeline".to_string();
            return Ok(Placed::Here(Arc::new(AtHomeExec::new(plan, why))));
        }
        let Some(pipeline) = plan.downcast_ref::<PipelineExec>() else {
            return self.place_above(plan);
        };
        let sent = split(pipeline, self.shares).and_then(|split| {
            check_sent(&split)?;
            Ok(split)
        });
        match sent {
            Ok(sent) => Ok(Placed::Cluster { sent, plan }),
            Err(why) => {
                let here = self.here(self.place_above(plan)?);
                Ok(Placed::Here(Arc::new(AtHomeExec::new(here, why))))
            }
        }
    }

    /// A node above others.
    fn place_above(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Placed> {
        let children = plan.children().into_iter().cloned();
        let placed = children.map(|child| self.place(child)).collect::<Result<Vec<_>>>()?;
        if let [Placed::Cluster { sent, .. }] = placed.as_slice()
            && is_lifted(&plan)
        {
            let sent = with_children(Arc::clone(&plan), vec![Arc::clone(sent)])?;
            if check_sent(&sent).is_ok() {
                return Ok(Placed::Cluster { sent, plan });
            }
        }
        let children: Vec<_> = placed.into_iter().map(|child| self.here(child)).collect();
        let old = plan.children();
        let is_same = old.iter().zip(&children).all(|(old, new)| Arc::ptr_eq(old, new));
        Ok(Placed::Here(if is_same { plan } else { with_children(plan, children)? }))
    }

    /// A plan as it runs here: what is the cluster's is sent.
    fn here(&self, placed: Placed) -> Arc<dyn ExecutionPlan> {
        match placed {
            Placed::Here(plan) => plan,
            Placed::Cluster { sent, plan } => {
                Arc::new(ClusterExec::new(self.scheduler.clone(), sent, &plan))
            }
        }
    }
}

/// Whether a plan is a scan of files, which is no leaf that could be divided.
fn reads_files(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_of_files =
        |scan: &DataSourceExec| scan.data_source().downcast_ref::<FileScanConfig>().is_some();
    plan.is::<HeadraceScanExec>() || plan.downcast_ref::<DataSourceExec>().is_some_and(is_of_files)
}

fn with_children(
    plan: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

impl PhysicalOptimizerRule for ClusterRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let placed = self.place(plan)?;
        Ok(self.here(placed))
    }

    fn name(&self) -> &str {
        "headrace_cluster"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
