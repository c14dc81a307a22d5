//! Builds from rows of any layout, and what they cost.

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, LargeStringArray, RecordBatch, StringArray,
    StringViewArray,
};
use headrace_columns::repr::Dictionary;
use headrace_ir::{
    AggregateFunction, CompareOp, DataType, Encoding, Field, Probe, ProbeKind, Sink, Step,
};
use headrace_pipeline::bind::{BindOptions, bind};
use headrace_pipeline::bound::{Bound, BoundStep};
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
