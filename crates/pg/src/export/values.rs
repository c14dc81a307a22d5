//! Values in the server's binary format, into Arrow builders.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, PrimitiveBuilder,
    StringBuilder, StringDictionaryBuilder,
};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimestampMicrosecondType, UInt32Type,
};

use super::columns::{Column, Values};

/// Days from 1970-01-01 to 2000-01-01, the server's epoch.
const EPOCH_DAYS: i32 = 10_957;
const DAY_MICROSECONDS: i64 = 86_400_000_000;

/// A value that Arrow's type does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    /// What it is.
    pub found: String,
    /// What to select instead; `{}` stands for the column. Empty if nothing is known.
    pub instead: &'static str,
}

type Read<T> = std::result::Result<T, Unfit>;

/// Collects the values of a column.
pub(super) trait Builder: Send {
    /// One value, as sent.
    fn append(&mut self, sent: &[u8]) -> Read<()>;
    /// A NULL.
    fn append_null(&mut self);
    /// The collected values; the builder is then empty.
    fn finish(&mut self) -> ArrayRef;
}

/// What collects a column.
pub(super) fn builder(column: &Column) -> Box<dyn Builder> {
    match column.values {
        Values::Bool => Box::new(BooleanBuilder::new()),
        Values::Int2 => plain::<Int16Type>(column, |sent| Ok(i16::from_be_bytes(bytes(sent)?))),
        Values::Int4 => plain::<Int32Type>(column, |sent| Ok(i32::from_be_bytes(bytes(sent)?))),
        Values::Int8 => plain::<Int64Type>(column, |sent| Ok(i64::from_be_bytes(bytes(sent)?))),
        Values::Oid => plain::<UInt32Type>(column, |sent| Ok(u32::from_be_bytes(bytes(sent)?))),
        Values::Float4 => plain::<Float32Type>(column, |sent| Ok(f32::from_be_bytes(bytes(sent)?))),
        Values::Float8 => plain::<Float64Type>(column, |sent| Ok(f64::from_be_bytes(bytes(sent)?))),
        Values::Decimal { precision, scale } => decimal(column, precision, scale),
        Values::Numeric => decimal(column, 1, 0),
        Values::Date => plain::<Date32Type>(column, date),
        Values::Time => plain::<Time64MicrosecondType>(column, time),
        Values::Timestamp | Values::TimestampTz => {
            plain::<TimestampMicrosecondType>(column, timestamp)
        }
        Values::Text | Values::Padded => {
            let is_padded = column.values == Values::Padded;
            match column.is_dictionary {
                true => Box::new(Text {
                    builder: StringDictionaryBuilder::<Int32Type>::new(),
                    is_padded,
                }),
                false => Box::new(Text { builder: StringBuilder::new(), is_padded }),
            }
        }
        Values::Bytes => Box::new(BinaryBuilder::new()),
        Values::Uuid => Box::new(FixedSizeBinaryBuilder::new(16)),
    }
}

struct Plain<T: ArrowPrimitiveType, R> {
    builder: PrimitiveBuilder<T>,
    read: R,
}

fn plain<T: ArrowPrimitiveType>(
    column: &Column,
    read: impl Fn(&[u8]) -> Read<T::Native> + Send + 'static,
) -> Box<dyn Builder> {
    Box::new(Plain { builder: PrimitiveBuilder::<T>::new().with_data_type(column.arrow()), read })
}

fn decimal(column: &Column, precision: u8, scale: i8) -> Box<dyn Builder> {
    plain::<Decimal128Type>(column, move |sent| numeric(sent, precision, scale))
}

impl<T: ArrowPrimitiveType, R: Fn(&[u8]) -> Read<T::Native> + Send> Builder for Plain<T, R> {
    fn append(&mut self, sent: &[u8]) -> Read<()> {
        self.builder.append_value((self.read)(sent)?);
        Ok(())
    }

    fn append_null(&mut self) {
        self.builder.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.builder.finish())
    }
}

impl Builder for BooleanBuilder {
    fn append(&mut self, sent: &[u8]) -> Read<()> {
        let [value] = bytes(sent)?;
        self.append_value(value != 0);
        Ok(())
    }

    fn append_null(&mut self) {
        self.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        ArrayBuilder::finish(self)
    }
}

impl Builder for BinaryBuilder {
    fn append(&mut self, sent: &[u8]) -> Read<()> {
        self.append_value(sent);
        Ok(())
    }

    fn append_null(&mut self) {
        self.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        ArrayBuilder::finish(self)
    }
}

impl Builder for FixedSizeBinaryBuilder {
    fn append(&mut self, sent: &[u8]) -> Read<()> {
        let value: [u8; 16] = bytes(sent)?;
        self.append_value(value).map_err(|error| unfit(error.to_string(), ""))
    }

    fn append_null(&mut self) {
        self.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        ArrayBuilder::finish(self)
    }
}

/// A builder of texts.
trait Texts: ArrayBuilder {
    fn push(&mut self, text: &str) -> Read<()>;
    fn push_null(&mut self);
}

impl Texts for StringBuilder {
    fn push(&mut self, text: &str) -> Read<()> {
        self.append_value(text);
        Ok(())
    }

    fn push_null(&mut self) {
        self.append_null();
    }
}

impl Texts for StringDictionaryBuilder<Int32Type> {
    fn push(&mut self, text: &str) -> Read<()> {
        self.append(text).map(drop).map_err(|error| unfit(error.to_string(), ""))
    }

    fn push_null(&mut self) {
        self.append_null();
    }
}

struct Text<B> {
    builder: B,
    is_padded: bool,
}

impl<B: Texts> Builder for Text<B> {
    fn append(&mut self, sent: &[u8]) -> Read<()> {
        // The server sends UTF-8, but of a database of encoding SQL_ASCII whatever lies there.
        let text = std::str::from_utf8(sent)
            .map_err(|_| unfit("bytes that are not UTF-8", "convert_to({}, 'SQL_ASCII')"))?;
        self.builder.push(if self.is_padded { text.trim_end_matches(' ') } else { text })
    }

    fn append_null(&mut self) {
        self.builder.push_null();
    }

    fn finish(&mut self) -> ArrayRef {
        self.builder.finish()
    }
}

fn unfit(found: impl Into<String>, instead: &'static str) -> Unfit {
    Unfit { found: found.into(), instead }
}

fn bytes<const N: usize>(sent: &[u8]) -> Read<[u8; N]> {
    sent.try_into().map_err(|_| unfit(format!("{} bytes sent instead of {N}", sent.len()), ""))
}

fn date(sent: &[u8]) -> Read<i32> {
    let days = i32::from_be_bytes(bytes(sent)?);
    if days == i32::MAX || days == i32::MIN {
        return Err(unfit("an infinite date", "case when isfinite({}) then {} end"));
    }
    days.checked_add(EPOCH_DAYS).ok_or_else(|| unfit("a date beyond 32 bits of days", "{}::text"))
}

fn time(sent: &[u8]) -> Read<i64> {
    let microseconds = i64::from_be_bytes(bytes(sent)?);
    if microseconds >= DAY_MICROSECONDS {
        return Err(unfit("the time 24:00:00, which Arrow does not have", "nullif({}, '24:00')"));
    }
    Ok(microseconds)
}

fn timestamp(sent: &[u8]) -> Read<i64> {
    let microseconds = i64::from_be_bytes(bytes(sent)?);
    if microseconds == i64::MAX || microseconds == i64::MIN {
        return Err(unfit("an infinite timestamp", "case when isfinite({}) then {} end"));
    }
    microseconds
        .checked_add(i64::from(EPOCH_DAYS) * DAY_MICROSECONDS)
        .ok_or_else(|| unfit("a timestamp beyond 64 bits of microseconds", "{}::text"))
}

const NUMERIC_NEGATIVE: u16 = 0x4000;
const NUMERIC_NAN: u16 = 0xc000;
const NUMERIC_INFINITE: [u16; 2] = [0xd000, 0xf000];

/// A numeric in the binary format: digits of base 10000, weight of the first, sign, digits after
/// the point.
fn numeric(sent: &[u8], precision: u8, scale: i8) -> Read<i128> {
    let (head, digits) =
        sent.split_at_checked(8).ok_or_else(|| unfit("a numeric cut short", ""))?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (count, weight, sign) = (word(0), word(2) as i16, word(4));
    if sign == NUMERIC_NAN {
        return Err(unfit("NaN, which decimals do not have", "nullif({}, 'NaN')"));
    }
    if NUMERIC_INFINITE.contains(&sign) {
        return Err(unfit(
            "an infinite numeric, which decimals do not have",
            "nullif(nullif({}, 'Infinity'), '-Infinity')",
        ));
    }
    if digits.len() != usize::from(count) * 2 {
        return Err(unfit("a numeric cut short", ""));
    }
    let too_large =
        || unfit(format!("a value that decimal({precision}, {scale}) does not have"), "{}::text");
    let value = unscaled(digits, i32::from(weight), i32::from(scale)).ok_or_else(too_large)?;
    if value >= 10_i128.pow(u32::from(precision)) {
        return Err(too_large());
    }
    Ok(if sign == NUMERIC_NEGATIVE { -value } else { value })
}

/// Digits of base 10000 as a multiple of 10^-scale; `None` if it is not a multiple, or does not
/// fit.
fn unscaled(digits: &[u8], weight: i32, scale: i32) -> Option<i128> {
    let mut value = 0_i128;
    // Power of ten of the last digit, in units of the result.
    let mut exponent = 0;
    for (i, digit) in digits.chunks_exact(2).enumerate() {
        let digit = i128::from(u16::from_be_bytes([digit[0], digit[1]]));
        exponent = 4 * (weight - i as i32) + scale;
        match exponent {
            0.. => value = value.checked_mul(10_000)?.checked_add(digit)?,
            -3..=-1 => {
                let (kept, cut) =
                    (10_i128.pow((4 + exponent) as u32), 10_i128.pow(-exponent as u32));
                if digit % cut != 0 {
                    return None;
                }
                value = value.checked_mul(kept)?.checked_add(digit / cut)?;
            }
            _ if digit != 0 => return None,
            _ => {}
        }
    }
    match (value, u32::try_from(exponent)) {
        (0, _) | (_, Err(_)) => Some(value),
        (_, Ok(exponent)) => value.checked_mul(10_i128.checked_pow(exponent)?),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sent(weight: i16, sign: u16, digits: &[u16]) -> Vec<u8> {
        let words = [digits.len() as u16, weight as u16, sign, 0];
        words.iter().chain(digits).flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn numerics_are_exact_or_refused() {
        let read =
            |weight, digits: &[u16], scale| numeric(&sent(weight, 0, digits), 38, scale).ok();
        assert_eq!(read(0, &[], 2), Some(0));
        assert_eq!(read(0, &[1234], 0), Some(1234));
        assert_eq!(read(2, &[12], 0), Some(1_200_000_000));
        assert_eq!(read(0, &[1, 5000], 1), Some(15));
        assert_eq!(read(0, &[1, 5000], 0), None);
        assert_eq!(read(-1, &[1200], 2), Some(12));
        assert_eq!(read(-1, &[1234], 2), None);
        assert_eq!(read(-2, &[1200], 6), Some(12));
        assert_eq!(read(-2, &[1], 2), None);
        assert_eq!(read(1, &[1, 0, 1], 4), Some(100_000_001));
        assert_eq!(read(12, &[1], 0), None);
        assert_eq!(numeric(&sent(0, NUMERIC_NEGATIVE, &[7]), 3, 2), Ok(-700));
        assert!(numeric(&sent(0, 0, &[10]), 3, 2).is_err());
        assert!(numeric(&sent(0, NUMERIC_NAN, &[]), 38, 0).unwrap_err().found.contains("NaN"));
        assert!(numeric(&sent(0, 0xf000, &[]), 38, 0).unwrap_err().found.contains("infinite"));
        assert!(numeric(&[0; 7], 38, 0).is_err());
    }

    #[test]
    fn numerics_of_38_digits_fit_whatever_their_groups() {
        let nines = 10_i128.pow(38) - 1;
        for scale in 0_i8..=38 {
            let (whole, part) =
                (38 - usize::from(scale.unsigned_abs()), usize::from(scale.unsigned_abs()));
            let before = whole.div_ceil(4);
            let text = format!(
                "{:0>width$}{:0<rest$}",
                "9".repeat(whole),
                "9".repeat(part),
                width = before * 4,
                rest = part.div_ceil(4) * 4
            );
            let digits: Vec<u16> = text
                .as_bytes()
                .chunks(4)
                .map(|d| std::str::from_utf8(d).unwrap().parse().unwrap())
                .collect();
            let sent = sent(before as i16 - 1, NUMERIC_NEGATIVE, &digits);
            assert_eq!(numeric(&sent, 38, scale), Ok(-nines), "scale {scale}");
        }
    }

    #[test]
    fn moments_that_arrow_lacks_are_refused() {
        assert_eq!(date(&0_i32.to_be_bytes()), Ok(10_957));
        assert!(date(&i32::MAX.to_be_bytes()).is_err() && date(&i32::MIN.to_be_bytes()).is_err());
        assert_eq!(time(&(DAY_MICROSECONDS - 1).to_be_bytes()), Ok(DAY_MICROSECONDS - 1));
        assert!(time(&DAY_MICROSECONDS.to_be_bytes()).is_err());
        assert_eq!(timestamp(&0_i64.to_be_bytes()), Ok(946_684_800_000_000));
        assert!(timestamp(&i64::MAX.to_be_bytes()).is_err());
        assert!(timestamp(&(i64::MAX - 1).to_be_bytes()).is_err());
        assert!(date(&[0; 3]).is_err());
    }
}
