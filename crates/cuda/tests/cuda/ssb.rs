//! Programs of the shape of the thirteen queries of the Star Schema Benchmark, over synthetic
//! dimensions of the sizes of a scale factor, in the order in which a GPU takes their steps.

use std::sync::Arc;

use headrace_cuda::SegmentLayout;
use headrace_cuda::parts::{ColumnLayout, Narrowing};
use headrace_ir::{ArithmeticOp, CompareOp, ProbeKind, ValueRange};
use headrace_pipeline::bound::{Bound, RegisterInfo};
use headrace_pipeline::build::BuildTable;

use crate::dsl::{BytePayload, Star, arithmetic, direct_build};

const DATE_BASE: i64 = 19_920_101;
const DATE_DOMAIN: u64 = 19_981_231 - 19_920_101 + 1;

pub struct Sizes {
    pub customers: u64,
    pub suppliers: u64,
    pub parts: u64,
}

pub const SF100: Sizes = Sizes { customers: 3_000_000, suppliers: 200_000, parts: 1_400_000 };

/// A calendar day of 1992 to 1998, as the offset of its yyyymmdd number.
fn is_day(i: u64) -> bool {
    let (month, day) = (month(i), (DATE_BASE as u64 + i) % 100);
    (1..=12).contains(&month) && (1..=28).contains(&day)
}
fn year(i: u64) -> u64 {
    (DATE_BASE as u64 + i) / 10_000
}
fn month(i: u64) -> u64 {
    (DATE_BASE as u64 + i) / 100 % 100
}
/// A pseudo-random attribute of a dimension row.
fn attribute(i: u64, values: u64) -> u64 {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)) % values
}

fn date_filter(keep: impl Fn(u64) -> bool) -> BuildTable {
    direct_build("date", "d_datekey", DATE_BASE, DATE_DOMAIN, |i| is_day(i) && keep(i), &[])
}
fn date_years(low: u64, high: u64) -> BuildTable {
    let keep = |i| is_day(i) && (low..=high).contains(&year(i));
    let value = |i: u64| (year(i) - low) as u8;
    let values = (high - low + 1) as u8;
    let payload: BytePayload<'_> = ("d_year", low as i64, values, &value);
    direct_build("date", "d_datekey", DATE_BASE, DATE_DOMAIN, keep, &[payload])
}

/// A dimension with keys 1..=rows of which one in `one_in` stays, and perhaps one payload
/// column of `values` values.
fn dimension(name: &str, rows: u64, one_in: u64, payload: Option<(&str, u8)>) -> BuildTable {
    let key = format!("{}_key", &name[..1]);
    let keep = |i| attribute(i, one_in) == 0;
    match payload {
        None => direct_build(name, &key, 1, rows, keep, &[]),
        Some((column, values)) => {
            let value = |i: u64| attribute(i / 7, u64::from(values)) as u8;
            direct_build(name, &key, 1, rows, keep, &[(column, 0, values, &value)])
        }
    }
}

/// How a lineorder column of scale factor 100 is claimed to be bounded.
pub fn lineorder_range(name: &str, sizes: &Sizes) -> ValueRange {
    let (min, max) = match name {
        "lo_orderdate" => (DATE_BASE, DATE_BASE + DATE_DOMAIN as i64 - 1),
        "lo_custkey" => (1, sizes.customers as i64),
        "lo_suppkey" => (1, sizes.suppliers as i64),
        "lo_partkey" => (1, sizes.parts as i64),
        "lo_discount" => (0, 10),
        "lo_quantity" => (1, 50),
        "lo_extendedprice" => (90_000, 10_494_950),
        "lo_supplycost" => (54_000, 125_939),
        _ => (81_000, 10_474_950),
    };
    ValueRange { min, max }
}

/// The layout of a query once its columns have been made narrow.
pub fn narrow_layout(query: &Query) -> SegmentLayout {
    let columns = query.bound.registers[..query.bound.source_registers].iter();
    let column = |register: &RegisterInfo| {
        let range = lineorder_range(&register.name, &SF100);
        let form = Narrowing::of_plain(&register.repr, range).unwrap().form();
        ColumnLayout { form, validity: false }
    };
    SegmentLayout { columns: columns.map(column).collect() }
}

#[derive(Clone)]
pub struct Query {
    pub name: &'static str,
    pub bound: Arc<Bound>,
    pub layout: SegmentLayout,
}

fn query(
    name: &'static str,
    star: Star,
    sum: impl Fn(&Star) -> headrace_pipeline::bound::BoundExpr,
    keys: &[&str],
) -> Query {
    let layout = star.layout();
    let argument = sum(&star);
    Query { name, bound: star.sum_by(argument, keys), layout }
}

fn q1(
    name: &'static str,
    date: BuildTable,
    share: f64,
    discount: (i32, i32),
    quantity: (i32, i32),
) -> Query {
    let columns = ["lo_orderdate", "lo_discount", "lo_quantity", "lo_extendedprice"];
    let star = Star::over(&columns)
        .probe(date, "lo_orderdate", ProbeKind::Semi, share)
        .filter("lo_discount", CompareOp::Ge, discount.0, 0.6)
        .filter("lo_discount", CompareOp::Le, discount.1, 0.4)
        .filter("lo_quantity", CompareOp::Ge, quantity.0, 0.9)
        .filter("lo_quantity", CompareOp::Le, quantity.1, 0.4);
    let product = |s: &Star| {
        arithmetic(
            ArithmeticOp::Multiply,
            s.register("lo_extendedprice"),
            s.register("lo_discount"),
        )
    };
    query(name, star, product, &[])
}

fn q2(name: &'static str, sizes: &Sizes, one_in: u64, brands: u8) -> Query {
    let star = Star::over(&["lo_orderdate", "lo_partkey", "lo_suppkey", "lo_revenue"])
        .probe(
            dimension("part", sizes.parts, one_in, Some(("p_brand1", brands))),
            "lo_partkey",
            ProbeKind::Inner,
            1.0 / one_in as f64,
        )
        .probe(dimension("supplier", sizes.suppliers, 5, None), "lo_suppkey", ProbeKind::Semi, 0.2)
        .probe(date_years(1992, 1998), "lo_orderdate", ProbeKind::Inner, 1.0);
    query(name, star, |s| s.register("lo_revenue"), &["d_year", "p_brand1"])
}

fn q3(
    name: &'static str,
    sizes: &Sizes,
    one_in: u64,
    values: u8,
    date: BuildTable,
    share: f64,
) -> Query {
    let selectivity = 1.0 / one_in as f64;
    let by_date = date.payload.is_empty();
    let mut star = Star::over(&["lo_orderdate", "lo_custkey", "lo_suppkey", "lo_revenue"]);
    if by_date {
        let month = date_filter(|i| year(i) == 1997 && month(i) == 12);
        star = star.probe(month, "lo_orderdate", ProbeKind::Semi, share);
    }
    let star = star
        .probe(
            dimension("supplier", sizes.suppliers, one_in, Some(("s_place", values))),
            "lo_suppkey",
            ProbeKind::Inner,
            selectivity,
        )
        .probe(
            dimension("customer", sizes.customers, one_in, Some(("c_place", values))),
            "lo_custkey",
            ProbeKind::Inner,
            selectivity,
        );
    let star = if by_date {
        star.probe(date_years(1997, 1997), "lo_orderdate", ProbeKind::Inner, 1.0)
    } else {
        star.probe(date, "lo_orderdate", ProbeKind::Inner, share)
    };
    query(name, star, |s| s.register("lo_revenue"), &["c_place", "s_place", "d_year"])
}

const Q4_COLUMNS: [&str; 6] =
    ["lo_orderdate", "lo_custkey", "lo_suppkey", "lo_partkey", "lo_revenue", "lo_supplycost"];

fn profit(star: &Star) -> headrace_pipeline::bound::BoundExpr {
    arithmetic(ArithmeticOp::Subtract, star.register("lo_revenue"), star.register("lo_supplycost"))
}

fn q41(sizes: &Sizes) -> Query {
    let star = Star::over(&Q4_COLUMNS)
        .probe(dimension("supplier", sizes.suppliers, 5, None), "lo_suppkey", ProbeKind::Semi, 0.2)
        .probe(
            dimension("customer", sizes.customers, 5, Some(("c_nation", 5))),
            "lo_custkey",
            ProbeKind::Inner,
            0.2,
        )
        .probe(dimension("part", sizes.parts, 2, None), "lo_partkey", ProbeKind::Semi, 0.4)
        .probe(date_years(1992, 1998), "lo_orderdate", ProbeKind::Inner, 1.0);
    query("q4.1", star, profit, &["d_year", "c_nation"])
}

fn q42(sizes: &Sizes) -> Query {
    let star = Star::over(&Q4_COLUMNS)
        .probe(
            dimension("supplier", sizes.suppliers, 5, Some(("s_nation", 5))),
            "lo_suppkey",
            ProbeKind::Inner,
            0.2,
        )
        .probe(date_years(1997, 1998), "lo_orderdate", ProbeKind::Inner, 0.29)
        .probe(dimension("customer", sizes.customers, 5, None), "lo_custkey", ProbeKind::Semi, 0.2)
        .probe(
            dimension("part", sizes.parts, 2, Some(("p_category", 10))),
            "lo_partkey",
            ProbeKind::Inner,
            0.4,
        );
    query("q4.2", star, profit, &["d_year", "s_nation", "p_category"])
}

fn q43(sizes: &Sizes) -> Query {
    let star = Star::over(&Q4_COLUMNS)
        .probe(
            dimension("supplier", sizes.suppliers, 25, Some(("s_city", 10))),
            "lo_suppkey",
            ProbeKind::Inner,
            0.04,
        )
        .probe(
            dimension("part", sizes.parts, 25, Some(("p_brand1", 40))),
            "lo_partkey",
            ProbeKind::Inner,
            0.04,
        )
        .probe(date_years(1997, 1998), "lo_orderdate", ProbeKind::Inner, 0.29)
        .probe(dimension("customer", sizes.customers, 5, None), "lo_custkey", ProbeKind::Semi, 0.2);
    query("q4.3", star, profit, &["d_year", "s_city", "p_brand1"])
}

/// The thirteen queries.
pub fn queries(sizes: &Sizes) -> Vec<Query> {
    vec![
        q1("q1.1", date_filter(|i| year(i) == 1993), 0.14, (1, 3), (0, 24)),
        q1("q1.2", date_filter(|i| year(i) == 1994 && month(i) == 1), 0.012, (4, 6), (26, 35)),
        q1("q1.3", date_filter(|i| year(i) == 1994 && month(i) == 2), 0.003, (5, 7), (26, 35)),
        q2("q2.1", sizes, 25, 40),
        q2("q2.2", sizes, 125, 8),
        q2("q2.3", sizes, 1000, 1),
        q3("q3.1", sizes, 5, 5, date_years(1992, 1997), 0.86),
        q3("q3.2", sizes, 25, 10, date_years(1992, 1997), 0.86),
        q3("q3.3", sizes, 125, 2, date_years(1992, 1997), 0.86),
        q3("q3.4", sizes, 125, 2, date_filter(|_| true), 0.012),
        q41(sizes),
        q42(sizes),
        q43(sizes),
    ]
}
