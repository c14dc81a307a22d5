//! Keys of groups as bytes: equal keys have equal bytes, and values come back from them.
//!
//! ```text
//! header of a key: per key column its value (text: its length, u32), NULL as 0,
//!                  and a byte that is 1 for NULL where NULL can be;  padded to whole words
//! then the texts, one after the other
//! ```
//!
//! Without text all keys have the same width, and small ones compare as one integer.

use crate::ColumnError;
use crate::convert::empty_data;
use crate::key::{canonical_f32, canonical_f64};
use crate::repr::Repr;
use crate::simd::prefetch;
use crate::vector::{Data, Vector};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Where the parts of a key lie.
#[derive(Clone, Debug)]
pub struct KeyLayout {
    parts: Vec<KeyPart>,
    header_bytes: usize,
    has_text: bool,
}

#[derive(Clone, Debug)]
struct KeyPart {
    repr: Repr,
    at: usize,
    null_at: Option<usize>,
}

impl KeyLayout {
    /// The layout of keys with these representations and whether they can be NULL.
    pub fn new(keys: impl Iterator<Item = (Repr, bool)>) -> Self {
        let mut at = 0;
        let mut parts = Vec::new();
        for (repr, nullable) in keys {
            let end = at + value_bytes(&repr);
            parts.push(KeyPart { repr, at, null_at: nullable.then_some(end) });
            at = end + usize::from(nullable);
        }
        let header_bytes = if at <= 4 { 4 } else { at.next_multiple_of(8) };
        let has_text = parts.iter().any(|part| matches!(part.repr, Repr::Str));
        Self { parts, header_bytes, has_text }
    }

    /// Bytes of a key without its texts.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Number of key columns.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Whether any part is text.
    #[inline]
    pub fn has_text(&self) -> bool {
        self.has_text
    }
}

fn value_bytes(repr: &Repr) -> usize {
    match repr {
        Repr::Bool | Repr::I8 | Repr::U8 => 1,
        Repr::I16 | Repr::U16 => 2,
        Repr::I32 | Repr::U32 | Repr::F32 | Repr::Str | Repr::Code(_) => 4,
        Repr::I64 | Repr::U64 | Repr::F64 => 8,
        Repr::I128 => 16,
        Repr::Bytes(width) => *width,
    }
}

/// Keys, one after the other.
#[derive(Debug, Default)]
pub struct KeyRows {
    bytes: Vec<u8>,
    /// Start of each key; empty where all have the same width.
    starts: Vec<usize>,
    rows: usize,
}

impl KeyRows {
    /// Number of keys.
    #[inline]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Forgets all keys; what they took is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
        self.rows = 0;
    }

    /// Host bytes.
    pub fn bytes(&self) -> u64 {
        (self.bytes.len() + size_of_val::<[usize]>(&self.starts)) as u64
    }

    #[inline(always)]
    fn range(&self, layout: &KeyLayout, row: usize) -> std::ops::Range<usize> {
        if layout.has_text {
            let end = self.starts.get(row + 1).copied().unwrap_or(self.bytes.len());
            return self.starts[row]..end;
        }
        row * layout.header_bytes..(row + 1) * layout.header_bytes
    }

    /// Where a key with texts lies will soon be read.
    #[inline(always)]
    pub fn ask_for_place(&self, row: usize) {
        prefetch(self.starts.as_ptr().wrapping_add(row));
    }

    /// A key will soon be read.
    #[inline(always)]
    pub fn ask_for(&self, row: usize, layout: &KeyLayout) {
        let range = self.range(layout, row);
        prefetch(self.bytes.as_ptr().wrapping_add(range.start));
        if layout.has_text && range.len() > LINE_BYTES {
            prefetch(self.bytes.as_ptr().wrapping_add(range.start + LINE_BYTES));
        }
    }

    /// Whether two keys are equal.
    #[inline(always)]
    pub fn equal(&self, row: usize, other: &KeyRows, other_row: usize, layout: &KeyLayout) -> bool {
        let a = &self.bytes[self.range(layout, row)];
        let b = &other.bytes[other.range(layout, other_row)];
        match (layout.has_text, layout.header_bytes) {
            (false, 4) => a.first_chunk::<4>() == b.first_chunk::<4>(),
            (false, 8) => a.first_chunk::<8>() == b.first_chunk::<8>(),
            (false, 16) => a.first_chunk::<16>() == b.first_chunk::<16>(),
            _ => a == b,
        }
    }

    /// Appends a key of another collection.
    #[inline(always)]
    pub fn push(&mut self, other: &KeyRows, row: usize, layout: &KeyLayout) {
        let key = &other.bytes[other.range(layout, row)];
        // A copy of a known width is a few instructions, one of any width a call.
        match (layout.has_text, layout.header_bytes) {
            (true, _) => {
                self.starts.push(self.bytes.len());
                self.bytes.extend_from_slice(key);
            }
            (false, 4) => self.bytes.extend_from_slice(&key[..4]),
            (false, 8) => self.bytes.extend_from_slice(&key[..8]),
            (false, 16) => self.bytes.extend_from_slice(&key[..16]),
            (false, _) => self.bytes.extend_from_slice(key),
        }
        self.rows += 1;
    }

    /// Appends some keys of another collection.
    pub fn append(
        &mut self,
        other: &Self,
        layout: &KeyLayout,
        rows: impl ExactSizeIterator<Item = usize> + Clone,
    ) {
        self.bytes.reserve(rows.clone().map(|row| other.range(layout, row).len()).sum());
        self.starts.reserve(if layout.has_text { rows.len() } else { 0 });
        rows.for_each(|row| self.push(other, row, layout));
    }

    /// Replaces all keys by those of `rows` rows.
    ///
    /// # Errors
    /// A column of another representation than the layout's, a NULL where none can be.
    pub fn encode(
        &mut self,
        layout: &KeyLayout,
        columns: &[&Vector<'_>],
        rows: usize,
    ) -> Result<(), ColumnError> {
        self.clear();
        self.rows = rows;
        let bytes = self.place(layout, columns, rows);
        self.bytes.resize(bytes, 0);
        for (part, column) in layout.parts.iter().zip(columns) {
            let column = column.spelled(rows);
            self.put_nulls(layout, part, &column)?;
            self.put_values(layout, part, &column)?;
        }
        if layout.has_text {
            self.put_texts(layout, columns);
        }
        Ok(())
    }

    /// Where each key begins; answers the bytes of all.
    fn place(&mut self, layout: &KeyLayout, columns: &[&Vector<'_>], rows: usize) -> usize {
        if !layout.has_text {
            return rows * layout.header_bytes;
        }
        let mut end = 0;
        for row in 0..rows {
            self.starts.push(end);
            let texts: usize = columns.iter().map(|column| text_of(column, row).len()).sum();
            end += layout.header_bytes + texts;
        }
        end
    }

    fn put_nulls(
        &mut self,
        layout: &KeyLayout,
        part: &KeyPart,
        column: &Vector<'_>,
    ) -> Result<(), ColumnError> {
        let Some(valid) = &column.validity else { return Ok(()) };
        let Some(null_at) = part.null_at else {
            let is_null = valid.contains(&0);
            return if is_null { Err(internal("a NULL where none was planned")) } else { Ok(()) };
        };
        for (row, &valid) in valid.iter().enumerate() {
            let at = self.range(layout, row).start + null_at;
            self.bytes[at] = 1 - valid;
        }
        Ok(())
    }

    fn put_values(
        &mut self,
        layout: &KeyLayout,
        part: &KeyPart,
        column: &Vector<'_>,
    ) -> Result<(), ColumnError> {
        let valid = column.validity.as_deref();
        macro_rules! put {
            ($values:expr, $value:ident => $bytes:expr) => {
                self.put(layout, part.at, $values.iter().map(|$value| $bytes), valid)
            };
        }
        match (&part.repr, &column.data) {
            (Repr::Bool, Data::Bool(values)) => put!(values, v => [*v]),
            (Repr::I8, Data::I8(values)) => put!(values, v => v.to_le_bytes()),
            (Repr::I16, Data::I16(values)) => put!(values, v => v.to_le_bytes()),
            (Repr::I32 | Repr::Code(_), Data::I32(values)) => put!(values, v => v.to_le_bytes()),
            (Repr::I64, Data::I64(values)) => put!(values, v => v.to_le_bytes()),
            (Repr::U8, Data::U8(values)) => put!(values, v => [*v]),
            (Repr::U16, Data::U16(values)) => put!(values, v => v.to_le_bytes()),
            (Repr::U32, Data::U32(values)) => put!(values, v => v.to_le_bytes()),
            (Repr::U64, Data::U64(values)) => put!(values, v => v.to_le_bytes()),
            (Repr::F32, Data::F32(values)) => put!(values, v => canonical_f32(*v).to_le_bytes()),
            (Repr::F64, Data::F64(values)) => put!(values, v => canonical_f64(*v).to_le_bytes()),
            (Repr::I128, Data::I128(values)) => put!(values, v => v.to_le_bytes()),
            (Repr::Str, Data::Str(values)) => {
                if values.iter().any(|text| u32::try_from(text.len()).is_err()) {
                    return Err(internal("a text of 4 GiB or more"));
                }
                put!(values, v => (v.len() as u32).to_le_bytes());
            }
            (Repr::Bytes(width), Data::Bytes(values)) => {
                self.put_bytes(layout, part.at, *width, values, valid)?;
            }
            _ => return Err(internal("a value of another representation")),
        }
        Ok(())
    }

    #[inline(always)]
    fn put<const N: usize>(
        &mut self,
        layout: &KeyLayout,
        at: usize,
        values: impl Iterator<Item = [u8; N]>,
        valid: Option<&[u8]>,
    ) {
        if let (false, None) = (layout.has_text, valid) {
            let headers = self.bytes.chunks_exact_mut(layout.header_bytes);
            headers.zip(values).for_each(|(header, v)| header[at..at + N].copy_from_slice(&v));
            return;
        }
        for (row, value) in values.enumerate() {
            if valid.is_none_or(|valid| valid[row] != 0) {
                let start = self.range(layout, row).start + at;
                self.bytes[start..start + N].copy_from_slice(&value);
            }
        }
    }

    fn put_bytes(
        &mut self,
        layout: &KeyLayout,
        at: usize,
        width: usize,
        values: &[&[u8]],
        valid: Option<&[u8]>,
    ) -> Result<(), ColumnError> {
        for (row, value) in values.iter().enumerate() {
            if valid.is_none_or(|valid| valid[row] != 0) {
                if value.len() != width {
                    return Err(internal("bytes of another length"));
                }
                let start = self.range(layout, row).start + at;
                self.bytes[start..start + width].copy_from_slice(value);
            }
        }
        Ok(())
    }

    fn put_texts(&mut self, layout: &KeyLayout, columns: &[&Vector<'_>]) {
        for row in 0..self.rows {
            let mut at = self.starts[row] + layout.header_bytes;
            for column in columns {
                let text = text_of(column, row).as_bytes();
                self.bytes[at..at + text.len()].copy_from_slice(text);
                at += text.len();
            }
        }
    }

    /// Column `part` of the keys at `rows`.
    ///
    /// # Errors
    /// Text that is none.
    pub fn column(
        &self,
        layout: &KeyLayout,
        part: usize,
        rows: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<Vector<'_>, ColumnError> {
        let KeyPart { repr, at, null_at } = &layout.parts[part];
        let starts = rows.clone().map(|row| self.range(layout, row).start + at);
        macro_rules! get {
            ($variant:ident, $native:ty) => {
                Data::$variant(
                    starts.map(|start| <$native>::from_le_bytes(self.value(start))).collect(),
                )
            };
        }
        let data = match repr {
            _ if rows.len() == 0 => empty_data(repr, 0)?,
            Repr::Bool => Data::Bool(starts.map(|start| self.bytes[start]).collect()),
            Repr::I8 => get!(I8, i8),
            Repr::I16 => get!(I16, i16),
            Repr::I32 | Repr::Code(_) => get!(I32, i32),
            Repr::I64 => get!(I64, i64),
            Repr::U8 => get!(U8, u8),
            Repr::U16 => get!(U16, u16),
            Repr::U32 => get!(U32, u32),
            Repr::U64 => get!(U64, u64),
            Repr::F32 => get!(F32, f32),
            Repr::F64 => get!(F64, f64),
            Repr::I128 => get!(I128, i128),
            Repr::Str => {
                let texts = rows.clone().map(|row| self.text(layout, part, row));
                Data::Str(texts.collect::<Result<_, _>>()?)
            }
            Repr::Bytes(width) => {
                Data::Bytes(starts.map(|start| &self.bytes[start..start + width]).collect())
            }
        };
        let valid = |row| 1 - self.bytes[self.range(layout, row).start + null_at.unwrap_or(0)];
        let validity = null_at.is_some().then(|| rows.map(valid).collect());
        Ok(Vector::with_validity(data, validity))
    }

    /// Column `part` of a key, if it is an integer and not NULL.
    #[inline]
    pub fn integer(&self, layout: &KeyLayout, part: usize, row: usize) -> Option<i64> {
        let KeyPart { repr, at, null_at } = &layout.parts[part];
        let key = self.range(layout, row).start;
        let start = key + at;
        if null_at.is_some_and(|null_at| self.bytes[key + null_at] != 0) {
            return None;
        }
        Some(match repr {
            Repr::Bool | Repr::U8 => self.bytes[start].into(),
            Repr::I8 => i8::from_le_bytes(self.value(start)).into(),
            Repr::I16 => i16::from_le_bytes(self.value(start)).into(),
            Repr::U16 => u16::from_le_bytes(self.value(start)).into(),
            Repr::I32 | Repr::Code(_) => i32::from_le_bytes(self.value(start)).into(),
            Repr::U32 => u32::from_le_bytes(self.value(start)).into(),
            Repr::I64 => i64::from_le_bytes(self.value(start)),
            Repr::U64 | Repr::F32 | Repr::F64 | Repr::I128 | Repr::Str | Repr::Bytes(_) => {
                return None;
            }
        })
    }

    #[inline(always)]
    fn value<const N: usize>(&self, start: usize) -> [u8; N] {
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[start..start + N]);
        value
    }

    fn text(&self, layout: &KeyLayout, part: usize, row: usize) -> Result<&str, ColumnError> {
        let start = self.starts[row];
        let length = |part: &KeyPart| u32::from_le_bytes(self.value(start + part.at)) as usize;
        let before = layout.parts[..part].iter().filter(|part| matches!(part.repr, Repr::Str));
        let from = start + layout.header_bytes + before.map(length).sum::<usize>();
        let bytes = &self.bytes[from..from + length(&layout.parts[part])];
        simdutf8::basic::from_utf8(bytes).map_err(|_| internal("a key is no text"))
    }
}

/// The text of a row; "" for NULL and for what is no text.
fn text_of<'v>(column: &'v Vector<'_>, row: usize) -> &'v str {
    match &column.data {
        Data::Str(values) if column.is_valid(row) => values[if column.constant { 0 } else { row }],
        _ => "",
    }
}

fn internal(cause: &str) -> ColumnError {
    ColumnError::Internal(format!("group keys: {cause}"))
}
