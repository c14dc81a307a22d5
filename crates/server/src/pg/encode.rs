//! Rows as PostgreSQL's clients read them: texts, or the bytes that its own types have.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, IntervalUnit, TimeUnit};
use bytes::{BufMut, BytesMut};
use headrace_cli::ResultWriter;

use super::types;
use super::wire::{self, Described};

/// From 1970 to 2000, PostgreSQL's first day.
const DAYS_TO_2000: i32 = 10_957;
const US_TO_2000: i64 = DAYS_TO_2000 as i64 * 86_400_000_000;

/// Digits of a number in a word of PostgreSQL's numeric.
const NUMERIC_DIGITS: usize = 4;

/// Columns of an answer, as PostgreSQL's own have at most.
const COLUMNS_MAX: usize = 1664;

type Written<T> = Result<T, ArrowError>;

/// Writes the value of a row, without its length; a row of NULL is not asked for.
type Writer = Box<dyn Fn(&mut BytesMut, usize) + Send + Sync>;

/// The columns of a batch, ready to be written.
pub struct Rows {
    columns: Vec<(Option<arrow_buffer::NullBuffer>, Writer)>,
}

impl Rows {
    /// # Errors
    /// Values that PostgreSQL's types have no place for.
    pub fn of(batch: &RecordBatch, described: &[Described]) -> Written<Self> {
        if described.len() > COLUMNS_MAX {
            let told =
                format!("{} columns; PostgreSQL's clients take {COLUMNS_MAX}", described.len());
            return Err(ArrowError::InvalidArgumentError(told));
        }
        let columns = batch.columns().iter().zip(described);
        let columns = columns.map(|(column, described)| {
            let plain = plain(column)?;
            let writer = if described.is_binary { binary(&plain)? } else { text(&plain)? };
            Ok((plain.logical_nulls(), writer))
        });
        Ok(Self { columns: columns.collect::<Written<_>>()? })
    }

    /// Writes a row as a message.
    ///
    /// # Errors
    /// A row that is longer than a message can be.
    pub fn put(&self, out: &mut BytesMut, row: usize) -> Written<()> {
        let at = out.len();
        let begun = wire::begin(out, b'D');
        let put = self.put_values(out, row);
        if put.is_err() {
            // What was begun is taken back: an error is told in its place.
            out.truncate(at);
            return put;
        }
        match begun.end(out) {
            true => Ok(()),
            false => Err(too_long()),
        }
    }

    /// Writes the number of columns, and each value behind its length.
    ///
    /// # Errors
    /// A value that is longer than a length can be.
    pub fn put_values(&self, out: &mut BytesMut, row: usize) -> Written<()> {
        out.put_i16(self.columns.len() as i16);
        for (nulls, write) in &self.columns {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                out.put_i32(-1);
                continue;
            }
            put_sized(out, |out| write(out, row))?;
        }
        Ok(())
    }

    /// The text of a value; `None` is NULL.
    pub fn text<'a>(&self, spare: &'a mut BytesMut, row: usize, column: usize) -> Option<&'a [u8]> {
        let (nulls, write) = &self.columns[column];
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        spare.clear();
        write(spare, row);
        Some(spare)
    }

    pub fn width(&self) -> usize {
        self.columns.len()
    }
}

fn too_long() -> ArrowError {
    ArrowError::InvalidArgumentError(
        "a row of over 2 GiB, which PostgreSQL's protocol has no message for".to_string(),
    )
}

/// Bytes behind their length.
fn put_sized(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) -> Written<()> {
    let at = out.len();
    out.put_i32(0);
    write(out);
    let length = i32::try_from(out.len() - at - 4).map_err(|_| too_long())?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Values as those of few types: no codes, no views, moments in PostgreSQL's units.
fn plain(column: &ArrayRef) -> Written<ArrayRef> {
    use DataType::*;
    let to = match column.data_type() {
        Dictionary(_, values) => return plain(&cast(column, values)?),
        Null | Utf8View | LargeUtf8 => Utf8,
        Int8 | UInt8 => Int16,
        UInt16 => Int32,
        UInt32 => Int64,
        UInt64 => Decimal128(20, 0),
        Float16 => Float32,
        BinaryView | LargeBinary | FixedSizeBinary(_) => Binary,
        Date64 => Date32,
        Time32(_) | Time64(_) => Time64(TimeUnit::Microsecond),
        Timestamp(_, zone) => Timestamp(TimeUnit::Microsecond, zone.clone()),
        Interval(_) => Interval(IntervalUnit::MonthDayNano),
        Duration(_) => {
            // Seconds alone: days are as long as they are in their months.
            let us = cast(column, &Duration(TimeUnit::Microsecond))?;
            let us = us.as_primitive::<DurationMicrosecondType>();
            let wide = us.try_unary::<_, IntervalMonthDayNanoType, _>(|us| {
                let ns = us.checked_mul(1000);
                let ns =
                    ns.ok_or_else(|| ArrowError::ComputeError(format!("a duration of {us} us")))?;
                Ok::<_, ArrowError>(IntervalMonthDayNano::new(0, 0, ns))
            })?;
            return Ok(std::sync::Arc::new(wide));
        }
        Decimal32(digits, scale) | Decimal64(digits, scale) => Decimal128(*digits, *scale),
        LargeList(field) | ListView(field) | LargeListView(field) | FixedSizeList(field, _) => {
            List(field.clone())
        }
        _ => return Ok(ArrayRef::clone(column)),
    };
    // A value that the other type has not is an error, and no NULL.
    let options = arrow_cast::CastOptions { safe: false, ..Default::default() };
    arrow_cast::cast_with_options(column, &to, &options)
}

/// A list whose elements PostgreSQL has arrays of.
fn is_array(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_)) && types::of_arrow(data_type).0 != types::JSON
}

fn text(column: &ArrayRef) -> Written<Writer> {
    use DataType::*;
    Ok(match column.data_type() {
        Utf8 => {
            let values = column.as_string::<i32>().clone();
            Box::new(move |out, row| out.put_slice(values.value(row).as_bytes()))
        }
        Boolean => {
            let values = column.as_boolean().clone();
            Box::new(move |out, row| out.put_u8(if values.value(row) { b't' } else { b'f' }))
        }
        Binary => {
            let values = column.as_binary::<i32>().clone();
            Box::new(move |out, row| {
                out.put_slice(b"\\x");
                for byte in values.value(row) {
                    out.put_slice(&hex(*byte));
                }
            })
        }
        Float32 => {
            let values = column.as_primitive::<Float32Type>().clone();
            Box::new(move |out, row| {
                let value = values.value(row);
                let shortest = format!("{value:e}");
                put_float(out, f64::from(value), &shortest, value.to_string(), 6);
            })
        }
        Float64 => {
            let values = column.as_primitive::<Float64Type>().clone();
            Box::new(move |out, row| {
                let value = values.value(row);
                put_float(out, value, &format!("{value:e}"), value.to_string(), 15);
            })
        }
        moment if headrace_engine::is_moment(moment) => {
            let texts = headrace_engine::moment_texts(column)
                .map_err(|error| ArrowError::CastError(error.to_string()))?;
            return text(&texts);
        }
        Decimal128(_, scale) if *scale >= 0 => {
            let (values, scale) = (column.as_primitive::<Decimal128Type>().clone(), *scale);
            Box::new(move |out, row| put_decimal(out, &values.value(row).to_string(), scale))
        }
        list if is_array(list) => array_text(column)?,
        nested if types::of_arrow(nested).0 == types::JSON => return text(&json(column)?),
        _ => return text(&cast_to_texts(column)?),
    })
}

/// Values that PostgreSQL has no types for, as the command line writes them as JSON.
fn json(column: &ArrayRef) -> Written<ArrayRef> {
    const NAME: &str = "v";
    let broken = |error: std::io::Error| ArrowError::JsonError(error.to_string());
    let batch = RecordBatch::try_from_iter_with_nullable([(NAME, ArrayRef::clone(column), true)])?;
    let mut writer = ResultWriter::new("ndjson", batch.schema()).map_err(broken)?;
    let mut lines = Vec::new();
    writer.write(&mut lines, &batch).map_err(broken)?;
    writer.finish(&mut lines).map_err(broken)?;
    let lines = String::from_utf8_lossy(&lines);
    let value = |line: &str| {
        let value = line.trim().strip_prefix(&format!("{{\"{NAME}\":"))?.strip_suffix('}')?;
        Some(value.trim().to_string())
    };
    let values: Vec<_> = lines.lines().map(value).collect();
    let is_whole = values.len() == column.len();
    let texts =
        values.into_iter().enumerate().map(|(row, value)| value.filter(|_| column.is_valid(row)));
    match is_whole {
        true => Ok(std::sync::Arc::new(StringArray::from_iter(texts))),
        false => Err(ArrowError::JsonError("a value is no line of JSON".to_string())),
    }
}

/// As Arrow writes them.
fn cast_to_texts(column: &ArrayRef) -> Written<ArrayRef> {
    let options = FormatOptions::new().with_display_error(false);
    let shown = ArrayFormatter::try_new(column, &options)?;
    let mut texts = arrow_array::builder::StringBuilder::new();
    for row in 0..column.len() {
        match column.is_null(row) {
            true => texts.append_null(),
            false => texts.append_value(shown.value(row).try_to_string()?),
        }
    }
    Ok(std::sync::Arc::new(texts.finish()))
}

/// The shortest digits that are this number, with an exponent where PostgreSQL has one.
fn put_float(out: &mut BytesMut, value: f64, shortest: &str, plain: String, digits: i32) {
    if value.is_nan() {
        return out.put_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.put_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let Some((mantissa, exponent)) = shortest.split_once('e') else {
        return out.put_slice(plain.as_bytes());
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..digits).contains(&exponent) || value == 0.0 {
        return out.put_slice(plain.as_bytes());
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    out.put_slice(format!("{mantissa}e{sign}{:02}", exponent.abs()).as_bytes());
}

/// Digits with a point.
fn put_decimal(out: &mut BytesMut, digits: &str, scale: i8) {
    let scale = scale as usize;
    if scale == 0 {
        return out.put_slice(digits.as_bytes());
    }
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, rest) = digits.split_at(digits.len() - scale);
    for part in [sign, whole, ".", rest] {
        out.put_slice(part.as_bytes());
    }
}

fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// An array's elements in braces.
fn array_text(column: &ArrayRef) -> Written<Writer> {
    let lists = column.as_list::<i32>().clone();
    let elements = plain(lists.values())?;
    let (nulls, write) = (elements.logical_nulls(), text(&elements)?);
    Ok(Box::new(move |out, row| {
        let (begin, end) = (lists.value_offsets()[row], lists.value_offsets()[row + 1]);
        let mut element = BytesMut::new();
        out.put_u8(b'{');
        for at in begin as usize..end as usize {
            if at > begin as usize {
                out.put_u8(b',');
            }
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)) {
                out.put_slice(b"NULL");
                continue;
            }
            element.clear();
            write(&mut element, at);
            put_element(out, &element);
        }
        out.put_u8(b'}');
    }))
}

fn put_element(out: &mut BytesMut, element: &[u8]) {
    let is_special = |byte: &u8| b"{},\"\\".contains(byte) || byte.is_ascii_whitespace();
    let needs_quotes = element.is_empty()
        || element.eq_ignore_ascii_case(b"null")
        || element.iter().any(is_special);
    if !needs_quotes {
        return out.put_slice(element);
    }
    out.put_u8(b'"');
    for byte in element {
        if b"\"\\".contains(byte) {
            out.put_u8(b'\\');
        }
        out.put_u8(*byte);
    }
    out.put_u8(b'"');
}

fn binary(column: &ArrayRef) -> Written<Writer> {
    use DataType::*;
    macro_rules! numbers {
        ($kind:ty, $put:ident) => {{
            let values = column.as_primitive::<$kind>().clone();
            Box::new(move |out: &mut BytesMut, row| out.$put(values.value(row)))
        }};
    }
    Ok(match column.data_type() {
        Boolean => {
            let values = column.as_boolean().clone();
            Box::new(move |out, row| out.put_u8(u8::from(values.value(row))))
        }
        Int16 => numbers!(Int16Type, put_i16),
        Int32 => numbers!(Int32Type, put_i32),
        Int64 => numbers!(Int64Type, put_i64),
        Float32 => numbers!(Float32Type, put_f32),
        Float64 => numbers!(Float64Type, put_f64),
        Binary => {
            let values = column.as_binary::<i32>().clone();
            Box::new(move |out, row| out.put_slice(values.value(row)))
        }
        Date32 => {
            let values = column.as_primitive::<Date32Type>().clone();
            Box::new(move |out, row| out.put_i32(values.value(row).saturating_sub(DAYS_TO_2000)))
        }
        Time64(TimeUnit::Microsecond) => numbers!(Time64MicrosecondType, put_i64),
        Timestamp(TimeUnit::Microsecond, _) => {
            let values = column.as_primitive::<TimestampMicrosecondType>().clone();
            Box::new(move |out, row| out.put_i64(values.value(row).saturating_sub(US_TO_2000)))
        }
        Interval(IntervalUnit::MonthDayNano) => {
            let values = column.as_primitive::<IntervalMonthDayNanoType>().clone();
            Box::new(move |out, row| {
                let value = values.value(row);
                out.put_i64(value.nanoseconds / 1000);
                out.put_i32(value.days);
                out.put_i32(value.months);
            })
        }
        Decimal128(_, scale) => {
            let (values, scale) = (column.as_primitive::<Decimal128Type>().clone(), *scale);
            Box::new(move |out, row| put_numeric(out, &values.value(row).to_string(), scale))
        }
        Decimal256(_, scale) => {
            let (values, scale) = (column.as_primitive::<Decimal256Type>().clone(), *scale);
            Box::new(move |out, row| put_numeric(out, &values.value(row).to_string(), scale))
        }
        list if is_array(list) => array_binary(column)?,
        // Those of texts and of JSON are their characters.
        _ => text(column)?,
    })
}

/// PostgreSQL's numeric: words of four digits, the place of the first, a sign, digits behind the point.
fn put_numeric(out: &mut BytesMut, digits: &str, scale: i8) {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => (0x4000, digits),
        None => (0, digits),
    };
    let mut digits = digits.to_string();
    // Negative scales are zeros in front of the point.
    digits.extend(std::iter::repeat_n('0', usize::from((-i16::from(scale)).max(0) as u16)));
    let scale = usize::from(scale.max(0) as u8);
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, rest) = digits.split_at(digits.len() - scale);
    let whole = format!("{whole:0>width$}", width = whole.len().next_multiple_of(NUMERIC_DIGITS));
    let rest = format!("{rest:0<width$}", width = rest.len().next_multiple_of(NUMERIC_DIGITS));
    let word = |digits: &[u8]| {
        digits.iter().fold(0_i16, |word, digit| word * 10 + i16::from(digit - b'0'))
    };
    let all = whole + &rest;
    let words: Vec<i16> = all.as_bytes().chunks(NUMERIC_DIGITS).map(word).collect();
    let whole_words = (all.len() - rest.len()) / NUMERIC_DIGITS;
    let first = words.iter().position(|word| *word != 0);
    let last = words.iter().rposition(|word| *word != 0);
    let (words, weight) = match (first, last) {
        (Some(first), Some(last)) => (&words[first..=last], whole_words as i16 - 1 - first as i16),
        _ => (&[][..], 0),
    };
    out.put_i16(words.len() as i16);
    out.put_i16(weight);
    out.put_u16(sign);
    out.put_u16(scale as u16);
    words.iter().for_each(|word| out.put_i16(*word));
}

/// PostgreSQL's array of one dimension.
fn array_binary(column: &ArrayRef) -> Written<Writer> {
    let lists = column.as_list::<i32>().clone();
    let (oid, _) = types::of_arrow(lists.values().data_type());
    let elements = plain(lists.values())?;
    let (nulls, write) = (elements.logical_nulls(), binary(&elements)?);
    Ok(Box::new(move |out, row| {
        let (begin, end) = (lists.value_offsets()[row], lists.value_offsets()[row + 1]);
        let is_null = |at: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(at));
        let rows = begin as usize..end as usize;
        out.put_i32(i32::from(!rows.is_empty()));
        out.put_i32(i32::from(rows.clone().any(is_null)));
        out.put_u32(oid);
        if rows.is_empty() {
            return;
        }
        out.put_i32(end - begin);
        out.put_i32(1);
        for at in rows {
            if is_null(at) {
                out.put_i32(-1);
                continue;
            }
            let from = out.len();
            out.put_i32(0);
            write(out, at);
            // What is too long for this is too long for the array, which its own length tells.
            let length = i32::try_from(out.len() - from - 4).unwrap_or(i32::MAX);
            out[from..from + 4].copy_from_slice(&length.to_be_bytes());
        }
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::builder::{Int32Builder, ListBuilder};
    use arrow_array::*;
    use arrow_schema::{Field, Schema};

    use super::*;

    fn rows(column: ArrayRef, is_binary: bool) -> (Rows, usize) {
        let schema = Schema::new(vec![Field::new("c", column.data_type().clone(), true)]);
        let described = crate::pg::types::described(&schema, &[i16::from(is_binary)]);
        let count = column.len();
        let batch = RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap();
        (Rows::of(&batch, &described).unwrap(), count)
    }

    fn texts(column: impl Array + 'static) -> Vec<Option<String>> {
        let (rows, count) = rows(Arc::new(column), false);
        let mut spare = BytesMut::new();
        let text = |row| {
            rows.text(&mut spare, row, 0).map(|text| String::from_utf8(text.to_vec()).unwrap())
        };
        (0..count).map(text).collect()
    }

    fn bytes(column: impl Array + 'static) -> Vec<u8> {
        let (rows, _) = rows(Arc::new(column), true);
        rows.text(&mut BytesMut::new(), 0, 0).unwrap().to_vec()
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| Some(text.to_string())).collect()
    }

    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        let values =
            [0.0, 1.5, 1e14, 1e15, 123456789012345680.0, 1e-4, 1e-5, f64::NAN, f64::NEG_INFINITY];
        let shown = [
            "0", "1.5", "100000000000000", "1e+15", "1.2345678901234568e+17", "0.0001", "1e-05",
            "NaN", "-Infinity",
        ];
        assert_eq!(texts(Float64Array::from(values.to_vec())), some(&shown));
        assert_eq!(
            texts(Float32Array::from(vec![1e6_f32, 0.1, 123456.0])),
            some(&["1e+06", "0.1", "123456"])
        );
        let decimals =
            Decimal128Array::from(vec![12345, -5, 0]).with_precision_and_scale(10, 3).unwrap();
        assert_eq!(texts(decimals), some(&["12.345", "-0.005", "0.000"]));
        assert_eq!(texts(UInt64Array::from(vec![u64::MAX])), some(&["18446744073709551615"]));
        assert_eq!(texts(BooleanArray::from(vec![Some(true), None])), [Some("t".into()), None]);
        assert_eq!(texts(NullArray::new(1)), [None]);
    }

    #[test]
    fn moments_have_microseconds() {
        let ns = TimestampNanosecondArray::from(vec![1_700_000_000_123_456_789]);
        assert_eq!(texts(ns.clone()), some(&["2023-11-14 22:13:20.123456"]));
        let us = 1_700_000_000_123_456_i64 - US_TO_2000;
        assert_eq!(bytes(ns), us.to_be_bytes());
        assert_eq!(texts(Date32Array::from(vec![DAYS_TO_2000])), some(&["2000-01-01"]));
        assert_eq!(bytes(Date32Array::from(vec![DAYS_TO_2000 - 1])), (-1_i32).to_be_bytes());
        assert_eq!(texts(DurationSecondArray::from(vec![3661])), some(&["01:01:01"]));
        let utc = TimestampSecondArray::from(vec![0]).with_timezone("UTC");
        assert_eq!(texts(utc), some(&["1970-01-01 00:00:00+00"]));
    }

    #[test]
    fn numerics_are_words_of_four_digits() {
        let of = |value: i128, scale: i8| {
            let column = Decimal128Array::from(vec![value]).with_precision_and_scale(20, scale);
            let words = bytes(column.unwrap());
            words.chunks(2).map(|word| i16::from_be_bytes([word[0], word[1]])).collect::<Vec<_>>()
        };
        // As a PostgreSQL server sends them: words, weight, sign, scale, digits.
        assert_eq!(of(0, 2), [0, 0, 0, 2]);
        assert_eq!(of(12345, 0), [2, 1, 0, 0, 1, 2345]);
        assert_eq!(of(-1234567, 2), [3, 1, 0x4000, 2, 1, 2345, 6700]);
        assert_eq!(of(5, 3), [1, -1, 0, 3, 50]);
        assert_eq!(of(10000, 0), [1, 1, 0, 0, 1]);
        assert_eq!(of(5, 6), [1, -2, 0, 6, 500]);
        assert_eq!(of(7, -2), [1, 0, 0, 0, 700]);
    }

    #[test]
    fn arrays_quote_what_needs_it() {
        let mut lists = ListBuilder::new(arrow_array::builder::StringBuilder::new());
        lists.append_value([Some("a"), None, Some("null"), Some("b,\"c\\"), Some("")]);
        lists.append_value(Vec::<Option<&str>>::new());
        lists.append_null();
        let shown = texts(lists.finish());
        assert_eq!(shown[0].as_deref(), Some(r#"{a,NULL,"null","b,\"c\\",""}"#));
        assert_eq!((shown[1].as_deref(), &shown[2]), (Some("{}"), &None));
        let mut lists = ListBuilder::new(Int32Builder::new());
        lists.append_value([Some(7), None]);
        let words = bytes(lists.finish());
        let words: Vec<_> =
            words.chunks(4).map(|w| i32::from_be_bytes(w.try_into().unwrap())).collect();
        assert_eq!(words, [1, 1, 23, 2, 1, 4, 7, -1]);
    }

    #[test]
    fn what_postgresql_has_no_type_for_is_json() {
        let field = |name: &str| Arc::new(Field::new(name, DataType::Int32, true));
        let columns: Vec<(Arc<Field>, ArrayRef)> = vec![
            (field("a"), Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]))),
            (field("b"), Arc::new(Int32Array::from(vec![Some(2), Some(4), None]))),
        ];
        let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let nulls = arrow_buffer::NullBuffer::from(vec![true, true, false]);
        let structs = StructArray::new(fields.into(), arrays, Some(nulls));
        let shown = texts(structs);
        assert_eq!(shown[0].as_deref(), Some(r#"{"a":1,"b":2}"#));
        assert!(shown[1].as_deref().unwrap().contains(r#""b":4"#), "{shown:?}");
        assert_eq!(shown[2], None);
        let mut lists = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
        lists.values().append_value([Some(1)]);
        lists.append(true);
        assert_eq!(texts(lists.finish()), some(&["[[1]]"]));
    }

    #[test]
    fn bytes_are_hexadecimal() {
        assert_eq!(texts(BinaryArray::from(vec![&b"\x00\xffa"[..]])), some(&["\\x00ff61"]));
        assert_eq!(bytes(BinaryArray::from(vec![&b"\x00\xff"[..]])), [0, 255]);
    }
}
