//! JSON: which columns objects have, told without making values of them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};

use super::sample::SAMPLE_RECORDS_MAX;
use super::separated::shown;

/// Objects and lists within each other.
const DEPTH_MAX: usize = 128;

/// Digits of the longest integer that is read as a number.
const DIGITS_MAX: usize = 38;

/// What the values of a field look like.
#[derive(Clone, Debug, Default)]
enum Shape {
    #[default]
    Nothing,
    Boolean,
    Integer,
    LongInteger,
    Float,
    Text,
    List(Box<Shape>),
    Object(Fields),
}

/// The fields of objects, in the order in which they appear.
#[derive(Clone, Debug, Default)]
struct Fields {
    places: HashMap<String, usize>,
    fields: Vec<(String, Shape)>,
}

impl Fields {
    fn field(&mut self, name: &str) -> &mut Shape {
        let place = match self.places.get(name) {
            Some(place) => *place,
            None => {
                self.places.insert(name.to_string(), self.fields.len());
                self.fields.push((name.to_string(), Shape::Nothing));
                self.fields.len() - 1
            }
        };
        &mut self.fields[place].1
    }
}

impl Shape {
    fn name(&self) -> &'static str {
        match self {
            Shape::Nothing => "null",
            Shape::Boolean => "a truth value",
            Shape::Integer => "an integer",
            Shape::LongInteger => "an integer of more than 64 bits",
            Shape::Float => "a number with a fraction",
            Shape::Text => "text",
            Shape::List(_) => "a list",
            Shape::Object(_) => "an object",
        }
    }

    fn is_scalar(&self) -> bool {
        !matches!(self, Shape::Nothing | Shape::List(_) | Shape::Object(_))
    }

    /// Takes in a value; what it is beside, where both are not one type.
    fn take(&mut self, scalar: Shape) -> Result<(), String> {
        use Shape::*;
        *self = match (std::mem::take(self), scalar) {
            (known, Nothing) => known,
            (Nothing, scalar) => scalar,
            (Boolean, Boolean) => Boolean,
            (Integer, Integer) => Integer,
            (Integer | LongInteger, LongInteger | Integer) => LongInteger,
            (Integer | Float, Float | Integer) => Float,
            // One of them would lose digits.
            (known @ (LongInteger | Float), other @ (LongInteger | Float)) => {
                return Err(format!("{} here, and {} before", other.name(), known.name()));
            }
            (known, _) if known.is_scalar() => Text,
            (known, scalar) => {
                return Err(format!("{} here, and {} before", scalar.name(), known.name()));
            }
        };
        Ok(())
    }

    fn data_type(self) -> DataType {
        match self {
            Shape::Nothing => DataType::Null,
            Shape::Boolean => DataType::Boolean,
            Shape::Integer => DataType::Int64,
            Shape::LongInteger => DataType::Decimal128(DIGITS_MAX as u8, 0),
            Shape::Float => DataType::Float64,
            Shape::Text => DataType::Utf8,
            Shape::List(item) => {
                DataType::List(Arc::new(Field::new_list_field(item.data_type(), true)))
            }
            Shape::Object(fields) => DataType::Struct(fields.into_fields().into()),
        }
    }
}

impl Fields {
    fn into_fields(self) -> Vec<Field> {
        let field = |(name, shape): (String, Shape)| Field::new(name, shape.data_type(), true);
        self.fields.into_iter().map(field).collect()
    }
}

/// The columns of objects, but for those whose types somebody named.
///
/// # Errors
/// With the field's name: values that fit no one type; a text that is no JSON.
pub fn infer(text: &[u8], given: &[(String, DataType)]) -> Result<Schema, String> {
    let mut scanner = Scanner::of(text);
    let mut fields = Fields::default();
    let mut records = 0;
    while records < SAMPLE_RECORDS_MAX && scanner.skip_blanks() {
        records += 1;
        let taken = scanner.object(&mut |scanner, name| {
            if given.iter().any(|(known, _)| known == name) {
                *fields.field(name) = Shape::Text;
                return scanner.value(None);
            }
            scanner.value(Some((fields.field(name), name)))
        });
        taken.map_err(|cause| format!("record {records}: {cause}"))?;
    }
    let named = |field: Field| {
        let known = given.iter().find(|(name, _)| name == field.name());
        match known {
            Some((_, data_type)) => field.with_data_type(data_type.clone()),
            None => field,
        }
    };
    Ok(Schema::new(fields.into_fields().into_iter().map(named).collect::<Vec<_>>()))
}

/// Goes over JSON without making values of it.
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

/// What takes in a field's values, and its name.
type Into<'s> = Option<(&'s mut Shape, &'s str)>;

impl<'a> Scanner<'a> {
    /// At the beginning of a text.
    pub fn of(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// A value as it is written.
    ///
    /// # Errors
    /// What is no value.
    pub fn value_text(&mut self) -> Result<&'a [u8], String> {
        self.skip_blanks();
        let start = self.at;
        self.value(None)?;
        Ok(&self.text[start..self.at])
    }

    /// Whether anything follows.
    pub fn skip_blanks(&mut self) -> bool {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.at < self.text.len()
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let is_there = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        match self.take(byte) {
            true => Ok(()),
            false => Err(self.unexpected(char::from(byte))),
        }
    }

    fn unexpected(&self, wanted: char) -> String {
        let rest = &self.text[self.at.min(self.text.len())..];
        let found = String::from_utf8_lossy(&rest[..rest.len().min(20)]).into_owned();
        match found.is_empty() {
            true => format!("{wanted} is missing at its end"),
            false => format!("{wanted} is missing before '{}'", found.escape_debug()),
        }
    }

    /// An object, whose values `field` goes over.
    ///
    /// # Errors
    /// What is no object; those of `field`.
    pub fn object(
        &mut self,
        field: &mut dyn FnMut(&mut Self, &str) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(b'{')?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.skip_blanks();
            let name = self.string()?;
            self.expect(b':')?;
            field(self, &name)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let start = self.at;
        self.skip_string()?;
        serde_json::from_slice(&self.text[start..self.at]).map_err(|e| e.to_string())
    }

    fn skip_string(&mut self) -> Result<(), String> {
        if self.text.get(self.at) != Some(&b'"') {
            return Err(self.unexpected('"'));
        }
        self.at += 1;
        while let Some(byte) = self.text.get(self.at) {
            self.at = match byte {
                b'\\' => (self.at + 2).min(self.text.len()),
                _ => self.at + 1,
            };
            if *byte == b'"' {
                return Ok(());
            }
        }
        Err(self.unexpected('"'))
    }

    fn value(&mut self, into: Into) -> Result<(), String> {
        if self.depth == DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} lists and objects lie in each other"));
        }
        self.skip_blanks();
        self.depth += 1;
        let done = match self.text.get(self.at) {
            Some(b'{') => self.nested_object(into),
            Some(b'[') => self.list(into),
            _ => self.scalar(into),
        };
        self.depth -= 1;
        done
    }

    fn nested_object(&mut self, into: Into) -> Result<(), String> {
        let Some((shape, path)) = into else {
            return self.object(&mut |scanner, _| scanner.value(None));
        };
        if matches!(shape, Shape::Nothing) {
            *shape = Shape::Object(Fields::default());
        }
        let Shape::Object(fields) = shape else {
            return Err(conflict(path, "an object", shape));
        };
        self.object(&mut |scanner, name| {
            let path = format!("{path}.{name}");
            scanner.value(Some((fields.field(name), &path)))
        })
    }

    fn list(&mut self, into: Into) -> Result<(), String> {
        let mut into = into;
        if let Some((shape, path)) = &mut into {
            if matches!(shape, Shape::Nothing) {
                **shape = Shape::List(Box::default());
            }
            if !matches!(shape, Shape::List(_)) {
                return Err(conflict(path, "a list", shape));
            }
        }
        self.expect(b'[')?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            match &mut into {
                Some((Shape::List(item), path)) => self.value(Some((item, path)))?,
                _ => self.value(None)?,
            }
            if self.take(b']') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    fn scalar(&mut self, into: Into) -> Result<(), String> {
        let start = self.at;
        let shape = match self.text.get(start) {
            Some(b'"') => {
                self.skip_string()?;
                Shape::Text
            }
            _ => {
                let is_end =
                    |b: &u8| matches!(b, b',' | b']' | b'}' | b':') || b.is_ascii_whitespace();
                let length = self.text[start..].iter().position(is_end);
                self.at = length.map_or(self.text.len(), |length| start + length);
                match &self.text[start..self.at] {
                    b"null" => Shape::Nothing,
                    b"true" | b"false" => Shape::Boolean,
                    other => number_shape(other).ok_or_else(|| {
                        let text = String::from_utf8_lossy(other);
                        format!("'{}' is no value of JSON", shown(&text))
                    })?,
                }
            }
        };
        let Some((known, path)) = into else { return Ok(()) };
        known
            .take(shape)
            .map_err(|cause| format!("field {path}: {cause}\nhint: {}", text_hint(path)))
    }
}

fn conflict(path: &str, found: &str, known: &Shape) -> String {
    format!("field {path}: {found} here, and {} before\nhint: {}", known.name(), text_hint(path))
}

/// What helps against a field of two kinds.
pub fn text_hint(path: &str) -> String {
    let name = path.split('.').next().unwrap_or_default().replace('\'', "''");
    format!(
        "name its type: read_json('..', types => {{'{name}': 'VARCHAR'}}) gives its JSON as text"
    )
}

fn number_shape(text: &[u8]) -> Option<Shape> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    match digits.bytes().all(|b| b.is_ascii_digit()) {
        true if text.parse::<i64>().is_ok() => Some(Shape::Integer),
        true if digits.len() <= DIGITS_MAX => Some(Shape::LongInteger),
        true => Some(Shape::Text),
        false => text.parse::<f64>().ok().map(|_| Shape::Float),
    }
}
