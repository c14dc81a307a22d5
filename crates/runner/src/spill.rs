//! Where groups wait that do not fit memory: temporary files of the format crate.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use headrace_format::FormatError;
use headrace_format::arrow::{SpillFile, SpillFolder};
use headrace_pipeline::partial::{Spill, SpillBlock, SpillError, SpillStore};

use crate::runner::RunnerOptions;

/// Bytes of temporary files unless somebody says otherwise: what the planner allows its own.
const LIMIT_BYTES: u64 = 100_000_000_000;

/// Spills in a folder.
#[derive(Debug)]
pub struct Spills(Arc<SpillFolder>);

impl Spills {
    /// Where the options say.
    pub fn new(options: &RunnerOptions) -> Self {
        let folder = options.spill_folder.clone().unwrap_or_else(std::env::temp_dir);
        let limit_bytes = options.spill_limit_bytes.unwrap_or(LIMIT_BYTES);
        let lever = "raise the limit of temporary files or of memory";
        Self(SpillFolder::new(folder, limit_bytes, lever))
    }

    /// The folder, and what files in it may take.
    pub fn folder(&self) -> &Arc<SpillFolder> {
        &self.0
    }
}

fn spill_error(error: FormatError) -> SpillError {
    SpillError(error.into())
}

impl SpillStore for Spills {
    fn open(&self, schema: &SchemaRef) -> Result<Box<dyn Spill>, SpillError> {
        let file = self.0.create(Arc::clone(schema)).map_err(spill_error)?;
        Ok(Box::new(FileSpill(file)))
    }
}

#[derive(Debug)]
struct FileSpill(SpillFile);

impl Spill for FileSpill {
    fn write(&self, batch: &RecordBatch) -> Result<SpillBlock, SpillError> {
        let (offset, bytes) = self.0.write(batch).map_err(spill_error)?;
        Ok(SpillBlock { offset, bytes })
    }

    fn read(&self, block: SpillBlock) -> Result<RecordBatch, SpillError> {
        self.0.read(block.offset, block.bytes).map_err(spill_error)
    }
}
