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

/// Decodes blocks of one relation into its wanted columns.
///
/// It allocates as its columns grow, not per tuple.
#[derive(Debug)]
pub struct Decoder {
    block_bytes: usize,
    checksums: bool,
    relation_attributes: usize,
    plan: Plan,
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    /// For the current page.
    places: Places,
    tuples: Tuples,
    /// The current compressed value, expanded.
    expanded: Vec<u8>,
}

impl Decoder {
    /// A decoder of attributes `wanted`, by position in the relation, in the order of the batches'
    /// columns.
    ///
    /// # Errors
    ///
    /// The description is inconsistent, or a wanted attribute cannot be decoded.
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

    /// Bytes of their values, without NULL bitmaps.
    pub fn values_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.values_bytes(self.rows)).sum()
    }

    /// Appends the rows of a block in the order of their line pointers and returns their number.
    /// `block` is its number in the relation, counted over all segments.
    ///
    /// # Errors
    /// The server must read this block; none of its rows was appended.
    pub fn decode(&mut self, page: &[u8], block: u32) -> std::result::Result<usize, Reroute> {
        self.append_all(Page::all_visible(page, self.block_bytes, self.checksums.then_some(block))?)
    }

    /// Appends the rows of all line pointers of a page that the caller vouches for, like
    /// [`decode_lines`](Self::decode_lines).
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

    /// Appends the rows of these line pointers of a page, counted from 1, and returns their number.
    /// The caller has the page from the server's own memory, where checksums are not maintained,
    /// and vouches that its snapshot sees the tuples and that the page does not change. The rest of
    /// the page does not matter.
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

    /// Appends the values at the positions of a page.
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

    /// The rows so far, possibly none. The decoder is then empty and can continue.
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
