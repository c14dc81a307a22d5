//! The data themselves, pinned: whoever changes a value must raise `DATA_VERSION`.

use arrow_array::{ArrayRef, cast::AsArray, types::Int32Type};
use headrace_suites::ssb::{DATA_VERSION, Generator, Table};

use crate::columns::{numbers, texts, whole};

/// FNV-1a over bytes (Fowler, Noll, Vo), 64 bits.
struct Fnv(u64);

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

fn checksum(data: &Generator, table: Table) -> u64 {
    let batch = whole(data, table);
    let mut sum = Fnv(0xcbf2_9ce4_8422_2325);
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        sum.add(field.name().as_bytes());
        match as_numbers(column) {
            Some(values) => values.iter().for_each(|value| sum.add(&value.to_le_bytes())),
            None => texts(&batch, field.name()).iter().for_each(|text| {
                sum.add(text.as_bytes());
                sum.add(&[0]);
            }),
        }
    }
    sum.0
}

fn as_numbers(column: &ArrayRef) -> Option<&[i32]> {
    column.as_primitive_opt::<Int32Type>().map(|array| array.values().as_ref())
}

#[test]
fn data_of_this_version() {
    let data = Generator::new(0.01, 42).unwrap();
    let sums = Table::ALL.map(|table| format!("{:016x}", checksum(&data, table)));
    let pinned = [
        "eba8ff8b063232d9", "0a8b897ca739bce9", "22c84cdbb130d252", "65c7306f9c4e939c",
        "798af9628d7d4588",
    ];
    assert_eq!((DATA_VERSION, sums), (1, pinned.map(String::from)));
}

#[test]
fn query_1_1_has_the_answer_that_another_engine_found() {
    // DuckDB's answer over the written files at scale 1, seed 42.
    let data = Generator::new(1.0, 42).unwrap();
    let lines = whole(&data, Table::Lineorder);
    let column = |name| numbers(&lines, name);
    let (dates, prices) = (column("lo_orderdate"), column("lo_extendedprice"));
    let (discounts, quantities) = (column("lo_discount"), column("lo_quantity"));
    let revenue: i64 = (0..lines.num_rows())
        .filter(|&row| dates[row] / 10_000 == 1993)
        .filter(|&row| (1..=3).contains(&discounts[row]) && quantities[row] < 25)
        .map(|row| i64::from(prices[row]) * i64::from(discounts[row]))
        .sum();
    assert_eq!(revenue, 449_748_163_767);
}
