//! Queries on PostgreSQL's jsonb as stored: the text of a field, or whether fields have certain values.
//!
//! ```text
//! header  28 bits: count; 0x1000_0000 a scalar as an array of one, 0x2000_0000 an object, 0x4000_0000 an array
//! entries a word each; of an object's n pairs the n keys, in order of length and then of bytes, then the n values:
//!         28 bits: bytes, or, under 0x8000_0000, where it ends; 0x7000_0000 what it is
//! data    the entries' bytes; numbers and containers start at multiples of four, padding counts as theirs
//! ```
//!
//! Nothing is trusted: every position is checked before it is read.

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use super::bytes::{align_up, u32_at};
use super::numeric;
use super::varlena::{Content, content};

type Flaw = &'static str;

/// The target of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JsonbType {
    /// Its text → Utf8.
    Text,
    /// An integer → Int64.
    Integer,
    /// A number → Float64.
    Float,
    /// A boolean → Boolean.
    Bool,
    /// A number → Decimal128.
    Number {
        /// Precision.
        precision: u8,
        /// Scale.
        scale: i8,
    },
    /// The display scale of a number → Int32.
    DigitsShown {
        /// The maximum.
        most: u8,
    },
}

impl JsonbType {
    pub(super) fn arrow(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Integer => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::Number { precision, scale } => DataType::Decimal128(precision, scale),
            Self::DigitsShown { .. } => DataType::Int32,
        }
    }
}

const COUNT: u32 = 0x0FFF_FFFF;
const OBJECT: u32 = 0x2000_0000;
const ENDS: u32 = 0x8000_0000;
const KIND: u32 = 0x7000_0000;
const STRING: u32 = 0x0000_0000;
const NUMERIC: u32 = 0x1000_0000;
const FALSE: u32 = 0x2000_0000;
const TRUE: u32 = 0x3000_0000;
const NULL: u32 = 0x4000_0000;
const CONTAINER: u32 = 0x5000_0000;
const WORD_BYTES: usize = 4;
const CUT: Flaw = "a jsonb value is longer than its container";

/// A query on a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JsonbQuery {
    /// `document -> key -> .. ->> key`, or a cast of it: NULL if it is missing.
    Field {
        /// The keys.
        path: Vec<String>,
        /// The target of the field.
        of: JsonbType,
    },
    /// `document @> '{"key": scalar, ..}'`.
    Contains(Vec<(String, JsonbScalar)>),
}

/// A scalar value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JsonbScalar {
    /// A text.
    String(String),
    /// A number in display form, without trailing zeros after the point.
    Number(String),
    /// A boolean.
    Bool(bool),
    /// The null of JSON.
    Null,
}

/// Appends the text at the end of a path to `text`; `false` if it is missing or null.
///
/// # Errors
/// It is an object or an array, or the document is damaged.
pub(super) fn text(document: &[u8], path: &[String], text: &mut Vec<u8>) -> Result<bool, Flaw> {
    let (last, way) = match path.split_last() {
        Some(split) => split,
        None => return Err("a jsonb without a path"),
    };
    let mut at = document;
    for key in way {
        match field(at, key)? {
            Some(Value { kind: CONTAINER, bytes }) => at = bytes,
            _ => return Ok(false),
        }
    }
    let Some(Value { kind, bytes }) = field(at, last)? else { return Ok(false) };
    match kind {
        STRING => {
            std::str::from_utf8(bytes).map_err(|_| "a text is not UTF-8")?;
            text.extend_from_slice(bytes);
        }
        NUMERIC => numeric::text(number(bytes)?, text)?,
        FALSE => text.extend_from_slice(b"false"),
        TRUE => text.extend_from_slice(b"true"),
        NULL => return Ok(false),
        CONTAINER => return Err("a jsonb field is an object or an array"),
        _ => return Err("a jsonb value of an unknown kind"),
    }
    Ok(true)
}

/// Whether a document is an object with all of these fields.
pub(super) fn contains(
    document: &[u8],
    wanted: &[(String, JsonbScalar)],
    scratch: &mut Vec<u8>,
) -> Result<bool, Flaw> {
    if header(document)? & OBJECT == 0 {
        return Ok(false);
    }
    for (key, scalar) in wanted {
        let Some(value) = field(document, key)? else { return Ok(false) };
        if !value.is(scalar, scratch)? {
            return Ok(false);
        }
    }
    Ok(true)
}

struct Value<'a> {
    kind: u32,
    /// Without its leading padding.
    bytes: &'a [u8],
}

impl Value<'_> {
    fn is(&self, scalar: &JsonbScalar, scratch: &mut Vec<u8>) -> Result<bool, Flaw> {
        Ok(match (self.kind, scalar) {
            (STRING, JsonbScalar::String(wanted)) => self.bytes == wanted.as_bytes(),
            (NUMERIC, JsonbScalar::Number(wanted)) => {
                scratch.clear();
                numeric::text(number(self.bytes)?, scratch)?;
                trimmed(scratch) == wanted.as_bytes()
            }
            (TRUE, JsonbScalar::Bool(wanted)) => *wanted,
            (FALSE, JsonbScalar::Bool(wanted)) => !wanted,
            (NULL, JsonbScalar::Null) => true,
            _ => false,
        })
    }
}

/// A number's text without trailing zeros after the point.
pub(super) fn trimmed(text: &[u8]) -> &[u8] {
    if !text.contains(&b'.') {
        return text;
    }
    let zeros = text.iter().rev().take_while(|digit| **digit == b'0').count();
    let text = &text[..text.len() - zeros];
    text.strip_suffix(b".").unwrap_or(text)
}

fn header(container: &[u8]) -> Result<u32, Flaw> {
    u32_at(container, 0).ok_or("a jsonb is too short")
}

/// The content of a number, which has its own header.
fn number(bytes: &[u8]) -> Result<&[u8], Flaw> {
    match content(bytes, 0)? {
        Content::Plain(content) => Ok(content),
        _ => Err("a number in a jsonb is compressed or elsewhere"),
    }
}

/// The value of a field of an object; `None` for other containers too.
fn field<'a>(container: &'a [u8], key: &str) -> Result<Option<Value<'a>>, Flaw> {
    let header = header(container)?;
    if header & OBJECT == 0 {
        return Ok(None);
    }
    let pairs = (header & COUNT) as usize;
    let entries = Entries::of(container, 2 * pairs)?;
    let mut start = 0;
    for pair in 0..pairs {
        let end = entries.end(pair, start)?;
        let name = entries.data.get(start..end).ok_or(CUT)?;
        if name == key.as_bytes() {
            return entries.value(pairs + pair).map(Some);
        }
        // Longer ones follow.
        if name.len() > key.len() {
            return Ok(None);
        }
        start = end;
    }
    Ok(None)
}

struct Entries<'a> {
    words: &'a [u8],
    data: &'a [u8],
}

impl<'a> Entries<'a> {
    fn of(container: &'a [u8], count: usize) -> Result<Self, Flaw> {
        let rest = container.get(WORD_BYTES..).ok_or(CUT)?;
        let (words, data) = rest.split_at_checked(count * WORD_BYTES).ok_or(CUT)?;
        Ok(Self { words, data })
    }

    fn word(&self, entry: usize) -> Result<u32, Flaw> {
        u32_at(self.words, entry * WORD_BYTES).ok_or(CUT)
    }

    /// The end of an entry that starts there.
    fn end(&self, entry: usize, start: usize) -> Result<usize, Flaw> {
        let word = self.word(entry)?;
        let bytes = (word & COUNT) as usize;
        let end = if word & ENDS != 0 { bytes } else { start + bytes };
        if end < start { Err(CUT) } else { Ok(end) }
    }

    fn value(&self, entry: usize) -> Result<Value<'a>, Flaw> {
        // Every so many entries say where they end.
        let mut start = 0;
        for before in (0..entry).rev() {
            let word = self.word(before)?;
            start += (word & COUNT) as usize;
            if word & ENDS != 0 {
                break;
            }
        }
        let kind = self.word(entry)? & KIND;
        let end = self.end(entry, start)?;
        if matches!(kind, NUMERIC | CONTAINER) {
            start = align_up(start, WORD_BYTES - 1);
        }
        let bytes = self.data.get(start..end).ok_or(CUT)?;
        Ok(Value { kind, bytes })
    }
}

impl JsonbScalar {
    /// For a number's text.
    pub fn number(text: &str) -> Self {
        Self::Number(String::from_utf8_lossy(trimmed(text.as_bytes())).into_owned())
    }
}

/// The fields of an object without nested objects or arrays; `None` for everything else.
pub fn flat_fields(document: &[u8]) -> Option<Vec<(String, JsonbScalar)>> {
    let header = header(document).ok().filter(|header| header & OBJECT != 0)?;
    let pairs = (header & COUNT) as usize;
    let entries = Entries::of(document, 2 * pairs).ok()?;
    let string = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_string);
    let mut number_text = Vec::new();
    let field = |pair| {
        let key = string(entries.value(pair).ok()?.bytes)?;
        let Value { kind, bytes } = entries.value(pairs + pair).ok()?;
        let scalar = match kind {
            STRING => JsonbScalar::String(string(bytes)?),
            NUMERIC => {
                number_text.clear();
                numeric::text(number(bytes).ok()?, &mut number_text).ok()?;
                JsonbScalar::Number(string(trimmed(&number_text))?)
            }
            TRUE => JsonbScalar::Bool(true),
            FALSE => JsonbScalar::Bool(false),
            NULL => JsonbScalar::Null,
            _ => return None,
        };
        Some((key, scalar))
    };
    (0..pairs).map(field).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An object of sorted keys, each value with its kind; a number is its content.
    fn object(fields: &[(&str, u32, Vec<u8>)]) -> Vec<u8> {
        let (mut words, mut data) = (vec![OBJECT | fields.len() as u32], Vec::new());
        for (key, ..) in fields {
            words.push(STRING | key.len() as u32);
            data.extend_from_slice(key.as_bytes());
        }
        for (place, (_, kind, bytes)) in fields.iter().enumerate() {
            let start = data.len();
            if matches!(*kind, NUMERIC | CONTAINER) {
                data.resize(align_up(start, 3), 0);
            }
            data.extend_from_slice(bytes);
            // Every other one says where it ends.
            words.push(
                kind | if place % 2 == 0 {
                    ENDS | data.len() as u32
                } else {
                    (data.len() - start) as u32
                },
            );
        }
        words.into_iter().flat_map(u32::to_le_bytes).chain(data).collect()
    }

    /// A number with a header of four bytes: short form, of one digit, two places behind the point.
    fn hundredths(digit: u16, fraction: u16) -> Vec<u8> {
        let words = [0x8000_u16 | 2 << 7, digit, fraction].map(u16::to_le_bytes);
        (10_u32 << 2).to_le_bytes().into_iter().chain(words.into_iter().flatten()).collect()
    }

    fn document() -> Vec<u8> {
        let inner = object(&[("x", STRING, b"deep".to_vec()), ("yy", NULL, Vec::new())]);
        object(&[
            ("a", STRING, b"text".to_vec()),
            ("b", NUMERIC, hundredths(12, 5000)),
            ("c", TRUE, Vec::new()),
            ("d", NULL, Vec::new()),
            ("in", CONTAINER, inner),
            ("long", FALSE, Vec::new()),
            ("zero", NUMERIC, hundredths(3, 0)),
        ])
    }

    fn texts(document: &[u8], path: &[&str]) -> Result<Option<String>, Flaw> {
        let path: Vec<String> = path.iter().map(|key| key.to_string()).collect();
        let mut found = Vec::new();
        let is_there = text(document, &path, &mut found)?;
        Ok(is_there.then(|| String::from_utf8_lossy(&found).into_owned()))
    }

    #[test]
    fn fields_are_found_and_shown() {
        let document = document();
        let found = |path: &[&str]| texts(&document, path).expect("a sound document");
        assert_eq!(found(&["a"]).as_deref(), Some("text"));
        assert_eq!(found(&["b"]).as_deref(), Some("12.50"));
        assert_eq!(found(&["c"]).as_deref(), Some("true"));
        assert_eq!(found(&["long"]).as_deref(), Some("false"));
        assert_eq!(found(&["zero"]).as_deref(), Some("3.00"));
        assert_eq!(found(&["in", "x"]).as_deref(), Some("deep"));
        for missing in
            [&["d"][..], &["e"], &["in", "yy"], &["in", "z"], &["a", "x"], &["", "x"], &["longer"]]
        {
            assert_eq!(found(missing), None, "{missing:?}");
        }
        assert!(texts(&document, &["in"]).is_err());
        // Arrays, and scalars, which are arrays of one, have no fields.
        assert_eq!(texts(&0x4000_0000_u32.to_le_bytes(), &["a"]), Ok(None));
        assert_eq!(texts(&0x5000_0001_u32.to_le_bytes(), &["a"]), Ok(None));
        assert!(texts(&[0; 3], &["a"]).is_err());
    }

    #[test]
    fn fields_are_compared_as_what_they_are() {
        use JsonbScalar::{Bool, Null, String};
        let document = document();
        let has = |fields: &[(&str, JsonbScalar)]| {
            let fields: Vec<_> =
                fields.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
            contains(&document, &fields, &mut Vec::new()).expect("a sound document")
        };
        let number = JsonbScalar::number;
        assert!(has(&[]) && has(&[("a", String("text".into())), ("b", number("12.5000"))]));
        assert!(has(&[
            ("zero", number("3")),
            ("c", Bool(true)),
            ("long", Bool(false)),
            ("d", Null)
        ]));
        for (key, value) in [
            ("a", String("tex".into())),
            ("b", String("12.50".into())),
            ("b", number("12.51")),
            ("c", Bool(false)),
            ("e", Null),
            ("in", Null),
            ("a", Null),
            ("d", Bool(false)),
            ("zero", number("30")),
        ] {
            assert!(!has(&[("c", Bool(true)), (key, value)]), "{key}");
        }
        assert_eq!(contains(&0x4000_0000_u32.to_le_bytes(), &[], &mut Vec::new()), Ok(false));
        assert_eq!(flat_fields(&document), None);
        let flat = object(&[("a", STRING, b"x".to_vec()), ("b", NUMERIC, hundredths(7, 0))]);
        let fields = vec![("a".to_string(), String("x".into())), ("b".to_string(), number("7"))];
        assert_eq!(flat_fields(&flat), Some(fields));
    }

    proptest! {
        #[test]
        fn damage_is_noticed_or_harmless(at in 0_usize..200, byte: u8, cut in 0_usize..200, path in "(a|b|in|zero)") {
            let mut document = document();
            if let Some(changed) = document.get_mut(at) {
                *changed = byte;
            }
            document.truncate(cut.max(1));
            let _ = texts(&document, &[&path]);
            let _ = texts(&document, &[&path, "x"]);
            let wanted = [(path, JsonbScalar::number("12.5"))];
            let _ = contains(&document, &wanted, &mut Vec::new());
            let _ = flat_fields(&document);
        }

        #[test]
        fn garbage_is_no_document(bytes: Vec<u8>) {
            let object: Vec<u8> = 0x2000_0002_u32.to_le_bytes().into_iter().chain(bytes.clone()).collect();
            for document in [bytes, object] {
                let _ = texts(&document, &["a", "b"]);
                let _ = flat_fields(&document);
            }
        }
    }
}
