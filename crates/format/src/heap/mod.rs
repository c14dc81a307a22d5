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
//! On a device other code decodes the pages, by a plan ([`HeapBlocks::page_plan`]) and with the same results
//! ([`PageSource`](crate::PageSource)); it reroutes what it cannot decode, above all compressed values.
//!
//! # What it answers
//!
//! For one block: exactly its rows, or [`Reroute`], which means that the server must read this
//! block through its buffers. There is no third answer. Bytes read beside a running server may be
//! torn, stale, half-written or garbage, so nothing in them is trusted: each offset and length is
//! checked before use, hint bits must agree with `PD_ALL_VISIBLE`, and values that Arrow cannot
//! represent are never changed into ones that it can. Data checksums are verified if the cluster
//! has them. Without them a torn page whose two halves are both well-formed cannot be detected, and
//! the caller must ensure that no write was under way (by the buffer's state before and after, or
//! by the page's LSN).
//!
//! # Who may ask
//!
//! A caller who knows that the block is all-visible in the visibility map and not dirty in shared
//! buffers. The page itself must say `PD_ALL_VISIBLE` too; then every tuple in it is visible to
//! every snapshot, and no transaction state is needed. A page of zeros says no such thing (its rows
//! may be in shared buffers only), so it is [`Reroute::NewPage`].
//!
//! A caller who knows which tuples of a page of shared buffers its own snapshot sees:
//! [`Decoder::decode_lines`] decodes these, whatever the page says. [`ServerPages`] are copies of such
//! pages in which only these tuples are left ([`keep_lines`]); workers decode them.
//!
//! # What it must never know
//!
//! A PostgreSQL process, its memory, catalogs, locks, snapshots; pgrx; libpq. Its inputs are bytes
//! and a description.
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
mod streamed;
mod table;
mod tuple;
mod uniform;
pub mod uuid;
mod varlena;
mod walk;

#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use jsonb::{JsonbQuery, JsonbScalar, JsonbType, flat_fields};
pub use owner::{BlockOwner, HoldAnswer};
pub use page::keep_lines;
pub use parts::{Block, HeapBlocks, Stamps};
pub use relation::{Align, Attribute, Derived, HeapType, Length, Relation};
pub use reroute::Reroute;
pub use server_pages::{ServerPages, Spare};
pub use table::HeapTable;
