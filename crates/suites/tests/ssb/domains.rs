//! Value domains, keys, and what is constant within an order.

use std::collections::{BTreeSet, HashSet};

use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use headrace_suites::SuiteError;
use headrace_suites::ssb::{Generator, Table};

use crate::columns::{distinct, numbers, texts, whole};

const SCALES: [f64; 4] = [0.001, 0.01, 0.1, 2.5];

fn span(values: &[i32]) -> (i32, i32) {
    (*values.iter().min().unwrap(), *values.iter().max().unwrap())
}

#[test]
fn rows_by_scale() {
    let rows = |scale| {
        let data = Generator::new(scale, 1).unwrap();
        Table::ALL.map(|table| data.rows(table))
    };
    assert_eq!(rows(1.0), [2557, 30_000, 2_000, 200_000, 6_001_215]);
    assert_eq!(rows(4.0)[..4], [2557, 120_000, 8_000, 600_000]);
    assert_eq!(rows(0.01)[..4], [2557, 300, 20, 2_000]);
    // 4 lines an order on average; standard deviation 2.
    assert!((rows(0.01)[4] as f64 - 60_000.0).abs() < 5.0 * 2.0 * 15_000_f64.sqrt());
}

#[test]
fn no_column_has_nulls_and_types_are_the_documented_ones() {
    let data = Generator::new(0.001, 1).unwrap();
    for table in Table::ALL {
        let batch = whole(&data, table);
        assert_eq!(batch.schema(), data.schema(table));
        for (field, column) in data.schema(table).fields().iter().zip(batch.columns()) {
            assert_eq!(column.null_count(), 0);
            assert!(!field.is_nullable());
            match field.data_type() {
                DataType::Int32 | DataType::Utf8 => {}
                DataType::Dictionary(code, _) => {
                    let words = column.as_any_dictionary_len();
                    let narrow = **code == DataType::Int8;
                    assert!(narrow || **code == DataType::Int16, "{field}");
                    assert_eq!(narrow, words <= 100, "{field}: {words} words");
                }
                other => panic!("{field}: {other}"),
            }
        }
    }
    let columns = Table::ALL.map(|table| data.schema(table).fields().len());
    assert_eq!(columns, [17, 8, 7, 9, 17]);
}

trait DictionaryLen {
    fn as_any_dictionary_len(&self) -> usize;
}

impl DictionaryLen for arrow_array::ArrayRef {
    fn as_any_dictionary_len(&self) -> usize {
        use arrow_array::cast::AsArray;
        self.as_any_dictionary().values().len()
    }
}

#[test]
fn lineorder_keys_refer_to_rows_of_the_dimensions() {
    for scale in SCALES {
        let data = Generator::new(scale, 5).unwrap();
        let days: HashSet<i32> =
            numbers(&whole(&data, Table::Date), "d_datekey").iter().copied().collect();
        let lines = data.batch(Table::Lineorder, 0..data.rows(Table::Lineorder).min(2_000_000));
        let lines = lines.unwrap();
        for (column, table) in [
            ("lo_custkey", Table::Customer),
            ("lo_suppkey", Table::Supplier),
            ("lo_partkey", Table::Part),
        ] {
            let (first, last) = span(numbers(&lines, column));
            assert!(first >= 1 && last as u64 <= data.rows(table), "{column} {first}..={last}");
        }
        for column in ["lo_orderdate", "lo_commitdate"] {
            assert!(numbers(&lines, column).iter().all(|day| days.contains(day)), "{column}");
        }
        for (table, column) in [
            (Table::Customer, "c_custkey"),
            (Table::Supplier, "s_suppkey"),
            (Table::Part, "p_partkey"),
        ] {
            let batch = whole(&data, table);
            assert!(numbers(&batch, column).iter().copied().eq(1..=data.rows(table) as i32));
        }
    }
}

/// The rows of each order, as ranges.
fn orders(lines: &RecordBatch) -> Vec<std::ops::Range<usize>> {
    let keys = numbers(lines, "lo_orderkey");
    let mut orders = Vec::new();
    let mut start = 0;
    for row in 1..=keys.len() {
        if row == keys.len() || keys[row] != keys[start] {
            orders.push(start..row);
            start = row;
        }
    }
    orders
}

#[test]
fn order_attributes_are_constant_and_keys_ascend() {
    let data = Generator::new(0.05, 8).unwrap();
    let lines = whole(&data, Table::Lineorder);
    let orders = orders(&lines);
    assert_eq!(orders.len(), 75_000);
    let constant = ["lo_custkey", "lo_orderdate", "lo_ordtotalprice"];
    for column in constant.map(|column| numbers(&lines, column)) {
        for order in &orders {
            assert!(column[order.clone()].windows(2).all(|pair| pair[0] == pair[1]));
        }
    }
    for column in ["lo_orderpriority", "lo_shippriority"].map(|column| texts(&lines, column)) {
        for order in &orders {
            assert!(column[order.clone()].windows(2).all(|pair| pair[0] == pair[1]));
        }
    }
    let keys = numbers(&lines, "lo_orderkey");
    assert!(orders.windows(2).all(|pair| keys[pair[0].start] < keys[pair[1].start]));
    assert!(keys.iter().all(|key| key & 0b11000 == 0), "keys are sparse");
    let line_numbers = numbers(&lines, "lo_linenumber");
    let mut lengths = BTreeSet::new();
    for order in orders {
        lengths.insert(order.len());
        assert!(line_numbers[order.clone()].iter().copied().eq(1..=order.len() as i32));
    }
    assert_eq!(lengths, (1..=7).collect());
}

#[test]
fn money_follows_the_formulas() {
    let data = Generator::new(0.02, 9).unwrap();
    let lines = whole(&data, Table::Lineorder);
    let column = |name| numbers(&lines, name);
    let (parts, quantities) = (column("lo_partkey"), column("lo_quantity"));
    let (discounts, taxes) = (column("lo_discount"), column("lo_tax"));
    let (prices, revenues) = (column("lo_extendedprice"), column("lo_revenue"));
    let (costs, totals) = (column("lo_supplycost"), column("lo_ordtotalprice"));
    for row in 0..lines.num_rows() {
        let part = i64::from(parts[row]);
        let retail = 90_000 + (part / 10) % 20_001 + 100 * (part % 1000);
        let extended = i64::from(quantities[row]) * retail;
        assert_eq!(i64::from(prices[row]), extended);
        assert_eq!(i64::from(revenues[row]), extended * (100 - i64::from(discounts[row])) / 100);
        assert_eq!(i64::from(costs[row]), 6 * retail / 10);
    }
    for order in orders(&lines) {
        let total: i64 = order
            .clone()
            .map(|row| i64::from(revenues[row]) * (100 + i64::from(taxes[row])) / 100)
            .sum();
        assert_eq!(i64::from(totals[order.start]), total);
    }
}

#[test]
fn lineorder_values_fill_their_ranges() {
    let data = Generator::new(0.1, 10).unwrap();
    let lines = whole(&data, Table::Lineorder);
    for (column, range) in [
        ("lo_quantity", (1, 50)),
        ("lo_discount", (0, 10)),
        ("lo_tax", (0, 8)),
        ("lo_linenumber", (1, 7)),
        ("lo_orderdate", (19_920_101, 19_980_802)),
    ] {
        assert_eq!(span(numbers(&lines, column)), range, "{column}");
        let distinct: HashSet<_> = numbers(&lines, column).iter().collect();
        if column != "lo_orderdate" {
            assert_eq!(distinct.len() as i32, range.1 - range.0 + 1, "{column}");
        }
    }
    assert_eq!(distinct(&lines, "lo_shippriority").into_iter().collect::<Vec<_>>(), ["0"]);
    assert_eq!(distinct(&lines, "lo_orderpriority").len(), 5);
    assert_eq!(
        distinct(&lines, "lo_shipmode"),
        ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"].map(String::from).into()
    );
    let customers: HashSet<i32> = numbers(&lines, "lo_custkey").iter().copied().collect();
    assert!(customers.iter().all(|customer| customer % 3 != 0));
    assert_eq!(customers.len(), 2000, "two thirds of 3,000 customers have orders");
}

#[test]
fn commit_dates_lie_30_to_90_days_after_the_order() {
    let data = Generator::new(0.02, 10).unwrap();
    let dates = whole(&data, Table::Date);
    let days = numbers(&dates, "d_datekey");
    let day_number = |key: i32| days.binary_search(&key).unwrap();
    let lines = whole(&data, Table::Lineorder);
    let delays: BTreeSet<usize> = numbers(&lines, "lo_orderdate")
        .iter()
        .zip(numbers(&lines, "lo_commitdate"))
        .map(|(&order, &commit)| day_number(commit) - day_number(order))
        .collect();
    assert_eq!(delays, (30..=90).collect());
}

#[test]
fn places_nest() {
    let data = Generator::new(1.0, 3).unwrap();
    for (table, prefix) in [(Table::Customer, "c"), (Table::Supplier, "s")] {
        let batch = whole(&data, table);
        let column = |name: &str| texts(&batch, &format!("{prefix}_{name}"));
        let (cities, nations) = (column("city"), column("nation"));
        let (regions, phones) = (column("region"), column("phone"));
        let mut regions_of = BTreeSet::new();
        for row in 0..batch.num_rows() {
            assert_eq!(cities[row][..9], format!("{:<9.9}", nations[row]));
            assert!(cities[row].len() == 10 && cities[row].ends_with(|c: char| c.is_ascii_digit()));
            regions_of.insert((nations[row].clone(), regions[row].clone()));
            assert_eq!(phones[row].len(), 15);
        }
        assert_eq!(regions_of.len(), 25, "a nation lies in one region");
        assert_eq!(distinct(&batch, &format!("{prefix}_city")).len(), 250);
        for (nation, region) in [
            ("UNITED STATES", "AMERICA"),
            ("UNITED KINGDOM", "EUROPE"),
            ("CHINA", "ASIA"),
            ("EGYPT", "MIDDLE EAST"),
            ("KENYA", "AFRICA"),
        ] {
            assert!(regions_of.contains(&(nation.into(), region.into())));
        }
    }
}

#[test]
fn brands_nest_and_names_avoid_the_colour() {
    let data = Generator::new(1.0, 3).unwrap();
    let parts = whole(&data, Table::Part);
    let (mfgrs, categories) = (texts(&parts, "p_mfgr"), texts(&parts, "p_category"));
    let (brands, colors) = (texts(&parts, "p_brand1"), texts(&parts, "p_color"));
    let names = texts(&parts, "p_name");
    for row in 0..parts.num_rows() {
        assert!(categories[row].starts_with(&mfgrs[row]) && mfgrs[row].len() == 6);
        let number = brands[row].strip_prefix(&categories[row]).unwrap();
        assert!((1..=40).contains(&number.parse::<u32>().unwrap()));
        let words: Vec<&str> = names[row].split(' ').collect();
        assert!(words.len() == 2 && words[0] != words[1]);
        assert!(!words.contains(&colors[row].as_str()));
    }
    let counts = ["p_mfgr", "p_category", "p_brand1", "p_color", "p_type", "p_container"]
        .map(|column| distinct(&parts, column).len());
    assert_eq!(counts, [5, 25, 1000, 92, 150, 40]);
    assert_eq!(span(numbers(&parts, "p_size")), (1, 50));
}

#[test]
fn names_and_addresses() {
    let data = Generator::new(0.1, 3).unwrap();
    let customers = whole(&data, Table::Customer);
    assert_eq!(texts(&customers, "c_name")[41], "Customer#000000042");
    assert_eq!(texts(&whole(&data, Table::Supplier), "s_name")[0], "Supplier#000000001");
    let addresses = distinct(&customers, "c_address");
    assert!(addresses.iter().all(|address| (6..=24).contains(&address.len())));
    assert_eq!(addresses.len(), 3000, "addresses hardly repeat");
}

#[test]
fn the_calendar_is_right() {
    let data = Generator::new(0.001, 3).unwrap();
    let dates = whole(&data, Table::Date);
    let row = numbers(&dates, "d_datekey").iter().position(|&key| key == 19_960_229).unwrap();
    let text = |column: &str| texts(&dates, column)[row].clone();
    let number = |column: &str| numbers(&dates, column)[row];
    assert_eq!(text("d_date"), "February 29, 1996");
    assert_eq!(text("d_dayofweek"), "Thursday");
    assert_eq!(text("d_month"), "February");
    assert_eq!(text("d_yearmonth"), "Feb1996");
    assert_eq!(text("d_sellingseason"), "Winter");
    assert_eq!(number("d_year"), 1996);
    assert_eq!(number("d_yearmonthnum"), 199_602);
    assert_eq!(number("d_daynuminweek"), 5);
    assert_eq!(number("d_daynuminmonth"), 29);
    assert_eq!(number("d_daynuminyear"), 60);
    assert_eq!(number("d_monthnuminyear"), 2);
    assert_eq!(number("d_weeknuminyear"), 9);
    assert_eq!(number("d_lastdayinmonthfl"), 1);
    assert_eq!(number("d_lastdayinweekfl"), 0);
    assert_eq!(number("d_holidayfl"), 0);
    assert_eq!(number("d_weekdayfl"), 1);
    let sum = |column: &str| numbers(&dates, column).iter().sum::<i32>();
    assert_eq!(sum("d_lastdayinmonthfl"), 84);
    assert_eq!(sum("d_holidayfl"), 70);
    assert_eq!(sum("d_lastdayinweekfl"), 365, "Saturdays of seven years");
    assert_eq!(span(numbers(&dates, "d_weeknuminyear")), (1, 53));
    assert_eq!(distinct(&dates, "d_yearmonth").len(), 84);
}

#[test]
fn ranges_outside_a_table_are_errors() {
    let data = Generator::new(0.001, 3).unwrap();
    let error = data.batch(Table::Supplier, 1..3).unwrap_err();
    assert_eq!(error.to_string(), "rows 1..3 of table supplier, which has 2 rows");
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = data.batch(Table::Date, 5..4);
    assert!(matches!(reversed, Err(SuiteError::Range { .. })));
    assert_eq!(data.batch(Table::Lineorder, 7..7).unwrap().num_rows(), 0);
}

#[test]
fn seeds_change_values_but_not_sizes() {
    let tables = |seed| {
        let data = Generator::new(0.001, seed).unwrap();
        Table::ALL.map(|table| whole(&data, table))
    };
    assert_eq!(tables(1), tables(1));
    let (one, two) = (tables(1), tables(2));
    assert_eq!(one[0], two[0], "the calendar has no seed");
    for (one, two) in one.iter().zip(&two).skip(1) {
        assert_eq!(one.num_rows(), two.num_rows());
        assert_ne!(one, two);
    }
}
