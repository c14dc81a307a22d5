//! Files and folders as tables, opened when they are named.
//!
//! ```text
//! folder ──directory──► names and paths ──tables──► listing ──► files of one format
//!                                                                 ├──► Arrow: HeadraceTable, which pipelines stream
//!                                                                 └──► planned (the planner's own scans)
//! ```
//!
//! What a format is, `format` says; `formats` has one file for each.
//!
//! A path may be an address (`s3://bucket/folder/`, `https://host/x.csv`): `remote` lists and fetches what it names.
//!
//! A table is opened when a query names it, and again when its list of files or the identity of one of them has
//! changed. A call such as `read_csv(..)` is a table whose name is the call's text. What the beginning of a text
//! file suggests (`sniff`, `shapes`) is checked for each later value (`cells`): a value that its type would
//! truncate is an error.

mod bytes;
mod call;
mod cells;
mod directory;
mod encoding;
mod files;
mod folders;
mod format;
mod formats;
mod layout;
mod listing;
mod options;
mod packing;
mod parquet_held;
mod parquet_input;
mod parquet_metadata;
mod parquet_parts;
mod parquet_source;
mod parquet_streamed;
mod partition_names;
mod pipe;
mod planned;
mod portable;
mod reach;
mod records;
mod refusal;
#[cfg(feature = "remote")]
pub(crate) mod remote;
#[cfg(not(feature = "remote"))]
#[path = "remote_absent.rs"]
pub(crate) mod remote;
mod sample;
mod separated;
mod shapes;
mod sniff;
mod streamed_tables;
mod table;
mod tables;
mod text;
mod text_room;
mod union;

pub(crate) use call::{Call, is_pattern};
pub(crate) use directory::view_file;
pub use directory::{Found, FoundTable, find_tables};
pub(crate) use encoding::Encoding;
pub(crate) use format::Format;
pub use formats::is_file_name;
pub(crate) use formats::{format_of, read_by};
pub(crate) use layout::TextInput;
pub(crate) use listing::PARTITION_DEPTH_MAX;
pub use listing::table_name;
pub(crate) use options::ReadOptions;
pub(crate) use packing::{Packing, packing_of};
pub(crate) use parquet_streamed::{NotStreamed, Streamed, reads_row_groups, streamed};
pub(crate) use partition_names::{NULL_VALUE, partition_name, partition_of};
pub use portable::open_portable;
pub use reach::Reach;
pub(crate) use refusal::refused;
pub use remote::shown_text;
// How texts are cut, for those who feed it with broken ones.
#[doc(hidden)]
pub use records::{Block, Blocks, Records, Separators};
pub use table::{HeadraceTable, TableEntry};
pub(crate) use tables::with_opened;
pub use tables::{Schemas, Tables, table_notes};
pub(crate) use text::TextSource;
