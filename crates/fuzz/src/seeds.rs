//! Inputs to begin with: files of every writer and type, texts of every kind, the statements of the SQL corpus.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{DataType, Field, Int8Type, Int32Type, Schema, TimeUnit};
use datafusion::arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use datafusion::arrow::ipc::{CompressionType, MetadataVersion};
use headrace_format::arrow::{ArrowWriter, WriterOptions, narrow_schema, packed_schema};

/// Of the SQL corpus.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../engine/tests/slt");

/// What separated values and JSON are made of.
pub const TEXT_WORDS: &[&str] = &[
    "\n", "\r\n", "\r", ",", ";", "\t", "|", "\"", "\"\"", "\",\"", "\\\"", "{", "}", "[", "]",
    "},{", ":", "null", "true", "{\"a\":", "\u{feff}", "2024-02-29", "2024-02-29T23:59:59Z",
    "1e400", "-0.0", "9223372036854775808", "0x1F", "NaN", "é", "\\u0000", "\\ud800",
];

/// Words of SQL, and names of the tables' columns.
pub const SQL_WORDS: &[&str] = &[
    "select",
    "distinct",
    " from ",
    " where ",
    " group by ",
    " having ",
    " order by ",
    " desc",
    " nulls first",
    " limit 3",
    " offset 1",
    " join ",
    " left join ",
    " right join ",
    " full join ",
    " cross join ",
    " natural join ",
    " on ",
    " using (k1)",
    " union all ",
    " union ",
    " except ",
    " intersect ",
    " in (",
    " not in (",
    " exists (",
    " any (",
    " all (",
    " between ",
    " and ",
    " or ",
    " not ",
    " is null",
    " is not null",
    " is distinct from ",
    " is true",
    " like '%a_'",
    " ilike ",
    " similar to ",
    " case when ",
    " then ",
    " else ",
    " end",
    " cast(",
    "::int",
    "::bigint",
    "::text",
    "::date",
    "::decimal(10,2)",
    "::double",
    "::boolean",
    "::timestamp",
    "try_cast(",
    " as ",
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2147483647",
    "-9223372036854775808",
    "1.5",
    "1e308",
    "''",
    "'a'",
    "'2024-02-29'",
    "date '2024-02-29'",
    "interval '1 month'",
    "timestamp '2024-02-29 12:00:00'",
    "+",
    "-",
    "*",
    "%",
    "||",
    "=",
    "<>",
    "<",
    ">=",
    "count(*)",
    "count(distinct ",
    "sum(",
    "avg(",
    "min(",
    "max(",
    "stddev(",
    "bool_and(",
    "median(",
    "coalesce(",
    "nullif(",
    "greatest(",
    "abs(",
    "round(",
    "floor(",
    "upper(",
    "length(",
    "substr(",
    "concat(",
    "extract(year from ",
    "date_trunc('month', ",
    "strpos(",
    "replace(",
    "trim(",
    ") filter (where ",
    " over (",
    "partition by ",
    "grouping sets ((",
    "rollup (",
    "cube (",
    "with x as (",
    " lateral (",
    "(",
    ")",
    ",",
    ";",
    ".",
    "*",
    "\"",
    "types",
    "fact f",
    "dim d",
    "area",
    "twice",
    "people p",
    "orders o",
    "stamps",
    "words",
    "nums",
    "lhs",
    "rhs",
    "floats",
    "limits",
    "means",
    "empty",
    "many",
    "partly",
    "nested",
    "id",
    "tiny",
    "small",
    "big",
    "huge",
    "real",
    "price",
    "day",
    "flag",
    "text",
    "kind",
    "f.f_id",
    "f.f_dim",
    "f.f_value",
    "f.f_color",
    "d.d_id",
    "d.d_name",
    "d.d_rank",
    "d.d_area",
    "a_id",
    "t_id",
    "p_id",
    "p_boss",
    "p_team",
    "p_salary",
    "p_score",
    "o_person",
    "o_amount",
    "o_at",
    "o_qty",
    "o_status",
    "w",
    "tag",
    "n_id",
    "a",
    "b",
    "m",
    "q",
    "v",
    "k1",
    "k2",
    "lv",
    "rv",
];

fn columns(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let some = |every: usize| move |i: &usize| (!i.is_multiple_of(every)).then_some(*i as i64);
    let ints = || (0..rows).collect::<Vec<_>>();
    let numbers: Int64Array = ints().iter().map(some(4)).collect();
    let as_type = |data_type: DataType| {
        datafusion::arrow::compute::cast(&numbers, &data_type).expect("small numbers")
    };
    let texts = || ints().into_iter().map(|i| (i % 3 > 0).then(|| "ab é".repeat(i % 5)));
    let codes = || ints().into_iter().map(|i| (i % 5 > 0).then(|| ["x", "w", "v"][i % 3]));
    vec![
        ("i8", as_type(DataType::Int8)),
        ("i16", as_type(DataType::Int16)),
        ("i32", as_type(DataType::Int32)),
        ("i64", as_type(DataType::Int64)),
        ("u8", as_type(DataType::UInt8)),
        ("u64", as_type(DataType::UInt64)),
        ("f32", as_type(DataType::Float32)),
        ("f64", as_type(DataType::Float64)),
        ("n", as_type(DataType::Decimal128(9, 2))),
        ("d", as_type(DataType::Int32)),
        ("ts", as_type(DataType::Timestamp(TimeUnit::Microsecond, None))),
        (
            "b",
            Arc::new(
                ints()
                    .into_iter()
                    .map(|i| (i % 7 > 0).then_some(i % 2 > 0))
                    .collect::<BooleanArray>(),
            ),
        ),
        ("t", Arc::new(texts().collect::<StringArray>())),
        ("tl", Arc::new(texts().collect::<LargeStringArray>())),
        ("k", Arc::new(codes().collect::<DictionaryArray<Int8Type>>())),
        ("k32", Arc::new(codes().collect::<DictionaryArray<Int32Type>>())),
    ]
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
}

/// What no pipeline reads.
fn nested() -> RecordBatch {
    let lists = || (0..6).map(|i| (i != 2).then(|| (0..i).map(Some).collect::<Vec<_>>()));
    let views: StringViewArray = [
        Some("short"),
        None,
        Some("one that is longer than twelve bytes"),
        Some(""),
        None,
        Some("x"),
    ]
    .into_iter()
    .collect();
    let fixed = |i: i32| (i != 1).then_some([Some(i), None]);
    let runs = RunArray::<Int32Type>::try_new(
        &Int32Array::from(vec![1, 4, 6]),
        &StringArray::from(vec!["r", "s", "t"]),
    );
    let bytes = FixedSizeBinaryArray::try_from_iter((0..6_u8).map(|i| [i, i + 1]));
    batch(vec![
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists()))),
        ("large", Arc::new(LargeListArray::from_iter_primitive::<Int32Type, _, _>(lists()))),
        (
            "fixed",
            Arc::new(FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
                (0..6).map(fixed),
                2,
            )),
        ),
        ("view", Arc::new(views)),
        ("runs", Arc::new(runs.expect("runs"))),
        ("null", Arc::new(NullArray::new(6))),
        ("uuid", Arc::new(bytes.expect("bytes of one width"))),
        (
            "bin",
            Arc::new(BinaryArray::from_opt_vec(vec![
                Some(b"a"),
                None,
                Some(b""),
                None,
                None,
                None,
            ])),
        ),
        ("last", Arc::new(Int32Array::from_iter_values(0..6))),
    ])
}

fn ours(batch: &RecordBatch, rows_per_batch: usize) -> Vec<u8> {
    ours_as(&batch.schema(), batch, rows_per_batch)
}

fn ours_as(schema: &Schema, batch: &RecordBatch, rows_per_batch: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.arrow");
    let options = WriterOptions { rows_per_batch, ..WriterOptions::default() };
    let mut writer = ArrowWriter::create(&path, schema, options).expect("a writer");
    writer.write(batch).and_then(|()| writer.finish()).expect("a file");
    std::fs::read(&path).expect("the file")
}

fn foreign(batch: &RecordBatch, options: IpcWriteOptions) -> Vec<u8> {
    let mut writer =
        FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).expect("a writer");
    let (first, second) =
        (batch.slice(0, batch.num_rows() / 2), batch.slice(0, batch.num_rows() / 3));
    writer.write(&first).and_then(|()| writer.write(&second)).expect("batches");
    writer.finish().and_then(|()| writer.into_inner()).expect("a file")
}

fn packed(codec: CompressionType) -> IpcWriteOptions {
    IpcWriteOptions::default().try_with_compression(Some(codec)).expect("a known codec")
}

/// Files of our writer, with statistics, and of the Arrow library's.
pub fn arrow_files() -> Vec<(String, Vec<u8>)> {
    let (all, nested) = (batch(columns(24)), nested());
    let mut files: Vec<(String, Vec<u8>)> = columns(40)
        .into_iter()
        .map(|(name, array)| (format!("ours-{name}"), ours(&batch(vec![(name, array)]), 16)))
        .collect();
    for (number, column) in nested.columns().iter().enumerate() {
        let one = batch(vec![("c", Arc::clone(column))]);
        files.push((format!("nested-{number}"), foreign(&one, IpcWriteOptions::default())));
    }
    let small = |names: &[&str]| {
        batch(columns(20).into_iter().filter(|(n, _)| names.contains(n)).collect())
    };
    let (pair, texts) = (small(&["i32", "k"]), small(&["t", "i64", "b"]));
    let wide = small(&["i64", "n"]);
    let bounds = |_: &Field| Some(-99_999..=99_999);
    let narrow = narrow_schema(&wide.schema(), bounds);
    let old = IpcWriteOptions::try_new(8, true, MetadataVersion::V4).expect("an old version");
    let more = [
        ("ours-pair", ours(&pair, 8)),
        ("ours-texts", ours(&texts, 1000)),
        ("ours-narrow", ours_as(&narrow, &wide, 8)),
        ("ours-packed", ours_as(&packed_schema(&wide.schema(), bounds), &wide, 8)),
        ("ours-all", ours(&all, 10)),
        ("ours-empty", ours(&all.slice(0, 0), 10)),
        ("ours-nothing", ours(&RecordBatch::new_empty(Arc::new(Schema::empty())), 10)),
        ("foreign-pair", foreign(&pair, IpcWriteOptions::default())),
        ("foreign-old", foreign(&pair, old)),
        ("foreign-all", foreign(&all, IpcWriteOptions::default())),
        ("foreign-nested", foreign(&nested, IpcWriteOptions::default())),
        ("lz4-pair", foreign(&small(&["i32", "t"]), packed(CompressionType::LZ4_FRAME))),
        ("zstd-pair", foreign(&small(&["i32", "k"]), packed(CompressionType::ZSTD))),
        ("zstd-all", foreign(&all, packed(CompressionType::ZSTD))),
        // Together they would be more than 64 bits count.
        (
            "zstd-lies",
            lying(foreign(&equal_numbers(200), packed(CompressionType::ZSTD)), 800, i64::MAX),
        ),
    ];
    files.extend(more.map(|(name, bytes)| (name.to_string(), bytes)));
    files
}

fn stream(batch: &RecordBatch, options: IpcWriteOptions) -> Vec<u8> {
    let writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options);
    let mut writer = writer.expect("a writer");
    writer.write(batch).and_then(|()| writer.finish()).expect("a batch");
    writer.into_inner().expect("a stream")
}

/// Bytes in which a number is another one, wherever it stands.
fn lying(mut bytes: Vec<u8>, truth: i64, lie: i64) -> Vec<u8> {
    let truth = truth.to_le_bytes();
    let places: Vec<usize> =
        (0..bytes.len() - 8).filter(|at| bytes[*at..*at + 8] == truth).collect();
    assert!(!places.is_empty(), "nothing to lie about");
    for at in places {
        bytes[at..at + 8].copy_from_slice(&lie.to_le_bytes());
    }
    bytes
}

/// Three columns of so many equal numbers of 8 bytes.
fn equal_numbers(values: usize) -> RecordBatch {
    let column = || Arc::new(Int64Array::from_value(7, values)) as ArrayRef;
    batch(vec![("a", column()), ("b", column()), ("c", column())])
}

/// Files that are read from front to back, behind their two bytes of options.
pub fn texts() -> Vec<(String, Vec<u8>)> {
    let csv = "a,b,c\n1,x,2024-01-01\n2,\"y, \"\"z\"\"\",\n,\"two\nlines\",2024-02-29\n";
    let kinds = "i,f,b,d,t,s\r\n1,1.5,true,2024-01-01,2024-01-01T10:00:00,é\r\n-9,1e10,false,1969-12-31,1969-12-31 23:59:59.5,\r\n";
    let named = "a;a;;\"b c\"\n1;2;3;4\n5;6;7;8\n";
    let tsv = "a\tb\n1\t\"x\ty\"\n2\tz\n";
    let piped = "a|b\n1|2\n";
    let quotes = "a,b\nx\"y,\"z\"w\n\"p\"\"\",\"\n,\"\n";
    let returns = "a,b\r1,\"x\ny\"\r2,z\r";
    let marked = "\u{feff}a,b\n1,2\n";
    let lines = "{\"a\":1,\"b\":\"x\"}\n{\"a\":null,\"c\":[1,2]}\n{\"b\":\"\\u00e9 \\\" }\",\"d\":{\"e\":1.5}}\n";
    let array = "[{\"a\": 1,\n \"b\": \"},\\\"{\"}, {\"a\": 2.5}\n,{\"b\": null}]\n";
    let values = "{\"a\": [1,\n 2], \"b\": {\"c\": []}}\n{\"a\": [],\r\n \"b\": {}}";
    let texts = [
        ("csv", 0, csv),
        ("kinds", 0, kinds),
        ("named", 0, named),
        ("tsv", 1, tsv),
        ("piped", 0, piped),
        ("quotes", 0, quotes),
        ("returns", 0, returns),
        ("marked", 0, marked),
        ("array", 2, array),
        ("values", 2, values),
        ("lines", 3, lines),
        ("json-lines", 2, lines),
        ("csv-gz", 8, csv),
        ("csv-zst", 16, csv),
        ("tsv-gz", 9, tsv),
        ("array-zst", 18, array),
        ("lines-gz", 11, lines),
    ];
    let with = |options: u8, before: u8, text: &[u8]| [&[options, before], text].concat();
    let mut inputs: Vec<_> = texts
        .iter()
        .map(|(name, options, text)| {
            (name.to_string(), with(*options, (text.len() / 2) as u8, text.as_bytes()))
        })
        .collect();
    let whole = batch(columns(12));
    let plain = IpcWriteOptions::default;
    inputs.push(("stream".into(), with(4, 0, &stream(&whole, plain()))));
    inputs.push(("stream-nested".into(), with(4, 0, &stream(&nested(), plain()))));
    for (name, codec) in [("lz4", CompressionType::LZ4_FRAME), ("zstd", CompressionType::ZSTD)] {
        inputs.push((format!("stream-{name}"), with(4, 0, &stream(&whole, packed(codec)))));
        for lie in [1 << 40, i64::MAX, -2] {
            let bytes = lying(stream(&equal_numbers(200), packed(codec)), 1600, lie);
            inputs.push((format!("stream-{name}-lies{lie}"), with(4, 0, &bytes)));
        }
    }
    for lie in [1 << 40, i64::MAX, -1] {
        let bytes = lying(stream(&equal_numbers(200), plain()), 4800, lie);
        inputs.push((format!("stream-lies{lie}"), with(4, 0, &bytes)));
    }
    inputs.push((
        "packed-zst".into(),
        with(32, 0, &zstd::encode_all(csv.as_bytes(), 1).unwrap_or_default()),
    ));
    inputs
}

/// Queries of the SQL corpus.
pub fn statements() -> Vec<(String, Vec<u8>)> {
    let mut scripts: Vec<_> = std::fs::read_dir(SCRIPTS)
        .expect("the SQL corpus")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "slt"))
        .collect();
    scripts.sort();
    scripts.iter().flat_map(|path| queries(path)).collect()
}

/// The lines between one that begins with `query` or `statement` and an empty one or the answer.
fn queries(script: &Path) -> Vec<(String, Vec<u8>)> {
    let text = std::fs::read_to_string(script).expect("a script");
    let name = script.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut lines = text.lines();
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("query") || line.starts_with("statement") {
            let sql = lines.by_ref().take_while(|line| !line.is_empty() && *line != "----");
            let sql = sql.collect::<Vec<_>>().join("\n");
            found.push((format!("{name}-{}", found.len()), sql.into_bytes()));
        }
    }
    found
}
