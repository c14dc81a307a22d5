//! Values of fixed width as they lie in files: for whoever wants nothing but them, in memory of his own.

use std::ops::Range;
use std::sync::Arc;

use headrace_io::{ReadAt, SourceFile};
use headrace_ir::Encoding;

use super::table::ArrowTable;
use super::types::ir_type;
use crate::error::{FormatError, Result};

impl ArrowTable {
    /// Bytes of a value of a column whose values lie one behind the other in every file: of fixed width, as wide as their
    /// type, none of them NULL.
    ///
    /// # Errors
    /// Why the column is none, with the remedy.
    pub fn plain_bytes(&self, column: usize) -> std::result::Result<usize, String> {
        self.column_support(column)?;
        let data_type = self.schema().field(column).data_type();
        let width = ir_type(data_type).and_then(|data_type| data_type.plain_width_bytes());
        let width =
            width.ok_or_else(|| format!("values of type {data_type} have no fixed width"))?;
        for (file, source) in self.files().iter().enumerate() {
            self.check_plain((file, 0..source.batches()), column, width)?;
        }
        Ok(width)
    }

    /// Why values of such a width do not lie plain in some batches of a file.
    fn check_plain(
        &self,
        (file, mut batches): (usize, Range<usize>),
        column: usize,
        width: usize,
    ) -> std::result::Result<(), String> {
        let (source, fields) = (&self.files()[file], &self.fields[file]);
        let path = source.path().display();
        let Some(&field) = fields.get(column) else {
            return Err(format!("{path} does not have it: the name of its folder tells"));
        };
        let lie = source.schema.places[field].lie.as_ref();
        if lie.is_none_or(|lie| lie.encoding != Encoding::Plain || lie.row_bits != 8 * width as u64)
        {
            return Err(format!(
                "its values are packed in {path}; headrace convert without --packed and --narrow writes them plain"
            ));
        }
        match batches.find(|batch| source.may_have_nulls(*batch, field)) {
            None => Ok(()),
            Some(batch) => Err(format!(
                "it has NULLs in record batch {batch} of {path}; COPY (SELECT coalesce(..) ..) TO a file without"
            )),
        }
    }

    /// Where the values of some rows of a record batch lie: the file, and their bytes there.
    ///
    /// # Errors
    /// [`FormatError::Argument`]: there are no such rows, or the column does not lie so.
    pub fn plain_extent(
        &self,
        (file, batch): (usize, usize),
        column: usize,
        rows: Range<u64>,
    ) -> Result<(Arc<SourceFile>, Range<u64>)> {
        let argument = |cause: String| FormatError::Argument(cause);
        let field = self.schema().fields().get(column);
        let width = field.and_then(|field| ir_type(field.data_type())?.plain_width_bytes());
        let width = width.ok_or_else(|| argument(format!("column {column} has no fixed width")))?;
        let Some(source) = self.files().get(file).filter(|file| batch < file.batches()) else {
            return Err(argument(format!("record batch {batch} of file {file}")));
        };
        self.check_plain((file, batch..batch + 1), column, width).map_err(argument)?;
        let count = rows.end.checked_sub(rows.start);
        let (Some(count), true) = (count, rows.end <= source.batch_rows(batch)) else {
            return Err(argument(format!("rows {rows:?} of {}", source.batch_rows(batch))));
        };
        if count == 0 {
            return Ok((source.source(), 0..0));
        }
        let field = self.fields[file][column];
        let values = source.extents(batch, field, (rows.start, count), None);
        let values =
            values.ok_or_else(|| argument(format!("column {column} is not read in place")))?;
        let first = values.values.offset;
        Ok((source.source(), first..first.saturating_add(count.saturating_mul(width as u64))))
    }

    /// Copies the values of some rows of a record batch, as they lie; the file may have changed since, which
    /// [`check_unchanged`](Self::check_unchanged) tells afterwards.
    ///
    /// # Errors
    /// Those of [`plain_extent`](Self::plain_extent), [`FormatError::Argument`] if `into` has another length, and those of
    /// reading.
    pub fn read_plain(
        &self,
        place: (usize, usize),
        column: usize,
        rows: Range<u64>,
        into: &mut [u8],
    ) -> Result<()> {
        let (source, bytes) = self.plain_extent(place, column, rows)?;
        if bytes.end - bytes.start != into.len() as u64 {
            let cause = format!("{} bytes of values in {}", bytes.end - bytes.start, into.len());
            return Err(FormatError::Argument(cause));
        }
        if into.is_empty() {
            return Ok(());
        }
        Ok(source.read_exact_at(bytes.start, into)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use arrow_array::{
        ArrayRef, FixedSizeBinaryArray, Float32Array, Int64Array, RecordBatch, StringArray,
    };

    use super::*;
    use crate::arrow::{ArrowWriter, WriterOptions};

    fn write(path: &Path, batch: &RecordBatch) {
        let options = WriterOptions { rows_per_batch: 128, statistics: true };
        let mut writer = ArrowWriter::create(path, &batch.schema(), options).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
    }

    #[test]
    fn rows_come_as_they_lie_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.arrow");
        let bits = (0..300u16).map(|i| [i as u8, (i >> 8) as u8, 7]);
        let columns: [(&str, ArrayRef); 5] = [
            ("x", Arc::new(Float32Array::from_iter_values((0..300).map(|i| i as f32 / 4.0)))),
            ("b", Arc::new(FixedSizeBinaryArray::try_from_iter(bits).unwrap())),
            ("n", Arc::new(Int64Array::from_iter((0..300).map(|i| (i != 200).then_some(i))))),
            ("t", Arc::new(StringArray::from_iter_values((0..300).map(|i| i.to_string())))),
            ("none", Arc::new(Int64Array::from_iter((0..300).map(Some)))),
        ];
        write(&path, &RecordBatch::try_from_iter(columns).unwrap());
        let table = ArrowTable::open(&[path]).unwrap();
        let widths: Vec<_> = (0..5).map(|column| table.plain_bytes(column).ok()).collect();
        assert_eq!(widths, [Some(4), Some(3), None, None, Some(8)]);
        assert!(table.plain_bytes(2).unwrap_err().contains("NULLs in record batch 1"));
        let mut floats = vec![0; 5 * 4];
        table.read_plain((0, 1), 0, 70..75, &mut floats).unwrap();
        let wanted: Vec<u8> = (198..203).flat_map(|i| (i as f32 / 4.0).to_le_bytes()).collect();
        assert_eq!(floats, wanted);
        let mut bits = [0; 6];
        table.read_plain((0, 2), 1, 42..44, &mut bits).unwrap();
        assert_eq!(bits, [42, 1, 7, 43, 1, 7]);
        table.read_plain((0, 2), 1, 44..44, &mut []).unwrap();
        for (at, column, rows, bytes) in [
            ((0, 2), 1, 43..45, 6),
            ((0, 3), 1, 0..1, 3),
            ((1, 0), 1, 0..1, 3),
            ((0, 0), 1, 0..2, 3),
            ((0, 1), 2, 0..1, 8),
            ((0, 0), 9, 0..1, 8),
        ] {
            let read = table.read_plain(at, column, rows, &mut vec![0; bytes]);
            assert!(matches!(read, Err(FormatError::Argument(_))), "{at:?} {column}");
        }
    }
}
