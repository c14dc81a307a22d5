//! Arrow IPC: files, which pipelines stream, and streams of batches, which the planner reads.

use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::datasource::physical_plan::FileSource;
use headrace_format::arrow::{BatchStream, begins_stream};
use headrace_io::{ReadAt, SourceFile};

use crate::catalog::bytes::FileBytes;
use crate::catalog::files::{DataFile, Files};
use crate::catalog::format::{FileFormat, Inspected, Scan};
use crate::catalog::layout::{Batches, Layout, Text, TextInput};
use crate::catalog::options::ReadOptions;
use crate::catalog::refusal::refused;
use crate::catalog::remote::{is_address, shown_path};
use crate::catalog::sample::REPAIR;
use crate::catalog::table::{HeadraceTable, TableEntry};
use crate::catalog::text::TextSource;

/// Record batches, with a footer that lists them or without.
#[derive(Debug)]
pub struct Arrow;

impl FileFormat for Arrow {
    fn name(&self) -> &'static str {
        "Arrow"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["arrow", "arrows", "feather", "ipc"]
    }

    fn functions(&self) -> &'static [&'static str] {
        &["read_arrow"]
    }

    /// Of a stream.
    fn inspect(&self, file: &DataFile, options: &ReadOptions, _: usize) -> Result<Inspected> {
        let stream = open(&file.source).map_err(|e| refused(file.path(), e, REPAIR))?;
        let schema = Schema::clone(stream.schema());
        let (text, layout) = (Text::of(file, options), Layout::Batches(batches));
        let file = file.planned().with_extension(TextInput { text, layout, row_bytes: 0 });
        Ok(Inspected { file, schema, notes: Vec::new() })
    }

    fn type_of_nothing(&self) -> DataType {
        DataType::Null
    }

    fn source(&self, scan: Scan<'_>) -> Arc<dyn FileSource> {
        Arc::new(TextSource::new("arrow stream", scan))
    }

    fn streamed(
        &self,
        name: &str,
        place: &Path,
        files: &Files,
        kept: Option<&Path>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        // An address is the same wherever it is asked from.
        let whole = match is_address(place) {
            true => place.to_path_buf(),
            false => std::path::absolute(place).unwrap_or_else(|_| place.to_path_buf()),
        };
        match HeadraceTable::of_files(name, (&whole, files), kept) {
            Ok(table) => Ok(Some(Arc::new(TableEntry(table)))),
            Err(_) if files.files.iter().all(|file| begins_stream(&file.source)) => Ok(None),
            Err(error) => {
                let remedy = "write it again, or move it out of its table's folder";
                Err(refused(&shown_path(place), error.find_root().message(), remedy))
            }
        }
    }
}

/// Begins to read a stream; the error says what keeps it from being one.
fn open(file: &Arc<SourceFile>) -> Result<BatchStream<impl Read + use<>>, String> {
    let bytes = BufReader::with_capacity(1 << 20, FileBytes::whole(Arc::clone(file)));
    BatchStream::open(bytes, file.size_bytes())
}

fn batches(file: &Arc<SourceFile>, is_wanted: &dyn Fn(&str) -> bool) -> Result<Batches, String> {
    Ok(Box::new(open(file)?.only(is_wanted)))
}
