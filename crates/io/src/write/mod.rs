//! Host writers: how bytes of host memory reach a file, and what can go wrong on the way.
//!
//! ```text
//!             SinkFile ────┐                        ┌── PwritePool  (threads, buffered or O_DIRECT)
//!   path ──►               ├── dyn WriteAt ◄── bytes├── UringWriter (io_uring, O_DIRECT, fixed buffers)
//!             FaultySink ──┘   (the seam)
//!             (seeded faults)
//!                 │
//!                 ▼ commit: cut to size, sync, rename
//!               path
//! ```
//!
//! The mirror of the readers: [`WriteAt`] for [`ReadAt`](crate::ReadAt), with the same threads,
//! ring and rules for short transfers and refusals. The difference: a half-written file must never
//! be taken for a complete one. Bytes go to a hidden temporary file, and [`SinkFile::commit`] puts
//! it in place.
//!
//! A process that writes past its limit of file sizes (RLIMIT_FSIZE) gets SIGXFSZ, which kills it.
//! Here the signal never arrives: the limit is checked before a file is created, the engines'
//! threads block the signal permanently, and every writing call blocks it for its duration. What
//! remains is EFBIG, an ordinary error.

mod appended;
mod faulty;
pub mod hidden;
mod request;
mod sink;
mod size_limit;

pub use appended::Appended;
pub use faulty::FaultySink;
pub use request::WriteRequest;
pub use sink::{SinkFile, WriteAt, folder_of, free_bytes};

/// A pool of threads that writes.
pub type PwritePool = crate::pool::Pool<WriteRequest>;

/// An io_uring that writes.
pub type UringWriter = crate::ring::Ring<WriteRequest>;
