//! The vectorised evaluator against the row-at-a-time interpreter.

use headrace_ir::{DataType, Expr, Sink, Step, Value};
use headrace_pipeline::state::Output;
use proptest::prelude::*;

use crate::random::{self, Random, TYPES};
use crate::reference::{Failed, eval, show};
use crate::support::*;

fn output(
    table: &Table,
    steps: Vec<Step>,
    columns: Vec<Expr>,
    batch_rows: usize,
) -> Result<Vec<String>, String> {
    let columns =
        columns.into_iter().enumerate().map(|(i, e)| named(&format!("o{i}"), e)).collect();
    let options = RunOptions { batch_rows, ..RunOptions::default() };
    match run_with(table, steps, Sink::Rows { columns, limit: None }, &[], options) {
        Ok(Output::Batches(batches)) => Ok(rows(&batches)),
        Ok(Output::Build(_)) => panic!("a build"),
        Err(error) => Err(error.to_string()),
    }
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_are_those_of_the_interpreter(seed: u64) {
        let mut random = Random(seed);
        let row_count = *random.pick(&[0, 1, 9, 40]);
        let (table, data) = random::table(&mut random, row_count);
        let data_type = random.pick(&TYPES).clone();
        let expr = random::expr(&mut random, &table, &data_type, 3);
        let batch_rows = *random.pick(&[1, 7, 8, 4096]);
        let expected: Result<Vec<String>, Failed> =
            data.iter().map(|row| Ok(show(&eval(&expr, row)?, &data_type))).collect();
        let found = output(&table, vec![], vec![expr.clone()], batch_rows);
        match (expected, found) {
            (Ok(expected), Ok(found)) => prop_assert_eq!(sorted(expected), found, "{}", expr),
            (Err(_), Err(_)) => {}
            (expected, found) => prop_assert!(false, "{}: {:?} but {:?}", expr, expected, found),
        }
    }

    #[test]
    fn filters_keep_what_the_interpreter_keeps(seed: u64) {
        let mut random = Random(seed);
        let (table, data) = random::table(&mut random, 30);
        let filters: Vec<Expr> =
            (0..3).map(|_| random::condition(&mut random, &table, 2)).collect();
        let data_type = random.pick(&[DataType::Int32, DataType::Utf8, DataType::Float64]).clone();
        let expr = random::expr(&mut random, &table, &data_type, 2);
        let steps = filters.iter().cloned().map(Step::Filter).collect();
        let batch_rows = *random.pick(&[1, 7, 4096]);
        let found = output(&table, steps, vec![expr.clone()], batch_rows);
        // In the order in which they stand; a reordering may fail for fewer rows only.
        let mut lazily_failed = false;
        let mut expected = Vec::new();
        let mut unclear = false;
        for row in &data {
            let mut kept = true;
            for filter in &filters {
                match eval(filter, row) {
                    Ok(Value::Bool(true)) => {}
                    Ok(_) => kept = false,
                    Err(Failed) => { lazily_failed |= kept; unclear |= kept; }
                }
                if !kept { break; }
            }
            if kept {
                match eval(&expr, row) {
                    Ok(value) => expected.push(show(&value, &data_type)),
                    Err(Failed) => lazily_failed = true,
                }
            }
        }
        match found {
            Ok(found) if !lazily_failed => prop_assert_eq!(sorted(expected), found, "{:?}", filters),
            Ok(_) => prop_assert!(unclear, "no failure of {} behind {:?}", expr, filters),
            Err(error) => prop_assert!(lazily_failed, "{} of {} behind {:?}", error, expr, filters),
        }
    }
}
