//! TPC-DS as its users see it: the files through [`headrace_suites::generate`].
#![allow(clippy::unwrap_used)]

use std::{
    collections::HashSet,
    fs::{self, File},
    path::Path,
    sync::OnceLock,
};

use arrow_array::{
    Array, ArrayRef, RecordBatch,
    cast::AsArray,
    types::{Date32Type, Decimal32Type, Int32Type, Int64Type},
};
use arrow_ipc::reader::FileReader;
use arrow_schema::DataType;
use headrace_suites::{GenerateOptions, Suite, SuiteError, Summary, generate};
use tempfile::{TempDir, tempdir};

/// The tables of scale 0.01, which several tests look at.
fn small() -> &'static (TempDir, Summary) {
    static SMALL: OnceLock<(TempDir, Summary)> = OnceLock::new();
    SMALL.get_or_init(|| {
        let dir = tempdir().unwrap();
        let summary = generate(&GenerateOptions::new(Suite::Tpcds, 0.01, dir.path())).unwrap();
        (dir, summary)
    })
}

/// The record batches of a file through Arrow's own reader.
fn read(path: &Path) -> Vec<RecordBatch> {
    FileReader::try_new(File::open(path).unwrap(), None).unwrap().map(Result::unwrap).collect()
}

/// A column of a small table; all but customer_demographics are one record batch.
fn column(table: &str, name: &str) -> ArrayRef {
    let batches = read(&small().0.path().join(format!("{table}.arrow")));
    let parts: Vec<_> =
        batches.iter().map(|batch| batch.column_by_name(name).unwrap().clone()).collect();
    assert_eq!(parts.len(), 1, "{table}");
    parts[0].clone()
}

/// The values of a column of 32-bit integers that has them.
fn numbers(table: &str, name: &str) -> Vec<i32> {
    column(table, name).as_primitive::<Int32Type>().iter().flatten().collect()
}

/// How many of 1,000 values are NULL.
fn nulls_per_mille(table: &str, name: &str) -> usize {
    let column = column(table, name);
    column.null_count() * 1_000 / column.len()
}

/// The sum of a decimal column in hundredths, over all record batches of files.
fn sum(files: &[&Path], column: &str) -> i128 {
    let batches = files.iter().flat_map(|file| read(file));
    let of = |batch: RecordBatch| batch.column_by_name(column).unwrap().clone();
    batches
        .flat_map(|batch| of(batch).as_primitive::<Decimal32Type>().iter().collect::<Vec<_>>())
        .flatten()
        .map(i128::from)
        .sum()
}

fn rows(summary: &Summary) -> Vec<(&str, u64)> {
    summary.manifest.tables.iter().map(|table| (table.name.as_str(), table.rows)).collect()
}

#[test]
fn data_of_this_version() {
    let (dir, summary) = small();
    let expected = [
        ("call_center", 2),
        ("catalog_page", 11_718),
        ("customer", 1_000),
        ("customer_address", 1_000),
        ("customer_demographics", 1_920_800),
        ("date_dim", 73_049),
        ("household_demographics", 7_200),
        ("income_band", 20),
        ("item", 2_000),
        ("promotion", 3),
        ("reason", 75),
        ("ship_mode", 20),
        ("store", 2),
        ("time_dim", 86_400),
        ("warehouse", 1),
        ("web_page", 2),
        ("web_site", 2),
        ("inventory", 261_261),
        ("web_returns", 1_152),
        ("web_sales", 11_876),
        ("catalog_returns", 8_923),
        ("catalog_sales", 89_807),
        ("store_returns", 11_925),
        ("store_sales", 120_527),
    ];
    assert_eq!(rows(summary), expected);
    let sums = [
        ("store_sales", "ss_net_paid", 19_816_089_525),
        ("store_returns", "sr_return_amt", 1_111_945_124),
        ("catalog_sales", "cs_net_paid", 20_606_313_030),
        ("catalog_returns", "cr_return_amount", 1_149_571_392),
        ("web_sales", "ws_net_paid", 2_709_693_416),
        ("web_returns", "wr_return_amt", 136_325_054),
        ("item", "i_current_price", 1_932_300),
    ];
    let path = |name: &str| dir.path().join(format!("{name}.arrow"));
    let found = sums.map(|(name, column, _)| (name, column, sum(&[&path(name)], column)));
    assert_eq!((Suite::Tpcds.data_version(), found), (1, sums));
    // What the specification's generator says of its first day, 2 January 1900.
    assert_eq!(column("date_dim", "d_date_sk").as_primitive::<Int32Type>().value(0), 2_415_022);
    assert_eq!(column("date_dim", "d_date").as_primitive::<Date32Type>().value(0), -25_566);
    assert_eq!(column("date_dim", "d_date_id").as_string::<i32>().value(0), "AAAAAAAAOKJNECAA");
}

#[test]
fn columns_have_the_types_of_the_description() {
    let (dir, summary) = small();
    for (table, _) in rows(summary) {
        let file = File::open(dir.path().join(format!("{table}.arrow"))).unwrap();
        for field in FileReader::try_new(file, None).unwrap().schema().fields() {
            let name = field.name();
            match field.data_type() {
                DataType::Int32 => {
                    assert!(!name.ends_with("_ticket_number") && !name.ends_with("_order_number"));
                }
                DataType::Int64 => {
                    assert!(name.ends_with("_ticket_number") || name.ends_with("_order_number"));
                }
                DataType::Decimal32(7 | 5, 2) | DataType::Decimal64(15, 2) => {
                    assert!(field.is_nullable(), "{name}");
                }
                DataType::Date32 => assert!(name.ends_with("_date"), "{name}"),
                DataType::Utf8 => assert!(!name.ends_with("_sk"), "{name}"),
                other => panic!("{table}.{name}: {other}"),
            }
        }
    }
}

#[test]
fn bytes_do_not_depend_on_threads_nor_rows_on_files() {
    // Of sales two pieces, and record batches that do not end where pieces do.
    let several = |out: &Path, threads| GenerateOptions {
        rows_per_batch: 30_000,
        threads,
        ..GenerateOptions::new(Suite::Tpcds, 0.001, out)
    };
    let [one, many, split] = [(); 3].map(|()| tempdir().unwrap());
    let summary = generate(&several(one.path(), 1)).unwrap();
    generate(&several(many.path(), 3)).unwrap();
    for name in Suite::Tpcds.tables() {
        let bytes = |dir: &Path| fs::read(dir.join(format!("{name}.arrow"))).unwrap();
        assert!(bytes(one.path()) == bytes(many.path()), "{name}");
    }
    let in_files = GenerateOptions { fact_files: 2, ..several(split.path(), 2) };
    let in_files = generate(&in_files).unwrap();
    assert_eq!(rows(&in_files), rows(&summary));
    let files: Vec<_> = in_files.manifest.tables[23].files.iter().map(|file| &file.path).collect();
    assert_eq!(files, ["store_sales/part-00000.arrow", "store_sales/part-00001.arrow"]);
    let parts: Vec<_> = files.iter().map(|file| split.path().join(file)).collect();
    let parts: Vec<&Path> = parts.iter().map(|part| part.as_path()).collect();
    let whole = one.path().join("store_sales.arrow");
    assert!(read(&whole).len() > 3 && read(&whole)[0].num_rows() == 30_000);
    assert_eq!(sum(&parts, "ss_net_paid"), sum(&[&whole], "ss_net_paid"));
}

#[test]
fn returns_are_of_lines_that_were_sold() {
    let lines = |table: &str, order: &str, item: &str| -> Vec<(i64, i32)> {
        let (order, item) = (column(table, order), column(table, item));
        let orders = order.as_primitive::<Int64Type>().values().iter().copied();
        orders.zip(item.as_primitive::<Int32Type>().values().iter().copied()).collect()
    };
    for (sales, returns, [sold_order, sold_item], [order, item]) in [
        (
            "store_sales",
            "store_returns",
            ["ss_ticket_number", "ss_item_sk"],
            ["sr_ticket_number", "sr_item_sk"],
        ),
        (
            "catalog_sales",
            "catalog_returns",
            ["cs_order_number", "cs_item_sk"],
            ["cr_order_number", "cr_item_sk"],
        ),
        (
            "web_sales",
            "web_returns",
            ["ws_order_number", "ws_item_sk"],
            ["wr_order_number", "wr_item_sk"],
        ),
    ] {
        let sold = lines(sales, sold_order, sold_item);
        let unique: HashSet<_> = sold.iter().copied().collect();
        assert_eq!(unique.len(), sold.len(), "{sales}");
        let returned = lines(returns, order, item);
        assert!(returned.iter().all(|line| unique.contains(line)), "{returns}");
        let per_mille = returned.len() * 1_000 / sold.len();
        assert!((90..110).contains(&per_mille), "{returns}: {per_mille}");
    }
}

#[test]
fn keys_find_their_rows_or_are_null() {
    for (table, key, dimension, dimension_key) in [
        ("store_sales", "ss_sold_date_sk", "date_dim", "d_date_sk"),
        ("store_sales", "ss_sold_time_sk", "time_dim", "t_time_sk"),
        ("store_sales", "ss_customer_sk", "customer", "c_customer_sk"),
        ("store_sales", "ss_addr_sk", "customer_address", "ca_address_sk"),
        ("store_sales", "ss_hdemo_sk", "household_demographics", "hd_demo_sk"),
        ("store_sales", "ss_store_sk", "store", "s_store_sk"),
        ("store_sales", "ss_promo_sk", "promotion", "p_promo_sk"),
        ("catalog_sales", "cs_ship_date_sk", "date_dim", "d_date_sk"),
        ("catalog_sales", "cs_catalog_page_sk", "catalog_page", "cp_catalog_page_sk"),
        ("catalog_sales", "cs_call_center_sk", "call_center", "cc_call_center_sk"),
        ("catalog_sales", "cs_warehouse_sk", "warehouse", "w_warehouse_sk"),
        ("catalog_sales", "cs_ship_mode_sk", "ship_mode", "sm_ship_mode_sk"),
        ("web_sales", "ws_web_page_sk", "web_page", "wp_web_page_sk"),
        ("web_sales", "ws_web_site_sk", "web_site", "web_site_sk"),
        ("web_returns", "wr_reason_sk", "reason", "r_reason_sk"),
    ] {
        let known: HashSet<_> = numbers(dimension, dimension_key).into_iter().collect();
        assert!(numbers(table, key).iter().all(|number| known.contains(number)), "{key}");
        let nulls = nulls_per_mille(table, key);
        assert!(
            (if table == "store_sales" { 35..55 } else { 0..60 }).contains(&nulls),
            "{key}: {nulls}"
        );
    }
    for (table, item) in [("store_sales", "ss_item_sk"), ("inventory", "inv_item_sk")] {
        assert_eq!(nulls_per_mille(table, item), 0);
        assert!(numbers(table, item).iter().all(|item| (1..=2_000).contains(item)), "{table}");
    }
}

#[test]
fn sales_are_of_five_years_and_stock_is_counted_weekly() {
    // From 1998 to the spring of 2003, as numbers of days: few catalog orders a day take a little longer.
    let years = 2_450_815..=2_452_750;
    for (table, day) in [
        ("store_sales", "ss_sold_date_sk"),
        ("catalog_sales", "cs_sold_date_sk"),
        ("web_sales", "ws_sold_date_sk"),
    ] {
        assert!(numbers(table, day).iter().all(|day| years.contains(day)), "{table}");
    }
    let weeks: HashSet<_> = numbers("inventory", "inv_date_sk").into_iter().collect();
    assert_eq!(weeks.len(), 261);
    assert_eq!(weeks.iter().map(|day| day % 7).collect::<HashSet<_>>().len(), 1);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_written() {
    let dir = tempdir().unwrap();
    for scale in [f64::NAN, 0.0, -1.0, 20_000.0] {
        let out = dir.path().join("out");
        let error = generate(&GenerateOptions::new(Suite::Tpcds, scale, &out)).unwrap_err();
        assert!(matches!(error, SuiteError::Scale { .. }), "{error}");
        assert!(!out.exists());
    }
}
