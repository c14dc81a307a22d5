//! Benchmark suites on the command line, in common.

pub mod demo;
pub mod generate;
pub mod join;
pub mod measure;
pub mod run;
pub mod table;
