//! Rows of the server as record batches, and values of record batches as the server's.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder,
    FixedSizeBinaryBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, StringBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Schema, SchemaRef, TimeUnit};
use headrace_format::heap::{self, JsonbQuery};
use pgrx::pg_sys::{self, Datum, Oid};

use crate::nodes::{WhyNot, why_not};
use crate::translate::{constant as moment, document};

const UUID_BYTES: i32 = 16;

/// Gathers rows.
pub struct Rows {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    /// Of texts, roughly.
    bytes: usize,
}

enum Column {
    Bool(BooleanBuilder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    /// Of uuids, too.
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Decimal(Decimal128Builder, u8, i8),
}

impl Rows {
    /// Rows of these columns.
    pub fn new(schema: &Schema) -> Result<Self, WhyNot> {
        let columns = schema.fields().iter().map(|field| Column::new(field.data_type()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { schema: Arc::new(schema.clone()), columns, rows: 0, bytes: 0 })
    }

    /// Rows since the last batch.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Bytes that the rows take, roughly.
    pub fn bytes(&self) -> usize {
        self.rows * self.columns.len() * 16 + self.bytes
    }

    /// A value of the row at hand, which is of a type of the server.
    pub unsafe fn push(
        &mut self,
        column: usize,
        value: Option<Datum>,
        of: Oid,
    ) -> Result<(), WhyNot> {
        self.bytes += self.columns[column].push(value, of)?;
        Ok(())
    }

    /// The server's own answer of what is asked of a document, or a value of which nothing is.
    pub unsafe fn push_asked(
        &mut self,
        column: usize,
        value: Option<Datum>,
        of: Oid,
        query: Option<&JsonbQuery>,
    ) -> Result<(), WhyNot> {
        match (value, query) {
            (Some(value), Some(query)) => {
                let (answer, of) = document::answer(value, query)?;
                self.push(column, answer, of)
            }
            _ => self.push(column, value, of),
        }
    }

    /// The row at hand is whole.
    pub fn end_row(&mut self) {
        self.rows += 1;
    }

    /// The rows since the last call.
    pub fn finish(&mut self) -> Result<RecordBatch, WhyNot> {
        self.bytes = 0;
        let arrays = self.columns.iter_mut().map(Column::finish).zip(self.schema.fields());
        let arrays = arrays.map(|(array, field)| typed(array, field.data_type())).collect();
        let rows = std::mem::take(&mut self.rows);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options);
        batch.map_err(|error| WhyNot(error.to_string()))
    }
}

/// An array of the same values under a type with parameters: a time zone.
fn typed(array: ArrayRef, data_type: &DataType) -> ArrayRef {
    match data_type {
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) => {
            let array = array.as_primitive::<TimestampMicrosecondType>().clone();
            Arc::new(array.with_timezone(Arc::clone(zone)))
        }
        _ => array,
    }
}

impl Column {
    fn new(data_type: &DataType) -> Result<Self, WhyNot> {
        Ok(match data_type {
            DataType::Boolean => Self::Bool(BooleanBuilder::new()),
            DataType::Int16 => Self::Int16(Int16Builder::new()),
            DataType::Int32 => Self::Int32(Int32Builder::new()),
            DataType::Int64 => Self::Int64(Int64Builder::new()),
            DataType::Float32 => Self::Float32(Float32Builder::new()),
            DataType::Float64 => Self::Float64(Float64Builder::new()),
            DataType::Date32 => Self::Date(Date32Builder::new()),
            DataType::Time64(TimeUnit::Microsecond) => Self::Time(Time64MicrosecondBuilder::new()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Self::Timestamp(TimestampMicrosecondBuilder::new())
            }
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            DataType::Binary => Self::Bytes(BinaryBuilder::new()),
            DataType::FixedSizeBinary(UUID_BYTES) => {
                Self::Uuid(FixedSizeBinaryBuilder::new(UUID_BYTES))
            }
            DataType::Decimal128(precision, scale) => {
                let builder = Decimal128Builder::new().with_data_type(data_type.clone());
                Self::Decimal(builder, *precision, *scale)
            }
            other => return why_not(format!("rows of type {other}")),
        })
    }

    /// Appends a value; bytes beyond its fixed width.
    unsafe fn push(&mut self, value: Option<Datum>, of: Oid) -> Result<usize, WhyNot> {
        let integer = || value.map(|datum| integer(datum, of)).transpose();
        let misfit = |_| WhyNot("an integer that does not fit its column".to_string());
        match self {
            Self::Bool(builder) => builder.append_option(value.map(|datum| datum.value() != 0)),
            Self::Int16(builder) => {
                let narrow = integer()?.map(i16::try_from).transpose().map_err(misfit)?;
                builder.append_option(narrow);
            }
            Self::Int32(builder) => {
                let narrow = integer()?.map(i32::try_from).transpose().map_err(misfit)?;
                builder.append_option(narrow);
            }
            Self::Int64(builder) => builder.append_option(integer()?),
            Self::Float32(builder) => {
                builder.append_option(value.map(|datum| f32::from_bits(datum.value() as u32)));
            }
            Self::Float64(builder) => {
                builder.append_option(value.map(|datum| f64::from_bits(datum.value() as u64)));
            }
            Self::Date(builder) => {
                builder.append_option(value.map(|datum| moment::days(datum)).transpose()?);
            }
            Self::Time(builder) => {
                builder.append_option(value.map(|datum| moment::time(datum)).transpose()?);
            }
            Self::Timestamp(builder) => {
                builder.append_option(value.map(|datum| moment::microseconds(datum)).transpose()?);
            }
            Self::Text(builder) => {
                let text = value.map(|datum| match of {
                    pg_sys::UUIDOID => Ok(moment::uuid(datum)),
                    _ => moment::text(datum),
                });
                let text = text.transpose()?;
                builder.append_option(text.as_deref());
                return Ok(text.map_or(0, |text| text.len()));
            }
            Self::Bytes(builder) => {
                let Some(datum) = value else {
                    builder.append_null();
                    return Ok(0);
                };
                let plain = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
                let bytes = pgrx::varlena::varlena_to_byte_slice(plain);
                builder.append_value(bytes);
                return Ok(bytes.len());
            }
            Self::Uuid(builder) => match value {
                Some(datum) => {
                    let bytes =
                        std::slice::from_raw_parts(datum.cast_mut_ptr::<u8>(), UUID_BYTES as usize);
                    builder.append_value(bytes).map_err(|error| WhyNot(error.to_string()))?;
                }
                None => builder.append_null(),
            },
            Self::Decimal(builder, precision, scale) => {
                let unscaled = value.map(|datum| moment::decimal(datum, *scale)).transpose()?;
                let limit = 10_i128.pow((*precision).into());
                if unscaled.is_some_and(|unscaled| unscaled.abs() >= limit) {
                    return why_not("a number with more digits than its column's type");
                }
                builder.append_option(unscaled);
            }
        }
        Ok(0)
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(builder) => ArrayBuilder::finish(builder),
            Self::Int16(builder) => ArrayBuilder::finish(builder),
            Self::Int32(builder) => ArrayBuilder::finish(builder),
            Self::Int64(builder) => ArrayBuilder::finish(builder),
            Self::Float32(builder) => ArrayBuilder::finish(builder),
            Self::Float64(builder) => ArrayBuilder::finish(builder),
            Self::Date(builder) => ArrayBuilder::finish(builder),
            Self::Time(builder) => ArrayBuilder::finish(builder),
            Self::Timestamp(builder) => ArrayBuilder::finish(builder),
            Self::Text(builder) => ArrayBuilder::finish(builder),
            Self::Bytes(builder) => ArrayBuilder::finish(builder),
            Self::Uuid(builder) => ArrayBuilder::finish(builder),
            Self::Decimal(builder, _, _) => ArrayBuilder::finish(builder),
        }
    }
}

/// Whether a number shows so many digits behind the point, from the fewest to the most, as is taken for granted.
///
/// # Errors
/// It does not.
pub unsafe fn check_digits(value: Option<Datum>, shows: Option<(u8, u8)>) -> Result<(), WhyNot> {
    let (Some(value), Some((least, most))) = (value, shows) else { return Ok(()) };
    match (least..=most).contains(&moment::shown_decimal(value)?.1) {
        true => Ok(()),
        false => why_not("a number that shows other digits behind the point than statistics know"),
    }
}

/// An integer of the server, of whatever width; of a number how many digits behind the point it shows.
unsafe fn integer(datum: Datum, of: Oid) -> Result<i64, WhyNot> {
    match of {
        pg_sys::INT2OID => Ok((datum.value() as i16).into()),
        pg_sys::INT4OID | pg_sys::ANYENUMOID => Ok((datum.value() as i32).into()),
        pg_sys::INT8OID => Ok(datum.value() as i64),
        pg_sys::NUMERICOID => Ok(moment::shown_decimal(datum)?.1.into()),
        _ => why_not("an integer of an unknown type"),
    }
}

/// Whether PostgreSQL has all values of a column, which may be a file's.
///
/// # Errors
/// What it does not have.
pub fn check_values(array: &ArrayRef) -> Result<(), WhyNot> {
    let texts = array.as_string_opt::<i32>();
    if texts.is_some_and(|texts| texts.iter().flatten().any(has_zero_byte)) {
        return Err(zero_byte());
    }
    let has_moments = match array.data_type() {
        DataType::Date32 => array.as_primitive::<Date32Type>().iter().flatten().all(has_day),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let moments = array.as_primitive::<TimestampMicrosecondType>();
            moments.iter().flatten().all(has_moment)
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            let times = array.as_primitive::<Time64MicrosecondType>();
            times.iter().flatten().all(|time| moment::TIMES.contains(&time))
        }
        _ => true,
    };
    if has_moments { Ok(()) } else { Err(beyond()) }
}

fn has_zero_byte(text: &str) -> bool {
    text.as_bytes().contains(&0)
}

/// Whether PostgreSQL has a day, counted from 1970.
fn has_day(days: i32) -> bool {
    days.checked_sub(moment::EPOCH_DAYS).is_some_and(|days| moment::DAYS.contains(&days))
}

/// Whether PostgreSQL has a moment, in microseconds from 1970.
fn has_moment(microseconds: i64) -> bool {
    let from_2000 = microseconds.checked_sub(moment::EPOCH_MICROSECONDS);
    from_2000.is_some_and(|moment| moment::MICROSECONDS.contains(&moment))
}

fn zero_byte() -> WhyNot {
    WhyNot("a text with a zero byte, which PostgreSQL does not have".into())
}

fn beyond() -> WhyNot {
    WhyNot("a moment that PostgreSQL does not have".into())
}

/// A value of a column as the server's, in the memory context at hand; `None` is NULL.
///
/// # Errors
/// The column is of another type than the pipeline was asked for.
pub unsafe fn datum(array: &ArrayRef, row: usize, of: Oid) -> Result<Option<Datum>, WhyNot> {
    if array.is_null(row) {
        return Ok(None);
    }
    let datum = match (array.data_type(), of) {
        (DataType::Boolean, pg_sys::BOOLOID) => Datum::from(array.as_boolean().value(row)),
        (DataType::Int16, pg_sys::INT2OID) => {
            Datum::from(array.as_primitive::<Int16Type>().value(row))
        }
        (DataType::Int32, pg_sys::INT4OID) => {
            Datum::from(array.as_primitive::<Int32Type>().value(row))
        }
        (DataType::Int32, pg_sys::ANYENUMOID) => {
            Datum::from(array.as_primitive::<Int32Type>().value(row).cast_unsigned())
        }
        (DataType::Int64, pg_sys::INT8OID) => {
            Datum::from(array.as_primitive::<Int64Type>().value(row))
        }
        (DataType::Float32, pg_sys::FLOAT4OID) => {
            Datum::from(array.as_primitive::<Float32Type>().value(row).to_bits())
        }
        (DataType::Float64, pg_sys::FLOAT8OID) => {
            Datum::from(array.as_primitive::<Float64Type>().value(row).to_bits())
        }
        (DataType::Date32, pg_sys::DATEOID) => {
            let days = array.as_primitive::<Date32Type>().value(row);
            let days = Some(days).filter(|days| has_day(*days)).ok_or_else(beyond)?;
            Datum::from(days - moment::EPOCH_DAYS)
        }
        (DataType::Time64(_), pg_sys::TIMEOID) => {
            let time = array.as_primitive::<Time64MicrosecondType>().value(row);
            Datum::from(Some(time).filter(|t| moment::TIMES.contains(t)).ok_or_else(beyond)?)
        }
        (DataType::Timestamp(_, _), pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID) => {
            let moment = array.as_primitive::<TimestampMicrosecondType>().value(row);
            let moment = Some(moment).filter(|moment| has_moment(*moment)).ok_or_else(beyond)?;
            Datum::from(moment - moment::EPOCH_MICROSECONDS)
        }
        (DataType::Utf8, pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID) => {
            let text = array.as_string::<i32>().value(row);
            if has_zero_byte(text) {
                return Err(zero_byte());
            }
            Datum::from(pg_sys::cstring_to_text_with_len(text.as_ptr().cast(), text.len() as i32))
        }
        (DataType::Utf8, pg_sys::UUIDOID) => {
            let text = array.as_string::<i32>().value(row);
            match heap::uuid::stored(text) {
                Some(bytes) => uuid(bytes),
                None => return why_not(format!("{text}, which is no uuid")),
            }
        }
        (DataType::Binary, pg_sys::BYTEAOID) => {
            let bytes = array.as_binary::<i32>().value(row);
            // A text's layout, without a text's rules.
            Datum::from(pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), bytes.len() as i32))
        }
        (DataType::FixedSizeBinary(16), pg_sys::UUIDOID) => {
            let bytes = array.as_fixed_size_binary().value(row);
            uuid(bytes.try_into().map_err(|_| WhyNot("a uuid of another length".into()))?)
        }
        (DataType::Decimal128(_, scale), pg_sys::NUMERICOID) => {
            let unscaled = array.as_primitive::<Decimal128Type>().value(row);
            return Ok(moment::numeric(unscaled, *scale));
        }
        (other, _) => return why_not(format!("a column of {other} for type {of:?}")),
    };
    Ok(Some(datum))
}

/// A uuid of the server.
unsafe fn uuid(bytes: [u8; 16]) -> Datum {
    let copy = pg_sys::palloc(bytes.len()).cast::<[u8; 16]>();
    copy.write(bytes);
    Datum::from(copy)
}
