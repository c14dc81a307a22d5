//! A table as programs stream it.

use std::fmt;
use std::sync::Arc;

use headrace_columns::repr::Dictionary;
use headrace_format::Table;
use headrace_format::arrow::ir_type;
use headrace_ir::{Field, Source};

/// A named table of any format, with what pipelines share of it from run to run.
pub struct StreamTable {
    name: String,
    source: Arc<dyn Table>,
    dictionaries: Vec<Option<Arc<Dictionary>>>,
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
        Self { name: name.into(), source, dictionaries }
    }

    /// The same name and dictionaries over another source, whose codes are those of this one.
    pub fn over(&self, source: Arc<dyn Table>) -> Self {
        Self { name: self.name.clone(), source, dictionaries: self.dictionaries.clone() }
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
    pub fn source_over(&self, table_id: usize, names: &[&str]) -> Result<Source, String> {
        let schema = self.source.schema();
        let (kind, table) = (self.source.kind(), self.name.clone());
        let mut over = Source { kind, table_id, table, columns: vec![], ordinals: vec![] };
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

    /// Bytes of a column in all files.
    pub fn column_bytes(&self, column: usize) -> u64 {
        self.source.column_stats(column).bytes
    }
}
