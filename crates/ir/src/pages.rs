//! How the rows of PostgreSQL heap pages lie, for whoever takes them apart on a device: all that is
//! to be known of a table for that, and what is to be said of a page.

use serde::{Deserialize, Serialize};

/// How the tuples of a table are walked, and what is wanted of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagePlan {
    /// Bytes of a page: a power of two from 1024 to 32768.
    pub block_bytes: u32,
    /// Whether pages have checksums.
    pub checksums: bool,
    /// Attributes that a tuple has at most, 0 to 1600.
    pub attributes: u32,
    /// The first attributes, up to the last that is wanted.
    pub steps: Vec<PageStep>,
}

impl PagePlan {
    /// Whether a column's values are decoded: those of bytes and of uuids are not, nor whether values are there.
    pub fn decodes(&self, column: usize) -> bool {
        self.steps.iter().any(|step| step.wanted.is_some_and(|(of, _)| of == column))
    }
}

/// One attribute of the walk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageStep {
    /// How long its values are.
    pub length: Length,
    /// What they start at multiples of.
    pub align: Align,
    /// No tuple may have NULL there.
    pub not_null: bool,
    /// What tuples have that are older than the column.
    pub missing: MissingValue,
    /// The column that its values become, and how; `None`: it is stepped over.
    pub wanted: Option<(usize, StoredValue)>,
}

/// How long a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Length {
    /// Bytes, `attlen` above zero.
    Fixed(u16),
    /// A varlena header says, `attlen` of -1.
    Varlena,
    /// Up to a byte of zero, `attlen` of -2.
    CString,
}

/// Multiples of how many bytes values start at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Align {
    /// `c`: 1.
    Char,
    /// `s`: 2.
    Short,
    /// `i`: 4.
    Int,
    /// `d`: 8.
    Double,
}

impl Align {
    /// Their bytes less one.
    pub fn mask(self) -> usize {
        match self {
            Self::Char => 0,
            Self::Short => 1,
            Self::Int => 3,
            Self::Double => 7,
        }
    }
}

/// What a tuple has that is older than the column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissingValue {
    /// NULL.
    Null,
    /// A value, as its column has it: little-endian, filled up with zeros.
    Value([u8; 16]),
    /// A text of valid UTF-8.
    Text(Vec<u8>),
    /// A value that the column cannot hold, or one of a column that nobody wants.
    Opaque,
}

/// What a stored value becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredValue {
    /// A byte of 0 or 1, a bit.
    Bool,
    /// So many bytes (2, 4 or 8), as they are.
    Plain(u8),
    /// Days from 2000, 32 bits of days from 1970.
    Date,
    /// Microseconds of a day, 64 bits of them.
    Time,
    /// Microseconds from 2000, 64 bits of microseconds from 1970.
    Timestamp,
    /// A numeric, 128 bits of units of its last decimal place.
    Numeric {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits behind the point, -38 to 38.
        scale: i8,
    },
    /// A text of valid UTF-8, where it lies in its page: a 64-bit address and 64 bits of its bytes.
    Text,
}

impl StoredValue {
    /// Bytes of the column's value; 0 for a bit.
    pub fn column_bytes(self) -> usize {
        match self {
            Self::Bool => 0,
            Self::Plain(bytes) => bytes.into(),
            Self::Date => 4,
            Self::Time | Self::Timestamp => 8,
            Self::Numeric { .. } | Self::Text => 16,
        }
    }
}

/// What came of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageVerdict {
    /// All of its rows are taken, so many.
    Rows(u32),
    /// None is: it was changed since it was listed.
    Changed,
    /// None is: something on it is not sound, or not for a device.
    Flawed(PageFlaw),
}

/// Why a page is not taken. Lines count line pointers from 1, attributes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageFlaw {
    /// All of its bytes are zero.
    New,
    /// Its checksum is another.
    Checksum {
        /// What the page says.
        stored: u16,
        /// What its bytes give.
        computed: u16,
    },
    /// Its header.
    Header,
    /// It does not say that all its tuples are visible.
    NotAllVisible,
    /// A line pointer.
    Line(u16),
    /// A tuple: its header, its visibility, or where its values lie.
    Tuple(u16),
    /// A wanted value lies in the TOAST table.
    External(u16),
    /// A wanted value is compressed.
    Compressed(u16),
    /// A wanted value is damaged, or not one of its column's type.
    Value(u16),
}

/// Which of the pages that were asked about are still what they were when they were listed, one by one.
/// Whoever takes the answer may wait for it.
pub type HoldAnswer = Box<dyn FnOnce() -> Vec<bool> + Send>;
