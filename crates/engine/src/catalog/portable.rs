//! Tables of files that another machine has described.

use std::sync::Arc;

use datafusion::common::{Result, exec_datafusion_err};
use headrace_format::arrow::ArrowTable;
use headrace_format::{PortableFormat, PortableTable};
use headrace_runner::StreamTable;

use super::formats::parquet_input;
use super::parquet_streamed::opened;
use crate::error::external;

/// Opens a table that another machine described, under its name there.
///
/// # Errors
/// A file is another one than that machine saw (`IoError::Changed`), or cannot be read.
pub fn open_portable(name: &str, portable: &PortableTable) -> Result<Arc<StreamTable>> {
    let table = match portable.format {
        PortableFormat::Arrow { .. } => {
            let table = ArrowTable::open_portable(portable).map_err(external)?;
            StreamTable::new(name, Arc::new(table))
        }
        PortableFormat::Parquet => parquet(portable)?.named(name),
    };
    Ok(Arc::new(table))
}

fn parquet(portable: &PortableTable) -> Result<Arc<StreamTable>> {
    let sources = portable.open_files().map_err(external)?;
    let inputs = sources.iter().map(|source| parquet_input(source, None));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let columns = Arc::new(portable.schema().map_err(external)?);
    let opened = opened(&columns, &inputs.iter().collect::<Vec<_>>());
    Ok(opened.map_err(|why| exec_datafusion_err!("{why}"))?.stream)
}
