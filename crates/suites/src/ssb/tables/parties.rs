//! Tables customer and supplier: 30,000 and 2,000 rows a unit of scale.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, Field, SchemaRef};

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

/// Customers, or suppliers.
pub(super) struct Parties {
    table: Table,
    /// What names begin with.
    name: &'static [u8],
    schema: SchemaRef,
    rows: u64,
    attributes: Stream,
    phones: Stream,
    addresses: Stream,
    cities: ArrayRef,
    nations: ArrayRef,
    regions: ArrayRef,
    /// Only customers have one.
    segments: Option<ArrayRef>,
}

impl Parties {
    pub(super) fn customers(sizes: Cardinalities, seed: u64) -> Self {
        use Purpose::{CustomerAddress, CustomerAttributes, CustomerPhone};
        let streams = [CustomerAttributes, CustomerPhone, CustomerAddress];
        let mut fields = fields("c", "custkey");
        fields.push(code8_field("c_mktsegment"));
        Self {
            table: Table::Customer,
            name: b"Customer#",
            segments: Some(vocabulary::words(&MARKET_SEGMENTS)),
            ..Self::new(sizes.customers, fields, streams.map(|stream| Stream::new(seed, stream)))
        }
    }

    pub(super) fn suppliers(sizes: Cardinalities, seed: u64) -> Self {
        use Purpose::{SupplierAddress, SupplierAttributes, SupplierPhone};
        let streams = [SupplierAttributes, SupplierPhone, SupplierAddress];
        let streams = streams.map(|stream| Stream::new(seed, stream));
        Self::new(sizes.suppliers, fields("s", "suppkey"), streams)
    }

    fn new(rows: u32, fields: Vec<Field>, [attributes, phones, addresses]: [Stream; 3]) -> Self {
        Self {
            table: Table::Supplier,
            name: b"Supplier#",
            schema: shared_schema(fields),
            rows: rows.into(),
            attributes,
            phones,
            addresses,
            cities: vocabulary::cities(),
            nations: vocabulary::nations(),
            regions: vocabulary::words(&REGIONS),
            segments: None,
        }
    }
}

/// The columns of both.
fn fields(prefix: &str, key: &str) -> Vec<Field> {
    let name = |of: &str| format!("{prefix}_{of}");
    vec![
        int32_field(&name(key)),
        text_field(&name("name")),
        text_field(&name("address")),
        code16_field(&name("city")),
        code8_field(&name("nation")),
        code8_field(&name("region")),
        text_field(&name("phone")),
    ]
}

impl RowGenerator for Parties {
    fn table(&self) -> Table {
        self.table
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
        let mut segments = Vec::new();
        for row in rows.clone() {
            let mut digits = self.attributes.digits(row);
            let nation = digits.below(NATIONS.len() as u32);
            cities.push((nation * CITIES_PER_NATION + digits.below(CITIES_PER_NATION)) as i16);
            nations.push(nation as i8);
            regions.push(NATIONS[nation as usize].1 as i8);
            if self.segments.is_some() {
                segments.push(digits.below(MARKET_SEGMENTS.len() as u32) as i8);
            }
            names.push(self.name);
            names.push_number((row + 1) as u32, 9);
            names.end_value()?;
            push_address(&mut addresses, self.addresses, row);
            addresses.end_value()?;
            push_phone(&mut phones, self.phones, row, nation);
            phones.end_value()?;
        }
        let mut columns = vec![
            int32(keys(&rows)),
            names.finish()?,
            addresses.finish()?,
            code16(cities, &self.cities)?,
            code8(nations, &self.nations)?,
            code8(regions, &self.regions)?,
            phones.finish()?,
        ];
        if let Some(words) = &self.segments {
            columns.push(code8(segments, words)?);
        }
        Ok(columns)
    }
}
