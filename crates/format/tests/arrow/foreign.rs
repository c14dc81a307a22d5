//! Files of other writers: other alignment, other versions, compression, other types.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::*;
use arrow_buffer::ScalarBuffer;
use arrow_ipc::writer::IpcWriteOptions;
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{DataType, Field, Fields, Schema, UnionFields};
use headrace_format::arrow::{ArrowTable, MAX_VALUES_KEY, MIN_VALUES_KEY};
use headrace_format::{ChunkOptions, ColumnBound};

use crate::support::{
    dictionary, ints, open, plan_chunks, read_all, read_plan, write, write_foreign,
};

fn flat(rows: i32) -> RecordBatch {
    let text = |i: i32| (i % 3 > 0).then(|| "é".repeat(i as usize % 5));
    let keys: Vec<Option<i8>> = (0..rows).map(|i| (i % 4 > 0).then_some((i % 2) as i8)).collect();
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        (
            "a",
            Arc::new(Int8Array::from_iter((0..rows).map(|i| (i % 5 > 0).then_some(i as i8)))),
            true,
        ),
        (
            "b",
            Arc::new(BooleanArray::from_iter((0..rows).map(|i| (i % 7 > 0).then_some(i % 2 == 0)))),
            true,
        ),
        ("i", ints((0..rows).map(Some)), true),
        ("l", Arc::new(Int64Array::from_iter_values((0..rows).map(|i| i64::from(i) << 33))), true),
        ("s", Arc::new(StringArray::from_iter((0..rows).map(text))), true),
        ("k", dictionary(&[Some("x"), Some("w")], &keys), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

#[test]
fn any_alignment_and_version_is_read_and_planned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let batch = flat(333);
    let write = |options| {
        write_foreign(
            &path,
            batch.schema(),
            &[batch.slice(0, 100), batch.slice(100, 0), batch.slice(100, 233)],
            options,
        )
    };
    write(IpcWriteOptions::default());
    let expected = read_all(&open(&[&path]));
    assert_eq!(expected[2][332].as_deref(), Some("332"));
    for alignment in [8, 16, 32, 64] {
        for (legacy, version) in [
            (false, MetadataVersion::V5),
            (false, MetadataVersion::V4),
            (true, MetadataVersion::V4),
        ] {
            write(IpcWriteOptions::try_new(alignment, legacy, version).unwrap());
            let table = open(&[&path]);
            assert_eq!(table.files()[0].batches(), 3);
            assert_eq!(read_all(&table), expected, "{alignment} {version:?}");
            let columns: Vec<usize> = (0..6).collect();
            for bytes in [800, 1 << 20] {
                let options = ChunkOptions { chunk_bytes_max: bytes, ..ChunkOptions::default() };
                let plan = plan_chunks(&table, &columns, &[], options).unwrap();
                assert_eq!(read_plan(&table, &columns, &plan), expected);
            }
            assert_eq!(table.column_stats(2).min, None);
            assert_eq!(table.column_stats(0).null_count, Some(67));
        }
    }
}

#[test]
fn compressed_batches_and_dictionaries_are_read_but_not_planned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let batch = flat(5000);
    write_foreign(&path, batch.schema(), std::slice::from_ref(&batch), IpcWriteOptions::default());
    let expected = read_all(&open(&[&path]));
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
        write_foreign(&path, batch.schema(), std::slice::from_ref(&batch), options);
        let table = open(&[&path]);
        assert_eq!(read_all(&table), expected);
        for column in 0..6 {
            assert!(table.column_support(column).unwrap_err().contains("compressed"));
        }
        assert!(plan_chunks(&table, &[0], &[], ChunkOptions::default()).is_err());
        assert!(plan_chunks(&table, &[], &[], ChunkOptions::default()).is_ok());
    }
}

pub fn nested() -> RecordBatch {
    let mut list = ListBuilder::new(Int32Builder::new());
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for i in 0..4 {
        list.append_option((i != 2).then(|| (0..i).map(Some)));
        map.keys().append_value(format!("k{i}"));
        map.values().append_option((i % 2 == 0).then_some(i));
        map.append(true).unwrap();
    }
    let dictionary: ArrayRef =
        dictionary(&[Some("p"), Some("q")], &[Some(1), None, Some(0), Some(1)]);
    let inner = Fields::from(vec![
        Field::new("d", dictionary.data_type().clone(), true),
        Field::new("v", DataType::Utf8View, true),
    ]);
    let views: ArrayRef = Arc::new(StringViewArray::from(vec![
        Some("short"),
        None,
        Some("one that is longer than twelve bytes"),
        Some(""),
    ]));
    let structs = StructArray::new(inner, vec![dictionary, views.clone()], None);
    let union = UnionArray::try_new(
        UnionFields::try_new(
            vec![0, 5],
            vec![Field::new("i", DataType::Int32, true), Field::new("s", DataType::Utf8, true)],
        )
        .unwrap(),
        ScalarBuffer::from(vec![0_i8, 5, 5, 0]),
        Some(ScalarBuffer::from(vec![0, 0, 1, 1])),
        vec![ints([Some(1), None]), Arc::new(StringArray::from(vec!["a", "b"]))],
    )
    .unwrap();
    let runs = RunArray::<Int32Type>::try_new(
        &Int32Array::from(vec![1, 4]),
        &StringArray::from(vec!["r", "s"]),
    )
    .unwrap();
    let fixed = FixedSizeListArray::from_iter_primitive::<Int8Type, _, _>(
        [Some([Some(1), None]), None, Some([Some(3), Some(4)]), Some([None, None])],
        2,
    );
    RecordBatch::try_from_iter_with_nullable([
        ("list", Arc::new(list.finish()) as ArrayRef, true),
        ("map", Arc::new(map.finish()), true),
        ("struct", Arc::new(structs), true),
        ("union", Arc::new(union), false),
        ("runs", Arc::new(runs), true),
        ("fixed", Arc::new(fixed), true),
        ("null", Arc::new(NullArray::new(4)), true),
        ("view", views, true),
        (
            "uuid",
            Arc::new(
                FixedSizeBinaryArray::try_from_iter([[1, 2], [3, 4], [5, 6], [7, 8]].into_iter())
                    .unwrap(),
            ),
            true,
        ),
        (
            "decimal",
            Arc::new(Decimal256Array::from_iter_values((1..5).map(arrow_buffer::i256::from_i128))),
            true,
        ),
        ("last", ints([Some(7), None, Some(9), Some(10)]), true),
    ])
    .unwrap()
}

#[test]
fn types_that_pipelines_do_not_know_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let batch = nested();
    for codec in [None, Some(CompressionType::ZSTD)] {
        let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
        write_foreign(&path, batch.schema(), &[batch.clone(), batch.clone()], options);
        let table = open(&[&path]);
        let read = table.read_batch(0, 1, None).unwrap();
        for (i, column) in batch.columns().iter().enumerate() {
            let name = table.schema().field(i).name().clone();
            assert_eq!(read.column(i).to_data(), column.to_data(), "{name}");
        }
        for column in [0, 1, 2, 3, 4, 5, 6, 7, 9] {
            assert!(table.column_support(column).is_err(), "{column}");
        }
        if codec.is_none() {
            // Columns behind nested and variadic ones are found.
            let plan = plan_chunks(&table, &[10], &[], ChunkOptions::default()).unwrap();
            let expected = ["7", "", "9", "10", "7", "", "9", "10"];
            let expected: Vec<_> =
                expected.map(|v| (!v.is_empty()).then(|| v.to_string())).to_vec();
            assert_eq!(read_plan(&table, &[10], &plan)[0], expected);
            assert_eq!(table.column_support(8), Ok(()));
        }
    }
}

/// A file whose statistics were put into the schema before the data were written, as a program
/// does that reads a file, changes rows and writes the rest with the old metadata.
#[test]
fn inherited_statistics_are_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path, 100, vec![("i", ints((0..10).map(Some)))]);
    assert_eq!(open(&[&path]).column_stats(0).max, Some(9));
    let metadata = HashMap::from([
        (MIN_VALUES_KEY.to_string(), "0".to_string()),
        (MAX_VALUES_KEY.to_string(), "9".to_string()),
    ]);
    let field = Field::new("i", DataType::Int32, true).with_metadata(metadata);
    let schema = Arc::new(Schema::new(vec![field]));
    let batch = RecordBatch::try_new(schema.clone(), vec![ints([Some(500), Some(600)])]).unwrap();
    write_foreign(&path, schema, &[batch], IpcWriteOptions::default());
    let table = open(&[&path]);
    assert_eq!((table.column_stats(0).min, table.column_stats(0).max), (None, None));
    assert_eq!(table.files()[0].statistics_refused().len(), 1);
    let conditions = [ColumnBound { column: 0, min: Some(550), max: None }];
    let plan = plan_chunks(&table, &[0], &conditions, ChunkOptions::default()).unwrap();
    assert_eq!((plan.totals.rows, plan.totals.pruned_batches), (2, 0));
    assert!(table.schema().field(0).metadata().is_empty());
}

#[test]
fn statistics_of_one_file_say_nothing_of_another() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a.arrow"), 100, vec![("i", ints((0..10).map(Some)))]);
    let batch = RecordBatch::try_from_iter_with_nullable([("i", ints([Some(99)]), true)]).unwrap();
    write_foreign(
        &dir.path().join("b.arrow"),
        batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    );
    let table = ArrowTable::open(&[dir.path().to_path_buf()]).unwrap();
    assert_eq!(table.column_stats(0).max, None);
    let conditions = [ColumnBound { column: 0, min: Some(50), max: None }];
    let plan = plan_chunks(&table, &[0], &conditions, ChunkOptions::default()).unwrap();
    assert_eq!((plan.totals.rows, plan.totals.pruned_rows), (1, 10));
}

/// Not every writer checks what its schema promises.
#[test]
fn nulls_that_the_schema_denies_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let batch =
        RecordBatch::try_from_iter_with_nullable([("i", ints([Some(1), None]), true)]).unwrap();
    write_foreign(&path, batch.schema(), &[batch], IpcWriteOptions::default());
    // `nullable` is one byte in the flatbuffer of the footer's schema: each byte of value 1 in
    // the footer is tried.
    let whole = std::fs::read(&path).unwrap();
    let mut denied = 0;
    for at in whole.len() - 300..whole.len() - 10 {
        if whole[at] != 1 {
            continue;
        }
        let mut bytes = whole.clone();
        bytes[at] = 0;
        std::fs::write(&path, &bytes).unwrap();
        let Ok(reader) =
            arrow_ipc::reader::FileReader::try_new(std::fs::File::open(&path).unwrap(), None)
        else {
            continue;
        };
        let schema = reader.schema();
        if schema.fields().len() != 1
            || schema.field(0).is_nullable()
            || schema.field(0).name() != "i"
        {
            continue;
        }
        denied += 1;
        let table = open(&[&path]);
        assert!(table.schema().field(0).is_nullable());
        assert_eq!(read_all(&table)[0], [Some("1".to_string()), None]);
    }
    assert!(denied > 0, "no file denies its NULLs: the test does not test");
}

#[test]
fn codes_under_null_mean_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let nulls = || Some(arrow_buffer::NullBuffer::from(vec![true, false, false]));
    for (name, values) in [("a.arrow", ["a", "b"]), ("b.arrow", ["b", "a"])] {
        // 100 and -1 are codes of nothing.
        let keys = Int8Array::new(ScalarBuffer::from(vec![1, 100, -1]), nulls());
        let values = Arc::new(StringArray::from(values.to_vec()));
        let array: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::new(keys, values));
        let batch = RecordBatch::try_from_iter_with_nullable([("k", array, true)]).unwrap();
        write_foreign(&dir.path().join(name), batch.schema(), &[batch], IpcWriteOptions::default());
    }
    let expected = [Some("b"), None, None, Some("a"), None, None];
    assert_eq!(read_all(&open(&[dir.path()]))[0], expected.map(|v| v.map(str::to_string)));
}
