//! The filter factors of the thirteen queries, against the specification's table.
//!
//! Two comparisons. The share of each dimension's rows that a query keeps is compared with the
//! specification's fraction; the share of lineorder's rows with the product of the shares that
//! the dimensions really have. Tolerances are five standard deviations of a random sample of that
//! size, so they are tight where the sample is large.

use headrace_suites::ssb::{FILTER_FACTORS, Generator, QUERIES, Table};

use crate::columns::{numbers, texts, whole};

/// Rows of a table that a query keeps, by row.
type Kept = Vec<bool>;

struct Star {
    /// By position in the date table.
    date: Kept,
    customer: Kept,
    supplier: Kept,
    part: Kept,
    /// On lineorder's own columns.
    lines: Kept,
    /// The specification's fractions of customer, supplier, part and of lineorder's own columns.
    fractions: [f64; 4],
}

struct Tables {
    data: Generator,
    lines: arrow_array::RecordBatch,
    dates: arrow_array::RecordBatch,
    /// Position of each lineorder row's day in the date table.
    days: Vec<usize>,
}

impl Tables {
    fn new(scale: f64) -> Self {
        let data = Generator::new(scale, 42).unwrap();
        let lines = whole(&data, Table::Lineorder);
        let dates = whole(&data, Table::Date);
        let keys = numbers(&dates, "d_datekey");
        let days = numbers(&lines, "lo_orderdate")
            .iter()
            .map(|key| keys.binary_search(key).unwrap())
            .collect();
        Self { data, lines, dates, days }
    }

    fn text(&self, table: Table, column: &str, keep: impl Fn(&str) -> bool) -> Kept {
        texts(&whole(&self.data, table), column).iter().map(|value| keep(value)).collect()
    }

    fn date(&self, column: &str, keep: impl Fn(i32) -> bool) -> Kept {
        numbers(&self.dates, column).iter().map(|&value| keep(value)).collect()
    }

    fn all(&self, table: Table) -> Kept {
        vec![true; self.data.rows(table) as usize]
    }

    fn line_filter(&self, discounts: (i32, i32), quantities: (i32, i32)) -> Kept {
        numbers(&self.lines, "lo_discount")
            .iter()
            .zip(numbers(&self.lines, "lo_quantity"))
            .map(|(discount, quantity)| {
                (discounts.0..=discounts.1).contains(discount)
                    && (quantities.0..=quantities.1).contains(quantity)
            })
            .collect()
    }

    fn flight1(&self, date: Kept, discounts: (i32, i32), quantities: (i32, i32)) -> Star {
        let discount_share = f64::from(discounts.1 - discounts.0 + 1) / 11.0;
        let quantity_share = f64::from(quantities.1 - quantities.0 + 1) / 50.0;
        Star {
            date,
            customer: self.all(Table::Customer),
            supplier: self.all(Table::Supplier),
            part: self.all(Table::Part),
            lines: self.line_filter(discounts, quantities),
            fractions: [1.0, 1.0, 1.0, discount_share * quantity_share],
        }
    }

    fn flight2(&self, brand_share: f64, part: Kept, region: &str) -> Star {
        Star {
            date: self.all(Table::Date),
            customer: self.all(Table::Customer),
            supplier: self.text(Table::Supplier, "s_region", |value| value == region),
            part,
            lines: self.all(Table::Lineorder),
            fractions: [1.0, 0.2, brand_share, 1.0],
        }
    }

    fn flight3(&self, date: Kept, level: &str, places: &[&str], share: f64) -> Star {
        let keep = |value: &str| places.contains(&value);
        Star {
            date,
            customer: self.text(Table::Customer, &format!("c_{level}"), keep),
            supplier: self.text(Table::Supplier, &format!("s_{level}"), keep),
            part: self.all(Table::Part),
            lines: self.all(Table::Lineorder),
            fractions: [share, share, 1.0, 1.0],
        }
    }

    fn flight4(&self, date: Kept, supplier: (&str, &str, f64), part: (Kept, f64)) -> Star {
        let (column, place, share) = supplier;
        Star {
            date,
            customer: self.text(Table::Customer, "c_region", |value| value == "AMERICA"),
            supplier: self.text(Table::Supplier, column, |value| value == place),
            part: part.0,
            lines: self.all(Table::Lineorder),
            fractions: [0.2, share, part.1, 1.0],
        }
    }

    /// The thirteen queries' filters, in the order of [`QUERIES`].
    fn stars(&self) -> Vec<Star> {
        let year = |from: i32, to: i32| self.date("d_year", |year| (from..=to).contains(&year));
        let brand = |keep: fn(&str) -> bool| self.text(Table::Part, "p_brand1", keep);
        let mfgrs =
            || self.text(Table::Part, "p_mfgr", |value| ["MFGR#1", "MFGR#2"].contains(&value));
        let category =
            |name: &'static str| self.text(Table::Part, "p_category", move |value| value == name);
        let week = self
            .date("d_weeknuminyear", |week| week == 6)
            .iter()
            .zip(year(1994, 1994))
            .map(|(week, year)| *week && year)
            .collect();
        let december =
            texts(&self.dates, "d_yearmonth").iter().map(|name| name == "Dec1997").collect();
        let cities = ["UNITED KI1", "UNITED KI5"];
        let region = ("s_region", "AMERICA", 0.2);
        vec![
            self.flight1(year(1993, 1993), (1, 3), (1, 24)),
            self.flight1(self.date("d_yearmonthnum", |m| m == 199_401), (4, 6), (26, 35)),
            self.flight1(week, (5, 7), (36, 40)),
            self.flight2(0.04, category("MFGR#12"), "AMERICA"),
            self.flight2(0.008, brand(|b| ("MFGR#2221"..="MFGR#2228").contains(&b)), "ASIA"),
            self.flight2(0.001, brand(|b| b == "MFGR#2221"), "EUROPE"),
            self.flight3(year(1992, 1997), "region", &["ASIA"], 0.2),
            self.flight3(year(1992, 1997), "nation", &["UNITED STATES"], 0.04),
            self.flight3(year(1992, 1997), "city", &cities, 0.008),
            self.flight3(december, "city", &cities, 0.008),
            self.flight4(self.all(Table::Date), region, (mfgrs(), 0.4)),
            self.flight4(year(1997, 1998), region, (mfgrs(), 0.4)),
            self.flight4(
                year(1997, 1998),
                ("s_nation", "UNITED STATES", 0.04),
                (category("MFGR#14"), 0.04),
            ),
        ]
    }

    /// The share of lineorder's rows that a query keeps.
    fn measured(&self, star: &Star) -> f64 {
        let column = |name| numbers(&self.lines, name);
        let (customers, suppliers) = (column("lo_custkey"), column("lo_suppkey"));
        let parts = column("lo_partkey");
        let kept = (0..self.lines.num_rows())
            .filter(|&row| {
                star.lines[row]
                    && star.date[self.days[row]]
                    && star.customer[customers[row] as usize - 1]
                    && star.supplier[suppliers[row] as usize - 1]
                    && star.part[parts[row] as usize - 1]
            })
            .count();
        kept as f64 / self.lines.num_rows() as f64
    }
}

/// Days on which orders are placed: 1992-01-01 to 1998-08-02.
const ORDER_DAYS: usize = 2406;

fn share(kept: &[bool]) -> f64 {
    kept.iter().filter(|&&kept| kept).count() as f64 / kept.len() as f64
}

/// The share of orders that customers get who are kept: a customer divisible by three passes its
/// orders on to the next one, so the next one counts twice.
fn customer_share(kept: &[bool]) -> f64 {
    let customers = kept.len();
    let heir = |customer: usize| match (customer.is_multiple_of(3), customer < customers) {
        (false, _) => customer,
        (true, true) => customer + 1,
        (true, false) => customer - 1,
    };
    let orders = (1..=customers).filter(|&customer| kept[heir(customer) - 1]).count();
    orders as f64 / customers as f64
}

/// Five standard deviations of the share of hits among `trials` of this probability, and a hit or
/// two where hardly any are expected.
fn tolerance(probability: f64, trials: usize) -> f64 {
    let trials = trials as f64;
    5.0 * (probability * (1.0 - probability) / trials).sqrt() + 2.0 / trials
}

#[test]
fn dimension_shares_are_those_of_the_specification() {
    let tables = Tables::new(1.0);
    for (star, query) in tables.stars().iter().zip(&QUERIES) {
        let kept = [&star.customer, &star.supplier, &star.part, &star.lines];
        for (kept, fraction) in kept.into_iter().zip(star.fractions) {
            let (share, tolerance) = (share(kept), tolerance(fraction, kept.len()));
            let id = query.id;
            assert!((share - fraction).abs() <= tolerance, "{id}: {share} for {fraction}");
        }
    }
}

#[test]
fn lineorder_shares_are_the_products_of_the_dimension_shares() {
    for scale in [0.1, 1.0] {
        let tables = Tables::new(scale);
        for (star, query) in tables.stars().iter().zip(&QUERIES) {
            let expected = share(&star.date[..ORDER_DAYS])
                * customer_share(&star.customer)
                * share(&star.supplier)
                * share(&star.part)
                * star.fractions[3];
            let measured = tables.measured(star);
            // Rows of one order share customer and date: seven rows count as one at worst.
            let tolerance = tolerance(expected, tables.lines.num_rows() / 7);
            assert!(
                (measured - expected).abs() <= tolerance,
                "{} at scale {scale}: {measured} for {expected}",
                query.id
            );
        }
    }
}

#[test]
fn filter_factors_are_within_a_fifth_of_the_specification() {
    // With the nominal fractions only the shorter range of order dates is left as a difference.
    let tables = Tables::new(0.01);
    for ((star, query), factor) in tables.stars().iter().zip(&QUERIES).zip(FILTER_FACTORS) {
        let nominal: f64 = star.fractions.iter().product();
        let ours = nominal * share(&star.date[..ORDER_DAYS]);
        let ratio = ours / factor;
        assert!((0.8..1.2).contains(&ratio), "{}: ratio {ratio}", query.id);
    }
}
