//! The sums of chunks, added to the results in chunk order.

use std::sync::Arc;

use headrace_io::{MemoryBudget, MemoryUse, OutOfBudget, Reservation};
use parking_lot::Mutex;

use super::plan::{Plan, Tile};
use super::turns::Turns;

/// The number of vectors for the stored matrix and for its transpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub forward: usize,
    pub transposed: usize,
}

/// The results of a pass: vector after vector.
#[derive(Debug)]
pub(crate) struct Results {
    /// One value per row of the matrix.
    pub forward: Vec<f64>,
    /// One value per column.
    pub transposed: Vec<f64>,
    rows: usize,
    columns: usize,
    counts: Counts,
    _memory: Reservation,
}

impl Results {
    /// Zeros.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn zero(
        memory: &Arc<MemoryBudget>,
        (rows, columns): (usize, usize),
        counts: Counts,
    ) -> Result<Results, OutOfBudget> {
        let values = |length: usize, count| length.saturating_mul(count);
        let (of_rows, of_columns) =
            (values(rows, counts.forward), values(columns, counts.transposed));
        let bytes = (of_rows as u64).saturating_add(of_columns as u64).saturating_mul(8);
        let memory = memory.reserve(MemoryUse::Pipelines, bytes)?;
        let (forward, transposed) = (vec![0.0; of_rows], vec![0.0; of_columns]);
        Ok(Results { forward, transposed, rows, columns, counts, _memory: memory })
    }

    /// The products with the matrix or, if there are none, with its transpose, and the memory reserved for them.
    pub fn into_parts(self) -> (Vec<f64>, Reservation) {
        let values = if self.counts.forward > 0 { self.forward } else { self.transposed };
        (values, self._memory)
    }

    /// Values of each result of either kind.
    pub fn lengths(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Adds the sums of a tile: span by span, and band by band, vector after vector in each.
    fn add(&mut self, tile: &Tile, sums: &[f64]) {
        let Counts { forward, transposed } = self.counts;
        let (of_rows, of_columns) = sums.split_at(tile.forward_sums() * forward);
        for span in of_rows.chunks_exact((tile.rows * forward).max(1)) {
            for (vector, sums) in span.chunks_exact(tile.rows).enumerate() {
                let at = vector * self.rows + tile.first_row;
                add(&mut self.forward[at..at + tile.rows], sums);
            }
        }
        let of_columns = &of_columns[..tile.transposed_sums() * transposed];
        for band in of_columns.chunks_exact((tile.columns * transposed).max(1)) {
            for (vector, sums) in band.chunks_exact(tile.columns).enumerate() {
                let at = vector * self.columns + tile.first_column;
                add(&mut self.transposed[at..at + tile.columns], sums);
            }
        }
    }
}

fn add(to: &mut [f64], sums: &[f64]) {
    for (to, sum) in to.iter_mut().zip(sums) {
        *to += sum;
    }
}

/// Accepts the sums of chunks in any order.
pub(crate) struct Gather<'a> {
    plan: &'a Plan,
    turns: Arc<Turns>,
    state: Mutex<State>,
    _memory: Reservation,
}

struct State {
    /// Sums that wait for their turn, by chunk modulo the window.
    waiting: Vec<Option<Vec<f64>>>,
    spare: Vec<Vec<f64>>,
    /// The first chunk that is not added.
    next: usize,
    /// `None` while a thread adds to them.
    results: Option<Results>,
}

impl<'a> Gather<'a> {
    /// For up to `window` chunks at a time, or fewer if they do not fit.
    ///
    /// # Errors
    /// If those of a single chunk do not fit.
    pub fn new(
        memory: &Arc<MemoryBudget>,
        plan: &'a Plan,
        mut window: usize,
        results: Results,
    ) -> Result<Gather<'a>, OutOfBudget> {
        let sums = plan.sums(results.counts.forward, results.counts.transposed);
        let memory = loop {
            let bytes = (sums as u64 * 8).saturating_mul(window as u64);
            match memory.reserve(MemoryUse::Pipelines, bytes) {
                Err(_) if window > 1 => window /= 2,
                reserved => break reserved?,
            }
        };
        let spare = (0..window).map(|_| vec![0.0; sums]).collect();
        let waiting = (0..window).map(|_| None).collect();
        let state = State { waiting, spare, next: 0, results: Some(results) };
        let turns = Turns::new(window);
        Ok(Gather { plan, turns, state: Mutex::new(state), _memory: memory })
    }

    /// The turn counter.
    pub fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// Memory for the sums of one chunk that was begun.
    pub fn take_buffer(&self) -> Vec<f64> {
        let buffer = self.state.lock().spare.pop();
        buffer.expect("no more chunks are begun than there are buffers")
    }

    /// Accepts the sums of a chunk, and adds those whose turn it is, unless another thread is doing
    /// so.
    pub fn deliver(&self, chunk: usize, sums: Vec<f64>) {
        let mut state = self.state.lock();
        let window = state.waiting.len();
        state.waiting[chunk % window] = Some(sums);
        let Some(mut results) = state.results.take() else { return };
        loop {
            let next = state.next;
            let Some(sums) = state.waiting[next % window].take() else { break };
            drop(state);
            results.add(&self.plan.tile(next), &sums);
            state = self.state.lock();
            state.spare.push(sums);
            state.next = next + 1;
            self.turns.advance(next + 1);
        }
        state.results = Some(results);
    }

    /// The results, after the last chunk.
    pub fn into_results(self) -> Results {
        let State { results, next, .. } = self.state.into_inner();
        assert_eq!(next, self.plan.chunks(), "every chunk was delivered");
        results.expect("nobody adds any more")
    }
}
