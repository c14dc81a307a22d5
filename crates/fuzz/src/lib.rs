//! What reads strangers' bytes and texts, fed with broken ones: an answer or an error, never anything else.
//!
//! A [`Target`] is a plain function of bytes. It panics where Headrace did something that it must not do:
//!
//! - a panic of our own code, on any thread, caught or not; one of a library that nobody caught;
//! - more memory at once than any of these small inputs can want ([`memory`]): then the process ends;
//! - rows of the pipelines that are not those of the planner ([`sessions`]).
//!
//! ```text
//! seeds ──► mutate ──► Target::run ──► arrow_file   a table's file: metadata, chunks, batches, queries
//!             ▲                   ├──► csv          separated values, JSON, streams; packed; cut into blocks
//!             │                   └──► sql          parser, rewriting, plan, program, both processors
//!         libFuzzer (scripts/fuzz), or a fixed number of cases (tests/targets.rs)
//! ```
//!
//! What was found lies in `found/`, made as small as it can be, and is run by the tests from then on.
//!
//! It must never know how anything is read or run: it comes through the doors that users have.

mod arrow_file;
mod csv;
mod guard;
mod memory;
pub mod mutate;
pub mod seeds;
mod sessions;
mod sql;

use std::fmt;

/// What is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Bytes of an Arrow IPC file.
    ArrowFile,
    /// Two bytes of options, then a file of separated values, JSON or Arrow batches one after the other.
    Csv,
    /// A statement.
    Sql,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ArrowFile, Self::Csv, Self::Sql];

    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.to_string() == name)
    }

    /// Feeds it; whether both sessions had an answer. Inputs of one thread share its sessions.
    ///
    /// # Panics
    /// If Headrace did what it must not do.
    pub fn run(self, data: &[u8]) -> bool {
        guard::watch(|| match self {
            Self::ArrowFile => arrow_file::run(data),
            Self::Csv => csv::run(data),
            Self::Sql => sql::run(data),
        })
    }

    /// A changed copy of an input; the same for the same number.
    pub fn mutated(self, data: &[u8], other: &[u8], seed: u64) -> Vec<u8> {
        match self {
            Self::ArrowFile => mutate::bytes(data, other, &[], seed),
            Self::Csv => mutate::bytes(data, other, seeds::TEXT_WORDS, seed),
            Self::Sql => mutate::tokens(data, other, seeds::SQL_WORDS, seed),
        }
    }

    /// Inputs to begin with, by name.
    pub fn seeds(self) -> Vec<(String, Vec<u8>)> {
        match self {
            Self::ArrowFile => seeds::arrow_files(),
            Self::Csv => seeds::texts(),
            Self::Sql => seeds::statements(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ArrowFile => "arrow_file",
            Self::Csv => "csv",
            Self::Sql => "sql",
        })
    }
}
