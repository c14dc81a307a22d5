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
    /// Float of either width; serialised as its bits, since JSON has no NaN and no infinity.
    Float(#[serde(with = "float_bits")] f64),
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

    /// Whether a value of this type can be so: NULL always can.
    pub fn is_of_its_type(&self) -> bool {
        match (&self.value, &self.data_type) {
            (Value::Null, _)
            | (Value::Bool(_), DataType::Bool)
            | (Value::Utf8(_), DataType::Utf8)
            | (Value::Binary(_), DataType::Binary) => true,
            (
                Value::Binary(bytes),
                fixed @ (DataType::FixedBinary(_) | DataType::FloatList { .. }),
            ) => fixed.plain_width_bytes() == Some(bytes.len()),
            (Value::Float(_), data_type) => data_type.is_float(),
            (Value::Int(value), DataType::UInt64) => u64::try_from(*value).is_ok(),
            (Value::Int(unscaled), DataType::Decimal128 { precision, .. }) => {
                10u128.checked_pow((*precision).into()).is_none_or(|l| unscaled.unsigned_abs() < l)
            }
            (Value::Int(value), data_type) => data_type
                .integer_range()
                .is_some_and(|(min, max)| (min.into()..=max.into()).contains(value)),
            _ => false,
        }
    }

    /// Whether this is NULL.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }
}

mod float_bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_float_survives_serialisation() {
        let nan_with_payload = f64::from_bits(0xfff8_0000_0000_1234);
        for value in [f64::NAN, nan_with_payload, f64::INFINITY, -0.0, 0.1, f64::MIN_POSITIVE] {
            let scalar = Scalar::new(DataType::Float64, Value::Float(value));
            let text = serde_json::to_string(&scalar).unwrap();
            let Scalar { value: Value::Float(back), .. } = serde_json::from_str(&text).unwrap()
            else {
                panic!("{text} is no float");
            };
            assert_eq!(back.to_bits(), value.to_bits(), "{text}");
        }
    }
}
