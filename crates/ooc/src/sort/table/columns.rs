//! A table's columns during the sort: codes in place of dictionaries.
//!
//! All batches of a table have the same dictionary, so it is neither moved nor spilled, and is attached again when
//! rows are written. Batches that arrive one by one may have different dictionaries: these are unified into one that
//! only grows, so codes stay valid.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, RecordBatch, RecordBatchOptions, UInt64Array, new_empty_array,
};
use arrow_buffer::ArrowNativeType;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat;
use arrow_select::take::take;
use headrace_format::FormatError;
use headrace_format::arrow::ArrowTable;

use crate::{OocError, Result};

/// The columns of a table.
#[derive(Debug)]
pub(super) struct Columns {
    /// As in the table.
    pub table: SchemaRef,
    /// With codes in place of dictionaries.
    pub plain: SchemaRef,
    /// The dictionary values of the columns that have one.
    pub dictionaries: Vec<Option<ArrayRef>>,
    /// Whether codes of text compare like the texts.
    pub is_sorted: bool,
    /// By column: positions of values in a dictionary that had to grow.
    places: Vec<Option<Places>>,
}

/// Positions of values in a dictionary, by their bytes.
#[derive(Debug)]
struct Places {
    converter: RowConverter,
    of_values: HashMap<Box<[u8]>, usize>,
}

impl Columns {
    /// The columns of a table.
    ///
    /// # Errors
    /// A column whose dictionaries cannot be unified, or whose type contains dictionaries or views.
    pub fn of(table: &ArrowTable) -> Result<Columns> {
        let mut columns = Columns::of_schema(table.schema())?;
        for (i, field) in table.schema().fields().iter().enumerate() {
            if let DataType::Dictionary(_, values) = field.data_type() {
                columns.dictionaries[i] = Some(dictionary(table, i, values)?);
            }
        }
        columns.is_sorted = true;
        Ok(columns)
    }

    /// The columns of batches that [`adopt`](Self::adopt) adds.
    ///
    /// # Errors
    /// A column whose type contains dictionaries or views.
    pub fn of_schema(schema: &SchemaRef) -> Result<Columns> {
        let mut dictionaries = Vec::new();
        for field in schema.fields() {
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
                DataType::Dictionary(_, values) => Some(new_empty_array(values)),
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
        let (table, places) = (schema.clone(), schema.fields().iter().map(|_| None).collect());
        Ok(Columns { table, plain, dictionaries, is_sorted: false, places })
    }

    /// A batch in sort form; its dictionaries are merged into the columns'.
    ///
    /// # Errors
    /// More values than a dictionary's codes can distinguish.
    pub fn adopt(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().enumerate();
        let columns = columns.map(|(i, column)| match column.as_any_dictionary_opt() {
            Some(dictionary) => self.adopt_codes(i, &codes(column), dictionary.values()),
            None => Ok(column.clone()),
        });
        let columns = columns.collect::<Result<_>>()?;
        with_columns(&self.plain, columns, batch.num_rows())
    }

    fn adopt_codes(&mut self, i: usize, codes: &ArrayRef, values: &ArrayRef) -> Result<ArrayRef> {
        let Some(known) = &mut self.dictionaries[i] else { return Ok(codes.clone()) };
        let (one, other) = (known.to_data(), values.to_data());
        if one.ptr_eq(&other) {
            return Ok(codes.clone());
        }
        if known.is_empty() {
            *known = values.clone();
            return Ok(codes.clone());
        }
        let places = match &mut self.places[i] {
            Some(places) => places,
            none => none.insert(Places::of(known)?),
        };
        let before = known.len();
        let (mapping, added) = places.add(values, before)?;
        if !added.is_empty() {
            let added = UInt64Array::from_iter_values(added.iter().map(|at| *at as u64));
            let added = take(values, &added, None).map_err(failed("uniting dictionaries"))?;
            *known = concat(&[&*known, &added]).map_err(failed("uniting dictionaries"))?;
        }
        recoded(codes, &mapping).ok_or_else(|| {
            let name = self.plain.field(i).name();
            let (values, kind) = (known.len(), codes.data_type());
            let what = format!("column {name}: {values} values are more than {kind} can number");
            OocError::usage(what, "cast the column to text")
        })
    }

    /// A batch of the table in sort form.
    pub fn plain(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().map(codes).collect();
        with_columns(&self.plain, columns, batch.num_rows())
    }

    /// A sorted batch in the table's form.
    pub fn whole(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().zip(&self.dictionaries);
        let columns = columns.map(|(column, dictionary)| match dictionary {
            Some(values) => attach(column, values).map_err(failed("attaching a dictionary")),
            None => Ok(column.clone()),
        });
        with_columns(&self.table, columns.collect::<Result<_>>()?, batch.num_rows())
    }
}

impl Places {
    fn of(values: &ArrayRef) -> Result<Places> {
        let field = SortField::new(values.data_type().clone());
        let converter = RowConverter::new(vec![field]).map_err(failed("uniting dictionaries"))?;
        let rows = converter.convert_columns(std::slice::from_ref(values));
        let rows = rows.map_err(failed("uniting dictionaries"))?;
        let mut of_values = HashMap::new();
        for (at, row) in rows.iter().enumerate() {
            of_values.entry(row.data().into()).or_insert(at);
        }
        Ok(Places { converter, of_values })
    }

    /// The position of each of these values, and which of them are new: those follow the first
    /// `known`.
    fn add(&mut self, values: &ArrayRef, known: usize) -> Result<(Vec<usize>, Vec<usize>)> {
        let rows = self.converter.convert_columns(std::slice::from_ref(values));
        let rows = rows.map_err(failed("uniting dictionaries"))?;
        let (mut mapping, mut added) = (Vec::with_capacity(values.len()), Vec::new());
        for (at, row) in rows.iter().enumerate() {
            mapping.push(match self.of_values.get(row.data()) {
                Some(place) => *place,
                None => {
                    let place = known + added.len();
                    self.of_values.insert(row.data().into(), place);
                    added.push(at);
                    place
                }
            });
        }
        Ok((mapping, added))
    }
}

/// A batch of this many rows.
pub(super) fn with_columns(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(failed("assembling rows"))
}

/// A column's codes if it has a dictionary, or the column itself.
pub(super) fn codes(column: &ArrayRef) -> ArrayRef {
    match column.as_any_dictionary_opt() {
        Some(dictionary) => dictionary.keys().slice(0, column.len()),
        None => column.clone(),
    }
}

/// Whether values of the type refer to other bytes, which a move does not follow.
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
    Ok(only.unwrap_or_else(|| new_empty_array(values)))
}

/// Runs code with the code type at hand as `$Code`; `None` for other types.
macro_rules! with_codes {
    ($data_type:expr, $Code:ident => $what:expr) => {
        with_codes!($data_type, $Code => $what, Int8: Int8Type, Int16: Int16Type, Int32: Int32Type, Int64: Int64Type,
            UInt8: UInt8Type, UInt16: UInt16Type, UInt32: UInt32Type, UInt64: UInt64Type)
    };
    ($data_type:expr, $Code:ident => $what:expr, $($variant:ident: $of:ty),*) => {
        match $data_type {
            $(DataType::$variant => { type $Code = $of; Some($what) })*
            _ => None,
        }
    };
}

fn attach(codes: &ArrayRef, values: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    let attached = with_codes!(codes.data_type(), Code => {
        let codes = codes.as_primitive::<Code>().clone();
        DictionaryArray::<Code>::try_new(codes, values.clone()).map(|array| Arc::new(array) as ArrayRef)
    });
    let other = || ArrowError::InvalidArgumentError(format!("codes of type {}", codes.data_type()));
    attached.unwrap_or_else(|| Err(other()))
}

/// Remapped codes; `None`: a position has no code.
fn recoded(codes: &ArrayRef, places: &[usize]) -> Option<ArrayRef> {
    with_codes!(codes.data_type(), Code => {
        let place = |code: <Code as ArrowPrimitiveType>::Native| places.get(code.as_usize()).copied();
        let recode = |code| place(code).and_then(ArrowNativeType::from_usize).ok_or(());
        let codes = codes.as_primitive::<Code>().try_unary::<_, Code, ()>(recode);
        codes.ok().map(|codes| Arc::new(codes) as ArrayRef)
    })?
}

/// An error of the Arrow library during an operation.
pub(super) fn failed(action: &'static str) -> impl Fn(ArrowError) -> OocError {
    move |cause| FormatError::Arrow { action: action.to_string(), cause }.into()
}
