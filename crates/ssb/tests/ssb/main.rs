//! The benchmark as its users see it: the data through [`headrace_ssb::Generator`], the files
//! through [`headrace_ssb::generate`].
#![allow(clippy::unwrap_used)]

mod columns;
mod domains;
mod files;
mod golden;
mod selectivity;
