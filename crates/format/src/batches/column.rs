//! One column of a batch for pipelines: its buffers.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray, make_array};
use arrow_buffer::{BooleanBuffer, Buffer};
use arrow_cast::cast;
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema};
use headrace_io::HeldBytes;
use headrace_ir::{ColumnExtents, Encoding, Extent};

use crate::arrow::{encoding, row_bits};
use crate::error::{FormatError, Result};

/// The table type of a batches' column: `code_type` for texts of one known dictionary, plain text
/// otherwise.
pub(super) fn table_type(data_type: &DataType, has_dictionary: bool) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => match **values {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if has_dictionary => {
                code_type()
            }
            DataType::LargeUtf8 => DataType::LargeUtf8,
            DataType::Utf8 | DataType::Utf8View => DataType::Utf8,
            _ => data_type.clone(),
        },
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}

/// A schema with plain texts and bytes in place of views.
pub fn schema_without_views(schema: &Schema) -> Schema {
    let plain = |field: &FieldRef| match field.data_type() {
        view @ (DataType::Utf8View | DataType::BinaryView) => {
            Arc::new(field.as_ref().clone().with_data_type(table_type(view, false)))
        }
        _ => Arc::clone(field),
    };
    Schema::new(schema.fields().iter().map(plain).collect::<Fields>())
}

/// A batch with plain texts and bytes in place of views. Producers with many threads call it on them: otherwise the one
/// thread that feeds the race does this work.
pub fn without_views(batch: RecordBatch) -> std::result::Result<RecordBatch, ArrowError> {
    let is_view =
        |column: &ArrayRef| matches!(column.data_type(), DataType::Utf8View | DataType::BinaryView);
    if !batch.columns().iter().any(is_view) {
        return Ok(batch);
    }
    let schema = schema_without_views(&batch.schema());
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() {
        own if own == field.data_type() => Ok(Arc::clone(column)),
        // Views of one text may be many.
        _ if viewed_bytes(column) > i32::MAX as usize => {
            Err(ArrowError::OffsetOverflowError(viewed_bytes(column)))
        }
        _ => cast(column, field.data_type()),
    });
    let columns = columns.collect::<std::result::Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
}

fn viewed_bytes(column: &ArrayRef) -> usize {
    let texts = column.as_string_view_opt().map(|texts| texts.total_bytes_len());
    texts.or_else(|| Some(column.as_binary_view_opt()?.total_bytes_len())).unwrap_or(0)
}

fn code_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// A column's buffers, from the batch's first row on.
pub(super) struct Column {
    encoding: Encoding,
    row_bits: u64,
    values: Buffer,
    offsets: Option<Buffer>,
    validity: Option<Buffer>,
}

impl Column {
    /// The column of a batch in the table's type for it.
    pub fn of(name: &str, array: &ArrayRef, dictionary: Option<&Dictionary>) -> Result<Self> {
        let wanted = table_type(array.data_type(), dictionary.is_some());
        let array = match (dictionary, &wanted) {
            (Some(dictionary), DataType::Dictionary(..)) => dictionary.translated(name, array)?,
            _ if *array.data_type() == wanted => Arc::clone(array),
            _ => cast(array, &wanted)
                .map_err(|cause| FormatError::arrow(format!("column {name} as {wanted}"), cause))?,
        };
        Self::in_place(name, &array)
    }

    /// The column of a batch in its own type; codes are those of its table's dictionary.
    pub fn in_place(name: &str, array: &ArrayRef) -> Result<Self> {
        let wanted = array.data_type();
        let unsupported = || FormatError::column(name, format!("its type {wanted} is not read"));
        let encoding = encoding(wanted).ok_or_else(unsupported)?;
        let row_bits = row_bits(wanted).ok_or_else(unsupported)?;
        let data = array.to_data();
        let (first, rows) = (data.offset(), data.len());
        let nulls = data.nulls().filter(|nulls| nulls.null_count() > 0);
        let validity = nulls.map(|nulls| packed(nulls.inner()));
        let item = match data.child_data() {
            [item] if matches!(wanted, DataType::FixedSizeList(..)) => Some(item),
            _ => None,
        };
        if item.is_some_and(|item| item.null_count() > 0) {
            return Err(FormatError::column(name, "a list has NULL for an item"));
        }
        let item_bytes = |item: &ArrayData| item.data_type().primitive_width().unwrap_or(0);
        let skipped_bytes = item.map_or(0, |item| item.offset() * item_bytes(item));
        let buffers = item.map_or(data.buffers(), |item| item.buffers());
        let buffer = |i: usize| buffers.get(i).cloned().ok_or_else(unsupported);
        let width = row_bits as usize / 8;
        let fixed = |rows: usize| -> Result<Buffer> {
            Ok(buffer(0)?.slice_with_length(skipped_bytes + first * width, rows * width))
        };
        let (values, offsets) = match encoding {
            Encoding::Bits => (packed(&BooleanBuffer::new(buffer(0)?, first, rows)), None),
            Encoding::Plain | Encoding::Narrow { .. } | Encoding::Dictionary { .. } => {
                (fixed(rows)?, None)
            }
            Encoding::Offsets { .. } => (buffer(1)?, Some(fixed(rows + 1)?)),
            Encoding::Deltas { .. }
            | Encoding::Pages { .. }
            | Encoding::ColumnPages
            | Encoding::Constant { .. } => {
                return Err(unsupported());
            }
        };
        Ok(Self { encoding, row_bits, values, offsets, validity })
    }

    /// The location of a range of rows. It begins at a multiple of
    /// [`ROW_ALIGNMENT`](headrace_ir::layout::ROW_ALIGNMENT).
    pub fn extents(&self, first_row: u64, rows: u64) -> ColumnExtents {
        let part = |buffer: &Buffer, bits: u64, rows: u64| Extent {
            offset: buffer.as_ptr().addr() as u64 + first_row * bits / 8,
            bytes: (rows * bits).div_ceil(8),
        };
        let (values, offsets, offsets_base) = match &self.offsets {
            Some(offsets) => {
                let text = |row: u64| text_offset(offsets, self.row_bits as usize / 8, row);
                let (from, to) = (text(first_row), text(first_row + rows));
                let offset = self.values.as_ptr().addr() as u64 + from;
                let own = Extent { offset, bytes: to - from };
                (own, Some(part(offsets, self.row_bits, rows + 1)), from)
            }
            None => (part(&self.values, self.row_bits, rows), None, 0),
        };
        ColumnExtents {
            encoding: self.encoding.clone(),
            values,
            offsets,
            offsets_base,
            validity: self.validity.as_ref().map(|validity| part(validity, 1, rows)),
            remap: None,
        }
    }

    /// Bits per row, without text.
    pub fn row_bits(&self) -> u64 {
        self.row_bits + u64::from(self.validity.is_some())
    }

    /// The buffers, in the order of the extents.
    pub fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        let buffers = [Some(&self.values), self.offsets.as_ref(), self.validity.as_ref()];
        buffers.into_iter().flatten()
    }

    /// The buffers, to be retained.
    pub fn held(&self) -> impl Iterator<Item = HeldBytes> + '_ {
        self.buffers().map(|buffer| Box::new(Held(buffer.clone())) as HeldBytes)
    }
}

/// Start of a row's text. Arrays are checked on creation: their offsets lie in their texts and never
/// decrease.
fn text_offset(offsets: &Buffer, width_bytes: usize, row: u64) -> u64 {
    let mut bytes = [0; 8];
    let at = row as usize * width_bytes;
    bytes[..width_bytes].copy_from_slice(&offsets[at..at + width_bytes]);
    u64::from_le_bytes(bytes)
}

struct Held(Buffer);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// Bits that begin at a byte: in place, or else copied.
fn packed(bits: &BooleanBuffer) -> Buffer {
    match bits.offset() % 8 {
        0 => bits.inner().slice_with_length(bits.offset() / 8, bits.len().div_ceil(8)),
        _ => bits.sliced(),
    }
}

/// All texts of a column, known before the first batch.
#[derive(Debug)]
pub(super) struct Dictionary {
    pub values: Arc<StringArray>,
    codes: HashMap<String, i32>,
}

impl Dictionary {
    /// From sorted, distinct texts; the reason if they are not.
    pub fn new(values: Arc<StringArray>) -> std::result::Result<Self, String> {
        let is_sorted =
            (1..values.len()).all(|i| values.value(i - 1).as_bytes() < values.value(i).as_bytes());
        if values.null_count() > 0 || !is_sorted {
            return Err("its dictionary is not sorted, each text once and none NULL".to_string());
        }
        let texts = values.iter().flatten().map(str::to_string);
        Ok(Self { codes: texts.zip(0..).collect(), values })
    }

    /// A dictionary-encoded array with codes of this dictionary.
    fn translated(&self, name: &str, array: &ArrayRef) -> Result<ArrayRef> {
        let failed = |cause| FormatError::arrow(format!("codes of column {name}"), cause);
        let array = cast(array, &code_type()).map_err(failed)?;
        let array = array.as_dictionary::<Int32Type>();
        let own = array.values().as_string::<i32>();
        let code = |text: Option<&str>| match text {
            None => Ok(None),
            Some(text) => self.codes.get(text).copied().map(Some).ok_or_else(|| {
                FormatError::column(name, format!("{text:?} is not in its dictionary"))
            }),
        };
        // Texts that no row has need not be known.
        let codes: Vec<Result<Option<i32>>> = own.iter().map(code).collect();
        let of_row = |key: Option<i32>| match key.map(|key| &codes[key as usize]) {
            None => Ok(None),
            Some(Ok(code)) => Ok(*code),
            Some(Err(_)) => code(key.map(|key| own.value(key as usize))),
        };
        let keys = array.keys().iter().map(of_row);
        let keys = keys.collect::<Result<arrow_array::Int32Array>>()?;
        let data = keys.into_data().into_builder().data_type(code_type());
        let data = data.add_child_data(self.values.to_data()).build().map_err(failed)?;
        Ok(make_array(data))
    }
}
