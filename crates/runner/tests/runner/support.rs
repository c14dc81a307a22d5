//! What the tests share: tables in files, runs, and answers as text.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use headrace_flow::CancelToken;
use headrace_format::arrow::{ArrowTable, ArrowWriter, WriterOptions};
use headrace_ir::{Program, Scalar};
use headrace_runner::{
    Fallback, Processor, Request, RunError, RunReport, Runner, Settings, StreamTable,
};

pub fn write(path: &Path, batch: &RecordBatch, options: WriterOptions) {
    let mut writer = ArrowWriter::create(path, &batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
}

pub fn open(name: &str, files: &[PathBuf]) -> Arc<StreamTable> {
    Arc::new(StreamTable::new(name, Arc::new(ArrowTable::open(files).unwrap())))
}

/// A run on one processor and no other.
pub fn run_with(
    processor: Processor,
    runner: &Runner,
    program: &Program,
    parameters: &[Scalar],
    tables: &[Arc<StreamTable>],
    token: &CancelToken,
) -> Result<(Vec<RecordBatch>, RunReport), RunError> {
    let batches = Mutex::new(Vec::new());
    let settings =
        Settings { processor, fallback: Fallback::Forbid, threads: 2, ..Settings::default() };
    let request = Request { program, parameters, tables, settings: &settings, token, known: None };
    let report = runner.run(&request, &|batch| {
        batches.lock().unwrap().push(batch);
        true
    })?;
    Ok((batches.into_inner().unwrap(), report))
}

/// As [`run_with`], of a program without parameters.
pub fn run_on(
    processor: Processor,
    runner: &Runner,
    program: &Program,
    tables: &[Arc<StreamTable>],
) -> Result<(Vec<RecordBatch>, RunReport), RunError> {
    run_with(processor, runner, program, &[], tables, &CancelToken::new())
}

/// All rows as text, sorted: groups come in no order.
pub fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns: Vec<_> =
            columns.map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        rows.extend((0..batch.num_rows()).map(|row| {
            let cells: Vec<_> = columns.iter().map(|c| c.value(row).to_string()).collect();
            cells.join("|")
        }));
    }
    rows.sort();
    rows
}
