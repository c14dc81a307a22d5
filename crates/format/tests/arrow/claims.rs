//! Files whose metadata say what their data do not: it may cost speed, never an answer.

use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::*;
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::{DataType, Field, Schema};
use headrace_format::{ChunkOptions, ColumnBound};

use crate::support::{ints, open, plan_chunks, read_all, read_plan, write, write_foreign};

/// Replaces every field entry of `rows` rows and `nulls` NULLs by one that claims another count.
fn claim_nulls(path: &Path, rows: i64, nulls: i64, claim: i64) {
    let entry = |nulls: i64| [rows.to_le_bytes(), nulls.to_le_bytes()].concat();
    let (true_entry, lie) = (entry(nulls), entry(claim));
    let mut bytes = std::fs::read(path).unwrap();
    let found: Vec<usize> =
        (0..bytes.len() - 16).filter(|at| bytes[*at..*at + 16] == true_entry).collect();
    assert!(!found.is_empty(), "no entry to change: the test does not test");
    for at in found {
        bytes[at..at + 16].copy_from_slice(&lie);
    }
    std::fs::write(path, bytes).unwrap();
}

fn half_null(path: &Path, ours: bool) -> Vec<Option<String>> {
    let values = || (0..1000).map(|i| (i % 2 > 0).then_some(i));
    if ours {
        write(path, 1000, vec![("i", ints(values()))]);
    } else {
        let batch =
            RecordBatch::try_from_iter_with_nullable([("i", ints(values()), true)]).unwrap();
        write_foreign(path, batch.schema(), &[batch], IpcWriteOptions::default());
    }
    values().map(|v| v.map(|v| v.to_string())).collect()
}

#[test]
fn a_count_of_nulls_prunes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    for ours in [true, false] {
        let expected = half_null(&path, ours);
        claim_nulls(&path, 1000, 500, 1000);
        let table = open(&[&path]);
        let conditions = [ColumnBound { column: 0, min: Some(5), max: Some(900) }];
        let plan = plan_chunks(&table, &[0], &conditions, ChunkOptions::default()).unwrap();
        assert_eq!(
            (plan.totals.rows, plan.totals.pruned_batches),
            (1000, 0),
            "written by us: {ours}"
        );
        assert_eq!(read_plan(&table, &[0], &plan)[0], expected);
        assert_eq!(read_all(&table)[0], expected);
    }
}

#[test]
fn nulls_are_those_of_the_bitmap_on_every_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    for claim in [1, 499, 501, 999, -1] {
        let expected = half_null(&path, true);
        claim_nulls(&path, 1000, 500, claim);
        let table = open(&[&path]);
        assert!(table.schema().field(0).is_nullable());
        assert_ne!(table.column_stats(0).null_count, Some(0));
        let plan = plan_chunks(&table, &[0], &[], ChunkOptions::default()).unwrap();
        assert_eq!(read_plan(&table, &[0], &plan)[0], expected, "{claim}");
        assert_eq!(read_all(&table)[0], expected, "{claim}");
        assert_eq!(table.read_batch(0, 0, None).unwrap().column(0).null_count(), 500);
    }
}

/// The format lets a writer leave the bitmap out, and so readers do not look at it.
#[test]
fn no_nulls_means_that_nobody_looks_at_the_bitmap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    half_null(&path, true);
    claim_nulls(&path, 1000, 500, 0);
    let table = open(&[&path]);
    let plan = plan_chunks(&table, &[0], &[], ChunkOptions::default()).unwrap();
    assert_eq!(read_plan(&table, &[0], &plan), read_all(&table));
    assert!(read_all(&table)[0].iter().all(Option::is_some));
    assert_eq!(table.column_stats(0).null_count, Some(0));
}

#[test]
fn a_dictionary_that_calls_itself_sorted_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let keys = Int8Array::from(vec![0, 1, 2, 1]);
    let values = Arc::new(StringArray::from(vec!["m", "z", "a"]));
    let array: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::new(keys, values));
    let data_type = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    #[allow(deprecated)]
    let field = Field::new_dict("k", data_type, false, 0, true);
    let schema = Arc::new(Schema::new(vec![field]));
    let batch = RecordBatch::try_new(schema.clone(), vec![array]).unwrap();
    write_foreign(&path, schema, &[batch], IpcWriteOptions::default());
    let table = open(&[&path]);
    let sorted: Vec<_> = table.dictionary(0).unwrap().iter().flatten().collect();
    assert_eq!(sorted, ["a", "m", "z"]);
    let expected = ["m", "z", "a", "z"].map(|v| Some(v.to_string()));
    let plan = plan_chunks(&table, &[0], &[], ChunkOptions::default()).unwrap();
    assert_eq!(read_plan(&table, &[0], &plan)[0], expected);
    assert_eq!(read_all(&table)[0], expected);
}

/// A batch that claims more rows than its columns hold is refused when the table is opened.
#[test]
fn rows_are_those_that_the_columns_bear_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    half_null(&path, true);
    let whole = std::fs::read(&path).unwrap();
    let rows = 1000_i64.to_le_bytes();
    let places: Vec<usize> =
        (0..whole.len() - 8).filter(|at| whole[*at..*at + 8] == rows).collect();
    assert!(places.len() >= 2, "a batch and its column have a length each");
    for at in &places {
        for lie in [999_i64, 1001, 100_000] {
            let mut bytes = whole.clone();
            bytes[*at..*at + 8].copy_from_slice(&lie.to_le_bytes());
            std::fs::write(&path, &bytes).unwrap();
            let opened = headrace_format::arrow::ArrowTable::open(std::slice::from_ref(&path));
            assert!(opened.is_err(), "{lie} rows at {at}");
        }
    }
}
