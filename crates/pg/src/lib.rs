//! A client of PostgreSQL servers for the command line's commands.
//!
//! # The data that flows through
//!
//! ```text
//! DSN, PG* variables, .pgpass ──► Session (one connection, one thread)
//!
//! export   one snapshot ─► ctid ranges ─► COPY (binary) on N sessions ─► record batches, in order
//!                                                                   ─► format's ArrowWriter ─► one file
//! doctor   catalogs, settings, statistics ─► Facts ─► findings ─► text, JSON, exit code
//! ```
//!
//! A server is any PostgreSQL, with or without the extension. Nothing is written to it, and every
//! transaction is read-only. It reads only what any reader with the same rights could.
//!
//! # What this crate must never know
//!
//! DataFusion, pipelines, GPUs, the server's headers, terminals. It only queries the server, and
//! does not look beside the server's process (its data directory, sockets of other services).
//!
//! Units: bytes; GB = 10^9 bytes; a block is one page of a table's heap.

pub mod doctor;
pub mod export;

mod dsn;
mod error;
mod session;
mod tls;
mod words;

pub use error::{ErrorKind, PgError, Result};
