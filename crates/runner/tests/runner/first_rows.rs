//! The first rows of an order: chunks come best first, and record batches without a row of use are not read.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use headrace_format::arrow::WriterOptions;
use headrace_ir::{
    CompareOp, DataType, Expr, NamedExpr, OrderKey, Pipeline, Program, Scalar, Sink, Step,
};
use headrace_runner::{Processor, Runner, RunnerOptions, StreamTable};

use crate::support::{self, rows, run_on};

const ROWS: i64 = 400_000;
const ROWS_PER_BATCH: usize = 2_000;
const BATCHES: u64 = ROWS as u64 / ROWS_PER_BATCH as u64;

/// `at` and `sparse` of a row, whose number is its id.
type Row = (i64, Option<i64>);

/// Two files: `at` rises, but for some disorder; `sparse` is as `at` or NULL; `id` is what is asked for.
fn table(folder: &std::path::Path) -> (Arc<StreamTable>, Vec<Row>) {
    let values = (0..ROWS).map(|i| {
        let at = i / 3 * 10 + (i * 7919 % 1000);
        (at, (i % 3 == 1 && i > ROWS / 2).then_some(at))
    });
    let values: Vec<Row> = values.collect();
    let batch = |rows: std::ops::Range<usize>| {
        let ids = rows.clone().map(|row| row as i64).collect::<Int64Array>();
        let at = values[rows.clone()].iter().map(|row| Some(row.0)).collect::<Int64Array>();
        let sparse = values[rows].iter().map(|row| row.1).collect::<Int64Array>();
        let columns: [(&str, ArrayRef, bool); 3] = [
            ("id", Arc::new(ids), false),
            ("at", Arc::new(at), false),
            ("sparse", Arc::new(sparse), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    };
    // The later file comes first.
    let half = values.len() / 2;
    let parts = [(batch(half..values.len()), "a.arrow"), (batch(0..half), "b.arrow")];
    let paths = parts.map(|(batch, name)| {
        let path = folder.join(name);
        let options = WriterOptions { rows_per_batch: ROWS_PER_BATCH, ..WriterOptions::default() };
        support::write(&path, &batch, options);
        path
    });
    (support::open("t", &paths), values)
}

struct Case {
    column: &'static str,
    key: OrderKey,
    limit: u64,
    /// Of rows with a smaller id.
    below: Option<i64>,
}

fn program(table: &StreamTable, case: &Case) -> Program {
    let names = ["id", "at", "sparse"];
    let source = table.source_over(0, &names).unwrap();
    let columns = names.iter().enumerate();
    let columns =
        columns.map(|(i, name)| NamedExpr { name: (*name).into(), expr: source.register(i) });
    let by_id = OrderKey { column: 0, descending: false, nulls_first: false };
    let (columns, order) = (columns.collect(), vec![case.key, by_id]);
    let sink = Sink::Sorted { columns, order, limit: Some(case.limit) };
    let filter = |limit: i64| {
        let limit = Expr::Literal(Scalar::int(DataType::Int64, limit.into()));
        Step::Filter(Expr::compare(CompareOp::Lt, source.register(0), limit))
    };
    let steps = case.below.map(filter).into_iter().collect();
    Program::new(vec![], Pipeline { source, steps, sink })
}

/// The rows that are wanted.
fn expected(values: &[Row], case: &Case) -> Vec<String> {
    let kept = case.below.map_or(values.len(), |below| below as usize);
    let value = |row: usize| if case.column == "at" { Some(values[row].0) } else { values[row].1 };
    let mut ids: Vec<usize> = (0..kept).collect();
    ids.sort_by_key(|&row| {
        let value = value(row).map(|v| if case.key.descending { -v } else { v });
        let is_later = if case.key.nulls_first { value.is_some() } else { value.is_none() };
        (is_later, value, row)
    });
    ids.truncate(case.limit as usize);
    let text = |value: Option<i64>| value.map_or("NULL".to_string(), |v| v.to_string());
    let line = |row: usize| format!("{row}|{}|{}", values[row].0, text(values[row].1));
    let mut rows: Vec<_> = ids.into_iter().map(line).collect();
    rows.sort();
    rows
}

#[test]
fn record_batches_without_a_row_of_use_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (table, values) = table(folder.path());
    let case = |column, descending, nulls_first, limit, below| {
        let place = if column == "at" { 1 } else { 2 };
        let key = OrderKey { column: place, descending, nulls_first };
        Case { column, key, limit, below }
    };
    let quarter = Some(ROWS / 4);
    // How many batches at least are not read.
    let cases = [
        (case("at", true, false, 10, None), BATCHES / 2),
        (case("at", false, false, 10, None), BATCHES / 2),
        // No NULLs, wherever they would come.
        (case("at", true, true, 10, None), BATCHES / 2),
        (case("at", true, false, 10, quarter), BATCHES / 10),
        (case("sparse", true, false, 10, None), BATCHES / 2),
        // Not as many values as are wanted: NULLs are, too.
        (case("sparse", false, false, 100_000, None), 0),
        (case("sparse", true, true, 10, None), 0),
        (case("at", false, false, ROWS as u64 * 2, None), 0),
    ];
    for (case, least) in cases {
        let runner = Runner::new(&RunnerOptions::default());
        let program = program(&table, &case);
        let tables = [Arc::clone(&table)];
        let (found, report) = run_on(Processor::Cpu, &runner, &program, &tables).unwrap();
        let what = format!("{} {:?} limit {}", case.column, case.key, case.limit);
        assert_eq!(rows(&found), expected(&values, &case), "{what}");
        let pruned = report.streamed.pruned_batches;
        assert!(pruned >= least && (least > 0 || pruned == 0), "{what}: {pruned} of {BATCHES}");
    }
}
