//! Blocks in, record batches out.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};

use super::Reroute;
use super::column::Column;
use super::page::{HEADER_BYTES, Line, MIN_TUPLE_BYTES, Page};
use super::plan::Plan;
use super::relation::Relation;
use super::tuple::Tuple;
use super::uniform::Tuples;
use super::walk::Places;
use crate::{FormatError, Result};

/// Decodes blocks of one relation into the columns that are wanted of it.
///
/// It allocates as its columns grow, and nothing for a tuple.
#[derive(Debug)]
pub struct Decoder {
    block_bytes: usize,
    checksums: bool,
    relation_attributes: usize,
    plan: Plan,
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    /// Of the page at hand.
    places: Places,
    tuples: Tuples,
    /// The compressed value at hand, expanded.
    expanded: Vec<u8>,
}

impl Decoder {
    /// A decoder of attributes `wanted`, by their positions in the relation, in the order that
    /// the batches' columns are to have.
    ///
    /// # Errors
    ///
    /// The description makes no sense, or a wanted attribute cannot be decoded.
    pub fn new(relation: &Relation, wanted: &[usize]) -> Result<Self> {
        let kinds = relation.check(wanted)?;
        let mut attributes: Vec<usize> = Vec::new();
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (&index, kind) in wanted.iter().zip(kinds) {
            let of = relation.attribute_of(index);
            let attribute = &relation.attributes[of];
            fields.push(attribute.field(relation.name_of(index), kind));
            let slot = attributes.iter().position(|known| *known == of).unwrap_or_else(|| {
                attributes.push(of);
                attributes.len() - 1
            });
            let missing = attribute.missing.as_deref();
            let query = relation.query_of(index).cloned();
            columns.push(Column::new((of, slot), kind, missing, query));
        }
        let tuple_bytes = MIN_TUPLE_BYTES + size_of::<u32>();
        let max_rows = (relation.block_bytes - HEADER_BYTES) / tuple_bytes;
        Ok(Self {
            block_bytes: relation.block_bytes,
            checksums: relation.checksums,
            relation_attributes: relation.attributes.len(),
            plan: Plan::new(relation, &attributes),
            schema: Arc::new(Schema::new(fields)),
            columns,
            rows: 0,
            places: Places::new(attributes.len(), max_rows),
            tuples: Tuples::new(max_rows),
            expanded: Vec::new(),
        })
    }

    /// The columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows since the last [`Decoder::finish`].
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of their values, bitmaps of NULLs aside.
    pub fn values_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.values_bytes(self.rows)).sum()
    }

    /// Appends the rows of a block in the order of their line pointers and returns how many.
    /// `block` is its number in the relation, counted over all segments.
    ///
    /// # Errors
    /// The server must read this block; none of its rows has been appended.
    pub fn decode(&mut self, page: &[u8], block: u32) -> std::result::Result<usize, Reroute> {
        self.append_all(Page::all_visible(page, self.block_bytes, self.checksums.then_some(block))?)
    }

    /// Appends the rows of all line pointers of a page that the caller vouches for, as
    /// [`decode_lines`](Self::decode_lines) does.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_vouched(&mut self, bytes: &[u8]) -> std::result::Result<usize, Reroute> {
        let page = Page::any(bytes, self.block_bytes)?;
        self.places.clear();
        let (plan, attributes) = (&self.plan, self.relation_attributes);
        if page.has_sound_tuples()
            && self.places.add_uniform(plan, &page, &mut self.tuples, attributes, true)
        {
            return self.append(bytes);
        }
        let is_normal = |(number, line)| matches!(line, Line::Normal { .. }).then_some(number);
        let lines: Vec<u16> = page.lines().filter_map(is_normal).collect();
        self.decode_lines(bytes, &lines)
    }

    /// Appends all rows of a page that are visible to everybody.
    fn append_all(&mut self, page: Page<'_>) -> std::result::Result<usize, Reroute> {
        self.places.clear();
        let (plan, attributes) = (&self.plan, self.relation_attributes);
        if self.places.add_uniform(plan, &page, &mut self.tuples, attributes, false) {
            return self.append(page.bytes);
        }
        for (line, pointer) in page.lines() {
            let Line::Normal { start, bytes } = pointer else { continue };
            Tuple::all_visible(page.bytes, start, bytes, self.relation_attributes)
                .and_then(|tuple| self.places.add(&self.plan, page.bytes, &tuple))
                .map_err(|flaw| Reroute::Tuple { line, flaw })?;
        }
        self.append(page.bytes)
    }

    /// Appends the rows of these line pointers of a page, counted from 1, and returns how many. The
    /// caller has the page from the server's own memory, where checksums are not kept, and vouches
    /// for the tuples: that its snapshot sees them, and that the page stays as it is. What else is
    /// on the page does not matter.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_lines(
        &mut self,
        page: &[u8],
        lines: &[u16],
    ) -> std::result::Result<usize, Reroute> {
        let page = Page::any(page, self.block_bytes)?;
        self.places.clear();
        for &line in lines {
            let (start, bytes) = page.tuple(line)?;
            Tuple::open(page.bytes, start, bytes, self.relation_attributes)
                .and_then(|tuple| self.places.add(&self.plan, page.bytes, &tuple))
                .map_err(|flaw| Reroute::Tuple { line, flaw })?;
        }
        self.append(page.bytes)
    }

    /// Appends the values at the places of a page.
    fn append(&mut self, page: &[u8]) -> std::result::Result<usize, Reroute> {
        for column in 0..self.columns.len() {
            let places = self.places.column(self.columns[column].slot());
            let appended = self.columns[column].append(page, places, &mut self.expanded);
            if let Err(reroute) = appended {
                self.columns[..=column].iter_mut().for_each(|column| column.truncate(self.rows));
                return Err(reroute);
            }
        }
        self.rows += self.places.rows;
        Ok(self.places.rows)
    }

    /// The rows so far, which may be none. The decoder is empty then and can go on.
    ///
    /// # Errors
    ///
    /// Arrow refuses the values.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let refused = |cause| FormatError::arrow("building a batch of heap rows", cause);
        let options =
            RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        let arrays: std::result::Result<Vec<_>, _> =
            self.columns.iter_mut().map(Column::finish).collect();
        RecordBatch::try_new_with_options(self.schema.clone(), arrays.map_err(refused)?, &options)
            .map_err(refused)
    }
}
