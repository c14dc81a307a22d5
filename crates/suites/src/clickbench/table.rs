//! The table, in pieces.

use std::{ops::Range, sync::Arc};

use arrow_array::{
    ArrayRef, Date32Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use super::{
    columns::{COLUMNS, Values},
    hit::{Hit, Model, Own},
};
use crate::{
    SuiteError,
    columns::{TextBuilder, code8, code8_field},
    error::check_scale,
    write::{TableGenerator, piece_of},
};

const ROWS_PER_SCALE: f64 = 1_000_000.0;
/// Rows of a piece, which are all computed before their columns.
const ROWS_PER_PIECE: u64 = 1 << 14;

/// The table of one scale and seed, computed on demand: any piece, on any thread.
pub(crate) struct Hits {
    model: Model,
    schema: SchemaRef,
    /// The list of each word column, empty for others.
    words: Vec<ArrayRef>,
}

impl Hits {
    /// # Errors
    /// [`SuiteError::Scale`] when the scale is out of range.
    pub(crate) fn new(scale: f64, seed: u64) -> Result<Self, SuiteError> {
        check_scale(scale)?;
        let words = |values: &Values| match values {
            Values::Word(words, _) => StringArray::from(words.to_vec()),
            _ => StringArray::new_null(0),
        };
        Ok(Self {
            model: Model::new((ROWS_PER_SCALE * scale).round() as u64, seed),
            schema: Arc::new(Schema::new(COLUMNS.iter().map(field).collect::<Vec<_>>())),
            words: COLUMNS.iter().map(|(_, values)| Arc::new(words(values)) as ArrayRef).collect(),
        })
    }

    fn columns(&self, rows: Range<u64>) -> Result<Vec<ArrayRef>, ArrowError> {
        let hits: Vec<Hit<'_>> = rows.map(|row| self.model.hit(row)).collect();
        let columns = COLUMNS.iter().zip(&self.words).zip(0..);
        columns.map(|(((_, values), words), number)| column(values, words, number, &hits)).collect()
    }
}

fn field((name, values): &(&str, Values)) -> Field {
    let of = |data_type| Field::new(*name, data_type, false);
    match values {
        Values::Int16(_) => of(DataType::Int16),
        Values::Int32(_) => of(DataType::Int32),
        Values::Int64(_) => of(DataType::Int64),
        Values::Time(_) => of(DataType::Timestamp(TimeUnit::Microsecond, None)),
        Values::Date(_) => of(DataType::Date32),
        Values::Word(..) => code8_field(name),
        Values::Text(..) => of(DataType::Utf8),
    }
}

/// The column of this number.
fn column(
    values: &Values,
    words: &ArrayRef,
    number: u64,
    hits: &[Hit<'_>],
) -> Result<ArrayRef, ArrowError> {
    Ok(match *values {
        Values::Int16(value) => Arc::new(Int16Array::from(each(number, hits, value))),
        Values::Int32(value) => Arc::new(Int32Array::from(each(number, hits, value))),
        Values::Int64(value) => Arc::new(Int64Array::from(each(number, hits, value))),
        Values::Time(value) => {
            let microseconds = |hit: &Hit<'_>, own| value(hit, own) * 1_000_000;
            Arc::new(TimestampMicrosecondArray::from(each(number, hits, microseconds)))
        }
        Values::Date(value) => Arc::new(Date32Array::from(each(number, hits, value))),
        Values::Word(_, word) => {
            code8(each(number, hits, |hit: &Hit<'_>, own| word(hit, own) as i8), words)?
        }
        Values::Text(bytes, push) => {
            let mut text = TextBuilder::with_capacity(hits.len(), bytes);
            for hit in hits {
                push(hit, hit.own(number), &mut text);
                text.end_value()?;
            }
            text.finish()?
        }
    })
}

fn each<T>(number: u64, hits: &[Hit<'_>], value: impl Fn(&Hit<'_>, Own) -> T) -> Vec<T> {
    hits.iter().map(|hit| value(hit, hit.own(number))).collect()
}

impl TableGenerator for Hits {
    fn name(&self) -> &'static str {
        "hits"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn rows(&self) -> u64 {
        self.model.rows()
    }

    fn pieces(&self, _rows_per_batch: u64) -> u64 {
        self.rows().div_ceil(ROWS_PER_PIECE)
    }

    fn piece(&self, number: u64, _rows_per_batch: u64) -> Result<RecordBatch, SuiteError> {
        piece_of(self, (number, ROWS_PER_PIECE), |rows| self.columns(rows))
    }
}
