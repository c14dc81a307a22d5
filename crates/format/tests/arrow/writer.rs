use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::ListBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::*;
use arrow_ipc::reader::FileReader;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use headrace_format::FormatError;
use headrace_format::arrow::{ArrowWriter, MAX_VALUES_KEY, MIN_VALUES_KEY, WriterOptions};

fn options(rows_per_batch: usize) -> WriterOptions {
    WriterOptions { rows_per_batch, ..WriterOptions::default() }
}

fn read(path: &Path) -> (Schema, Vec<RecordBatch>) {
    let reader = FileReader::try_new(File::open(path).unwrap(), None).unwrap();
    let schema = reader.schema().as_ref().clone();
    (schema, reader.map(Result::unwrap).collect())
}

/// Column `i` of all batches, decoded to plain values.
fn column(batches: &[RecordBatch], i: usize, to: &DataType) -> ArrayRef {
    let parts: Vec<ArrayRef> =
        batches.iter().map(|b| arrow_cast::cast(b.column(i), to).unwrap()).collect();
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    arrow_select::concat::concat(&parts).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn dictionary(values: Vec<Option<&str>>, keys: Vec<Option<i8>>) -> ArrayRef {
    let keys = Int8Array::from(keys);
    Arc::new(DictionaryArray::<Int8Type>::new(keys, Arc::new(StringArray::from(values))))
}

fn text_dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))
}

#[test]
fn a_batch_can_be_ended_before_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let rows = |values: std::ops::Range<i32>| {
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(values));
        RecordBatch::try_from_iter([("i", column)]).unwrap()
    };
    let mut writer = ArrowWriter::create(&path, &rows(0..1).schema(), options(10)).unwrap();
    writer.end_batch().unwrap();
    writer.write(&rows(0..13)).unwrap();
    assert_eq!(writer.pending_rows(), 3);
    writer.end_batch().unwrap();
    assert_eq!(writer.pending_rows(), 0);
    writer.write(&rows(13..20)).unwrap();
    writer.finish().unwrap();
    let (_, batches) = read(&path);
    let sizes: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(sizes, [10, 3, 7]);
    let all = column(&batches, 0, &DataType::Int32);
    assert_eq!(all.as_primitive::<Int32Type>().values(), &(0..20).collect::<Vec<_>>()[..]);
}

#[test]
fn batches_of_any_size_are_cut_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let schema = Schema::new(vec![
        Field::new("i", DataType::Int32, false),
        Field::new("s", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("d", DataType::Decimal128(20, 2), true),
        Field::new("l", DataType::new_list(DataType::Int32, true), true),
        Field::new("v", DataType::Utf8View, true),
    ]);
    let rows = |from: i32, to: i32| {
        let mut list = ListBuilder::new(Int32Array::builder(0));
        (from..to).for_each(|i| list.append_option((i % 5 > 0).then_some([Some(i), None])));
        let view = (from..to).map(|i| (i % 4 > 0).then(|| format!("a rather long value {i}")));
        RecordBatch::try_new(
            Arc::new(schema.clone()),
            vec![
                Arc::new(Int32Array::from_iter_values(from..to)),
                Arc::new(StringArray::from_iter(
                    (from..to).map(|i| (i % 3 > 0).then(|| i.to_string())),
                )),
                Arc::new(BooleanArray::from_iter(
                    (from..to).map(|i| (i % 7 > 0).then_some(i % 2 == 0)),
                )),
                Arc::new(
                    Decimal128Array::from_iter(
                        (from..to).map(|i| (i % 2 > 0).then_some(i128::from(i))),
                    )
                    .with_precision_and_scale(20, 2)
                    .unwrap(),
                ),
                Arc::new(list.finish()),
                Arc::new(StringViewArray::from_iter(view)),
            ],
        )
        .unwrap()
    };
    let mut writer = ArrowWriter::create(&path, &schema, options(100)).unwrap();
    let mut from = 0;
    for len in [1, 0, 250, 49, 7, 100, 93] {
        writer.write(&rows(from, from + len)).unwrap();
        from += len;
    }
    assert_eq!(writer.rows(), 500);
    let summary = writer.finish().unwrap();
    assert_eq!((summary.rows, summary.batches), (500, 5));
    assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());
    assert_eq!(names(dir.path()), ["t.arrow"]);

    let (_, batches) = read(&path);
    assert!(batches.iter().all(|b| b.num_rows() == 100));
    let whole = rows(0, 500);
    for i in 0..schema.fields().len() {
        let data_type = schema.field(i).data_type();
        assert_eq!(&column(&batches, i, data_type), whole.column(i), "{}", schema.field(i).name());
    }
}

#[test]
fn statistics_stand_in_the_footer_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let stale = HashMap::from([
        (MIN_VALUES_KEY.to_string(), "9".to_string()),
        ("unit".to_string(), "cents".to_string()),
    ]);
    let schema = Schema::new(vec![
        Field::new("i", DataType::Int32, true).with_metadata(stale),
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), true),
        Field::new("d", DataType::Date32, false),
        Field::new("f", DataType::Float64, false),
    ]);
    let batch = RecordBatch::try_new(
        Arc::new(schema.clone()),
        vec![
            Arc::new(Int32Array::from(vec![Some(5), Some(-7), None, None, Some(3)])),
            Arc::new(
                TimestampMillisecondArray::from(vec![
                    Some(1),
                    None,
                    Some(3),
                    Some(4),
                    Some(i64::MIN),
                ])
                .with_timezone("UTC"),
            ),
            Arc::new(Date32Array::from(vec![1, 2, 3, 4, 5])),
            Arc::new(Float64Array::from(vec![1.0; 5])),
        ],
    )
    .unwrap();
    let mut writer = ArrowWriter::create(&path, &schema, options(2)).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();

    let (footer, _) = read(&path);
    let entry = |i: usize, key: &str| footer.field(i).metadata().get(key).cloned();
    assert_eq!(entry(0, MIN_VALUES_KEY).unwrap(), "-7,null,3");
    assert_eq!(entry(0, MAX_VALUES_KEY).unwrap(), "5,null,3");
    assert_eq!(entry(0, "unit").unwrap(), "cents");
    assert_eq!(entry(1, MIN_VALUES_KEY).unwrap(), format!("1,3,{}", i64::MIN));
    assert_eq!(entry(2, MAX_VALUES_KEY).unwrap(), "2,4,5");
    assert_eq!(entry(3, MAX_VALUES_KEY), None);

    // The schema message at the start of the file, read as a stream would read it.
    let bytes = std::fs::read(&path).unwrap();
    let head = arrow_ipc::reader::StreamReader::try_new(&bytes[64..], None).unwrap().schema();
    assert_eq!(head.field(0).metadata().get(MIN_VALUES_KEY), None);
    assert_eq!(head.field(0).metadata()["unit"], "cents");

    let without = WriterOptions { statistics: false, ..options(2) };
    let mut writer = ArrowWriter::create(&path, &schema, without).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&path).0.field(2).metadata().get(MIN_VALUES_KEY), None);
}

#[test]
fn buffers_are_aligned_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let schema = Schema::new(vec![
        Field::new("a", DataType::Int8, true),
        Field::new("k", text_dictionary(), true),
        Field::new("s", DataType::Utf8, true),
    ]);
    let mut writer = ArrowWriter::create(&path, &schema, options(33)).unwrap();
    let batch = RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(Int8Array::from_iter((0..101).map(|i| (i % 2 == 0).then_some(i)))),
            dictionary(vec![Some("x"), Some("yy")], (0..101).map(|i| Some(i % 2)).collect()),
            Arc::new(StringArray::from_iter_values((0..101).map(|i| "z".repeat(i)))),
        ],
    )
    .unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let tail = bytes.len() - 10;
    let footer_bytes = i32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
    let footer = arrow_ipc::root_as_footer(&bytes[tail - footer_bytes..tail]).unwrap();
    let blocks = footer.recordBatches().unwrap();
    assert_eq!(blocks.len(), 4);
    for block in blocks {
        let body = block.offset() + i64::from(block.metaDataLength());
        assert_eq!(body % 64, 0);
        let start = block.offset() as usize + 8;
        let message = arrow_ipc::root_as_message(&bytes[start..body as usize]).unwrap();
        for buffer in message.header_as_record_batch().unwrap().buffers().unwrap() {
            assert_eq!((body + buffer.offset()) % 64, 0);
        }
    }
}

#[test]
fn dictionaries_of_batches_are_unified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let schema = Arc::new(Schema::new(vec![Field::new("k", text_dictionary(), true)]));
    let batch = |array| RecordBatch::try_new(schema.clone(), vec![array]).unwrap();
    let mut writer = ArrowWriter::create(&path, &schema, options(4)).unwrap();
    // Another order, a value twice, a NULL value, a value that nothing uses.
    let first = dictionary(vec![Some("b"), Some("a")], vec![Some(0), Some(1), None]);
    let second = dictionary(
        vec![Some("a"), None, Some("c"), Some("a"), Some("unused")],
        vec![Some(3), Some(1), Some(2), Some(0), Some(2)],
    );
    writer.write(&batch(first.clone())).unwrap();
    writer.write(&batch(second)).unwrap();
    writer
        .write(&batch(dictionary(vec![Some("late"), Some("b")], vec![Some(0), Some(1)])))
        .unwrap();
    writer.write(&batch(first)).unwrap();
    writer.finish().unwrap();

    let (_, batches) = read(&path);
    let text = column(&batches, 0, &DataType::Utf8);
    let expected = [
        Some("b"),
        Some("a"),
        None,
        Some("a"),
        None,
        Some("c"),
        Some("a"),
        Some("c"),
        Some("late"),
        Some("b"),
        Some("b"),
        Some("a"),
        None,
    ];
    assert_eq!(text.as_string::<i32>(), &StringArray::from(expected.to_vec()));
    let values = batches[0].column(0).as_dictionary::<Int8Type>().values();
    assert_eq!(
        values.as_string::<i32>().iter().flatten().collect::<Vec<_>>(),
        ["b", "a", "c", "unused", "late"]
    );
}

#[test]
fn too_many_values_name_the_column() {
    let dir = tempfile::tempdir().unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("city", text_dictionary(), true)]));
    let mut writer = ArrowWriter::create(dir.path().join("t.arrow"), &schema, options(64)).unwrap();
    let mut write = |from: i32| {
        let values = StringArray::from_iter_values((from..from + 100).map(|i| i.to_string()));
        let keys = Int8Array::from_iter_values(0..100);
        let array = DictionaryArray::<Int8Type>::new(keys, Arc::new(values));
        writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(array)]).unwrap())
    };
    write(0).unwrap();
    let error = write(50).unwrap_err().to_string();
    assert!(error.contains("city") && error.contains("150"), "{error}");
    drop(writer);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn dictionaries_of_numbers_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Int64));
    let schema = Arc::new(Schema::new(vec![Field::new("n", data_type, true)]));
    let batch = |values: Vec<i64>| {
        let keys = Int32Array::from(vec![0, 1]);
        let array = DictionaryArray::<Int32Type>::new(keys, Arc::new(Int64Array::from(values)));
        RecordBatch::try_new(schema.clone(), vec![Arc::new(array)]).unwrap()
    };
    let path = dir.path().join("t.arrow");
    let mut writer = ArrowWriter::create(&path, &schema, options(3)).unwrap();
    writer.write(&batch(vec![5, 6])).unwrap();
    writer.write(&batch(vec![5, 6])).unwrap();
    assert!(matches!(writer.write(&batch(vec![6, 5])), Err(FormatError::Column { .. })));
    writer.finish().unwrap();
    assert_eq!(read(&path).1.iter().map(RecordBatch::num_rows).sum::<usize>(), 4);
}

#[test]
fn wrong_types_and_forbidden_nulls_name_the_column() {
    let dir = tempfile::tempdir().unwrap();
    let schema = Schema::new(vec![Field::new("a", DataType::Int32, false)]);
    let mut writer = ArrowWriter::create(dir.path().join("t.arrow"), &schema, options(8)).unwrap();
    let batch = |array: ArrayRef| RecordBatch::try_from_iter([("x", array)]).unwrap();
    let error = writer.write(&batch(Arc::new(Int64Array::from(vec![1])))).unwrap_err();
    assert!(error.to_string().contains("column a"), "{error}");
    let error = writer.write(&batch(Arc::new(Int32Array::from(vec![None])))).unwrap_err();
    assert!(error.to_string().contains("NOT NULL"), "{error}");
    writer.write(&batch(Arc::new(Int32Array::from(vec![1])))).unwrap();
}

#[test]
fn an_unfinished_file_leaves_nothing_and_the_target_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    std::fs::write(&path, b"old").unwrap();
    let schema = Schema::new(vec![Field::new("a", DataType::Int32, false)]);
    let mut writer = ArrowWriter::create(&path, &schema, options(1)).unwrap();
    let array: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    writer.write(&RecordBatch::try_from_iter([("a", array)]).unwrap()).unwrap();
    assert_eq!(names(dir.path()).len(), 2);
    drop(writer);
    assert_eq!(names(dir.path()), ["t.arrow"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");

    let writer = ArrowWriter::create(&path, &schema, options(1)).unwrap();
    assert_eq!(writer.finish().unwrap().batches, 0);
    assert!(read(&path).1.is_empty());
    assert!(matches!(
        ArrowWriter::create(dir.path().join("missing/t.arrow"), &schema, options(1)),
        Err(FormatError::Io(_))
    ));
}

#[test]
fn columns_of_no_fields_still_count_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let options = RecordBatchOptions::new().with_row_count(Some(5));
    let batch =
        RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    let mut writer =
        ArrowWriter::create(&path, &Schema::empty(), WriterOptions::default()).unwrap();
    writer.write(&batch).unwrap();
    assert_eq!(writer.finish().unwrap().rows, 5);
}

#[test]
fn dictionaries_inside_nested_columns_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let field = Arc::new(Field::new("k", text_dictionary(), true));
    let array = |values| -> ArrayRef {
        let child = dictionary(values, vec![Some(0), Some(1)]);
        Arc::new(StructArray::from(vec![(field.clone(), child)]))
    };
    let batch = |values| RecordBatch::try_from_iter([("s", array(values))]).unwrap();
    let first = batch(vec![Some("a"), Some("b")]);
    let path = dir.path().join("t.arrow");
    let mut writer = ArrowWriter::create(&path, &first.schema(), options(2)).unwrap();
    writer.write(&first).unwrap();
    writer.write(&first).unwrap();
    let error = writer.write(&batch(vec![Some("b"), Some("a")])).unwrap_err();
    assert!(error.to_string().contains("nested"), "{error}");
    drop(writer);
    assert!(names(dir.path()).is_empty());
}
