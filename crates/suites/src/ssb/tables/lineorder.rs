//! Table lineorder: the lines of 1,500,000 orders a unit of scale.
//!
//! An order's own values are drawn by its number, a line's values by order number · 8 + line, so a
//! batch of rows needs only its position. A batch may begin and end inside an order: whole orders
//! are generated into the buffers, because the total price needs all lines, and the columns are
//! slices of them.

use std::{ops::Range, sync::Arc};

use arrow_array::{ArrayRef, Int32Array, Int64Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};

use super::{RowGenerator, Table, shared_schema};
use crate::line_count::{LINES_MAX, LineCounts, RowIndex};
use crate::{
    columns::{code8, code8_field, int32_field},
    random::{Purpose, Stream},
    ssb::{
        calendar,
        scale::Cardinalities,
        vocabulary::{self, ORDER_PRIORITIES, SHIP_MODES, SHIP_PRIORITIES},
    },
};

/// dbgen stops orders 151 days before the end of the calendar: the last order date is
/// 1998-08-02.
const ORDER_DAYS: u32 = calendar::DAYS - 151;
const COMMIT_DAYS_MIN: u32 = 30;
const COMMIT_DAYS_MAX: u32 = 90;
const QUANTITY_MAX: u32 = 50;
const DISCOUNT_MAX: u32 = 10;
const TAX_MAX: u32 = 8;

/// Positions per order in the line streams; a power of two not below the maximum of lines.
const POSITIONS_PER_ORDER: u64 = (LINES_MAX as u64).next_power_of_two();

// The last commit date lies in the calendar.
const _: () = assert!(ORDER_DAYS - 1 + COMMIT_DAYS_MAX < calendar::DAYS);

/// dbgen's sparse order key: the order number (from 1) with two zero bits inserted above its lowest
/// three, so that of 32 consecutive keys only the first eight are used.
const fn sparse_key(order_number: u64) -> u64 {
    (order_number >> 3) << 5 | order_number & 7
}

/// dbgen's price of a part in cents, 90,000 to 209,900.
#[inline]
const fn retail_price(part: u32) -> i32 {
    (90_000 + (part / 10) % 20_001 + 100 * (part % 1000)) as i32
}

/// dbgen leaves every third customer without orders: their orders go to the next customer, or to
/// the previous one if there is no next.
#[inline]
const fn customer_with_orders(customer: u32, customers: u32) -> u32 {
    match (customer.is_multiple_of(3), customer < customers) {
        (false, _) => customer,
        (true, true) => customer + 1,
        (true, false) => customer - 1,
    }
}

pub(super) struct Lineorders {
    schema: SchemaRef,
    index: RowIndex,
    sizes: Cardinalities,
    wide_keys: bool,
    order_attributes: Stream,
    order_customers: Stream,
    line_parts: Stream,
    line_suppliers: Stream,
    line_attributes: Stream,
    date_keys: Vec<i32>,
    priorities: ArrayRef,
    ship_priorities: ArrayRef,
    ship_modes: ArrayRef,
}

impl Lineorders {
    pub(super) fn new(sizes: Cardinalities, seed: u64) -> Self {
        Self::with_index(sizes, seed, RowIndex::new(sizes.orders))
    }

    fn with_index(sizes: Cardinalities, seed: u64, index: RowIndex) -> Self {
        let wide_keys = sparse_key(sizes.orders) > i32::MAX as u64;
        let key_type = if wide_keys { DataType::Int64 } else { DataType::Int32 };
        Self {
            schema: shared_schema(vec![
                Field::new("lo_orderkey", key_type, false),
                int32_field("lo_linenumber"),
                int32_field("lo_custkey"),
                int32_field("lo_partkey"),
                int32_field("lo_suppkey"),
                int32_field("lo_orderdate"),
                code8_field("lo_orderpriority"),
                code8_field("lo_shippriority"),
                int32_field("lo_quantity"),
                int32_field("lo_extendedprice"),
                int32_field("lo_ordtotalprice"),
                int32_field("lo_discount"),
                int32_field("lo_revenue"),
                int32_field("lo_supplycost"),
                int32_field("lo_tax"),
                int32_field("lo_commitdate"),
                code8_field("lo_shipmode"),
            ]),
            index,
            sizes,
            wide_keys,
            order_attributes: Stream::new(seed, Purpose::OrderAttributes),
            order_customers: Stream::new(seed, Purpose::OrderCustomer),
            line_parts: Stream::new(seed, Purpose::LinePart),
            line_suppliers: Stream::new(seed, Purpose::LineSupplier),
            line_attributes: Stream::new(seed, Purpose::LineAttributes),
            date_keys: calendar::keys(),
            priorities: vocabulary::words(&ORDER_PRIORITIES),
            ship_priorities: vocabulary::words(&SHIP_PRIORITIES),
            ship_modes: vocabulary::words(&SHIP_MODES),
        }
    }

    /// The values that all lines of an order (zero-based) share.
    #[inline]
    fn order(&self, order: u64) -> Order {
        let mut digits = self.order_attributes.digits(order);
        let day = digits.below(ORDER_DAYS);
        let priority = digits.below(ORDER_PRIORITIES.len() as u32) as i8;
        let customer = 1 + self.order_customers.digits(order).below(self.sizes.customers);
        Order {
            day,
            priority,
            customer: customer_with_orders(customer, self.sizes.customers) as i32,
        }
    }

    /// A line of an order (both zero-based).
    #[inline]
    fn line(&self, order: u64, line: u32, order_day: u32) -> Line {
        let position = order * POSITIONS_PER_ORDER + u64::from(line);
        let part = 1 + self.line_parts.digits(position).below(self.sizes.parts);
        let supplier = 1 + self.line_suppliers.digits(position).below(self.sizes.suppliers);
        let mut digits = self.line_attributes.digits(position);
        let quantity = 1 + digits.below(QUANTITY_MAX) as i32;
        let discount = digits.below(DISCOUNT_MAX + 1) as i32;
        let tax = digits.below(TAX_MAX + 1) as i32;
        let delay = COMMIT_DAYS_MIN + digits.below(COMMIT_DAYS_MAX - COMMIT_DAYS_MIN + 1);
        let ship_mode = digits.below(SHIP_MODES.len() as u32) as i8;
        let price = retail_price(part);
        // At most 50 · 209,900 cents; times 108 stays below 2^31.
        let extended_price = quantity * price;
        let revenue = (i64::from(extended_price) * i64::from(100 - discount) / 100) as i32;
        Line {
            part: part as i32,
            supplier: supplier as i32,
            quantity,
            discount,
            tax,
            extended_price,
            revenue,
            supply_cost: 6 * price / 10,
            commit_date: self.date_keys[(order_day + delay) as usize],
            ship_mode,
        }
    }

    /// Generates the orders from `start` (an order number, zero-based) until there are `rows` rows,
    /// and the rest of the last order.
    fn fill(&self, start: u64, rows: usize) -> LineColumns {
        let mut columns = LineColumns::with_rows(rows + LINES_MAX as usize, self.wide_keys);
        let mut counts = LineCounts::starting_at(start);
        let mut order = start;
        let mut row = 0;
        while row < rows {
            let lines = counts.next_count() as usize;
            self.fill_order(&mut columns, order, row..row + lines);
            row += lines;
            order += 1;
        }
        columns
    }

    #[inline]
    fn fill_order(&self, columns: &mut LineColumns, number: u64, rows: Range<usize>) {
        let order = self.order(number);
        let mut total = 0;
        for (line, row) in rows.clone().enumerate() {
            let values = self.line(number, line as u32, order.day);
            total += values.revenue_with_tax();
            columns.set_line(row, line, values);
        }
        columns.order_key.fill(rows.clone(), sparse_key(number + 1));
        columns.order_date[rows.clone()].fill(self.date_keys[order.day as usize]);
        columns.customer[rows.clone()].fill(order.customer);
        columns.priority[rows.clone()].fill(order.priority);
        columns.total_price[rows].fill(total);
    }
}

/// The common values of an order's lines.
#[derive(Clone, Copy)]
struct Order {
    /// Days after 1992-01-01.
    day: u32,
    priority: i8,
    customer: i32,
}

/// A line's own values; money in cents.
#[derive(Clone, Copy)]
struct Line {
    part: i32,
    supplier: i32,
    quantity: i32,
    discount: i32,
    tax: i32,
    extended_price: i32,
    revenue: i32,
    supply_cost: i32,
    commit_date: i32,
    ship_mode: i8,
}

impl Line {
    /// The line's part of the order's total price.
    #[inline]
    const fn revenue_with_tax(&self) -> i32 {
        (self.revenue as i64 * (100 + self.tax) as i64 / 100) as i32
    }
}

/// Order keys: 32 bits wide as long as the last order's key fits.
enum OrderKeys {
    Narrow(Vec<i32>),
    Wide(Vec<i64>),
}

impl OrderKeys {
    #[inline]
    fn fill(&mut self, rows: Range<usize>, key: u64) {
        match self {
            Self::Narrow(keys) => keys[rows].fill(key as i32),
            Self::Wide(keys) => keys[rows].fill(key as i64),
        }
    }

    fn slice(self, skip: usize, len: usize) -> ArrayRef {
        match self {
            Self::Narrow(keys) => Arc::new(Int32Array::new(sliced(keys, skip, len), None)),
            Self::Wide(keys) => Arc::new(Int64Array::new(sliced(keys, skip, len), None)),
        }
    }
}

/// The buffers of a batch while it is filled, all of one length.
struct LineColumns {
    order_key: OrderKeys,
    line_number: Vec<i32>,
    customer: Vec<i32>,
    part: Vec<i32>,
    supplier: Vec<i32>,
    order_date: Vec<i32>,
    priority: Vec<i8>,
    quantity: Vec<i32>,
    extended_price: Vec<i32>,
    total_price: Vec<i32>,
    discount: Vec<i32>,
    revenue: Vec<i32>,
    supply_cost: Vec<i32>,
    tax: Vec<i32>,
    commit_date: Vec<i32>,
    ship_mode: Vec<i8>,
}

impl LineColumns {
    fn with_rows(rows: usize, wide_keys: bool) -> Self {
        let column = || vec![0; rows];
        Self {
            order_key: if wide_keys {
                OrderKeys::Wide(vec![0; rows])
            } else {
                OrderKeys::Narrow(column())
            },
            line_number: column(),
            customer: column(),
            part: column(),
            supplier: column(),
            order_date: column(),
            priority: vec![0; rows],
            quantity: column(),
            extended_price: column(),
            total_price: column(),
            discount: column(),
            revenue: column(),
            supply_cost: column(),
            tax: column(),
            commit_date: column(),
            ship_mode: vec![0; rows],
        }
    }

    #[inline]
    fn set_line(&mut self, row: usize, line: usize, values: Line) {
        self.line_number[row] = line as i32 + 1;
        self.part[row] = values.part;
        self.supplier[row] = values.supplier;
        self.quantity[row] = values.quantity;
        self.discount[row] = values.discount;
        self.tax[row] = values.tax;
        self.extended_price[row] = values.extended_price;
        self.revenue[row] = values.revenue;
        self.supply_cost[row] = values.supply_cost;
        self.commit_date[row] = values.commit_date;
        self.ship_mode[row] = values.ship_mode;
    }
}

/// `len` values of a buffer after its first `skip`, without copying.
fn sliced<T: arrow_buffer::ArrowNativeType>(
    values: Vec<T>,
    skip: usize,
    len: usize,
) -> ScalarBuffer<T> {
    ScalarBuffer::new(Buffer::from_vec(values), skip, len)
}

impl RowGenerator for Lineorders {
    fn table(&self) -> Table {
        Table::Lineorder
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn most(&self, column: &str) -> Option<u32> {
        match column {
            "lo_linenumber" => Some(7),
            "lo_custkey" => Some(self.sizes.customers),
            "lo_partkey" => Some(self.sizes.parts),
            "lo_suppkey" => Some(self.sizes.suppliers),
            "lo_quantity" => Some(50),
            "lo_discount" => Some(10),
            "lo_tax" => Some(8),
            _ => None,
        }
    }

    fn rows(&self) -> u64 {
        self.index.rows()
    }

    fn columns(&self, rows: Range<u64>) -> Result<Vec<ArrayRef>, ArrowError> {
        let start = self.index.locate(rows.start);
        let skip = (rows.start - start.row) as usize;
        let len = (rows.end - rows.start) as usize;
        let lines = self.fill(start.order, skip + len);
        let number =
            |values| -> ArrayRef { Arc::new(Int32Array::new(sliced(values, skip, len), None)) };
        let code = |values, words| code8(sliced(values, skip, len), words);
        Ok(vec![
            lines.order_key.slice(skip, len),
            number(lines.line_number),
            number(lines.customer),
            number(lines.part),
            number(lines.supplier),
            number(lines.order_date),
            code(lines.priority, &self.priorities)?,
            code8(vec![0; len], &self.ship_priorities)?,
            number(lines.quantity),
            number(lines.extended_price),
            number(lines.total_price),
            number(lines.discount),
            number(lines.revenue),
            number(lines.supply_cost),
            number(lines.tax),
            number(lines.commit_date),
            code(lines.ship_mode, &self.ship_modes)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::{
        cast::AsArray,
        types::{Int32Type, Int64Type},
    };

    use super::*;

    #[test]
    fn sparse_keys_are_those_of_the_reference_generator() {
        let keys: Vec<u64> = (1..=10).map(sparse_key).collect();
        assert_eq!(keys, [1, 2, 3, 4, 5, 6, 7, 32, 33, 34]);
        // The last order of scale 1, as in TPC-H.
        assert_eq!(sparse_key(1_500_000), 6_000_000);
    }

    #[test]
    fn keys_are_narrow_up_to_scale_357() {
        let last = |scale: u64| sparse_key(1_500_000 * scale);
        assert!(last(357) <= i32::MAX as u64);
        assert!(last(358) > i32::MAX as u64);
    }

    #[test]
    fn wide_keys_are_not_cut() {
        // The orders of scale 400, but only the last row index that matters is built.
        let sizes = Cardinalities::new(400.0).unwrap();
        let wide = Lineorders::with_index(sizes, 1, RowIndex::new(1000));
        assert_eq!(wide.schema.field(0).data_type(), &DataType::Int64);
        let lines = wide.fill(sizes.orders - 2, 1);
        let keys = lines.order_key.slice(0, 1);
        assert_eq!(keys.as_primitive::<Int64Type>().value(0), sparse_key(sizes.orders - 1) as i64);
        assert!(keys.as_primitive::<Int64Type>().value(0) > i64::from(i32::MAX));
    }

    #[test]
    fn customers_divisible_by_three_have_no_orders() {
        for customers in [2, 3, 30, 31, 32] {
            for customer in 1..=customers {
                let other = customer_with_orders(customer, customers);
                assert!(!other.is_multiple_of(3) && (1..=customers).contains(&other));
            }
        }
    }

    #[test]
    fn batches_that_cut_orders_agree_with_one_batch() {
        let table = Lineorders::new(Cardinalities::new(0.001).unwrap(), 11);
        let rows = table.rows();
        let whole = table.batch(0..rows).unwrap();
        for step in [1, 3, 1000] {
            let mut start = 0;
            while start < rows {
                let end = rows.min(start + step);
                let piece = table.batch(start..end).unwrap();
                assert_eq!(piece, whole.slice(start as usize, (end - start) as usize));
                start = end;
            }
        }
    }

    #[test]
    fn largest_amounts_fit() {
        let price = (1..=2_000_000).map(retail_price).max().unwrap();
        assert!(price <= 209_900);
        let line = Line {
            part: 1,
            supplier: 1,
            quantity: 50,
            discount: 0,
            tax: 8,
            extended_price: 50 * price,
            revenue: 50 * price,
            supply_cost: 6 * price / 10,
            commit_date: 0,
            ship_mode: 0,
        };
        assert!(i64::from(line.revenue_with_tax()) * 7 < i64::from(i32::MAX));
        assert_eq!(i64::from(line.revenue_with_tax()), i64::from(price) * 50 * 108 / 100);
    }

    #[test]
    fn order_dates_cover_their_range() {
        let table = Lineorders::new(Cardinalities::new(0.01).unwrap(), 3);
        let batch = table.batch(0..table.rows()).unwrap();
        let dates = batch.column(5).as_primitive::<Int32Type>();
        assert_eq!(dates.values().iter().min(), Some(&19_920_101));
        assert_eq!(dates.values().iter().max(), Some(&19_980_802));
    }
}
