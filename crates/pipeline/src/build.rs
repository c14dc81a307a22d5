//! Builds: the small sides of joins, laid out to be probed.
//!
//! ```text
//! Direct: one integer key, dense enough. Payload columns lie in key order.
//!
//!   key - base:   0    1    2    3    4
//!   present:      1    0    1    1    0        one bit each
//!   d_year (u8):  0   255   0    1   255       value = base + raw; 255 = absent
//!
//! Chains: anything else. Payload columns lie in build-row order; rows of one key follow
//! each other in a chain, whose first is found by address or by hash.
//! ```
//!
//! A build is made of parts: the rows that each worker gathered, or batches. They stay where they are; pieces of them go to
//! threads (`pieces`), which find out whether keys are unique, link the rows of equal keys (`chains`), and lay out the payload
//! (`payload`, `texts`).
//!
//! A direct-address build may be far larger than its rows: a strongly filtered dimension is probed four times
//! faster by address than by hash.

mod assemble;
mod chains;
pub(crate) mod fetch;
mod payload;
mod pieces;
mod rekey;
mod slots;
mod texts;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use headrace_columns::key::EncodedKeys;
use headrace_columns::repr::{Dictionary, Repr};
use headrace_io::huge::zeroed;
use headrace_ir::{Field, ValueRange};

pub use assemble::BuildOptions;
pub(crate) use pieces::{BuildColumn, threads_for};
pub use slots::Slots;

/// Rows by key.
#[derive(Debug)]
pub struct BuildTable {
    /// Name for EXPLAIN.
    pub name: String,
    /// Key columns.
    pub keys: Vec<Field>,
    /// Representations of the keys.
    pub key_reprs: Vec<Repr>,
    /// Number of rows that can match.
    pub rows: u64,
    /// Rows of the table that the build was filtered from, if known: `rows / source_rows`
    /// estimates which share of foreign keys finds a match.
    pub source_rows: Option<u64>,
    /// Whether rows with a NULL key are kept, to be found by probes for which NULLs are equal
    /// (always by `Chains`).
    pub nulls_equal: bool,
    /// Whether a row with a NULL key was offered (it matches nothing unless NULLs are equal).
    pub has_null_key: bool,
    /// Whether no key occurs twice.
    pub unique: bool,
    /// How a key is found.
    pub index: BuildIndex,
    /// Payload columns.
    pub payload: Vec<PayloadColumn>,
    /// Host bytes of all of it.
    pub bytes: u64,
    /// By which caches know it.
    pub id: BuildId,
}

/// A number that no other build of this process has or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(u64);

impl Default for BuildId {
    /// The next one.
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How a key is found.
#[derive(Debug)]
pub enum BuildIndex {
    /// One integer key (or code), by its place in the domain.
    Direct(Presence),
    /// Chains of the rows of a key.
    Chains(Chains),
}

/// The rows of each key, the first of which is found by `heads`.
#[derive(Debug)]
pub struct Chains {
    /// Where a key's first row is found.
    pub heads: Heads,
    /// Next row of the same key, or `u32::MAX`.
    pub next: Vec<u32>,
    /// Length of the longest chain; 0 without rows.
    pub duplicates_max: u64,
    /// The same build by dictionary code, if it was asked for.
    pub(crate) by_code: ByCode,
}

/// What became of a build for the dictionaries that asked last, the latest first. A build that is
/// kept from query to query is the same one by code each time: devices would copy another one anew.
#[derive(Debug, Default)]
pub(crate) struct ByCode(pub(crate) Mutex<Vec<(Arc<Dictionary>, Arc<BuildTable>)>>);

/// From a key to the first row that has it.
#[derive(Debug)]
pub enum Heads {
    /// By the one integer key less `base`: a row number, or `u32::MAX` where no row has it.
    Direct {
        /// Smallest key.
        base: i64,
        /// First row by `key - base`.
        heads: Vec<u32>,
    },
    /// By a hash of the one integer key.
    Integers {
        /// By hash.
        slots: Slots,
        /// Keys by row.
        keys: Vec<i64>,
        /// Which keys are there, where that takes few bits.
        present: Option<Presence>,
    },
    /// By a hash of the keys as bytes.
    Encoded {
        /// By hash.
        slots: Slots,
        /// Keys by row.
        keys: EncodedKeys,
    },
}

impl BuildIndex {
    /// Which keys are there, where bits tell.
    pub(crate) fn presence(&self) -> Option<&Presence> {
        match self {
            Self::Direct(present) => Some(present),
            Self::Chains(Chains { heads: Heads::Integers { present, .. }, .. }) => present.as_ref(),
            Self::Chains(_) => None,
        }
    }
}

/// A set of integers, one bit for each number of a domain.
#[derive(Debug)]
pub struct Presence {
    /// The smallest number of the domain.
    pub base: i64,
    /// Numbers of the domain.
    pub domain: u64,
    /// Bit `i % 64` of word `i / 64` tells whether `base + i` is there.
    pub words: Vec<u64>,
}

impl Presence {
    /// None of a domain's numbers.
    pub(crate) fn empty(base: i64, domain: u64) -> Self {
        Self { base, domain, words: zeroed(domain.div_ceil(64) as usize) }
    }

    /// Host bytes.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val::<[u64]>(&self.words) as u64
    }
}

/// A payload column. In a `Direct` build entry `i` belongs to key `base + i`, in one by
/// `Chains` to row `i`.
#[derive(Debug)]
pub struct PayloadColumn {
    /// Column.
    pub field: Field,
    /// Representation of the register it becomes. Text is always `Code`, re-coded to the
    /// values that occur in this build, so that group numbers stay small.
    pub repr: Repr,
    /// Exact bounds of integer-like values and codes; `None` for others or no rows.
    pub range: Option<ValueRange>,
    /// Values.
    pub data: PayloadData,
    /// One bit per entry, 1 = not NULL; `None`: no NULLs.
    pub validity: Option<Arc<[u64]>>,
}

/// Payload values.
#[derive(Debug)]
pub enum PayloadData {
    /// Integer-like values and codes: `value = base + raw`, raw unsigned. In a `Direct` build
    /// the largest raw value marks an absent key and no present key has it.
    U8 {
        /// Added to each raw value.
        base: i64,
        /// Raw values.
        raw: Vec<u8>,
    },
    /// As `U8`, 16 bits.
    U16 {
        /// Added to each raw value.
        base: i64,
        /// Raw values.
        raw: Vec<u16>,
    },
    /// As `U8`, 32 bits.
    U32 {
        /// Added to each raw value.
        base: i64,
        /// Raw values.
        raw: Vec<u32>,
    },
    /// 64-bit signed values, no absent mark.
    I64(Vec<i64>),
    /// 64-bit unsigned values, no absent mark.
    U64(Vec<u64>),
    /// binary64 (binary32 is widened exactly).
    F64(Vec<f64>),
    /// Decimals.
    I128(Vec<i128>),
    /// Truth values as 0 and 1; 255 marks an absent key in a `Direct` build.
    Bool(Vec<u8>),
    /// Bytes of one length, and the floats of vectors.
    Bytes {
        /// Bytes of a value.
        width: usize,
        /// One value after the other.
        raw: Vec<u8>,
    },
}
