//! Partial states of dense aggregation, as both processors produce them, and finished output.

mod finish;
pub(crate) mod merge;

use arrow_array::RecordBatch;

use crate::bound::{Accumulator, AccumulatorKind, Repr};
use crate::build::BuildTable;

pub use finish::finish_dense;
pub(crate) use finish::{finish_calls, output_batch};

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
    /// Smallest or largest of integer-like values of at most 64 bits signed, and codes.
    ExtremeI64(Vec<i64>),
    /// Of unsigned 64-bit values.
    ExtremeU64(Vec<u64>),
    /// Of floats.
    ExtremeF64(Vec<f64>),
    /// Of decimals.
    ExtremeI128(Vec<i128>),
    /// Of text.
    ExtremeText(Vec<Option<Box<str>>>),
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
        let largest = accumulator.kind == AccumulatorKind::Min;
        let repr = accumulator.argument.as_ref().map(|argument| &argument.repr);
        match (accumulator.kind, repr) {
            (AccumulatorKind::Count, _) => Self::Count(vec![0; groups]),
            (AccumulatorKind::SumI64, _) => Self::SumI64(vec![0; groups]),
            (AccumulatorKind::SumI128, _) => Self::SumI128(vec![0; groups]),
            (AccumulatorKind::SumWide, _) => {
                Self::SumWide { low: vec![0; groups], carry: vec![0; groups] }
            }
            (AccumulatorKind::SumF64, _) => Self::SumF64(vec![0.0; groups]),
            (_, Some(Repr::U64)) => {
                Self::ExtremeU64(vec![if largest { u64::MAX } else { u64::MIN }; groups])
            }
            (_, Some(Repr::F32 | Repr::F64)) => {
                // NaN is the largest float.
                Self::ExtremeF64(vec![if largest { f64::NAN } else { f64::NEG_INFINITY }; groups])
            }
            (_, Some(Repr::I128)) => {
                Self::ExtremeI128(vec![if largest { i128::MAX } else { i128::MIN }; groups])
            }
            (_, Some(Repr::Str)) => Self::ExtremeText(vec![None; groups]),
            (_, _) => Self::ExtremeI64(vec![if largest { i64::MAX } else { i64::MIN }; groups]),
        }
    }

    /// Appends groups that have seen no row.
    pub fn grow(&mut self, accumulator: &Accumulator, groups: usize) {
        match (self, Self::new(accumulator, groups)) {
            (Self::Count(a), Self::Count(b)) => a.extend(b),
            (Self::SumI64(a), Self::SumI64(b)) | (Self::ExtremeI64(a), Self::ExtremeI64(b)) => {
                a.extend(b);
            }
            (Self::SumI128(a), Self::SumI128(b)) | (Self::ExtremeI128(a), Self::ExtremeI128(b)) => {
                a.extend(b);
            }
            (Self::SumWide { low, carry }, Self::SumWide { low: l, carry: c }) => {
                low.extend(l);
                carry.extend(c);
            }
            (Self::SumF64(a), Self::SumF64(b)) | (Self::ExtremeF64(a), Self::ExtremeF64(b)) => {
                a.extend(b);
            }
            (Self::ExtremeU64(a), Self::ExtremeU64(b)) => a.extend(b),
            (Self::ExtremeText(a), Self::ExtremeText(b)) => a.extend(b),
            // `new` answers the same variant for the same accumulator.
            _ => {}
        }
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        match self {
            Self::Count(v) => v.len(),
            Self::SumI64(v) | Self::ExtremeI64(v) => v.len(),
            Self::SumI128(v) | Self::ExtremeI128(v) => v.len(),
            Self::SumWide { low, .. } => low.len(),
            Self::SumF64(v) | Self::ExtremeF64(v) => v.len(),
            Self::ExtremeU64(v) => v.len(),
            Self::ExtremeText(v) => v.len(),
        }
    }

    /// Host bytes.
    pub fn bytes(&self) -> u64 {
        let groups = self.groups() as u64;
        match self {
            Self::Count(_) | Self::SumI64(_) | Self::ExtremeI64(_) => groups * 8,
            Self::SumF64(_) | Self::ExtremeF64(_) | Self::ExtremeU64(_) => groups * 8,
            Self::SumI128(_) | Self::ExtremeI128(_) => groups * 16,
            Self::SumWide { .. } => groups * 24,
            Self::ExtremeText(texts) => {
                groups * 16 + texts.iter().flatten().map(|text| text.len() as u64).sum::<u64>()
            }
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
