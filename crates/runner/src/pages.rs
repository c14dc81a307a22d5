//! A table's pages for the GPUs: whoever decodes them asks and tells the table, and their rows are
//! counted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headrace_cuda::{PageOwner, StreamPages};
use headrace_format::PageSource;
use headrace_ir::Segment;
use headrace_ir::pages::{HoldAnswer, PagePlan, PageVerdict};
use headrace_pipeline::{Bound, WhyNot};

use crate::error::RunError;
use crate::task::Task;

/// The pages of a task's table.
pub struct TablePages {
    source: Box<dyn PageSource>,
    plan: PagePlan,
    rows: AtomicU64,
}

impl fmt::Debug for TablePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TablePages({} rows)", self.rows())
    }
}

impl TablePages {
    /// `None`: its rows do not lie in pages.
    ///
    /// # Errors
    /// A column that cannot be asked for.
    pub fn of(task: &Task<'_>) -> Result<Option<Arc<Self>>, RunError> {
        let (table, ordinals) = (task.table.source(), &task.pipeline.source.ordinals);
        let Some(source) = Arc::clone(table).page_source(ordinals)? else { return Ok(None) };
        let refused = |reason| WhyNot::new(format!("{}: {reason}", task.table.name()));
        let plan = source.plan().map_err(refused)?.clone();
        Ok(Some(Arc::new(Self { source, plan, rows: AtomicU64::new(0) })))
    }

    /// Whether a device decodes columns, which are registers of a program.
    ///
    /// # Errors
    /// The first that it does not.
    pub fn check(&self, bound: &Bound, columns: &[usize]) -> Result<(), WhyNot> {
        match columns.iter().find(|column| !self.plan.decodes(**column)) {
            None => Ok(()),
            Some(&column) => {
                let name = &bound.registers[column].name;
                Err(WhyNot::new(format!("column {name} is not decoded on a GPU")))
            }
        }
    }

    /// For a stream.
    pub fn streamed(self: &Arc<Self>) -> StreamPages {
        StreamPages { plan: self.plan.clone(), owner: Arc::clone(self) as _ }
    }

    /// Rows of the pages that were taken.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// What tells the file of a segment of pages from others, and the segment's stamp.
    pub fn stamp(&self, segment: &Segment) -> Option<(Arc<[u8]>, u64)> {
        let (identity, stamp) = self.source.stamp(segment.file, offset(segment))?;
        Some((identity.into(), stamp))
    }
}

/// Where its pages begin in their file.
fn offset(segment: &Segment) -> u64 {
    segment.columns.first().map_or(0, |column| column.values.offset)
}

impl PageOwner for TablePages {
    fn first_block(&self, segment: &Segment) -> u32 {
        self.source.first_block(segment.file, offset(segment))
    }

    fn ask(&self, segment: &Segment, pages: usize) -> HoldAnswer {
        self.source.ask(segment.file, offset(segment), pages)
    }

    fn settle(&self, segment: &Segment, verdicts: &[PageVerdict]) {
        let rows = verdicts.iter().map(|verdict| match verdict {
            PageVerdict::Rows(rows) => u64::from(*rows),
            PageVerdict::Changed | PageVerdict::Flawed(_) => 0,
        });
        self.rows.fetch_add(rows.sum(), Ordering::Relaxed);
        self.source.settle(segment.file, offset(segment), verdicts);
    }

    fn kept(&self, pages: usize, rows: u32) {
        self.rows.fetch_add(rows.into(), Ordering::Relaxed);
        self.source.kept(pages);
    }
}
