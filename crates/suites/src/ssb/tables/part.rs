//! Table part: 200,000 · (1 + ⌊log2 scale⌋) rows from scale 1 up.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, SchemaRef};

use super::{RowGenerator, Table, keys, shared_schema};
use crate::{
    columns::{code8, code8_field, code16, code16_field, int32, int32_field},
    random::{Digits, Purpose, Stream},
    ssb::{
        scale::Cardinalities,
        vocabulary::{
            self, BRANDS_PER_CATEGORY, CATEGORIES_PER_MANUFACTURER, COLORS, CONTAINERS,
            MANUFACTURERS, PART_TYPES, part_name_code,
        },
    },
};

const SIZE_MAX: u32 = 50;

pub(super) struct Parts {
    schema: SchemaRef,
    rows: u64,
    attributes: Stream,
    names: Stream,
    name_words: ArrayRef,
    manufacturers: ArrayRef,
    categories: ArrayRef,
    brands: ArrayRef,
    colors: ArrayRef,
    types: ArrayRef,
    containers: ArrayRef,
}

impl Parts {
    pub(super) fn new(sizes: Cardinalities, seed: u64) -> Self {
        Self {
            schema: shared_schema(vec![
                int32_field("p_partkey"),
                code16_field("p_name"),
                code8_field("p_mfgr"),
                code8_field("p_category"),
                code16_field("p_brand1"),
                code8_field("p_color"),
                code16_field("p_type"),
                int32_field("p_size"),
                code8_field("p_container"),
            ]),
            rows: sizes.parts.into(),
            attributes: Stream::new(seed, Purpose::PartAttributes),
            names: Stream::new(seed, Purpose::PartName),
            name_words: vocabulary::part_names(),
            manufacturers: vocabulary::manufacturers(),
            categories: vocabulary::categories(),
            brands: vocabulary::brands(),
            colors: vocabulary::words(&COLORS),
            types: vocabulary::part_types(),
            containers: vocabulary::containers(),
        }
    }
}

/// Three different colours: the part's own and the two of its name.
fn three_colors(mut digits: Digits) -> [u32; 3] {
    let colors = COLORS.len() as u32;
    let own = digits.below(colors);
    let mut first = digits.below(colors - 1);
    first += u32::from(first >= own);
    let mut second = digits.below(colors - 2);
    second += u32::from(second >= own.min(first));
    second += u32::from(second >= own.max(first));
    [own, first, second]
}

impl RowGenerator for Parts {
    fn table(&self) -> Table {
        Table::Part
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn columns(&self, rows: Range<u64>) -> Result<Vec<ArrayRef>, ArrowError> {
        let count = (rows.end - rows.start) as usize;
        let mut names = Vec::with_capacity(count);
        let mut manufacturers = Vec::with_capacity(count);
        let mut categories = Vec::with_capacity(count);
        let mut brands = Vec::with_capacity(count);
        let mut colors = Vec::with_capacity(count);
        let mut types = Vec::with_capacity(count);
        let mut sizes = Vec::with_capacity(count);
        let mut containers = Vec::with_capacity(count);
        for row in rows.clone() {
            let mut digits = self.attributes.digits(row);
            let manufacturer = digits.below(MANUFACTURERS);
            let category = manufacturer * CATEGORIES_PER_MANUFACTURER
                + digits.below(CATEGORIES_PER_MANUFACTURER);
            let brand = category * BRANDS_PER_CATEGORY + digits.below(BRANDS_PER_CATEGORY);
            manufacturers.push(manufacturer as i8);
            categories.push(category as i8);
            brands.push(brand as i16);
            types.push(digits.below(PART_TYPES) as i16);
            sizes.push(1 + digits.below(SIZE_MAX) as i32);
            containers.push(digits.below(CONTAINERS) as i8);
            let [own, first, second] = three_colors(self.names.digits(row));
            colors.push(own as i8);
            names.push(part_name_code(first, second) as i16);
        }
        Ok(vec![
            int32(keys(&rows)),
            code16(names, &self.name_words)?,
            code8(manufacturers, &self.manufacturers)?,
            code8(categories, &self.categories)?,
            code16(brands, &self.brands)?,
            code8(colors, &self.colors)?,
            code16(types, &self.types)?,
            int32(sizes),
            code8(containers, &self.containers)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_colors_differ_and_all_occur() {
        let stream = Stream::new(5, Purpose::PartName);
        let mut seen = [[0_u32; 92]; 3];
        for row in 0..92_000 {
            let [a, b, c] = three_colors(stream.digits(row));
            assert!(a != b && a != c && b != c);
            for (position, color) in [a, b, c].into_iter().enumerate() {
                seen[position][color as usize] += 1;
            }
        }
        // 1000 expected in each cell, standard deviation 31.
        assert!(seen.iter().flatten().all(|n| (830..1170).contains(n)));
    }
}
