//! The tables, in pieces.

use std::{ops::Range, sync::Arc};

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use crate::{
    SuiteError,
    columns::{code8, code8_field, int32, int32_field, text_field},
    error::check_scale,
    random::{Purpose, Stream},
    write::{TableGenerator, piece_of},
};

/// Rows of the large table at scale 1.
pub const ROWS_PER_SCALE: f64 = 100_000_000.0;
const SMALL_ROWS: u64 = 100_000;
const ROWS_PER_PIECE: u64 = 1 << 16;
const VALUES: u32 = 1_000_000;

/// The tables of one scale and seed.
pub(crate) fn tables(scale: f64, seed: u64) -> Result<Vec<Box<dyn TableGenerator>>, SuiteError> {
    check_scale(scale)?;
    Ok(vec![
        Box::new(Small::new(seed)),
        Box::new(Large::new((ROWS_PER_SCALE * scale).round() as u64, seed)),
    ])
}

/// `t0`.
struct Large {
    rows: u64,
    stream: Stream,
    categories: ArrayRef,
    schema: SchemaRef,
}

impl Large {
    fn new(rows: u64, seed: u64) -> Self {
        let words = ('a'..='z').map(|letter| letter.to_string().repeat(3));
        let fields = vec![
            Field::new("id", DataType::Int64, false),
            code8_field("cat"),
            int32_field("aid"),
            Field::new("bx", DataType::Float64, false),
        ];
        Self {
            rows,
            stream: Stream::new(seed, Purpose::JoinLarge),
            categories: Arc::new(StringArray::from_iter_values(words)),
            schema: Arc::new(Schema::new(fields)),
        }
    }

    fn columns(&self, rows: Range<u64>) -> Result<Vec<ArrayRef>, ArrowError> {
        let count = (rows.end - rows.start) as usize;
        let (mut categories, mut keys) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut floats = Vec::with_capacity(count);
        for row in rows.clone() {
            let mut digits = self.stream.digits(row);
            categories.push(digits.below(self.categories.len() as u32) as i8);
            keys.push(1 + digits.below(SMALL_ROWS as u32) as i32);
            floats.push(f64::from(digits.below(1 << 20)) / f64::from(1 << 20));
        }
        let ids = Int64Array::from_iter_values(rows.map(|row| row as i64));
        Ok(vec![
            Arc::new(ids),
            code8(categories, &self.categories)?,
            int32(keys),
            Arc::new(Float64Array::from(floats)),
        ])
    }
}

impl TableGenerator for Large {
    fn name(&self) -> &'static str {
        "t0"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn pieces(&self, _rows_per_batch: u64) -> u64 {
        self.rows.div_ceil(ROWS_PER_PIECE)
    }

    fn piece(&self, number: u64, _rows_per_batch: u64) -> Result<RecordBatch, SuiteError> {
        piece_of(self, (number, ROWS_PER_PIECE), |rows| self.columns(rows))
    }
}

/// `t1`.
struct Small {
    stream: Stream,
    schema: SchemaRef,
}

impl Small {
    fn new(seed: u64) -> Self {
        let fields = vec![int32_field("aid"), text_field("atext"), int32_field("ax")];
        Self {
            stream: Stream::new(seed, Purpose::JoinSmall),
            schema: Arc::new(Schema::new(fields)),
        }
    }
}

impl TableGenerator for Small {
    fn name(&self) -> &'static str {
        "t1"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn rows(&self) -> u64 {
        SMALL_ROWS
    }

    fn pieces(&self, _rows_per_batch: u64) -> u64 {
        SMALL_ROWS.div_ceil(ROWS_PER_PIECE)
    }

    fn piece(&self, number: u64, _rows_per_batch: u64) -> Result<RecordBatch, SuiteError> {
        piece_of(self, (number, ROWS_PER_PIECE), |rows| {
            // Two draws a row.
            let texts = rows.clone().map(|row| format!("{:016x}", self.stream.draw(2 * row)));
            let value = |row| self.stream.digits(2 * row + 1).below(VALUES) as i32;
            Ok(vec![
                int32(rows.clone().map(|row| row as i32 + 1).collect()),
                Arc::new(StringArray::from_iter_values(texts)),
                int32(rows.map(value).collect()),
            ])
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashSet;

    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int8Type, Int32Type};

    use super::*;

    #[test]
    fn every_key_is_there_and_every_category_occurs() {
        let tables = tables(0.001, 42).unwrap();
        let [small, large] = &tables[..] else { panic!("two tables") };
        assert_eq!((small.rows(), large.rows()), (100_000, 100_000));
        let pieces = |table: &dyn TableGenerator| -> Vec<RecordBatch> {
            (0..table.pieces(1)).map(|number| table.piece(number, 1).unwrap()).collect()
        };
        let keys = |table: &dyn TableGenerator, column: usize| -> Vec<i32> {
            let pieces = pieces(table);
            let values =
                pieces.iter().map(|piece| piece.column(column).as_primitive::<Int32Type>());
            values.flat_map(|column| column.values().to_vec()).collect()
        };
        assert_eq!(keys(&**small, 0), (1..=100_000).collect::<Vec<_>>());
        let found: HashSet<i32> = keys(&**large, 2).into_iter().collect();
        // Of as many draws 1 - 1/e.
        assert!((62_000..65_000).contains(&found.len()), "{}", found.len());
        assert!(found.iter().all(|key| (1..=100_000).contains(key)));
        let mut counts = [0; 26];
        for piece in pieces(&**large) {
            let codes = piece.column(1).as_dictionary::<Int8Type>().keys();
            codes.values().iter().for_each(|code| counts[*code as usize] += 1);
        }
        assert!(counts.iter().all(|count| (3500..4200).contains(count)), "{counts:?}");
    }
}
