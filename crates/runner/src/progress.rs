//! How far the runs of a session have come, for whoever watches them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headrace_format::ChunkTotals;

/// What races were given of their tables since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Rows, with those that statistics ruled out.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The count, while runs add to it.
#[derive(Debug, Default)]
pub struct Progress {
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// What was given so far.
    pub fn given(&self) -> Given {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Given { rows: load(&self.rows), bytes: load(&self.bytes) }
    }

    /// One feed has come from one count to the next.
    fn add(&self, before: &ChunkTotals, after: &ChunkTotals) {
        let rows = |totals: &ChunkTotals| totals.rows + totals.pruned_rows;
        self.rows.fetch_add(rows(after).saturating_sub(rows(before)), Ordering::Relaxed);
        self.bytes.fetch_add(after.bytes.saturating_sub(before.bytes), Ordering::Relaxed);
    }
}

/// One feed's part in it.
#[derive(Debug)]
pub struct Share {
    progress: Arc<Progress>,
    totals: ChunkTotals,
}

impl Share {
    /// Of a feed that has given nothing yet.
    pub fn of(progress: &Arc<Progress>) -> Self {
        Self { progress: Arc::clone(progress), totals: ChunkTotals::default() }
    }

    /// The feed has given this much.
    pub fn update(&mut self, totals: ChunkTotals) {
        self.progress.add(&self.totals, &totals);
        self.totals = totals;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_add_up() {
        let progress = Arc::new(Progress::default());
        let totals = |rows, pruned_rows, bytes| ChunkTotals {
            rows,
            pruned_rows,
            bytes,
            ..Default::default()
        };
        let (mut a, mut b) = (Share::of(&progress), Share::of(&progress));
        a.update(totals(10, 0, 80));
        a.update(totals(15, 5, 120));
        b.update(totals(1, 0, 8));
        assert_eq!(progress.given(), Given { rows: 21, bytes: 128 });
    }
}
