//! Tables as other processes open them.

use std::sync::Arc;

use arrow_array::{ArrayRef, Date32Array, Int64Array, StringArray};
use arrow_schema::{DataType, Schema};
use headrace_io::{IoError, ReadAt, SourceFile};

use super::table::{ArrowTable, TableColumn};
use crate::description::{Constants, TableDescription};
use crate::error::{FormatError, Result};

impl ArrowTable {
    /// How another process of this machine opens the same table.
    ///
    /// # Errors
    /// Why none can.
    pub fn description(&self) -> std::result::Result<TableDescription, String> {
        if let Some(file) = self.files.iter().find(|file| file.is_remote()) {
            return Err(format!("{} is not a local file", file.path().display()));
        }
        let absolute = |path| std::path::absolute(path).map_err(|cause| cause.to_string());
        let files = self.files.iter().map(|file| Ok((absolute(file.path())?, file.identity())));
        let named = self.schema.fields().iter().zip(&self.columns);
        let constants = named.filter_map(|(field, column)| {
            Some((field.name().clone(), Constants::of(column, field.data_type())?))
        });
        let (constants, columns) = (constants.collect(), columns(&self.schema));
        Ok(TableDescription {
            files: files.collect::<std::result::Result<_, String>>()?,
            constants,
            columns,
        })
    }

    /// Opens a table that another process described.
    ///
    /// # Errors
    /// A file has changed, or cannot be read. The columns have other types than described: the describing process may have
    /// unified them over more files.
    pub fn open_described(described: &TableDescription) -> Result<ArrowTable> {
        let sources = described.files.iter().map(|(path, identity)| {
            let source = SourceFile::open(path)?;
            if source.identity() != *identity {
                let what = "the process that asks has seen another version of it".into();
                return Err(IoError::Changed { path: path.clone(), what }.into());
            }
            Ok(source)
        });
        let table = ArrowTable::open_sources(&sources.collect::<Result<Vec<_>>>()?, None)?;
        if table.files().len() != described.files.len() {
            return Err(argument("some of its files are no longer part of the table"));
        }
        let constants =
            described.constants.iter().map(|(name, values)| Ok((name.clone(), values.array()?)));
        let table = table.with_constants(&constants.collect::<Result<Vec<_>>>()?)?;
        match columns(table.schema()) == described.columns {
            true => Ok(table),
            false => Err(argument("its columns have other types without the rest of its files")),
        }
    }
}

impl Constants {
    pub(super) fn of(column: &TableColumn, data_type: &DataType) -> Option<Self> {
        let values = column.constants.as_ref()?;
        Some(match (&column.dictionary, data_type) {
            (Some(dictionary), _) => {
                let text = |code: i64| dictionary.values.value(code as usize).to_string();
                Self::Texts(values.iter().map(|code| code.map(text)).collect())
            }
            (None, DataType::Date32) => Self::Days(values.clone()),
            (None, _) => Self::Integers(values.clone()),
        })
    }

    pub(super) fn array(&self) -> Result<ArrayRef> {
        Ok(match self {
            Self::Integers(values) => Arc::new(Int64Array::from(values.clone())),
            Self::Texts(values) => Arc::new(StringArray::from(values.clone())),
            Self::Days(values) => {
                let day = |day: &Option<i64>| day.map(i32::try_from).transpose();
                let days = values.iter().map(day).collect::<std::result::Result<Vec<_>, _>>();
                Arc::new(Date32Array::from(days.map_err(|_| argument("a day out of range"))?))
            }
        })
    }
}

fn argument(text: impl Into<String>) -> FormatError {
    FormatError::Argument(text.into())
}

fn columns(schema: &Schema) -> Vec<(String, String, bool)> {
    let column = |field: &Arc<arrow_schema::Field>| {
        (field.name().clone(), field.data_type().to_string(), field.is_nullable())
    };
    schema.fields().iter().map(column).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use arrow_array::{Int32Array, RecordBatch};

    use super::*;
    use crate::Table;
    use crate::arrow::{ArrowWriter, WriterOptions};

    fn write(path: &Path, values: &[i32]) {
        let values: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
        let batch = RecordBatch::try_from_iter([("a", values)]).unwrap();
        let mut writer =
            ArrowWriter::create(path, &batch.schema(), WriterOptions::default()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }

    #[test]
    fn a_description_opens_the_same_table_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["x.arrow", "y.arrow"].map(|name| folder.path().join(name));
        write(&paths[0], &[1, 2]);
        write(&paths[1], &[3]);
        let folders: [(String, ArrayRef); 3] = [
            ("k".into(), Arc::new(Int64Array::from(vec![Some(7), None]))),
            ("d".into(), Arc::new(Date32Array::from(vec![-1, 20_000]))),
            ("t".into(), Arc::new(StringArray::from(vec![Some("b"), Some("a")]))),
        ];
        let table = ArrowTable::open(&paths).unwrap().with_constants(&folders).unwrap();
        let text = serde_json::to_string(&table.description().unwrap()).unwrap();
        let description: TableDescription = serde_json::from_str(&text).unwrap();
        let opened = ArrowTable::open_described(&description).unwrap();
        assert_eq!(opened.schema(), table.schema());
        assert_eq!(opened.beyond_files(), table.beyond_files());
        assert_eq!(opened.read_batch(1, 0, None).unwrap(), table.read_batch(1, 0, None).unwrap());

        write(&paths[1], &[3, 4]);
        let error = ArrowTable::open_described(&description).unwrap_err();
        assert!(matches!(error, FormatError::Io(IoError::Changed { .. })), "{error}");
        std::fs::remove_file(&paths[1]).unwrap();
        assert!(ArrowTable::open_described(&description).is_err());
    }
}
