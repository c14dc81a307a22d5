//! A table as programs stream it.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use headrace_columns::column::arrow_field;
use headrace_columns::repr::Dictionary;
use headrace_format::Table;
use headrace_format::arrow::ir_type;
use headrace_format::batches::{BatchTable, ProducerError, Ready};
use headrace_ir::{Field, Input, Program, Source};
use headrace_pipeline::ExecError;

use crate::error::RunError;

/// A named table of any format, with what pipelines share of it from run to run.
pub struct StreamTable {
    name: String,
    source: Arc<dyn Table>,
    dictionaries: Vec<Option<Arc<Dictionary>>>,
    remarks: Remarks,
}

/// What EXPLAIN says of a table besides its rows and bytes.
#[derive(Clone, Debug, Default)]
pub struct Remarks {
    /// Files that are not read because of their folders, and those that are.
    pub ruled_out: Option<String>,
    /// Files that lie among its own but are not part of it, with the reasons.
    pub skipped: Option<String>,
}

impl Remarks {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &String> {
        self.ruled_out.iter().chain(&self.skipped)
    }
}

impl fmt::Debug for StreamTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamTable({}, {:?})", self.name, self.source.rows())
    }
}

impl StreamTable {
    /// A table under the name by which programs, EXPLAIN and errors know it.
    pub fn new(name: impl Into<String>, source: Arc<dyn Table>) -> Self {
        let columns = source.schema().fields().len();
        // Codes of one dictionary compare without their texts only where it is the same object.
        let dictionary = |column| {
            let values = source.dictionary(column)?;
            Some(Arc::new(Dictionary { values: values.as_ref().clone() }))
        };
        let dictionaries = (0..columns).map(dictionary).collect();
        Self { name: name.into(), source, dictionaries, remarks: Remarks::default() }
    }

    /// The same name and dictionaries over another source, whose codes are those of this one.
    pub fn over(&self, source: Arc<dyn Table>) -> Self {
        let (name, dictionaries) = (self.name.clone(), self.dictionaries.clone());
        Self { name, source, dictionaries, remarks: self.remarks.clone() }
    }

    /// The same table under another name.
    pub fn named(&self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self.over(Arc::clone(&self.source)) }
    }

    /// The same with other remarks.
    pub fn with_remarks(self, remarks: Remarks) -> Self {
        Self { remarks, ..self }
    }

    /// What EXPLAIN says of it.
    pub fn remarks(&self) -> &Remarks {
        &self.remarks
    }

    /// Files that lie among its own but are not part of it, beside an answer.
    pub fn skipped_note(&self) -> Option<String> {
        let skipped = self.remarks.skipped.as_ref()?;
        Some(format!("table {}: {skipped}", self.name))
    }

    /// Batches that a program reads as its table of a number, all of their columns.
    ///
    /// # Errors
    /// Nothing in the program reads such batches.
    pub fn of_batches(
        program: &Program,
        number: usize,
        batches: Vec<RecordBatch>,
    ) -> Result<Self, RunError> {
        let source = program.sources().find(|source| source.input == Input::Batches(number));
        let missing = || ExecError::Internal(format!("nothing reads batches {number}"));
        Ok(Self::of_source(source.ok_or_else(missing)?, batches.into_iter().map(Ok)))
    }

    /// Batches of all columns of a source.
    pub(crate) fn of_source(
        source: &Source,
        batches: impl Iterator<Item = Result<RecordBatch, ProducerError>> + Send + 'static,
    ) -> Self {
        let fields: Vec<_> = source.columns.iter().map(arrow_field).collect();
        let table = BatchTable::new(&source.table, &Schema::new(fields), Ready(batches));
        Self::new(&source.table, Arc::new(table))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its rows are.
    pub fn source(&self) -> &Arc<dyn Table> {
        &self.source
    }

    /// A source over columns by their names, in register order.
    ///
    /// # Errors
    /// A column that the table does not have, or that pipelines cannot read, with the reason.
    pub fn source_over(&self, number: usize, names: &[&str]) -> Result<Source, String> {
        let schema = self.source.schema();
        let input = match self.source.comes_once() {
            true => Input::Batches(number),
            false => Input::Table(number),
        };
        let mut over = Source::of_stage(input, &self.name, vec![]);
        for name in names {
            let ordinal = schema.index_of(name).map_err(|error| error.to_string())?;
            let column = schema.field(ordinal);
            self.source.column_support(ordinal)?;
            let data_type = ir_type(column.data_type())
                .ok_or_else(|| format!("pipelines do not know type {}", column.data_type()))?;
            over.columns.push(Field::new(*name, data_type, column.is_nullable()));
            over.ordinals.push(ordinal);
        }
        Ok(over)
    }

    /// The table-wide dictionary of a column of dictionary-encoded text.
    pub fn dictionary(&self, column: usize) -> Option<Arc<Dictionary>> {
        self.dictionaries.get(column).cloned().flatten()
    }

    /// Bytes of columns in all files.
    pub fn columns_bytes<'c>(&self, columns: impl IntoIterator<Item = &'c usize>) -> u64 {
        columns.into_iter().map(|&column| self.source.column_stats(column).bytes).sum()
    }
}
