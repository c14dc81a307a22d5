//! SQL value types, independent of how the values lie in memory (see [`crate::layout`]).

use serde::{Deserialize, Serialize};

/// Resolution of a time or timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimeUnit {
    /// 1 s.
    Second,
    /// 10^-3 s.
    Millisecond,
    /// 10^-6 s.
    Microsecond,
    /// 10^-9 s.
    Nanosecond,
}

/// The type of a value.
///
/// A type says nothing of encoding: `Utf8` is text whether it lies as plain bytes, views or
/// dictionary codes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DataType {
    /// Truth value.
    Bool,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 8 bits.
    UInt8,
    /// Unsigned, 16 bits.
    UInt16,
    /// Unsigned, 32 bits.
    UInt32,
    /// Unsigned, 64 bits.
    UInt64,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
    /// `unscaled * 10^-scale` with at most `precision` decimal digits (<= 38).
    Decimal128 {
        /// Decimal digits, 1 to 38.
        precision: u8,
        /// Digits after the point; may be negative.
        scale: i8,
    },
    /// Days since 1970-01-01.
    Date32,
    /// Units since midnight.
    Time64(TimeUnit),
    /// Units since 1970-01-01T00:00:00, UTC if a time zone is named, local otherwise.
    Timestamp {
        /// Resolution.
        unit: TimeUnit,
        /// IANA name or offset; `None` for a timestamp without time zone.
        timezone: Option<String>,
    },
    /// Text, UTF-8, compared by bytes.
    Utf8,
    /// Bytes of any length.
    Binary,
    /// Bytes of one length, such as fingerprints.
    FixedBinary(u32),
    /// So many floats of one width, none of them NULL: a vector. A constant of it is [`Value::Binary`](crate::Value),
    /// its floats little-endian one after the other.
    FloatList {
        /// Bytes a float, 4 or 8.
        item_bytes: u8,
        /// Floats a value.
        items: u32,
    },
}

impl DataType {
    /// Signed or unsigned integer (dates and times are not).
    pub fn is_integer(&self) -> bool {
        self.is_signed_integer()
            || matches!(self, Self::UInt8 | Self::UInt16 | Self::UInt32 | Self::UInt64)
    }

    /// Signed integer.
    pub fn is_signed_integer(&self) -> bool {
        matches!(self, Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64)
    }

    /// Float32 or Float64.
    pub fn is_float(&self) -> bool {
        matches!(self, Self::Float32 | Self::Float64)
    }

    /// Integer, float or decimal.
    pub fn is_numeric(&self) -> bool {
        self.is_integer() || self.is_float() || matches!(self, Self::Decimal128 { .. })
    }

    /// Bytes of one plain value; `None` for bool (a bit) and variable-length types.
    pub fn plain_width_bytes(&self) -> Option<usize> {
        Some(match self {
            Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 | Self::Date32 => 4,
            Self::Int64
            | Self::UInt64
            | Self::Float64
            | Self::Time64(_)
            | Self::Timestamp { .. } => 8,
            Self::Decimal128 { .. } => 16,
            Self::FixedBinary(bytes) => *bytes as usize,
            Self::FloatList { item_bytes, items } => usize::from(*item_bytes) * *items as usize,
            Self::Bool | Self::Utf8 | Self::Binary => return None,
        })
    }

    /// Whether a cast to another type can fail for some bit pattern of this type. Digits that a
    /// decimal declares are a claim: nobody checks them where values are read.
    pub fn cast_can_fail(&self, to: &DataType) -> bool {
        if self == to || (self.is_numeric() && to.is_float()) {
            return false;
        }
        match to {
            Self::Decimal128 { precision, scale } if self.is_integer() => {
                i32::from(*precision) - i32::from(*scale) < self.integer_digits()
            }
            _ if self.is_integer() && to.is_integer() => !to.holds_all_of(self),
            _ => true,
        }
    }

    /// Most decimal digits of an integer.
    fn integer_digits(&self) -> i32 {
        match self {
            Self::Int8 | Self::UInt8 => 3,
            Self::Int16 | Self::UInt16 => 5,
            Self::Int32 | Self::UInt32 => 10,
            Self::Int64 => 19,
            _ => 20,
        }
    }

    /// Whether every value of another integer type is one of this integer type.
    fn holds_all_of(&self, other: &DataType) -> bool {
        match (other.integer_range(), self.integer_range()) {
            (Some((low, high)), Some((min, max))) => min <= low && high <= max,
            // UInt64 alone has no range.
            (Some((low, _)), None) => low >= 0,
            (None, _) => false,
        }
    }

    /// Smallest and largest value as integers, for types whose values are integers that
    /// fit 64 bits signed (dates and times included).
    pub fn integer_range(&self) -> Option<(i64, i64)> {
        Some(match self {
            Self::Int8 => (i8::MIN.into(), i8::MAX.into()),
            Self::Int16 => (i16::MIN.into(), i16::MAX.into()),
            Self::Int32 | Self::Date32 => (i32::MIN.into(), i32::MAX.into()),
            Self::Int64 | Self::Time64(_) | Self::Timestamp { .. } => (i64::MIN, i64::MAX),
            Self::UInt8 => (0, u8::MAX.into()),
            Self::UInt16 => (0, u16::MAX.into()),
            Self::UInt32 => (0, u32::MAX.into()),
            _ => return None,
        })
    }
}

/// A named, typed column.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Field {
    /// Column name as the table has it.
    pub name: String,
    /// Type of its values.
    pub data_type: DataType,
    /// Whether NULL may occur.
    pub nullable: bool,
}

impl Field {
    /// A column.
    pub fn new(name: impl Into<String>, data_type: DataType, nullable: bool) -> Self {
        Self { name: name.into(), data_type, nullable }
    }
}

/// Columns in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schema {
    /// The columns.
    pub fields: Vec<Field>,
}
