//! How records lie in a file, and how their keys are ordered.

use std::fmt;
use std::str::FromStr;

use crate::{NumberType, OocError, Result};

/// The longest record.
pub const RECORD_BYTES_MAX: usize = 64 << 10;

/// Which key comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// The least.
    #[default]
    Ascending,
    /// The greatest; equal keys are in the order of the input here too.
    Descending,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "ascending" => Ok(Self::Ascending),
            "descending" => Ok(Self::Descending),
            _ => Err(format!("{name:?} is no order; there are ascending, descending")),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ascending => "ascending",
            Self::Descending => "descending",
        })
    }
}

/// Records of a fixed width, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLayout {
    /// Bytes of a record, [`RECORD_BYTES_MAX`] at most.
    pub record_bytes: usize,
    /// Type of the key.
    pub key: NumberType,
    /// Where in the record it lies.
    pub key_offset: usize,
}

impl RecordLayout {
    /// Keys alone.
    pub fn keys(key: NumberType) -> RecordLayout {
        RecordLayout { record_bytes: key.bytes(), key, key_offset: 0 }
    }

    /// Error unless it is one that can be sorted by.
    pub(super) fn check(&self) -> Result<()> {
        let RecordLayout { record_bytes, key, key_offset } = *self;
        if key == NumberType::Bf16 {
            let what = "bf16 is a type for storage, not for keys";
            return Err(OocError::usage(what, "choose one of i32, u32, i64, u64, f32, f64"));
        }
        if key_offset.checked_add(key.bytes()).is_none_or(|end| end > record_bytes) {
            let what = format!(
                "a key of {} bytes at byte {key_offset} does not lie inside a record of \
                 {record_bytes} bytes",
                key.bytes()
            );
            return Err(OocError::usage(what, "make the record longer or the offset smaller"));
        }
        if record_bytes > RECORD_BYTES_MAX {
            let what = format!("records of {record_bytes} bytes: {RECORD_BYTES_MAX} are the most");
            return Err(OocError::usage(what, "sort keys with the records' numbers instead"));
        }
        Ok(())
    }
}
