//! Functions of texts.

use std::fmt::Write;

use datafusion::common::{Result, exec_err};
use md5::Md5;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::rows::Kind::{Any, Int, Text};
use super::rows::{Definition, Row, Value, strict, text};

/// The functions.
pub const FUNCTIONS: &[Definition] = &[
    strict("md5", &[&[Text]], Text, |row| text(hash::<Md5>(row))),
    strict("sha224", &[&[Text]], Text, |row| text(hash::<Sha224>(row))),
    strict("sha256", &[&[Text]], Text, |row| text(hash::<Sha256>(row))),
    strict("sha384", &[&[Text]], Text, |row| text(hash::<Sha384>(row))),
    strict("sha512", &[&[Text]], Text, |row| text(hash::<Sha512>(row))),
    strict("hex", &[&[Int], &[Text]], Text, |row| match row.is_int(0) {
        true => text(format!("{:X}", row.int(0))),
        false => text(in_hex(row.text(0).as_bytes()).to_uppercase()),
    }),
    strict("strip_accents", &[&[Text]], Text, |row| text(plain(row.text(0)))),
    strict("unaccent", &[&[Text]], Text, |row| text(plain(row.text(0)))),
    strict("url_encode", &[&[Text]], Text, |row| text(url_encoded(row.text(0)))),
    strict("url_decode", &[&[Text]], Text, |row| text(url_decoded(row.text(0)))),
    strict("quote_ident", &[&[Text]], Text, |row| text(quoted_name(row.text(0)))),
    strict("quote_literal", &[&[Text]], Text, |row| text(quoted(row.text(0)))),
    strict("formatreadablesize", &[&[Int]], Text, |row| text(readable(row.int(0)))),
    strict("format_bytes", &[&[Int]], Text, |row| text(readable(row.int(0)))),
    Definition {
        name: "format",
        arguments: &[&[Text, Any]],
        result: Text,
        is_strict: false,
        compute: format,
    },
    strict("printf", &[&[Text, Any]], Text, super::printf::printf),
    strict("bin", &[&[Int]], Text, |row| text(format!("{:b}", row.int(0)))),
    strict("to_binary", &[&[Int]], Text, |row| text(format!("{:b}", row.int(0)))),
    strict("to_oct", &[&[Int]], Text, |row| text(format!("{:o}", row.int(0)))),
];

fn hash<D: Digest>(row: &Row) -> String {
    in_hex(&D::digest(row.text(0).as_bytes()))
}

fn in_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _written = write!(text, "{byte:02x}");
    }
    text
}

fn plain(text: &str) -> String {
    text.nfd().filter(|letter| !is_combining_mark(*letter)).nfc().collect()
}

fn url_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(byte.into())
            }
            byte => {
                let _written = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// What is no code stays as it is; bytes that are no text become the sign for that.
fn url_decoded(text: &str) -> String {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, behind @ ..] = rest {
        let code = behind.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match code.filter(|_| *first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = &behind[2..];
            }
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A name as SQL takes it: in quotes unless it is plain.
fn quoted_name(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn quoted(text: &str) -> String {
    let quoted = format!("'{}'", text.replace('\'', "''"));
    if text.contains('\\') { format!("E{}", quoted.replace('\\', "\\\\")) } else { quoted }
}

fn readable(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut size, mut unit) = (bytes as f64 / 1024.0, 0);
    if bytes.unsigned_abs() < 1024 {
        return format!("{bytes} bytes");
    }
    while size.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        (size, unit) = (size / 1024.0, unit + 1);
    }
    format!("{:.1} {}", (size * 10.0).trunc() / 10.0, UNITS[unit])
}

/// PostgreSQL's: `%s`, `%I`, `%L` and `%%`, with `%1$s` for the first argument.
fn format(row: &Row) -> Result<Option<Value>> {
    if row.is_null(0) {
        return Ok(None);
    }
    let (mut out, mut rest, mut next) = (String::new(), row.text(0), 1);
    while let Some(at) = rest.find('%') {
        out += &rest[..at];
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            out.push('%');
            rest = behind;
            continue;
        }
        if let Some((place, behind)) = rest.split_once('$')
            && let Ok(place) = place.parse::<usize>()
        {
            (next, rest) = (place, behind);
        }
        let end = rest.find(|c: char| !(c == '-' || c.is_ascii_digit())).unwrap_or(rest.len());
        let (width, kind) = (&rest[..end], rest[end..].chars().next());
        let Some(kind @ ('s' | 'I' | 'L')) = kind else {
            return exec_err!(
                "format() knows %s, %I, %L and %%, and not '%{}'\nhint: printf() knows %d and %.2f",
                rest.chars().take(end + 1).collect::<String>()
            );
        };
        if next == 0 || next >= row.len() {
            return exec_err!("format() has too few arguments for '{}'", row.text(0));
        }
        let shown = match (kind, row.is_null(next)) {
            ('s', true) => String::new(),
            ('L', true) => "NULL".to_string(),
            (_, true) => return exec_err!("format() of NULL as a name"),
            ('I', false) => quoted_name(&row.shown(next)?),
            ('L', false) => quoted(&row.shown(next)?),
            (_, false) => row.shown(next)?,
        };
        super::printf::pad(&mut out, &shown, width)?;
        (rest, next) = (&rest[end + 1..], next + 1);
    }
    out += rest;
    text(out)
}
