//! A table's columns as they are sorted: codes in place of dictionaries.
//!
//! All batches of a table have the same dictionary, so it stays out of what is moved and spilled, and comes back when
//! rows are written.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, DictionaryArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use headrace_format::FormatError;
use headrace_format::arrow::ArrowTable;

use crate::{OocError, Result};

/// The columns of a table.
#[derive(Debug)]
pub(super) struct Columns {
    /// As the table has them.
    pub table: SchemaRef,
    /// With codes in place of dictionaries.
    pub plain: SchemaRef,
    /// Of the columns that have one: its values.
    pub dictionaries: Vec<Option<ArrayRef>>,
}

impl Columns {
    /// Those of a table.
    ///
    /// # Errors
    /// A column whose dictionaries cannot be made one, or whose type holds dictionaries or views inside.
    pub fn of(table: &ArrowTable) -> Result<Columns> {
        let schema = table.schema().clone();
        let mut dictionaries = Vec::new();
        for (i, field) in schema.fields().iter().enumerate() {
            if field.data_type().is_nested() && holds_positions(field.data_type()) {
                return Err(OocError::usage(
                    format!(
                        "column {}: {} holds dictionaries or views",
                        field.name(),
                        field.data_type()
                    ),
                    "write its inner values plainly",
                ));
            }
            dictionaries.push(match field.data_type() {
                DataType::Dictionary(_, values) => Some(dictionary(table, i, values)?),
                _ => None,
            });
        }
        let plain = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Dictionary(codes, _) => {
                Arc::new(Field::new(field.name(), codes.as_ref().clone(), field.is_nullable()))
            }
            _ => field.clone(),
        });
        let plain = Arc::new(Schema::new(plain.collect::<Vec<_>>()));
        Ok(Columns { table: schema, plain, dictionaries })
    }

    /// A batch of the table as it is sorted.
    pub fn plain(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().map(codes).collect();
        with_columns(&self.plain, columns, batch.num_rows())
    }

    /// A batch that is sorted as the table has it.
    pub fn whole(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().zip(&self.dictionaries);
        let columns = columns.map(|(column, dictionary)| match dictionary {
            Some(values) => attach(column, values).map_err(failed("attaching a dictionary")),
            None => Ok(column.clone()),
        });
        with_columns(&self.table, columns.collect::<Result<_>>()?, batch.num_rows())
    }
}

/// A batch of so many rows.
pub(super) fn with_columns(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(failed("assembling rows"))
}

/// A column's codes if it has a dictionary, or itself.
pub(super) fn codes(column: &ArrayRef) -> ArrayRef {
    match column.as_any_dictionary_opt() {
        Some(dictionary) => dictionary.keys().slice(0, column.len()),
        None => column.clone(),
    }
}

/// Whether values of the type say where others lie, which nobody follows when they are moved.
fn holds_positions(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        Dictionary(_, _) | Utf8View | BinaryView => true,
        List(field) | LargeList(field) | ListView(field) | LargeListView(field) => {
            holds_positions(field.data_type())
        }
        FixedSizeList(field, _) | Map(field, _) | RunEndEncoded(_, field) => {
            holds_positions(field.data_type())
        }
        Struct(fields) => fields.iter().any(|field| holds_positions(field.data_type())),
        Union(fields, _) => fields.iter().any(|(_, field)| holds_positions(field.data_type())),
        _ => false,
    }
}

/// The one dictionary of a column.
fn dictionary(table: &ArrowTable, column: usize, values: &DataType) -> Result<ArrayRef> {
    if let Some(values) = table.dictionary(column) {
        return Ok(values.clone());
    }
    // Values that are not text are not united; files mostly agree.
    let mut only: Option<ArrayRef> = None;
    for (number, file) in table.files().iter().enumerate().filter(|(_, file)| file.batches() > 0) {
        let batch = table.read_batch(number, 0, Some(&[column]))?;
        let values = batch.column(0).as_any_dictionary().values();
        match &only {
            Some(others) if others.to_data() != values.to_data() => {
                let name = table.schema().field(column).name();
                return Err(OocError::input(
                    file.path(),
                    format!(
                        "column {name}: its dictionary is another than that of the files before"
                    ),
                    "give all files the same dictionary, or plain values",
                ));
            }
            _ => only = Some(values.clone()),
        }
    }
    Ok(only.unwrap_or_else(|| arrow_array::new_empty_array(values)))
}

fn attach(codes: &ArrayRef, values: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    fn of<K: ArrowDictionaryKeyType>(
        codes: &ArrayRef,
        values: &ArrayRef,
    ) -> std::result::Result<ArrayRef, ArrowError> {
        let codes = codes.as_primitive::<K>().clone();
        Ok(Arc::new(DictionaryArray::<K>::try_new(codes, values.clone())?))
    }
    match codes.data_type() {
        DataType::Int8 => of::<Int8Type>(codes, values),
        DataType::Int16 => of::<Int16Type>(codes, values),
        DataType::Int32 => of::<Int32Type>(codes, values),
        DataType::Int64 => of::<Int64Type>(codes, values),
        DataType::UInt8 => of::<UInt8Type>(codes, values),
        DataType::UInt16 => of::<UInt16Type>(codes, values),
        DataType::UInt32 => of::<UInt32Type>(codes, values),
        DataType::UInt64 => of::<UInt64Type>(codes, values),
        other => Err(ArrowError::InvalidArgumentError(format!("codes of type {other}"))),
    }
}

/// An error of the Arrow library while something was done.
pub(super) fn failed(action: &'static str) -> impl Fn(ArrowError) -> OocError {
    move |cause| FormatError::Arrow { action: action.to_string(), cause }.into()
}
