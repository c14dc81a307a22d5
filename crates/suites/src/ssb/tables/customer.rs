//! Table customer: 30,000 rows a unit of scale.

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
        vocabulary::{self, CITIES_PER_NATION, MARKET_SEGMENTS, NATIONS, REGIONS},
    },
};

pub(super) struct Customers {
    schema: SchemaRef,
    rows: u64,
    attributes: Stream,
    phones: Stream,
    addresses: Stream,
    cities: ArrayRef,
    nations: ArrayRef,
    regions: ArrayRef,
    segments: ArrayRef,
}

impl Customers {
    pub(super) fn new(sizes: Cardinalities, seed: u64) -> Self {
        Self {
            schema: shared_schema(vec![
                int32_field("c_custkey"),
                text_field("c_name"),
                text_field("c_address"),
                code16_field("c_city"),
                code8_field("c_nation"),
                code8_field("c_region"),
                text_field("c_phone"),
                code8_field("c_mktsegment"),
            ]),
            rows: sizes.customers.into(),
            attributes: Stream::new(seed, Purpose::CustomerAttributes),
            phones: Stream::new(seed, Purpose::CustomerPhone),
            addresses: Stream::new(seed, Purpose::CustomerAddress),
            cities: vocabulary::cities(),
            nations: vocabulary::nations(),
            regions: vocabulary::words(&REGIONS),
            segments: vocabulary::words(&MARKET_SEGMENTS),
        }
    }
}

impl RowGenerator for Customers {
    fn table(&self) -> Table {
        Table::Customer
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
        let mut segments = Vec::with_capacity(count);
        for row in rows.clone() {
            let mut digits = self.attributes.digits(row);
            let nation = digits.below(NATIONS.len() as u32);
            cities.push((nation * CITIES_PER_NATION + digits.below(CITIES_PER_NATION)) as i16);
            nations.push(nation as i8);
            regions.push(NATIONS[nation as usize].1 as i8);
            segments.push(digits.below(MARKET_SEGMENTS.len() as u32) as i8);
            names.push(b"Customer#");
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
            code8(segments, &self.segments)?,
        ])
    }
}
