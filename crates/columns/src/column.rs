//! Owned columns: what rows and builds are gathered in, and how they turn into Arrow arrays.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType as ArrowType, Schema, TimeUnit as ArrowUnit};
use headrace_io::huge;
use headrace_ir::{DataType, Field, TimeUnit};

use crate::ColumnError;
use crate::convert::empty_data;
use crate::repr::Repr;
use crate::vector::{Data, Vector};

/// The Arrow type of output columns of a type: plain, text as `Utf8`.
pub fn arrow_type(data_type: &DataType) -> ArrowType {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => ArrowUnit::Second,
        TimeUnit::Millisecond => ArrowUnit::Millisecond,
        TimeUnit::Microsecond => ArrowUnit::Microsecond,
        TimeUnit::Nanosecond => ArrowUnit::Nanosecond,
    };
    match data_type {
        DataType::Bool => ArrowType::Boolean,
        DataType::Int8 => ArrowType::Int8,
        DataType::Int16 => ArrowType::Int16,
        DataType::Int32 => ArrowType::Int32,
        DataType::Int64 => ArrowType::Int64,
        DataType::UInt8 => ArrowType::UInt8,
        DataType::UInt16 => ArrowType::UInt16,
        DataType::UInt32 => ArrowType::UInt32,
        DataType::UInt64 => ArrowType::UInt64,
        DataType::Float32 => ArrowType::Float32,
        DataType::Float64 => ArrowType::Float64,
        DataType::Decimal128 { precision, scale } => ArrowType::Decimal128(*precision, *scale),
        DataType::Date32 => ArrowType::Date32,
        DataType::Time64(u) => ArrowType::Time64(unit(u)),
        DataType::Timestamp { unit: u, timezone } => {
            ArrowType::Timestamp(unit(u), timezone.as_deref().map(Arc::from))
        }
        DataType::Utf8 => ArrowType::Utf8,
        DataType::Binary => ArrowType::Binary,
        DataType::FixedBinary(bytes) => ArrowType::FixedSizeBinary(*bytes as i32),
        DataType::FloatList { item_bytes, items } => {
            let item = if *item_bytes == 4 { ArrowType::Float32 } else { ArrowType::Float64 };
            ArrowType::new_fixed_size_list(item, *items as i32, true)
        }
    }
}

/// The Arrow field of an output column.
pub fn arrow_field(field: &Field) -> arrow_schema::Field {
    arrow_schema::Field::new(&field.name, arrow_type(&field.data_type), field.nullable)
}

enum Values {
    Fixed(Data<'static>),
    Text { offsets: Vec<usize>, bytes: String },
    Bytes { width: usize, bytes: Vec<u8> },
}

/// A column that grows.
pub struct Column {
    repr: Repr,
    values: Values,
    validity: Option<Vec<u8>>,
    rows: usize,
}

macro_rules! append {
    ($into:expr, $from:expr, $($variant:ident),*) => {
        match ($into, $from) {
            $((Data::$variant(into), Data::$variant(from)) => {
                let into = into.to_mut();
                huge::reserve(into, from.len());
                into.extend_from_slice(from);
                Ok(())
            })*
            _ => Err(ColumnError::Internal("columns of different representations".into())),
        }
    };
}

impl Column {
    /// An empty column.
    pub fn new(repr: Repr) -> Result<Self, ColumnError> {
        let values = match repr {
            Repr::Str => Values::Text { offsets: vec![0], bytes: String::new() },
            Repr::Bytes(width) => Values::Bytes { width, bytes: Vec::new() },
            _ => Values::Fixed(empty_data(&repr, 0)?),
        };
        Ok(Self { repr, values, validity: None, rows: 0 })
    }

    /// How values are held.
    pub fn repr(&self) -> &Repr {
        &self.repr
    }

    /// A vector's rows.
    pub fn of(repr: Repr, vector: &Vector<'_>, rows: usize) -> Result<Self, ColumnError> {
        let mut column = Self::new(repr)?;
        column.push(vector, rows)?;
        Ok(column)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether it holds texts of any length.
    pub fn is_text(&self) -> bool {
        matches!(self.values, Values::Text { .. })
    }

    /// Host bytes.
    pub fn bytes(&self) -> u64 {
        let values = match &self.values {
            Values::Fixed(data) => {
                crate::vector::with_data!(data, v => std::mem::size_of_val::<[_]>(v))
            }
            Values::Text { offsets, bytes } => std::mem::size_of_val::<[_]>(offsets) + bytes.len(),
            Values::Bytes { bytes, .. } => bytes.len(),
        };
        (values + self.validity.as_ref().map_or(0, Vec::len)) as u64
    }

    /// Appends `rows` rows.
    pub fn push(&mut self, vector: &Vector<'_>, rows: usize) -> Result<(), ColumnError> {
        let vector = vector.spelled(rows);
        match (&mut self.values, &vector.data) {
            (Values::Text { offsets, bytes }, Data::Str(texts)) => {
                huge::reserve_text(bytes, texts.iter().map(|text| text.len()).sum());
                huge::reserve(offsets, texts.len());
                for text in texts.iter() {
                    bytes.push_str(text);
                    offsets.push(bytes.len());
                }
            }
            (Values::Bytes { width, bytes }, Data::Bytes(values)) => {
                if values.iter().any(|value| value.len() != *width) {
                    return Err(ColumnError::Internal("bytes of another length".into()));
                }
                huge::reserve(bytes, *width * values.len());
                values.iter().for_each(|value| bytes.extend_from_slice(value));
            }
            (Values::Fixed(data), from) => {
                append!(data, from, Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, I128)?;
            }
            _ => return Err(ColumnError::Internal("text in a column of another kind".into())),
        }
        if vector.validity.is_some() || self.validity.is_some() {
            let validity = self.validity.get_or_insert_with(|| vec![1; self.rows]);
            match &vector.validity {
                Some(valid) => validity.extend_from_slice(valid),
                None => validity.resize(self.rows + rows, 1),
            }
        }
        self.rows += rows;
        Ok(())
    }

    /// Appends all rows of another column.
    pub fn append(&mut self, other: &Column) -> Result<(), ColumnError> {
        self.push(&other.vector(), other.rows)
    }

    /// These rows, in this order.
    pub fn take(&self, rows: &[u32]) -> Result<Self, ColumnError> {
        Self::of(self.repr.clone(), &self.vector().take(rows), rows.len())
    }

    /// The column as a vector.
    pub fn vector(&self) -> Vector<'_> {
        self.slice(0..self.rows)
    }

    /// Some of the rows as a vector.
    pub fn slice(&self, rows: Range<usize>) -> Vector<'_> {
        let data = match &self.values {
            Values::Fixed(data) => crate::vector::map_data!(data, v => &v[rows.clone()]),
            Values::Text { offsets, bytes } => {
                let ends = offsets[rows.start..=rows.end].windows(2);
                Data::Str(ends.map(|w| &bytes[w[0]..w[1]]).collect())
            }
            Values::Bytes { width, bytes } => {
                Data::Bytes(rows.clone().map(|row| &bytes[row * width..][..*width]).collect())
            }
        };
        let validity = self.validity.as_deref().map(|valid| Cow::Borrowed(&valid[rows]));
        Vector { data, validity, constant: false }
    }

    /// The text of a row, if these are texts.
    pub fn text(&self, row: usize) -> Option<&str> {
        match &self.values {
            Values::Text { offsets, bytes } => Some(&bytes[offsets[row]..offsets[row + 1]]),
            Values::Fixed(_) | Values::Bytes { .. } => None,
        }
    }

    /// One byte a row, 1 = not NULL; `None`: no NULLs.
    pub fn validity(&self) -> Option<&[u8]> {
        self.validity.as_deref()
    }

    /// The column as an Arrow array of [`arrow_type`].
    pub fn into_array(self, data_type: &DataType) -> Result<ArrayRef, ColumnError> {
        let repr = self.repr.clone();
        vector_array(&self.vector(), &repr, data_type, self.rows)
    }
}

/// A vector as an Arrow array of [`arrow_type`]; codes are decoded.
pub fn vector_array(
    vector: &Vector<'_>,
    repr: &Repr,
    data_type: &DataType,
    rows: usize,
) -> Result<ArrayRef, ColumnError> {
    let vector = vector.spelled(rows);
    let nulls = vector
        .validity
        .as_deref()
        .map(|valid| NullBuffer::new(BooleanBuffer::collect_bool(rows, |i| valid[i] != 0)));
    if let Repr::Code(dictionary) = repr {
        let texts = crate::convert::decode(&vector, dictionary)?;
        return vector_array(&texts, &Repr::Str, data_type, rows);
    }
    let target = arrow_type(data_type);
    Ok(match &vector.data {
        Data::Bool(values) => Arc::new(BooleanArray::new(
            BooleanBuffer::collect_bool(rows, |i| values[i] != 0),
            nulls,
        )),
        Data::I8(values) => primitive::<Int8Type>(values, nulls, target),
        Data::I16(values) => primitive::<Int16Type>(values, nulls, target),
        Data::I32(values) if target == ArrowType::Date32 => {
            primitive::<Date32Type>(values, nulls, target)
        }
        Data::I32(values) => primitive::<Int32Type>(values, nulls, target),
        Data::I64(values) => int64_array(values, nulls, target)?,
        Data::U8(values) => primitive::<UInt8Type>(values, nulls, target),
        Data::U16(values) => primitive::<UInt16Type>(values, nulls, target),
        Data::U32(values) => primitive::<UInt32Type>(values, nulls, target),
        Data::U64(values) => primitive::<UInt64Type>(values, nulls, target),
        Data::F32(values) => primitive::<Float32Type>(values, nulls, target),
        Data::F64(values) => primitive::<Float64Type>(values, nulls, target),
        Data::I128(values) => primitive::<Decimal128Type>(values, nulls, target),
        Data::Str(values) => Arc::new(text_array(values, nulls)?),
        Data::Bytes(values) => bytes_array(values, nulls, target)?,
    })
}

/// A record batch of output columns.
pub fn output_batch<'f>(
    fields: impl Iterator<Item = &'f Field>,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, ColumnError> {
    let schema = Schema::new(fields.map(arrow_field).collect::<Vec<_>>());
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
        .map_err(|e| ColumnError::Internal(format!("output batch: {e}")))
}

/// Texts of at most 2 GiB together.
pub fn text_array(texts: &[&str], nulls: Option<NullBuffer>) -> Result<StringArray, ColumnError> {
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if i32::try_from(bytes).is_err() {
        return Err(ColumnError::Internal(format!("{bytes} bytes of text in one batch or build")));
    }
    let offsets = OffsetBuffer::from_lengths(texts.iter().map(|text| text.len()));
    Ok(StringArray::new(offsets, texts.concat().into_bytes().into(), nulls))
}

/// Bytes of one length, or lists of floats.
fn bytes_array(
    values: &[&[u8]],
    nulls: Option<NullBuffer>,
    target: ArrowType,
) -> Result<ArrayRef, ColumnError> {
    let bytes = Buffer::from_vec(values.concat());
    let builder = ArrayData::builder(target.clone()).len(values.len()).nulls(nulls);
    let builder = match target {
        ArrowType::FixedSizeList(item, items) => {
            let item = ArrayData::builder(item.data_type().clone())
                .len(values.len() * items as usize)
                .add_buffer(bytes);
            builder.add_child_data(item.build().map_err(|e| ColumnError::Internal(e.to_string()))?)
        }
        _ => builder.add_buffer(bytes),
    };
    let data = builder.build().map_err(|e| ColumnError::Internal(e.to_string()))?;
    Ok(arrow_array::make_array(data))
}

fn primitive<T: ArrowPrimitiveType>(
    values: &[T::Native],
    nulls: Option<NullBuffer>,
    target: ArrowType,
) -> ArrayRef {
    let values = ScalarBuffer::from(values.to_vec());
    Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(target))
}

/// 64-bit integers, and the times and timestamps that are held as such.
fn int64_array(
    values: &[i64],
    nulls: Option<NullBuffer>,
    target: ArrowType,
) -> Result<ArrayRef, ColumnError> {
    let data = PrimitiveArray::<Int64Type>::new(ScalarBuffer::from(values.to_vec()), nulls)
        .into_data()
        .into_builder()
        .data_type(target)
        .build()
        .map_err(|e| ColumnError::Internal(e.to_string()))?;
    Ok(arrow_array::make_array(data))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_ir_type_comes_back() {
        let mut types = vec![
            DataType::Bool,
            DataType::Int8,
            DataType::Int16,
            DataType::Int32,
            DataType::Int64,
            DataType::UInt8,
            DataType::UInt16,
            DataType::UInt32,
            DataType::UInt64,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal128 { precision: 12, scale: 2 },
            DataType::Date32,
            DataType::Utf8,
            DataType::Binary,
            DataType::FixedBinary(16),
            DataType::FloatList { item_bytes: 4, items: 3 },
            DataType::FloatList { item_bytes: 8, items: 1 },
        ];
        for unit in
            [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond]
        {
            types.push(DataType::Time64(unit));
            types.push(DataType::Timestamp { unit, timezone: None });
            types.push(DataType::Timestamp { unit, timezone: Some("Europe/Paris".into()) });
        }
        for data_type in types {
            assert_eq!(
                headrace_format::arrow::ir_type(&arrow_type(&data_type)).unwrap(),
                data_type
            );
        }
    }
}
