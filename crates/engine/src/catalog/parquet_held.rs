//! Room for what is held of Parquet files while it is decoded.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use headrace_io::{MemoryBudget, MemoryUse, OutOfBudget, Reservation};

/// Where room is taken from; `None`: there is no limit.
#[derive(Clone, Debug)]
pub struct Room(pub Option<Arc<MemoryBudget>>);

impl Room {
    /// Takes room for ranges of a file, before they are read.
    ///
    /// # Errors
    /// That there is none.
    pub fn reserve(
        &self,
        ranges: &[Range<u64>],
        metadata: &ParquetMetaData,
    ) -> Result<Option<Arc<Reservation>>> {
        let Some(budget) = &self.0 else { return Ok(None) };
        let bytes = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        match budget.reserve(MemoryUse::Readers, bytes) {
            Ok(reserved) => Ok(Some(Arc::new(reserved))),
            Err(refused) => {
                let at = ranges.first().map_or(0, |range| range.start);
                let group = row_group_at(metadata, at);
                Err(ParquetError::External(Box::new(NoRoom { group, refused })))
            }
        }
    }
}

fn row_group_at(metadata: &ParquetMetaData, offset: u64) -> usize {
    let has = |group: &RowGroupMetaData| {
        let mut ranges = group.columns().iter().map(|column| column.byte_range());
        ranges.any(|(start, bytes)| (start..start.saturating_add(bytes)).contains(&offset))
    };
    metadata.row_groups().iter().position(has).unwrap_or(0)
}

/// What of a row group must be held at once, and cannot be.
#[derive(Debug, thiserror::Error)]
#[error(
    "out of host memory: reading row group {group} (from 0) takes {:.1} MB at once, and {:.1} of the limit of {:.1} MB are in \
     use ({})\nhint: raise the memory limit, name fewer columns, or write the file again with smaller row groups",
    megabytes(.refused.wanted_bytes),
    megabytes(.refused.uses.total_bytes()),
    megabytes(.refused.limit_bytes),
    .refused.uses
)]
pub struct NoRoom {
    group: usize,
    refused: OutOfBudget,
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Whether an error says that there was no room.
pub fn no_room(error: &ParquetError) -> Option<&NoRoom> {
    match error {
        ParquetError::External(cause) => cause.downcast_ref(),
        _ => None,
    }
}

/// Bytes of a file with the room that was made for them.
struct Held {
    bytes: Bytes,
    _reserved: Arc<Reservation>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes that keep their room for as long as anybody has them.
pub fn held(bytes: Bytes, reserved: Option<&Arc<Reservation>>) -> Bytes {
    match reserved {
        Some(reserved) => Bytes::from_owner(Held { bytes, _reserved: Arc::clone(reserved) }),
        None => bytes,
    }
}
