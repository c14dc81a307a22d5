//! From a column of a file to the column of a batch.

use std::sync::Arc;

use arrow_schema::DataType;
use parquet::basic::Type as Physical;
use parquet::schema::types::ColumnDescriptor;

use super::codes::{Codes, Dictionary};
use super::fixed::{Fixed, Stored};
use super::texts::Texts;
use super::values::Values;

/// What is made of a column's values.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// Values of so many bytes, in a type of a batch.
    Fixed { stored: Stored, bytes: usize, data_type: DataType },
    /// Text, or bytes.
    Bytes { is_text: bool },
}

impl Target {
    /// Whether it is text, which a dictionary may stand for.
    pub fn is_text(&self) -> bool {
        *self == Self::Bytes { is_text: true }
    }

    /// For values that are of one type in a file, and are to be of another in a table: they may differ in how values
    /// lie, not in what they are.
    ///
    /// # Errors
    /// Why they are not read here.
    pub fn of(
        column: &ColumnDescriptor,
        own: &DataType,
        wanted: &DataType,
    ) -> Result<Self, String> {
        if column.max_rep_level() > 0
            || column.max_def_level() > 1
            || column.path().parts().len() > 1
        {
            return Err("it is nested".to_string());
        }
        let physical = column.physical_type();
        let other = || Err(format!("{own} in {physical} becomes {wanted}"));
        let data_type = plain_type(wanted);
        if plain_type(own) != data_type {
            return other();
        }
        let bytes = usize::try_from(column.type_length()).unwrap_or(0);
        let (stored, data_type) = match (physical, data_type) {
            (Physical::BOOLEAN, it @ DataType::Boolean) => (Stored::Bit, it),
            (Physical::FLOAT, it @ DataType::Float32) => (Stored::Four, it),
            (Physical::DOUBLE, it @ DataType::Float64) => (Stored::Eight, it),
            (_, DataType::Decimal128(precision, scale)) => {
                let stored = match physical {
                    Physical::INT32 => Stored::Four,
                    Physical::INT64 => Stored::Eight,
                    Physical::FIXED_LEN_BYTE_ARRAY if (1..=16).contains(&bytes) => {
                        Stored::BigEndian(bytes)
                    }
                    _ => return other(),
                };
                let data_type = match stored {
                    Stored::Four | Stored::BigEndian(1..=4) => {
                        DataType::Decimal32(precision, scale)
                    }
                    Stored::Eight | Stored::BigEndian(5..=8) => {
                        DataType::Decimal64(precision, scale)
                    }
                    _ => DataType::Decimal128(precision, scale),
                };
                (stored, data_type)
            }
            (Physical::INT32, it) if is_integer(&it) && it.primitive_width() <= Some(4) => {
                (Stored::Four, it)
            }
            (Physical::INT64, it) if is_integer(&it) && it.primitive_width() == Some(8) => {
                (Stored::Eight, it)
            }
            (Physical::BYTE_ARRAY, DataType::Utf8) => return Ok(Self::Bytes { is_text: true }),
            (Physical::BYTE_ARRAY, DataType::Binary) => return Ok(Self::Bytes { is_text: false }),
            _ => return other(),
        };
        Ok(Self::Fixed { stored, bytes: data_type.primitive_width().unwrap_or(1), data_type })
    }

    /// What reads them; texts as codes of a dictionary, if there is one.
    pub fn values(&self, dictionary: Option<&Arc<Dictionary>>) -> Box<dyn Values> {
        if let Some(dictionary) = dictionary {
            return Box::new(Codes::new(Arc::clone(dictionary)));
        }
        match self {
            Self::Bytes { is_text } => Box::new(Texts::new(*is_text)),
            Self::Fixed { stored, bytes, data_type } => {
                let (stored, data_type) = (*stored, data_type.clone());
                match bytes {
                    1 => Box::new(Fixed::<i8>::new(stored, data_type)),
                    2 => Box::new(Fixed::<i16>::new(stored, data_type)),
                    4 => Box::new(Fixed::<i32>::new(stored, data_type)),
                    8 => Box::new(Fixed::<i64>::new(stored, data_type)),
                    _ => Box::new(Fixed::<i128>::new(stored, data_type)),
                }
            }
        }
    }
}

impl Target {
    /// What reads whole numbers as differences from one, of 1, 2 or 4 bytes.
    pub fn deltas(&self, base: i64, delta_bytes: u8) -> Box<dyn Values> {
        let Self::Fixed { stored, data_type, .. } = self else { return self.values(None) };
        let (stored, data_type) = (*stored, data_type.clone());
        match delta_bytes {
            1 => Box::new(Fixed::<u8>::from_base(stored, data_type, base)),
            2 => Box::new(Fixed::<u16>::from_base(stored, data_type, base)),
            _ => Box::new(Fixed::<u32>::from_base(stored, data_type, base)),
        }
    }
}

fn is_integer(data_type: &DataType) -> bool {
    let is_time =
        matches!(data_type, DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(_, _));
    is_time || data_type.is_integer()
}

/// The type of values however they lie.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        other => other.clone(),
    }
}
