//! Which blocks of a table may be read from its files beside the server, and the proof.
//!
//! # The claim
//!
//! With a registered snapshot, a block that is *listed* here, read from its file later, and still
//! *holds* after that, has exactly the rows in it that the snapshot sees, if the page itself says that
//! all of its tuples are visible to everybody.
//!
//! # Why
//!
//! - *Nothing is missing that the snapshot sees.* What it sees was committed before it was taken, so
//!   the change was in shared buffers then. Either the buffer has been written since (the file is as
//!   new as that), or it is dirty all the time from the snapshot to the end of the walk over the
//!   buffers: then the walk finds it, under the same tag, and the block is not listed.
//! - *Nothing is there that the snapshot does not see.* Pages say `PD_ALL_VISIBLE` only after a vacuum
//!   whose horizon is not younger than any snapshot of the database; a later change of the page takes
//!   the flag away before the page can be written.
//! - *The page is not half old, half new.* Tuples come and go on an all-visible page only after its bits
//!   in the visibility map were cleared, before the page can be written. A block holds if its bit is
//!   still set after its bytes were copied. That it was not cleared and set again meanwhile is known at
//!   the end: setting bits moves the position in the log of their page of the map. Where pages have
//!   checksums these say the same, and the position is not asked for. Tables whose changes are not logged have
//!   no positions, so that they are listed only where pages have checksums; nothing else here asks for the log.
//!
//! What else may change in a page while it is copied are hint bits, frozen marks and row locks, each a
//! few bits of one tuple's header; `format::heap` refuses those that matter.
//!
//! # Who does what
//!
//! The backend lists, and pins the pages of the map; workers look at those pages' memory, which stays
//! where it is as long as they are pinned; the backend reads all other blocks through shared buffers
//! with its snapshot.

mod listing;
mod owner;
mod reader;
mod server;

pub use listing::{BLOCKS_PER_MAP_PAGE, Counts, Listing, Map, list};
pub use owner::Owner;
pub use reader::{Part, Reader};
