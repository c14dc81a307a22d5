//! The sample at the beginning of a text file, and the errors for files that are no text.

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::error::ArrowError;

/// Records at most that types are told from.
pub const SAMPLE_RECORDS_MAX: usize = 20_480;

/// What helps against a file that cannot be read.
pub const REPAIR: &str = "mend the file or move it out of its table's folder";

/// The columns that somebody named.
pub fn schema_of(columns: &[(String, DataType)]) -> Schema {
    let field = |(name, data_type): &(String, DataType)| Field::new(name, data_type.clone(), true);
    Schema::new(columns.iter().map(field).collect::<Vec<_>>())
}

/// What an error says, without the name of its class.
pub fn plain_text(error: &ArrowError) -> String {
    let text = error.to_string();
    let class = text.split_once(": ").filter(|(class, _)| class.ends_with("error"));
    class.map_or(text.as_str(), |(_, text)| text).to_string()
}
