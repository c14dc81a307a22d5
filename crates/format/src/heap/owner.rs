//! The other side of a table of blocks.

use super::{Block, Reroute};

pub use headrace_ir::pages::HoldAnswer;

/// The server that a table's blocks belong to. Called by all threads of a run, those too that drive
/// its reads: no call may wait; only a [`HoldAnswer`] may.
///
/// Each listed block is *done* exactly once: decoded, or rerouted before. When all are, nothing is
/// rerouted any more, and the owner ends the stream of the rows that it reads itself; before, it must
/// not. A run that ends early, by an error or because nobody wants more rows, drops the stream and is
/// not done with the rest.
pub trait BlockOwner: Send + Sync {
    /// Whether a block is still what it was when it was listed. Asked of every block after its bytes
    /// were copied and before they are believed, so that it should take nanoseconds.
    fn holds(&self, block: Block) -> bool;

    /// Asks as [`holds`](Self::holds) does, of so many consecutive blocks from `first` on: for a device,
    /// which has other things to do until it wants the answer.
    fn ask(&self, first: Block, blocks: usize) -> HoldAnswer {
        let numbers = (first.number..).take(blocks);
        let holds: Vec<bool> =
            numbers.map(|number| self.holds(Block { number, ..first })).collect();
        Box::new(move || holds)
    }

    /// The owner must read this block and send its rows through the stream. None of them was, or
    /// will be, taken from the file.
    fn reroute(&self, block: Block, why: Reroute);

    /// As [`reroute`](Self::reroute), of a block whose page the owner handed over itself.
    fn hand_back(&self, block: Block, why: Reroute) {
        self.reroute(block, why);
    }

    /// So many more of the listed blocks are done.
    fn done(&self, blocks: u32);
}
