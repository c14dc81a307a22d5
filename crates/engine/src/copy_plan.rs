//! Plans of COPY: those of our own writers, and those that write beside their target first.

use std::path::Path;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::logical_expr::dml::CopyTo;
use datafusion::logical_expr::{DdlStatement, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::catalog::Packing;
use crate::copy::{ArrowSink, Staging, Target, is_one_file, target_of};
use crate::packed::{PackedSink, packing_of_copy};
use crate::partitioned::{FoldersSink, check_keys};
use crate::session::Session;

/// A plan, and where it writes to until it is done, if that is another place.
type Planned = (Arc<dyn ExecutionPlan>, Option<Staging>);

impl Session {
    /// Whether this session may use the files that a plan names beside those of its tables.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn check_targets(&self, logical: &LogicalPlan) -> Result<()> {
        logical.apply(|node| {
            match node {
                LogicalPlan::Copy(copy) => {
                    self.tables.check_target(Path::new(&copy.output_url))?;
                }
                // It is read when it is named, and written by INSERT.
                LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create)) => {
                    for location in &create.locations {
                        self.tables.check_target(Path::new(location))?;
                    }
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// The plan of a COPY that our own writers write.
    ///
    /// # Errors
    /// A target or options that they do not take.
    pub(crate) async fn plan_own_copy(&self, copy: &CopyTo) -> Result<Option<Planned>> {
        match packing_of_copy(copy)? {
            Packing::Plain if copy.file_type.get_ext() == "arrow" => {
                self.plan_arrow_copy(copy).await.map(Some)
            }
            Packing::Plain => Ok(None),
            packing => self.plan_packed_copy(copy, packing).await.map(Some),
        }
    }

    async fn plan_arrow_copy(&self, copy: &CopyTo) -> Result<Planned> {
        if !is_one_file(copy) {
            return self.plan_arrow_folders(copy).await;
        }
        let input = self.one_stream(LogicalPlan::clone(&copy.input)).await?;
        // Our own writer needs no other place for what is not whole yet.
        let (path, staging) = match target_of(copy) {
            Target::Local(path) => (path, None),
            target => {
                let staging = Staging::new(&target, true)?;
                (staging.content().to_path_buf(), Some(staging))
            }
        };
        let sink = ArrowSink::new(path, input.schema());
        Ok((Arc::new(DataSinkExec::new(input, Arc::new(sink), None)), staging))
    }

    async fn plan_packed_copy(&self, copy: &CopyTo, packing: Packing) -> Result<Planned> {
        if !is_one_file(copy) {
            return plan_err!(
                "COPY compresses one file as a whole, and {} is a folder\nhint: name a file, such as x.csv.gz, or write Parquet",
                copy.output_url
            );
        }
        let input = self.one_stream(LogicalPlan::clone(&copy.input)).await?;
        let staging = Staging::new(&target_of(copy), true)?;
        let (path, schema) = (staging.content().to_path_buf(), input.schema());
        let sink = PackedSink::new(path, packing, schema, copy, &self.context.state())?;
        Ok((Arc::new(DataSinkExec::new(input, Arc::new(sink), None)), Some(staging)))
    }

    /// A folder of Arrow files, sorted by what folders in it are named by, so that one file is open at a time.
    async fn plan_arrow_folders(&self, copy: &CopyTo) -> Result<Planned> {
        let (keys, schema) = (&copy.partition_by, copy.input.schema());
        let mut rows = LogicalPlanBuilder::from(Arc::clone(&copy.input));
        if !keys.is_empty() {
            if let Err(cause) = check_keys(schema.as_arrow(), keys) {
                return plan_err!("PARTITIONED BY {cause}");
            }
            let columns = schema.columns().into_iter();
            let column = |key: &String| columns.clone().find(|column| column.name == *key);
            let by = keys.iter().filter_map(column);
            rows = rows.sort(by.map(|column| Expr::Column(column).sort(true, true)))?;
        }
        let input = self.one_stream(rows.build()?).await?;
        let staging = Staging::new(&target_of(copy), false)?;
        let sink = FoldersSink::new(staging.content().to_path_buf(), keys.clone(), input.schema());
        Ok((Arc::new(DataSinkExec::new(input, Arc::new(sink), None)), Some(staging)))
    }

    /// A plan of one stream. Whoever plans a sink makes one of its input; ours are planned by nobody.
    pub(crate) async fn one_stream(&self, logical: LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.context.execute_logical_plan(logical).await?.create_physical_plan().await?;
        if plan.properties().output_partitioning().partition_count() == 1 {
            return Ok(plan);
        }
        match plan.output_ordering().cloned() {
            Some(order) => Ok(Arc::new(SortPreservingMergeExec::new(order, plan))),
            None => Ok(Arc::new(CoalescePartitionsExec::new(plan))),
        }
    }
}
