//! Table supplier: 2,000 rows a unit of scale.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, SchemaRef};

use super::{RowGenerator, Table, keys, shared_schema};
use crate::{
    columns::{
        TextBuilder, code8, code8_field, code16, code16_field, int32, int32_field, text_field,
    },
    random::{Purpose, Stream},
    ssb::{
        contact::{push_address, push_phone},
        scale::Cardinalities,
        vocabulary::{self, CITIES_PER_NATION, NATIONS, REGIONS},
    },
};

pub(super) struct Suppliers {
    schema: SchemaRef,
    rows: u64,
    attributes: Stream,
    phones: Stream,
    addresses: Stream,
    cities: ArrayRef,
    nations: ArrayRef,
    regions: ArrayRef,
}

impl Suppliers {
    pub(super) fn new(sizes: Cardinalities, seed: u64) -> Self {
        Self {
            schema: shared_schema(vec![
                int32_field("s_suppkey"),
                text_field("s_name"),
                text_field("s_address"),
                code16_field("s_city"),
                code8_field("s_nation"),
                code8_field("s_region"),
                text_field("s_phone"),
            ]),
            rows: sizes.suppliers.into(),
            attributes: Stream::new(seed, Purpose::SupplierAttributes),
            phones: Stream::new(seed, Purpose::SupplierPhone),
            addresses: Stream::new(seed, Purpose::SupplierAddress),
            cities: vocabulary::cities(),
            nations: vocabulary::nations(),
            regions: vocabulary::words(&REGIONS),
        }
    }
}

impl RowGenerator for Suppliers {
    fn table(&self) -> Table {
        Table::Supplier
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn columns(&self, rows: Range<u64>) -> Result<Vec<ArrayRef>, ArrowError> {
        let count = (rows.end - rows.start) as usize;
        let mut names = TextBuilder::with_capacity(count, 18);
        let mut addresses = TextBuilder::with_capacity(count, 16);
        let mut phones = TextBuilder::with_capacity(count, 15);
        let mut cities = Vec::with_capacity(count);
        let mut nations = Vec::with_capacity(count);
        let mut regions = Vec::with_capacity(count);
        for row in rows.clone() {
            let mut digits = self.attributes.digits(row);
            let nation = digits.below(NATIONS.len() as u32);
            cities.push((nation * CITIES_PER_NATION + digits.below(CITIES_PER_NATION)) as i16);
            nations.push(nation as i8);
            regions.push(NATIONS[nation as usize].1 as i8);
            names.push(b"Supplier#");
            names.push_number((row + 1) as u32, 9);
            names.end_value()?;
            push_address(&mut addresses, self.addresses, row);
            addresses.end_value()?;
            push_phone(&mut phones, self.phones, row, nation);
            phones.end_value()?;
        }
        Ok(vec![
            int32(keys(&rows)),
            names.finish()?,
            addresses.finish()?,
            code16(cities, &self.cities)?,
            code8(nations, &self.nations)?,
            code8(regions, &self.regions)?,
            phones.finish()?,
        ])
    }
}
