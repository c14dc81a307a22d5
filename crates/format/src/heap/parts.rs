//! Relations as one table: a partitioned table's leaves, a table with its children, or one heap alone.
//!
//! A partitioned table is one table of several parts, not a run for each: there is one race, one set of builds and
//! one sink, and a worker changes its decoder where the part of its blocks changes. Columns are matched by name, as
//! PostgreSQL matches a parent's with a child's. A GPU takes parts whose tuples are laid out alike.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};

use headrace_ir::pages::PagePlan;
use serde::{Deserialize, Serialize};

use super::decoder::Decoder;
use super::relation::{HeapType, Relation};
use crate::arrow::{encoding, ir_type};
use crate::{FormatError, Result};

/// The location of a relation's blocks, and which of them are decoded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeapBlocks {
    /// The table.
    pub relation: Relation,
    /// Its segment files in order. They are examined when a run is planned; blocks that a file does
    /// not have then (all of them if it is missing) are rerouted. From then on they may grow, but a
    /// shorter file fails the run.
    pub files: Vec<PathBuf>,
    /// Blocks of a full file (`segment_size`, usually 131072).
    pub blocks_per_file: u32,
    /// The blocks that are read from the files, by their numbers in the relation: ascending,
    /// disjoint ranges. The rows of all others come through the stream.
    pub direct: Vec<Range<u32>>,
    /// `None`: their rows must not be cached for a later run.
    pub stamps: Option<Stamps>,
}

/// Stamps that identify versions of a relation's blocks: a block that two runs list under the same
/// non-zero stamp has the same rows in both.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stamps {
    /// The identity of the files: another relation, or the same one rewritten, has another.
    pub identity: String,
    /// Number of consecutive blocks that share a stamp.
    pub blocks: u32,
    /// The stamps of this many blocks each; blocks behind the last have none.
    pub stamps: Vec<u64>,
}

/// Number of segments per stamp. Every run must cut alike, because rows are cached by segment.
const SEGMENTS_PER_STAMP: u32 = 32;

impl Stamps {
    /// A block's stamp, if it has one.
    pub(super) fn of(&self, block: u32) -> Option<u64> {
        let stamp = self.stamps.get((block / self.blocks) as usize);
        stamp.copied().filter(|stamp| *stamp != 0)
    }

    /// The end of the segment with this block.
    pub(super) fn segment_end(&self, block: u32) -> u32 {
        let segment_blocks = self.blocks.div_ceil(SEGMENTS_PER_STAMP);
        let place = block % self.blocks;
        let end = (place / segment_blocks + 1) * segment_blocks;
        (block - place).saturating_add(end.min(self.blocks))
    }
}

impl HeapBlocks {
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |cause: String| Err(FormatError::Argument(format!("heap blocks: {cause}")));
        self.relation.check(&[])?;
        if self.blocks_per_file == 0 || self.stamps.as_ref().is_some_and(|s| s.blocks == 0) {
            return refuse("files of no blocks, or stamps".to_string());
        }
        let blocks_max = self.files.len() as u64 * u64::from(self.blocks_per_file);
        let mut end = 0;
        for range in &self.direct {
            if range.start < end || range.end <= range.start {
                return refuse(format!("range {range:?} is empty, or not behind the one before"));
            }
            end = range.end;
        }
        if u64::from(end) > blocks_max {
            return refuse(format!("block {end} is beyond the end of {} files", self.files.len()));
        }
        Ok(())
    }
}

/// A block of one of a table's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Block {
    /// Its position among the parts of the table.
    pub part: u32,
    /// The block's number in the part's relation.
    pub number: u32,
}

/// The parts of a table. Its columns are those of the first part; the other parts match by name, as in
/// PostgreSQL, so each may have them in other positions. Files are counted over all parts.
pub(super) struct Parts {
    parts: Vec<Part>,
    schema: SchemaRef,
}

/// One part.
pub(super) struct Part {
    pub blocks: HeapBlocks,
    /// The number of its first file.
    pub first_file: u32,
    /// By column; `None` if it has none of that name and type.
    attributes: Vec<Option<usize>>,
    /// By file, if its rows may be cached: its identity, and the layout of its tuples.
    pub identities: Vec<Arc<str>>,
}

impl Parts {
    pub(super) fn new(blocks: Vec<HeapBlocks>) -> Result<Self> {
        let Some(first) = blocks.first() else {
            return Err(FormatError::Argument("heap blocks: a table of no parts".to_string()));
        };
        let block_bytes = first.relation.block_bytes;
        let columns = first.relation.columns().map(|(name, kind)| (name.to_string(), kind));
        let columns: Vec<(String, HeapType)> = columns.collect();
        let (mut parts, mut files) = (Vec::new(), 0);
        for blocks in blocks {
            blocks.check()?;
            if blocks.relation.block_bytes != block_bytes {
                let cause = "heap blocks: parts with blocks of different sizes";
                return Err(FormatError::Argument(cause.to_string()));
            }
            let attributes =
                columns.iter().map(|(name, kind)| blocks.relation.position(name, *kind));
            let (attributes, count) = (attributes.collect(), blocks.files.len());
            let identities = match &blocks.stamps {
                Some(stamps) => {
                    let whole = format!("{} {:?} {columns:?}", stamps.identity, blocks.relation);
                    (0..count).map(|file| format!("{whole} {file}").into()).collect()
                }
                None => Vec::new(),
            };
            parts.push(Part { blocks, first_file: files, attributes, identities });
            files += u32::try_from(count).unwrap_or(u32::MAX);
        }
        let fields = columns.iter().enumerate().map(|(column, (name, kind))| {
            let nullable = parts.iter().any(|part| part.is_nullable(column));
            Field::new(name, kind.arrow(), nullable)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self { parts, schema })
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn get(&self, part: usize) -> Option<&Part> {
        self.parts.get(part)
    }

    /// Blocks that are read from the files.
    pub(super) fn direct_blocks(&self) -> u64 {
        let ranges = self.parts.iter().flat_map(|part| &part.blocks.direct);
        ranges.map(|range| range.len() as u64).sum()
    }

    /// Bytes of a block, in every part.
    pub(super) fn block_bytes(&self) -> usize {
        self.parts[0].blocks.relation.block_bytes
    }

    /// The part that a file belongs to.
    pub(super) fn of_file(&self, file: u32) -> usize {
        // The first part's first file is 0, and parts without files come before the one that has it.
        self.parts.partition_point(|part| part.first_file <= file) - 1
    }

    /// The block at an offset in a file.
    pub(super) fn block(&self, file: u32, offset: u64) -> Block {
        let index = self.of_file(file);
        let Part { blocks, first_file, .. } = &self.parts[index];
        // A feed's extents lie in blocks that were numbered.
        let in_file = (offset / blocks.relation.block_bytes as u64) as u32;
        let number = (file - first_file) * blocks.blocks_per_file + in_file;
        Block { part: index as u32, number }
    }

    pub(super) fn file_count(&self) -> usize {
        self.parts.iter().map(|part| part.blocks.files.len()).sum()
    }

    pub(super) fn path(&self, file: usize) -> Option<&Path> {
        let part = &self.parts[self.of_file(u32::try_from(file).ok()?)];
        let path = part.blocks.files.get(file - part.first_file as usize);
        path.map(PathBuf::as_path)
    }

    /// A decoder of columns of one part.
    pub(super) fn decoder(&self, part: usize, columns: &[usize]) -> Result<Decoder> {
        let part = &self.parts[part];
        Decoder::new(&part.blocks.relation, &part.wanted(&self.schema, columns)?)
    }

    /// The plan for columns of all parts; `None` if they have no common layout.
    pub(super) fn page_plan(&self, columns: &[usize]) -> Result<Option<PagePlan>> {
        let plan = |part: &Part| part.blocks.page_plan(&part.wanted(&self.schema, columns)?);
        let mut plans = self.parts.iter().map(plan);
        let Some(first) = plans.next().transpose()? else { return Ok(None) };
        for plan in plans {
            if plan? != first {
                return Ok(None);
            }
        }
        Ok(Some(first))
    }

    /// Why a column cannot be requested.
    pub(super) fn column_support(&self, column: usize) -> std::result::Result<(), String> {
        self.parts.iter().try_for_each(|part| part.attribute(&self.schema, column).map(drop))
    }
}

impl Part {
    /// The attributes of columns.
    fn wanted(&self, schema: &Schema, columns: &[usize]) -> Result<Vec<usize>> {
        let attribute = |&column: &usize| {
            let refused = |reason| FormatError::Argument(format!("column {column}: {reason}"));
            self.attribute(schema, column).map_err(refused)
        };
        columns.iter().map(attribute).collect()
    }

    fn attribute(&self, schema: &Schema, column: usize) -> std::result::Result<usize, String> {
        let Some(found) = self.attributes.get(column) else {
            return Err(format!("there is no column {column}"));
        };
        let field = schema.field(column);
        let Some(attribute) = *found else {
            return Err(format!("a part has no {} of the same type", field.name()));
        };
        self.blocks.relation.check(&[attribute]).map_err(|error| error.to_string())?;
        let data_type = field.data_type();
        match ir_type(data_type).is_some() && encoding(data_type).is_some() {
            true => Ok(attribute),
            false => Err(format!("pipelines do not know type {data_type}")),
        }
    }

    fn is_nullable(&self, column: usize) -> bool {
        let relation = &self.blocks.relation;
        let attribute =
            self.attributes[column].map(|index| &relation.attributes[relation.attribute_of(index)]);
        let is_field = self.attributes[column]
            .is_some_and(|index| matches!(relation.kind_of(index), Some(HeapType::JsonbField(_))));
        is_field || attribute.is_none_or(|attribute| !attribute.not_null)
    }
}
