//! Blocks of several tables through shared buffers.

use arrow_array::RecordBatch;
use headrace_format::heap::{Block, Relation as Description, ServerPages};
use pgrx::pg_sys::{Relation, Snapshot};

use super::listing::Listing;
use super::server::ServerReader;
use crate::nodes::WhyNot;

/// One of the tables that a run reads.
pub struct Part {
    pub relation: Relation,
    pub description: Description,
    /// The attributes that are read, by their positions, in register order.
    pub wanted: Vec<usize>,
    pub listing: Listing,
}

/// Reads blocks of parts, and is at one of them at a time.
pub struct Reader<'a> {
    parts: &'a [Part],
    snapshot: Snapshot,
    current: Option<(u32, ServerReader)>,
    /// Of the parts that it was at before.
    batches: Vec<RecordBatch>,
}

impl<'a> Reader<'a> {
    pub fn new(parts: &'a [Part], snapshot: Snapshot) -> Self {
        Self { parts, snapshot, current: None, batches: Vec::new() }
    }

    /// Takes the rows of a block that the snapshot sees.
    ///
    /// # Safety
    /// The backend's thread; the tables stay open and the snapshot registered as long as it is used.
    pub unsafe fn read(&mut self, block: Block) -> Result<(), WhyNot> {
        let read = self.of_part(block.part)?.read(block.number);
        read.map_err(|WhyNot(reason)| WhyNot(format!("block {}: {reason}", block.number)))
    }

    /// Takes a copy of a block in which there are only the rows that the snapshot sees. `false`: the pages are
    /// of another part, or have no room.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn copy(&mut self, block: Block, pages: &mut ServerPages) -> Result<bool, WhyNot> {
        if pages.is_full() || pages.part() != block.part {
            return Ok(false);
        }
        let reader = self.of_part(block.part)?;
        let fill = |page: &mut [u8]| {
            reader.copy(block.number, page);
            Ok::<(), WhyNot>(())
        };
        pages.add(block.number, fill)?;
        Ok(true)
    }

    unsafe fn of_part(&mut self, part: u32) -> Result<&mut ServerReader, WhyNot> {
        let current = match self.current.take() {
            Some((of, reader)) if of == part => reader,
            before => {
                if let Some((_, mut before)) = before {
                    self.batches.extend(before.batches(true)?);
                }
                let Part { relation, description, wanted, .. } = &self.parts[part as usize];
                ServerReader::new(*relation, self.snapshot, description, wanted)?
            }
        };
        Ok(&mut self.current.insert((part, current)).1)
    }

    /// The rows so far, if they are enough for a batch, or wanted however few they are.
    pub fn batches(&mut self, wants_all: bool) -> Result<Vec<RecordBatch>, WhyNot> {
        let mut batches = std::mem::take(&mut self.batches);
        if let Some((_, current)) = &mut self.current {
            batches.extend(current.batches(wants_all)?);
        }
        Ok(batches)
    }
}
