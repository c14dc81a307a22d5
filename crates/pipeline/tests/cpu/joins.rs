//! Probes of every kind against nested loops.

use std::sync::Arc;

use headrace_ir::{
    AggregateFunction, CompareOp, DataType, Expr, OrderKey, Probe, ProbeKind, Sink, Step, Value,
};
use headrace_pipeline::build::{BuildIndex, Presence};
use headrace_pipeline::state::Output;
use headrace_pipeline::{BuildOptions, BuildTable};
use proptest::prelude::*;

use crate::random::{self, Random};
use crate::reference::{eval, show};
use crate::support::*;

/// Columns of both sides by the position of their type in the random table: Int32, Int64,
/// Utf8 (plain), Utf8 (dictionary), Decimal.
const INT32: usize = 3;
const INT64: usize = 4;
const DECIMAL: usize = 11;
const TEXT: usize = 13;
const CODED: usize = 28;

const PAYLOAD: [usize; 5] = [INT32, TEXT, DECIMAL, 10, 0];

struct Case {
    stream: (Table, Vec<Vec<Value>>),
    dimension: (Table, Vec<Vec<Value>>),
    stream_keys: Vec<usize>,
    build_keys: Vec<usize>,
    kind: ProbeKind,
    null_equal: bool,
    residual: Option<Expr>,
}

fn case(random: &mut Random) -> Case {
    let stream_rows = *random.pick(&[1, 20]);
    let build_rows = *random.pick(&[0, 1, 4, 25]);
    let stream = random::table(random, stream_rows);
    let dimension = random::table(random, build_rows);
    let (stream_keys, build_keys) = random
        .pick(&[
            (vec![INT32], vec![INT32]),
            (vec![INT64], vec![INT64]),
            (vec![TEXT], vec![TEXT]),
            (vec![CODED], vec![TEXT]),
            (vec![TEXT], vec![CODED]),
            (vec![DECIMAL], vec![DECIMAL]),
            (vec![INT32, CODED], vec![INT32, CODED]),
        ])
        .clone();
    let kind = *random.pick(&[
        ProbeKind::Inner,
        ProbeKind::Left,
        ProbeKind::Semi,
        ProbeKind::Anti,
        ProbeKind::NullAwareAnti,
        ProbeKind::Mark,
    ]);
    let three_valued = kind == ProbeKind::NullAwareAnti;
    let stream_keys: Vec<usize> = if three_valued { stream_keys[..1].into() } else { stream_keys };
    let build_keys: Vec<usize> = if three_valued { build_keys[..1].into() } else { build_keys };
    let residual = (random.chance(40) && !three_valued).then(|| {
        let payload = stream.0.fields.len();
        compare(
            *random.pick(&[CompareOp::Lt, CompareOp::Ne]),
            stream.0.col(&format!("c{INT32}")),
            reg(payload, DataType::Int32, true, "payload"),
        )
    });
    let null_equal = random.chance(20) && !three_valued;
    Case { stream, dimension, stream_keys, build_keys, kind, null_equal, residual }
}

fn key_matches(left: &[&Value], right: &[&Value], null_equal: bool) -> bool {
    left.iter().zip(right).all(|(l, r)| match (l, r) {
        (Value::Null, Value::Null) => null_equal,
        (Value::Null, _) | (_, Value::Null) => false,
        (l, r) => l == r,
    })
}

fn line(values: &[Value], types: &[DataType]) -> String {
    values.iter().zip(types).map(|(v, t)| show(v, t)).collect::<Vec<_>>().join("|")
}

/// Output: the stream's Int32 and text, then the payload or the mark.
fn expected(case: &Case) -> Vec<String> {
    let (table, rows) = (&case.stream.0, &case.stream.1);
    let out = [INT32, TEXT];
    let mut types: Vec<DataType> = out.iter().map(|&c| table.fields[c].data_type.clone()).collect();
    match case.kind {
        ProbeKind::Inner | ProbeKind::Left => {
            types.extend(PAYLOAD.iter().map(|&c| case.dimension.0.fields[c].data_type.clone()));
        }
        ProbeKind::Mark => types.push(DataType::Bool),
        _ => {}
    }
    let build_null =
        case.dimension.1.iter().any(|row| case.build_keys.iter().any(|&k| row[k] == Value::Null));
    let mut lines = Vec::new();
    for row in rows {
        let key: Vec<&Value> = case.stream_keys.iter().map(|&k| &row[k]).collect();
        let key_null = key.iter().any(|v| **v == Value::Null);
        let matches: Vec<&Vec<Value>> = case
            .dimension
            .1
            .iter()
            .filter(|build| {
                let build_key: Vec<&Value> = case.build_keys.iter().map(|&k| &build[k]).collect();
                let mut pair = row.clone();
                pair.extend(PAYLOAD.iter().map(|&c| build[c].clone()));
                key_matches(&key, &build_key, case.null_equal)
                    && case
                        .residual
                        .as_ref()
                        .is_none_or(|e| eval(e, &pair) == Ok(Value::Bool(true)))
            })
            .collect();
        let base: Vec<Value> = out.iter().map(|&c| row[c].clone()).collect();
        let mut emit = |more: Vec<Value>| {
            lines.push(line(&base.iter().cloned().chain(more).collect::<Vec<_>>(), &types));
        };
        let payload = |build: &Vec<Value>| PAYLOAD.iter().map(|&c| build[c].clone()).collect();
        let unknown = (key_null && !case.dimension.1.is_empty()) || build_null;
        match case.kind {
            ProbeKind::Inner => matches.iter().for_each(|b| emit(payload(b))),
            ProbeKind::Left if matches.is_empty() => emit(vec![Value::Null; PAYLOAD.len()]),
            ProbeKind::Left => matches.iter().for_each(|b| emit(payload(b))),
            ProbeKind::Semi if !matches.is_empty() => emit(vec![]),
            ProbeKind::Anti if matches.is_empty() => emit(vec![]),
            ProbeKind::NullAwareAnti if matches.is_empty() && !unknown => emit(vec![]),
            ProbeKind::Mark => emit(vec![Value::Bool(!matches.is_empty())]),
            _ => {}
        }
    }
    lines.sort();
    lines
}

fn dimension_build(case: &Case) -> Arc<BuildTable> {
    let table = &case.dimension.0;
    let columns = |columns: &[usize]| {
        columns.iter().map(|c| named(&format!("c{c}"), table.col(&format!("c{c}")))).collect()
    };
    let sink = Sink::Build { keys: columns(&case.build_keys), payload: columns(&PAYLOAD) };
    let options = RunOptions {
        workers: 3,
        build: BuildOptions { nulls_equal: case.null_equal, threads: 2, ..Default::default() },
        ..RunOptions::default()
    };
    match run_with(table, vec![], sink, &[], options).unwrap() {
        Output::Build(build) => Arc::new(build),
        Output::Batches(_) => panic!("batches"),
    }
}

fn found(case: &Case, build: Arc<BuildTable>, batch_rows: usize) -> Vec<String> {
    let table = &case.stream.0;
    let payload: Vec<usize> = match case.kind {
        ProbeKind::Inner | ProbeKind::Left => (0..PAYLOAD.len()).collect(),
        _ if case.residual.is_some() => vec![0],
        _ => vec![],
    };
    let mut columns = vec![
        named("i", table.col(&format!("c{INT32}"))),
        named("t", table.col(&format!("c{TEXT}"))),
    ];
    let first = table.fields.len();
    match case.kind {
        ProbeKind::Inner | ProbeKind::Left => {
            for (i, &c) in PAYLOAD.iter().enumerate() {
                let data_type = case.dimension.0.fields[c].data_type.clone();
                columns.push(named(&format!("p{i}"), reg(first + i, data_type, true, "p")));
            }
        }
        ProbeKind::Mark => {
            let mark = reg(first + payload.len(), DataType::Bool, false, "mark");
            columns.push(named("mark", mark));
        }
        _ => {}
    }
    let step = Step::Probe(Probe {
        build: 0,
        keys: case.stream_keys.iter().map(|k| table.col(&format!("c{k}"))).collect(),
        kind: case.kind,
        null_equal: case.null_equal,
        residual: case.residual.clone(),
        payload,
        is_optional: false,
    });
    let options = RunOptions { batch_rows, ..RunOptions::default() };
    let sink = Sink::Rows { columns, limit: None };
    match run_with(table, vec![step], sink, &[build], options).unwrap() {
        Output::Batches(batches) => rows(&batches),
        Output::Build(_) => panic!("a build"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn probes_find_what_nested_loops_find(seed: u64) {
        let mut random = Random(seed);
        let case = case(&mut random);
        let batch_rows = *random.pick(&[1, 3, 4096]);
        let build = dimension_build(&case);
        let found = found(&case, build, batch_rows);
        prop_assert_eq!(
            expected(&case), found,
            "{:?} {:?} = {:?} null_equal {} residual {:?}",
            case.kind, case.stream_keys, case.build_keys, case.null_equal, case.residual
        );
    }
}

#[test]
fn many_duplicates_come_in_portions() {
    let rows = 300;
    let stream = Table::new("s", rows).int32("k", &vec![7; rows]);
    let dimension =
        Table::new("d", rows).int32("k", &vec![7; rows]).int32("v", &(0..300).collect::<Vec<_>>());
    let build = build(&dimension, vec![], &["k"], &["v"]);
    assert!(!build.unique);
    assert_eq!(build.duplicates_max(), 300);
    let sum = Expr::Cast {
        value: Box::new(reg(1, DataType::Int32, false, "v")),
        to: DataType::Int64,
        on_failure: headrace_ir::CastFailure::Error,
    };
    let sink = Sink::aggregate(
        vec![],
        vec![
            call(headrace_ir::AggregateFunction::Count, None, DataType::Int64),
            call(headrace_ir::AggregateFunction::Sum, Some(sum), DataType::Int64),
        ],
    );
    let batches = run(&stream, vec![inner(0, stream.col("k"), vec![0])], sink, &[build]).unwrap();
    assert_eq!(rows_of(&batches), ["90000|13455000"]);
}

fn rows_of(batches: &[arrow_array::RecordBatch]) -> Vec<String> {
    rows(batches)
}

#[test]
fn the_layout_follows_the_keys() {
    let dense = Table::new("d", 3).int32("k", &[5, 1, 9]).int32("v", &[100, 101, 102]);
    let dense = build(&dense, vec![], &["k"], &["v"]);
    let BuildIndex::Direct(Presence { base, domain, words: present }) = &dense.index else {
        panic!()
    };
    assert_eq!((*base, *domain, present[0]), (1, 9, 0b1_0001_0001));

    let sparse = Table::new("d", 3).int32("k", &[5, i32::MIN, i32::MAX]).int32("v", &[1, 2, 3]);
    let sparse = build(&sparse, vec![], &["k"], &["v"]);
    assert!(matches!(sparse.index, BuildIndex::Chains(_)) && sparse.unique);

    let twice = Table::new("d", 3).int32("k", &[5, 5, 6]).int32("v", &[1, 2, 3]);
    let twice = build(&twice, vec![], &["k"], &["v"]);
    assert!(matches!(twice.index, BuildIndex::Chains(_)) && !twice.unique);

    let empty = Table::new("d", 0).int32("k", &[]).int32("v", &[]);
    let empty = build(&empty, vec![], &["k"], &["v"]);
    assert_eq!((empty.rows, empty.unique), (0, true));
}

/// Codes compare as their texts do, whatever the order of the build's rows.
#[test]
fn texts_of_a_build_are_ordered_as_texts() {
    let names = ["pear", "fig", "", "apple", "quince", "fig"];
    let keys = [0, 1, 2, 3, 4, 5];
    let table = Table::new("fruit", 6).int32("k", &keys).text("name", &names);
    let stream = Table::new("t", 6).int32("k", &keys);
    let steps = || vec![inner(0, stream.col("k"), vec![0])];
    let built = || [build(&table, vec![], &["k"], &["name"])];
    let name = || reg(1, DataType::Utf8, false, "name");
    let order = vec![OrderKey { column: 0, descending: false, nulls_first: false }];
    let columns = vec![named("name", name())];
    let sorted = Sink::Sorted { columns, order, limit: Some(3) };
    let first = run(&stream, steps(), sorted, &built()).unwrap();
    assert_eq!(rows_in_order(&first), ["", "apple", "fig"]);
    let extreme = |function| call(function, Some(name()), DataType::Utf8);
    let extremes = Sink::aggregate(
        vec![],
        vec![extreme(AggregateFunction::Min), extreme(AggregateFunction::Max)],
    );
    assert_eq!(rows(&run(&stream, steps(), extremes, &built()).unwrap()), ["|quince"]);
    let mut after = steps();
    after.push(Step::Filter(compare(CompareOp::Gt, name(), text("apple"))));
    let counted =
        Sink::aggregate(vec![], vec![call(AggregateFunction::Count, None, DataType::Int64)]);
    assert_eq!(rows(&run(&stream, after, counted, &built()).unwrap()), ["4"]);
}
