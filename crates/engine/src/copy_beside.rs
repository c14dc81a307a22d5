//! COPY statements write beside their target until the output is complete.

use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::LogicalPlan;

use crate::copy::{Staging, is_one_file, target_of};
use crate::folder_values::name_folders;

/// Lets a COPY write beside its target.
///
/// # Errors
/// A target that cannot be written.
pub fn staged(logical: &mut LogicalPlan) -> Result<Option<Staging>> {
    match logical {
        LogicalPlan::Analyze(analyze) if matches!(*analyze.input, LogicalPlan::Copy(_)) => {
            plan_err!("EXPLAIN ANALYZE of a COPY is not offered\nhint: explain its query")
        }
        LogicalPlan::Copy(copy) => {
            name_folders(copy)?;
            let staging = Staging::new(&target_of(copy), is_one_file(copy))?;
            copy.output_url = staging.url();
            Ok(Some(staging))
        }
        _ => Ok(None),
    }
}
