//! Distinct calls: a run that groups by their arguments, too, beside one that groups what it emits.

use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, Schema};
use headrace_columns::column::arrow_field;
use headrace_format::batches::{BatchTable, batch_channel};
use headrace_ir::Distinct;
use headrace_pipeline::ExecError;

use crate::error::RunError;
use crate::report::RunReport;
use crate::run::Request;
use crate::runner::Runner;
use crate::settings::{Processor, Settings};
use crate::table::StreamTable;
use crate::task::Emit;

/// Batches of groups that wait for the second run.
const WAITING_BATCHES: usize = 8;

impl Runner {
    /// Runs both groupings at the same time, the second on the CPU.
    pub(crate) fn run_distinct(
        &self,
        request: &Request<'_>,
        distinct: &Distinct,
        emit: Emit<'_>,
    ) -> Result<RunReport, RunError> {
        let source = &distinct.groups.pipeline.source;
        let schema = Schema::new(source.columns.iter().map(arrow_field).collect::<Vec<_>>());
        let (sender, receiver) = batch_channel(WAITING_BATCHES);
        let table = StreamTable::new(
            &source.table,
            Arc::new(BatchTable::new(&source.table, &schema, receiver)),
        );
        let tables = [Arc::new(table)];
        let account = self.groups_above();
        let settings = Settings { processor: Processor::Cpu, ..request.settings.clone() };
        std::thread::scope(|scope| {
            // Moved there, so that the first run notices when the second has ended.
            let groups = scope.spawn(move || {
                let tables = &tables[..];
                let request = Request {
                    program: &distinct.groups,
                    parameters: &[],
                    tables,
                    children: &[],
                    settings: &settings,
                    token: request.token,
                };
                let failed = OnceLock::new();
                let report = self.run_within(&account, &request, &|batch| match counted(
                    batch,
                    &distinct.counts,
                ) {
                    Ok(batch) => emit(batch),
                    Err(error) => failed.set(error).is_err(),
                });
                failed.into_inner().map_or(report, |error| Err(error.into()))
            });
            let request = Request { program: &distinct.values, ..*request };
            let values = self.run(&request, &|batch| sender.send(batch));
            match &values {
                Ok(_) => sender.finish(),
                Err(error) => sender.fail(error.to_string()),
            }
            let panicked = |_| Err(RunError::Thread("the run of distinct values panicked".into()));
            let groups = groups.join().unwrap_or_else(panicked);
            let (values, groups) = (values?, groups?);
            Ok(RunReport {
                rows_out: groups.rows_out,
                wall_ms: values.wall_ms.max(groups.wall_ms),
                finish_ms: values.finish_ms + groups.finish_ms,
                spilled_bytes: values.spilled_bytes + groups.spilled_bytes,
                ..values
            })
        })
    }
}

/// A batch with 0 where a number of rows is NULL: without keys there is a group of no rows.
fn counted(batch: RecordBatch, counts: &[usize]) -> Result<RecordBatch, ExecError> {
    if counts.iter().all(|&column| batch.column(column).null_count() == 0) {
        return Ok(batch);
    }
    let (schema, mut columns, _) = batch.into_parts();
    for &count in counts {
        let column = &mut columns[count];
        *column = match column.data_type() {
            DataType::UInt64 => Arc::new(known::<UInt64Type>(column)),
            _ => Arc::new(known::<Int64Type>(column)),
        };
    }
    RecordBatch::try_new(schema, columns).map_err(|error| ExecError::Internal(error.to_string()))
}

fn known<T: ArrowPrimitiveType>(column: &ArrayRef) -> PrimitiveArray<T> {
    let values = column.as_primitive::<T>().iter().map(Option::unwrap_or_default);
    PrimitiveArray::from_iter_values(values)
}
