//! Record batches as Arrow arrays: any type, any compression, in place where possible.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::builder::PrimitiveBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, DictionaryArray, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::{ArrowNativeType, Buffer};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use headrace_io::{MappedFile, MappingPool, SourceFile};
use headrace_ir::Extent;

use super::decode::{DecodeError, Decoder, Hold};
use super::fields::FileField;
use super::file::{ArrowFile, read_copy};
use super::growing::with_key_type;
use super::message::BatchMessage;
use super::table::ArrowTable;
use super::texts::{StoredTexts, are_texts};
use crate::error::{FormatError, Result};

impl ArrowTable {
    /// A record batch of a file in the table's types: dictionary codes are the table's, columns
    /// in the order of `projection` (all, if `None`).
    ///
    /// Aligned, uncompressed fixed-width values are not copied: they lie in a mapping of the file,
    /// where they may change with the file. They are not checked; [`ArrowTable::check_unchanged`]
    /// after the last use of the batch tells whether they were the file's. Everything that is
    /// checked (offsets, views, UTF-8, codes) or counted (bits) is copied first, so that it stays
    /// valid. A file that cannot be mapped is read; [`ArrowFile::reads`] counts both.
    ///
    /// # Errors
    /// [`FormatError::Argument`] for invalid arguments, [`FormatError::Corrupt`] for values that
    /// contradict their type, [`FormatError::Io`] if the file changed or cannot be read.
    pub fn read_batch(
        &self,
        file: usize,
        batch: usize,
        projection: Option<&[usize]>,
    ) -> Result<RecordBatch> {
        let stored = self.stored_batch(file, batch, projection)?;
        self.read_rows(&stored, 0..stored.rows)
    }

    /// A record batch in its stored form, for reading [some rows](Self::read_rows) at a time: narrow columns,
    /// and columns with other codes than the table's, take several times the bytes in the table's types.
    ///
    /// # Errors
    /// Those of [`read_batch`](Self::read_batch).
    pub fn stored_batch(
        &self,
        file: usize,
        batch: usize,
        projection: Option<&[usize]>,
    ) -> Result<StoredBatch> {
        let columns = match projection {
            Some(columns) => columns.to_vec(),
            None => (0..self.schema().fields().len()).collect(),
        };
        let schema = self.projected_schema(&columns)?;
        let Some(source) = self.files().get(file).filter(|file| batch < file.batches()) else {
            return Err(FormatError::Argument(format!("record batch {batch} of file {file}")));
        };
        let bytes = Bytes::of(source, &self.mappings)?;
        let message = source.batches.message(batch);
        let stored = |&column: &usize| self.stored_column(&bytes, file, (batch, &message), column);
        let arrays = unless_changed(source, columns.iter().map(stored).collect())?;
        source.mapping.check(source.path())?;
        let rows = source.batch_rows(batch) as usize;
        Ok(StoredBatch { file, batch, columns, schema, arrays, rows })
    }

    /// Rows of a batch in the table's types, as in [`read_batch`](Self::read_batch).
    ///
    /// # Errors
    /// Those of [`read_batch`](Self::read_batch).
    ///
    /// # Panics
    /// If the batch has fewer rows.
    pub fn read_rows(&self, stored: &StoredBatch, rows: Range<usize>) -> Result<RecordBatch> {
        let source = &self.files()[stored.file];
        let columns = stored.columns.iter().zip(&stored.arrays);
        let in_table = |(&column, stored_column): (&usize, &Stored)| match stored_column {
            Stored::Whole(array) => {
                self.in_table(stored, column, array.slice(rows.start, rows.len()))
            }
            Stored::Texts(texts) => {
                self.in_table(stored, column, self.texts(stored, (column, texts), &rows)?)
            }
            Stored::Constant => self.constant_rows(stored.file, column, rows.len()),
        };
        let arrays = unless_changed(source, columns.map(in_table).collect())?;
        source.mapping.check(source.path())?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(stored.schema.clone(), arrays, &options);
        batch.map_err(|cause| {
            let place = format!("record batch {}", stored.batch);
            FormatError::corrupt(source.path(), 0, place, cause.to_string())
        })
    }

    /// Maximum bytes of [`read_batch`](Self::read_batch) of all columns. For compressed buffers it is their
    /// claimed expansion, read from the file; a larger expansion is refused.
    ///
    /// # Errors
    /// [`FormatError::Argument`] for invalid arguments, [`FormatError::Io`] if the file changed or cannot be read.
    pub fn batch_bytes_max(&self, file: usize, batch: usize) -> Result<u64> {
        let Some(source) = self.files().get(file).filter(|file| batch < file.batches()) else {
            return Err(FormatError::Argument(format!("record batch {batch} of file {file}")));
        };
        // Codes of the table, where the file's are others: 8 bytes and a bit of validity.
        let is_other = |column: &usize| {
            let Some(&field) = self.fields[file].get(*column) else { return true };
            let own = source.schema.fields[field].dictionary_codes();
            let remap = self.table_dictionary(*column).is_some_and(|d| d.remap(file).is_some());
            let table = self.schema().field(*column).data_type();
            let is_wider = own.is_some_and(|own| match table {
                DataType::Dictionary(codes, _) => **codes != *own.data_type(),
                _ => false,
            });
            remap || is_wider
        };
        let columns = 0..self.schema().fields().len();
        let others = columns.clone().filter(is_other).count() as u64;
        // What is narrow gets its bytes: 16 at most.
        let is_narrow = |column: &usize| {
            let own = self.fields[file].get(*column).map(|&field| &source.schema.fields[field]);
            own.is_some_and(|own| own.table_type() != *own.data_type())
        };
        let narrow = columns.filter(is_narrow).count() as u64;
        let made_bytes = source.batch_rows(batch).saturating_mul(9 * others + 16 * narrow);
        Ok(made_bytes.saturating_add(source.decoded_bytes_max(batch)?))
    }

    /// The table's columns in the order of a projection.
    ///
    /// # Errors
    /// [`FormatError::Argument`] for a column that does not exist.
    pub fn projected_schema(&self, columns: &[usize]) -> Result<SchemaRef> {
        let all = self.schema().fields();
        let fields = columns
            .iter()
            .map(|i| {
                all.get(*i)
                    .cloned()
                    .ok_or_else(|| FormatError::Argument(format!("column {i} of {}", all.len())))
            })
            .collect::<Result<Vec<Arc<Field>>>>()?;
        Ok(Arc::new(Schema::new_with_metadata(fields, self.schema().metadata().clone())))
    }

    /// A column in its stored form, codes without their dictionary.
    fn stored_column(
        &self,
        bytes: &Bytes<'_>,
        file: usize,
        batch: (usize, &BatchMessage),
        column: usize,
    ) -> Result<Stored> {
        if self.constant(file, column).is_some() {
            return Ok(Stored::Constant);
        }
        let index = self.fields[file][column];
        let field = &bytes.file.schema.fields[index];
        let codes = self.table_dictionary(column).and_then(|_| field.dictionary_codes());
        bytes.decode(batch, index, codes.as_ref().unwrap_or(field))
    }

    /// Rows of a column whose values are still in the file.
    fn texts(
        &self,
        stored: &StoredBatch,
        (column, texts): (usize, &StoredTexts),
        rows: &Range<usize>,
    ) -> Result<ArrayRef> {
        let source = &self.files()[stored.file];
        let extent = texts.extent(rows);
        let values = match extent.bytes {
            0 => Buffer::from([]),
            _ => Bytes::of(source, &self.mappings)?.get(extent, Hold::Copied)?,
        };
        texts.rows(rows, values).map_err(|cause| {
            let name = self.schema().field(column).name();
            let place = format!("record batch {}, column {name}", stored.batch);
            FormatError::corrupt(source.path(), extent.offset, place, cause)
        })
    }

    /// Rows of a column that is constant in a file.
    fn constant_rows(&self, file: usize, column: usize, rows: usize) -> Result<ArrayRef> {
        let value = self.constant(file, column).ok_or_else(|| {
            FormatError::column(self.schema().field(column).name(), "not of one value")
        })?;
        Ok(self.constant_array(column, value, rows))
    }

    /// A file's column in the table's type.
    fn in_table(&self, stored: &StoredBatch, column: usize, values: ArrayRef) -> Result<ArrayRef> {
        let source = &self.files()[stored.file];
        let field = &source.schema.fields[self.fields[stored.file][column]];
        let data_type = self.schema().field(column).data_type();
        match (self.table_dictionary(column), field.dictionary_codes()) {
            (Some(dictionary), Some(_)) => {
                let DataType::Dictionary(key, _) = data_type else {
                    return Err(FormatError::column(field.name(), "not a dictionary"));
                };
                let remap = dictionary.remap(stored.file).map(|(_, remap)| &**remap);
                let meanings: ArrayRef = dictionary.values.clone();
                table_codes(&values, remap, key, meanings).map_err(|cause| {
                    let place = format!("record batch {}, column {}", stored.batch, field.name());
                    FormatError::corrupt(source.path(), 0, place, cause)
                })
            }
            _ if values.data_type() == data_type => Ok(values),
            _ if let Some(packed) = field.packed() => {
                packed.unpack(&values).map_err(|cause| FormatError::column(field.name(), cause))
            }
            _ => cast(&values, data_type)
                .map_err(|e| FormatError::column(field.name(), e.to_string())),
        }
    }
}

/// A record batch in its stored form: see [`ArrowTable::stored_batch`].
#[derive(Debug)]
pub struct StoredBatch {
    file: usize,
    batch: usize,
    /// The requested columns of the table.
    columns: Vec<usize>,
    /// Their values.
    schema: SchemaRef,
    arrays: Vec<Stored>,
    rows: usize,
}

/// A column of a record batch.
#[derive(Debug)]
enum Stored {
    Whole(ArrayRef),
    /// Copied and checked when their rows are requested.
    Texts(StoredTexts),
    /// One value for the whole file.
    Constant,
}

impl Stored {
    /// Start of a row's value among all; `None`: all have one size, or it is unknown.
    fn offset(&self, row: usize) -> Option<u64> {
        let Self::Whole(array) = self else {
            return match self {
                Self::Texts(texts) => Some(texts.offset(row)),
                _ => None,
            };
        };
        match array.data_type() {
            DataType::Binary => {
                Some(array.as_binary::<i32>().value_offsets()[row].unsigned_abs().into())
            }
            DataType::LargeBinary => {
                Some(array.as_binary::<i64>().value_offsets()[row].unsigned_abs())
            }
            _ => None,
        }
    }
}

impl StoredBatch {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of rows from `first` on, up to `rows_max`, whose texts and other variable-length values have about
    /// `bytes_max` bytes; at least one, if there is one.
    pub fn rows_within(&self, first: usize, rows_max: usize, bytes_max: u64) -> usize {
        let end = first.saturating_add(rows_max).min(self.rows);
        let bytes = |end: usize| {
            let of_column = |stored: &Stored| Some(stored.offset(end)? - stored.offset(first)?);
            self.arrays.iter().filter_map(of_column).sum::<u64>()
        };
        let (mut fits, mut least_not) = (first, end + 1);
        while fits + 1 < least_not {
            let middle = fits.midpoint(least_not);
            match bytes(middle) <= bytes_max {
                true => fits = middle,
                false => least_not = middle,
            }
        }
        (fits - first).max(1).min(end - first)
    }
}

/// A file that was replaced during the read is not corrupt.
fn unless_changed<T>(source: &ArrowFile, read: Result<T>) -> Result<T> {
    if read.is_err() {
        source.check_unchanged()?;
    }
    read
}

/// The source of a file's batches.
struct Bytes<'a> {
    file: &'a ArrowFile,
    /// The mapping, or without one the file to read from.
    from: std::result::Result<Arc<MappedFile>, Arc<SourceFile>>,
}

impl<'a> Bytes<'a> {
    fn of(file: &'a ArrowFile, pool: &MappingPool) -> Result<Self> {
        let source = file.source();
        let mapping = file.mapping.get(source.clone(), pool)?;
        Ok(Bytes { file, from: mapping.ok_or(source) })
    }

    /// The entries of field `index` in a batch, decoded as `field`.
    fn decode(
        &self,
        (batch, message): (usize, &BatchMessage),
        index: usize,
        field: &FileField,
    ) -> Result<Stored> {
        let file = self.file;
        let start = file.start(batch, index);
        let bytes = |extent: Extent, hold: Hold| self.get(extent, hold);
        let unions_have_validity = file.schema.unions_have_validity;
        let mut decoder =
            Decoder::new(message, &bytes, &file.dictionaries, unions_have_validity, start);
        // What is read and not mapped comes in as few pieces as it may.
        let stay = self.from.is_ok()
            && are_texts(field.data_type())
            && field.dictionary.is_none()
            && message.compression.is_none();
        let decoded = match stay {
            true => decoder.texts(field).map(Stored::Texts),
            false => decoder.array(field).map(|data| Stored::Whole(make_array(data))),
        };
        match decoded {
            Ok(stored) => Ok(stored),
            Err(DecodeError::Source(error)) => Err(error),
            Err(DecodeError::Data(cause)) => {
                let offset = message.buffers.get(start.buffers).map_or(0, |b| b.offset);
                let name = file.schema.fields[index].name();
                let place = format!("record batch {batch}, column {name}");
                Err(FormatError::corrupt(file.path(), offset, place, cause))
            }
        }
    }

    /// Bytes of a range of the file, in place if that is allowed and it is mapped.
    fn get(&self, extent: Extent, hold: Hold) -> Result<Buffer> {
        match (&self.from, hold) {
            (Ok(mapping), Hold::InPlace) => mapped_buffer(mapping, extent),
            (Ok(mapping), Hold::Copied) => {
                Ok(Buffer::from_vec(mapping.copy(extent.offset, extent.bytes)?))
            }
            (Err(source), _) => read_copy(source.as_ref(), extent),
        }
    }
}

/// A range of a mapping as a buffer of values for which every bit pattern is valid.
fn mapped_buffer(mapping: &Arc<MappedFile>, extent: Extent) -> Result<Buffer> {
    let bytes = mapping.bytes(extent.offset, extent.bytes)?;
    // What is looked at will be there soon; whoever wants a few rows of many does not get all into its memory.
    mapping.will_need(extent.offset..extent.offset + extent.bytes);
    let start = NonNull::from(bytes).cast::<u8>();
    // A mapping cannot be left in a broken state by a panic: it is only read.
    let owner = Arc::new(AssertUnwindSafe(mapping.clone()));
    // SAFETY: the bytes are initialised memory that stays mapped and readable as long as the
    // owner, which the buffer keeps, and that this process does not write. Others may write to
    // the file, so nothing was concluded from these bytes that an array's methods rely on:
    // `Hold::InPlace` is given only to plain values, of which any are valid.
    Ok(unsafe { Buffer::from_custom_allocation(start, bytes.len(), owner) })
}

/// Codes of a file as a dictionary array of the table. Codes outside the dictionary are errors.
fn table_codes(
    codes: &ArrayRef,
    remap: Option<&[i32]>,
    key: &DataType,
    values: ArrayRef,
) -> std::result::Result<ArrayRef, String> {
    with_key_type!(codes.data_type(), F => {
        with_key_type!(key, T => convert::<F, T>(codes, remap, values),
            else Err(format!("codes of type {key}")))
    }, else Err(format!("codes of type {}", codes.data_type())))
}

fn convert<F: ArrowDictionaryKeyType, T: ArrowDictionaryKeyType>(
    codes: &ArrayRef,
    remap: Option<&[i32]>,
    values: ArrayRef,
) -> std::result::Result<ArrayRef, String> {
    let array = |keys| DictionaryArray::<T>::try_new(keys, values).map_err(|e| e.to_string());
    if remap.is_none() && F::DATA_TYPE == T::DATA_TYPE {
        return Ok(Arc::new(array(codes.as_primitive::<T>().clone())?));
    }
    let codes = codes.as_primitive::<F>();
    let outside = |code: F::Native| format!("code {code:?} is outside the dictionary");
    let mut keys = PrimitiveBuilder::<T>::with_capacity(codes.len());
    for code in codes.iter() {
        let Some(code) = code else {
            keys.append_null();
            continue;
        };
        let table_code = match (code.to_usize(), remap) {
            (None, _) => return Err(outside(code)),
            (Some(code), None) => Some(code),
            (Some(i), Some(remap)) => match remap.get(i) {
                None => return Err(outside(code)),
                Some(code) => usize::try_from(*code).ok(),
            },
        };
        match table_code {
            None => keys.append_null(),
            Some(code) => keys.append_value(
                T::Native::from_usize(code)
                    .ok_or_else(|| format!("code {code} does not fit {}", T::DATA_TYPE))?,
            ),
        }
    }
    Ok(Arc::new(array(keys.finish())?))
}
