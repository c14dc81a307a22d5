//! Batches as a table.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::StringArray;
use arrow_schema::{Field, Schema, SchemaRef};
use headrace_io::{InputPolicy, MemoryFile, ReadAt, SourceFile};

use super::column::{Dictionary, table_type};
use super::stream::{BatchStream, ProducerError};
use crate::error::{FormatError, Result};

/// One-time record batches as a table without files. Their number is unknown unless the producer
/// states it, and so are their values; no condition prunes any. A run's data are not cached for
/// another.
///
/// Text stored as views or as codes is plain text of the table, so that every batch may have its
/// own dictionary; [`with_dictionary`](Self::with_dictionary) makes it codes of one dictionary,
/// which a GPU needs.
pub struct BatchTable {
    pub(super) name: Arc<SourceFile>,
    /// As the batches have them.
    pub(super) fields: SchemaRef,
    pub(super) schema: SchemaRef,
    pub(super) dictionaries: Vec<Option<Dictionary>>,
    pub(super) rows_max: Option<u64>,
    pub(super) policy: InputPolicy,
    stream: Mutex<Option<Box<dyn BatchStream>>>,
}

impl fmt::Debug for BatchTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchTable({})", self.name.path().display())
    }
}

impl BatchTable {
    /// The batches of a stream with this schema; `name` is for errors.
    pub fn new(name: &str, schema: &Schema, stream: impl BatchStream + 'static) -> Self {
        let columns = schema.fields().len();
        let (check_identity, cached) = (false, false);
        let policy = InputPolicy { check_identity, cached, ..InputPolicy::default() };
        let mut table = Self {
            name: MemoryFile::named(name),
            fields: Arc::new(schema.clone()),
            schema: Arc::new(schema.clone()),
            dictionaries: (0..columns).map(|_| None).collect(),
            rows_max: None,
            policy,
            stream: Mutex::new(Some(Box::new(stream))),
        };
        table.set_schema();
        table
    }

    fn set_schema(&mut self) {
        let field = |(field, dictionary): (&Arc<Field>, &Option<Dictionary>)| {
            let data_type = table_type(field.data_type(), dictionary.is_some());
            field.as_ref().clone().with_data_type(data_type)
        };
        let fields: Vec<Field> =
            self.fields.fields().iter().zip(&self.dictionaries).map(field).collect();
        self.schema = Arc::new(Schema::new_with_metadata(fields, self.fields.metadata().clone()));
    }

    /// All texts of a column that the batches have as codes, sorted by bytes, distinct: a batch
    /// with another text is an error.
    ///
    /// # Errors
    /// [`FormatError::Argument`] for a column without text codes, or texts that are not sorted.
    pub fn with_dictionary(mut self, column: usize, texts: Arc<StringArray>) -> Result<Self> {
        let argument = |cause: &str| FormatError::Argument(format!("column {column}: {cause}"));
        let data_type = self.fields.fields().get(column).map(|field| field.data_type());
        let has_codes = data_type.is_some_and(|t| table_type(t, true) != table_type(t, false));
        if !has_codes {
            return Err(argument("no codes of text"));
        }
        self.dictionaries[column] = Some(Dictionary::new(texts).map_err(|cause| argument(&cause))?);
        self.set_schema();
        Ok(self)
    }

    /// A promise of the producer, by which processors size their results: more rows than this are
    /// an error.
    pub fn with_rows_max(self, rows_max: u64) -> Self {
        Self { rows_max: Some(rows_max), ..self }
    }

    /// Batches in memory that may be written concurrently: copied first, then examined.
    pub fn copied_first(mut self) -> Self {
        self.policy.copy_first = true;
        self
    }

    /// The stream, for its reader.
    pub(super) fn take_stream(&self) -> Result<Box<dyn BatchStream>> {
        let taken = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let why = "its batches come once, and were read before: hand over others";
        taken.ok_or_else(|| self.failed(why))
    }

    pub(super) fn failed(&self, cause: impl Into<ProducerError>) -> FormatError {
        let name = self.name.path().display().to_string();
        FormatError::Producer { name, cause: cause.into() }
    }
}
