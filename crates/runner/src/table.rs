//! A table as programs stream it.

use std::fmt;
use std::sync::Arc;

use headrace_format::Table;
use headrace_pipeline::Dictionary;

/// A named table of any format, with what pipelines share of it from run to run.
pub struct StreamTable {
    name: String,
    source: Arc<dyn Table>,
    dictionaries: Vec<Option<Arc<Dictionary>>>,
}

impl fmt::Debug for StreamTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamTable({}, {} rows)", self.name, self.source.rows())
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its rows are.
    pub fn source(&self) -> &Arc<dyn Table> {
        &self.source
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
