//! Sort keys of rows: bytes that compare like the rows, and the first eight of them as a number.
//!
//! ```text
//! columns ──► floats made plain (-0 is 0, one NaN) ──► arrow_row: bytes that compare as the columns do
//!                                                        └─► their first 8 bytes that differ: a u64
//! ```
//!
//! A column without NULLs has the same byte before each of its values, which the number leaves out. If the number
//! contains everything (one integer of any width, a date and an `i32`), the bytes are not kept.
//!
//! The number decides nearly every comparison.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{DataType, SortOptions};

use super::super::Order;
use super::columns::{Columns, failed};
use crate::{OocError, Result};
use headrace_ir::OrderKey;

/// Bytes of a number.
const PREFIX_BYTES: usize = 8;

/// A sort column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKey {
    /// Its name.
    pub column: String,
    /// The direction.
    pub order: Order,
    /// Whether NULLs come first; `None`: as in SQL, last in ascending and first in descending order.
    pub nulls_first: Option<bool>,
}

impl SortKey {
    /// Ascending, NULLs last.
    pub fn ascending(column: impl Into<String>) -> Self {
        SortKey { column: column.into(), order: Order::Ascending, nulls_first: None }
    }

    /// Descending, NULLs first.
    pub fn descending(column: impl Into<String>) -> Self {
        SortKey { column: column.into(), order: Order::Descending, nulls_first: None }
    }
}

/// `NAME`, optionally followed by `:asc` or `:desc`, and `:nulls-first` or `:nulls-last`.
impl FromStr for SortKey {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (mut rest, mut order, mut nulls_first) = (text, None, None);
        while let Some((before, word)) = rest.rsplit_once(':') {
            match word {
                "asc" if order.is_none() => order = Some(Order::Ascending),
                "desc" if order.is_none() => order = Some(Order::Descending),
                "nulls-first" if order.is_none() && nulls_first.is_none() => {
                    nulls_first = Some(true)
                }
                "nulls-last" if order.is_none() && nulls_first.is_none() => {
                    nulls_first = Some(false)
                }
                // Names may have colons.
                _ => break,
            }
            rest = before;
        }
        if rest.is_empty() {
            return Err(format!("{text:?} names no column; NAME, NAME:desc, NAME:asc:nulls-first"));
        }
        Ok(SortKey { column: rest.to_string(), order: order.unwrap_or_default(), nulls_first })
    }
}

/// Makes keys of rows.
#[derive(Debug)]
pub(super) struct KeyMaker {
    /// The columns of the table, most significant first.
    pub columns: Vec<usize>,
    /// By key column: the values of its codes, if codes do not compare like these.
    values: Vec<Option<ArrayRef>>,
    converter: RowConverter,
    /// Bytes of all fixed-width columns in a row.
    row_bytes: usize,
    /// Of these, the ones before the first other column.
    fixed_bytes: usize,
    /// Which of these, and of the rest, form a row's number.
    ranges: Vec<Range<usize>>,
    is_fixed: bool,
    is_whole: bool,
}

/// A key: keys compare like their rows.
pub(super) type Key<'a> = (u64, &'a [u8]);

/// The keys of some rows.
#[derive(Debug)]
pub(super) struct Keys {
    pub prefixes: Vec<u64>,
    /// `None`: the numbers are everything.
    rows: Option<Rows>,
}

impl Keys {
    /// Whether the numbers are everything.
    pub fn is_whole(&self) -> bool {
        self.rows.is_none()
    }

    /// The bytes after the number.
    pub fn row(&self, row: usize) -> &[u8] {
        self.rows.as_ref().map_or(&[], |rows| rows.row(row).data())
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        let rows = self.rows.as_ref().map_or(0, Rows::size);
        (self.prefixes.capacity() * PREFIX_BYTES + rows) as u64
    }

    pub fn key(&self, row: usize) -> Key<'_> {
        (self.prefixes[row], self.row(row))
    }

    /// Bytes of a row's key.
    pub fn row_bytes(&self, row: usize) -> u64 {
        let rest = self.rows.as_ref().map_or(0, |rows| rows.row_len(row) + size_of::<usize>());
        (PREFIX_BYTES + rest) as u64
    }
}

impl KeyMaker {
    /// For rows with these columns; a repeated column decides nothing.
    ///
    /// # Errors
    /// A column without an order; no columns.
    pub fn new(columns: &Columns, by: &[OrderKey]) -> Result<KeyMaker> {
        if by.is_empty() {
            return Err(OocError::usage("no column to sort by", "name one"));
        }
        let mut maker = KeyMaker {
            columns: Vec::new(),
            values: Vec::new(),
            converter: RowConverter::new(Vec::new()).map_err(failed("making keys"))?,
            row_bytes: 0,
            fixed_bytes: 0,
            ranges: Vec::new(),
            is_fixed: true,
            is_whole: false,
        };
        let mut fields = Vec::new();
        for &OrderKey { column: i, descending, nulls_first } in by {
            if maker.columns.contains(&i) {
                continue;
            }
            let (data_type, values) = ordered(columns, i)?;
            // A dictionary's values may be NULL whatever the column says.
            let may_be_null = values.is_some() || columns.table.field(i).is_nullable();
            maker.add_width(&data_type, may_be_null);
            fields.push(SortField::new_with_options(
                data_type,
                SortOptions { descending, nulls_first },
            ));
            maker.columns.push(i);
            maker.values.push(values);
        }
        let prefix_bytes: usize = maker.ranges.iter().map(Range::len).sum();
        maker.is_whole = maker.is_fixed && prefix_bytes <= PREFIX_BYTES;
        maker.converter = RowConverter::new(fields).map_err(failed("making keys"))?;
        Ok(maker)
    }

    /// Looks up codes in the current dictionaries of the columns.
    pub fn follow(&mut self, columns: &Columns) {
        for (values, column) in self.values.iter_mut().zip(&self.columns) {
            if values.is_some() {
                values.clone_from(&columns.dictionaries[*column]);
            }
        }
    }

    /// Records the layout of a column's values in the bytes of a row: a NULL byte before each.
    fn add_width(&mut self, data_type: &DataType, may_be_null: bool) {
        let (start, width) = (self.fixed_bytes, fixed_bytes(data_type));
        self.row_bytes += width.map_or(0, |bytes| 1 + bytes);
        match width {
            _ if !self.is_fixed => {}
            Some(0) => {}
            Some(bytes) => {
                self.fixed_bytes += 1 + bytes;
                self.ranges.push(start + usize::from(!may_be_null)..self.fixed_bytes);
            }
            None => {
                self.is_fixed = false;
                self.ranges.push(start..usize::MAX);
            }
        }
    }

    /// The key columns of a complete batch.
    pub fn arrays(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let arrays = self.columns.iter().map(|i| batch.column(*i).clone()).collect();
        self.resolved(arrays)
    }

    /// Key columns with codes replaced by their sort values.
    pub fn resolved(&self, arrays: Vec<ArrayRef>) -> Result<Vec<ArrayRef>> {
        let resolve = |(array, values): (ArrayRef, &Option<ArrayRef>)| {
            let array = match values {
                Some(values) => arrow_select::take::take(values, &array, None)
                    .map_err(failed("looking up a dictionary"))?,
                None => array,
            };
            Ok(one_zero_one_nan(&array))
        };
        arrays.into_iter().zip(&self.values).map(resolve).collect()
    }

    /// Maximum bytes for making the keys of such columns.
    pub fn bytes_max(&self, arrays: &[ArrayRef]) -> u64 {
        let rows = arrays.first().map_or(0, |array| array.len());
        // Text comes in blocks of 8 and 32 bytes, each with a byte behind it.
        let text = |array: &ArrayRef| text_bytes(array) / 8 * 9 + array.len() as u64 * 48;
        let texts: u64 =
            arrays.iter().filter(|a| fixed_bytes(a.data_type()).is_none()).map(text).sum();
        rows as u64 * self.fixed_row_bytes() + texts
    }

    /// Approximate bytes of texts in the keys of a complete batch.
    pub fn texts_bytes(&self, batch: &RecordBatch) -> u64 {
        let of_column = |(column, values): (&usize, &Option<ArrayRef>)| {
            let array = batch.column(*column);
            let bytes = match values {
                Some(values) if fixed_bytes(values.data_type()).is_none() => {
                    let of_value = text_bytes(values).div_ceil(values.len().max(1) as u64);
                    of_value * array.len() as u64
                }
                None if fixed_bytes(array.data_type()).is_none() => text_bytes(array),
                _ => 0,
            };
            2 * bytes
        };
        self.columns.iter().zip(&self.values).map(of_column).sum()
    }

    /// The same for a row, without its texts.
    pub fn fixed_row_bytes(&self) -> u64 {
        (self.row_bytes + size_of::<usize>() + PREFIX_BYTES) as u64
    }

    /// The keys of rows.
    pub fn keys(&self, arrays: &[ArrayRef]) -> Result<Keys> {
        let rows = self.converter.convert_columns(arrays).map_err(failed("making keys"))?;
        if self.is_fixed {
            let is_so = rows.num_rows() == 0 || rows.row_len(0) == self.fixed_bytes;
            assert!(is_so, "keys of {} bytes", self.fixed_bytes);
        }
        let prefixes = self.prefixes(&rows);
        Ok(Keys { prefixes, rows: (!self.is_whole).then_some(rows) })
    }

    fn prefixes(&self, rows: &Rows) -> Vec<u64> {
        let prefix = |row: &[u8]| {
            let (mut bytes, mut end) = ([0; PREFIX_BYTES], 0);
            for range in &self.ranges {
                let part = &row[range.start..range.end.min(row.len())];
                let count = part.len().min(PREFIX_BYTES - end);
                bytes[end..end + count].copy_from_slice(&part[..count]);
                end += count;
            }
            u64::from_be_bytes(bytes)
        };
        rows.iter().map(|row| prefix(row.data())).collect()
    }
}

/// Columns of a table by name.
///
/// # Errors
/// One that is missing, ambiguous, or named twice.
pub(super) fn named(columns: &Columns, by: &[SortKey]) -> Result<Vec<OrderKey>> {
    let mut keys: Vec<OrderKey> = Vec::new();
    for key in by {
        let column = find(columns, &key.column)?;
        if keys.iter().any(|other| other.column == column) {
            let what = format!("column {} is named twice", key.column);
            return Err(OocError::usage(what, "name each column once"));
        }
        let descending = key.order == Order::Descending;
        let nulls_first = key.nulls_first.unwrap_or(descending);
        keys.push(OrderKey { column, descending, nulls_first });
    }
    Ok(keys)
}

fn find(columns: &Columns, name: &str) -> Result<usize> {
    let fields = columns.table.fields();
    let mut found = fields.iter().enumerate().filter(|(_, field)| field.name() == name);
    match (found.next(), found.next()) {
        (Some((i, _)), None) => Ok(i),
        (Some(_), Some(_)) => {
            let what = format!("there are several columns {name}");
            Err(OocError::usage(what, "give them different names"))
        }
        (None, _) => {
            let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
            let remedy = format!("there are {}", names.join(", "));
            Err(OocError::usage(format!("there is no column {name}"), remedy))
        }
    }
}

/// The sort type of a column's rows, and the values of codes that do not compare like these.
fn ordered(columns: &Columns, column: usize) -> Result<(DataType, Option<ArrayRef>)> {
    let field = columns.table.field(column);
    let (data_type, values) = match (field.data_type(), &columns.dictionaries[column]) {
        (DataType::Dictionary(codes, values), Some(_)) if columns.is_sorted && is_text(values) => {
            (codes.as_ref().clone(), None)
        }
        (DataType::Dictionary(_, data_type), values) => {
            (data_type.as_ref().clone(), values.clone())
        }
        (data_type, _) => (data_type.clone(), None),
    };
    let is_ordered = !data_type.is_nested()
        && RowConverter::supports_fields(&[SortField::new(data_type.clone())]);
    if !is_ordered {
        let what = format!("column {}: values of type {data_type} have no order", field.name());
        return Err(OocError::usage(what, "sort by another column"));
    }
    Ok((data_type, values))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Bytes of a value in a row, without the NULL byte; `None`: variable.
fn fixed_bytes(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Null => Some(0),
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).ok(),
        _ => data_type.primitive_width(),
    }
}

/// Bytes of a column's values, without bytes that its views do not show.
pub(super) fn shown_bytes(array: &ArrayRef) -> u64 {
    match array.data_type() {
        DataType::Utf8View | DataType::BinaryView => 16 * array.len() as u64 + text_bytes(array),
        // What an array does not know of itself it may have whole.
        _ => {
            array.to_data().get_slice_memory_size().unwrap_or(array.get_array_memory_size()) as u64
        }
    }
}

/// Bytes of all values of a text column.
fn text_bytes(array: &ArrayRef) -> u64 {
    let difference = |first: Option<i64>, last: Option<i64>| {
        last.unwrap_or(0).saturating_sub(first.unwrap_or(0)) as u64
    };
    let small = |offsets: &[i32]| {
        difference(offsets.first().map(|o| i64::from(*o)), offsets.last().map(|o| i64::from(*o)))
    };
    let large = |offsets: &[i64]| difference(offsets.first().copied(), offsets.last().copied());
    // The length is the first of a view's four words.
    let views = |views: &[u128]| views.iter().map(|view| u64::from(*view as u32)).sum();
    match array.data_type() {
        DataType::Utf8 => small(array.as_string::<i32>().value_offsets()),
        DataType::Binary => small(array.as_binary::<i32>().value_offsets()),
        DataType::LargeUtf8 => large(array.as_string::<i64>().value_offsets()),
        DataType::LargeBinary => large(array.as_binary::<i64>().value_offsets()),
        DataType::Utf8View => views(array.as_string_view().views()),
        DataType::BinaryView => views(array.as_binary_view().views()),
        _ => array.get_array_memory_size() as u64,
    }
}

/// Floats with one zero and one NaN, which is greatest.
fn one_zero_one_nan(array: &ArrayRef) -> ArrayRef {
    type Half = <Float16Type as ArrowPrimitiveType>::Native;
    fn of<T: ArrowPrimitiveType>(
        array: &ArrayRef,
        plain: impl Fn(T::Native) -> T::Native,
    ) -> ArrayRef {
        Arc::new(array.as_primitive::<T>().unary::<_, T>(plain))
    }
    match array.data_type() {
        DataType::Float16 => of::<Float16Type>(array, |value| match value {
            value if value.is_nan() => Half::NAN,
            value if value == Half::ZERO => Half::ZERO,
            value => value,
        }),
        // Minus zero and zero are zero.
        DataType::Float32 => {
            of::<Float32Type>(array, |value| if value.is_nan() { f32::NAN } else { value + 0.0 })
        }
        DataType::Float64 => {
            of::<Float64Type>(array, |value| if value.is_nan() { f64::NAN } else { value + 0.0 })
        }
        _ => array.clone(),
    }
}
