//! The 24 tables, in pieces.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use tpcdsgen::config::{Session, SessionBuilder, Table as Name};
use tpcdsgen_arrow::{
    CallCenterArrow, CatalogPageArrow, CatalogReturnsArrow, CatalogSalesArrow,
    CustomerAddressArrow, CustomerArrow, CustomerDemographicsArrow, DateDimArrow,
    HouseholdDemographicsArrow, IncomeBandArrow, InventoryArrow, ItemArrow, PromotionArrow,
    ReasonArrow, ShipModeArrow, StoreArrow, StoreReturnsArrow, StoreSalesArrow, TimeDimArrow,
    WarehouseArrow, WebPageArrow, WebReturnsArrow, WebSalesArrow, WebSiteArrow,
};

use crate::{SuiteError, columns, error::check_scale, write::TableGenerator};

/// Rows of a piece.
const ROWS_PER_PIECE: u64 = 1 << 15;
/// Tickets or orders of a piece of sales, and of a piece of returns.
const ORDERS_PER_PIECE: u64 = 1 << 13;

/// Makes a piece: units from the first to the last, counted from 1.
type MakePiece = fn(Session, u64, u64) -> Box<dyn RecordBatchReader>;

/// The generator of a table.
struct Source {
    name: Name,
    schema: SchemaRef,
    make: MakePiece,
}

/// One table.
struct Table {
    session: Session,
    source: Source,
    /// The written columns.
    schema: SchemaRef,
    /// The unit of its pieces: rows, or the tickets or orders of the lines.
    units: u64,
}

/// All tables, in the order of [`crate::Suite::tables`].
///
/// # Errors
/// [`SuiteError::Scale`] when the scale is out of range.
pub(crate) fn tables(scale: f64) -> Result<Vec<Box<dyn TableGenerator>>, SuiteError> {
    check_scale(scale)?;
    let session = SessionBuilder::new().with_scale_factor(scale).build();
    let session = session.map_err(|_| SuiteError::Scale { scale })?;
    Ok(sources()
        .into_iter()
        .map(|source| {
            let units = session.get_scaling().get_row_count(counted_by(source.name));
            let schema = stored(&source.schema);
            let session = session.clone();
            Box::new(Table { session, source, schema, units }) as Box<dyn TableGenerator>
        })
        .collect())
}

fn sources() -> [Source; 24] {
    macro_rules! source {
        ($name:ident, $arrow:ident) => {
            Source {
                name: Name::$name,
                schema: $arrow::schema_ref(),
                make: |session, first, last| {
                    let rows = $arrow::new(session).with_source_row_range(first, last);
                    Box::new(rows.with_batch_size(usize::MAX))
                },
            }
        };
    }
    [
        source!(CallCenter, CallCenterArrow),
        source!(CatalogPage, CatalogPageArrow),
        source!(Customer, CustomerArrow),
        source!(CustomerAddress, CustomerAddressArrow),
        source!(CustomerDemographics, CustomerDemographicsArrow),
        source!(DateDim, DateDimArrow),
        source!(HouseholdDemographics, HouseholdDemographicsArrow),
        source!(IncomeBand, IncomeBandArrow),
        source!(Item, ItemArrow),
        source!(Promotion, PromotionArrow),
        source!(Reason, ReasonArrow),
        source!(ShipMode, ShipModeArrow),
        source!(Store, StoreArrow),
        source!(TimeDim, TimeDimArrow),
        source!(Warehouse, WarehouseArrow),
        source!(WebPage, WebPageArrow),
        source!(WebSite, WebSiteArrow),
        source!(Inventory, InventoryArrow),
        source!(WebReturns, WebReturnsArrow),
        source!(WebSales, WebSalesArrow),
        source!(CatalogReturns, CatalogReturnsArrow),
        source!(CatalogSales, CatalogSalesArrow),
        source!(StoreReturns, StoreReturnsArrow),
        source!(StoreSales, StoreSalesArrow),
    ]
}

/// The table whose number of rows is that of the table's units: returns are found by walking the sales.
fn counted_by(name: Name) -> Name {
    match name {
        Name::StoreReturns => Name::StoreSales,
        Name::CatalogReturns => Name::CatalogSales,
        Name::WebReturns => Name::WebSales,
        other => other,
    }
}

/// Approximate lines of ten orders, and the number of returned ones.
const fn lines_of_ten_orders(name: Name) -> Option<u64> {
    match name {
        Name::StoreSales | Name::WebSales => Some(120),
        Name::CatalogSales => Some(90),
        Name::StoreReturns | Name::WebReturns => Some(12),
        Name::CatalogReturns => Some(9),
        _ => None,
    }
}

/// The written columns.
fn stored(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8View => field.as_ref().clone().with_data_type(DataType::Utf8),
        _ => field.as_ref().clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

impl Table {
    fn units_per_piece(&self) -> u64 {
        match lines_of_ten_orders(self.source.name) {
            Some(_) => ORDERS_PER_PIECE,
            None => ROWS_PER_PIECE,
        }
    }
}

impl TableGenerator for Table {
    fn name(&self) -> &'static str {
        self.source.name.get_name()
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn rows(&self) -> u64 {
        lines_of_ten_orders(self.source.name).map_or(self.units, |lines| self.units * lines / 10)
    }

    fn pieces(&self, _rows_per_batch: u64) -> u64 {
        self.units.div_ceil(self.units_per_piece())
    }

    fn piece(&self, number: u64, _rows_per_batch: u64) -> Result<RecordBatch, SuiteError> {
        let failed = |source| SuiteError::Batch { table: self.name(), source };
        let before = number * self.units_per_piece();
        let last = self.units.min(before + self.units_per_piece());
        match (self.source.make)(self.session.clone(), before + 1, last).next() {
            Some(rows) => {
                rows.and_then(|rows| columns::stored(&rows, &self.schema)).map_err(failed)
            }
            // Of a few orders nothing may be returned.
            None => Ok(RecordBatch::new_empty(self.schema())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Suite;

    #[test]
    fn tables_have_the_suite_s_order() {
        let tables = tables(0.001).unwrap();
        let names: Vec<_> = tables.iter().map(|table| table.name()).collect();
        assert_eq!(names, Suite::Tpcds.tables());
    }
}
