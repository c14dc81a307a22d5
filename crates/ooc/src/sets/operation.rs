//! The operation on two lists.

use crate::NumberType;

/// A set operation. If a key occurs `m` times in the first list and `n` times in the second, it occurs in
/// the result as often as stated here, as in the algorithms of the C++ standard library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOperation {
    /// `min(m, n)` times; the keys are the first list's.
    Intersection,
    /// `max(m, n)` times.
    Union,
    /// `max(m - n, 0)` times.
    Difference,
    /// `|m - n|` times.
    SymmetricDifference,
}

impl SetOperation {
    /// Whether a key is output that is in the first list alone, in the second alone, and in both.
    pub(super) fn puts_out(self) -> (bool, bool, bool) {
        match self {
            Self::Intersection => (false, false, true),
            Self::Union => (true, true, true),
            Self::Difference => (true, false, false),
            Self::SymmetricDifference => (true, true, false),
        }
    }

    /// Whether a stretch with this many keys of each list has no output, whatever the keys are.
    pub(super) fn is_void(self, a: u64, b: u64) -> bool {
        match self {
            Self::Intersection => a == 0 || b == 0,
            Self::Difference => a == 0,
            Self::Union | Self::SymmetricDifference => a + b == 0,
        }
    }
}

headrace_io::named!(
    SetOperation,
    Intersection => "intersection",
    Union => "union",
    Difference => "difference",
    SymmetricDifference => "symmetric difference",
);

/// Whether a list may contain repeated keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Repeats {
    /// It may: lists are multisets.
    #[default]
    Allowed,
    /// It may not: a repeated key is an error that names its position.
    Refused,
}

/// Supported key types.
pub const KEY_TYPES: [NumberType; 6] = [
    NumberType::I32,
    NumberType::U32,
    NumberType::I64,
    NumberType::U64,
    NumberType::F32,
    NumberType::F64,
];
