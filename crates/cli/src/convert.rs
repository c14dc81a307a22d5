//! `headrace convert`: any file that the planner reads becomes a streamable Arrow file.
//!
//! Row order is kept: one partition of the plan runs after the other (`Query::stream_in_order`), because pruning
//! and ordered grouping depend on a table's order.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::IsTerminal;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int16Type, Int32Type, Int64Type};
use arrow_schema::{DataType, Field, SchemaRef};
use datafusion::common::DataFusionError;
use headrace_engine::catalog::TableEntry;
use headrace_engine::copy::{Staging, Target, batch_bytes_max, streamed_schema, write_arrow};
use headrace_engine::partitioned::{check_keys, write_folders};
use headrace_engine::{MemorySplit, Processor, Session};
use headrace_format::arrow::{WriterSummary, narrow_schema, packed_schema};
use headrace_io::write::folder_of;
use headrace_io::write::hidden::Hidden;
use headrace_ooc::sort::table::{SortKey, TableSortJob, sort_table};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{ConvertArgs, EngineArgs};
use crate::blocking::blocking;
use crate::error::{CliError, Context, Result};
use crate::output::Format;
use crate::session::{self, failure};

/// Reads the input batch by batch, so memory stays at a few batches for any input size.
pub async fn run(args: &ConvertArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    if args.output.symlink_metadata().is_ok() && !args.force {
        return Err(CliError::new(format!("{} exists", args.output.display()))
            .hint("name another file, or add --force to replace it"));
    }
    let start = Instant::now();
    if args.partition_by.is_empty() {
        Format::check_arrow_name(&args.output)?;
    } else {
        return convert_partitioned(args, cancel, start).await;
    }
    let summary = match args.sort_by.is_empty() {
        true => convert(args, &args.output, &cancel).await?,
        false => convert_sorted(args, &args.output, &args.sort_by, cancel).await?,
    };
    say!(
        "{}: {} rows, {} record batches, {:.3} GB in {:.2} s",
        args.output.display(),
        summary.rows,
        summary.batches,
        summary.bytes as f64 / 1e9,
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}

async fn convert(args: &ConvertArgs, output: &Path, cancel: &AtomicBool) -> Result<WriterSummary> {
    let place = args.input.display().to_string();
    let failed = |error| failure(&place, &error);
    let engine = EngineArgs { memory_limit: args.memory_limit, ..EngineArgs::default() };
    let session = session::new(&session::on(Processor::Off, &engine))?;
    open_whole(&session, &args.input).await?;
    let query = session.sql("select * from input").await.map_err(failed)?;
    let mut target = target_schema(&query.schema(), &args.dictionary)?;
    if args.narrow || args.packed {
        let bounds = bounds(&session, &target, args.packed).await.map_err(failed)?;
        let of = |field: &Field| bounds.get(field.name()).cloned();
        target = Arc::new(match args.packed {
            true => packed_schema(&target, of),
            false => narrow_schema(&target, of),
        });
    }
    if !args.partition_by.is_empty() {
        let keys = check_keys(&target, &args.partition_by);
        keys.map_err(|cause| CliError::carrying_hint(format!("--partition-by {cause}")))?;
    }
    let stream = query.stream_in_order().map_err(failed)?;
    let (bar, rows) = (progress_bar(), Cell::new(0));
    let progress = |more| {
        rows.set(rows.get() + more);
        bar.set_position(rows.get());
        match cancel.load(Ordering::Relaxed) {
            true => Err(DataFusionError::Execution("interrupted; nothing was left".to_string())),
            false => Ok(()),
        }
    };
    let bytes_max = batch_bytes_max(session.runner().memory().planner_bytes);
    let written = write_arrow(output, &target, bytes_max, stream, progress).await;
    bar.finish_and_clear();
    written.map_err(|error| failure("", &error))
}

/// The input as table `input`. An incomplete table is not converted.
async fn open_whole(session: &Session, input: &Path) -> Result<()> {
    let place = input.display().to_string();
    let table = session.register_as("input", input).await.map_err(|e| failure(&place, &e))?;
    let skipped = table.downcast_ref::<TableEntry>().map(|entry| entry.0.arrow().skipped());
    match skipped.and_then(<[_]>::first) {
        None => Ok(()),
        Some(file) => Err(CliError::new(format!("{}: {}", file.path.display(), file.reason))
            .hint("wait until it is whole, or move it out of the folder")),
    }
}

/// A hidden file, removed when it is dropped.
struct Unsorted(PathBuf);

impl Drop for Unsorted {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn convert_sorted(
    args: &ConvertArgs,
    output: &Path,
    by: &[SortKey],
    cancel: Arc<AtomicBool>,
) -> Result<WriterSummary> {
    // What cannot be written is to be known before the work.
    drop(headrace_io::write::SinkFile::growing(output).map_err(CliError::new)?);
    let hidden = Hidden::folder(folder_of(output)).at(folder_of(output).display())?;
    let unsorted = hidden.path().join("unsorted.arrow");
    convert(args, &unsorted, &cancel).await?;
    let job = TableSortJob {
        input: unsorted,
        output: output.to_path_buf(),
        by: by.to_vec(),
        temporary_folder: None,
        temporary_limit_bytes: None,
        rows_per_batch: None,
    };
    let options = headrace_ooc::Options {
        memory_limit_bytes: args.memory_limit,
        token: cancel.into(),
        ..Default::default()
    };
    let sorted = blocking(move || sort_table(&job, &options).map_err(CliError::carrying_hint));
    let told = sorted.await?;
    drop(hidden);
    let (rows, batches, bytes) = (told.plan.rows, told.batches, told.report.output_bytes);
    Ok(WriterSummary { rows, batches, bytes })
}

/// Sorted by the folders first, so that their files are written one after the other.
async fn convert_partitioned(
    args: &ConvertArgs,
    cancel: Arc<AtomicBool>,
    start: Instant,
) -> Result<()> {
    let replaces = args.output.symlink_metadata().is_ok();
    let staging = match replaces {
        true => Staging::replacing_folder(&args.output),
        false => Staging::new(&Target::Local(args.output.clone()), false),
    };
    let staging = staging.map_err(|error| failure("", &error))?;
    let sorted = Unsorted(staging.content().with_extension("sorted"));
    let keys = args.partition_by.iter().map(SortKey::ascending);
    let by: Vec<SortKey> = keys.chain(args.sort_by.iter().cloned()).collect();
    convert_sorted(args, &sorted.0, &by, Arc::clone(&cancel)).await?;
    let keys = args.partition_by.clone();
    let bytes_max = batch_bytes_max(MemorySplit::of(args.memory_limit).planner_bytes);
    let written = blocking(move || {
        let progress = |_| match cancel.load(Ordering::Relaxed) {
            true => Err(DataFusionError::Execution("interrupted; nothing was left".to_string())),
            false => Ok(()),
        };
        let summary = write_folders(&sorted.0, &keys, staging.content(), bytes_max, progress)
            .and_then(|summary| match replaces {
                true => staging.replace_folder().map(|()| summary),
                false => staging.commit().map(|()| summary),
            });
        drop((sorted, staging));
        summary.map_err(|error| failure("", &error))
    });
    let summary = written.await?;
    say!(
        "{}: {} rows in {} files, {} record batches, {:.3} GB in {:.2} s",
        args.output.display(),
        summary.rows,
        summary.files,
        summary.batches,
        summary.bytes as f64 / 1e9,
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}

fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("converting {spinner} {human_pos} rows, {per_sec}");
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// The input's columns in their fastest layout; the named text columns as dictionaries.
fn target_schema(input: &SchemaRef, dictionary: &[String]) -> Result<SchemaRef> {
    let schema = streamed_schema(input, dictionary);
    let is_dictionary = |name: &String| {
        let field = schema.field_with_name(name);
        field.is_ok_and(|field| matches!(field.data_type(), DataType::Dictionary(..)))
    };
    match dictionary.iter().find(|name| !is_dictionary(name)) {
        None => Ok(schema),
        Some(name) if schema.field_with_name(name).is_ok() => {
            Err(CliError::new(format!("--dictionary {name}: the column is no text")))
        }
        Some(name) => Err(CliError::new(format!("--dictionary {name}: no such column"))
            .hint(format!("columns: {}", names(input)))),
    }
}

/// The smallest and largest value of each column that may become narrower; unscaled for a decimal. They come from exact
/// statistics of the input if there are any; else all rows are read.
async fn bounds(
    session: &Session,
    schema: &SchemaRef,
    packed: bool,
) -> datafusion::error::Result<HashMap<String, RangeInclusive<i128>>> {
    let is_wide = |field: &&Arc<Field>| {
        use DataType::{Date32, Decimal128, Int16, Int32, Int64};
        match field.data_type() {
            Int16 | Int32 | Int64 | Decimal128(..) => true,
            Date32 => packed,
            _ => false,
        }
    };
    let wide: Vec<_> = schema.fields().iter().filter(is_wide).collect();
    if wide.is_empty() {
        return Ok(HashMap::new());
    }
    let ends = wide.iter().map(|field| {
        let name = field.name().replace('"', "\"\"");
        format!("min(\"{name}\"), max(\"{name}\")")
    });
    let query = format!("select {} from input", ends.collect::<Vec<_>>().join(", "));
    let (batches, _) = session.sql(&query).await?.collect().await?;
    let Some(ends) = batches.iter().find(|batch| batch.num_rows() > 0) else {
        return Ok(HashMap::new());
    };
    let end = |column: usize| {
        let column = ends.column(column);
        match column.data_type() {
            _ if column.is_null(0) => None,
            DataType::Int16 => Some(column.as_primitive::<Int16Type>().value(0).into()),
            DataType::Int32 => Some(column.as_primitive::<Int32Type>().value(0).into()),
            DataType::Int64 => Some(column.as_primitive::<Int64Type>().value(0).into()),
            DataType::Date32 => Some(column.as_primitive::<Date32Type>().value(0).into()),
            DataType::Decimal128(..) => Some(column.as_primitive::<Decimal128Type>().value(0)),
            _ => None,
        }
    };
    // A column without values has room in any width.
    let range = |i: usize| end(2 * i).unwrap_or(0)..=end(2 * i + 1).unwrap_or(0);
    Ok(wide.iter().enumerate().map(|(i, field)| (field.name().clone(), range(i))).collect())
}

fn names(schema: &SchemaRef) -> String {
    schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", ")
}
