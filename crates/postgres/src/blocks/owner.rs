//! What workers ask and tell of blocks.

use std::fmt::Display;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headrace_format::heap::{Block, BlockOwner, Reroute};
use headrace_service::client;

use super::listing::Map;

/// Between the workers and the backend.
pub struct Owner {
    /// By part.
    maps: Arc<Vec<Map>>,
    state: Mutex<State>,
    /// Something changed.
    changed: Condvar,
}

/// What the backend has to know.
#[derive(Debug, Default)]
pub struct State {
    /// Blocks that it must read.
    pub rerouted: Vec<Block>,
    /// Listed blocks that are done.
    pub done_blocks: u64,
    /// Whether the run is over.
    pub is_over: bool,
    /// Blocks that were rerouted so far, and why the first of them was.
    rerouted_blocks: u64,
    rerouted_why: Option<String>,
}

impl Owner {
    pub fn new(maps: Arc<Vec<Map>>) -> Self {
        Self { maps, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be done now; waits for a while if that is nothing.
    pub fn look(&self, wait: Duration, is_enough: impl Fn(&State) -> bool) -> State {
        let mut state = self.state();
        if !is_enough(&state) {
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let rerouted = std::mem::take(&mut state.rerouted);
        let State { done_blocks, is_over, .. } = *state;
        State { rerouted, done_blocks, is_over, ..State::default() }
    }

    /// How many blocks were rerouted, and why the first of them was.
    pub fn rerouted(&self) -> (u64, Option<String>) {
        let state = self.state();
        (state.rerouted_blocks, state.rerouted_why.clone())
    }

    fn take_back(&self, block: Block, why: impl Display) {
        let mut state = self.state();
        state.rerouted_blocks += 1;
        state.rerouted_why.get_or_insert_with(|| format!("block {}: {why}", block.number));
        state.rerouted.push(block);
        drop(state);
        self.changed.notify_all();
    }

    fn add_done(&self, blocks: u32) {
        self.state().done_blocks += u64::from(blocks);
        self.changed.notify_all();
    }

    /// The run is over.
    pub fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }
}

impl BlockOwner for Owner {
    fn holds(&self, block: Block) -> bool {
        self.maps.get(block.part as usize).is_some_and(|map| map.is_visible(block.number))
    }

    fn reroute(&self, block: Block, why: Reroute) {
        self.take_back(block, why);
    }

    /// It was to be read here anyway.
    fn hand_back(&self, block: Block, _why: Reroute) {
        self.state().rerouted.push(block);
        self.changed.notify_all();
    }

    fn done(&self, blocks: u32) {
        self.add_done(blocks);
    }
}

/// For a run in another process.
impl client::Owner for Owner {
    fn hold(&self, first: Block, blocks: usize) -> Vec<bool> {
        self.ask(first, blocks)()
    }

    fn reroute(&self, block: Block, why: String) {
        self.take_back(block, why);
    }

    fn done(&self, blocks: u32) {
        self.add_done(blocks);
    }
}
