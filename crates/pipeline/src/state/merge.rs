//! Folding one partial state into another.

use headrace_columns::spread::Spread;
use headrace_columns::vector::Element;
use headrace_columns::wide::add_wide;

use crate::ExecError;
use crate::bound::{Accumulator, AccumulatorKind};
use crate::state::{AccumulatorState, DenseState};

impl DenseState {
    /// Folds another state of the same sink into this one; any order gives the same result
    /// (float totals but for rounding).
    pub fn merge(
        &mut self,
        other: &DenseState,
        accumulators: &[Accumulator],
    ) -> Result<(), ExecError> {
        let states = self.accumulators.iter_mut().zip(&other.accumulators);
        for ((state, other), accumulator) in states.zip(accumulators) {
            if state.groups() != other.groups() {
                return Err(ExecError::Internal("states of different groups are merged".into()));
            }
            let smaller = accumulator.kind == AccumulatorKind::Min;
            state.fold(other, (0..other.groups()).map(|g| (g, g)), smaller)?;
        }
        Ok(())
    }
}

impl AccumulatorState {
    /// Folds group `from` of another state into group `into` of this one, for each pair.
    /// `smaller`: of extremes, whether the smallest are kept.
    pub(crate) fn fold(
        &mut self,
        other: &AccumulatorState,
        pairs: impl Iterator<Item = (usize, usize)>,
        smaller: bool,
    ) -> Result<(), ExecError> {
        match (self, other) {
            (Self::Count(a), Self::Count(b)) => {
                pairs.for_each(|(i, j)| a[i] = a[i].wrapping_add(b[j]));
            }
            (Self::SumI64(a), Self::SumI64(b)) => {
                pairs.for_each(|(i, j)| a[i] = a[i].wrapping_add(b[j]));
            }
            (Self::SumI128(a), Self::SumI128(b)) => {
                pairs.for_each(|(i, j)| a[i] = a[i].wrapping_add(b[j]));
            }
            (Self::SumWide { low, carry }, Self::SumWide { low: l, carry: c }) => {
                pairs.for_each(|(i, j)| {
                    add_wide(&mut low[i], &mut carry[i], l[j]);
                    carry[i] = carry[i].wrapping_add(c[j]);
                });
            }
            (Self::SumF64(a), Self::SumF64(b)) => pairs.for_each(|(i, j)| a[i] += b[j]),
            (Self::SquaredDeviations(a), Self::SquaredDeviations(b)) => {
                pairs.for_each(|(i, j)| a[i].merge(&b[j]));
            }
            (Self::ExtremeI64(a), Self::ExtremeI64(b)) => {
                pairs.for_each(|(i, j)| a[i] = extreme(a[i], b[j], smaller));
            }
            (Self::ExtremeU64(a), Self::ExtremeU64(b)) => {
                pairs.for_each(|(i, j)| a[i] = extreme(a[i], b[j], smaller));
            }
            (Self::ExtremeF64(a), Self::ExtremeF64(b)) => {
                pairs.for_each(|(i, j)| a[i] = extreme(a[i], b[j], smaller));
            }
            (Self::ExtremeI128(a), Self::ExtremeI128(b)) => {
                pairs.for_each(|(i, j)| a[i] = extreme(a[i], b[j], smaller));
            }
            (Self::ExtremeText(a), Self::ExtremeText(b)) => pairs.for_each(|(i, j)| {
                if let Some(text) = b.get(j) {
                    a.offer(i, text, smaller);
                }
            }),
            _ => return Err(ExecError::Internal("states of different kinds are merged".into())),
        }
        Ok(())
    }
}

impl AccumulatorState {
    /// Folds into each group the one before it, from the first on, but where `restarts`.
    pub(crate) fn add_up(&mut self, restarts: &[bool], smaller: bool) {
        match self {
            Self::Count(v) => each_after(v, restarts, |a, b| a.wrapping_add(b)),
            Self::SumI64(v) => each_after(v, restarts, |a, b| a.wrapping_add(b)),
            Self::SumI128(v) => each_after(v, restarts, |a, b| a.wrapping_add(b)),
            Self::SumWide { low, carry } => {
                for at in (1..low.len()).filter(|&at| !restarts[at]) {
                    let before = low[at - 1];
                    add_wide(&mut low[at], &mut carry[at], before);
                    carry[at] = carry[at].wrapping_add(carry[at - 1]);
                }
            }
            Self::SumF64(v) => each_after(v, restarts, |a, b| a + b),
            Self::SquaredDeviations(v) => each_after(v, restarts, |mut a: Spread, b| {
                a.merge(&b);
                a
            }),
            Self::ExtremeI64(v) => each_after(v, restarts, |a, b| extreme(a, b, smaller)),
            Self::ExtremeU64(v) => each_after(v, restarts, |a, b| extreme(a, b, smaller)),
            Self::ExtremeF64(v) => each_after(v, restarts, |a, b| extreme(a, b, smaller)),
            Self::ExtremeI128(v) => each_after(v, restarts, |a, b| extreme(a, b, smaller)),
            Self::ExtremeText(texts) => {
                for at in (1..texts.len()).filter(|&at| !restarts[at]) {
                    if let Some(before) = texts.get(at - 1).map(str::to_string) {
                        texts.offer(at, &before, smaller);
                    }
                }
            }
        }
    }
}

fn each_after<T: Copy>(values: &mut [T], restarts: &[bool], add: impl Fn(T, T) -> T) {
    for at in (1..values.len()).filter(|&at| !restarts[at]) {
        values[at] = add(values[at - 1], values[at]);
    }
}

/// The smaller or the larger of two values.
#[inline(always)]
pub(crate) fn extreme<T: Element>(a: T, b: T, smaller: bool) -> T {
    let replace = if smaller { b.less(a) } else { a.less(b) };
    if replace { b } else { a }
}
