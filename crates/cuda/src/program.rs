//! What code generation makes: the source of one kernel and how to call it.

use std::sync::Arc;

use headrace_columns::ColumnError;
use headrace_columns::repr::Repr;
use headrace_pipeline::ExecError;
use headrace_pipeline::bound::Bound;

use crate::accumulator::DeviceAccumulator;
use crate::fields::{Param, SegmentField};
use crate::groups::GroupTableLayout;
use crate::headers::HEADERS;
use crate::layout::{ColumnForm, SegmentLayout};
use crate::place::Place;
use crate::tuning::Tuning;

/// Name of the kernel in every generated source.
pub const KERNEL_NAME: &str = "headrace_pipeline";

/// A column of the rows sink on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Bytes a value (bool: one byte; of a text its address and length).
    pub value_bytes: u32,
    /// Whether there are validity bytes.
    pub nullable: bool,
    /// Whether the values are texts.
    pub is_text: bool,
}

/// One column of a segment in device memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceColumn {
    /// Address of values, codes or bits; at any alignment. 0 for a column that is not read.
    pub values: u64,
    /// How they lie.
    pub form: ColumnForm,
    /// What is added to differences, and what is taken from the offsets of texts.
    pub base: i64,
    /// Address of the validity bitmap.
    pub validity: Option<u64>,
    /// Index into the bound pipeline's remap tables.
    pub remap: Option<u32>,
    /// Address and number of the bytes that a text column's offsets point into; `None`: its values
    /// are views.
    pub bytes: Option<(u64, u64)>,
}

/// A row range of the streamed table in device memory.
#[derive(Clone, Debug)]
pub struct DeviceSegment {
    /// Number of rows, at most 2^31 - 1.
    pub rows: u32,
    /// One per source register.
    pub columns: Vec<DeviceColumn>,
}

/// The generated kernel of a pipeline for one segment layout. Needs no GPU.
#[derive(Debug)]
pub struct CudaProgram {
    /// The pipeline.
    pub bound: Arc<Bound>,
    /// The layout it reads.
    pub layout: SegmentLayout,
    /// What it is cut to.
    pub tuning: Tuning,
    /// CUDA C++.
    pub source: String,
    /// Fields of the parameter struct, in order.
    pub params: Vec<Param>,
    /// Fields of a segment descriptor, in order.
    pub segment_fields: Vec<SegmentField>,
    /// Failures by number.
    pub places: Vec<Place>,
    /// Literals, bases, sizes: what the text of the source does not depend on.
    pub constants: Vec<u64>,
    /// Constant tables, each padded to 16 bytes.
    pub tables: Vec<Arc<[u8]>>,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Builds of which a table lies there that all rows look into.
    pub shared_builds: usize,
    /// Whether the bits that pairs of rows have in common are counted by warps.
    pub counts_pairs: bool,
    /// Global accumulators, one per accumulator of the sink; empty for a rows sink.
    pub accumulators: Vec<DeviceAccumulator>,
    /// Number of dense groups, or the most hashed ones that there can be; 0 for a rows sink.
    pub groups: u64,
    /// How hashed groups' keys lie.
    pub group_table: Option<GroupTableLayout>,
    /// Columns of the rows sink.
    pub outputs: Vec<OutputColumn>,
    /// Most rows that reach the sink for one streamed row: more than 1 where builds have
    /// duplicate keys.
    pub matches_max: u64,
}

fn dictionary_entries(repr: &Repr) -> u64 {
    match repr {
        Repr::Code(dictionary) => arrow_array::Array::len(&dictionary.values) as u64,
        _ => 0,
    }
}

/// The text of a program as the compiler takes it.
pub(crate) fn pipeline_source(text: &str) -> headrace_gpu::Source<'_> {
    headrace_gpu::Source { name: "pipeline.cu", text, headers: &HEADERS }
}

impl CudaProgram {
    /// The source as the compiler takes it.
    pub fn source(&self) -> headrace_gpu::Source<'_> {
        pipeline_source(&self.source)
    }

    /// Bytes of a segment descriptor.
    pub fn segment_bytes(&self) -> usize {
        self.segment_fields.len() * 8
    }

    /// Bytes of a segment descriptor of so many columns at most, however they lie.
    pub fn segment_bytes_max(columns: usize) -> usize {
        const OF_SEGMENT: usize = 3;
        const OF_COLUMN: usize = 6;
        (OF_SEGMENT + OF_COLUMN * columns) * 8
    }

    /// The words of the descriptors of segments of this layout, and their number of tiles.
    /// `tile_rows` is [`Tuning::tile_rows`] but where the kernel runs in other blocks;
    /// `remaps` has address and length of each code translation on the device.
    ///
    /// # Errors
    /// [`ColumnError::Corrupt`] for a segment that lacks values or a code translation.
    pub fn describe(
        &self,
        segments: &[DeviceSegment],
        tile_rows: u64,
        remaps: &[(u64, u64)],
    ) -> Result<(Vec<u64>, u64), ExecError> {
        let name = |column: usize| self.bound.registers[column].name.clone();
        let corrupt = |column: usize, cause: &str| ColumnError::Corrupt {
            column: name(column),
            cause: cause.to_string(),
        };
        let mut words = Vec::with_capacity(segments.len() * self.segment_fields.len());
        let mut tile = 0;
        for segment in segments.iter().filter(|s| s.rows > 0) {
            let end_tile = tile + u64::from(segment.rows).div_ceil(tile_rows);
            // No translation: address 0, and codes below the number of entries.
            for (c, column) in segment.columns.iter().enumerate() {
                self.check_form(c, column)?;
            }
            let remap = |column: usize| match segment.columns[column].remap {
                None => Ok((0, dictionary_entries(&self.bound.registers[column].repr))),
                Some(index) => {
                    let known = remaps.get(index as usize).copied();
                    known.ok_or_else(|| corrupt(column, "its code translation is missing"))
                }
            };
            for field in &self.segment_fields {
                words.push(match *field {
                    SegmentField::Rows => u64::from(segment.rows),
                    SegmentField::FirstTile => tile,
                    SegmentField::EndTile => end_tile,
                    SegmentField::Values(c) => match segment.columns[c].values {
                        0 => return Err(corrupt(c, "its values are missing").into()),
                        address => address,
                    },
                    SegmentField::Validity(c) => segment.columns[c].validity.unwrap_or(0),
                    SegmentField::Form(c) => segment.columns[c].form.word(),
                    SegmentField::Base(c) => segment.columns[c].base as u64,
                    SegmentField::Remap(c) => remap(c)?.0,
                    SegmentField::RemapLength(c) => remap(c)?.1,
                    SegmentField::Bytes(c) => segment.columns[c].bytes.map_or(0, |bytes| bytes.0),
                    SegmentField::BytesLength(c) => {
                        segment.columns[c].bytes.map_or(u64::MAX, |bytes| bytes.1)
                    }
                });
            }
            tile = end_tile;
        }
        Ok((words, tile))
    }

    /// Whether the kernel reads a column as it lies.
    fn check_form(&self, index: usize, column: &DeviceColumn) -> Result<(), ExecError> {
        let expected = self.layout.columns[index].form;
        let (name, form) = (&self.bound.registers[index].name, column.form);
        let is_code = matches!(self.bound.registers[index].repr, Repr::Code(_));
        let varies = match form {
            ColumnForm::Plain => !is_code,
            ColumnForm::Codes(_) => is_code,
            ColumnForm::Narrow(_) | ColumnForm::Packed(_) => {
                let repr = &self.bound.registers[index].repr;
                matches!(repr, Repr::I16 | Repr::I32 | Repr::I64 | Repr::I128)
            }
            ColumnForm::Deltas(_) => true,
            ColumnForm::Bits | ColumnForm::Varying | ColumnForm::Text => false,
            ColumnForm::Unread | ColumnForm::Constant => false,
        };
        if column.values == 0 || form == expected || (expected == ColumnForm::Varying && varies) {
            return Ok(());
        }
        Err(ExecError::Internal(format!("column {name} lies as {form:?}, not {expected:?}")))
    }

    /// Source columns whose buffers the kernel reads, ascending.
    pub fn columns_read(&self) -> Vec<usize> {
        let mut columns: Vec<usize> = self
            .segment_fields
            .iter()
            .filter_map(|f| match f {
                SegmentField::Values(c) | SegmentField::Validity(c) => Some(*c),
                _ => None,
            })
            .collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The failure behind an error word less the kernel's first place; `None` for 0.
    pub fn error_of(&self, word: u32) -> Option<ExecError> {
        let index = (word as usize).checked_sub(1)?;
        Some(self.places.get(index).map_or_else(
            || ExecError::Internal(format!("the kernel reported the unknown failure {word}")),
            Place::to_error,
        ))
    }
}
