//! Benchmark suites from the command line: what is said of one holds for all.

pub mod demo;
pub mod generate;
pub mod measure;
pub mod run;
pub mod table;
