//! The way of what the backend reads to the run: as pages, and as rows.

use std::sync::Arc;

use arrow_array::RecordBatch;
use headrace_format::batches::{BatchSender, Sender};
use headrace_format::heap::{Block, ServerPages, Spare};
use headrace_service::client::RowSender;
use pgrx::pg_sys;

use super::threads::LOOK_INTERVAL;
use crate::blocks::Reader;
use crate::nodes::WhyNot;

/// Blocks of a chunk: enough that it is worth being one, and the owner is looked at often.
const CHUNK_BLOCKS: usize = 32;

/// The way to a run.
pub(super) enum RowWay {
    /// In this process: rows of some blocks, pages of the others as long as there are any. `None` for rows
    /// when there are no more.
    Own(Option<BatchSender>, Option<PageWay>),
    /// By the service: rows.
    Service(Arc<RowSender>),
}

/// The way of pages.
pub(super) struct PageWay {
    sender: Sender<ServerPages>,
    /// Those at hand.
    pages: ServerPages,
    spare: Spare,
}

impl PageWay {
    pub fn new(sender: Sender<ServerPages>) -> Self {
        let spare = Spare::default();
        Self { sender, pages: chunk(0, &spare), spare }
    }

    /// Hands the pages over; if nobody wants them, the run is over, which is seen next.
    fn send(&mut self, next_part: u32) {
        let pages = std::mem::replace(&mut self.pages, chunk(next_part, &self.spare));
        if !pages.is_empty() {
            let _ = self.sender.send(pages);
        }
    }
}

fn chunk(part: u32, spare: &Spare) -> ServerPages {
    ServerPages::new(part, pg_sys::BLCKSZ as usize, CHUNK_BLOCKS, spare)
}

impl RowWay {
    /// Whether blocks go as pages.
    pub fn takes_pages(&self) -> bool {
        matches!(self, Self::Own(_, Some(_)))
    }

    /// Copies a block, and of those that come after it as many as make a chunk.
    pub unsafe fn copy(
        &mut self,
        first: Block,
        rest: &mut impl Iterator<Item = Block>,
        reader: &mut Reader<'_>,
    ) -> Result<(), WhyNot> {
        let Self::Own(_, Some(way)) = self else { return Ok(()) };
        let mut next = Some(first);
        while let Some(block) = next {
            pgrx::check_for_interrupts!();
            if !reader.copy(block, &mut way.pages)? {
                way.send(block.part);
                continue;
            }
            next = if way.pages.is_full() { None } else { rest.next() };
        }
        let part = way.pages.part();
        way.send(part);
        Ok(())
    }

    /// There are no more pages.
    pub fn end_pages(&mut self) {
        if let Self::Own(_, pages) = self
            && let Some(way) = pages.take()
        {
            way.sender.finish();
        }
    }

    /// Sends rows; if nobody wants them, the run is over, which is seen next.
    pub fn send(&self, batches: Vec<RecordBatch>) {
        for mut batch in batches {
            match self {
                Self::Own(Some(sender), _) => {
                    let _ = sender.send(batch);
                }
                Self::Own(None, _) => {}
                Self::Service(sender) => {
                    // Another process may take its time, or be stopped.
                    while let Err(back) = sender.offer(batch, LOOK_INTERVAL) {
                        pgrx::check_for_interrupts!();
                        batch = back;
                    }
                }
            }
        }
    }

    /// There are no more rows.
    pub fn finish(&mut self) {
        match self {
            Self::Own(sender, _) => {
                if let Some(sender) = sender.take() {
                    sender.finish();
                }
            }
            Self::Service(sender) => sender.finish(),
        }
    }
}
