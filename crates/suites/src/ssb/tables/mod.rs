//! The five tables. Each generator makes any range of its rows, on any thread, with the same
//! result.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, Field, SchemaRef};

use super::scale::Cardinalities;
use crate::{SuiteError, write::TableGenerator};

mod date;
mod lineorder;
mod part;
mod parties;

/// A table of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// The fact table: one row per order line.
    Lineorder,
    /// Dimension `customer`.
    Customer,
    /// Dimension `supplier`.
    Supplier,
    /// Dimension `part`.
    Part,
    /// Dimension `date`: one row per day.
    Date,
}

// Dimensions first. The names are those in SQL and of files.
headrace_io::named!(
    Table,
    Date => "date",
    Customer => "customer",
    Supplier => "supplier",
    Part => "part",
    Lineorder => "lineorder",
);

/// A table by row numbers.
trait RowGenerator: Send + Sync {
    fn table(&self) -> Table;
    fn schema(&self) -> SchemaRef;
    fn rows(&self) -> u64;

    /// The maximum of a column's values, if they fit fewer bytes than the type has.
    fn most(&self, _column: &str) -> Option<u32> {
        None
    }

    /// The columns of a range that lies within the table.
    fn columns(&self, rows: Range<u64>) -> Result<Vec<ArrayRef>, ArrowError>;

    /// `rows` of the table as a batch.
    fn batch(&self, rows: Range<u64>) -> Result<RecordBatch, SuiteError> {
        let table = self.table().name();
        if rows.start > rows.end || rows.end > self.rows() {
            let (start, end) = (rows.start, rows.end);
            return Err(SuiteError::Range { table, start, end, rows: self.rows() });
        }
        if rows.is_empty() {
            return Ok(RecordBatch::new_empty(self.schema()));
        }
        self.columns(rows)
            .and_then(|columns| RecordBatch::try_new(self.schema(), columns))
            .map_err(|source| SuiteError::Batch { table, source })
    }
}

/// The table in pieces of whole record batches.
struct Batches<T>(T);

impl<T: RowGenerator> TableGenerator for Batches<T> {
    fn name(&self) -> &'static str {
        self.0.table().name()
    }

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn bounds(&self, column: &Field) -> Option<RangeInclusive<i128>> {
        self.0.most(column.name()).map(|most| 0..=most.into())
    }

    fn rows(&self) -> u64 {
        self.0.rows()
    }

    fn pieces(&self, rows_per_batch: u64) -> u64 {
        self.0.rows().div_ceil(rows_per_batch)
    }

    fn piece(&self, number: u64, rows_per_batch: u64) -> Result<RecordBatch, SuiteError> {
        let first = number * rows_per_batch;
        self.0.batch(first..self.0.rows().min(first + rows_per_batch))
    }
}

/// The benchmark's data for one scale and seed, computed on demand: any range of rows of any
/// table, in any order, from any thread.
pub struct Generator {
    date: date::Dates,
    customer: parties::Parties,
    supplier: parties::Parties,
    part: part::Parts,
    lineorder: lineorder::Lineorders,
}

impl Generator {
    /// Prepares the data of `scale` and `seed`; counts the lines of all orders (0.4 s on one core
    /// at scale 100).
    ///
    /// # Errors
    /// [`SuiteError::Scale`] when the scale is out of range.
    pub fn new(scale: f64, seed: u64) -> Result<Self, SuiteError> {
        let sizes = Cardinalities::new(scale)?;
        Ok(Self {
            date: date::Dates::new(),
            customer: parties::Parties::customers(sizes, seed),
            supplier: parties::Parties::suppliers(sizes, seed),
            part: part::Parts::new(sizes, seed),
            lineorder: lineorder::Lineorders::new(sizes, seed),
        })
    }

    /// The columns of `table`; they depend on the scale only in the width of `lo_orderkey`.
    pub fn schema(&self, table: Table) -> SchemaRef {
        self.of(table).schema()
    }

    /// Rows of `table`.
    pub fn rows(&self, table: Table) -> u64 {
        self.of(table).rows()
    }

    /// The rows `rows` of `table`, in key order.
    ///
    /// # Errors
    /// [`SuiteError::Range`] when the range is not within the table.
    pub fn batch(&self, table: Table, rows: Range<u64>) -> Result<RecordBatch, SuiteError> {
        self.of(table).batch(rows)
    }

    /// All tables, in the order of [`Table::ALL`].
    pub(crate) fn into_tables(self) -> Vec<Box<dyn TableGenerator>> {
        vec![
            Box::new(Batches(self.date)),
            Box::new(Batches(self.customer)),
            Box::new(Batches(self.supplier)),
            Box::new(Batches(self.part)),
            Box::new(Batches(self.lineorder)),
        ]
    }

    fn of(&self, table: Table) -> &dyn RowGenerator {
        match table {
            Table::Lineorder => &self.lineorder,
            Table::Customer => &self.customer,
            Table::Supplier => &self.supplier,
            Table::Part => &self.part,
            Table::Date => &self.date,
        }
    }
}

fn shared_schema(fields: Vec<arrow_schema::Field>) -> SchemaRef {
    Arc::new(arrow_schema::Schema::new(fields))
}

/// Keys of the rows `rows`: they count from 1.
fn keys(rows: &Range<u64>) -> Vec<i32> {
    rows.clone().map(|row| (row + 1) as i32).collect()
}
