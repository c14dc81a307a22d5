//! SQL through the façade: the corpus of `tests/slt`, the Star Schema Benchmark, and what a
//! corpus cannot say (cancellation, reports, settings). One binary, because each one that links
//! DataFusion takes long to link.

#![allow(clippy::unwrap_used)]

mod breadth;
mod canaries;
mod corpus;
mod cuda_functions;
mod differential;
mod distances;
mod facade;
mod files;
mod folders;
mod foreign;
mod functions;
mod functions_table;
mod homes;
mod narrow;
mod overflow;
mod page;
mod ran;
mod review;

mod shared;
mod spill;
mod ssb;
mod table_functions;
mod tables;
mod texts;
mod wide;
mod words;
