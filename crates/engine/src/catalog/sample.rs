//! The sample at the beginning of a text file, and the errors for files that are no text.

use std::error::Error;
use std::io;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::error::ArrowError;

use super::records::Blocks;

/// Records at most that types are told from.
pub const SAMPLE_RECORDS_MAX: usize = 20_480;

/// What helps against a file that cannot be read.
pub const REPAIR: &str = "mend the file or move it out of its table's folder";

/// What keeps a text from being a table; its file is not named yet.
pub type Cause = Box<dyn Error + Send + Sync>;

/// The whole records at the beginning of a text, of about so many bytes.
pub fn beginning(mut blocks: Blocks, bytes: usize) -> io::Result<Vec<u8>> {
    Ok(blocks.next(bytes)?.map(|block| block.bytes).unwrap_or_default())
}

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
