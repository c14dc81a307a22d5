//! The interface of a device that decodes blocks.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use headrace_ir::pages::{PageFlaw, PagePlan, PageVerdict};

use super::table::HeapTable;
use super::{Block, HoldAnswer, Reroute};
use crate::PageSource;

pub(super) struct BlockSource {
    pub(super) table: Arc<HeapTable>,
    /// `None`: parts are laid out differently.
    pub(super) plan: Option<PagePlan>,
}

impl PageSource for BlockSource {
    fn plan(&self) -> std::result::Result<&PagePlan, String> {
        self.plan.as_ref().ok_or_else(|| "parts whose tuples are laid out differently".to_string())
    }

    fn first_block(&self, file: u32, offset: u64) -> u32 {
        self.table.parts.block(file, offset).number
    }

    fn ask(&self, file: u32, offset: u64, pages: usize) -> HoldAnswer {
        // The owner is asked about bytes that were copied before.
        fence(Ordering::Acquire);
        self.table.owner().ask(self.table.parts.block(file, offset), pages)
    }

    fn settle(&self, file: u32, offset: u64, verdicts: &[PageVerdict]) {
        let Block { part, number: first } = self.table.parts.block(file, offset);
        for (number, verdict) in (first..).zip(verdicts) {
            let block = Block { part, number };
            match verdict {
                PageVerdict::Rows(_) => {}
                PageVerdict::Changed => self.table.owner().reroute(block, Reroute::Changed),
                PageVerdict::Flawed(flaw) => self.table.owner().reroute(block, flaw.into()),
            }
        }
        // A chunk has far fewer than 2^32.
        self.table.done(verdicts.len() as u32);
    }

    fn stamp(&self, file: u32, offset: u64) -> Option<(Arc<str>, u64)> {
        let block = self.table.parts.block(file, offset);
        let part = self.table.parts.get(block.part as usize)?;
        let stamp = part.blocks.stamps.as_ref()?.of(block.number)?;
        let identity = part.identities.get((file - part.first_file) as usize)?;
        Some((Arc::clone(identity), stamp))
    }

    fn kept(&self, pages: usize) {
        self.table.done(pages as u32);
    }
}

impl From<&PageFlaw> for Reroute {
    /// A device reports where a fault is, but not which one.
    fn from(flaw: &PageFlaw) -> Self {
        match *flaw {
            PageFlaw::New => Self::NewPage,
            PageFlaw::Checksum { stored, computed } => Self::Checksum { stored, computed },
            PageFlaw::Header => Self::Header { flaw: "it is not that of a heap page" },
            PageFlaw::NotAllVisible => Self::NotAllVisible,
            PageFlaw::Line(line) => {
                Self::LinePointer { line, flaw: "it is not one of a sound, all-visible page" }
            }
            PageFlaw::Tuple(line) => {
                Self::Tuple { line, flaw: "it is damaged, or may not be visible to everybody" }
            }
            PageFlaw::External(attribute) => Self::External { attribute: attribute.into() },
            PageFlaw::Compressed(attribute) => Self::Compressed { attribute: attribute.into() },
            PageFlaw::Value(attribute) => Self::Value {
                attribute: attribute.into(),
                flaw: "it is damaged, or none that Arrow's type has",
            },
        }
    }
}
