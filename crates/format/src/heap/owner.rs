//! The other side of a table of blocks.

use super::{Block, Reroute};

/// The server that a table's blocks belong to. Called by all threads of a run, those too that drive
/// its reads: no call but [`hold`](Self::hold) may wait.
///
/// Each listed block is *done* exactly once: decoded, or rerouted before. When all are, nothing is
/// rerouted any more, and the owner ends the stream of the rows that it reads itself; before, it must
/// not. A run that ends early, by an error or because nobody wants more rows, drops the stream and is
/// not done with the rest.
pub trait BlockOwner: Send + Sync {
    /// Whether a block is still what it was when it was listed. Asked of every block after its bytes
    /// were copied and before they are believed, so that it should take nanoseconds.
    fn holds(&self, block: Block) -> bool;

    /// As [`holds`](Self::holds), of consecutive blocks from `first` on: which of them hold, one by
    /// one. Asked once for a chunk that a device has copied, by the thread that drives the device, or
    /// for an extent that a worker of the CPU decodes: it may wait for whoever knows.
    fn hold(&self, first: Block, holds: &mut [bool]) {
        for (number, holds) in (first.number..).zip(holds) {
            *holds = self.holds(Block { number, ..first });
        }
    }

    /// The owner must read this block and send its rows through the stream. None of them was, or
    /// will be, taken from the file.
    fn reroute(&self, block: Block, why: Reroute);

    /// So many more of the listed blocks are done.
    fn done(&self, blocks: u32);
}
