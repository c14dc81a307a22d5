//! Sorts a table of Arrow files and says what it took:
//!
//!     cargo run --release -p headrace-ooc --example sort_table -- IN OUT KEY[,KEY]... [memory=BYTES] [threads=N]
//!         [temporary=FOLDER] [batch_rows=N]

use headrace_flow::BoxError;
use headrace_ooc::Options;
use headrace_ooc::sort::table::{TableSortJob, plan_table_sort, sort_table};

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, keys, settings @ ..] = arguments.as_slice() else {
        return Err("usage: sort_table IN OUT KEY[,KEY]... [NAME=VALUE]...".into());
    };
    let mut job = TableSortJob {
        input: input.into(),
        output: output.into(),
        by: keys.split(',').map(str::parse).collect::<Result<_, _>>()?,
        temporary_folder: None,
        temporary_limit_bytes: None,
        rows_per_batch: None,
    };
    let mut options = Options::default();
    for setting in settings {
        match setting.split_once('=') {
            Some(("memory", bytes)) => options.memory_limit_bytes = Some(bytes.parse()?),
            Some(("threads", threads)) => options.threads = Some(threads.parse()?),
            Some(("temporary", folder)) => job.temporary_folder = Some(folder.into()),
            Some(("batch_rows", rows)) => job.rows_per_batch = Some(rows.parse()?),
            _ => return Err(format!("{setting:?} is no setting").into()),
        }
    }
    println!("{:?}", plan_table_sort(&job, &options)?);
    let report = sort_table(&job, &options)?;
    report.lines().iter().for_each(|line| println!("{line}"));
    Ok(())
}
