//! Running values of groups, as both processors produce them, and finished output.

mod finish;
mod first;
pub(crate) mod merge;
mod texts;

use arrow_array::RecordBatch;
use headrace_columns::repr::Repr;
use headrace_columns::spread::Spread;

use crate::bound::{Accumulator, AccumulatorKind};
use crate::build::BuildTable;

pub use finish::finish_dense;
pub(crate) use finish::{finish_calls, finish_groups};
pub(crate) use first::Choice;
pub use texts::Texts;

/// One accumulator over all possible groups.
#[derive(Clone, Debug, PartialEq)]
pub enum AccumulatorState {
    /// Counts.
    Count(Vec<u64>),
    /// Exact totals that fit 64 bits.
    SumI64(Vec<i64>),
    /// Exact 128-bit totals.
    SumI128(Vec<i128>),
    /// Exact totals beyond 128 bits: `low + carry * 2^128`.
    SumWide {
        /// Totals modulo 2^128.
        low: Vec<i128>,
        /// Overflows upwards less overflows downwards.
        carry: Vec<i64>,
    },
    /// Float totals.
    SumF64(Vec<f64>),
    /// Squared deviations of floats.
    SquaredDeviations(Vec<Spread>),
    /// Smallest or largest of integer-like values of at most 64 bits signed, and codes.
    ExtremeI64(Vec<i64>),
    /// Of unsigned 64-bit values.
    ExtremeU64(Vec<u64>),
    /// Of floats.
    ExtremeF64(Vec<f64>),
    /// Of decimals.
    ExtremeI128(Vec<i128>),
    /// Of text.
    ExtremeText(Texts),
}

/// State of a dense aggregation: entry `g` of each accumulator belongs to group number `g`.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseState {
    /// One per accumulator of the bound sink, each with as many entries as there are groups.
    pub accumulators: Vec<AccumulatorState>,
}

/// What a pipeline brings back.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one a query, moved once")]
pub enum Output {
    /// Record batches of the output schema.
    Batches(Vec<RecordBatch>),
    /// A build.
    Build(BuildTable),
}

impl AccumulatorState {
    /// The state of `groups` groups that have seen no row. Minima start at the largest value
    /// of their type and maxima at the smallest, so that merging needs no flag; whether a
    /// value was seen is what the count accumulator tells.
    pub fn new(accumulator: &Accumulator, groups: usize) -> Self {
        let repr = accumulator.argument.as_ref().map(|argument| &argument.repr);
        let mut state = match (accumulator.kind, repr) {
            (AccumulatorKind::Count, _) => Self::Count(Vec::new()),
            (AccumulatorKind::SumI64, _) => Self::SumI64(Vec::new()),
            (AccumulatorKind::SumI128, _) => Self::SumI128(Vec::new()),
            (AccumulatorKind::SumWide, _) => Self::SumWide { low: Vec::new(), carry: Vec::new() },
            (AccumulatorKind::SumF64, _) => Self::SumF64(Vec::new()),
            (AccumulatorKind::SquaredDeviations, _) => Self::SquaredDeviations(Vec::new()),
            (_, Some(Repr::U64)) => Self::ExtremeU64(Vec::new()),
            (_, Some(Repr::F32 | Repr::F64)) => Self::ExtremeF64(Vec::new()),
            (_, Some(Repr::I128)) => Self::ExtremeI128(Vec::new()),
            (_, Some(Repr::Str)) => Self::ExtremeText(Texts::default()),
            (_, _) => Self::ExtremeI64(Vec::new()),
        };
        state.resize(groups, accumulator.kind == AccumulatorKind::Min);
        state
    }

    /// Appends groups that have seen no row, or removes groups at the end. `smaller`: of
    /// extremes, whether the smallest are kept.
    pub(crate) fn resize(&mut self, groups: usize, smaller: bool) {
        macro_rules! resize {
            ($values:expr, $largest:expr, $smallest:expr) => {
                $values.resize(groups, if smaller { $largest } else { $smallest })
            };
        }
        match self {
            Self::Count(values) => values.resize(groups, 0),
            Self::SumI64(values) => values.resize(groups, 0),
            Self::SumI128(values) => values.resize(groups, 0),
            Self::SumWide { low, carry } => {
                low.resize(groups, 0);
                carry.resize(groups, 0);
            }
            Self::SumF64(values) => values.resize(groups, 0.0),
            Self::SquaredDeviations(spreads) => spreads.resize(groups, Spread::default()),
            Self::ExtremeI64(values) => resize!(values, i64::MAX, i64::MIN),
            Self::ExtremeU64(values) => resize!(values, u64::MAX, u64::MIN),
            // NaN is the largest float.
            Self::ExtremeF64(values) => resize!(values, f64::NAN, f64::NEG_INFINITY),
            Self::ExtremeI128(values) => resize!(values, i128::MAX, i128::MIN),
            Self::ExtremeText(texts) => texts.resize(groups),
        }
    }

    /// Number of groups.
    pub(crate) fn groups(&self) -> usize {
        match self {
            Self::Count(v) => v.len(),
            Self::SumI64(v) | Self::ExtremeI64(v) => v.len(),
            Self::SumI128(v) | Self::ExtremeI128(v) => v.len(),
            Self::SumWide { low, .. } => low.len(),
            Self::SumF64(v) | Self::ExtremeF64(v) => v.len(),
            Self::SquaredDeviations(spreads) => spreads.len(),
            Self::ExtremeU64(v) => v.len(),
            Self::ExtremeText(texts) => texts.len(),
        }
    }

    /// Host bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let groups = self.groups() as u64;
        match self {
            Self::Count(_) | Self::SumI64(_) | Self::ExtremeI64(_) => groups * 8,
            Self::SumF64(_) | Self::ExtremeF64(_) | Self::ExtremeU64(_) => groups * 8,
            Self::SumI128(_) | Self::ExtremeI128(_) => groups * 16,
            Self::SumWide { .. } | Self::SquaredDeviations(_) => groups * 24,
            Self::ExtremeText(texts) => texts.bytes(),
        }
    }
}

impl DenseState {
    /// The state before the first row.
    pub fn new(accumulators: &[Accumulator], groups: usize) -> Self {
        let state = |accumulator| AccumulatorState::new(accumulator, groups);
        Self { accumulators: accumulators.iter().map(state).collect() }
    }
}
