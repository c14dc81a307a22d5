//! Builds from rows of any layout, and what they cost.

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array,
    LargeStringArray, RecordBatch, StringArray, StringViewArray,
};
use headrace_columns::repr::Dictionary;
use headrace_ir::{
    AggregateFunction, CompareOp, DataType, Encoding, Field, Probe, ProbeKind, Sink, Step,
};
use headrace_pipeline::bind::{BindOptions, bind};
use headrace_pipeline::bound::{Bound, BoundStep};
use headrace_pipeline::build::BuildIndex;
use headrace_pipeline::{BuildOptions, BuildTable, SourceColumn};

use crate::support::*;

/// Keys 0, 1, .. with a text each.
fn with_texts(texts: ArrayRef) -> Arc<BuildTable> {
    let keys: ArrayRef = Arc::new(Int32Array::from_iter_values(0..texts.len() as i32));
    let batch = RecordBatch::try_from_iter_with_nullable([("k", keys, false), ("s", texts, true)]);
    let (key, text) =
        (Field::new("k", DataType::Int32, false), Field::new("s", DataType::Utf8, true));
    let options = BuildOptions::default();
    Arc::new(BuildTable::from_batches("d", &[key], &[text], &[batch.unwrap()], options).unwrap())
}

/// The texts that keys 0 and 1 find.
fn found(texts: ArrayRef) -> Vec<String> {
    let stream = Table::new("f", 2).int32("k", &[0, 1]);
    let columns = vec![named("k", stream.col("k")), named("s", reg(1, DataType::Utf8, true, "s"))];
    let steps = vec![inner(0, stream.col("k"), vec![0])];
    let sink = Sink::Rows { columns, limit: None };
    rows(&run(&stream, steps, sink, &[with_texts(texts)]).unwrap())
}

#[test]
fn texts_of_every_layout() {
    let texts = [Some("b"), None];
    let layouts: [ArrayRef; 5] = [
        Arc::new(StringArray::from_iter(texts)),
        Arc::new(LargeStringArray::from_iter(texts)),
        Arc::new(StringViewArray::from_iter(texts)),
        Arc::new(DictionaryArray::<Int8Type>::from_iter(texts)),
        Arc::new(DictionaryArray::<Int8Type>::from_iter(["a", "b"]).slice(1, 1)),
    ];
    for layout in layouts {
        let found = found(Arc::clone(&layout));
        assert_eq!(found, &["0|b", "1|NULL"][..layout.len()], "{}", layout.data_type());
    }
}

#[test]
fn a_column_of_nulls_alone() {
    let nulls = [None::<&str>, None];
    let layouts: [ArrayRef; 5] = [
        Arc::new(StringArray::from_iter(nulls)),
        Arc::new(LargeStringArray::from_iter(nulls)),
        Arc::new(StringViewArray::from_iter(nulls)),
        Arc::new(DictionaryArray::<Int8Type>::from_iter(nulls)),
        Arc::new(DictionaryArray::<Int8Type>::new(
            vec![Some(0), Some(0)].into(),
            Arc::new(StringArray::new_null(1)),
        )),
    ];
    for layout in layouts {
        let data_type = layout.data_type().clone();
        assert_eq!(found(layout), ["0|NULL", "1|NULL"], "{data_type}");
    }
}

/// A probe by column `k` of the stream that only asks whether there is a match.
fn asks(kind: ProbeKind, key: headrace_ir::Expr, residual: Option<headrace_ir::Expr>) -> Step {
    let payload = if residual.is_some() { vec![0] } else { vec![] };
    Step::Probe(Probe { kind, residual, payload, ..Probe::semi(0, vec![key]) })
}

/// All pairs would be 10^10 and more: this ends because a row's first match is enough.
#[test]
fn many_duplicates_on_both_sides() {
    const ROWS: usize = 300_000;
    let stream =
        Table::new("f", ROWS).int32("k", &(0..ROWS as i32).map(|i| i % 4).collect::<Vec<_>>());
    let values: Vec<i32> = (0..ROWS as i32).collect();
    let keys: Vec<i32> = values.iter().map(|v| v % 2).collect();
    let dimension = Table::new("d", ROWS).int32("k", &keys).int32("v", &values);
    let build = build(&dimension, vec![], &["k"], &["v"]);
    let above = |low| compare(CompareOp::Ge, reg(1, DataType::Int32, false, "v"), int(low));
    let count = |step| {
        let calls = vec![call(AggregateFunction::Count, None, DataType::Int64)];
        let sink = Sink::aggregate(vec![], calls);
        rows(&run(&stream, vec![step], sink, &[Arc::clone(&build)]).unwrap()).join(" ")
    };
    let key = || stream.col("k");
    assert_eq!(count(asks(ProbeKind::Semi, key(), None)), "150000");
    assert_eq!(count(asks(ProbeKind::Anti, key(), None)), "150000");
    assert_eq!(count(asks(ProbeKind::NullAwareAnti, key(), None)), "150000");
    assert_eq!(count(asks(ProbeKind::Mark, key(), None)), "300000");
    assert_eq!(count(asks(ProbeKind::Semi, key(), Some(above(100)))), "150000");
    assert_eq!(count(asks(ProbeKind::Anti, key(), Some(above(100)))), "150000");
}

/// A stream of one dictionary-coded column, and the build on text that it probes.
fn bound_by_code(dictionary: &Arc<Dictionary>, build: &Arc<BuildTable>) -> Bound {
    let mut stream = Table::new("f", 2);
    let column = TestColumn {
        encoding: Some(Encoding::Dictionary { code_bytes: 1 }),
        values: vec![0, 1],
        info: SourceColumn { dictionary: Some(Arc::clone(dictionary)), ..SourceColumn::default() },
        ..TestColumn::default()
    };
    stream.push("k", DataType::Utf8, false, column);
    let pipeline = headrace_ir::Pipeline {
        source: stream.source(),
        steps: vec![inner(0, stream.col("k"), vec![0])],
        sink: Sink::Rows {
            columns: vec![named("v", reg(1, DataType::Int32, false, "v"))],
            limit: None,
        },
    };
    bind(&pipeline, &stream.info(), &[Arc::clone(build)], &BindOptions::default()).unwrap()
}

fn probed(bound: &Bound) -> &Arc<BuildTable> {
    match &bound.steps[..] {
        [BoundStep::Probe(probe)] => &probe.build,
        other => panic!("{other:?}"),
    }
}

/// Devices know builds by address.
#[test]
fn a_build_by_code_is_the_same_one_in_every_query() {
    let dictionary =
        |texts: &[&str]| Arc::new(Dictionary { values: StringArray::from(texts.to_vec()) });
    let table = Table::new("d", 2).text("k", &["ant", "bee"]).int32("v", &[1, 2]);
    let build = build(&table, vec![], &["k"], &["v"]);
    let dictionaries = [dictionary(&["ant", "cow"]), dictionary(&["ant", "bee"])];
    let [first, second] = dictionaries.each_ref().map(|d| bound_by_code(d, &build));
    assert_eq!((probed(&first).entries(), probed(&second).entries()), (1, 2));
    for _ in 0..3 {
        assert!(Arc::ptr_eq(probed(&first), probed(&bound_by_code(&dictionaries[0], &build))));
        assert!(Arc::ptr_eq(probed(&second), probed(&bound_by_code(&dictionaries[1], &build))));
    }
    // Another dictionary of the same texts has its own codes.
    let again = dictionary(&["ant", "cow"]);
    assert!(!Arc::ptr_eq(probed(&first), probed(&bound_by_code(&again, &build))));
}

/// Rows in several batches: keys that are unique, or not, or NULL, close together or far apart, or texts; and a payload of
/// every kind.
fn many_rows(key: impl Fn(i64) -> Option<i64>, are_texts: bool) -> (Vec<Field>, Vec<RecordBatch>) {
    let batch = |rows: std::ops::Range<i64>| {
        let keys = rows.clone().map(&key);
        let keys: ArrayRef = match are_texts {
            true => {
                Arc::new(StringArray::from_iter(keys.map(|key| key.map(|key| key.to_string()))))
            }
            false => Arc::new(Int64Array::from_iter(keys)),
        };
        let texts =
            rows.clone().map(|row| (row % 13 != 0).then(|| format!("t{}", row * 7919 % 999)));
        let columns: [(&str, ArrayRef, bool); 6] = [
            ("k", keys, true),
            ("text", Arc::new(StringArray::from_iter(texts)), true),
            (
                "narrow",
                Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row % 90))),
                false,
            ),
            (
                "wide",
                Arc::new(Int64Array::from_iter(rows.clone().map(|row| Some(row << 40)))),
                true,
            ),
            (
                "float",
                Arc::new(Float64Array::from_iter_values(rows.clone().map(|r| r as f64))),
                false,
            ),
            ("truth", Arc::new(BooleanArray::from_iter(rows.map(|row| Some(row % 3 == 0)))), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    };
    let key_type = if are_texts { DataType::Utf8 } else { DataType::Int64 };
    let types = [
        key_type,
        DataType::Utf8,
        DataType::Int64,
        DataType::Int64,
        DataType::Float64,
        DataType::Bool,
    ];
    let names = ["k", "text", "narrow", "wide", "float", "truth"];
    let fields =
        names.iter().zip(types).map(|(name, data_type)| Field::new(*name, data_type, true));
    (fields.collect(), [0..70_000, 70_000..70_001, 70_001..160_000].map(batch).into())
}

#[test]
fn a_build_is_the_same_whoever_makes_it() {
    let keys: [fn(i64) -> Option<i64>; 5] = [
        |row| Some(row * 3 - 70_000),
        |row| Some(row * 7919 % 40_009),
        |row| Some((row * 7919 % 40_009) << 40),
        |row| (row % 50 != 0).then_some(row),
        |row| Some(if row % 2 == 0 { 5 } else { row }),
    ];
    for (number, key) in keys.into_iter().enumerate() {
        for (are_texts, nulls_equal) in [(false, false), (false, true), (true, false)] {
            let (fields, batches) = many_rows(key, are_texts);
            let made = |threads| {
                let options = BuildOptions { threads, nulls_equal, ..BuildOptions::default() };
                let (keys, payload) = fields.split_at(1);
                let build =
                    BuildTable::from_batches("d", keys, payload, &batches, options).unwrap();
                let is_direct = matches!(build.index, BuildIndex::Direct(_));
                assert_eq!(is_direct, !are_texts && !nulls_equal && [0, 3].contains(&number));
                let facts = (build.rows, build.unique, build.has_null_key, build.bytes);
                (facts, format!("{:?} {:?}", build.index, build.payload))
            };
            let alone = made(1);
            let nulls = if number == 3 { 3200 } else { 0 };
            assert_eq!(alone.0.0, 160_000 - if nulls_equal { 0 } else { nulls });
            assert!(made(3) == alone, "key {number}, texts {are_texts}, NULLs {nulls_equal}");
        }
    }
}
