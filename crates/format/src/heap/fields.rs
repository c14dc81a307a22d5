//! Fields of documents as columns: their texts, and casts of these.
//!
//! A cast is done only if its meaning is certain to be PostgreSQL's: integers of digits and a sign, decimals without
//! an exponent, `true` and `false`. Everything else is rerouted, for the server to decide.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray,
};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::ArrowError;

use super::jsonb::{self, JsonbType};
use super::pieces::Pieces;

/// A text as an integer.
pub fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_whole = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_whole.then(|| text.parse().ok()).flatten()
}

/// A text as a float: not an overflow or underflow.
pub fn float(text: &str) -> Option<f64> {
    let is_plain =
        text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
    let value: f64 = text.parse().ok().filter(|_| is_plain && !text.starts_with('+'))?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = mantissa.bytes().all(|byte| !matches!(byte, b'1'..=b'9'));
    (value.is_finite() && (value != 0.0 || is_zero)).then_some(value)
}

/// A text as a boolean.
pub fn truth(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// A text as a decimal of this type, with its display scale.
pub fn decimal(text: &str, precision: u8, scale: i8) -> Option<(i128, u8)> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, behind) = match digits.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (digits, ""),
    };
    let is_digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(behind) {
        return None;
    }
    let shown = u8::try_from(behind.len()).ok()?;
    let more = u32::try_from(i32::from(scale) - i32::from(shown)).ok()?;
    let unscaled: i128 = format!("{whole}{behind}").parse().ok()?;
    let magnitude = unscaled.checked_mul(10_i128.checked_pow(more)?)?;
    let fits = magnitude < 10_i128.checked_pow(precision.into())?;
    fits.then_some((if digits.len() < text.len() { -magnitude } else { magnitude }, shown))
}

/// A column of fields.
#[derive(Debug)]
pub(super) struct FieldColumn {
    pub of: JsonbType,
    values: FieldValues,
    /// Validity.
    found: NullBufferBuilder,
    /// The current text.
    text: Vec<u8>,
}

#[derive(Debug)]
enum FieldValues {
    Text(Pieces),
    Integer(Vec<i64>),
    Float(Vec<f64>),
    Bool(Vec<bool>),
    Number(Vec<i128>),
    DigitsShown(Vec<i32>),
}

/// Why a field is not taken.
pub(super) enum Refused {
    Flaw(&'static str),
    Full,
}

const OTHER: Refused = Refused::Flaw("a jsonb field is not what it is cast to");

fn cast<T: Default>(is_there: bool, value: impl FnOnce() -> Option<T>) -> Result<T, Refused> {
    if is_there { value().ok_or(OTHER) } else { Ok(T::default()) }
}

impl FieldColumn {
    pub(super) fn new(of: JsonbType) -> Self {
        let values = match of {
            JsonbType::Text => FieldValues::Text(Pieces::new()),
            JsonbType::Integer => FieldValues::Integer(Vec::new()),
            JsonbType::Float => FieldValues::Float(Vec::new()),
            JsonbType::Bool => FieldValues::Bool(Vec::new()),
            JsonbType::Number { .. } => FieldValues::Number(Vec::new()),
            JsonbType::DigitsShown { .. } => FieldValues::DigitsShown(Vec::new()),
        };
        Self { of, values, found: NullBufferBuilder::new(0), text: Vec::new() }
    }

    /// Bytes of the values of this many rows.
    pub(super) fn values_bytes(&self, rows: usize) -> usize {
        match &self.values {
            FieldValues::Text(texts) => rows * size_of::<i32>() + texts.bytes_len(),
            _ => rows * size_of::<i128>(),
        }
    }

    /// Appends the field at the end of a path.
    pub(super) fn push(&mut self, document: Option<&[u8]>, path: &[String]) -> Result<(), Refused> {
        self.text.clear();
        let text = &mut self.text;
        let read = |document| jsonb::text(document, path, text);
        let is_there = document.map_or(Ok(false), read).map_err(Refused::Flaw)?;
        // Checked to be UTF-8 where it was read.
        let text = std::str::from_utf8(&self.text).map_err(|_| OTHER)?;
        match (&mut self.values, self.of) {
            (FieldValues::Text(texts), _) => texts.push(text.as_bytes()).ok_or(Refused::Full)?,
            (FieldValues::Integer(all), _) => all.push(cast(is_there, || integer(text))?),
            (FieldValues::Float(all), _) => all.push(cast(is_there, || float(text))?),
            (FieldValues::Bool(all), _) => all.push(cast(is_there, || truth(text))?),
            (FieldValues::Number(all), JsonbType::Number { precision, scale }) => {
                all.push(cast(is_there, || {
                    decimal(text, precision, scale).map(|(value, _)| value)
                })?);
            }
            (FieldValues::DigitsShown(all), JsonbType::DigitsShown { most }) => {
                let shown = || decimal(text, 38, most as i8).map(|(_, shown)| i32::from(shown));
                all.push(cast(is_there, shown)?);
            }
            _ => return Err(OTHER),
        }
        self.found.append(is_there);
        Ok(())
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            FieldValues::Text(texts) => texts.truncate(rows),
            FieldValues::Integer(values) => values.truncate(rows),
            FieldValues::Float(values) => values.truncate(rows),
            FieldValues::Bool(values) => values.truncate(rows),
            FieldValues::Number(values) => values.truncate(rows),
            FieldValues::DigitsShown(values) => values.truncate(rows),
        }
        self.found.truncate(rows);
    }

    pub(super) fn into_array(mut self) -> Result<ArrayRef, ArrowError> {
        let valid = self.found.finish();
        Ok(match (self.values, self.of) {
            (FieldValues::Text(texts), _) => {
                let (offsets, bytes) = texts.into_buffers(&mut Vec::new());
                Arc::new(StringArray::try_new(offsets, bytes, valid)?)
            }
            (FieldValues::Integer(values), _) => {
                Arc::new(Int64Array::try_new(values.into(), valid)?)
            }
            (FieldValues::Float(values), _) => {
                Arc::new(Float64Array::try_new(values.into(), valid)?)
            }
            (FieldValues::Bool(values), _) => Arc::new(BooleanArray::new(values.into(), valid)),
            (FieldValues::Number(values), JsonbType::Number { precision, scale }) => Arc::new(
                Decimal128Array::try_new(values.into(), valid)?
                    .with_precision_and_scale(precision, scale)?,
            ),
            (FieldValues::Number(values), _) => {
                Arc::new(Decimal128Array::try_new(values.into(), valid)?)
            }
            (FieldValues::DigitsShown(values), _) => {
                Arc::new(Int32Array::try_new(values.into(), valid)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{decimal, float, integer, truth};

    #[test]
    fn texts_are_cast_where_nothing_else_can_be_meant() {
        assert_eq!(["0", "-12", "007"].map(integer), [Some(0), Some(-12), Some(7)]);
        for text in ["", "-", "+1", " 1", "1.0", "1e2", "0x1", "1_000", "9223372036854775808", "٣"]
        {
            assert_eq!(integer(text), None, "{text}");
        }
        assert_eq!(
            ["1.5", "-2e3", "0", "0.000e99"].map(float),
            [Some(1.5), Some(-2000.0), Some(0.0), Some(0.0)]
        );
        assert!(float("-0").is_some_and(|zero| zero.is_sign_negative()));
        for text in ["", "nan", "inf", "infinity", "1e999", "1e-999", "+1", " 1", "0x1p3"] {
            assert_eq!(float(text), None, "{text}");
        }
        assert_eq!(
            ["true", "false", "t", "TRUE", ""].map(truth),
            [Some(true), Some(false), None, None, None]
        );
        assert_eq!(decimal("12.50", 38, 10), Some((125_000_000_000, 2)));
        assert_eq!(decimal("-0.1", 10, 1), Some((-1, 1)));
        assert_eq!(decimal("7", 3, 2), Some((700, 0)));
        for text in [
            "", "-", ".", ".5", "1.", "1e2", "NaN", "Infinity", "1.234", "10", "--1", "1.2.3", "+1",
        ] {
            assert_eq!(decimal(text, 3, 2), None, "{text}");
        }
    }
}
