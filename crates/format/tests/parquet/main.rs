//! Parquet files against what was written into them, by the format's own library.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Poll, Waker};

use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::*;
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_cast::cast;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::concat::concat;
use headrace_format::parquet::{ParquetFile, ParquetTable};
use headrace_format::{ChunkOptions, ColumnBound, Encoded, FormatError, Table};
use headrace_io::{ReadAt, SourceFile};
use headrace_ir::{self as ir, ColumnExtents};
use parquet::arrow::{ArrowWriter, parquet_to_arrow_schema};
use parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{WriterProperties, WriterVersion};

/// Numbers without an end, the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// How many of a hundred rows are NULL, and of how many values a column has its own.
#[derive(Clone, Copy, Debug)]
struct Shape {
    nulls: u64,
    distinct: u64,
    runs: bool,
}

fn column<T>(
    rows: usize,
    shape: Shape,
    numbers: &mut Numbers,
    of: impl Fn(u64) -> T,
) -> Vec<Option<T>> {
    let (mut number, mut is_null) = (0, false);
    let mut row = || {
        if !shape.runs || numbers.below(100) == 0 {
            number = numbers.below(shape.distinct);
            is_null = numbers.below(100) < shape.nulls;
        }
        (!is_null).then(|| of(number))
    };
    (0..rows).map(|_| row()).collect()
}

fn text(number: u64) -> String {
    "aé日".repeat((number % 5) as usize) + &number.to_string()
}

/// All types that are read.
fn batch(rows: usize, shape: Shape, numbers: &mut Numbers) -> RecordBatch {
    let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
    let mut columns: Vec<(&str, ArrayRef)> = Vec::new();
    macro_rules! add {
        ($name:literal, $array:ty, $of:expr) => {
            let values = column(rows, shape, numbers, $of);
            columns.push(($name, Arc::new(<$array>::from(values))));
        };
    }
    add!("bool", BooleanArray, |n| n % 3 == 0);
    add!("i8", Int8Array, |n| spread(n) as i8);
    add!("i16", Int16Array, |n| spread(n) as i16);
    add!("i32", Int32Array, |n| spread(n) as i32);
    add!("i64", Int64Array, spread);
    add!("u8", UInt8Array, |n| spread(n) as u8);
    add!("u16", UInt16Array, |n| spread(n) as u16);
    add!("u32", UInt32Array, |n| spread(n) as u32);
    add!("u64", UInt64Array, |n| spread(n) as u64);
    add!("f32", Float32Array, |n| n as f32 / 7.0);
    add!("f64", Float64Array, |n| -(n as f64) / 7.0);
    add!("date", Date32Array, |n| n as i32 - 500);
    add!("moment", TimestampMicrosecondArray, |n| spread(n) / 1000);
    add!("time", Time64NanosecondArray, |n| n as i64);
    add!("text", StringArray, text);
    add!("bytes", BinaryArray, |n| if n % 2 == 0 { &b"\xff\x00"[..] } else { b"" });
    let decimals = |precision, scale, of: &dyn Fn(u64) -> i128, numbers: &mut Numbers| {
        let values = Decimal128Array::from(column(rows, shape, numbers, of));
        Arc::new(values.with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
    };
    columns.push(("d4", decimals(7, 2, &|n| i128::from(n % 9_999_999) - 5_000_000, numbers)));
    columns.push(("d8", decimals(17, 3, &|n| i128::from(spread(n) / 100), numbers)));
    columns.push(("d16", decimals(38, 0, &|n| i128::from(spread(n)) * 1_000_000_007, numbers)));
    let nullable = shape.nulls > 0;
    let fields =
        columns.iter().map(|(name, it)| Field::new(*name, it.data_type().clone(), nullable));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|it| it.1).collect()).unwrap()
}

fn write(path: &Path, batches: &[RecordBatch], properties: WriterProperties) {
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batches[0].schema(), Some(properties)).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

fn file(path: &Path) -> (ParquetFile, SchemaRef) {
    let metadata =
        ParquetMetaDataReader::new().parse_and_finish(&File::open(path).unwrap()).unwrap();
    let known = metadata.file_metadata();
    let schema = parquet_to_arrow_schema(known.schema_descr(), known.key_value_metadata()).unwrap();
    let types = schema.fields().iter().map(|field| field.data_type().clone());
    let columns = types.enumerate().collect();
    let source = SourceFile::open(path).unwrap();
    let texts = Arc::default();
    (ParquetFile { source, metadata: Arc::new(metadata), columns, texts }, Arc::new(schema))
}

fn table(path: &Path) -> Arc<ParquetTable> {
    let (file, schema) = file(path);
    Arc::new(ParquetTable::new(schema, vec![file]).unwrap())
}

/// The rows of columns, and how many segments they came in.
fn rows_of(
    table: &Arc<ParquetTable>,
    columns: &[usize],
    conditions: &[ColumnBound],
    options: ChunkOptions,
) -> Result<(Vec<RecordBatch>, usize), FormatError> {
    let mut feed = Arc::clone(table).feed(columns, conditions, options).unwrap();
    let facts = feed.facts();
    let mut decoder = Arc::clone(table).segment_decoder(columns).unwrap().unwrap();
    let (mut batches, mut segments, mut chunks) = (Vec::new(), 0, 0);
    while let Poll::Ready(Some(fed)) = feed.poll_next(Waker::noop()) {
        let fed = fed.unwrap();
        assert!(headrace_io::ReadSpec::slot_bytes_of(&fed.reads) <= facts.bounds.slot_bytes);
        let bytes: Vec<Vec<u8>> = fed
            .reads
            .iter()
            .map(|read| {
                let mut bytes = vec![0; read.bytes as usize];
                let file = File::open(table.file_path(read.file).unwrap()).unwrap();
                file.read_exact_at(&mut bytes, read.offset).unwrap();
                bytes
            })
            .collect();
        for (segment, bytes) in fed.payload.segments.iter().zip(bytes.chunks(columns.len())) {
            let buffers: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            let mut encoded = Encoded { segment, buffers: &buffers, taken: 0 };
            while let Some(batch) = decoder.next_batch(&mut encoded)? {
                batches.push(batch);
            }
            assert_eq!(encoded.taken, u64::from(segment.rows));
            segments += 1;
        }
        chunks += 1;
    }
    assert!(Some(chunks) <= facts.bounds.chunks);
    Ok((batches, segments))
}

/// The columns among these that readers decode for a device.
fn plain_columns(table: &Arc<ParquetTable>, columns: &[usize]) -> Vec<usize> {
    columns.iter().copied().filter(|&column| table.is_decoded_by_readers(&[column])).collect()
}

/// The rows of columns as a device takes them, each extent read by its own thread.
fn plain_rows_of(
    table: &Arc<ParquetTable>,
    columns: &[usize],
    chunk_rows_max: u64,
) -> std::io::Result<Vec<RecordBatch>> {
    let options = ChunkOptions { is_plain: true, chunk_rows_max, ..ChunkOptions::default() };
    let mut feed = Arc::clone(table).feed(columns, &[], options).unwrap();
    let facts = feed.facts();
    let mut batches = Vec::new();
    while let Poll::Ready(Some(fed)) = feed.poll_next(Waker::noop()) {
        let fed = fed.unwrap();
        assert!(headrace_io::ReadSpec::slot_bytes_of(&fed.reads) <= facts.bounds.slot_bytes);
        let read = |(read, file): (&headrace_io::ReadSpec, &Arc<dyn ReadAt>)| {
            let mut bytes = vec![0xaa; read.bytes as usize];
            file.read_exact_at(read.offset, &mut bytes).map(|()| bytes)
        };
        let bytes: Vec<_> = std::thread::scope(|scope| {
            let reads = fed.reads.iter().zip(&fed.files);
            let threads: Vec<_> = reads.map(|it| scope.spawn(move || read(it))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let bytes: Vec<Vec<u8>> =
            bytes.into_iter().collect::<Result<_, _>>().map_err(std::io::Error::other)?;
        let mut bytes = bytes.into_iter();
        for segment in &fed.payload.segments {
            let arrays = columns.iter().zip(&segment.columns).map(|(&column, extents)| {
                let values = bytes.next().unwrap();
                let validity = extents.validity.map(|_| bytes.next().unwrap());
                plain_array(table, column, extents, segment.rows as usize, (values, validity))
            });
            let names = columns.iter().map(|&column| table.schema().field(column).name());
            batches
                .push(RecordBatch::try_from_iter(names.zip(arrays.collect::<Vec<_>>())).unwrap());
        }
    }
    Ok(batches)
}

fn plain_array(
    table: &Arc<ParquetTable>,
    column: usize,
    extents: &ColumnExtents,
    rows: usize,
    (values, validity): (Vec<u8>, Option<Vec<u8>>),
) -> ArrayRef {
    let data_type = table.schema().field(column).data_type().clone();
    let nulls = validity.map(|bits| {
        let rest = rows % 8;
        assert!(rest == 0 || bits[rows / 8] >> rest == 0, "bits behind the last row");
        NullBuffer::new(BooleanBuffer::new(bits.into(), 0, rows))
    });
    let signed = |bytes: usize| {
        let of = |value: &[u8]| match value {
            [a] => i64::from(*a as i8),
            [a, b] => i64::from(i16::from_le_bytes([*a, *b])),
            [a, b, c, d] => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
            _ => i64::from_le_bytes(value.try_into().unwrap()),
        };
        values.chunks_exact(bytes).map(of).collect::<Vec<_>>()
    };
    match (&extents.encoding, data_type) {
        (ir::Encoding::Bits, _) => {
            Arc::new(BooleanArray::new(BooleanBuffer::new(values.into(), 0, rows), nulls))
        }
        (ir::Encoding::Narrow { value_bytes }, DataType::Decimal128(precision, scale)) => {
            let values = signed((*value_bytes).into()).into_iter().map(i128::from);
            let array = Decimal128Array::new(values.collect(), nulls);
            Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
        }
        (ir::Encoding::Deltas { base, delta_bytes }, data_type) => {
            let bytes = usize::from(*delta_bytes);
            let of = |value: &[u8]| {
                let mut all = [0; 8];
                all[..bytes].copy_from_slice(value);
                i128::from(*base) + i128::from(u64::from_le_bytes(all))
            };
            let numbers = values.chunks_exact(bytes).map(of);
            let numbers = Decimal128Array::new(numbers.collect(), nulls);
            match data_type {
                DataType::Decimal128(precision, scale) => {
                    Arc::new(numbers.with_precision_and_scale(precision, scale).unwrap())
                }
                data_type => {
                    let numbers = numbers.with_precision_and_scale(38, 0).unwrap();
                    let whole = cast(&numbers, &DataType::Int64).unwrap();
                    let narrow = match data_type {
                        DataType::Date32 => cast(&whole, &DataType::Int32).unwrap(),
                        _ => whole,
                    };
                    cast(&narrow, &data_type).unwrap()
                }
            }
        }
        (ir::Encoding::Dictionary { code_bytes }, _) => {
            let codes = signed((*code_bytes).into()).into_iter().map(|code| code as i32);
            let keys = Int32Array::new(codes.collect(), nulls);
            let texts = Arc::clone(table.dictionary(column).unwrap());
            Arc::new(DictionaryArray::<Int32Type>::try_new(keys, texts).unwrap())
        }
        (ir::Encoding::Plain, data_type) => {
            let data = ArrayData::builder(data_type).len(rows).add_buffer(values.into());
            make_array(data.nulls(nulls).build().unwrap())
        }
        (other, data_type) => panic!("{data_type} as {other:?}"),
    }
}

/// What was written is what is read, column by column.
fn assert_same(written: &[RecordBatch], read: &[RecordBatch], columns: &[usize], what: &str) {
    for (at, &column) in columns.iter().enumerate() {
        let written: Vec<&dyn Array> =
            written.iter().map(|batch| &**batch.column(column)).collect();
        let written = concat(&written).unwrap();
        let read: Vec<ArrayRef> =
            read.iter().map(|batch| cast(batch.column(at), written.data_type()).unwrap()).collect();
        let read: Vec<&dyn Array> = read.iter().map(|column| &**column).collect();
        let read = if read.is_empty() {
            new_empty_array(written.data_type())
        } else {
            concat(&read).unwrap()
        };
        assert_eq!(read.len(), written.len(), "{what}, column {column}");
        assert_eq!(&read, &written, "{what}, column {column}");
    }
}

fn properties() -> Vec<(String, WriterProperties)> {
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
    ];
    let mut all = Vec::new();
    for (number, compression) in compressions.into_iter().enumerate() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [false, true] {
                let made = WriterProperties::builder()
                    .set_compression(compression)
                    .set_writer_version(version)
                    .set_dictionary_enabled(dictionary)
                    // A dictionary that is soon too large, so that its column chunk goes on without it.
                    .set_dictionary_page_size_limit(if number % 2 == 0 { 2000 } else { 1 << 20 })
                    .set_data_page_row_count_limit(if number % 2 == 0 { 300 } else { 20_000 })
                    .set_write_batch_size(128);
                all.push((
                    format!("{compression}, {version:?}, dictionary {dictionary}"),
                    made.build(),
                ));
            }
        }
    }
    all
}

const SHAPES: [Shape; 5] = [
    Shape { nulls: 0, distinct: 40, runs: false },
    Shape { nulls: 0, distinct: 1 << 40, runs: true },
    Shape { nulls: 30, distinct: 1 << 40, runs: false },
    Shape { nulls: 50, distinct: 7, runs: true },
    Shape { nulls: 100, distinct: 7, runs: false },
];

#[test]
fn all_types_and_ways_of_writing_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let (mut numbers, mut numbers_and_texts) = (Numbers(1), 0);
    for (what, properties) in properties() {
        for shape in SHAPES {
            let written = [1000, 1, 7, 1613].map(|rows| batch(rows, shape, &mut numbers));
            write(&path, &written, properties.clone());
            let table = table(&path);
            let columns: Vec<usize> = (0..table.schema().fields().len()).collect();
            let (read, segments) = rows_of(&table, &columns, &[], ChunkOptions::default()).unwrap();
            assert_eq!(segments, 4);
            assert_same(&written, &read, &columns, &format!("{what}, {shape:?}"));
            let plain = plain_columns(&table, &columns);
            numbers_and_texts = numbers_and_texts.max(plain.len());
            assert!(plain.len() >= 16, "{plain:?}");
            for chunk_rows_max in [1 << 20, 512] {
                let read = plain_rows_of(&table, &plain, chunk_rows_max).unwrap();
                assert_same(&written, &read, &plain, &format!("plain, {what}, {shape:?}"));
            }
        }
    }
    assert_eq!(numbers_and_texts, 18, "all but bytes");
}

/// Encodings that no writer chooses by itself.
#[test]
fn values_of_every_encoding_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut numbers = Numbers(2);
    let encodings = [
        (Encoding::DELTA_BINARY_PACKED, &["i32", "i64", "u32", "u64", "date", "moment", "i8"][..]),
        (Encoding::BYTE_STREAM_SPLIT, &["f32", "f64", "i32", "i64", "d16"]),
        (Encoding::DELTA_LENGTH_BYTE_ARRAY, &["text", "bytes"]),
        (Encoding::DELTA_BYTE_ARRAY, &["text", "bytes"]),
    ];
    for (encoding, names) in encodings {
        for shape in SHAPES {
            let written = [2000, 3].map(|rows| batch(rows, shape, &mut numbers));
            let mut made = WriterProperties::builder()
                .set_dictionary_enabled(false)
                .set_data_page_row_count_limit(700)
                .set_write_batch_size(100);
            for name in names {
                made = made.set_column_encoding((*name).into(), encoding);
            }
            write(&path, &written, made.build());
            let table = table(&path);
            let columns = names.iter().map(|name| table.schema().index_of(name).unwrap());
            let columns: Vec<usize> = columns.collect();
            let (read, _) = rows_of(&table, &columns, &[], ChunkOptions::default()).unwrap();
            assert_same(&written, &read, &columns, &format!("{encoding}, {shape:?}"));
        }
    }
}

#[test]
fn a_row_group_is_shared_by_readers_that_have_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let rows = 300_000;
    let mut numbers = Numbers(3);
    let shape = Shape { nulls: 10, distinct: 1000, runs: false };
    let values: ArrayRef =
        Arc::new(Int32Array::from(column(rows, shape, &mut numbers, |n| n as i32)));
    let texts: ArrayRef = Arc::new(StringArray::from(column(rows, shape, &mut numbers, text)));
    let written = [RecordBatch::try_from_iter([("i", values), ("t", texts)]).unwrap()];
    write(&path, &written, WriterProperties::default());
    let table = table(&path);
    for (readers, wanted) in [(1, 1), (2, 2), (3, 3), (100, 4)] {
        let options = ChunkOptions { readers, ..ChunkOptions::default() };
        let (read, segments) = rows_of(&table, &[1, 0], &[], options).unwrap();
        assert_eq!(segments, wanted);
        assert_same(&written, &read, &[1, 0], &format!("{readers} readers"));
    }
}

#[test]
fn statistics_rule_row_groups_out_and_tell_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let group = |first: i32| {
        let dates: ArrayRef = Arc::new(Date32Array::from_iter_values(first..first + 100));
        let nulls =
            Int64Array::from_iter((first..first + 100).map(|i| (first > 0).then_some(i.into())));
        let values = (first..first + 100).map(|i| i128::from(i) - 150);
        let decimals =
            Decimal128Array::from_iter_values(values).with_precision_and_scale(20, 2).unwrap();
        let (nulls, decimals): (ArrayRef, ArrayRef) = (Arc::new(nulls), Arc::new(decimals));
        let columns = [("d", dates, false), ("n", nulls, true), ("m", decimals, true)];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    };
    let written = [group(0), group(100), group(200)];
    write(&path, &written, WriterProperties::default());
    let table = table(&path);
    let stats = table.column_stats(0);
    assert_eq!((stats.min, stats.max, stats.null_count), (Some(0), Some(299), Some(0)));
    let stats = table.column_stats(2);
    assert_eq!((stats.min, stats.max, stats.null_count), (Some(-150), Some(149), None));
    // A group of NULLs alone has no bounds, so that nothing is known of all.
    assert_eq!(table.column_stats(1).null_count, Some(100));
    assert_eq!(table.rows(), Some(300));
    let left = |column, min, max| {
        let bound = ColumnBound { column, min, max };
        rows_of(&table, &[0], &[bound], ChunkOptions::default()).unwrap().1
    };
    assert_eq!(left(0, Some(150), None), 2);
    assert_eq!(left(0, None, Some(99)), 1);
    assert_eq!(left(0, Some(300), None), 0);
    assert_eq!(left(1, None, None), 2);
    assert_eq!(left(2, Some(-60), Some(-40)), 2);
    assert_eq!(left(2, Some(150), None), 0);
}

/// Any damage is an error or other rows, never more.
#[test]
fn damaged_pages_are_errors_that_name_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut numbers = Numbers(4);
    let (mut errors, mut plain_errors, mut rows) = (0, 0, 0);
    for (what, properties) in properties() {
        let written = [batch(400, SHAPES[2], &mut numbers), batch(300, SHAPES[0], &mut Numbers(5))];
        write(&path, &written[..1], properties);
        let table = table(&path);
        let whole = std::fs::read(&path).unwrap();
        let (file, _) = file(&path);
        let end = file
            .metadata
            .row_group(0)
            .columns()
            .iter()
            .map(|c| c.byte_range())
            .map(|(a, b)| a + b)
            .max();
        let columns: Vec<usize> = (0..table.schema().fields().len()).collect();
        for _ in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..=numbers.below(3) {
                let at = 4 + numbers.below(end.unwrap() - 4) as usize;
                bytes[at] = match numbers.below(3) {
                    0 => bytes[at] ^ 1 << numbers.below(8),
                    1 => 0xff,
                    _ => 0,
                };
            }
            File::options().write(true).open(&path).unwrap().write_all_at(&bytes, 0).unwrap();
            let plain = plain_columns(&table, &columns);
            if let Err(error) = plain_rows_of(&table, &plain, 1 << 20) {
                let text = error.to_string();
                assert!(text.contains("t.parquet: corrupt at byte "), "{what}: {text}");
                plain_errors += 1;
            }
            match rows_of(&table, &columns, &[], ChunkOptions::default()) {
                Ok((read, _)) => rows += read.iter().map(RecordBatch::num_rows).sum::<usize>(),
                Err(error) => {
                    errors += 1;
                    let text = error.to_string();
                    assert!(
                        text.contains("t.parquet: corrupt at byte ")
                            && text.contains("row group 0, column "),
                        "{what}: {text}"
                    );
                }
            }
        }
    }
    assert!(errors > 1000 && rows > 0, "{errors} errors, {rows} rows");
    assert!(plain_errors > 500, "{plain_errors} errors of readers");
}

#[test]
fn what_is_not_read_is_told_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), None]);
    let halves = cast(&Float32Array::from(vec![0.5; 2]), &DataType::Float16).unwrap();
    let keys: DictionaryArray<Int64Type> = vec!["a", "b"].into_iter().collect();
    let columns: [(&str, ArrayRef); 3] =
        [("lists", Arc::new(lists)), ("halves", halves), ("keys", Arc::new(keys))];
    let written = RecordBatch::try_from_iter(columns).unwrap();
    write(&path, &[written], WriterProperties::default());
    let (file, schema) = file(&path);
    let refused = |column: usize, wanted: DataType| {
        let field = schema.field(column).clone().with_data_type(wanted);
        let file = ParquetFile { columns: vec![file.columns[column].clone()], ..file.clone() };
        ParquetTable::new(Arc::new(Schema::new(vec![field])), vec![file]).err()
    };
    assert_eq!(
        refused(0, schema.field(0).data_type().clone()).unwrap(),
        "column lists: it is nested"
    );
    let halves = refused(1, DataType::Float16).unwrap();
    assert_eq!(halves, "column halves: Float16 in FIXED_LEN_BYTE_ARRAY becomes Float16");
    assert_eq!(refused(2, DataType::Utf8), None);
    let other = refused(2, DataType::Timestamp(TimeUnit::Second, None)).unwrap();
    assert!(other.starts_with("column keys: Dictionary(Int64, Utf8)"), "{other}");
}

/// Nanoseconds a value that one thread takes for each column of a file as a device takes it.
#[test]
#[ignore = "measures: HEADRACE_PARQUET names a file"]
fn plain_columns_of_one_thread() {
    let path = std::env::var("HEADRACE_PARQUET").expect("HEADRACE_PARQUET names a file");
    let table = table(Path::new(&path));
    let all: Vec<_> = (0..table.schema().fields().len()).collect();
    for column in plain_columns(&table, &all) {
        let options = ChunkOptions { is_plain: true, ..ChunkOptions::default() };
        let best = (0..5).map(|_| {
            let mut feed = Arc::clone(&table).feed(&[column], &[], options).unwrap();
            let mut into = Vec::new();
            let started = std::time::Instant::now();
            let (mut bytes, mut rows) = (0, 0);
            while let Poll::Ready(Some(fed)) = feed.poll_next(Waker::noop()) {
                let fed = fed.unwrap();
                rows += fed.payload.segments.iter().map(|it| u64::from(it.rows)).sum::<u64>();
                for (read, file) in fed.reads.iter().zip(&fed.files) {
                    into.resize(read.bytes as usize, 0);
                    file.read_exact_at(read.offset, &mut into).unwrap();
                    bytes += read.bytes;
                }
            }
            (started.elapsed().as_secs_f64() * 1e9 / rows as f64, bytes as f64 / rows as f64)
        });
        let (value_ns, bytes) = best.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        let name = table.schema().field(column).name();
        println!("{name:16} {value_ns:6.2} ns a row, {:6.2} GB/s made", bytes / value_ns);
    }
}
