//! `headrace sort`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use headrace_format::arrow::is_table_file;
use headrace_ooc::NumberType;
use headrace_ooc::sort::table::{SortKey, TableSortJob, sort_table};
use headrace_ooc::sort::{Order, RecordLayout, SortJob, sort as sort_file};

use super::run::{RunArgs, failure};
use crate::error::{CliError, Result};
use crate::output::Format;
use crate::sizes::parse_bytes;

/// `sort`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace sort keys.i64 -o sorted.i64
  headrace sort events.bin -o by-time.bin --record 32 --key-offset 8 --type u64
  headrace sort big.f64 -o big.f64 --type f64 --descending --memory-limit 2GiB
  headrace sort orders/ -o by-date.arrow --by date,price:desc,name:asc:nulls-first

Records are sorted in one pass where they fit the memory, in two where they do not; the second needs as much
space for temporary files as the input has. Records with equal keys stay in the order of the input.
NaN comes last, -0 is 0. Arrow files, or folders of them, are sorted by columns (--by); NULLs come last, and
first in descending order, unless it is said otherwise.")]
pub struct SortArgs {
    /// File of records of a fixed width, one after the other; an Arrow file, or a folder of them.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// File to write them to; it may be IN, which is then replaced when all is done.
    #[arg(short, long, value_name = "OUT")]
    pub out: PathBuf,
    /// Columns to sort a table by, the most significant first: NAME, NAME:desc, NAME:asc:nulls-first.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', conflicts_with_all = ["record", "descending"])]
    pub by: Vec<SortKey>,
    /// Type of the key: i32, u32, i64, u64, f32, f64.
    #[arg(long = "type", value_name = "TYPE", default_value = "i64")]
    pub number: NumberType,
    /// Bytes of a record (default: those of the key).
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub record: Option<u64>,
    /// Where in a record its key lies.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub key_offset: usize,
    /// The greatest first.
    #[arg(long)]
    pub descending: bool,
    /// Folder of temporary files for what does not fit the memory (default: that of OUT).
    #[arg(long, value_name = "DIR")]
    pub spill_folder: Option<PathBuf>,
    /// Limit of temporary files.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub spill_limit: Option<u64>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Sorts and reports the run.
pub fn sort(args: &SortArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let is_table = args.input.is_dir() || is_table_file(&args.input);
    match (is_table, args.by.is_empty()) {
        (true, true) => {
            let what = format!("{} is a table: by which columns?", args.input.display());
            Err(CliError::usage(what).hint("name them (--by)"))
        }
        (false, false) => {
            let what = format!("{} is no Arrow file: it has no columns", args.input.display());
            Err(CliError::usage(what).hint("give its layout (--record, --key-offset, --type)"))
        }
        (true, false) => sort_columns(args, cancel),
        (false, true) => sort_records(args, cancel),
    }
}

fn sort_columns(args: &SortArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    Format::check_arrow_name(&args.out)?;
    let job = TableSortJob {
        input: args.input.clone(),
        output: args.out.clone(),
        by: args.by.clone(),
        temporary_folder: args.spill_folder.clone(),
        temporary_limit_bytes: args.spill_limit,
        rows_per_batch: None,
    };
    let options = args.run.options(cancel);
    let told = sort_table(&job, &options).map_err(failure)?;
    let rate = told.plan.rows as f64 * 1e3 / told.report.wall_ns.max(1) as f64;
    let summary = format!("{} rows sorted, {rate:.1} M rows/s", told.plan.rows);
    args.run.any.tell(&options, &summary, &told.report, &told)
}

fn sort_records(args: &SortArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let record_bytes = args.record.map_or(args.number.bytes(), |bytes| bytes as usize);
    let job = SortJob {
        input: args.input.clone(),
        output: args.out.clone(),
        layout: RecordLayout { record_bytes, key: args.number, key_offset: args.key_offset },
        order: if args.descending { Order::Descending } else { Order::Ascending },
        temporary_folder: args.spill_folder.clone(),
        temporary_limit_bytes: args.spill_limit,
    };
    let options = args.run.options(cancel);
    let report = sort_file(&job, &options).map_err(failure)?;
    let records = report.input_bytes / record_bytes as u64;
    let rate = records as f64 * 1e3 / report.wall_ns.max(1) as f64;
    let summary = format!("{records} records sorted, {rate:.1} M records/s");
    args.run.any.tell(&options, &summary, &report, &report)
}
