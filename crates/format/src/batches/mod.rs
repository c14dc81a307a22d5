//! Record batches of another producer as a table: a child plan, another process, rows without a
//! file.
//!
//! ```text
//! producer ──► BatchStream (or BatchSender ═ bounded queue ═) ──► BatchTable ──feed──► chunks over
//!                                                                      the batches' own memory
//! ```
//!
//! Batches come once. A feed pulls them as its chunks are needed, and releases each when the last
//! chunk over it is done, so only the batches in flight are alive. Fixed-width values and text are
//! used in place. Copied are bitmaps of slices that begin in the middle of a byte, codes where the
//! producer's dictionaries are unified, and text that is stored as views or, without a common
//! dictionary, as codes.

mod column;
mod feed;
mod segment;
mod stream;
mod table;

pub use column::{schema_without_views, without_views};
pub(crate) use feed::BatchFeed;
pub use segment::BatchSegment;
pub use stream::{
    BatchReceiver, BatchSender, BatchStream, ProducerError, Ready, Receiver, Sender, batch_channel,
    channel,
};
pub use table::BatchTable;
