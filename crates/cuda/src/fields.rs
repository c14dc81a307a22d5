//! What a kernel is given: the fields of its parameter struct and of the segment descriptors.

use crate::tables::BuildPiece;

/// What one 8-byte field of the kernel's parameter struct holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Param {
    /// Address of the segment descriptors.
    Segments,
    /// Number of tiles of all segments.
    Tiles,
    /// Address of the error word (`u32`): 0, or the first place and a number from 1 on, which is
    /// 1 + index into [`CudaProgram::places`](crate::CudaProgram::places).
    Error,
    /// What is added to the numbers of failures (`u32`): tells kernels apart.
    FirstPlace,
    /// Tiles that a block takes in a row (`u32`).
    RunTiles,
    /// A word of [`CudaProgram::constants`](crate::CudaProgram::constants), by index.
    Constant(usize),
    /// Address of a part of the build of the probe at this step.
    Build {
        /// Index into the bound steps.
        step: usize,
        /// Which part.
        piece: BuildPiece,
    },
    /// Address of a constant table, by index into [`CudaProgram::tables`](crate::CudaProgram::tables).
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
    /// Address of the number of rows (`u64`) that the step at this index has left so far.
    RowsLeft(usize),
    /// Address of the number of output rows (`u64`).
    RowsUsed,
    /// Number of rows for which the output buffers have room.
    RowsCapacity,
    /// Number of the launch's first tile (`u32`), where launches share their descriptors.
    FirstTile,
    /// What [`SortedRows::last_word`](headrace_pipeline::cpu::SortedRows::last_word) is, which no wanted row comes after
    /// (`i64`); the last word in the order: it is not known.
    LastWanted,
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
    /// How a column of varying form lies in this segment: [`ColumnForm::word`](crate::layout::ColumnForm::word).
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
