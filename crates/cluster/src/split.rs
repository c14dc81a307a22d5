//! A pipeline as shares and their merge, or why it cannot be.
//!
//! ```text
//! groups            Coalesce ◄ Merge ◄ Repartition Hash(keys) | Coalesce ◄ Share(partial states) ◄ shares
//! rows              Coalesce ◄ Share(rows) ◄ shares
//! first rows        Sort(limit) ◄ Coalesce ◄ Share(first rows) ◄ shares
//! ```
//!
//! The streamed table is divided; all others are builds, which each executor makes of their files. So a build must be the same
//! wherever it is made: of a table's rows, not of groups, whose totals of floats differ by the order in which they were added.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema};
use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use headrace_engine::exec::PipelineExec;
use headrace_ir::{AggregateOutput, Input, OrderKey, Program, Sink};
use headrace_runner::{Processor, StreamTable, partial_schema};

use crate::merge::PipelineMergeExec;
use crate::message::{MergeWork, NamedTable, SentSchema, ShareWork};
use crate::outputs::SentOutput;
use crate::share::PipelineShareExec;
use crate::shares;

/// Bytes of the streamed columns in a share, unless somebody says how many shares there are.
const SHARE_BYTES: u64 = 64 << 20;

/// Shares at most; and of a table of fewer than as many large ones, so that several executors have some. One of fewer bytes than
/// the least would be read sooner than its task is sent.
const SHARES_MAX: usize = 4096;
const SHARES_FEW: u64 = 8;
const SHARE_BYTES_MIN: u64 = 32 << 20;

/// Merges of groups that run side by side, at most.
const MERGES_MAX: usize = 8;

/// What becomes of the shares' outputs.
enum Ending {
    Groups,
    Rows,
    First(Vec<OrderKey>, u64),
}

/// A pipeline in shares; `shares` of them, or by its bytes.
///
/// # Errors
/// Why it stays one.
pub fn split(node: &PipelineExec, shares: Option<usize>) -> Result<Arc<dyn ExecutionPlan>, String> {
    let planned = node.planned();
    if !planned.children.is_empty() {
        return Err("it reads the rows of another plan".into());
    }
    if !planned.subqueries.is_empty() {
        return Err("it waits for the values of subqueries".into());
    }
    if node.settings().processor == Processor::Off {
        return Err("headrace.processor is off".into());
    }
    let (ending, divided) = ending(&planned.program)?;
    let tables = planned.tables.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    let cut =
        shares::cut(&tables[divided].table.files, shares.unwrap_or_else(|| wanted(node, divided)));
    let made = match ending {
        Ending::Groups => groups(node, (tables, divided), &cut),
        Ending::Rows | Ending::First(..) if !planned.outputs.is_empty() => {
            return Err("its columns are computed from several rows".into());
        }
        Ending::Rows => rows(node, (tables, divided), &cut),
        Ending::First(order, limit) => first(node, (tables, divided), &cut, (&order, limit)),
    };
    made.map_err(|error| error.to_string())
}

/// The tables of a program, and which of them is divided.
type Tables = (Vec<NamedTable>, usize);

/// How a program ends, and the table that it streams.
fn ending(program: &Program) -> Result<(Ending, usize), String> {
    if program.cuda_functions().next().is_some() {
        return Err("it calls functions in CUDA, which executors do not have".into());
    }
    let Input::Table(divided) = program.answer.source.input else {
        return Err("its last stage reads other stages".into());
    };
    for stage in &program.stages {
        let is_read_again = matches!(stage.source.input, Input::Table(_) | Input::Values(_));
        if !is_read_again || !matches!(stage.sink, Sink::Build { .. }) {
            return Err("a stage before its last is no build of a table".into());
        }
    }
    let ending = match &program.answer.sink {
        Sink::Aggregate { sets, .. } if !sets.is_empty() => {
            return Err("grouping sets are not divided".into());
        }
        Sink::Aggregate { calls, .. } if calls.iter().any(|call| call.distinct) => {
            return Err("DISTINCT is not divided".into());
        }
        Sink::Aggregate { output: AggregateOutput::Final | AggregateOutput::First(_), .. } => {
            Ending::Groups
        }
        Sink::Rows { limit: None, .. } => Ending::Rows,
        // Which rows come first differs from run to run.
        Sink::Rows { .. } => return Err("LIMIT without an order ends it early".into()),
        Sink::Sorted { order, limit: Some(limit), .. } => Ending::First(order.clone(), *limit),
        _ => return Err("its rows are not divided".into()),
    };
    Ok((ending, divided))
}

fn named(table: &Arc<StreamTable>) -> Result<NamedTable, String> {
    let name = table.name().to_string();
    let portable = table.source().portable().map_err(|why| format!("{name}: {why}"))?;
    Ok(NamedTable { name, table: portable })
}

/// How many shares a table is to have by its bytes.
fn wanted(node: &PipelineExec, divided: usize) -> usize {
    let planned = node.planned();
    let bytes = planned.tables[divided].columns_bytes(&planned.program.answer.source.ordinals);
    shares_of(bytes)
}

fn shares_of(bytes: u64) -> usize {
    let few = bytes.div_ceil(SHARE_BYTES_MIN).clamp(1, SHARES_FEW);
    let shares = bytes.div_ceil(SHARE_BYTES).max(few);
    usize::try_from(shares).unwrap_or(SHARES_MAX).min(SHARES_MAX)
}

/// The node over the shares of a table.
fn share(
    node: &PipelineExec,
    (tables, divided): Tables,
    cut: &[Vec<shares::ShareRow>],
    (mut program, columns): (Program, &Schema),
) -> Result<Arc<dyn ExecutionPlan>> {
    program.answer.source.input = Input::Table(tables.len());
    let settings = node.settings().clone();
    let columns = SentSchema::of(columns)?;
    let work = Arc::new(ShareWork { program, tables, divided, settings, columns });
    let partitions = cut.iter().map(|share| Ok(vec![shares::batch(share)?]));
    let partitions = partitions.collect::<Result<Vec<_>>>()?;
    let rows = MemorySourceConfig::try_new(&partitions, shares::schema(), None)?;
    let rows = DataSourceExec::from_data_source(rows);
    Ok(Arc::new(PipelineShareExec::new(work, rows, None)?))
}

/// Columns as they are sent: on their way texts in dictionaries become texts.
fn sent(schema: &Schema) -> Schema {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Dictionary(_, values) => {
            Arc::new(field.as_ref().clone().with_data_type(values.as_ref().clone()))
        }
        _ => Arc::clone(field),
    };
    let fields: Fields = schema.fields().iter().map(field).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn coalesced(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(CoalescePartitionsExec::new(plan))
}

fn groups(
    node: &PipelineExec,
    tables: Tables,
    cut: &[Vec<shares::ShareRow>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let planned = node.planned();
    let mut partial = planned.program.clone();
    let mut keys = 0;
    if let Sink::Aggregate { output, keys: all, .. } = &mut partial.answer.sink {
        *output = AggregateOutput::Partial;
        keys = all.len();
    }
    let states =
        partial_schema(&planned.program, &[]).map_err(|error| plan_datafusion_err!("{error}"))?;
    let share = share(node, tables, cut, (partial, &states))?;
    let states = match hashed(&states, keys) {
        Some(keys) if cut.len() > 1 => {
            let partitioning = Partitioning::Hash(keys, cut.len().min(MERGES_MAX));
            Arc::new(RepartitionExec::try_new(share, partitioning)?)
        }
        _ => coalesced(share),
    };
    let outputs = planned.outputs.iter().map(SentOutput::of).collect::<Option<Vec<_>>>();
    let Some(outputs) = outputs else {
        return plan_err!("a mean of a type that cannot be sent");
    };
    let (program, columns) = (planned.program.clone(), SentSchema::of(&sent(&node.schema()))?);
    let work = Arc::new(MergeWork { program, outputs, columns });
    let merge: Arc<dyn ExecutionPlan> = Arc::new(PipelineMergeExec::new(work, states, None)?);
    Ok(match merge.properties().output_partitioning().partition_count() {
        1 => merge,
        _ => coalesced(merge),
    })
}

/// The keys of states, if equal ones have equal hashes: of floats, zeros of both signs are equal, and so are all that are no
/// numbers.
fn hashed(states: &Schema, keys: usize) -> Option<Vec<Arc<dyn PhysicalExpr>>> {
    let is_plain = |data_type: &DataType| {
        data_type.is_integer()
            || matches!(
                data_type,
                DataType::Boolean
                    | DataType::Utf8
                    | DataType::Date32
                    | DataType::Time64(_)
                    | DataType::Timestamp(..)
                    | DataType::Decimal128(..)
                    | DataType::FixedSizeBinary(_)
            )
    };
    let fields = || states.fields().iter().take(keys);
    let all = keys > 0 && fields().all(|field| is_plain(field.data_type()));
    let column = |(at, field): (usize, &Arc<Field>)| {
        Arc::new(Column::new(field.name(), at)) as Arc<dyn PhysicalExpr>
    };
    all.then(|| fields().enumerate().map(column).collect())
}

fn rows(
    node: &PipelineExec,
    tables: Tables,
    cut: &[Vec<shares::ShareRow>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let program = node.planned().program.clone();
    Ok(coalesced(share(node, tables, cut, (program, &sent(&node.schema())))?))
}

fn first(
    node: &PipelineExec,
    tables: Tables,
    cut: &[Vec<shares::ShareRow>],
    (order, limit): (&[OrderKey], u64),
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = node.schema();
    let key = |key: &OrderKey| {
        let OrderKey { column, descending, nulls_first } = *key;
        let expr = Arc::new(Column::new(schema.field(column).name(), column));
        PhysicalSortExpr::new(expr, SortOptions { descending, nulls_first })
    };
    let rows = rows(node, tables, cut)?;
    let Some(ordering) = LexOrdering::new(order.iter().map(key)) else {
        return plan_err!("first rows of no order");
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(Arc::new(SortExec::new(ordering, rows).with_fetch(Some(limit))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_neither_small_nor_few() {
        let mib = |mib: u64| shares_of(mib << 20);
        assert_eq!([mib(0), mib(1), mib(32), mib(33), mib(96)], [1, 1, 1, 2, 3]);
        assert_eq!([mib(256), mib(300), mib(512), mib(513), mib(6400)], [8, 8, 8, 9, 100]);
        assert_eq!(shares_of(u64::MAX), SHARES_MAX);
    }
}
