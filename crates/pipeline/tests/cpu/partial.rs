//! Partial states as data: from any processor, through IPC, in any order.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray, UInt64Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use headrace_columns::ColumnError;
use headrace_columns::repr::Dictionary;
use headrace_ir::{
    AggregateFunction, AggregateOutput, DataType, Encoding, Expr, Pipeline, Scalar, Sink,
};
use headrace_pipeline::bind::{BindOptions, bind};
use headrace_pipeline::bound::{AccumulatorKind, BoundSink};
use headrace_pipeline::cpu::{CpuProgram, CpuWorker, WorkerOptions};
use headrace_pipeline::partial::{PartialMerge, PartialSchema};
use headrace_pipeline::state::Output;
use headrace_pipeline::{Bound, BuildOptions, ExecError, SourceColumn};
use proptest::prelude::*;

use crate::grouping::{FUNCTIONS, result_type};
use crate::random::{self, Random};
use crate::spread::{floats, squared_deviations};
use crate::support::*;

/// To bytes and back.
fn travelled(batch: &RecordBatch) -> RecordBatch {
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
    writer.write(batch).unwrap();
    let bytes = writer.into_inner().unwrap();
    let mut batches = StreamReader::try_new(Cursor::new(bytes), None).unwrap();
    batches.next().unwrap().unwrap()
}

/// Bound to end in partial states.
fn bound_as(table: &Table, sink: &Sink, dense_groups_max: u64) -> Arc<Bound> {
    let mut sink = sink.clone();
    let Sink::Aggregate { output, .. } = &mut sink else { panic!("no aggregate") };
    *output = AggregateOutput::Partial;
    let pipeline = Pipeline { source: table.source(), steps: vec![], sink };
    let options = BindOptions { dense_groups_max, ..BindOptions::default() };
    Arc::new(bind(&pipeline, &table.info(), &[], &options).unwrap())
}

/// Partial states of rows `start .. end`.
fn partials(bound: &Arc<Bound>, table: &Table, start: usize, end: usize) -> Vec<RecordBatch> {
    let program = CpuProgram::compile(Arc::clone(bound)).unwrap();
    let mut worker: CpuWorker = program.worker(&WorkerOptions::new(u64::MAX)).unwrap();
    worker.execute(&table.part(start, end)).unwrap();
    match program.finish(vec![worker], BuildOptions::default()).unwrap() {
        Output::Batches(batches) => batches,
        Output::Build(_) => panic!("a build"),
    }
}

fn merged(
    bound: &Arc<Bound>,
    batches: &[RecordBatch],
    options: &WorkerOptions,
) -> Result<Vec<RecordBatch>, ExecError> {
    let mut merge = PartialMerge::new(bound, options)?;
    batches.iter().try_for_each(|batch| merge.push(batch))?;
    let finished = std::sync::Mutex::new(Vec::new());
    merge.finish(&|batch| {
        finished.lock().unwrap().push(batch);
        true
    })?;
    Ok(finished.into_inner().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn partial_states_of_any_origin_merge_in_any_order(seed: u64) {
        let mut random = Random(seed);
        let row_count = *random.pick(&[0, 8, 40]);
        let (table, _) = random::table(&mut random, row_count);
        let keys = (0..random.below(3)).map(|i| {
            let column = random.below(table.fields.len());
            named(&format!("k{i}"), table.col(&format!("c{column}")))
        }).collect();
        let calls = (0..1 + random.below(3)).map(|i| {
            let function = *random.pick(&FUNCTIONS);
            let sums = matches!(function, AggregateFunction::Sum | AggregateFunction::Avg);
            let argument = loop {
                let column = random.below(table.fields.len());
                let data_type = &table.fields[column].data_type;
                // Float totals depend on the order.
                if !sums || (data_type.is_numeric() && !data_type.is_float()) {
                    break table.col(&format!("c{column}"));
                }
            };
            let result = result_type(function, &argument.data_type());
            let mut made = call(function, Some(argument), result);
            made.name = format!("a{i}");
            made
        }).collect();
        let sink = Sink::aggregate(keys, calls);
        let whole = run_with(&table, vec![], sink.clone(), &[], RunOptions::default());

        // Eight rows a processor, of which some number groups densely.
        let bounds = [0, 65_536].map(|dense| bound_as(&table, &sink, dense));
        let mut batches: Vec<RecordBatch> = (0..row_count.max(1)).step_by(8).flat_map(|start| {
            let bound = random.pick(&bounds);
            partials(bound, &table, start, (start + 8).min(row_count))
        }).collect();
        for i in (1..batches.len()).rev() {
            batches.swap(i, random.below(i + 1));
        }
        let schema = PartialSchema::portable(&bounds[0]).unwrap();
        prop_assert!(batches.iter().all(|batch| batch.schema_ref() == schema.arrow()));
        let batches: Vec<_> = batches.iter().map(travelled).collect();
        let home = tempfile::tempdir().unwrap();
        let run = RunOptions {
            groups_max: random.chance(50).then_some(2),
            puts_aside: random.chance(50),
            memory_limit_bytes: *random.pick(&[100_000, u64::MAX]),
            ..RunOptions::default()
        };
        let options = worker_options(&run, home.path());
        match (whole, merged(&bounds[random.below(2)], &batches, &options)) {
            (Ok(Output::Batches(whole)), Ok(found)) => {
                prop_assert_eq!(rows(&whole), rows(&found));
            }
            // Which of several totals is looked at first is not promised.
            (Err(ExecError::Column(ColumnError::Overflow { .. })), Err(ExecError::Column(ColumnError::Overflow { .. }))) => {}
            (whole, found) => prop_assert!(false, "{:?} but {:?}", whole, found),
        }
    }
}

/// A column of codes of a dictionary of its own.
pub fn coded(dictionary: &[&str], codes: &[i32]) -> Table {
    let mut table = Table::new("t", codes.len());
    let values = StringArray::from(dictionary.to_vec());
    let column = TestColumn {
        encoding: Some(Encoding::Dictionary { code_bytes: 4 }),
        values: codes.iter().flat_map(|code| code.to_le_bytes()).collect(),
        remap: Some((0..dictionary.len() as i32).collect()),
        info: SourceColumn {
            dictionary: Some(Arc::new(Dictionary { values })),
            ..SourceColumn::default()
        },
        ..TestColumn::default()
    };
    table.push("name", DataType::Utf8, false, column);
    table
}

#[test]
fn codes_of_different_dictionaries_meet_as_text() {
    let tables = [coded(&["a", "c", "d"], &[2, 0, 1, 2]), coded(&["b", "c"], &[1, 0, 0, 1])];
    for keyed in [true, false] {
        let batches: Vec<RecordBatch> = tables
            .iter()
            .zip([0, 65_536])
            .flat_map(|(table, dense)| {
                partials(&bound_as(table, &extremes(table, keyed), dense), table, 0, 4)
            })
            .collect();
        let bound = bound_as(&tables[0], &extremes(&tables[0], keyed), 65_536);
        let found = merged(&bound, &batches, &WorkerOptions::new(u64::MAX)).unwrap();
        let expected = match keyed {
            true => vec!["a|1|a|a", "b|2|b|b", "c|3|c|c", "d|2|d|d"],
            false => vec!["8|a|d"],
        };
        assert_eq!(rows(&found), expected);
    }
}

fn extremes(table: &Table, keyed: bool) -> Sink {
    let name = || table.col("name");
    Sink::aggregate(
        if keyed { vec![named("name", name())] } else { vec![] },
        vec![
            call(AggregateFunction::Count, None, DataType::Int64),
            call(AggregateFunction::Min, Some(name()), DataType::Utf8),
            call(AggregateFunction::Max, Some(name()), DataType::Utf8),
        ],
    )
}

#[test]
fn batches_of_another_pipeline_are_refused() {
    let table = coded(&["a"], &[0]);
    let bound = bound_as(&table, &extremes(&table, true), 0);
    let options = WorkerOptions::new(u64::MAX);
    let batch = partials(&bound, &table, 0, 1).remove(0);
    let mut merge = PartialMerge::new(&bound, &options).unwrap();
    let few = batch.project(&[0, 1]).unwrap();
    let error = merge.push(&few).unwrap_err().to_string();
    assert!(error.contains("2 columns instead of 8"), "{error}");
    let mut columns = batch.columns().to_vec();
    columns[0] = Arc::new(UInt64Array::from(vec![7]));
    let fields: Vec<_> = columns.iter().map(|c| c.data_type().clone()).collect();
    let fields: Vec<_> = fields
        .into_iter()
        .map(|data_type| arrow_schema::Field::new("x", data_type, true))
        .collect();
    let metadata = batch.schema().metadata().clone();
    let schema = Arc::new(arrow_schema::Schema::new_with_metadata(fields, metadata));
    let other = RecordBatch::try_new(schema, columns).unwrap();
    let error = merge.push(&other).unwrap_err().to_string();
    assert!(error.contains("column 0 (name) is UInt64 instead of Utf8"), "{error}");
}

/// A NOT NULL Int64 column; a claim of bounds that need not be true of another table.
fn longs(values: &[i64], range: Option<(i64, i64)>, nullable: bool) -> Table {
    let mut table = Table::new("t", values.len());
    let column = TestColumn {
        encoding: Some(Encoding::Plain),
        values: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        info: SourceColumn {
            range: range.map(|(min, max)| headrace_ir::ValueRange { min, max }),
            may_have_nulls: nullable,
            ..SourceColumn::default()
        },
        ..TestColumn::default()
    };
    table.push("i", DataType::Int64, true, column);
    table
}

#[test]
fn what_files_claim_does_not_change_the_schema() {
    // One table may have NULLs and wide totals, the other has neither.
    let tables = [longs(&[5, i64::MAX], None, true), longs(&[5, 2, 2], Some((2, 5)), false)];
    let sink = |table: &Table| {
        Sink::aggregate(
            vec![named("i", table.col("i"))],
            vec![
                call(AggregateFunction::Sum, Some(table.col("i")), DataType::Int64),
                call(AggregateFunction::Avg, Some(table.col("i")), DataType::Float64),
                call(AggregateFunction::Count, None, DataType::Int64),
            ],
        )
    };
    let bounds = tables.each_ref().map(|table| bound_as(table, &sink(table), 65_536));
    let schemas = bounds.each_ref().map(|bound| PartialSchema::portable(bound).unwrap());
    assert_eq!(schemas[0].arrow(), schemas[1].arrow());
    let batches: Vec<_> = bounds
        .iter()
        .zip(&tables)
        .flat_map(|(bound, table)| partials(bound, table, 0, table.rows))
        .collect();
    for bound in &bounds {
        let found = merged(bound, &batches, &WorkerOptions::new(u64::MAX)).unwrap();
        let largest = format!("{0}|{0}|9.223372036854776e18|1", i64::MAX);
        assert_eq!(rows(&found), ["2|4|2.0|2", "5|10|5.0|2", &largest]);
    }
}

#[test]
fn totals_that_fit_each_part_need_not_fit_all() {
    // Each part proves that its total fits 64 bits; together they do not.
    let large = Expr::Literal(Scalar::int(DataType::Int64, (i64::MAX / 2).into()));
    let parts = [longs(&[1], None, false), longs(&[1; 2], None, false)];
    let sink =
        Sink::aggregate(vec![], vec![call(AggregateFunction::Sum, Some(large), DataType::Int64)]);
    let bounds = parts.each_ref().map(|table| bound_as(table, &sink, 0));
    for bound in &bounds {
        let BoundSink::Aggregate { accumulators, .. } = &bound.sink else { panic!() };
        assert_eq!(accumulators[1].kind, AccumulatorKind::SumI64);
    }
    let batches: Vec<_> = bounds
        .iter()
        .zip(&parts)
        .flat_map(|(bound, table)| partials(bound, table, 0, table.rows))
        .collect();
    let error = merged(&bounds[0], &batches, &WorkerOptions::new(u64::MAX)).unwrap_err();
    assert!(matches!(error, ExecError::Column(ColumnError::Overflow { .. })), "{error}");
}

#[test]
fn totals_of_192_bits_travel() {
    let widest = DataType::Decimal128 { precision: 38, scale: 0 };
    let large = 10i128.pow(38) - 1;
    let mut table = Table::new("t", 24);
    let values = [large; 8].into_iter().chain([-large; 8]).chain([1; 8]);
    let column = TestColumn {
        encoding: Some(Encoding::Plain),
        values: values.flat_map(i128::to_le_bytes).collect(),
        ..TestColumn::default()
    };
    table.push("d", widest.clone(), false, column);
    let sum = call(AggregateFunction::Sum, Some(table.col("d")), widest);
    let bound = bound_as(&table, &Sink::aggregate(vec![], vec![sum]), 0);
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let batches: Vec<_> = order
            .iter()
            .flat_map(|part| partials(&bound, &table, part * 8, part * 8 + 8))
            .map(|batch| travelled(&batch))
            .collect();
        let options = WorkerOptions::new(u64::MAX);
        assert_eq!(rows(&merged(&bound, &batches, &options).unwrap()), ["8"]);
        let error = merged(&bound, &batches[..1], &options);
        assert_eq!(error.is_err(), order[0] != 2);
    }
}

#[test]
fn squared_deviations_of_parts_travel_and_meet_in_any_order() {
    let values: Vec<_> = (0..64).map(|i| (i % 5 > 0).then_some(1e3 + f64::from(i * i))).collect();
    let keys: Vec<i32> = (0..64).map(|i| i % 3).collect();
    let table = Table::new("t", 64).int32("k", &keys);
    let table = floats(table, "f", DataType::Float64, &values);
    let deviations = squared_deviations(table.col("f"));
    for keyed in [true, false] {
        let by = if keyed { vec![named("k", table.col("k"))] } else { vec![] };
        let sink = Sink::aggregate(by, vec![deviations.clone()]);
        let bounds = [0, 65_536].map(|dense| bound_as(&table, &sink, dense));
        // The values are integers, and so is what comes of each group's count and sums, but for its division.
        let expected: Vec<String> = (0..if keyed { 3 } else { 1 })
            .map(|group| {
                let of_group = |row: &i128| !keyed || row % 3 == group;
                let values = (0..64i128).filter(|i| i % 5 > 0).filter(of_group).map(|i| i * i);
                let (count, sum) = (values.clone().count() as i128, values.clone().sum::<i128>());
                let squares: i128 = values.map(|value| value * value).sum();
                let exact = (squares * count - sum * sum) as f64 / count as f64;
                if keyed { format!("{group}|{exact:.3}") } else { format!("{exact:.3}") }
            })
            .collect();
        for seed in 0..20 {
            let mut random = Random(seed);
            let mut batches: Vec<RecordBatch> = (0..64)
                .step_by(8)
                .flat_map(|row| partials(random.pick(&bounds), &table, row, row + 8))
                .map(|batch| travelled(&batch))
                .collect();
            for i in (1..batches.len()).rev() {
                batches.swap(i, random.below(i + 1));
            }
            let found = merged(&bounds[0], &batches, &WorkerOptions::new(u64::MAX)).unwrap();
            let rounded = rows(&found).into_iter().map(|line| {
                let (key, value) = line.split_at(line.find('|').map_or(0, |at| at + 1));
                format!("{key}{:.3}", value.parse::<f64>().unwrap())
            });
            assert_eq!(rounded.collect::<Vec<_>>(), expected);
        }
    }
}
