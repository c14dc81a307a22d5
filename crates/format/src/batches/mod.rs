//! Record batches of another producer as a table: a child plan, another process, rows that lie in
//! no file.
//!
//! ```text
//! producer ──► BatchStream (or BatchSender ═ bounded queue ═) ──► BatchTable ──feed──► chunks over
//!                                                                      the batches' own memory
//! ```
//!
//! Batches come once. A feed pulls them only as its chunks are wanted, and lets each go when the last
//! chunk over it is done, so that what is alive of them is what the race works on. Values of fixed
//! width and text are looked at where they lie; copied are bitmaps of slices that begin in the middle
//! of a byte, codes where the producer's dictionaries are made one, and text that lies as views or,
//! for want of one dictionary, as codes.

mod column;
mod feed;
mod segment;
mod stream;
mod table;

pub(crate) use feed::BatchFeed;
pub use segment::BatchSegment;
pub use stream::{
    BatchReceiver, BatchSender, BatchStream, ProducerError, Ready, Receiver, Sender, batch_channel,
    channel,
};
pub use table::BatchTable;
