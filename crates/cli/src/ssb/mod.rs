//! The Star Schema Benchmark from the command line.

pub mod demo;
pub mod generate;
pub mod measure;
pub mod run;
pub mod table;
