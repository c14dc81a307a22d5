//! The same pipeline over the same segments on two processors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use arrow_array::{Array, RecordBatch};
use headrace_cuda::{RowOutput, StepsLeft};
use headrace_ir::{Input, Pipeline, Source};
use headrace_pipeline::bind::{BindOptions, Lookups, bind};
use headrace_pipeline::bound::{Bound, BoundSink, BoundStep};
use headrace_pipeline::cpu::{CpuProgram, CpuWorker, WorkerOptions};
use headrace_pipeline::state::Output;
use headrace_pipeline::{BuildTable, ExecError, WhyNot};

use crate::corpus::Case;
use crate::data::{Shape, Table};

/// An answer: sorted rows as text, or the text of the failure.
pub type Answer = Result<Vec<String>, String>;

/// Does `work` with each of the items on all cores; the names of those with which it panicked.
pub fn failed_of<T: Send>(
    items: impl IntoIterator<Item = (String, T)>,
    work: impl Fn(T) + Sync,
) -> Vec<String> {
    let items: Mutex<Vec<_>> = Mutex::new(items.into_iter().collect());
    let failed = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, item)) = { items.lock().unwrap().pop() } {
                    if catch_unwind(AssertUnwindSafe(|| work(item))).is_err() {
                        failed.lock().unwrap().push(name);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap()
}

pub fn bound_of(
    case: &Case,
    table: &Table,
    builds: &[Arc<BuildTable>],
) -> Result<Arc<Bound>, WhyNot> {
    bound_with(case, table, builds, BindOptions::default())
}

/// As above, with other options.
pub fn bound_with(
    case: &Case,
    table: &Table,
    builds: &[Arc<BuildTable>],
    options: BindOptions,
) -> Result<Arc<Bound>, WhyNot> {
    let pipeline = Pipeline {
        source: Source {
            input: Input::Table(0),
            table: "t".into(),
            columns: table.fields.clone(),
            ordinals: (0..table.fields.len()).collect(),
        },
        steps: case.steps.clone(),
        sink: case.sink.clone(),
    };
    let options = BindOptions { lookups: Lookups::Gpu, ..options };
    bind(&pipeline, &table.source, builds, &options).map(Arc::new)
}

/// What the CPU processor answers.
pub fn on_cpu(bound: &Arc<Bound>, table: &Table) -> Answer {
    batches_on_cpu(bound, table).map(|batches| lines(&batches))
}

/// As above, before it is text.
pub fn batches_on_cpu(bound: &Arc<Bound>, table: &Table) -> Result<Vec<RecordBatch>, String> {
    let program = CpuProgram::compile(Arc::clone(bound)).unwrap();
    let run = || program.finish(vec![worker_after(&program, table)?], Default::default());
    match run() {
        Ok(Output::Batches(batches)) => Ok(batches),
        Ok(Output::Build(_)) => panic!("a build"),
        Err(error) => Err(error.to_string()),
    }
}

/// A worker that has seen all of a table.
fn worker_after(program: &Arc<CpuProgram>, table: &Table) -> Result<CpuWorker, ExecError> {
    let mut worker = program.worker(&WorkerOptions::new(1 << 30))?;
    for segment in &table.segments {
        worker.execute(&table.view(segment))?;
    }
    Ok(worker)
}

/// The rows that each step of a pipeline leaves on the cores; none where a limit ends it.
pub fn left_on_cpu(bound: &Arc<Bound>, table: &Table) -> Vec<u64> {
    // Of the first rows, the cores drop early what cannot be among them.
    let is_limited = matches!(
        bound.sink,
        BoundSink::Rows { limit: Some(_), .. } | BoundSink::Sorted { limit: Some(_), .. }
    );
    let program = CpuProgram::compile(Arc::clone(bound)).unwrap();
    match worker_after(&program, table) {
        Ok(worker) if !is_limited => worker.rows_left().to_vec(),
        _ => Vec::new(),
    }
}

/// Steps left as many rows as on the cores, where both counted them and in the same order; the last step
/// in any order. Only a computation that comes first may be uncounted there. Nothing is compared with
/// nothing.
pub fn assert_left(what: &str, bound: &Bound, on_cpu: &[u64], found: &StepsLeft) {
    let Some((last, _)) = on_cpu.split_last() else { return };
    let is_computed = bound.steps.iter().all(|step| matches!(step, BoundStep::Compute { .. }));
    let wanted = (!is_computed).then_some(*last);
    assert_eq!(found.rows.last(), Some(&wanted), "{what}: {found:?}, {on_cpu:?}");
    for (step, (found_rows, rows)) in found.rows.iter().zip(on_cpu).enumerate() {
        let Some(found_rows) = found_rows else { continue };
        let is_same = found.places == bound.places && *rows > 0;
        assert!(!is_same || found_rows == rows, "{what}, step {step}: {found:?}, {on_cpu:?}");
    }
}

/// Takes the rows of an aggregation by dense groups: there are none.
pub fn rows_of_none(bound: &Arc<Bound>) -> RowOutput<'static> {
    let emit = &|_| panic!("rows of an aggregation");
    RowOutput::new(bound, &WorkerOptions::new(0), emit).unwrap()
}

/// Rows as text, sorted.
pub fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let mut lines = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cells: Vec<String> =
                batch.columns().iter().map(|c| cell(c.as_ref(), row)).collect();
            lines.push(cells.join(" | "));
        }
    }
    lines.sort();
    lines
}

fn cell(array: &dyn Array, row: usize) -> String {
    if array.is_null(row) {
        return "NULL".into();
    }
    let text = format!("{:?}", array.slice(row, 1));
    // "PrimitiveArray<Int32>\n[\n  5,\n]": the value stands between the brackets. Both zeros
    // are one value.
    let value = text.split_once("[\n").map_or(&*text, |(_, v)| v);
    let value = value.trim_end_matches("]").trim().trim_end_matches(',');
    if value == "-0.0" { "0.0".into() } else { value.to_string() }
}

/// Layouts that every case is tried with.
pub fn shapes() -> Vec<Shape> {
    vec![
        Shape { seed: 1, nulls: false, skew: 0, code_bytes: 4, remap: false, plain_texts: false },
        Shape { seed: 2, nulls: true, skew: 0, code_bytes: 1, remap: false, plain_texts: false },
        Shape { seed: 3, nulls: true, skew: 3, code_bytes: 2, remap: true, plain_texts: false },
        Shape { seed: 4, nulls: false, skew: 8, code_bytes: 8, remap: true, plain_texts: false },
    ]
}

/// Those of plain texts.
pub fn text_shapes() -> [Shape; 2] {
    let [_, plain, skewed, _] = shapes()[..] else { panic!("four shapes") };
    [
        Shape { plain_texts: true, remap: false, ..plain },
        Shape { plain_texts: true, remap: false, ..skewed },
    ]
}

/// Compares, with a message that has everything needed to look into a difference.
pub fn assert_same(name: &str, shape: Shape, cpu: &Answer, cuda: &Answer, source: &str) {
    if cpu == cuda {
        return;
    }
    let shown = |answer: &Answer| match answer {
        Ok(lines) => format!("{} rows", lines.len()),
        Err(error) => format!("error: {error}"),
    };
    let mut differences = String::new();
    if let (Ok(cpu), Ok(cuda)) = (cpu, cuda) {
        let pairs = cpu.iter().zip(cuda).filter(|(a, b)| a != b).take(5);
        pairs.for_each(|(a, b)| differences += &format!("  cpu  {a}\n  cuda {b}\n"));
    }
    panic!(
        "case {name:?} with {shape:?}: cpu {}, cuda {}\n{differences}\n{source}",
        shown(cpu),
        shown(cuda)
    );
}
