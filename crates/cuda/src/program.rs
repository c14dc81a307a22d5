//! What code generation makes: the source of one kernel and how to call it.

use std::sync::Arc;

use headrace_pipeline::bound::{AccumulatorKind, Bound, Repr};
use headrace_pipeline::{ExecError, WhyNot};

use crate::codegen;
use crate::groups::GroupTableLayout;
use crate::layout::{ColumnForm, SegmentLayout};

/// Name of the kernel in every generated source.
pub const KERNEL_NAME: &str = "headrace_pipeline";

/// How a kernel is cut to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Threads a block, a power of two from 32 to 1024.
    pub block_threads: u32,
    /// Blocks that must fit a multiprocessor at a time: bounds the registers.
    pub blocks_per_sm: u32,
    /// Rows that one thread handles at a time: 4 or 8.
    pub rows_per_thread: u32,
    /// Most dynamic shared memory of a block, in bytes.
    pub shared_bytes_max: u32,
    /// Whether columns are loaded ahead of the step that needs them.
    pub ahead: bool,
    /// Rows are taken one by one once at most this share of them is left, in percent; 0: never.
    pub queue_percent: u32,
}

impl Tuning {
    /// One block a multiprocessor with 64 registers a thread and nearly all of the shared memory
    /// (227 KB on sm_90 and sm_100): as many rows are on their way as with twice the threads of
    /// four rows each, and the bitmaps of large dimensions fit.
    pub const FULL: Self = Self {
        block_threads: 1024,
        blocks_per_sm: 1,
        rows_per_thread: 8,
        shared_bytes_max: 226 * 1024,
        ahead: true,
        queue_percent: 5,
    };

    /// From most threads to most registers a row. The first is taken whose kernel does not spill,
    /// has as many builds in shared memory as [`Self::FULL`] has, and leaves enough of it to the
    /// cache if its blocks are several.
    pub const LADDER: [Self; 6] = [
        Self { block_threads: 512, blocks_per_sm: 4, shared_bytes_max: 55 * 1024, ..Self::FULL },
        Self { block_threads: 512, blocks_per_sm: 3, shared_bytes_max: 74 * 1024, ..Self::FULL },
        Self::FULL,
        Self { rows_per_thread: 4, ..Self::FULL },
        Self { block_threads: 512, rows_per_thread: 4, ..Self::FULL },
        Self { block_threads: 256, rows_per_thread: 4, ..Self::FULL },
    ];

    /// Rows of a tile.
    pub fn tile_rows(&self) -> u32 {
        self.block_threads * self.rows_per_thread
    }

    /// Most groups of a tile, of which each row becomes up to `matches_max` at the sink.
    pub(crate) fn tile_groups(&self, matches_max: u64) -> u64 {
        u64::from(self.tile_rows()).saturating_mul(matches_max)
    }
}

/// A part of a build as the device holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BuildPiece {
    /// Bitmap of present keys of a direct build.
    Present,
    /// Values of a payload column.
    Payload(usize),
    /// Validity bits of a payload column.
    Validity(usize),
    /// Slots of a hash build: build rows.
    HashRows,
    /// Keys of the slots of a hash build.
    HashKeys,
    /// For each row of a hash build the next row of the same key.
    HashNext,
}

/// What one 8-byte field of the kernel's parameter struct holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Param {
    /// Address of the segment descriptors.
    Segments,
    /// Number of tiles of all segments.
    Tiles,
    /// Address of the error word (`u32`): 0, or the first place and a number from 1 on, which is
    /// 1 + index into [`CudaProgram::places`].
    Error,
    /// What is added to the numbers of failures (`u32`): tells kernels apart.
    FirstPlace,
    /// Tiles that a block takes in a row (`u32`).
    RunTiles,
    /// A word of [`CudaProgram::constants`], by index.
    Constant(usize),
    /// Address of a part of the build of the probe at this step.
    Build {
        /// Index into the bound steps.
        step: usize,
        /// Which part.
        piece: BuildPiece,
    },
    /// Address of a constant table, by index into [`CudaProgram::tables`].
    Table(usize),
    /// Address of the global accumulators of this index.
    Accumulator(usize),
    /// Address of the slots (`u32`) of the group table.
    GroupSlots,
    /// Number of slots, a power of two, less one.
    GroupSlotMask,
    /// Address of the keys by group.
    GroupKeys,
    /// Address of the number of groups (`u32`).
    GroupsUsed,
    /// Number of groups for which there is room.
    GroupCapacity,
    /// Address of the texts that groups keep.
    GroupTexts,
    /// Address of the number of bytes that they take (`u64`).
    GroupTextsUsed,
    /// Number of bytes for which there is room.
    GroupTextsCapacity,
    /// Number of groups beyond which no warp begins a run of tiles (`u32`; all ones: none).
    GroupLimit,
    /// Address of the runs at which the warps left (`u32` each), where they begin; 0: at the first.
    RunsLeft,
    /// Address where warps write down the run at which they leave; 0: nowhere.
    RunsLeave,
    /// Address of the number of output rows (`u64`).
    RowsUsed,
    /// Number of rows for which the output buffers have room.
    RowsCapacity,
    /// Number of output rows beyond which no warp begins a run of tiles (`u64`; all ones: none).
    RowLimit,
    /// Address of the values of an output column.
    RowsValues(usize),
    /// Address of the validity bytes of an output column (1 = not NULL).
    RowsValidity(usize),
}

/// What one 8-byte field of a segment descriptor holds. The first three fields are always
/// rows, first tile, and the tile after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentField {
    /// Number of rows (31 bits).
    Rows,
    /// Number of the segment's first tile.
    FirstTile,
    /// Number of the tile after its last.
    EndTile,
    /// Address of a column's values.
    Values(usize),
    /// Address of a column's validity bitmap; 0 where there are no NULLs.
    Validity(usize),
    /// How a column of varying form lies in this segment: [`ColumnForm::word`].
    Form(usize),
    /// Base of a column's differences, or of the offsets of its texts.
    Base(usize),
    /// Address of a column's code translation (`i32` each); 0 where codes need none.
    Remap(usize),
    /// Number of entries of that translation.
    RemapLength(usize),
    /// Address of the bytes that a text column's offsets point into.
    Bytes(usize),
    /// How many they are; all ones for a column of views.
    BytesLength(usize),
}

/// What a failed row did, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// [`ExecError::Overflow`].
    Overflow {
        /// SQL type.
        type_name: String,
        /// Expression.
        place: String,
    },
    /// [`ExecError::DivisionByZero`].
    DivisionByZero {
        /// Expression.
        place: String,
    },
    /// [`ExecError::Cast`].
    Cast {
        /// Expression.
        place: String,
    },
    /// [`ExecError::WhyNot`]: no room for a text that a group keeps.
    GroupText {
        /// Column.
        column: String,
    },
    /// [`ExecError::Corrupt`].
    Corrupt {
        /// Column.
        column: String,
        /// What is wrong.
        cause: String,
    },
}

impl Place {
    /// The error that the CPU processor gives for the same row.
    pub fn to_error(&self) -> ExecError {
        match self.clone() {
            Self::Overflow { type_name, place } => ExecError::Overflow { type_name, place },
            Self::DivisionByZero { place } => ExecError::DivisionByZero { place },
            Self::Cast { place } => ExecError::Cast { place },
            Self::Corrupt { column, cause } => ExecError::Corrupt { column, cause },
            Self::GroupText { column } => ExecError::WhyNot(WhyNot::new(format!(
                "the texts of {column} that groups keep take more device memory than they may"
            ))),
        }
    }
}

/// How the entries of a global accumulator array lie on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceAccumulator {
    /// `u64` counts; `u32` in shared memory.
    Count,
    /// `u64` counts everywhere, for rows that multiply within a launch.
    WideCount,
    /// `u64`, two's complement totals.
    Total64,
    /// 4 (128-bit) or 6 (192-bit) little-endian `u32` limbs, two's complement.
    Limbs(u32),
    /// `f64`.
    Float,
    /// `i64` minimum.
    MinSigned,
    /// `i64` maximum.
    MaxSigned,
    /// `u64` minimum.
    MinUnsigned,
    /// `u64` maximum.
    MaxUnsigned,
    /// Minimum of floats as ordered `u64`.
    MinFloat,
    /// Maximum of floats as ordered `u64`.
    MaxFloat,
    /// Minimum of 128-bit values: the value, its version (`u32`: 0 before the first value, odd
    /// while it is written), 12 bytes of padding.
    MinWide,
    /// Maximum, lying as the minimum does.
    MaxWide,
    /// Minimum of texts: where the group keeps it (`u64`).
    MinText,
    /// Maximum of texts.
    MaxText,
}

impl DeviceAccumulator {
    /// Layout for an accumulator whose argument has the representation `argument`.
    pub fn of(kind: AccumulatorKind, argument: Option<&Repr>) -> Result<Self, WhyNot> {
        let extreme = |signed, unsigned, float, wide, text| match argument {
            Some(Repr::U64) => unsigned,
            Some(Repr::F32 | Repr::F64) => float,
            Some(Repr::I128) => wide,
            Some(Repr::Str) => text,
            _ => signed,
        };
        match kind {
            AccumulatorKind::Count => Ok(Self::Count),
            AccumulatorKind::SumI64 => Ok(Self::Total64),
            AccumulatorKind::SumI128 => Ok(Self::Limbs(4)),
            AccumulatorKind::SumWide => Ok(Self::Limbs(6)),
            AccumulatorKind::SumF64 => Ok(Self::Float),
            AccumulatorKind::SquaredDeviations => {
                Err(WhyNot::new("variances and deviations of floats are not on the CUDA processor"))
            }
            AccumulatorKind::Min => Ok(extreme(
                Self::MinSigned,
                Self::MinUnsigned,
                Self::MinFloat,
                Self::MinWide,
                Self::MinText,
            )),
            AccumulatorKind::Max => Ok(extreme(
                Self::MaxSigned,
                Self::MaxUnsigned,
                Self::MaxFloat,
                Self::MaxWide,
                Self::MaxText,
            )),
        }
    }

    /// Bytes of one group's entry in global memory.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Limbs(limbs) => u64::from(limbs) * 4,
            Self::MinWide | Self::MaxWide => 32,
            _ => 8,
        }
    }

    /// Whether it holds a minimum.
    pub(crate) fn is_min(self) -> bool {
        matches!(
            self,
            Self::MinSigned | Self::MinUnsigned | Self::MinFloat | Self::MinWide | Self::MinText
        )
    }

    /// Whether it holds a text that the group keeps.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::MinText | Self::MaxText)
    }

    /// Bytes of one group's entry in shared memory, where counts are `u32`.
    pub fn shared_bytes(self) -> u64 {
        match self {
            Self::Count => 4,
            other => other.bytes(),
        }
    }

    /// The 32-bit words, over and over, of an entry before any row.
    pub fn initial_words(self) -> [u32; 2] {
        match self {
            Self::MinSigned => [u32::MAX, i32::MAX as u32],
            Self::MaxSigned => [0, 0x8000_0000],
            Self::MinUnsigned | Self::MinFloat | Self::MinText | Self::MaxText => [u32::MAX; 2],
            _ => [0; 2],
        }
    }
}

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

/// Headers that generated sources include, by name.
pub const HEADERS: [(&str, &str); 11] = [
    ("headrace/types.cuh", include_str!("../kernels/types.cuh")),
    ("headrace/load.cuh", include_str!("../kernels/load.cuh")),
    ("headrace/text.cuh", include_str!("../kernels/text.cuh")),
    ("headrace/arithmetic.cuh", include_str!("../kernels/arithmetic.cuh")),
    ("headrace/calendar.cuh", include_str!("../kernels/calendar.cuh")),
    ("headrace/probe.cuh", include_str!("../kernels/probe.cuh")),
    ("headrace/aggregate.cuh", include_str!("../kernels/aggregate.cuh")),
    ("headrace/groups.cuh", include_str!("../kernels/groups.cuh")),
    ("headrace/queue.cuh", include_str!("../kernels/queue.cuh")),
    ("headrace/rows.cuh", include_str!("../kernels/rows.cuh")),
    ("headrace/pipeline.cuh", include_str!("../kernels/pipeline.cuh")),
];

/// Options of every compilation: products and sums are not fused, so that floats are those of
/// the CPU processor.
pub const COMPILE_OPTIONS: [&str; 1] = ["--fmad=false"];

impl CudaProgram {
    /// Whether sink and probes are taken, whatever the layout: for a stream that has no segment,
    /// which no kernel tells about.
    ///
    /// # Errors
    /// What the CUDA processor cannot do.
    pub fn check(bound: &Bound, tuning: Tuning) -> Result<(), WhyNot> {
        codegen::check(bound, tuning)
    }

    /// Generates the kernel of `bound` for segments of `layout`.
    ///
    /// # Errors
    /// What the CUDA processor cannot do.
    pub fn compile(
        bound: Arc<Bound>,
        layout: &SegmentLayout,
        tuning: Tuning,
    ) -> Result<Self, WhyNot> {
        codegen::generate(bound, layout, tuning)
    }

    /// The source as the compiler takes it.
    pub fn source(&self) -> headrace_gpu::Source<'_> {
        headrace_gpu::Source { name: "pipeline.cu", text: &self.source, headers: &HEADERS }
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
    /// [`ExecError::Corrupt`] for a segment that lacks values or a code translation.
    pub fn describe(
        &self,
        segments: &[DeviceSegment],
        tile_rows: u64,
        remaps: &[(u64, u64)],
    ) -> Result<(Vec<u64>, u64), ExecError> {
        let name = |column: usize| self.bound.registers[column].name.clone();
        let corrupt = |column: usize, cause: &str| ExecError::Corrupt {
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
                        0 => return Err(corrupt(c, "its values are missing")),
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
