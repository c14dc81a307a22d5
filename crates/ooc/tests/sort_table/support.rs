//! Random tables in files, and their rows in plain Rust.

use std::cmp::Ordering;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, UInt8Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Int32Array,
    Int64Array, LargeStringArray, ListArray, PrimitiveArray, RecordBatch, StringArray,
    StringViewArray,
};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use headrace_format::arrow::ArrowTable;
pub use headrace_io::random::Random;
use headrace_ir::OrderKey;
use headrace_ooc::sort::Order;
use headrace_ooc::sort::table::{SortKey, TableSortJob};

/// A value, as it lies: floats by their bits.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i128),
    F32(u32),
    F64(u64),
    Bytes(Vec<u8>),
    List(Vec<Value>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt64,
    Float32,
    Float64,
    Decimal,
    Date,
    Timestamp,
    Utf8,
    LargeUtf8,
    View,
    Binary,
    Fixed,
    /// Texts, with dictionaries that differ from file to file.
    Dictionary8,
    Dictionary32,
    /// Integers, with one dictionary for all files.
    DictionaryOfInts,
    List,
}

impl Kind {
    const ALL: [Kind; 21] = [
        Kind::Bool,
        Kind::Int8,
        Kind::Int16,
        Kind::Int32,
        Kind::Int64,
        Kind::UInt8,
        Kind::UInt64,
        Kind::Float32,
        Kind::Float64,
        Kind::Decimal,
        Kind::Date,
        Kind::Timestamp,
        Kind::Utf8,
        Kind::LargeUtf8,
        Kind::View,
        Kind::Binary,
        Kind::Fixed,
        Kind::Dictionary8,
        Kind::Dictionary32,
        Kind::DictionaryOfInts,
        Kind::List,
    ];

    fn data_type(self) -> DataType {
        let dictionary = |codes, values| DataType::Dictionary(Box::new(codes), Box::new(values));
        match self {
            Kind::Bool => DataType::Boolean,
            Kind::Int8 => DataType::Int8,
            Kind::Int16 => DataType::Int16,
            Kind::Int32 => DataType::Int32,
            Kind::Int64 => DataType::Int64,
            Kind::UInt8 => DataType::UInt8,
            Kind::UInt64 => DataType::UInt64,
            Kind::Float32 => DataType::Float32,
            Kind::Float64 => DataType::Float64,
            Kind::Decimal => DataType::Decimal128(38, 2),
            Kind::Date => DataType::Date32,
            Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Kind::Utf8 => DataType::Utf8,
            Kind::LargeUtf8 => DataType::LargeUtf8,
            Kind::View => DataType::Utf8View,
            Kind::Binary => DataType::Binary,
            Kind::Fixed => DataType::FixedSizeBinary(5),
            Kind::Dictionary8 => dictionary(DataType::Int8, DataType::Utf8),
            Kind::Dictionary32 => dictionary(DataType::Int32, DataType::Utf8),
            Kind::DictionaryOfInts => dictionary(DataType::Int32, DataType::Int64),
            Kind::List => DataType::new_list(DataType::Int32, true),
        }
    }

    fn value(self, spread: u64, random: &mut Random) -> Value {
        let integer = match spread {
            0 => random.draw() as i64,
            spread => random.below(spread) as i64 - spread as i64 / 2,
        };
        let text = |random: &mut Random| {
            let length = match spread {
                0 => [0, 1, 7, 8, 9, 31, 32, 33, 70][random.below(9) as usize],
                _ => random.below(3),
            };
            let letters = ["a", "b", "z", "\0", "é", "\u{10ffff}"];
            let letter = |_| letters[random.below(letters.len() as u64) as usize];
            (0..length).map(letter).collect::<String>().into_bytes()
        };
        let special = [0, 1 << 63, f64::NAN.to_bits(), u64::MAX, 0x7ff0_0000_0000_0000, 1];
        match self {
            Kind::Bool => Value::Bool(integer & 1 == 0),
            Kind::Int8 => Value::Int((integer as i8).into()),
            Kind::Int16 => Value::Int((integer as i16).into()),
            Kind::Int32 | Kind::Date => Value::Int((integer as i32).into()),
            Kind::Int64 | Kind::Timestamp => Value::Int(integer.into()),
            Kind::UInt8 => Value::Int((integer as u8).into()),
            Kind::UInt64 => Value::Int((integer as u64).into()),
            Kind::Decimal => {
                Value::Int(i128::from(integer) * if spread == 0 { 1 << 60 } else { 1 })
            }
            Kind::Float32 if random.below(3) == 0 => {
                let special = [0, 1 << 31, f32::NAN.to_bits(), u32::MAX, 0xff80_0000, 1];
                Value::F32(special[random.below(6) as usize])
            }
            Kind::Float64 if random.below(3) == 0 => Value::F64(special[random.below(6) as usize]),
            Kind::Float32 => Value::F32((integer as f32 / 3.0).to_bits()),
            Kind::Float64 => Value::F64((integer as f64 / 3.0).to_bits()),
            Kind::Utf8 | Kind::LargeUtf8 | Kind::View | Kind::Binary => Value::Bytes(text(random)),
            Kind::Fixed => Value::Bytes(integer.to_le_bytes()[..5].to_vec()),
            Kind::Dictionary8 => Value::Bytes(format!("d{}", random.below(40)).into_bytes()),
            Kind::Dictionary32 => Value::Bytes(format!("w{}", random.below(400)).into_bytes()),
            Kind::DictionaryOfInts => Value::Int(i128::from(random.below(50) as i64 * 3 - 60)),
            Kind::List => {
                let length = random.below(4);
                let value = |_| match random.below(5) {
                    0 => Value::Null,
                    number => Value::Int(number.into()),
                };
                Value::List((0..length).map(value).collect())
            }
        }
    }

    /// An array of values of one file.
    fn array(self, values: &[Value]) -> ArrayRef {
        let bytes = || {
            values.iter().map(|value| match value {
                Value::Bytes(bytes) => Some(bytes.as_slice()),
                _ => None,
            })
        };
        let texts = || bytes().map(|bytes| bytes.map(|bytes| str::from_utf8(bytes).unwrap()));
        match self {
            Kind::Bool => {
                Arc::new(BooleanArray::from_iter(values.iter().map(|value| match value {
                    Value::Bool(value) => Some(*value),
                    _ => None,
                })))
            }
            Kind::Int8 => ints::<Int8Type>(values, |value| value as i8),
            Kind::Int16 => ints::<Int16Type>(values, |value| value as i16),
            Kind::Int32 => ints::<Int32Type>(values, |value| value as i32),
            Kind::Int64 => ints::<Int64Type>(values, |value| value as i64),
            Kind::UInt8 => ints::<UInt8Type>(values, |value| value as u8),
            Kind::UInt64 => ints::<UInt64Type>(values, |value| value as u64),
            Kind::Decimal => ints::<Decimal128Type>(values, |value| value),
            Kind::Date => ints::<Date32Type>(values, |value| value as i32),
            Kind::Timestamp => ints::<TimestampMicrosecondType>(values, |value| value as i64),
            Kind::Float32 => {
                Arc::new(PrimitiveArray::<Float32Type>::from_iter(values.iter().map(|value| {
                    match value {
                        Value::F32(bits) => Some(f32::from_bits(*bits)),
                        _ => None,
                    }
                })))
            }
            Kind::Float64 => {
                Arc::new(PrimitiveArray::<Float64Type>::from_iter(values.iter().map(|value| {
                    match value {
                        Value::F64(bits) => Some(f64::from_bits(*bits)),
                        _ => None,
                    }
                })))
            }
            Kind::Utf8 => Arc::new(StringArray::from_iter(texts())),
            Kind::LargeUtf8 => Arc::new(LargeStringArray::from_iter(texts())),
            Kind::View => Arc::new(StringViewArray::from_iter(texts())),
            Kind::Binary => Arc::new(BinaryArray::from_iter(bytes())),
            Kind::Fixed => {
                Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes(), 5).unwrap())
            }
            // In the order in which the file has them.
            Kind::Dictionary8 => Arc::new(texts().collect::<DictionaryArray<Int8Type>>()),
            Kind::Dictionary32 => Arc::new(texts().collect::<DictionaryArray<Int32Type>>()),
            Kind::DictionaryOfInts => {
                let dictionary = Int64Array::from_iter_values((0..50).rev().map(|i| i * 3 - 60));
                let code = |value: &Value| match value {
                    Value::Int(value) => Some(49 - (*value as i32 + 60) / 3),
                    _ => None,
                };
                let codes = Int32Array::from_iter(values.iter().map(code));
                Arc::new(DictionaryArray::new(codes, Arc::new(dictionary)))
            }
            Kind::List => {
                let int = |value: &Value| match value {
                    Value::Int(value) => Some(*value as i32),
                    _ => None,
                };
                let list = |value: &Value| match value {
                    Value::List(values) => Some(values.iter().map(int).collect::<Vec<_>>()),
                    _ => None,
                };
                let lists = values.iter().map(list);
                Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
            }
        }
    }
}

fn ints<T: ArrowPrimitiveType>(values: &[Value], narrow: fn(i128) -> T::Native) -> ArrayRef {
    let data_type = match T::DATA_TYPE {
        DataType::Decimal128(..) => DataType::Decimal128(38, 2),
        DataType::Timestamp(unit, _) => DataType::Timestamp(unit, Some("UTC".into())),
        other => other,
    };
    let value = |value: &Value| match value {
        Value::Int(value) => Some(narrow(*value)),
        _ => None,
    };
    let array = values.iter().map(value).collect::<PrimitiveArray<T>>();
    Arc::new(array.with_data_type(data_type))
}

/// The values of an array of any of the kinds.
fn values(array: &ArrayRef) -> Vec<Value> {
    fn all<T: ArrowPrimitiveType>(array: &ArrayRef, value: fn(T::Native) -> Value) -> Vec<Value> {
        array.as_primitive::<T>().iter().map(|v| v.map_or(Value::Null, value)).collect()
    }
    fn bytes<'a, B: AsRef<[u8]> + 'a>(of: impl Iterator<Item = Option<B>>) -> Vec<Value> {
        of.map(|v| v.map_or(Value::Null, |v| Value::Bytes(v.as_ref().to_vec()))).collect()
    }
    match array.data_type() {
        DataType::Boolean => {
            array.as_boolean().iter().map(|v| v.map_or(Value::Null, Value::Bool)).collect()
        }
        DataType::Int8 => all::<Int8Type>(array, |v| Value::Int(v.into())),
        DataType::Int16 => all::<Int16Type>(array, |v| Value::Int(v.into())),
        DataType::Int32 => all::<Int32Type>(array, |v| Value::Int(v.into())),
        DataType::Int64 => all::<Int64Type>(array, |v| Value::Int(v.into())),
        DataType::UInt8 => all::<UInt8Type>(array, |v| Value::Int(v.into())),
        DataType::UInt64 => all::<UInt64Type>(array, |v| Value::Int(v.into())),
        DataType::Decimal128(..) => all::<Decimal128Type>(array, Value::Int),
        DataType::Date32 => all::<Date32Type>(array, |v| Value::Int(v.into())),
        DataType::Timestamp(..) => all::<TimestampMicrosecondType>(array, |v| Value::Int(v.into())),
        DataType::Float32 => all::<Float32Type>(array, |v| Value::F32(v.to_bits())),
        DataType::Float64 => all::<Float64Type>(array, |v| Value::F64(v.to_bits())),
        DataType::Utf8 => bytes(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => bytes(array.as_string::<i64>().iter()),
        DataType::Utf8View => bytes(array.as_string_view().iter()),
        DataType::Binary => bytes(array.as_binary::<i32>().iter()),
        DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary().iter()),
        DataType::List(_) => {
            let list = |v: Option<ArrayRef>| v.map_or(Value::Null, |v| Value::List(values(&v)));
            array.as_list::<i32>().iter().map(list).collect()
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let of = values(dictionary.values());
            let codes = dictionary.normalized_keys();
            let value = |row: usize| match array.is_null(row) {
                true => Value::Null,
                false => of[codes[row]].clone(),
            };
            (0..array.len()).map(value).collect()
        }
        other => panic!("{other}"),
    }
}

/// A table: columns `c0`, `c1`, …, and the number of each row.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(Kind, bool, Vec<Value>)>,
    rows: usize,
}

impl Table {
    pub fn of(kinds: &[(Kind, bool)], rows: usize, random: &mut Random) -> Table {
        let column = |(kind, may_be_null): &(Kind, bool)| {
            // All kinds of values, few, very few.
            let spread = [0, 0, 50, 3][random.below(4) as usize];
            let value = |_| match *may_be_null && random.below(4) == 0 {
                true => Value::Null,
                false => kind.value(spread, random),
            };
            (*kind, *may_be_null, (0..rows).map(value).collect())
        };
        Table { columns: kinds.iter().map(column).collect(), rows }
    }

    pub fn random(random: &mut Random, rows_max: u64) -> Table {
        let kind = |random: &mut Random| {
            let kind = Kind::ALL[random.below(Kind::ALL.len() as u64) as usize];
            (kind, random.below(2) == 0)
        };
        // The first can be a key.
        let mut kinds = vec![(Kind::ALL[random.below(20) as usize], random.below(2) == 0)];
        (0..random.below(4)).for_each(|_| kinds.push(kind(random)));
        let rows = match random.below(8) {
            0 => random.below(3),
            1..4 => random.below(rows_max),
            _ => rows_max / 2 + random.below(rows_max / 2),
        };
        Table::of(&kinds, rows as usize, random)
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn fill(&mut self, column: usize, value: impl Fn(usize) -> Value) {
        self.columns[column].2 = (0..self.rows).map(value).collect();
    }

    /// One or more columns, in any order, each in any direction.
    pub fn random_keys(&self, random: &mut Random) -> Vec<SortKey> {
        let has_order = |i: &usize| self.columns[*i].0 != Kind::List;
        let mut left: Vec<usize> = (0..self.columns.len()).filter(has_order).collect();
        let count = 1 + random.below(left.len().min(4) as u64);
        let mut key = |_| SortKey {
            column: format!("c{}", left.remove(random.below(left.len() as u64) as usize)),
            order: [Order::Ascending, Order::Descending][random.below(2) as usize],
            nulls_first: [None, Some(false), Some(true)][random.below(3) as usize],
        };
        (0..count).map(&mut key).collect()
    }

    pub fn schema(&self) -> SchemaRef {
        let field = |(i, (kind, may_be_null, _)): (usize, &(Kind, bool, Vec<Value>))| {
            Field::new(format!("c{i}"), kind.data_type(), *may_be_null)
        };
        let mut fields: Vec<Field> = self.columns.iter().enumerate().map(field).collect();
        fields.push(Field::new("row", DataType::Int64, false));
        Arc::new(Schema::new(fields))
    }

    /// All rows in batches of any size: parts of one, or each with dictionaries of its own.
    pub fn batches(&self, random: &mut Random) -> Vec<RecordBatch> {
        let rows_max = [1 + self.rows as u64 / 20, 64, 1000, 7][random.below(4) as usize];
        let are_parts = random.below(3) == 0;
        let all = self.batch(0..self.rows);
        let (mut batches, mut start) = (Vec::new(), 0);
        while start < self.rows {
            let count = (random.below(rows_max + 1) as usize).min(self.rows - start);
            batches.push(match are_parts {
                true => all.slice(start, count),
                false => self.batch(start..start + count),
            });
            start += count;
        }
        batches
    }

    fn batch(&self, rows: Range<usize>) -> RecordBatch {
        let mut columns: Vec<ArrayRef> =
            self.columns.iter().map(|(kind, _, of)| kind.array(&of[rows.clone()])).collect();
        columns.push(Arc::new(Int64Array::from_iter_values(rows.map(|row| row as i64))));
        RecordBatch::try_new(self.schema(), columns).unwrap()
    }

    /// Keys as places among the columns.
    pub fn order(by: &[SortKey]) -> Vec<OrderKey> {
        let key = |key: &SortKey| {
            let descending = key.order == Order::Descending;
            let nulls_first = key.nulls_first.unwrap_or(descending);
            OrderKey { column: key.column[1..].parse().unwrap(), descending, nulls_first }
        };
        by.iter().map(key).collect()
    }

    /// Error if batches are not the rows in their order.
    pub fn check(&self, batches: &[RecordBatch], by: &[SortKey], context: &str) {
        let mut rows: Vec<Vec<Value>> = Vec::new();
        for batch in batches {
            let columns: Vec<_> = batch.columns().iter().map(values).collect();
            let row = |row: usize| columns.iter().map(|c| c[row].clone()).collect();
            rows.extend((0..batch.num_rows()).map(row));
        }
        let expected = self.sorted(by);
        assert_eq!(rows.len(), expected.len(), "{context}");
        for (number, (found, expected)) in rows.iter().zip(&expected).enumerate() {
            assert_eq!(found, expected, "{context}, row {number}, by {by:?}");
        }
    }

    fn row(&self, row: usize) -> Vec<Value> {
        let mut values: Vec<_> = self.columns.iter().map(|(_, _, of)| of[row].clone()).collect();
        values.push(Value::Int(row as i128));
        values
    }

    /// The rows in their order, by a plain sort.
    fn sorted(&self, by: &[SortKey]) -> Vec<Vec<Value>> {
        let by: Vec<_> =
            by.iter().map(|key| (key.column[1..].parse::<usize>().unwrap(), key)).collect();
        let mut rows: Vec<_> = (0..self.rows).map(|row| self.row(row)).collect();
        rows.sort_by(|a, b| {
            let orders = by.iter().map(|(i, key)| compare(&a[*i], &b[*i], key));
            orders.fold(Ordering::Equal, Ordering::then)
        });
        rows
    }
}

fn compare(a: &Value, b: &Value, key: &SortKey) -> Ordering {
    let descending = key.order == Order::Descending;
    let null_order = match key.nulls_first.unwrap_or(descending) {
        true => Ordering::Less,
        false => Ordering::Greater,
    };
    let order = match (a, b) {
        (Value::Null, Value::Null) => return Ordering::Equal,
        (Value::Null, _) => return null_order,
        (_, Value::Null) => return null_order.reverse(),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::F32(a), Value::F32(b)) => {
            compare_floats(f32::from_bits(*a).into(), f32::from_bits(*b).into())
        }
        (Value::F64(a), Value::F64(b)) => compare_floats(f64::from_bits(*a), f64::from_bits(*b)),
        _ => panic!("{a:?} beside {b:?}"),
    };
    if descending { order.reverse() } else { order }
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// A folder with the files of a table, and room for the output.
pub struct Home {
    home: tempfile::TempDir,
}

impl Home {
    /// In up to three files, with batches of any size, compressed or not.
    pub fn new(table: &Table, random: &mut Random) -> Home {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("table")).unwrap();
        fs::create_dir_all(home.path().join("out")).unwrap();
        let home = Home { home };
        let files = 1 + random.below(3) as usize;
        let mut start = 0;
        for file in 0..files {
            let rest = table.rows - start;
            let rows =
                if file + 1 == files { rest } else { random.below(rest as u64 + 1) as usize };
            let path = home.home.path().join(format!("table/{file}.arrow"));
            write(table, start..start + rows, &path, random);
            start += rows;
        }
        home
    }

    pub fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.home.path().join("table")).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    pub fn largest_batch_bytes(&self) -> u64 {
        let table = ArrowTable::open(&self.files()).unwrap();
        let batches =
            |file: usize| (0..table.files()[file].batches()).map(move |batch| (file, batch));
        let bytes = (0..table.files().len()).flat_map(batches);
        bytes.map(|(file, batch)| table.batch_bytes_max(file, batch).unwrap()).max().unwrap_or(0)
    }

    pub fn job(&self, by: Vec<SortKey>, random: &mut Random) -> TableSortJob {
        TableSortJob {
            input: self.home.path().join("table"),
            output: self.home.path().join("out/sorted.arrow"),
            by,
            temporary_folder: None,
            temporary_limit_bytes: None,
            rows_per_batch: (random.below(2) == 0).then_some(1 + random.below(500) as usize),
        }
    }

    /// Error if the output is not the table's rows in order, or anything else was left.
    pub fn check(&self, table: &Table, job: &TableSortJob, context: &str) {
        let reader = FileReader::try_new(File::open(&job.output).unwrap(), None).unwrap();
        let batches: Vec<_> = reader.map(|batch| batch.unwrap()).collect();
        let rows_max = job.rows_per_batch.unwrap_or(usize::MAX);
        assert!(batches.iter().all(|batch| batch.num_rows() <= rows_max));
        table.check(&batches, &job.by, context);
        assert_eq!(fs::read_dir(self.home.path().join("out")).unwrap().count(), 1);
    }

    pub fn check_nothing_left(&self) {
        let left: Vec<_> = fs::read_dir(self.home.path().join("out")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn write(table: &Table, rows: Range<usize>, path: &Path, random: &mut Random) {
    let compression = [None, None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
    let compression = compression[random.below(4) as usize];
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let schema = table.schema();
    let all = table.batch(rows.clone());
    let file = File::create(path).unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &schema, options).unwrap();
    // Some files have many small batches, some a few, and some batches are empty.
    let batch_rows_max = [1 + rows.len() as u64 / 20, 64, 1000, 7][random.below(4) as usize];
    let mut start = 0;
    while start < rows.len() {
        let count = (random.below(batch_rows_max + 1) as usize).min(rows.len() - start);
        writer.write(&all.slice(start, count)).unwrap();
        start += count;
    }
    writer.finish().unwrap();
}
