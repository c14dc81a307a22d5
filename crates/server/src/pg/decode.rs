//! Values of parameters as literals of SQL.

use bytes::{Buf, Bytes};
use headrace_engine::failure::{Class, Failure};

use super::types::{self, PgType, of_array, of_oid};

/// Digits of a decimal at most.
const DECIMAL_DIGITS_MAX: usize = 76;

/// A value for a parameter: SQL that has it, with its type where that is known.
pub fn literal(oid: u32, is_binary: bool, value: Option<&Bytes>) -> Result<String, Failure> {
    let Some(value) = value else { return Ok(null(oid)) };
    let text = match is_binary {
        true => text_of(oid, &mut value.clone())?,
        false => {
            let text = std::str::from_utf8(value);
            text.map_err(|_| broken("a text that is not UTF-8"))?.to_string()
        }
    };
    if text.contains('\0') {
        return Err(broken("a text with a zero byte"));
    }
    match of_array(oid) {
        Some(element) => list(element.oid, &text),
        None => typed(oid, &text),
    }
}

/// NULL of the parameter's type.
pub fn null(oid: u32) -> String {
    match types::sql_of(oid) {
        Some(of) => format!("CAST(NULL AS {of})"),
        None => "NULL".to_string(),
    }
}

/// The literal of a text that is no array.
fn typed(oid: u32, text: &str) -> Result<String, Failure> {
    match oid {
        types::NUMERIC => return decimal(text),
        types::BYTEA => return bytes(text),
        _ => {}
    }
    let quoted = format!("'{}'", text.replace('\'', "''"));
    Ok(match types::sql_of(oid) {
        Some(of) if of != "text" => format!("CAST({quoted} AS {of})"),
        _ => quoted,
    })
}

/// A number in a type that has every digit of it and no more: that of `numeric` alone has a fixed place for its point.
fn decimal(text: &str) -> Result<String, Failure> {
    let wrong = || broken("a decimal is digits with a point and an exponent");
    let lower = text.trim().to_ascii_lowercase();
    let (sign, rest) = match lower.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", lower.strip_prefix('+').unwrap_or(&lower)),
    };
    let (mantissa, exponent) = rest.split_once('e').unwrap_or((rest, "0"));
    let exponent = i64::from(exponent.parse::<i32>().map_err(|_| wrong())?);
    let (whole, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{behind}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    // The digits behind the point when the exponent is done.
    let scale = behind.len() as i64 - exponent;
    let count = (digits.len() as i64).max(scale) - scale.min(0);
    if count > DECIMAL_DIGITS_MAX as i64 || scale.abs() > DECIMAL_DIGITS_MAX as i64 {
        return Err(broken(&format!("decimals have {DECIMAL_DIGITS_MAX} digits at most")));
    }
    let zeros = "0".repeat((-scale).max(0) as usize);
    let scale = scale.max(0) as usize;
    let digits = format!("{digits}{zeros}");
    let digits = format!("{digits:0>width$}", width = scale);
    let (whole, behind) = digits.split_at(digits.len() - scale);
    let point = if scale > 0 { "." } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    Ok(format!("CAST('{sign}{whole}{point}{behind}' AS decimal({}, {scale}))", digits.len().max(1)))
}

/// Bytes in PostgreSQL's hex format (`\x00ff`) or its escape format (`\000`).
fn bytes(text: &str) -> Result<String, Failure> {
    let wrong =
        || broken("bytes are \\x and hexadecimal digits, or letters and \\ with octal digits");
    if let Some(digits) = text.strip_prefix("\\x") {
        let is_hex = digits.len() % 2 == 0 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        return if is_hex { Ok(format!("X'{digits}'")) } else { Err(wrong()) };
    }
    let (mut hex, mut rest) = (String::new(), text.as_bytes());
    while let [first, more @ ..] = rest {
        let (byte, after) = match (first, more) {
            (b'\\', [b'\\', after @ ..]) => (b'\\', after),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                ((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), after)
            }
            (b'\\', _) => return Err(wrong()),
            (other, after) => (*other, after),
        };
        hex += &format!("{byte:02x}");
        rest = after;
    }
    Ok(format!("X'{hex}'"))
}

fn broken(cause: &str) -> Failure {
    Failure::new(Class::Value, format!("a parameter: {cause}"))
}

/// A list of an array's elements as `{1,2}` has them.
fn list(element: u32, text: &str) -> Result<String, Failure> {
    let wrong = || broken("an array is elements in braces, of one dimension");
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let mut chars = inner.ok_or_else(wrong)?.chars();
    if chars.as_str().trim().is_empty() {
        return Ok(no_elements(element));
    }
    let mut elements = Vec::new();
    loop {
        let (mut value, mut is_quoted, mut is_inside, mut is_last) =
            (String::new(), false, false, true);
        while let Some(next) = chars.next() {
            match next {
                '\\' => value.push(chars.next().ok_or_else(wrong)?),
                '"' => (is_inside, is_quoted) = (!is_inside, true),
                ',' if !is_inside => {
                    is_last = false;
                    break;
                }
                '{' | '}' if !is_inside => return Err(wrong()),
                // Blanks around an element are none of it.
                blank if !is_inside && blank.is_whitespace() && (is_quoted || value.is_empty()) => {
                }
                other => value.push(other),
            }
        }
        let plain = if is_quoted { value.as_str() } else { value.trim_end() };
        if is_inside || (plain.is_empty() && !is_quoted) {
            return Err(wrong());
        }
        elements.push(match !is_quoted && plain.eq_ignore_ascii_case("null") {
            true => null(element),
            false => typed(element, plain)?,
        });
        if is_last {
            return Ok(format!("[{}]", elements.join(", ")));
        }
    }
}

/// A list of no elements.
fn no_elements(element: u32) -> String {
    let of = types::sql_of(element).unwrap_or_else(|| "text".to_string());
    format!("CAST([] AS {of}[])")
}

/// The text of a value in PostgreSQL's own bytes.
fn text_of(oid: u32, value: &mut Bytes) -> Result<String, Failure> {
    let short = |_| broken("it has fewer bytes than its type");
    let text = match oid {
        types::BOOL => (value.try_get_u8().map_err(short)? != 0).to_string(),
        types::INT2 => value.try_get_i16().map_err(short)?.to_string(),
        types::INT4 => value.try_get_i32().map_err(short)?.to_string(),
        types::INT8 => value.try_get_i64().map_err(short)?.to_string(),
        types::OID => value.try_get_u32().map_err(short)?.to_string(),
        types::FLOAT4 => value.try_get_f32().map_err(short)?.to_string(),
        types::FLOAT8 => value.try_get_f64().map_err(short)?.to_string(),
        types::DATE => date(value.try_get_i32().map_err(short)?)?,
        types::TIME => time(value.try_get_i64().map_err(short)?),
        types::TIMESTAMP => moment(value.try_get_i64().map_err(short)?)?,
        types::TIMESTAMPTZ => moment(value.try_get_i64().map_err(short)?)? + "+00",
        types::INTERVAL => {
            let us = value.try_get_i64().map_err(short)?;
            let days = value.try_get_i32().map_err(short)?;
            let months = value.try_get_i32().map_err(short)?;
            let (seconds, us) = (us / 1_000_000, us % 1_000_000);
            format!("{months} months {days} days {seconds} seconds {us} microseconds")
        }
        types::NUMERIC => numeric(value)?,
        types::UUID => match value.len() {
            16 => uuid(&std::mem::take(value)),
            _ => return Err(broken("a UUID has 16 bytes")),
        },
        types::BYTEA => {
            let all = std::mem::take(value);
            all.iter().fold("\\x".to_string(), |text, byte| text + &format!("{byte:02x}"))
        }
        types::JSONB => {
            // A version stands in front.
            let _ = value.try_get_u8().map_err(short)?;
            characters(value)?
        }
        0 | types::UNKNOWN => characters(value)?,
        _ if of_oid(oid).is_some() => characters(value)?,
        other if let Some(element) = of_array(other) => array(element, value)?,
        other => return Err(broken(&format!("binary values of the type {other} are not taken"))),
    };
    match value.is_empty() {
        true => Ok(text),
        false => Err(broken("it has more bytes than its type")),
    }
}

fn characters(value: &mut Bytes) -> Result<String, Failure> {
    let all = std::mem::take(value);
    let text = std::str::from_utf8(&all);
    text.map(str::to_string).map_err(|_| broken("a text that is not UTF-8"))
}

fn date(days: i32) -> Result<String, Failure> {
    let first = chrono::NaiveDate::from_ymd_opt(2000, 1, 1);
    let date =
        first.and_then(|first| first.checked_add_signed(chrono::TimeDelta::days(days.into())));
    date.map(|date| date.to_string()).ok_or_else(|| broken("a date beyond the calendar"))
}

fn time(us: i64) -> String {
    let (seconds, us) = (us.div_euclid(1_000_000), us.rem_euclid(1_000_000));
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{us:06}", seconds % 60)
}

fn moment(us: i64) -> Result<String, Failure> {
    const DAY_US: i64 = 86_400_000_000;
    let days =
        i32::try_from(us.div_euclid(DAY_US)).map_err(|_| broken("a moment beyond the calendar"))?;
    Ok(format!("{} {}", date(days)?, time(us.rem_euclid(DAY_US))))
}

fn numeric(value: &mut Bytes) -> Result<String, Failure> {
    let short = |_| broken("it has fewer bytes than its type");
    let words = usize::from(value.try_get_u16().map_err(short)?);
    let weight = i32::from(value.try_get_i16().map_err(short)?);
    let sign = value.try_get_u16().map_err(short)?;
    let scale = usize::from(value.try_get_u16().map_err(short)?);
    let sign = match sign {
        0 => "",
        0x4000 => "-",
        _ => return Err(broken("NaN and infinity are no decimals here")),
    };
    let mut digits = Vec::with_capacity(words);
    for _ in 0..words {
        let word = value.try_get_u16().map_err(short)?;
        if word > 9999 {
            return Err(broken("a decimal's words have four digits"));
        }
        digits.push(word);
    }
    let word =
        |at: i32| usize::try_from(at).ok().and_then(|at| digits.get(at)).copied().unwrap_or(0);
    let mut text = (0..=weight).map(|at| format!("{:04}", word(at))).collect::<String>();
    let whole = text.trim_start_matches('0').to_string();
    text = if whole.is_empty() { "0".to_string() } else { whole };
    if scale > 0 {
        let behind = (scale as i32).div_euclid(4) + 1;
        let rest = (1..=behind).map(|nth| format!("{:04}", word(weight + nth)));
        text = format!("{text}.{}", &rest.collect::<String>()[..scale]);
    }
    Ok(format!("{sign}{text}"))
}

fn uuid(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

/// As its text, which [`list`] reads. The elements are values and no arrays.
fn array(element: &PgType, value: &mut Bytes) -> Result<String, Failure> {
    let short = |_| broken("it has fewer bytes than its type");
    let dimensions = value.try_get_i32().map_err(short)?;
    let _has_nulls = value.try_get_i32().map_err(short)?;
    if value.try_get_u32().map_err(short)? != element.oid {
        return Err(broken("its elements are of another type than it"));
    }
    match dimensions {
        0 => return Ok("{}".to_string()),
        1 => {}
        _ => return Err(broken("an array of one dimension is taken")),
    }
    let count = value.try_get_i32().map_err(short)?;
    let _first = value.try_get_i32().map_err(short)?;
    let mut texts = Vec::new();
    for _ in 0..count {
        let Ok(bytes) = usize::try_from(value.try_get_i32().map_err(short)?) else {
            texts.push("NULL".to_string());
            continue;
        };
        if bytes > value.len() {
            return Err(broken("it has fewer bytes than its type"));
        }
        let text = text_of(element.oid, &mut value.split_to(bytes))?;
        texts.push(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")));
    }
    Ok(format!("{{{}}}", texts.join(",")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(oid: u32, value: &str) -> String {
        literal(oid, false, Some(&Bytes::copy_from_slice(value.as_bytes()))).unwrap()
    }

    fn binary(oid: u32, value: &[u8]) -> Result<String, String> {
        literal(oid, true, Some(&Bytes::copy_from_slice(value))).map_err(|failure| failure.cause)
    }

    #[test]
    fn texts_are_quoted_and_typed() {
        assert_eq!(text(types::TEXT, "it's"), "'it''s'");
        assert_eq!(text(0, "5"), "'5'");
        assert_eq!(text(types::INT4, "5); drop"), "CAST('5); drop' AS integer)");
        assert_eq!(text(types::BYTEA, "\\x00ff"), "X'00ff'");
        assert_eq!(text(1007, "{1,NULL}"), "[CAST('1' AS integer), CAST(NULL AS integer)]");
        assert_eq!(text(1009, r#"{"a,b","NULL",c\"d}"#), r#"['a,b', 'NULL', 'c"d']"#);
        assert_eq!(text(1009, "{}"), "CAST([] AS text[])");
        assert_eq!(literal(types::DATE, false, None).unwrap(), "CAST(NULL AS date)");
        assert_eq!(text(1009, "{ a b , c }"), "['a b', 'c']");
        for wrong in ["{{1}}", "{1,}", "{,1}", "{\"1}", "1", "{1"] {
            assert!(literal(1007, false, Some(&Bytes::from(wrong))).is_err(), "{wrong}");
        }
        assert!(literal(types::TEXT, false, Some(&Bytes::from_static(b"a\0b"))).is_err());
    }

    #[test]
    fn decimals_have_all_their_digits() {
        for (given, literal) in [
            ("1", "CAST('1' AS decimal(1, 0))"),
            ("-0.50", "CAST('-0.50' AS decimal(3, 2))"),
            (".5", "CAST('0.5' AS decimal(1, 1))"),
            ("1E-12", "CAST('0.000000000001' AS decimal(12, 12))"),
            ("1.5e3", "CAST('1500' AS decimal(4, 0))"),
            ("12.345e1", "CAST('123.45' AS decimal(5, 2))"),
        ] {
            assert_eq!(text(types::NUMERIC, given), literal, "{given}");
        }
        for wrong in ["", "NaN", "1e", "1e99", "1.2.3", "-", "x", "1e-9223372036854775808"] {
            assert!(literal(types::NUMERIC, false, Some(&Bytes::from(wrong))).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_may_be_escaped() {
        assert_eq!(text(types::BYTEA, "a\\001\\\\"), "X'61015c'");
        assert_eq!(text(1001, "{\"\\\\x00ff\",NULL}"), "[X'00ff', CAST(NULL AS bytea)]");
        assert!(literal(types::BYTEA, false, Some(&Bytes::from("\\9"))).is_err());
    }

    #[test]
    fn bytes_are_read_by_their_types() {
        assert_eq!(binary(types::INT4, &7_i32.to_be_bytes()).unwrap(), "CAST('7' AS integer)");
        assert_eq!(binary(types::BOOL, &[1]).unwrap(), "CAST('true' AS boolean)");
        assert_eq!(
            binary(types::DATE, &(-1_i32).to_be_bytes()).unwrap(),
            "CAST('1999-12-31' AS date)"
        );
        let noon = 43_200_000_001_i64.to_be_bytes();
        let shown = "CAST('2000-01-01 12:00:00.000001' AS timestamp without time zone)";
        assert_eq!(binary(types::TIMESTAMP, &noon).unwrap(), shown);
        let words = |words: &[i16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        for (numeric, shown) in [
            (words(&[3, 1, 0x4000, 2, 1, 2345, 6700]), "-12345.67"),
            (words(&[1, -1, 0, 3, 50]), "0.005"),
            (words(&[1, 1, 0, 0, 1]), "10000"),
            (words(&[0, 0, 0, 2]), "0.00"),
            (words(&[1, -2, 0, 6, 500]), "0.000005"),
        ] {
            let literal = binary(types::NUMERIC, &numeric).unwrap();
            assert!(literal.starts_with(&format!("CAST('{shown}' AS decimal(")), "{literal}");
        }
        for (oid, bytes) in [
            (types::INT4, &[0; 3][..]),
            (types::INT4, &[0; 5]),
            (types::NUMERIC, &[0, 9, 0, 0]),
            (types::UUID, &[0; 15]),
            (types::TEXT, &[0xff]),
            (types::DATE, &[0x7f, 0xff, 0xff, 0xff]),
            (1007, &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1]),
            (600, &[0]),
            // An array of arrays, which has no end.
            (
                1007,
                &[
                    0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 0xef, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0,
                    0, 0, 0,
                ],
            ),
        ] {
            assert!(binary(oid, bytes).is_err(), "{oid}");
        }
    }

    #[test]
    fn arrays_come_in_bytes_too() {
        let words = [1, 1, 23, 2, 1, 4, 7, -1_i32];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(binary(1007, &bytes).unwrap(), "[CAST('7' AS integer), CAST(NULL AS integer)]");
    }
}
