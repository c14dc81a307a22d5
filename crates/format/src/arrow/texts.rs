//! Text columns of a record batch whose values stay in the file until their rows are needed.
//!
//! Checked bytes are copied first, and a record batch may contain more text than memory.

use std::ops::Range;

use arrow_array::{ArrayRef, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;
use headrace_ir::Extent;

/// A column of texts.
#[derive(Debug)]
pub(super) struct StoredTexts {
    data_type: DataType,
    validity: Option<Buffer>,
    /// The start of each text among the values, and the end of the last one.
    offsets: Vec<i64>,
    values: Extent,
}

/// Whether a column's texts can stay in the file; others have views or other meanings.
pub(super) fn are_texts(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8)
}

impl StoredTexts {
    /// For the buffers of this many rows.
    ///
    /// # Errors
    /// Invalid offsets.
    pub fn new(
        data_type: &DataType,
        rows: usize,
        (validity, offsets, values): (Option<Buffer>, &Buffer, Extent),
    ) -> Result<Self, String> {
        let count = if offsets.is_empty() && rows == 0 { 0 } else { rows.saturating_add(1) };
        let offsets: Vec<i64> = match data_type {
            DataType::Utf8 => {
                let (of_four, _) = offsets.as_chunks();
                of_four.iter().take(count).map(|b| i64::from(i32::from_le_bytes(*b))).collect()
            }
            _ => {
                let (of_eight, _) = offsets.as_chunks();
                of_eight.iter().take(count).map(|b| i64::from_le_bytes(*b)).collect()
            }
        };
        if offsets.len() < count {
            return Err(format!("{} offsets for {rows} rows of {data_type}", offsets.len()));
        }
        let last = offsets.last().copied().unwrap_or(0);
        let is_within = u64::try_from(last).is_ok_and(|last| last <= values.bytes);
        if !is_within || offsets.first().is_some_and(|first| *first < 0) || !offsets.is_sorted() {
            let bytes = values.bytes;
            return Err(format!(
                "offsets of {data_type} are out of order, or beyond {bytes} bytes"
            ));
        }
        Ok(Self { data_type: data_type.clone(), validity, offsets, values })
    }

    /// The bytes of the texts of rows.
    pub fn extent(&self, rows: &Range<usize>) -> Extent {
        let [begin, end] = [rows.start, rows.end].map(|row| self.offset(row));
        Extent { offset: self.values.offset + begin, bytes: end - begin }
    }

    /// Start of a row's text among all.
    pub fn offset(&self, row: usize) -> u64 {
        self.offsets.get(row).map_or(0, |offset| offset.unsigned_abs())
    }

    /// The rows, from the bytes of their [extent](Self::extent).
    ///
    /// # Errors
    /// Invalid text.
    pub fn rows(&self, rows: &Range<usize>, values: Buffer) -> Result<ArrayRef, String> {
        let begin = self.offsets.get(rows.start).copied().unwrap_or(0);
        let offsets = self.offsets.get(rows.start..=rows.end).unwrap_or(&[0]);
        let offsets = offsets.iter().map(|offset| offset - begin);
        let offsets = match self.data_type {
            DataType::Utf8 => {
                let offsets = offsets.map(i32::try_from).collect::<Result<Vec<_>, _>>();
                Buffer::from_vec(offsets.map_err(|e| e.to_string())?)
            }
            _ => Buffer::from_vec(offsets.collect::<Vec<_>>()),
        };
        let validity = self.validity.as_ref();
        let validity = validity.map(|bits| bits.bit_slice(rows.start, rows.len()));
        let data = ArrayData::builder(self.data_type.clone())
            .len(rows.len())
            .null_bit_buffer(validity)
            .add_buffer(offsets)
            .add_buffer(values);
        data.build().map(make_array).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::{Array, LargeStringArray, StringArray};

    use super::*;

    /// The texts of an array as stored in a file that has nothing else.
    fn stored(data: &ArrayData) -> (StoredTexts, Vec<u8>) {
        let (offsets, values) = (&data.buffers()[0], data.buffers()[1].to_vec());
        let extent = Extent { offset: 0, bytes: values.len() as u64 };
        let validity = data.nulls().map(|nulls| nulls.inner().sliced());
        let buffers = (validity, offsets, extent);
        (StoredTexts::new(data.data_type(), data.len(), buffers).unwrap(), values)
    }

    fn assert_any_rows(whole: &dyn Array) {
        let (texts, values) = stored(&whole.to_data());
        for start in 0..=whole.len() {
            for end in start..=whole.len() {
                let Extent { offset, bytes } = texts.extent(&(start..end));
                let own = values[offset as usize..(offset + bytes) as usize].to_vec();
                let rows = texts.rows(&(start..end), Buffer::from_vec(own)).unwrap();
                assert_eq!(rows.to_data(), whole.slice(start, end - start).to_data());
            }
        }
    }

    #[test]
    fn any_rows_are_those_of_the_whole() {
        let texts: Vec<_> = (0..11).map(|i| (i % 3 != 0).then(|| "ä".repeat(i))).collect();
        assert_any_rows(&StringArray::from(texts.clone()));
        assert_any_rows(&LargeStringArray::from(texts));
        assert_any_rows(&StringArray::from(Vec::<&str>::new()));
    }

    #[test]
    fn offsets_that_are_none_are_refused_and_so_is_what_is_no_text() {
        let of = |offsets: &[i32], rows: usize| {
            let offsets = Buffer::from_vec(offsets.to_vec());
            let values = Extent { offset: 0, bytes: 4 };
            StoredTexts::new(&DataType::Utf8, rows, (None, &offsets, values))
        };
        assert!(of(&[0, 2, 4], 2).is_ok());
        for (wrong, rows) in [(&[0, 2, 5][..], 2), (&[0, 3, 2], 2), (&[-1, 2, 4], 2), (&[0, 2], 2)]
        {
            assert!(of(wrong, rows).is_err(), "{wrong:?}");
        }
        let texts = of(&[0, 2, 4], 2).unwrap();
        // Two bytes of a letter, each in a text of its own.
        let cut = of(&[0, 1, 4], 2).unwrap();
        assert!(texts.rows(&(0..1), Buffer::from_vec("ä".as_bytes().to_vec())).is_ok());
        assert!(cut.rows(&(0..1), Buffer::from_vec(vec![0xC3])).is_err());
    }
}
