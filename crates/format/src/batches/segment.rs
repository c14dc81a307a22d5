//! A batch for immediate use.

use std::fmt;

use arrow_array::RecordBatch;
use headrace_ir::Segment;

use super::column::Column;
use crate::error::{FormatError, Result};

/// A batch as one segment over its own memory, all columns in order. Values and text are used in
/// place; the [module](super) lists what is copied.
pub struct BatchSegment {
    segment: Segment,
    columns: Vec<Column>,
}

impl fmt::Debug for BatchSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchSegment({} rows)", self.segment.rows)
    }
}

impl BatchSegment {
    /// The segment of a batch that a decoder made ([`SegmentDecoder`](crate::SegmentDecoder)).
    ///
    /// # Errors
    /// A column of a type that pipelines do not know, more rows than fit a segment.
    pub fn of(batch: &RecordBatch) -> Result<Self> {
        let too_many = |_| FormatError::Argument("a batch of more than 2^31 rows".to_string());
        let rows = i32::try_from(batch.num_rows()).map_err(too_many)?.unsigned_abs();
        let fields = batch.schema_ref().fields().iter().zip(batch.columns());
        let columns = fields.map(|(field, array)| Column::in_place(field.name(), array));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let extents = columns.iter().map(|column| column.extents(0, rows.into())).collect();
        let segment = Segment { file: 0, batch: 0, first_row: 0, rows, columns: extents };
        Ok(Self { segment, columns })
    }

    /// The encodings of its columns.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Its buffers, in the order of [`Segment::extents`].
    pub fn buffers(&self) -> impl Iterator<Item = &[u8]> {
        self.columns.iter().flat_map(Column::buffers).map(|buffer| buffer.as_slice())
    }
}
