//! Exported columns: the server's format and the Arrow type.

use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use tokio_postgres::types::{Kind, Type};

/// Digits of the widest decimal.
const PRECISION_MAX: u8 = 38;

/// The kind of a column's values, and their Arrow type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// Boolean.
    Bool,
    /// Int16.
    Int2,
    /// Int32.
    Int4,
    /// Int64.
    Int8,
    /// UInt32.
    Oid,
    /// Float32, bit for bit.
    Float4,
    /// Float64, bit for bit.
    Float8,
    /// Decimal128 of this precision and scale.
    Decimal { precision: u8, scale: i8 },
    /// Numeric without declared digits: to be measured.
    Numeric,
    /// Date32.
    Date,
    /// Time64, microseconds.
    Time,
    /// Timestamp, microseconds.
    Timestamp,
    /// Timestamp in UTC, microseconds.
    TimestampTz,
    /// Utf8.
    Text,
    /// Utf8 without trailing blanks: `char(n)`, whose comparisons ignore them.
    Padded,
    /// Binary.
    Bytes,
    /// FixedSizeBinary(16).
    Uuid,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub name: String,
    pub values: Values,
    /// Text as a dictionary.
    pub is_dictionary: bool,
    pub is_nullable: bool,
    /// The type that the server casts it to.
    pub cast: Option<&'static str>,
    /// Its type in the server.
    pub server_type: String,
}

/// The treatment of numeric without declared digits, or with more digits than Decimal128 holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumericAs {
    /// A decimal with the actual digits, which an extra query measures.
    Measured,
    /// A decimal of this precision and scale.
    Decimal(u8, i8),
    /// Text.
    Text,
    /// Float64, rounded.
    Float8,
}

impl FromStr for NumericAs {
    type Err = String;

    fn from_str(text: &str) -> Result<NumericAs, String> {
        let decimal = || {
            let (precision, scale) = text.split_once(',')?;
            let (precision, scale) =
                (precision.trim().parse().ok()?, scale.trim().parse::<u8>().ok()?);
            ((1..=PRECISION_MAX).contains(&precision) && scale <= precision)
                .then_some(NumericAs::Decimal(precision, scale as i8))
        };
        match text {
            "measured" => Ok(NumericAs::Measured),
            "text" => Ok(NumericAs::Text),
            "float8" => Ok(NumericAs::Float8),
            _ => decimal().ok_or_else(|| {
                format!("{text:?}: write measured, text, float8, or digits in all and behind the point, such as 18,4")
            }),
        }
    }
}

impl Column {
    /// A column of a query, as the server describes it.
    pub fn new(described: &tokio_postgres::Column, numeric: NumericAs) -> Column {
        let server_type = described.type_();
        let (values, cast) = read_as(server_type, described.type_modifier(), numeric);
        Column {
            name: described.name().to_string(),
            values,
            is_dictionary: matches!(server_type.kind(), Kind::Enum(_)),
            is_nullable: true,
            cast,
            server_type: server_type.name().trim_start_matches('_').to_string()
                + if matches!(server_type.kind(), Kind::Array(_)) { "[]" } else { "" },
        }
    }

    /// Whether it can be a dictionary.
    pub fn is_text(&self) -> bool {
        matches!(self.values, Values::Text | Values::Padded)
    }

    /// Its expression in a SELECT.
    pub fn selected(&self) -> String {
        match self.cast {
            Some(cast) => format!("{}::pg_catalog.{cast}", quoted(&self.name)),
            None => quoted(&self.name),
        }
    }

    /// Its Arrow type.
    pub fn arrow(&self) -> DataType {
        let text = match self.is_dictionary {
            true => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            false => DataType::Utf8,
        };
        match self.values {
            Values::Bool => DataType::Boolean,
            Values::Int2 => DataType::Int16,
            Values::Int4 => DataType::Int32,
            Values::Int8 => DataType::Int64,
            Values::Oid => DataType::UInt32,
            Values::Float4 => DataType::Float32,
            Values::Float8 => DataType::Float64,
            Values::Decimal { precision, scale } => DataType::Decimal128(precision, scale),
            // Measured before anything is read; without a row there is nothing to measure.
            Values::Numeric => DataType::Decimal128(1, 0),
            Values::Date => DataType::Date32,
            Values::Time => DataType::Time64(TimeUnit::Microsecond),
            Values::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Values::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Values::Text | Values::Padded => text,
            Values::Bytes => DataType::Binary,
            Values::Uuid => DataType::FixedSizeBinary(16),
        }
    }
}

/// The schema of a file of these columns.
pub(super) fn schema(columns: &[Column]) -> Arc<Schema> {
    let field = |column: &Column| Field::new(&column.name, column.arrow(), column.is_nullable);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// A quoted identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn read_as(
    server_type: &Type,
    modifier: i32,
    numeric: NumericAs,
) -> (Values, Option<&'static str>) {
    let values = match *server_type {
        Type::BOOL => Values::Bool,
        Type::INT2 => Values::Int2,
        Type::INT4 => Values::Int4,
        Type::INT8 => Values::Int8,
        Type::OID => Values::Oid,
        Type::FLOAT4 => Values::Float4,
        Type::FLOAT8 => Values::Float8,
        Type::NUMERIC => return numeric_as(modifier, numeric),
        Type::DATE => Values::Date,
        Type::TIME => Values::Time,
        Type::TIMESTAMP => Values::Timestamp,
        Type::TIMESTAMPTZ => Values::TimestampTz,
        Type::TEXT | Type::VARCHAR | Type::NAME => Values::Text,
        Type::BPCHAR => Values::Padded,
        Type::BYTEA => Values::Bytes,
        Type::UUID => Values::Uuid,
        // An enum's label is what is sent of it.
        _ if matches!(server_type.kind(), Kind::Enum(_)) => Values::Text,
        // Every type has a text.
        _ => return (Values::Text, Some("text")),
    };
    (values, None)
}

fn numeric_as(modifier: i32, undeclared: NumericAs) -> (Values, Option<&'static str>) {
    if let Some((precision, scale)) = declared_digits(modifier) {
        return (Values::Decimal { precision, scale }, None);
    }
    match undeclared {
        NumericAs::Measured => (Values::Numeric, None),
        NumericAs::Decimal(precision, scale) => (Values::Decimal { precision, scale }, None),
        NumericAs::Text => (Values::Text, Some("text")),
        NumericAs::Float8 => (Values::Float8, Some("float8")),
    }
}

/// Precision and scale, if a Decimal128 holds all values of such a numeric.
fn declared_digits(modifier: i32) -> Option<(u8, i8)> {
    let modifier = modifier.checked_sub(4).filter(|modifier| *modifier >= 0)?;
    let precision = modifier >> 16;
    // The scale's 11 bits have a sign; the server knows scales below 0 and above the precision.
    let scale = ((modifier & 0x7ff) ^ 1024) - 1024;
    let digits = (precision - scale.min(0)).max(scale);
    let digits = u8::try_from(digits).ok().filter(|digits| *digits <= PRECISION_MAX)?;
    Some((digits, i8::try_from(scale.max(0)).ok()?))
}

/// The statement that returns rows of those columns.
pub(super) fn select(columns: &[Column], from: &str) -> String {
    let selected: Vec<String> = columns.iter().map(Column::selected).collect();
    format!("select {} from {from}", selected.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn declared_digits_are_those_of_a_decimal_that_has_all_values() {
        let modifier = |precision: i32, scale: i32| ((precision << 16) | (scale & 0x7ff)) + 4;
        assert_eq!(declared_digits(modifier(15, 2)), Some((15, 2)));
        assert_eq!(declared_digits(modifier(38, 38)), Some((38, 38)));
        assert_eq!(declared_digits(modifier(5, -3)), Some((8, 0)));
        assert_eq!(declared_digits(modifier(3, 5)), Some((5, 5)));
        assert_eq!(declared_digits(modifier(39, 0)), None);
        assert_eq!(declared_digits(modifier(30, -9)), None);
        assert_eq!(declared_digits(-1), None);
    }

    #[test]
    fn what_becomes_of_numeric_is_written_as_digits_or_a_word() {
        assert_eq!("18,4".parse(), Ok(NumericAs::Decimal(18, 4)));
        assert_eq!("text".parse(), Ok(NumericAs::Text));
        for wrong in ["", "18", "0,0", "39,2", "4,5", "4,-1", "auto"] {
            assert!(wrong.parse::<NumericAs>().is_err(), "{wrong}");
        }
    }
}
