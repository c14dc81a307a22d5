//! `headrace intersect`, `union`, `difference`, `symmetric-difference`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use headrace_ooc::sets::{self, KeyList, Repeats, SetJob, SetOperation};
use headrace_ooc::{NumberType, Options, PlainFiles};

use super::run::{RunArgs, failure};
use crate::error::Result;
use crate::output::print;
use crate::sizes::parse_bytes;

/// A set operation on two lists.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace generate keys a.i64 b.i64 --keys 100000000 --selectivity 0.3
  headrace intersect a.i64 b.i64 -o both.i64
  headrace difference a.i64 b.i64 --count
  headrace union orders/ old.arrow --column id --unique -o ids.i64

A list is a file of keys and nothing else, or a column of Arrow files, in ascending order (NaN last).
Keys that are not in order are an error that names their position; stretches of a list that cannot meet
the other are not read, and not checked. Without --unique a key that is m times in A and n times in B is
min(m, n), max(m, n), max(m - n, 0) or |m - n| times in the result.")]
pub struct SetArgs {
    /// The first list.
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The second list.
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// File to write the result to, as keys and nothing else. It may be a list, which is then replaced when
    /// all is done.
    #[arg(short, long, value_name = "OUT", required_unless_present = "count")]
    pub out: Option<PathBuf>,
    /// Print how many keys the result has instead.
    #[arg(long, conflicts_with = "out")]
    pub count: bool,
    /// Type of the keys of files that do not say it: i32, u32, i64, u64, f32, f64 (default: i64).
    #[arg(long = "type", value_name = "TYPE")]
    pub number: Option<NumberType>,
    /// Column of Arrow files that has the keys.
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
    /// A key that is repeated in a list is an error.
    #[arg(long)]
    pub unique: bool,
    /// Of each block of so many bytes the last key is read beforehand (default: 2MiB). Smaller blocks let
    /// more of a list drop out where the other has few keys.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub fence: Option<u64>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Runs the operation and reports the result.
pub fn set(args: &SetArgs, operation: SetOperation, cancel: Arc<AtomicBool>) -> Result<()> {
    let list = |path: &PathBuf| {
        // What is said of keys is said of files that do not say it themselves.
        let is_table = path.is_dir() || headrace_format::arrow::is_table_file(path);
        let number = if is_table { None } else { args.number };
        let column = if is_table { args.column.as_deref() } else { None };
        KeyList::open(path, number, column, &PlainFiles).map_err(failure)
    };
    let job = SetJob {
        lists: [list(&args.a)?, list(&args.b)?],
        operation,
        repeats: if args.unique { Repeats::Refused } else { Repeats::Allowed },
        output: args.out.clone(),
        fence_bytes: args.fence,
    };
    let options = args.run.options(cancel);
    let told = sets::run(&job, &options).map_err(failure)?;
    if args.count {
        print(&format!("{}\n", told.keys))?;
    }
    let [a, b] = told.list_keys;
    let dropped = match told.dropped_keys {
        0 => String::new(),
        keys => format!(", of which {keys} had no counterpart and were not read"),
    };
    let summary = format!("{operation}: {} keys, of {a} and {b}{dropped}", told.keys);
    args.run.any.tell(&options, &summary, &told.report, &told)
}

/// `fences`.
#[derive(Debug, Args)]
#[command(after_help = "\
Where one list has few keys, the blocks of the other that hold none of them are not read. Without fences of
its own a list is looked at once for each 2 MiB; with them, blocks may be smaller. They lie in LIST.fences and
count as long as LIST is the same file, unchanged.")]
pub struct FencesArgs {
    /// A list: a file of keys and nothing else, in ascending order.
    #[arg(value_name = "LIST")]
    pub list: PathBuf,
    /// Type of its keys: i32, u32, i64, u64, f32, f64.
    #[arg(long = "type", value_name = "TYPE", default_value = "i64")]
    pub number: NumberType,
    /// Bytes of a block.
    #[arg(long, value_name = "BYTES", default_value = "64KiB", value_parser = parse_bytes)]
    pub block: u64,
    /// Only errors.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Stores a list's fences beside it.
pub fn fences(args: &FencesArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let list = KeyList::raw(&args.list, args.number, &PlainFiles).map_err(failure)?;
    let options = Options { token: cancel.into(), ..Options::default() };
    let told = sets::keep_fences(&list, args.block, &options).map_err(failure)?;
    if !args.quiet {
        say!(
            "{}: the last keys of {} blocks of {} keys, {:.3} s",
            told.path.display(),
            told.blocks,
            told.block_keys,
            told.wall_ns as f64 / 1e9,
        );
    }
    Ok(())
}
