//! The layout of records in a file, and the order of their keys.

use crate::{NumberType, OocError, Result};

/// The longest record.
pub const RECORD_BYTES_MAX: usize = 64 << 10;

/// The direction of the order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Smallest first.
    #[default]
    Ascending,
    /// Largest first; equal keys keep the order of the input here too.
    Descending,
}

/// Contiguous records of a fixed width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLayout {
    /// Bytes of a record, [`RECORD_BYTES_MAX`] at most.
    pub record_bytes: usize,
    /// Type of the key.
    pub key: NumberType,
    /// Its offset in the record.
    pub key_offset: usize,
}

impl RecordLayout {
    /// Records that are only a key.
    pub fn keys(key: NumberType) -> RecordLayout {
        RecordLayout { record_bytes: key.bytes(), key, key_offset: 0 }
    }

    /// Error unless it can be sorted.
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
