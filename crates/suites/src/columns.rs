//! Arrow columns from generated values: fields, dictionary arrays, text.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray,
    types::{ArrowDictionaryKeyType, Int8Type, Int16Type},
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};

/// A column of 32-bit integers.
pub(crate) fn int32_field(name: &str) -> Field {
    Field::new(name, DataType::Int32, false)
}

/// A column of text with few repetitions.
pub(crate) fn text_field(name: &str) -> Field {
    Field::new(name, DataType::Utf8, false)
}

/// A column of text from a list of at most 100 values.
pub(crate) fn code8_field(name: &str) -> Field {
    code_field(name, DataType::Int8)
}

/// A column of text from a list of at most 30,000 values.
pub(crate) fn code16_field(name: &str) -> Field {
    code_field(name, DataType::Int16)
}

fn code_field(name: &str, code: DataType) -> Field {
    Field::new(name, DataType::Dictionary(Box::new(code), Box::new(DataType::Utf8)), false)
}

pub(crate) fn int32(values: Vec<i32>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}

/// Rows in the types that a table stores.
pub(crate) fn stored(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = rows.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| arrow_cast::cast(column, field.data_type()));
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)
}

/// Dictionary column with 8-bit codes into `words`.
pub(crate) fn code8(
    codes: impl Into<ScalarBuffer<i8>>,
    words: &ArrayRef,
) -> Result<ArrayRef, ArrowError> {
    coded::<Int8Type>(codes.into(), words)
}

/// Dictionary column with 16-bit codes into `words`.
pub(crate) fn code16(
    codes: impl Into<ScalarBuffer<i16>>,
    words: &ArrayRef,
) -> Result<ArrayRef, ArrowError> {
    coded::<Int16Type>(codes.into(), words)
}

fn coded<K: ArrowDictionaryKeyType>(
    codes: ScalarBuffer<K::Native>,
    words: &ArrayRef,
) -> Result<ArrayRef, ArrowError> {
    let codes = arrow_array::PrimitiveArray::<K>::new(codes, None);
    Ok(Arc::new(DictionaryArray::try_new(codes, Arc::clone(words))?))
}

/// A text column that is built by appending bytes, without an allocation per row.
pub(crate) struct TextBuilder {
    bytes: Vec<u8>,
    offsets: Vec<i32>,
}

impl TextBuilder {
    /// Room for `rows` values of `bytes_per_row` bytes each.
    pub(crate) fn with_capacity(rows: usize, bytes_per_row: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { bytes: Vec::with_capacity(rows * bytes_per_row), offsets }
    }

    /// Appends to the value under construction.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
    }

    /// Appends `value` in decimal, with leading zeros up to `width` digits.
    pub(crate) fn push_number(&mut self, value: u32, width: usize) {
        let mut digits = [b'0'; 10];
        let mut rest = value;
        let mut first = digits.len();
        while rest > 0 || digits.len() - first < width {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.bytes.extend_from_slice(&digits[first..]);
    }

    /// Ends the value under construction.
    pub(crate) fn end_value(&mut self) -> Result<(), ArrowError> {
        let end = i32::try_from(self.bytes.len())
            .map_err(|_| ArrowError::OffsetOverflowError(self.bytes.len()))?;
        self.offsets.push(end);
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<ArrayRef, ArrowError> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        Ok(Arc::new(StringArray::try_new(offsets, Buffer::from_vec(self.bytes), None)?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::cast::AsArray;

    use super::*;

    #[test]
    fn numbers_are_padded_not_cut() {
        let mut text = TextBuilder::with_capacity(3, 10);
        for (value, width) in [(7, 3), (12_345, 3), (0, 1), (u32::MAX, 2)] {
            text.push_number(value, width);
            text.end_value().unwrap();
        }
        let array = text.finish().unwrap();
        let values: Vec<_> = array.as_string::<i32>().iter().flatten().collect();
        assert_eq!(values, ["007", "12345", "0", "4294967295"]);
    }
}
