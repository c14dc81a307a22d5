//! The owner of a table's blocks.

use super::{Block, Reroute};

pub use headrace_ir::pages::HoldAnswer;

/// The server that a table's blocks belong to. All threads of a run call it, including those that
/// drive its reads: no call may wait; only a [`HoldAnswer`] may.
///
/// Each listed block is *done* exactly once: decoded, or rerouted before. When all are done, nothing
/// is rerouted any more, and the owner ends the stream of the rows that it reads itself; it must not
/// do so earlier. A run that ends early, by an error or because it has enough rows, drops the stream
/// and does not finish the rest.
pub trait BlockOwner: Send + Sync {
    /// Whether a block is unchanged since it was listed. Called for every block after its bytes were
    /// copied and before they are trusted, so it should take nanoseconds.
    fn holds(&self, block: Block) -> bool;

    /// Asks like [`holds`](Self::holds), for this many consecutive blocks from `first` on: for a device,
    /// which does other work until it needs the answer.
    fn ask(&self, first: Block, blocks: usize) -> HoldAnswer {
        let numbers = (first.number..).take(blocks);
        let holds: Vec<bool> =
            numbers.map(|number| self.holds(Block { number, ..first })).collect();
        Box::new(move || holds)
    }

    /// The owner must read this block and send its rows through the stream. None of its rows was,
    /// or will be, taken from the file.
    fn reroute(&self, block: Block, why: Reroute);

    /// Like [`reroute`](Self::reroute), for a block whose page the owner supplied itself.
    fn hand_back(&self, block: Block, why: Reroute) {
        self.reroute(block, why);
    }

    /// This many more listed blocks are done.
    fn done(&self, blocks: u32);
}
