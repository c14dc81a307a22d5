//! Files of S3 and of web servers.
//!
//! ```text
//! address ──store──► a client of the server ──listing──► objects with their versions
//!                                                             │
//!            SourceFile ◄── RemoteFile: ranges and streams of one version ──► Parquet's reader
//!            (pipelines, our readers)
//! ```
//!
//! - [`address`]: what an address names.
//! - [`network`]: the threads that talk to servers, what is waited for and how long, what is counted.
//! - [`store`]: a client for each bucket, with the credentials of the environment.
//! - [`listing`]: which objects are a table's files, and which tables a folder holds.
//! - [`file`]: bytes of one version of an object; [`gather`]: small reads that lie close together are one request.
//! - [`refusal`]: what a server said, and what helps.
//! - [`upload`]: a file becomes an object, whole or not at all.

mod address;
mod file;
mod gather;
mod listing;
mod network;
mod profile;
mod refusal;
mod store;
mod upload;

pub use address::{is_address, shown_path, shown_text};
pub use file::RemoteFile;
pub use listing::{Tree, files_of, tree_of};
pub use network::traffic;
pub use upload::{check_target, upload};
