//! Columns that no file contains: one value for all rows of a file, such as its folder's name.
//!
//! A constant column ([`Encoding::Constant`](headrace_ir::Encoding::Constant)) has no bytes, so a chunk of nothing
//! else is not read at all. Its bounds prune as statistics do, and they are facts. The value is not part of a
//! file's identity, so everything that is cached for a table is keyed by
//! [`Table::beyond_files`](crate::Table::beyond_files) as well.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, Date32Array, DictionaryArray, Int32Array, Int64Array, StringArray,
};
use arrow_schema::{DataType, Field, Schema};

use super::dictionary::TableDictionary;
use super::file::{ArrowFile, Bounds};
use super::table::{ArrowTable, Constants, TableColumn};
use crate::ColumnStats;
use crate::error::{FormatError, Result};

impl ArrowTable {
    /// The table with additional columns at its end, each with one value per file, in the order of
    /// [`files`](Self::files): of `Int64`, `Date32`, or `Utf8`, which becomes a dictionary. A column of the
    /// files with the same name is hidden.
    ///
    /// # Errors
    /// [`FormatError::Argument`] for values of another type or number.
    pub fn with_constants(mut self, columns: &[(String, ArrayRef)]) -> Result<ArrowTable> {
        for (name, values) in columns {
            if values.len() != self.files.len() {
                let (values, files) = (values.len(), self.files.len());
                let text = format!("column {name}: {values} values for {files} files");
                return Err(FormatError::Argument(text));
            }
            self.leave_out(name);
        }
        let mut fields: Vec<_> = self.schema.fields().iter().cloned().collect();
        for (name, values) in columns {
            let (data_type, constants, dictionary) = constants(name, values)?;
            fields.push(Arc::new(Field::new(name, data_type, values.null_count() > 0)));
            self.columns.push(TableColumn {
                support: Ok(()),
                stats: stats(&constants, &self.files, dictionary.is_some()),
                row_bits: Some(0),
                text_bytes_max: 0,
                constants: Some(constants),
                dictionary,
            });
        }
        let metadata = self.schema.metadata().clone();
        self.schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        Ok(self)
    }

    /// The table without a column of its files.
    fn leave_out(&mut self, name: &str) {
        let Some(column) = self.schema.fields().iter().position(|field| field.name() == name)
        else {
            return;
        };
        let without = |fields: &Arc<[usize]>| {
            let kept = fields.iter().enumerate().filter(|(i, _)| *i != column);
            kept.map(|(_, field)| *field).collect::<Arc<[usize]>>()
        };
        // Files of one schema share theirs.
        let all = std::mem::take(&mut self.fields);
        let mut shared: HashMap<*const usize, Arc<[usize]>> = HashMap::new();
        let of_file = |fields: &Arc<[usize]>| {
            Arc::clone(shared.entry(fields.as_ptr()).or_insert_with(|| without(fields)))
        };
        self.fields = all.iter().map(of_file).collect();
        let kept = self.schema.fields().iter().enumerate().filter(|(i, _)| *i != column);
        let kept: Vec<_> = kept.map(|(_, field)| Arc::clone(field)).collect();
        self.schema = Arc::new(Schema::new_with_metadata(kept, self.schema.metadata().clone()));
        self.columns.remove(column);
    }

    /// Some of the table's files as a table, with the same columns, types and dictionaries, so that codes of
    /// the two are compatible.
    pub fn only(&self, wanted: &[usize]) -> ArrowTable {
        let files: Vec<_> = wanted.iter().map(|&file| Arc::clone(&self.files[file])).collect();
        let fields: Vec<_> = wanted.iter().map(|&file| Arc::clone(&self.fields[file])).collect();
        let columns = self.columns.iter().enumerate();
        let columns = columns.map(|(i, column)| match &column.constants {
            None => column.only((wanted, self.schema.field(i)), |at| (&files[at], fields[at][i])),
            Some(constants) => {
                let constants: Constants = wanted.iter().map(|&file| constants[file]).collect();
                let stats = stats(&constants, &files, column.dictionary.is_some());
                TableColumn { stats, constants: Some(constants), ..column.clone() }
            }
        });
        ArrowTable {
            schema: Arc::clone(&self.schema),
            columns: columns.collect(),
            rows: files.iter().map(|file| file.rows()).sum(),
            batch_rows_max: files.iter().map(|file| file.batch_rows_max()).max().unwrap_or(0),
            mappings: Arc::clone(&self.mappings),
            skipped: self.skipped.clone(),
            policy: self.policy,
            files,
            fields,
        }
    }

    /// The value of a column in all rows of a file; `None`: its values are in the file.
    pub(super) fn constant(&self, file: usize, column: usize) -> Option<Option<i64>> {
        self.columns.get(column)?.constants.as_ref()?.get(file).copied()
    }

    /// The values of such columns in words: tables of the same files are equal if these are equal too.
    pub fn constants_text(&self) -> Option<String> {
        let fields = self.schema.fields().iter().zip(&self.columns);
        let mut text = String::new();
        for (field, column) in fields {
            let Some(constants) = &column.constants else { continue };
            let _ = write!(text, "{:?}:", field.name());
            let values = column.dictionary.as_ref().map(|dictionary| &dictionary.values);
            for constant in constants {
                let _ = match (constant, values) {
                    (Some(code), Some(values)) => {
                        write!(text, "{:?},", values.value(*code as usize))
                    }
                    (constant, _) => write!(text, "{constant:?},"),
                };
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// The facts about such a column's values in a file.
    pub(super) fn constant_bounds(&self, column: usize, value: Option<i64>) -> Bounds {
        match value {
            // Conditions are on values, not on codes.
            _ if self.table_dictionary(column).is_some() => Bounds::Unknown,
            Some(value) => Bounds::Range(value.into(), value.into()),
            None => Bounds::NoValues,
        }
    }

    /// Such a column as an Arrow array.
    pub(super) fn constant_array(
        &self,
        column: usize,
        value: Option<i64>,
        rows: usize,
    ) -> ArrayRef {
        let Some(value) = value else { return self.null_array(column, rows) };
        match (self.table_dictionary(column), self.schema().field(column).data_type()) {
            (Some(dictionary), _) => {
                let keys = Int32Array::from_value(value as i32, rows);
                dictionary_array(keys, &dictionary.values)
            }
            (None, DataType::Date32) => Arc::new(Date32Array::from_value(value as i32, rows)),
            _ => Arc::new(Int64Array::from_value(value, rows)),
        }
    }

    fn null_array(&self, column: usize, rows: usize) -> ArrayRef {
        match self.table_dictionary(column) {
            Some(dictionary) => dictionary_array(Int32Array::new_null(rows), &dictionary.values),
            None => arrow_array::new_null_array(self.schema().field(column).data_type(), rows),
        }
    }
}

/// For keys that are codes of the values.
fn dictionary_array(keys: Int32Array, values: &Arc<StringArray>) -> ArrayRef {
    Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::clone(values) as ArrayRef))
}

/// Values as integers, with their type in the table, and a dictionary for texts.
fn constants(
    name: &str,
    values: &ArrayRef,
) -> Result<(DataType, Constants, Option<TableDictionary>)> {
    let plain: Constants = match values.data_type() {
        DataType::Int64 => values.as_primitive::<Int64Type>().iter().collect(),
        DataType::Date32 => {
            values.as_primitive::<Date32Type>().iter().map(|days| days.map(i64::from)).collect()
        }
        DataType::Utf8 => return texts(name, values.as_string::<i32>()),
        other => return Err(FormatError::column(name, format!("constants of type {other}"))),
    };
    Ok((values.data_type().clone(), plain, None))
}

fn texts(
    name: &str,
    texts: &StringArray,
) -> Result<(DataType, Constants, Option<TableDictionary>)> {
    let mut sorted: Vec<&str> = texts.iter().flatten().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let code = |text: &str| sorted.binary_search(&text).ok().map(|code| code as i64);
    let constants: Constants = texts.iter().map(|text| text.and_then(code)).collect();
    let bytes: usize = sorted.iter().map(|text| text.len()).sum();
    if i32::try_from(bytes).is_err() {
        return Err(FormatError::column(name, format!("{bytes} bytes of distinct text")));
    }
    let values = Arc::new(StringArray::from_iter_values(sorted));
    let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    Ok((data_type, constants, Some(TableDictionary::of_codes(values))))
}

fn stats(constants: &Constants, files: &[Arc<ArrowFile>], are_codes: bool) -> ColumnStats {
    let nulls = constants.iter().zip(files).filter(|(value, _)| value.is_none());
    let null_count = nulls.map(|(_, file)| file.rows()).sum();
    let values = || constants.iter().flatten().copied().filter(|_| !are_codes);
    ColumnStats { min: values().min(), max: values().max(), null_count: Some(null_count), bytes: 0 }
}
