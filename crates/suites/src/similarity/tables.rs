//! The tables, in pieces.

use std::{ops::Range, sync::Arc};

use arrow_array::{
    ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Int32Array, Int64Array,
    RecordBatch,
};
use arrow_buffer::Buffer;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};

use crate::{
    SuiteError,
    error::check_scale,
    random::{Purpose, Stream},
    write::{TableGenerator, piece_of},
};

const ROWS_PER_SCALE: f64 = 1_000_000.0;
const ROWS_PER_PIECE: u64 = 1 << 14;
/// Bytes of a fingerprint.
const BYTES: usize = 128;
/// Floats of an embedding.
const ITEMS: usize = 64;
/// Bits of a family's fingerprints, and bits of a compound alone, which may coincide.
const FAMILY_BITS: u64 = 32;
const OWN_BITS: u64 = 24;

/// The tables of one scale and seed.
pub(crate) fn tables(scale: f64, seed: u64) -> Result<Vec<Box<dyn TableGenerator>>, SuiteError> {
    check_scale(scale)?;
    let rows = (ROWS_PER_SCALE * scale).round() as u64;
    let model = Model {
        rows,
        families: 1 + rows / 256,
        family: Stream::new(seed, Purpose::CompoundFamily),
        own: Stream::new(seed, Purpose::Compound),
    };
    Ok(vec![
        Box::new(Table::new(Content::Embedding, model)),
        Box::new(Table::new(Content::Compound, model)),
    ])
}

/// What rows are made of.
#[derive(Clone, Copy)]
struct Model {
    rows: u64,
    families: u64,
    family: Stream,
    own: Stream,
}

/// Draws that a row or a family has.
const DRAWS: u64 = 128;

impl Model {
    fn family_of(&self, row: u64) -> u64 {
        self.own.draw(row * DRAWS) % self.families
    }

    fn fingerprint(&self, row: u64) -> [u8; BYTES] {
        let mut bits = [0; BYTES];
        let mut set = |draw: u64| bits[(draw >> 3) as usize % BYTES] |= 1 << (draw & 7);
        let family = self.family_of(row);
        // Two bits of a draw leave a family's bit out of a compound.
        let left_out = [self.own.draw(row * DRAWS + 1), self.own.draw(row * DRAWS + 2)];
        for bit in 0..FAMILY_BITS {
            if (left_out[0] & left_out[1]) >> bit & 1 == 0 {
                set(self.family.draw(family * DRAWS + bit) >> 16);
            }
        }
        for bit in 0..OWN_BITS {
            set(self.own.draw(row * DRAWS + 3 + bit) >> 16);
        }
        bits
    }

    fn embedding(&self, row: u64) -> impl Iterator<Item = f32> + '_ {
        let family = self.family_of(row);
        (0..ITEMS as u64).map(move |item| {
            let of_family = signed(self.family.draw(family * DRAWS + 64 + item));
            of_family + 0.25 * signed(self.own.draw(row * DRAWS + 64 + item))
        })
    }
}

/// A float in -1..1, of 24 bits.
fn signed(draw: u64) -> f32 {
    ((draw >> 40) as f32 - (1 << 23) as f32) / (1 << 23) as f32
}

#[derive(Clone, Copy)]
enum Content {
    Compound,
    Embedding,
}

struct Table {
    content: Content,
    model: Model,
    schema: SchemaRef,
}

fn item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float32, false))
}

impl Table {
    fn new(content: Content, model: Model) -> Self {
        let id = Field::new("id", DataType::Int64, false);
        let fields = match content {
            Content::Compound => vec![
                id,
                Field::new("family", DataType::Int32, false),
                Field::new("fp", DataType::FixedSizeBinary(BYTES as i32), false),
            ],
            Content::Embedding => {
                let list = DataType::FixedSizeList(item(), ITEMS as i32);
                vec![id, Field::new("v", list, false)]
            }
        };
        Self { content, model, schema: Arc::new(Schema::new(fields)) }
    }

    fn columns(&self, rows: Range<u64>) -> Result<Vec<ArrayRef>, ArrowError> {
        let model = &self.model;
        let ids: ArrayRef =
            Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row as i64)));
        Ok(match self.content {
            Content::Compound => {
                let families = rows.clone().map(|row| model.family_of(row) as i32);
                let bits: Vec<u8> = rows.flat_map(|row| model.fingerprint(row)).collect();
                let bits =
                    FixedSizeBinaryArray::try_new(BYTES as i32, Buffer::from_vec(bits), None)?;
                vec![ids, Arc::new(Int32Array::from_iter_values(families)), Arc::new(bits)]
            }
            Content::Embedding => {
                let floats: Vec<f32> = rows.flat_map(|row| model.embedding(row)).collect();
                let floats = Arc::new(Float32Array::from(floats));
                vec![
                    ids,
                    Arc::new(FixedSizeListArray::try_new(item(), ITEMS as i32, floats, None)?),
                ]
            }
        })
    }
}

impl TableGenerator for Table {
    fn name(&self) -> &'static str {
        match self.content {
            Content::Compound => "compound",
            Content::Embedding => "embedding",
        }
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn rows(&self) -> u64 {
        self.model.rows
    }

    fn pieces(&self, _rows_per_batch: u64) -> u64 {
        self.rows().div_ceil(ROWS_PER_PIECE)
    }

    fn piece(&self, number: u64, _rows_per_batch: u64) -> Result<RecordBatch, SuiteError> {
        piece_of(self, (number, ROWS_PER_PIECE), |rows| self.columns(rows))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn families_are_more_alike_than_chance() {
        let model = Model {
            rows: 10_000,
            families: 40,
            family: Stream::new(1, Purpose::CompoundFamily),
            own: Stream::new(1, Purpose::Compound),
        };
        let tanimoto = |a: u64, b: u64| {
            let (a, b) = (model.fingerprint(a), model.fingerprint(b));
            let ones = |of: fn(u8, u8) -> u8| -> u32 {
                a.iter().zip(&b).map(|(&a, &b)| of(a, b).count_ones()).sum()
            };
            f64::from(ones(|a, b| a & b)) / f64::from(ones(|a, b| a | b))
        };
        let (mut kin, mut others) = (Vec::new(), Vec::new());
        for row in 1..1_000 {
            let is_kin = model.family_of(row) == model.family_of(0);
            if is_kin { &mut kin } else { &mut others }.push(tanimoto(0, row));
        }
        assert!(kin.len() > 10, "{}", kin.len());
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
        assert!(mean(&kin) > 0.2 && mean(&others) < 0.1, "{} {}", mean(&kin), mean(&others));
        assert!(model.embedding(7).all(|item| (-1.25..1.25).contains(&item)));
    }
}
