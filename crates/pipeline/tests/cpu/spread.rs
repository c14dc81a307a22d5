//! Squared deviations of floats against two passes over each group: in any grouping, by any number of workers.

use std::collections::BTreeMap;

use headrace_ir::{AggregateFunction, CompareOp, DataType, Encoding, Expr, Sink};
use headrace_pipeline::SourceColumn;
use headrace_pipeline::state::Output;
use proptest::prelude::*;

use crate::random::Random;
use crate::support::*;

/// A nullable column of floats of a type.
pub fn floats(table: Table, name: &str, data_type: DataType, values: &[Option<f64>]) -> Table {
    let bytes = |value: &Option<f64>| match data_type {
        DataType::Float32 => (value.unwrap_or(9.0) as f32).to_le_bytes().to_vec(),
        _ => value.unwrap_or(9.0).to_le_bytes().to_vec(),
    };
    let column = TestColumn {
        encoding: Some(Encoding::Plain),
        values: values.iter().flat_map(bytes).collect(),
        validity: Some(pack_bits(values.iter().map(Option::is_some))),
        info: SourceColumn {
            may_have_nulls: values.iter().any(Option::is_none),
            ..SourceColumn::default()
        },
        ..TestColumn::default()
    };
    let mut table = table;
    table.push(name, data_type, true, column);
    table
}

pub fn squared_deviations(argument: Expr) -> headrace_ir::AggregateCall {
    call(AggregateFunction::SquaredDeviations, Some(argument), DataType::Float64)
}

/// `None` for no values.
fn expected(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (!values.is_empty()).then_some(squares)
}

/// Whether a cell is a number, as far as `magnitude` lets it be known.
fn is_close(cell: &str, expected: Option<f64>, magnitude: f64) -> bool {
    match (cell, expected) {
        ("NULL", expected) => expected.is_none(),
        (_, None) => false,
        (cell, Some(expected)) => {
            let found: f64 = cell.parse().unwrap();
            let rounding = magnitude * f64::EPSILON;
            let slack = 1e-9 * expected + 500.0 * rounding * (expected.sqrt() + rounding);
            found.is_nan() && expected.is_nan() || (found - expected).abs() <= slack
        }
    }
}

struct Rows {
    keys: Vec<i32>,
    values: Vec<Option<f64>>,
    magnitude: f64,
}

fn random_rows(random: &mut Random, data_type: &DataType) -> Rows {
    let count = *random.pick(&[0, 1, 2, 40, 700, 5000]);
    let groups = *random.pick(&[1, 3, 50, 900]);
    let magnitude = *random.pick(&[0.0, 10.0, 1e6, 1e9]);
    let specials = *random.pick(&[0, 0, 1, 20]);
    let nulls = *random.pick(&[0, 10, 95]);
    let keys = (0..count).map(|_| random.below(groups) as i32).collect();
    let mut value = || {
        let value = magnitude + random.below(1 << 20) as f64 / f64::from(1 << 17) - 4.0;
        let value = if let DataType::Float32 = data_type { f64::from(value as f32) } else { value };
        let special = *random.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0]);
        let value = if random.below(1000) < specials { special } else { value };
        (!random.chance(nulls)).then_some(value)
    };
    let values = (0..count).map(|_| value()).collect();
    Rows { keys, values, magnitude: magnitude + 4.0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn deviations_are_those_of_two_passes(seed: u64) {
        let mut random = Random(seed);
        let data_type = random.pick(&[DataType::Float64, DataType::Float32]).clone();
        let Rows { keys, values, magnitude } = random_rows(&mut random, &data_type);
        let table = Table::new("t", keys.len()).int32("k", &keys);
        let table = floats(table, "f", data_type, &values);
        let is_keyed = random.chance(70);
        let filtered = random.chance(30);

        let mut groups: BTreeMap<i32, Vec<f64>> = BTreeMap::new();
        if !is_keyed {
            groups.insert(0, Vec::new());
        }
        for (key, value) in keys.iter().zip(&values) {
            let group = groups.entry(if is_keyed { *key } else { 0 }).or_default();
            group.extend(value.filter(|_| !filtered || *key > 0));
        }

        let mut deviations = squared_deviations(table.col("f"));
        deviations.filter = filtered.then(|| compare(CompareOp::Gt, table.col("k"), int(0)));
        let by = if is_keyed { vec![named("k", table.col("k"))] } else { vec![] };
        let sink = Sink::aggregate(by, vec![deviations]);
        let flush = Some(1 + random.below(30));
        let little = *random.pick(&[300_000, u64::MAX]);
        for (dense_groups_max, groups_max, memory_limit_bytes) in
            [(65_536, None, u64::MAX), (0, None, u64::MAX), (0, flush, little)]
        {
            let options = RunOptions {
                dense_groups_max,
                workers: 1 + random.below(3),
                groups_max,
                puts_aside: random.chance(50),
                memory_limit_bytes,
                batch_rows: *random.pick(&[1, 5, 512, 4096]),
                ..RunOptions::default()
            };
            let found = match run_with(&table, vec![], sink.clone(), &[], options) {
                Ok(Output::Batches(batches)) => rows(&batches),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(found.len(), groups.len());
            for line in found {
                let (key, cell) = line.split_once('|').unwrap_or(("0", &line));
                let wanted = expected(&groups[&key.parse().unwrap()]);
                prop_assert!(
                    is_close(cell, wanted, magnitude),
                    "{} instead of {:?}, group {}, dense {}, flush {:?}", cell, wanted, key, dense_groups_max, groups_max
                );
            }
        }
    }
}

#[test]
fn a_sum_that_overflows_is_infinite() {
    let values = [Some(1e308), Some(1e308), None, Some(-1e308)];
    let table = floats(Table::new("t", 4), "f", DataType::Float64, &values);
    let sink = Sink::aggregate(vec![], vec![squared_deviations(table.col("f"))]);
    assert_eq!(rows(&run(&table, vec![], sink, &[]).unwrap()), ["inf"]);
}
