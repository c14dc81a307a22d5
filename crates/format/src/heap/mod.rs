//! PostgreSQL heap blocks, read from segment files, decoded into Arrow arrays.
//!
//! PostgreSQL 15 to 18 (page layout version 4) on little-endian machines with 8-byte maximum
//! alignment, which is every server on x86-64 and 64-bit ARM.
//!
//! # Data flow
//!
//! ```text
//! Relation (attributes in order) + wanted columns ──Decoder::new──► a plan of how to walk a tuple
//!
//! one block's bytes + its number ──decode──► checksum · header · line pointers        [page]
//!                                            tuple headers                             [tuple]
//!                                            where each wanted value starts  [uniform] [walk]
//!                                            the values, column by column              [column]
//!                                               │ rows of the page appended, or
//!                                               └► Reroute: nothing appended, and why
//! finish ──► RecordBatch of the rows so far
//! ```
//!
//! [`HeapTable`] is a table of such blocks, of one relation or of several as one stream, which the
//! threads of a run decode:
//!
//! ```text
//! files ── runs of listed blocks ──► chunks of pages ═ race ═► copy of a page ─ holds? ─► decode
//!                                                                                │         │
//! BlockOwner (the server) ◄──────────────────── reroute ◄────────────────────────┴─────────┘
//!     └─ BatchStream: rows of rerouted and unlisted blocks ──► chunks of batches ═ race ═►
//! ```
//!
//! On a device other code takes the pages apart, by a plan ([`HeapBlocks::page_plan`]) and with the same
//! answers ([`PageSource`](crate::PageSource)); what that code is not made for, compressed values above all, it
//! reroutes.
//!
//! # What it answers
//!
//! For one block: exactly the rows that lie in it, or [`Reroute`]: let the server read this block
//! through its buffers. There is no third answer. Bytes read beside a running server may be torn,
//! stale, half-written or garbage, so that nothing in them is believed: each offset and length is
//! checked before it is used, hint bits must agree with `PD_ALL_VISIBLE`, values that Arrow cannot
//! hold are never bent into ones that it can. Where the cluster has data checksums they are
//! verified; without them a torn page whose two halves are both well-formed cannot be told from a
//! good one, and the caller must make sure that no write was under way (the buffer's state before
//! and after, or the page's LSN).
//!
//! # Who may ask
//!
//! Whoever knows that the block is all-visible in the visibility map and not dirty in shared
//! buffers. The page itself must say `PD_ALL_VISIBLE` too; then every tuple in it is visible to
//! every snapshot, and no transaction needs to be known here. A page of zeros says nothing of that
//! kind (its rows may be in shared buffers alone), so that it is [`Reroute::NewPage`].
//!
//! Whoever knows the tuples of a page of shared buffers that its own snapshot sees:
//! [`Decoder::decode_lines`] decodes these, whatever the page says of itself. [`ServerPages`] are copies of
//! such pages in which only these are left ([`keep_lines`]); workers decode them.
//!
//! # What it must never know
//!
//! A PostgreSQL process, its memory, catalogs, locks, snapshots; pgrx; libpq. It is given bytes and
//! a description.
//!
//! # Sources
//!
//! `src/include/storage/bufpage.h`, `itemid.h`, `checksum_impl.h`, `access/htup_details.h`,
//! `varatt.h`, `access/tupmacs.h`, `src/backend/utils/adt/numeric.c` and
//! `src/common/pg_lzcompress.c` of PostgreSQL; what a sound heap page looks like:
//! `contrib/amcheck/verify_heapam.c`.

mod block_decoder;
mod bytes;
mod checksum;
mod column;
mod decoder;
mod feed;
pub mod fields;
mod jsonb;
mod memory;
mod numeric;
mod owner;
mod page;
mod page_plan;
mod page_source;
mod parts;
mod pglz;
mod pieces;
mod plan;
mod relation;
mod reroute;
mod server_pages;
mod stored;
mod table;
mod tuple;
mod uniform;
pub mod uuid;
mod varlena;
mod walk;

#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use fields::JsonbType;
pub use jsonb::{JsonbQuery, JsonbScalar, flat_fields};
pub use owner::{BlockOwner, HoldAnswer};
pub use page::keep_lines;
pub use parts::Block;
pub use relation::{Align, Attribute, Derived, HeapType, Length, Relation};
pub use reroute::Reroute;
pub use server_pages::{ServerPages, Spare};
pub use table::{HeapBlocks, HeapTable, Stamps};
