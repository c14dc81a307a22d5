//! Constants.

use serde::{Deserialize, Serialize};

use crate::types::DataType;

/// A constant without its type. Integers, dates, times and timestamps are `Int`; `UInt64`
/// above `i64::MAX` is why `Int` is 128 bits wide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// Truth value.
    Bool(bool),
    /// Integer, date, time, timestamp; or the unscaled value of a decimal.
    Int(i128),
    /// Float of either width.
    Float(f64),
    /// Text.
    Utf8(String),
    /// Bytes.
    Binary(Vec<u8>),
}

/// A typed constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scalar {
    /// Its type.
    pub data_type: DataType,
    /// Its value.
    pub value: Value,
}

impl Scalar {
    /// A typed constant.
    pub fn new(data_type: DataType, value: Value) -> Self {
        Self { data_type, value }
    }

    /// NULL of a type.
    pub fn null(data_type: DataType) -> Self {
        Self::new(data_type, Value::Null)
    }

    /// Text.
    pub fn utf8(text: impl Into<String>) -> Self {
        Self::new(DataType::Utf8, Value::Utf8(text.into()))
    }

    /// An integer of the given integer, date or time type.
    pub fn int(data_type: DataType, value: i128) -> Self {
        Self::new(data_type, Value::Int(value))
    }

    /// A truth value.
    pub fn bool(value: bool) -> Self {
        Self::new(DataType::Bool, Value::Bool(value))
    }

    /// Whether this is NULL.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }
}
