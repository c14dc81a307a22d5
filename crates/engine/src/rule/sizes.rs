//! About how many bytes the parts of a plan read and keep.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr, Statistics};
use headrace_ir::{Register, Value};
use headrace_runner::StreamTable;

use super::graph::{Leaf, LeafTable};
use super::raw::raw_aggregation;
use super::types::scalar;
use crate::scan::HeadraceScanExec;

/// About what a value takes.
const VALUE_BYTES: u64 = 8;

/// About what columns of a table take where they are kept: a value something, however narrow it lies in a file, and a row,
/// wherever its values come from.
fn kept_bytes(table: &StreamTable, columns: impl Iterator<Item = usize>) -> u64 {
    let rows = table.source().rows().unwrap_or(0);
    let of = |column| table.columns_bytes([&column]).max(rows.saturating_mul(VALUE_BYTES));
    columns.map(of).fold(0, u64::saturating_add).max(rows)
}

/// Bytes of all columns that are read below a plan, where they are kept.
pub(super) fn scanned_bytes(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    match plan.downcast_ref::<HeadraceScanExec>() {
        Some(scan) => kept_bytes(scan.table().stream(), scan.projection().iter().copied()),
        None if plan.children().is_empty() => source_bytes(plan.as_ref()),
        None => plan.children().into_iter().map(scanned_bytes).fold(0, u64::saturating_add),
    }
}

/// Bytes of the planner's own source: those of its rows, or of its files where nothing is known of rows.
fn source_bytes(plan: &dyn ExecutionPlan) -> u64 {
    let rows = statistics(plan).and_then(|known| known.num_rows.get_value().copied());
    let columns = plan.schema().fields().len().max(1) as u64;
    rows.map_or_else(
        || file_bytes(plan),
        |rows| (rows as u64).saturating_mul(VALUE_BYTES * columns),
    )
}

fn file_bytes(plan: &dyn ExecutionPlan) -> u64 {
    let config = plan.downcast_ref::<DataSourceExec>();
    let config = config.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>());
    let files = config.into_iter().flat_map(|config| config.file_groups.iter());
    let size = |file: &PartitionedFile| match &file.range {
        Some(range) => u64::try_from(range.end - range.start).unwrap_or(0),
        None => file.object_meta.size,
    };
    files.flat_map(FileGroup::iter).map(size).sum()
}

fn statistics(plan: &dyn ExecutionPlan) -> Option<Arc<Statistics>> {
    StatisticsContext::new().compute(plan, &StatisticsArgs::new()).ok()
}

/// Bytes of the columns of a leaf that are used.
pub(super) fn leaf_bytes(leaf: &Leaf, used: &BTreeSet<Register>) -> u64 {
    let Some(LeafTable { table, projection }) = leaf.table() else {
        return groups_bytes(&leaf.plan).unwrap_or_else(|| scanned_bytes(&leaf.plan));
    };
    let used = used.iter().filter(|&&r| leaf.owns(r));
    kept_bytes(table, used.map(|r| projection[r - leaf.first]))
}

/// Bytes of the groups of an aggregation, if a plan is one, by the ranges of its keys.
fn groups_bytes(plan: &Arc<dyn ExecutionPlan>) -> Option<u64> {
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else {
        let passes = plan.is::<ProjectionExec>() || plan.is::<FilterExec>();
        return match plan.children().as_slice() {
            [input] if passes => groups_bytes(input),
            _ => None,
        };
    };
    let raw = raw_aggregation(aggregate)?;
    let statistics = statistics(raw.input().as_ref())?;
    let range = |key: &Arc<dyn PhysicalExpr>| {
        let column = key.downcast_ref::<Column>()?;
        let known = statistics.column_statistics.get(column.index())?;
        let bound = |value: Option<&ScalarValue>| match scalar(value?).ok()?.value {
            Value::Int(value) => Some(value),
            _ => None,
        };
        let (min, max) = (known.min_value.get_value(), known.max_value.get_value());
        u64::try_from(bound(max)?.checked_sub(bound(min)?)?.checked_add(1)?).ok()
    };
    let rows = statistics.num_rows.get_value().map_or(u64::MAX, |rows| *rows as u64);
    let keys = raw.group_expr().expr().iter();
    let groups =
        keys.fold(1u64, |groups, (key, _)| groups.saturating_mul(range(key).unwrap_or(rows)));
    Some(groups.min(rows).saturating_mul(VALUE_BYTES * plan.schema().fields().len() as u64))
}
