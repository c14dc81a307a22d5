//! The tables that the corpus queries.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray, StringArray,
    UInt8Array, UInt64Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type, Schema, TimeUnit};
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

/// Texts as values of a type, which every one of them must be; `None` is NULL.
fn parsed(values: &[Option<&str>], data_type: &DataType) -> ArrayRef {
    let texts = StringArray::from(values.to_vec());
    let array = cast(&texts, data_type).unwrap();
    assert_eq!(array.null_count(), texts.iter().filter(Option::is_none).count(), "{values:?}");
    array
}

/// Words as [`parsed`] has them; `-` is NULL.
fn words_as(words: &str, data_type: &DataType) -> ArrayRef {
    let values: Vec<_> = words.split_whitespace().map(|w| (w != "-").then_some(w)).collect();
    parsed(&values, data_type)
}

/// Words as codes of a dictionary; `-` is NULL.
fn dictionary_of(words: &str) -> ArrayRef {
    dictionary(words.split_whitespace().map(|w| (w != "-").then_some(w)).collect())
}

/// Twelve people, most with a boss among them: teams and bosses that are NULL, equal salaries and days.
fn people() -> RecordBatch {
    batch(vec![
        ("p_id", Arc::new(Int32Array::from_iter_values(1..13))),
        ("p_name?", words_as("Ada Bob Cyd Dan Eva Fay Gus Hal Ivy Jon - Ada", &DataType::Utf8)),
        ("p_boss?", words_as("- 1 1 2 2 3 3 3 5 5 - 11", &DataType::Int32)),
        ("p_team?", dictionary_of("core core data data data ops ops - core data ops -")),
        (
            "p_salary?",
            words_as(
                "9000.00 7000.50 7000.50 5200.00 - 4100.25 4100.25 3999.99 5200.00 6100.00 8000.00 -",
                &DataType::Decimal128(9, 2),
            ),
        ),
        (
            "p_hired?",
            words_as(
                "2015-03-01 2016-07-15 2016-07-15 2019-12-31 2020-02-29 2020-02-29 2021-01-01 - \
                 2018-05-05 2015-03-01 2023-10-10 2024-02-29",
                &DataType::Date32,
            ),
        ),
        (
            "p_remote?",
            words_as(
                "true false true - false true true false - true false true",
                &DataType::Boolean,
            ),
        ),
        (
            "p_score?",
            words_as("3.5 2.0 - 4.25 3.5 1.0 -1.5 2.0 4.75 - 0.0 3.5", &DataType::Float64),
        ),
    ])
}

/// Orders of [`people`], of nobody, and of people who are not there.
fn orders() -> RecordBatch {
    let moments = "2024-01-01T00:00:00 2024-01-01T08:30:00 2024-01-15T23:59:59.999999 2024-01-31T12:00:00 \
        2024-02-01T00:00:00 2024-02-29T06:45:10.5 - 2024-02-29T23:00:00 2024-03-10T10:10:10 \
        2024-03-31T18:00:00 2024-03-31T18:00:00 2024-04-01T00:00:00 2023-12-31T23:59:59 \
        2024-04-30T09:00:00 - 2024-05-05T05:05:05.000005 2024-05-06T00:00:00 2024-06-30T13:37:00 \
        2024-07-01T00:00:01 2024-07-04T20:15:00 2024-07-04T20:15:00 2022-11-30T07:00:00 \
        2024-08-15T16:20:30.25 2024-12-31T23:59:59";
    let amounts = "19.99 5.00 5.00 120.50 1000.00 - 75.25 0.01 25.00 999999.99 19.99 3.33 0.00 -10.50 \
        42.00 42.00 1.50 1.50 2.75 - 0.10 606.06 19.99 888.00";
    let statuses = "paid open paid paid void open - paid open paid paid paid void void open - \
        paid paid open open paid void paid paid";
    let people = "1 2 2 3 5 5 5 8 - 99 1 12 4 4 - 2 10 10 10 10 98 6 7 1";
    let quantities = "1 5 - 3 10 2 7 1 4 100 1 3 0 -1 6 6 - 1 2 4 1 6 1 8";
    batch(vec![
        ("o_id", Arc::new(Int64Array::from_iter_values(100..124))),
        ("o_person?", words_as(people, &DataType::Int32)),
        ("o_at?", words_as(moments, &DataType::Timestamp(TimeUnit::Microsecond, None))),
        ("o_amount?", words_as(amounts, &DataType::Decimal128(12, 2))),
        ("o_qty?", words_as(quantities, &DataType::Int16)),
        ("o_status?", dictionary_of(statuses)),
    ])
}

/// Moments in three units, with times of day and days: around 1970, in leap years, at the ends of ISO years.
fn stamps() -> RecordBatch {
    let moments = "1970-01-01T00:00:00 1969-12-31T23:59:59 2000-02-29T12:34:56.789012 - \
        2024-12-31T23:59:59.999999 1900-01-01T00:00:00 2024-03-31T01:30:00 2038-01-19T03:14:08 \
        2024-12-30T00:00:00.5 2021-01-03T10:00:00";
    let times = "00:00:00 23:59:59.999999 12:00:00 - 06:30:15.25 12:00:00 00:00:00.000001 18:45:00 - 09:05:07";
    let days = "1970-01-01 1969-12-31 2000-02-29 - 2024-12-31 1900-01-01 2024-03-31 2038-01-19 \
        2024-12-30 2021-01-03";
    let of = |unit| words_as(moments, &DataType::Timestamp(unit, None));
    batch(vec![
        ("s_id", Arc::new(Int32Array::from_iter_values(1..11))),
        ("ts?", of(TimeUnit::Microsecond)),
        ("ts_s?", of(TimeUnit::Second)),
        ("ts_ms?", of(TimeUnit::Millisecond)),
        ("tod?", words_as(times, &DataType::Time64(TimeUnit::Microsecond))),
        ("d?", words_as(days, &DataType::Date32)),
    ])
}

/// Texts of several alphabets, with spaces, quotes and the wildcards of LIKE.
fn words() -> RecordBatch {
    let words = vec![
        Some("straße"),
        Some("STRASSE"),
        Some("naïve"),
        Some("Ångström"),
        Some("日本語"),
        Some("日本"),
        Some("🙂 smile"),
        Some(""),
        Some(" padded "),
        Some("it's"),
        Some("50%_off"),
        Some("back\\slash"),
        Some("aaa"),
        Some("abcabc"),
        Some("ABC"),
        None,
        Some("a"),
        Some("zebra"),
        // An e and an accent, which are not the letter é.
        Some("e\u{301}te"),
        Some("x=1;y=22"),
    ];
    let tags = vec![
        Some("de"),
        Some("DE"),
        Some("fr"),
        Some("sv"),
        Some("ja"),
        Some("ja"),
        Some("emoji"),
        Some(""),
        None,
        Some("en"),
        Some("code"),
        Some("code"),
        Some("rep"),
        Some("rep"),
        Some("up"),
        None,
        Some("rep"),
        Some("en"),
        Some("fr"),
        Some("code"),
    ];
    batch(vec![
        ("w_id", Arc::new(Int32Array::from_iter_values(1..21))),
        ("w?", Arc::new(StringArray::from(words))),
        ("tag?", dictionary(tags)),
    ])
}

/// Numbers of the types that [`types`] lacks, and pairs of them for operators.
fn nums() -> RecordBatch {
    let column = |values, data_type| words_as(values, &data_type);
    batch(vec![
        ("n_id", Arc::new(Int32Array::from_iter_values(1..13))),
        ("a?", column("7 -7 7 -7 0 1 - 2147483647 -2147483648 12 - 100", DataType::Int32)),
        ("b?", column("2 2 -2 -2 5 - 3 1 -1 5 - 7", DataType::Int32)),
        ("r?", column("0.5 -0.25 1.5 - 3 100 -2.5 0 16777216 2.5 0.125 -", DataType::Float32)),
        ("x?", column("1 -1 2.5 0.1 - 1e10 -2.5 0.5 1e-5 3.75 -0.75 100", DataType::Float64)),
        (
            "m?",
            column(
                "1.00 -1.00 999.99 -999.99 0.05 - 0.00 12.34 -12.35 2.50 7.77 100.00",
                DataType::Decimal128(5, 2),
            ),
        ),
        (
            "q?",
            column(
                "1.2345 -1.2345 99999999999999.9999 0.0001 - 2.5 -2.5 3.3333 1000000 0.5 -0.5 12",
                DataType::Decimal128(18, 4),
            ),
        ),
        (
            "v?",
            column(
                "1.0000000001 -1.0000000001 1234567890123456789012345678.0123456789 0 - \
                 3.1415926535 2.7182818284 -0.5 1000000 0.0000000001 42 7",
                DataType::Decimal128(38, 10),
            ),
        ),
        ("u16?", column("0 65535 1 2 - 300 7 7 9 10 11 12", DataType::UInt16)),
        ("u32?", column("4294967295 0 5 6 7 - 8 9 10 11 12 13", DataType::UInt32)),
    ])
}

/// Two tables of the same two keys, with duplicates and NULLs in either and in both.
fn pair(keys: [&str; 2], value: &str, values: &str) -> RecordBatch {
    batch(vec![
        ("k1?", words_as(keys[0], &DataType::Int32)),
        ("k2?", dictionary_of(keys[1])),
        (value, words_as(values, &DataType::Int32)),
    ])
}

fn lhs() -> RecordBatch {
    pair(["1 1 1 2 2 - - 3 5", "a a b a - a - c e"], "lv", "10 11 12 20 21 30 31 40 50")
}

fn rhs() -> RecordBatch {
    pair(["1 1 2 2 - - 4 5 5", "a b a - a - d e e"], "rv", "100 101 200 201 300 301 400 500 501")
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
    write(&file("people"), &people(), 5, true);
    write(&file("orders"), &orders(), 7, true);
    write(&file("stamps"), &stamps(), 4, true);
    write(&file("words"), &words(), 6, true);
    write(&file("nums"), &nums(), 5, true);
    write(&file("lhs"), &lhs(), 4, true);
    write(&file("rhs"), &rhs(), 3, true);
    write(&file("raw"), &raw(), 10, true);
    write(&file("nested"), &nested(), 10, true);
    let empty = RecordBatch::new_empty(Arc::new(Schema::clone(&types().schema())));
    write(&file("empty"), &empty, 10, true);
    write_many(&folder.join("many"));
    write_partly(&folder.join("partly"));
    session.register_path(folder).unwrap();
}
