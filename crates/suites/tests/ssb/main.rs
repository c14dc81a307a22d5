//! The Star Schema Benchmark as its users see it: the data through
//! [`headrace_suites::ssb::Generator`], the files through [`headrace_suites::generate`].
#![allow(clippy::unwrap_used)]

mod columns;
mod domains;
mod files;
mod golden;
mod selectivity;
