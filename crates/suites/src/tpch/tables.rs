//! The eight tables, in pieces.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use crate::{
    Suite, SuiteError, columns, error::check_scale, line_count::RowIndex, write::TableGenerator,
};

/// Rows of a piece; a piece of lineitem, whose rows are found by their orders, and of partsupp,
/// whose rows are found by their parts, has that many orders or parts.
const UNITS_PER_PIECE: u64 = 1 << 15;

/// Columns of at most 100 different texts.
const CODED: &[&str] = &[
    "r_name", "n_name", "p_mfgr", "p_brand", "p_container", "c_mktsegment", "o_orderstatus",
    "o_orderpriority", "l_returnflag", "l_linestatus", "l_shipinstruct", "l_shipmode",
];
/// The column of 150 different texts.
const CODED_WIDE: &str = "p_type";

/// Makes piece `part` of `parts`, counted from 1.
type MakePiece = fn(f64, i32, i32) -> Box<dyn RecordBatchReader>;

/// One table.
struct Table {
    name: &'static str,
    scale: f64,
    rows: u64,
    /// The unit of its pieces.
    units: u64,
    schema: SchemaRef,
    make: MakePiece,
}

/// All tables, in the order of [`Suite::tables`].
///
/// # Errors
/// [`SuiteError::Scale`] when the scale is out of range.
pub(crate) fn tables(scale: f64) -> Result<Vec<Box<dyn TableGenerator>>, SuiteError> {
    check_scale(scale)?;
    let suppliers = SupplierGenerator::calculate_row_count(scale, 1, 1) as u64;
    let customers = CustomerGenerator::calculate_row_count(scale, 1, 1) as u64;
    let parts = PartGenerator::calculate_row_count(scale, 1, 1) as u64;
    let orders = OrderGenerator::calculate_row_count(scale, 1, 1) as u64;
    let lines = RowIndex::new(orders).rows();
    // A piece is one batch, since each batch brings dictionaries of its own.
    macro_rules! table {
        ($rows:expr, $units:expr, $arrow:ident, $generator:ident) => {
            (
                $rows,
                $units,
                $arrow::schema_ref(),
                (|scale, part, parts| {
                    let rows = $generator::new(scale, part, parts);
                    Box::new($arrow::new(rows).with_batch_size(usize::MAX))
                }) as MakePiece,
            )
        };
    }
    let tables = [
        table!(5, 5, RegionArrow, RegionGenerator),
        table!(25, 25, NationArrow, NationGenerator),
        table!(suppliers, suppliers, SupplierArrow, SupplierGenerator),
        table!(customers, customers, CustomerArrow, CustomerGenerator),
        table!(parts, parts, PartArrow, PartGenerator),
        table!(4 * parts, parts, PartSuppArrow, PartSuppGenerator),
        table!(orders, orders, OrderArrow, OrderGenerator),
        table!(lines, orders, LineItemArrow, LineItemGenerator),
    ];
    let named = Suite::Tpch.tables().iter().zip(tables);
    Ok(named
        .map(|(&name, (rows, units, schema, make))| {
            let schema = stored(&schema);
            Box::new(Table { name, scale, rows, units, schema, make }) as Box<dyn TableGenerator>
        })
        .collect())
}

/// The written columns: texts of a short list as codes, others plain.
fn stored(schema: &Schema) -> SchemaRef {
    let code = |key| DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8));
    let field = |field: &Arc<Field>| {
        let data_type = match (field.name().as_str(), field.data_type()) {
            (CODED_WIDE, _) => code(DataType::Int16),
            (name, _) if CODED.contains(&name) => code(DataType::Int8),
            (_, DataType::Utf8View) => DataType::Utf8,
            (_, other) => other.clone(),
        };
        field.as_ref().clone().with_data_type(data_type)
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

impl TableGenerator for Table {
    fn name(&self) -> &'static str {
        self.name
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The narrowest bounds that matter.
    fn bounds(&self, column: &Field) -> Option<RangeInclusive<i128>> {
        let most = match column.data_type() {
            // An order's price, in cents: seven lines of fifty of the dearest part, with tax.
            DataType::Decimal128(_, 2) => 7 * 50 * 209_900 * 108 / 100,
            _ => match column.name().rsplit('_').next() {
                Some("orderkey") => (6e6 * self.scale).ceil() as i128,
                Some("partkey" | "custkey") => (2e5 * self.scale).ceil() as i128,
                Some("suppkey" | "availqty") => (1e4 * self.scale).ceil().max(9999.0) as i128,
                // Keys of nations and regions, numbers of lines, sizes, and a priority that is 0.
                _ => 50,
            },
        };
        Some(-most..=most)
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn pieces(&self, _rows_per_batch: u64) -> u64 {
        self.units.div_ceil(UNITS_PER_PIECE)
    }

    fn piece(&self, number: u64, rows_per_batch: u64) -> Result<RecordBatch, SuiteError> {
        let failed = |source| SuiteError::Batch { table: self.name, source };
        // Numbers of pieces are small: 460,000 at the largest scale.
        let (part, parts) = (number as i32 + 1, self.pieces(rows_per_batch) as i32);
        let rows = match (self.make)(self.scale, part, parts).next() {
            Some(rows) => rows.map_err(failed)?,
            None => RecordBatch::new_empty(Arc::clone(&self.schema)),
        };
        columns::stored(&rows, &self.schema).map_err(failed)
    }
}
