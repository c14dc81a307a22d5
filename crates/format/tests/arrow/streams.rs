//! Streams: what other writers make of them, and what is wrong with broken ones.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::*;
use arrow_ipc::writer::{DictionaryHandling, IpcWriteOptions, StreamWriter};
use arrow_ipc::{CompressionType, Endianness, MessageHeader, MetadataVersion};
use arrow_schema::{DataType, Field, Schema, UnionFields};
use flatbuffers::FlatBufferBuilder;
use headrace_format::arrow::BatchStream;
use headrace_io::random::Random;

use crate::support::{dictionary, ints};

fn read(bytes: &[u8]) -> Result<Vec<RecordBatch>, String> {
    BatchStream::open(Cursor::new(bytes), bytes.len() as u64)?.collect()
}

fn written(batches: &[RecordBatch], options: IpcWriteOptions) -> Vec<u8> {
    let mut writer =
        StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn union() -> ArrayRef {
    let fields =
        [(0, Field::new("i", DataType::Int32, true)), (1, Field::new("s", DataType::Utf8, true))];
    let (ids, fields) = fields.into_iter().unzip::<_, _, Vec<i8>, Vec<_>>();
    let children: Vec<ArrayRef> = vec![
        ints((0..100).map(|i| (i % 5 > 0).then_some(i))),
        Arc::new(StringArray::from_iter((0..100).map(|i| (i % 3 > 0).then(|| i.to_string())))),
    ];
    let kinds = (0..100).map(|i| i % 2).collect::<Vec<i8>>();
    let fields = UnionFields::try_new(ids, fields).unwrap();
    Arc::new(UnionArray::try_new(fields, kinds.into(), None, children).unwrap())
}

/// Columns with NULLs and without, of fixed width and not, with codes and with parts.
fn batch() -> RecordBatch {
    let keys: Vec<Option<i8>> = (0..100).map(|i| (i % 4 > 0).then_some(i % 3)).collect();
    let texts = || (0..100).map(|i| format!("text {}", i % 9));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("all", ints((0..100).map(Some))),
        ("some", ints((0..100).map(|i| (i % 3 > 0).then_some(i)))),
        ("none", ints((0..100).map(|_| None))),
        ("text", Arc::new(StringArray::from_iter_values(texts()))),
        ("view", Arc::new(StringViewArray::from_iter_values(texts()))),
        ("bool", Arc::new(BooleanArray::from_iter((0..100).map(|i| Some(i % 7 == 0))))),
        ("code", dictionary(&[Some("c"), Some("a"), Some("b")], &keys)),
        (
            "part",
            Arc::new(StructArray::from(vec![(
                Arc::new(Field::new("x", DataType::Int32, true)),
                ints((0..100).map(|i| (i % 2 > 0).then_some(i))),
            )])),
        ),
        ("void", Arc::new(StructArray::new_empty_fields(100, None))),
        ("null", Arc::new(NullArray::new(100))),
        ("union", union()),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

#[test]
fn streams_of_every_kind_are_what_was_written() {
    let (whole, align) = (batch(), 8);
    let parts = [whole.slice(0, 60), whole.slice(60, 0), whole.slice(61, 39)];
    let options = || IpcWriteOptions::try_new(align, false, MetadataVersion::V5).unwrap();
    let packed = |by| options().try_with_compression(Some(by)).unwrap();
    let old = |legacy| IpcWriteOptions::try_new(align, legacy, MetadataVersion::V4).unwrap();
    for options in [
        options(),
        packed(CompressionType::LZ4_FRAME),
        packed(CompressionType::ZSTD),
        old(false),
        // Of before 0.15: no marker in front of a message.
        old(true),
    ] {
        assert_eq!(read(&written(&parts, options.clone())).unwrap(), parts, "{options:?}");
    }
}

#[test]
fn dictionaries_grow_and_are_replaced() {
    let of = |values: &[&str], keys: &[i8]| {
        let values: Vec<Option<&str>> = values.iter().map(|value| Some(*value)).collect();
        let keys: Vec<Option<i8>> = keys.iter().map(|key| Some(*key)).collect();
        RecordBatch::try_from_iter([("k", dictionary(&values, &keys))]).unwrap()
    };
    let batches = [of(&["a", "b"], &[0, 1]), of(&["a", "b", "c"], &[2, 0]), of(&["z"], &[0])];
    let texts = |batches: &[RecordBatch]| -> Vec<String> {
        let texts = batches.iter().flat_map(|batch| {
            let codes =
                batch.column(0).as_any().downcast_ref::<DictionaryArray<Int8Type>>().unwrap();
            let texts = codes.downcast_dict::<StringArray>().unwrap();
            texts.into_iter().map(|text| text.unwrap().to_string()).collect::<Vec<_>>()
        });
        texts.collect()
    };
    let options = IpcWriteOptions::default();
    let delta = options.clone().with_dictionary_handling(DictionaryHandling::Delta);
    for (batches, options) in [(&batches[..], options), (&batches[..2], delta)] {
        assert_eq!(texts(&read(&written(batches, options)).unwrap()), texts(batches));
    }
}

/// The schema of a machine whose numbers begin with their largest byte.
#[test]
fn the_other_order_of_bytes_is_refused() {
    let mut builder = FlatBufferBuilder::new();
    let name = builder.create_string("a");
    let mut int = arrow_ipc::IntBuilder::new(&mut builder);
    int.add_bitWidth(32);
    int.add_is_signed(true);
    let int = int.finish().as_union_value();
    let children = builder.create_vector::<flatbuffers::ForwardsUOffset<arrow_ipc::Field>>(&[]);
    let mut field = arrow_ipc::FieldBuilder::new(&mut builder);
    field.add_name(name);
    field.add_type_type(arrow_ipc::Type::Int);
    field.add_type_(int);
    field.add_children(children);
    let field = field.finish();
    let fields = builder.create_vector(&[field]);
    let mut schema = arrow_ipc::SchemaBuilder::new(&mut builder);
    schema.add_endianness(Endianness::Big);
    schema.add_fields(fields);
    let schema = schema.finish().as_union_value();
    let mut message = arrow_ipc::MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(MessageHeader::Schema);
    message.add_header(schema);
    let message = message.finish();
    builder.finish(message, None);
    let flatbuffer = builder.finished_data();
    let mut bytes = vec![0xff; 4];
    bytes.extend_from_slice(&(flatbuffer.len() as i32).to_le_bytes());
    bytes.extend_from_slice(flatbuffer);
    let error = read(&bytes).unwrap_err();
    assert!(error.contains("big-endian") && error.contains("little-endian machine"), "{error}");
}

#[test]
fn columns_of_one_name_are_told_apart() {
    let field = |data_type| Field::new("a", data_type, true);
    let schema = Arc::new(Schema::new(vec![field(DataType::Int32), field(DataType::Utf8)]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let batch = RecordBatch::try_new(schema, vec![ints([Some(1), Some(2)]), text.clone()]).unwrap();
    let bytes = written(std::slice::from_ref(&batch), IpcWriteOptions::default());
    let stream = BatchStream::open(Cursor::new(&bytes), bytes.len() as u64).unwrap();
    let read: Vec<RecordBatch> =
        stream.only(|name| name == "a_1").collect::<Result<_, _>>().unwrap();
    assert_eq!((read.len(), read[0].num_columns(), read[0].column(0)), (1, 1, &text));
}

/// Bytes of a sequence, some of them the numbers that readers trip over.
fn mutated(bytes: &[u8], seed: u64) -> Vec<u8> {
    let (mut sequence, mut bytes) = (Random(seed), bytes.to_vec());
    let mut random = |end: usize| sequence.below(end as u64) as usize;
    for _ in 0..=random(4) {
        let at = random((bytes.len() - 8).max(1));
        match random(4) {
            0 => bytes[at] ^= 1 << random(8),
            1 => bytes[at] = random(256) as u8,
            2 => {
                let numbers = [0, 1, -1, 7, 255, i64::from(i32::MAX), i64::MAX, i64::MIN];
                let number = numbers[random(numbers.len())].to_le_bytes();
                let width = 1 << random(4);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            _ => bytes.truncate(at + 8),
        }
    }
    bytes
}

/// An error or batches; a panic would be this test's.
#[test]
fn broken_streams_are_errors() {
    let (whole, mut refused) = (batch(), 0);
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let bytes = written(&[whole.slice(0, 50), whole.slice(50, 50)], options);
        for seed in 0..3000 {
            match read(&mutated(&bytes, seed)) {
                Ok(batches) => batches.iter().for_each(|batch| assert!(batch.num_rows() < 1 << 20)),
                Err(cause) => {
                    assert!(!cause.is_empty());
                    refused += 1;
                }
            }
        }
        for end in 1..bytes.len() {
            let _ = read(&bytes[..end]);
        }
    }
    assert!(refused > 2000, "{refused}");
}
