//! Pages built here, sound and damaged. `tests/postgres/heap` has those of a real server.
#![allow(clippy::unwrap_used)]

use crate::heap;

mod build;
mod damage;
mod garbage;
mod headers;
mod lines;
mod memory;
mod parts;
mod table;
mod uniform;
mod values;
