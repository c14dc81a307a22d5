use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, UInt8Type, UInt16Type};
use arrow_array::*;
use arrow_ipc::writer::{DictionaryHandling, IpcWriteOptions};
use arrow_schema::DataType;
use headrace_format::arrow::ArrowTable;
use headrace_format::{ChunkOptions, FormatError};

use crate::support::{dictionary, open, plan_chunks, read_all, read_plan, write, write_foreign};

fn foreign(path: &Path, arrays: Vec<ArrayRef>, options: IpcWriteOptions) {
    let batches: Vec<RecordBatch> = arrays
        .into_iter()
        .map(|a| RecordBatch::try_from_iter_with_nullable([("k", a, true)]).unwrap())
        .collect();
    write_foreign(path, batches[0].schema(), &batches, options);
}

fn texts(values: &[Option<&str>]) -> Vec<Option<String>> {
    values.iter().map(|v| v.map(str::to_string)).collect()
}

#[test]
fn files_with_different_dictionaries_are_one_table() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // Other order; a NULL value, a value twice; other code types; a large dictionary.
    foreign(
        &at("a.arrow"),
        vec![dictionary(&[Some("b"), Some("a")], &[Some(0), Some(1), None])],
        IpcWriteOptions::default(),
    );
    foreign(
        &at("b.arrow"),
        vec![dictionary(&[None, Some("c"), Some("c")], &[Some(0), Some(1), Some(2), None])],
        IpcWriteOptions::default(),
    );
    let wide: ArrayRef = Arc::new(DictionaryArray::<UInt16Type>::new(
        UInt16Array::from(vec![Some(1), None, Some(0)]),
        Arc::new(LargeStringArray::from(vec!["d", "a"])),
    ));
    foreign(&at("c.arrow"), vec![wide], IpcWriteOptions::default());
    foreign(&at("d.arrow"), vec![dictionary(&[], &[None, None])], IpcWriteOptions::default());

    let table = open(&[dir.path()]);
    let expected = texts(&[
        Some("b"),
        Some("a"),
        None,
        None,
        Some("c"),
        Some("c"),
        None,
        Some("a"),
        None,
        Some("d"),
        None,
        None,
    ]);
    let values: Vec<_> = table.dictionary(0).unwrap().iter().flatten().collect();
    assert_eq!(values, ["a", "b", "c", "d"]);
    let code = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    assert_eq!(table.schema().field(0).data_type(), &code);
    assert_eq!(table.column_support(0), Ok(()));
    assert_eq!(read_all(&table)[0], expected);
    let plan = plan_chunks(&table, &[0], &[], ChunkOptions::default()).unwrap();
    assert_eq!(read_plan(&table, &[0], &plan)[0], expected);
    assert_eq!(plan.remaps.len(), 3);
    assert_eq!(table.column_stats(0).null_count, None);
}

#[test]
fn one_sorted_dictionary_needs_no_translation() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.arrow", "b.arrow"] {
        let keys: Vec<Option<i8>> = (0..100).map(|i| (i % 9 > 0).then_some(i % 3)).collect();
        write(
            &dir.path().join(name),
            64,
            vec![("k", dictionary(&[Some("x"), Some("y"), Some("z")], &keys))],
        );
    }
    let table = open(&[dir.path()]);
    let plan = plan_chunks(&table, &[0], &[], ChunkOptions::default()).unwrap();
    assert!(plan.remaps.is_empty());
    let batch = table.read_batch(1, 0, None).unwrap();
    let array = batch.column(0).as_dictionary::<Int32Type>();
    assert_eq!(array.values().len(), 3);
    assert_eq!(read_plan(&table, &[0], &plan), read_all(&table));
}

#[test]
fn delta_dictionaries_are_joined() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let options = IpcWriteOptions::default().with_dictionary_handling(DictionaryHandling::Delta);
    let batches = vec![
        dictionary(&[Some("m")], &[Some(0), None]),
        dictionary(&[Some("m"), Some("k"), Some("z")], &[Some(2), Some(1), Some(0)]),
    ];
    foreign(&path, batches, options);
    let table = open(&[&path]);
    let expected = texts(&[Some("m"), None, Some("z"), Some("k"), Some("m")]);
    assert_eq!(read_all(&table)[0], expected);
    let plan = plan_chunks(&table, &[0], &[], ChunkOptions::default()).unwrap();
    assert_eq!(read_plan(&table, &[0], &plan)[0], expected);
}

#[test]
fn unsigned_codes_beyond_the_signed_range_are_read_but_not_planned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let array = |values: usize| -> ArrayRef {
        let texts = StringArray::from_iter_values((0..values).map(|i| format!("{i:04}")));
        let keys = UInt8Array::from_iter_values((0..values).map(|i| i as u8));
        Arc::new(DictionaryArray::<UInt8Type>::new(keys, Arc::new(texts)))
    };
    foreign(&path, vec![array(128)], IpcWriteOptions::default());
    assert_eq!(open(&[&path]).column_support(0), Ok(()));
    foreign(&path, vec![array(129)], IpcWriteOptions::default());
    let table = open(&[&path]);
    assert!(table.column_support(0).unwrap_err().contains("UInt8"));
    assert_eq!(read_all(&table)[0][128].as_deref(), Some("0128"));
}

#[test]
fn codes_outside_the_dictionary_are_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    // Codes 77 are found in the file and changed.
    let values: Vec<String> = (0..100).map(|i| format!("{i:03}")).collect();
    let values: Vec<Option<&str>> = values.iter().map(|v| Some(v.as_str())).collect();
    write(&path, 64, vec![("city", dictionary(&values, &[Some(77); 64]))]);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(64).position(|w| w.iter().all(|b| *b == 77)).unwrap();
    for code in [100, -1_i8] {
        bytes[at + 5] = code as u8;
        std::fs::write(&path, &bytes).unwrap();
        let error = open(&[&path]).read_batch(0, 0, None).unwrap_err();
        assert!(matches!(error, FormatError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains("city"), "{error}");
    }
}

#[test]
fn dictionaries_of_numbers_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let array: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::new(
        Int8Array::from(vec![Some(1), None, Some(0)]),
        Arc::new(Int64Array::from(vec![30, 20])),
    ));
    write(&path, 64, vec![("n", array)]);
    let table = open(&[&path]);
    assert!(table.column_support(0).is_err());
    assert!(table.dictionary(0).is_none());
    assert_eq!(read_all(&table)[0], texts(&[Some("20"), None, Some("30")]));
}

#[test]
fn a_table_may_have_more_values_than_any_file_has_codes_for() {
    let dir = tempfile::tempdir().unwrap();
    for (name, from) in [("a.arrow", 0), ("b.arrow", 60)] {
        let values: Vec<String> = (from..from + 100).map(|i| format!("{i:03}")).collect();
        let values: Vec<Option<&str>> = values.iter().map(|v| Some(v.as_str())).collect();
        let keys: Vec<Option<i8>> = (0..100).map(Some).collect();
        write(&dir.path().join(name), 64, vec![("k", dictionary(&values, &keys))]);
    }
    let table = open(&[dir.path()]);
    let code = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    assert_eq!(table.schema().field(0).data_type(), &code);
    let all = read_all(&table);
    assert_eq!(all[0][199].as_deref(), Some("159"));
    let plan = plan_chunks(&table, &[0], &[], ChunkOptions::default()).unwrap();
    assert_eq!(read_plan(&table, &[0], &plan), all);
}

#[test]
fn a_table_of_no_rows_has_an_empty_dictionary() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path, 64, vec![("k", dictionary(&[Some("unused")], &[]))]);
    let table = ArrowTable::open(&[path]).unwrap();
    assert_eq!((table.rows(), table.dictionary(0).unwrap().len()), (0, 0));
}
