//! A table of heap blocks as pipelines take it.

use std::sync::{Arc, PoisonError};

use arrow_schema::SchemaRef;
use headrace_io::{FileIdentity, InputPolicy};

use super::block_decoder::BlockDecoder;
use super::feed::HeapFeed;
use super::page_source::BlockSource;
use super::table::{HeapTable, NOWHERE};
use crate::{
    ChunkOptions, ColumnBound, Feed, FormatError, PageSource, Result, SegmentDecoder, Table,
};

impl Table for HeapTable {
    fn schema(&self) -> &SchemaRef {
        self.parts.schema()
    }

    fn comes_once(&self) -> bool {
        true
    }

    fn policy(&self) -> InputPolicy {
        // Copied page by page by the decoder: not before.
        let (check_identity, cached, copy_first) = (false, false, false);
        InputPolicy { check_identity, cached, copy_first, fills_page_cache: self.fills_page_cache }
    }

    fn column_support(&self, column: usize) -> std::result::Result<(), String> {
        self.parts.column_support(column)
    }

    /// Nothing is pulled from the stream before the first chunk is requested; the first feed that
    /// does so owns it, and any other gets an error.
    fn feed(
        self: Arc<Self>,
        columns: &[usize],
        _conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>> {
        let schema = Arc::clone(self.parts.decoder(0, columns)?.schema());
        self.check_columns(columns)?;
        options.check()?;
        Ok(Box::new(HeapFeed::new(self, &schema, options)))
    }

    fn segment_decoder(
        self: Arc<Self>,
        columns: &[usize],
    ) -> Result<Option<Box<dyn SegmentDecoder>>> {
        Ok(Some(Box::new(BlockDecoder::new(self, columns)?)))
    }

    fn page_source(self: Arc<Self>, columns: &[usize]) -> Result<Option<Box<dyn PageSource>>> {
        if self.pages.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            let why = "heap blocks: pages of the server are for the CPU";
            return Err(FormatError::Argument(why.to_string()));
        }
        let plan = self.parts.page_plan(columns)?;
        Ok(Some(Box::new(BlockSource { table: self, plan })))
    }

    fn file_count(&self) -> usize {
        self.parts.file_count()
    }

    /// A file that cannot be examined has no bytes here, and is an error when it is read.
    fn file_identity(&self, file: usize) -> FileIdentity {
        self.identity(file).unwrap_or(NOWHERE)
    }
}
