//! Tables that pipelines can stream.

mod directory;
mod table;

pub use directory::{FoundTable, TableKind, find_tables};
pub use table::{HeadraceTable, TableEntry};
