//! How values are held.

use std::sync::Arc;

use arrow_array::StringArray;
use headrace_ir::DataType;

/// The distinct values of a dictionary-encoded column of a whole table, sorted by bytes, none
/// NULL, none twice. Code `i` stands for `values[i]`, so codes compare as their texts do. Only the dictionary of a build's
/// column that is passed on ([`headrace_ir::PassedOn`]) has texts in any order, and some twice: its codes are not compared.
#[derive(Debug)]
pub struct Dictionary {
    /// Values by code.
    pub values: StringArray,
}

/// Most bytes of a value that is held as bytes.
pub const BYTES_MAX: usize = 1 << 16;

/// How a value is held while a pipeline runs.
#[derive(Clone, Debug)]
pub enum Repr {
    /// Truth value.
    Bool,
    /// Signed integers, dates, times.
    I8,
    /// 16 bits.
    I16,
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
    /// Unsigned integers.
    U8,
    /// 16 bits.
    U16,
    /// 32 bits.
    U32,
    /// 64 bits.
    U64,
    /// binary32.
    F32,
    /// binary64.
    F64,
    /// Unscaled decimal.
    I128,
    /// Text by bytes.
    Str,
    /// So many bytes.
    Bytes(usize),
    /// Text as `i32` code of a sorted dictionary: order and equality of codes are those of
    /// the texts, within one dictionary.
    Code(Arc<Dictionary>),
}

impl Repr {
    /// How values of a type are held when they are not dictionary codes; `None` for types
    /// that no processor takes yet.
    pub fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Bool => Self::Bool,
            DataType::Int8 => Self::I8,
            DataType::Int16 => Self::I16,
            DataType::Int32 | DataType::Date32 => Self::I32,
            DataType::Int64 | DataType::Time64(_) | DataType::Timestamp { .. } => Self::I64,
            DataType::UInt8 => Self::U8,
            DataType::UInt16 => Self::U16,
            DataType::UInt32 => Self::U32,
            DataType::UInt64 => Self::U64,
            DataType::Float32 => Self::F32,
            DataType::Float64 => Self::F64,
            DataType::Decimal128 { .. } => Self::I128,
            DataType::Utf8 => Self::Str,
            DataType::FixedBinary(_) | DataType::FloatList { .. } => {
                Self::Bytes(data_type.plain_width_bytes().filter(|bytes| *bytes <= BYTES_MAX)?)
            }
            DataType::Binary => return None,
        })
    }

    /// Whether values are integers that fit 64 bits signed (codes and truth values included).
    pub fn is_integer_like(&self) -> bool {
        use Repr::{Bytes, F32, F64, I128, Str, U64};
        !matches!(self, U64 | F32 | F64 | I128 | Str | Bytes(_))
    }

    /// Whether two registers can be compared as they are held.
    pub fn same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Code(a), Self::Code(b)) => Arc::ptr_eq(a, b),
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}
