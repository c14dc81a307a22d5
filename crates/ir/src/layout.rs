//! How the columns of a chunk lie in files and memory.
//!
//! A *segment* is a row range of one record batch of one file: for each needed column, the
//! byte ranges of its buffers. A *chunk* is what one slot of the race holds: one large
//! segment, or several small ones. A row range begins at a multiple of [`ROW_ALIGNMENT`], so
//! validity bitmaps and bit-packed booleans begin at a byte.
//!
//! ```text
//! chunk
//!  └ segment 0: file 0, rows 0..1048576
//!     ├ column 0: values [off, len]
//!     └ column 1: codes  [off, len]  validity [off, len]  remap table 3
//! ```
//!
//! An encoding is how values lie, not what they are. A table's type stays Decimal128 or Int64 while its files hold
//! narrower values ([`Encoding::Narrow`], [`Encoding::Deltas`]) and may differ; only `format` and the two loaders
//! know.

use serde::{Deserialize, Serialize};

use crate::types::DataType;

/// Row ranges begin at a multiple of this many rows of their record batch.
pub const ROW_ALIGNMENT: u64 = 64;

/// A byte range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// How the values of a column lie.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Encoding {
    /// Fixed-width little-endian values.
    Plain,
    /// Signed little-endian integers of this many bytes, where their type has more: decimals in 4 or 8, signed integers in
    /// 1, 2 or 4.
    Narrow {
        /// Bytes a value.
        value_bytes: u8,
    },
    /// Unsigned little-endian differences of this many bytes, 1 to 4, from a base (frame of reference): signed integers,
    /// dates, and decimals as their unscaled values. Base and largest difference together fit the type, and 64 bits.
    Deltas {
        /// What the differences are from.
        base: i64,
        /// Bytes a difference.
        delta_bytes: u8,
    },
    /// Booleans, one bit each, least significant first.
    Bits,
    /// Signed integer codes into the file's dictionary, of this many bytes (1, 2, 4 or 8).
    Dictionary {
        /// Bytes a code.
        code_bytes: u8,
    },
    /// `rows + 1` offsets of this many bytes (4 or 8) into a buffer of bytes.
    Offsets {
        /// Bytes an offset.
        offset_bytes: u8,
    },
    /// Rows, not a column: whole pages of a PostgreSQL heap, of the blocks that follow each other
    /// in a file. The only entry of its segment, whatever columns are asked for; their values come
    /// of decoding it, as batches of columns.
    Pages {
        /// Bytes a page.
        block_bytes: u32,
    },
    /// Pages of a Parquet file's column chunk, the dictionary's before those of values, whole: the rows of the segment are
    /// some of theirs. As [`Pages`](Self::Pages) they must be decoded.
    ColumnPages,
    /// No bytes: all rows of the segment have one value, which something else than the file tells, such as the
    /// name of its folder.
    Constant {
        /// An integer, the days of a date, a code of the table's dictionary; `None` is NULL.
        value: Option<i64>,
    },
}

/// Where the buffers of one column of a segment lie. A buffer of no bytes is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnExtents {
    /// How the values lie.
    pub encoding: Encoding,
    /// Values, codes, bits, or the bytes that offsets point into.
    pub values: Extent,
    /// Offsets, for [`Encoding::Offsets`]. The first offset need not be 0.
    pub offsets: Option<Extent>,
    /// What the offsets call the first byte of `values`: those of a part of a record batch count
    /// from where the batch's texts begin. 0 without offsets.
    pub offsets_base: u64,
    /// Validity bitmap, 1 = not NULL, least significant bit first; `None`: no NULLs.
    pub validity: Option<Extent>,
    /// Index of the table that turns the file's dictionary codes into table-wide codes;
    /// `None` if they are the same. A table entry of -1 is NULL.
    pub remap: Option<u32>,
}

/// A row range of one record batch of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Index of the file among the table's files.
    pub file: u32,
    /// Index of the record batch in the file.
    pub batch: u32,
    /// First row within the record batch.
    pub first_row: u64,
    /// Number of rows; fits 31 bits. 0 for [`Encoding::Pages`]: nobody knows before they are
    /// decoded.
    pub rows: u32,
    /// The needed columns, in register order; one entry for [`Encoding::Pages`].
    pub columns: Vec<ColumnExtents>,
}

/// What one slot of the race holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Its segments, at least one.
    pub segments: Vec<Segment>,
}

impl Segment {
    /// Whether it is pages that must be decoded: see [`Encoding::Pages`].
    pub fn is_pages(&self) -> bool {
        matches!(self.columns.first(), Some(c) if matches!(c.encoding, Encoding::Pages { .. }))
    }

    /// Whether its columns come of decoding it: its bytes are pages of a heap or of Parquet.
    pub fn is_encoded(&self) -> bool {
        let is_pages = |column: &ColumnExtents| {
            matches!(column.encoding, Encoding::Pages { .. } | Encoding::ColumnPages)
        };
        self.columns.first().is_some_and(is_pages)
    }

    /// Extents in the order in which every processor expects its buffers: for each column
    /// values, then offsets, then validity, absent ones left out.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.columns.iter().flat_map(ColumnExtents::extents)
    }
}

impl ColumnExtents {
    /// A column of one value.
    pub fn constant(value: Option<i64>) -> Self {
        Self {
            encoding: Encoding::Constant { value },
            values: Extent { offset: 0, bytes: 0 },
            offsets: None,
            offsets_base: 0,
            validity: None,
            remap: None,
        }
    }

    /// Its extents, in their order; a constant has none.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let values = (!self.is_constant()).then_some(self.values);
        values.into_iter().chain(self.offsets).chain(self.validity)
    }

    /// Whether it is [`Encoding::Constant`].
    pub fn is_constant(&self) -> bool {
        matches!(self.encoding, Encoding::Constant { .. })
    }
}

impl Chunk {
    /// Rows of all segments, as far as they are known.
    pub fn rows(&self) -> u64 {
        self.segments.iter().map(|s| u64::from(s.rows)).sum()
    }

    /// Bytes of all extents.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().flat_map(Segment::extents).map(|e| e.bytes).sum()
    }
}

impl Encoding {
    /// Bytes that `rows` values of a type take, without validity; `None` for offsets and pages.
    pub fn values_bytes(&self, data_type: &DataType, rows: u64) -> Option<u64> {
        match self {
            Self::Plain => Some(rows * data_type.plain_width_bytes()? as u64),
            Self::Bits => Some(rows.div_ceil(8)),
            Self::Narrow { value_bytes: bytes }
            | Self::Deltas { delta_bytes: bytes, .. }
            | Self::Dictionary { code_bytes: bytes } => Some(rows * u64::from(*bytes)),
            Self::Constant { .. } => Some(0),
            Self::Offsets { .. } | Self::Pages { .. } | Self::ColumnPages => None,
        }
    }
}

/// Bounds of a column whose values are integers of at most 64 bits signed (dates, times and
/// dictionary codes included). Always true bounds, not always tight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ValueRange {
    /// No value is smaller.
    pub min: i64,
    /// No value is larger.
    pub max: i64,
}
