//! The tables that the corpus queries.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray, StringArray,
    UInt8Array, UInt64Array,
};
use datafusion::arrow::datatypes::{Int32Type, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use headrace_engine::Session;
use headrace_format::arrow::{ArrowWriter, WriterOptions};

/// Writes one file of record batches of `rows_per_batch` rows.
pub fn write(path: &Path, batch: &RecordBatch, rows_per_batch: usize, statistics: bool) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let options = WriterOptions { rows_per_batch, statistics };
    let mut writer = ArrowWriter::create(path, &batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
}

fn dictionary(values: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<DictionaryArray<Int32Type>>())
}

/// Columns; a name that ends in `?` is nullable.
fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, array)| {
        let nullable = name.ends_with('?');
        (name.trim_end_matches('?').to_string(), array, nullable)
    });
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Every type, with NULLs; 3 rows a record batch.
fn types() -> RecordBatch {
    batch(vec![
        ("id", Arc::new(Int32Array::from((1..=8).collect::<Vec<_>>()))),
        (
            "tiny?",
            Arc::new(Int8Array::from(vec![
                Some(-128),
                Some(127),
                None,
                Some(0),
                Some(1),
                None,
                Some(5),
                Some(5),
            ])),
        ),
        (
            "small?",
            Arc::new(Int16Array::from(vec![
                Some(300),
                None,
                Some(-300),
                Some(7),
                None,
                Some(7),
                Some(1),
                Some(2),
            ])),
        ),
        (
            "big?",
            Arc::new(Int64Array::from(vec![
                Some(i64::MAX),
                Some(1),
                None,
                Some(-5),
                Some(0),
                Some(i64::MIN),
                Some(10),
                None,
            ])),
        ),
        (
            "byte?",
            Arc::new(UInt8Array::from(vec![
                Some(255),
                Some(0),
                Some(1),
                None,
                Some(7),
                Some(7),
                Some(9),
                Some(9),
            ])),
        ),
        (
            "huge?",
            Arc::new(UInt64Array::from(vec![
                Some(u64::MAX),
                Some(0),
                None,
                Some(3),
                Some(4),
                Some(5),
                Some(6),
                Some(7),
            ])),
        ),
        (
            "real?",
            Arc::new(Float64Array::from(vec![
                Some(0.5),
                Some(-0.0),
                None,
                Some(f64::NAN),
                Some(2.25),
                Some(f64::INFINITY),
                Some(0.0),
                Some(-1.5),
            ])),
        ),
        (
            "price?",
            Arc::new(
                Decimal128Array::from(vec![
                    Some(1050),
                    Some(-25),
                    None,
                    Some(0),
                    Some(99999),
                    Some(1),
                    Some(2),
                    Some(300),
                ])
                .with_precision_and_scale(10, 2)
                .unwrap(),
            ),
        ),
        (
            "day?",
            Arc::new(Date32Array::from(vec![
                Some(0),
                Some(19000),
                None,
                Some(-1),
                Some(10957),
                Some(10958),
                Some(10959),
                Some(19001),
            ])),
        ),
        (
            "flag?",
            Arc::new(BooleanArray::from(vec![
                Some(true),
                Some(false),
                None,
                Some(true),
                None,
                Some(false),
                Some(true),
                Some(true),
            ])),
        ),
        (
            "text?",
            Arc::new(StringArray::from(vec![
                Some("apple"),
                Some("banana"),
                None,
                Some(""),
                Some("Äpfel"),
                Some("apple pie"),
                Some("100%"),
                Some("a_b"),
            ])),
        ),
        (
            "kind?",
            dictionary(vec![
                Some("fruit"),
                Some("fruit"),
                None,
                Some("none"),
                Some("obst"),
                Some("cake"),
                None,
                Some("none"),
            ]),
        ),
    ])
}

/// A fact table: 1,000 rows in batches of 128.
fn fact() -> RecordBatch {
    let n = 1000;
    let key = |i: i32| (i % 11 != 0).then_some(i % 23);
    let day = |i: i32| 100 + i / 10;
    batch(vec![
        ("f_id", Arc::new(Int32Array::from((0..n).collect::<Vec<_>>()))),
        ("f_dim?", Arc::new(Int32Array::from((0..n).map(key).collect::<Vec<_>>()))),
        ("f_day", Arc::new(Int32Array::from((0..n).map(day).collect::<Vec<_>>()))),
        (
            "f_value?",
            Arc::new(Int64Array::from(
                (0..n).map(|i| (i % 7 != 0).then_some(i64::from(i) * 3 - 500)).collect::<Vec<_>>(),
            )),
        ),
        (
            "f_color",
            dictionary((0..n).map(|i| Some(["red", "green", "blue"][i as usize % 3])).collect()),
        ),
    ])
}

/// Dimension keys 0 to 19: of the fact's 23 keys three have no match.
fn dim() -> RecordBatch {
    let names = ["ant", "bee", "cat", "dog", "eel"];
    batch(vec![
        ("d_id", Arc::new(Int32Array::from((0..20).collect::<Vec<_>>()))),
        ("d_name", dictionary((0..20).map(|i| Some(names[i % 5])).collect())),
        (
            "d_rank?",
            Arc::new(Int32Array::from(
                (0..20).map(|i| (i % 4 != 3).then_some(i / 4)).collect::<Vec<_>>(),
            )),
        ),
        ("d_area", Arc::new(Int32Array::from((0..20).map(|i| i % 3).collect::<Vec<_>>()))),
    ])
}

/// Outer dimension of the snowflake: keyed by `d_area`.
fn area() -> RecordBatch {
    batch(vec![
        ("a_id", Arc::new(Int32Array::from(vec![0, 1, 2]))),
        ("a_name", dictionary(vec![Some("north"), Some("south"), Some("west")])),
    ])
}

/// Keys that occur twice, and a NULL.
fn twice() -> RecordBatch {
    batch(vec![
        (
            "t_id?",
            Arc::new(Int32Array::from(vec![Some(1), Some(1), Some(2), None, Some(3), Some(2)])),
        ),
        (
            "t_note?",
            Arc::new(StringArray::from(vec![
                Some("a"),
                Some("b"),
                Some("c"),
                Some("d"),
                None,
                Some("f"),
            ])),
        ),
    ])
}

/// A folder of 40 files of 25 rows with a dictionary of their own each; ascending numbers.
fn write_many(folder: &Path) {
    for file in 0..40 {
        let numbers: Vec<i32> = (file * 25..(file + 1) * 25).collect();
        // The order of first appearance, hence the codes, differs from file to file.
        let words = numbers
            .iter()
            .map(|n| Some(["zulu", "yankee", "xray", "whiskey"][((n + file) % 4) as usize]));
        let batch = batch(vec![
            ("n", Arc::new(Int32Array::from(numbers.clone()))),
            (
                "word?",
                dictionary(words.map(|w| w.filter(|w| *w != "xray" || file % 2 == 0)).collect()),
            ),
        ]);
        write(&folder.join(format!("{file:02}.arrow")), &batch, 1000, true);
    }
}

/// Two files, an empty one and one that is still being written.
fn write_partly(folder: &Path) {
    let rows =
        |values: Vec<i32>| batch(vec![("v", Arc::new(Int32Array::from(values)) as ArrayRef)]);
    write(&folder.join("1.arrow"), &rows(vec![1, 2, 3]), 2, true);
    write(&folder.join("2.arrow"), &rows(vec![]), 2, true);
    write(&folder.join("3.arrow"), &rows(vec![40, 50]), 2, false);
    let whole = std::fs::read(folder.join("1.arrow")).unwrap();
    std::fs::write(folder.join("4.arrow"), &whole[..whole.len() / 2]).unwrap();
}

/// A column that no pipeline can read beside one that it can.
fn nested() -> RecordBatch {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
        Some(vec![Some(1), Some(2)]),
        None,
        Some(vec![]),
    ]);
    batch(vec![
        ("k", Arc::new(Int32Array::from(vec![1, 2, 3])) as ArrayRef),
        ("list?", Arc::new(lists)),
    ])
}

/// A type that pipelines are planned for and processors refuse.
fn raw() -> RecordBatch {
    batch(vec![(
        "bytes?",
        Arc::new(BinaryArray::from_opt_vec(vec![Some(b"a".as_slice()), None, Some(b"")]))
            as ArrayRef,
    )])
}

/// Values at the edge of their types.
fn limits() -> RecordBatch {
    batch(vec![
        ("i", Arc::new(Int32Array::from(vec![i32::MAX, i32::MIN, 0, 1]))),
        ("l", Arc::new(Int64Array::from(vec![i64::MAX, i64::MIN, i64::MAX, 1]))),
        (
            "d",
            Arc::new(
                Decimal128Array::from(vec![99, -99, 50, 1]).with_precision_and_scale(2, 0).unwrap(),
            ),
        ),
        (
            "w",
            Arc::new(
                Decimal128Array::from(vec![
                    10_i128.pow(38) - 1,
                    10_i128.pow(38) - 1,
                    1 - 10_i128.pow(38),
                    1,
                ])
                .with_precision_and_scale(38, 0)
                .unwrap(),
            ),
        ),
    ])
}

/// Integers whose total in floats depends on the order of rows.
fn means() -> RecordBatch {
    batch(vec![
        ("k", Arc::new(Int32Array::from(vec![1, 0, 0, 1, 0]))),
        ("w", Arc::new(Int64Array::from(vec![i64::MAX, 1, -1, i64::MIN, 5]))),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX; 5]))),
    ])
}

/// Floats that are equal and have other bits: both zeros, three NaNs.
fn floats() -> RecordBatch {
    let nan = |bits| Some(f64::from_bits(bits));
    let values = vec![
        Some(0.0),
        Some(-0.0),
        Some(1.5),
        nan(0x7ff8_0000_0000_0000),
        nan(0xfff8_0000_0000_0000),
        nan(0x7ff8_0000_0000_0001),
        None,
        Some(f64::INFINITY),
        Some(f64::NEG_INFINITY),
    ];
    batch(vec![
        ("id", Arc::new(Int32Array::from_iter_values(1..10))),
        ("f?", Arc::new(Float64Array::from(values))),
    ])
}

/// Writes all tables below a folder and registers them.
pub async fn register(session: &Session, folder: &Path) {
    let file = |name: &str| -> PathBuf { folder.join(format!("{name}.arrow")) };
    write(&file("types"), &types(), 3, true);
    write(&file("fact"), &fact(), 128, true);
    write(&file("dim"), &dim(), 7, true);
    write(&file("area"), &area(), 2, true);
    write(&file("twice"), &twice(), 4, true);
    write(&file("limits"), &limits(), 2, true);
    write(&file("means"), &means(), 2, true);
    write(&file("floats"), &floats(), 3, true);
    write(&file("raw"), &raw(), 10, true);
    write(&file("nested"), &nested(), 10, true);
    let empty = RecordBatch::new_empty(Arc::new(Schema::clone(&types().schema())));
    write(&file("empty"), &empty, 10, true);
    write_many(&folder.join("many"));
    write_partly(&folder.join("partly"));
    session.register_path(folder).unwrap();
}
