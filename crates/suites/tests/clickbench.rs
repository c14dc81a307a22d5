//! ClickBench as its users see it: the file through [`headrace_suites::generate`].
#![allow(clippy::unwrap_used)]

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    path::Path,
};

use arrow_array::{
    Array, RecordBatch, StringArray,
    cast::AsArray,
    types::{
        ArrowPrimitiveType, Date32Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    },
};
use arrow_ipc::reader::FileReader;
use arrow_schema::{DataType, TimeUnit};
use headrace_suites::{GenerateOptions, Suite, generate};
use tempfile::tempdir;

fn options(scale: f64, out: &Path) -> GenerateOptions<'static> {
    GenerateOptions::new(Suite::ClickBench, scale, out)
}

/// The only record batch of a table through Arrow's own reader.
fn hits(scale: f64) -> RecordBatch {
    let dir = tempdir().unwrap();
    generate(&options(scale, dir.path())).unwrap();
    let mut batches = read(&dir.path().join("hits.arrow"));
    assert_eq!(batches.len(), 1);
    batches.remove(0)
}

fn read(path: &Path) -> Vec<RecordBatch> {
    FileReader::try_new(File::open(path).unwrap(), None).unwrap().map(Result::unwrap).collect()
}

fn numbers<T: ArrowPrimitiveType<Native: Into<i64>>>(hits: &RecordBatch, name: &str) -> Vec<i64> {
    let column = hits.column_by_name(name).unwrap().as_primitive::<T>();
    assert_eq!(column.null_count(), 0);
    column.values().iter().map(|&value| value.into()).collect()
}

fn texts(hits: &RecordBatch, name: &str) -> Vec<String> {
    let column = arrow_cast::cast(hits.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
    let column: &StringArray = column.as_string();
    column.iter().map(|text| text.unwrap().to_string()).collect()
}

/// How many of 1,000 rows.
fn per_mille<T>(values: &[T], is_one: impl Fn(&T) -> bool) -> usize {
    values.iter().filter(|value| is_one(value)).count() * 1_000 / values.len()
}

/// FNV-1a (Fowler, Noll, Vo) over the columns' bytes, 64 bits.
fn checksum(hits: &RecordBatch) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for (field, column) in hits.schema().fields().iter().zip(hits.columns()) {
        add(field.name().as_bytes());
        match field.data_type() {
            DataType::Utf8 | DataType::Dictionary(..) => {
                texts(hits, field.name()).iter().for_each(|text| add(text.as_bytes()));
            }
            _ => column.to_data().buffers().iter().for_each(|buffer| add(buffer.as_slice())),
        }
    }
    sum
}

#[test]
fn data_of_this_version() {
    let hits = hits(0.01);
    assert_eq!((hits.num_rows(), hits.num_columns()), (10_000, 105));
    let found = format!("{:016x}", checksum(&hits));
    assert_eq!((Suite::ClickBench.data_version(), found.as_str()), (1, "10ba032153417a1c"));
    let first = |name| texts(&hits, name)[1].clone();
    let found = [first("URL"), first("Title"), first("Referer")];
    assert_eq!(
        found,
        [
            "http://rekamir.example.org/shop/104.html",
            "своими скачать шины квартиры цена - rekamir",
            "http://rekamir.example.org/forum?id=18"
        ]
    );
    assert_eq!(numbers::<Int64Type>(&hits, "UserID")[1], 8_128_784_948_322_854_192);
}

#[test]
fn columns_have_the_published_types() {
    let hits = hits(0.001);
    let schema = hits.schema();
    let type_of = |name| schema.field_with_name(name).unwrap().data_type().clone();
    assert_eq!(type_of("WatchID"), DataType::Int64);
    assert_eq!(type_of("AdvEngineID"), DataType::Int16);
    assert_eq!(type_of("CLID"), DataType::Int32);
    assert_eq!(type_of("EventDate"), DataType::Date32);
    assert_eq!(type_of("URL"), DataType::Utf8);
    let mut counts = HashMap::new();
    for field in schema.fields() {
        assert!(!field.is_nullable());
        *counts.entry(field.data_type().clone()).or_insert(0) += 1;
    }
    let words = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let of = |data_type| counts.get(&data_type).copied().unwrap_or(0);
    // Published: 48 SMALLINT, 19 INTEGER, 6 BIGINT, 3 TIMESTAMP, 1 DATE and 28 texts.
    assert_eq!((of(DataType::Int16), of(DataType::Int32), of(DataType::Int64)), (48, 19, 6));
    assert_eq!((of(time), of(DataType::Date32), of(words), of(DataType::Utf8)), (3, 1, 20, 8));
}

#[test]
fn bytes_do_not_depend_on_threads_nor_rows_on_files() {
    let several = |out: &Path, threads| GenerateOptions {
        rows_per_batch: 10_000,
        threads,
        ..options(0.05, out)
    };
    let bytes = |threads| {
        let dir = tempdir().unwrap();
        generate(&several(dir.path(), threads)).unwrap();
        fs::read(dir.path().join("hits.arrow")).unwrap()
    };
    let one = bytes(1);
    assert!(one == bytes(3) && one == bytes(2));
    let split = tempdir().unwrap();
    let summary = generate(&GenerateOptions { fact_files: 2, ..several(split.path(), 2) }).unwrap();
    assert_eq!(summary.rows, 50_000);
    let files = &summary.manifest.tables[0].files;
    let parts = files.iter().flat_map(|file| read(&split.path().join(&file.path)));
    let parts: Vec<_> = parts.flat_map(|batch| numbers::<Int64Type>(&batch, "WatchID")).collect();
    assert_eq!((files.len(), parts), (2, numbers::<Int64Type>(&hits(0.05), "WatchID")));
}

#[test]
fn another_seed_gives_other_rows() {
    let dir = tempdir().unwrap();
    generate(&GenerateOptions { seed: 43, ..options(0.01, dir.path()) }).unwrap();
    let other = read(&dir.path().join("hits.arrow")).remove(0);
    assert_ne!(texts(&other, "URL"), texts(&hits(0.01), "URL"));
}

#[test]
fn numbers_lie_where_they_should() {
    let hits = hits(0.05);
    let watches: HashSet<_> = numbers::<Int64Type>(&hits, "WatchID").into_iter().collect();
    assert_eq!(watches.len(), hits.num_rows());
    let dates = numbers::<Date32Type>(&hits, "EventDate");
    let times = numbers::<TimestampMicrosecondType>(&hits, "EventTime");
    // 2013-07-01 to 2013-07-31.
    assert_eq!((dates.iter().min(), dates.iter().max()), (Some(&15_887), Some(&15_917)));
    assert!(dates.iter().zip(&times).all(|(day, time)| time.div_euclid(86_400_000_000) == *day));
    assert!(times.iter().all(|time| time % 1_000_000 == 0));
    // Whoever subtracts 3 stays within 32 bits.
    let ips = numbers::<Int32Type>(&hits, "ClientIP");
    assert!(ips.iter().all(|&ip| ip >= i64::from(i32::MIN) + 3));
    assert!(numbers::<Int64Type>(&hits, "UserID").contains(&435_090_932_899_640_449));
    let small = |name| numbers::<Int16Type>(&hits, name);
    assert!(small("ResolutionWidth").iter().all(|width| (0..=2_560).contains(width)));
    let (screens, windows) = (small("ResolutionHeight"), small("WindowClientHeight"));
    assert!(screens.iter().zip(&windows).all(|(screen, window)| (0..=*screen).contains(window)));
    let sources: HashSet<_> = small("TraficSourceID").into_iter().collect();
    assert_eq!(sources, HashSet::from([-1, 0, 1, 2, 3, 4, 5, 6, 8]));
}

#[test]
fn shares_are_those_of_the_description() {
    let hits = hits(0.05);
    let text = |name, is_one: fn(&String) -> bool| per_mille(&texts(&hits, name), is_one);
    assert!((120..145).contains(&text("SearchPhrase", |phrase| !phrase.is_empty())));
    assert!((20..100).contains(&text("MobilePhoneModel", |model| !model.is_empty())));
    assert!((15..50).contains(&text("URL", |url| url.contains("google"))));
    assert!((5..20).contains(&text("URL", |url| url.contains(".google."))));
    assert!((15..50).contains(&text("Title", |title| title.contains("Google"))));
    assert!((20..80).contains(&text("Title", String::is_empty)));
    let small =
        |name, is_one: fn(&i64) -> bool| per_mille(&numbers::<Int16Type>(&hits, name), is_one);
    assert!((4..12).contains(&small("AdvEngineID", |&engine| engine != 0)));
    assert!((115..135).contains(&small("IsRefresh", |&is| is == 1)));
    assert!((90..110).contains(&small("DontCountHits", |&is| is == 1)));
    let counters = numbers::<Int32Type>(&hits, "CounterID");
    assert!((85..115).contains(&per_mille(&counters, |&counter| counter == 62)));
    assert!(counters.iter().collect::<HashSet<_>>().len() > 900);
    let mut users = HashMap::new();
    for user in numbers::<Int64Type>(&hits, "UserID") {
        *users.entry(user).or_insert(0_usize) += 1;
    }
    // Of 8,433 users, the first has a share of 8,433^(-1/2).
    assert!((400..700).contains(users.values().max().unwrap()));
    assert!((4_000..8_433).contains(&users.len()));
}

#[test]
fn hashes_are_those_of_their_texts() {
    let hits = hits(0.05);
    let mut text_of = HashMap::new();
    let mut hash_of = HashMap::new();
    for (text, hash) in [("URL", "URLHash"), ("Referer", "RefererHash")] {
        for (text, hash) in texts(&hits, text).into_iter().zip(numbers::<Int64Type>(&hits, hash)) {
            assert_eq!(*text_of.entry(hash).or_insert_with(|| text.clone()), text);
            assert_eq!(*hash_of.entry(text).or_insert(hash), hash);
        }
    }
    assert_eq!(text_of[&2_868_770_270_353_813_622], "http://automir.example/");
    assert_eq!(text_of[&3_594_120_000_172_545_465], "http://automir.example/catalog/1.html");
}

#[test]
fn rows_of_a_user_agree() {
    let hits = hits(0.01);
    let users = numbers::<Int64Type>(&hits, "UserID");
    let regions = numbers::<Int32Type>(&hits, "RegionID");
    let phones = texts(&hits, "MobilePhoneModel");
    let mut known = HashMap::new();
    for ((user, region), phone) in users.into_iter().zip(regions).zip(phones) {
        let facts = (region, phone);
        assert_eq!(*known.entry(user).or_insert_with(|| facts.clone()), facts);
    }
}
