//! Folding one partial state into another.

use crate::ExecError;
use crate::bound::{Accumulator, AccumulatorKind};
use crate::cpu::vector::Element;
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

/// The smaller or the larger of two values.
#[inline(always)]
pub(crate) fn extreme<T: Element>(a: T, b: T, smaller: bool) -> T {
    let replace = if smaller { b.less(a) } else { a.less(b) };
    if replace { b } else { a }
}

/// Adds to a 128-bit total that counts its overflows.
#[inline(always)]
pub(crate) fn add_wide(low: &mut i128, carry: &mut i64, value: i128) {
    let (sum, overflow) = low.overflowing_add(value);
    *low = sum;
    if overflow {
        *carry = carry.wrapping_add(if value < 0 { -1 } else { 1 });
    }
}

/// A total of 192 bits, little-endian in two's complement: how it travels.
pub(crate) fn wide_bytes(low: i128, carry: i64) -> [u8; 24] {
    let high = carry.wrapping_sub(i64::from(low < 0));
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&low.to_le_bytes());
    bytes[16..].copy_from_slice(&high.to_le_bytes());
    bytes
}

/// A total of 192 bits, little-endian in two's complement, as it travels, as `low + carry * 2^128`.
pub fn wide_total(bytes: &[u8; 24]) -> (i128, i64) {
    let mut low = [0; 16];
    let mut high = [0; 8];
    low.copy_from_slice(&bytes[..16]);
    high.copy_from_slice(&bytes[16..]);
    let low = i128::from_le_bytes(low);
    (low, i64::from_le_bytes(high).wrapping_add(i64::from(low < 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_totals_split_into_low_and_carry() {
        let split = |low: u128, high: i64| {
            let mut bytes = [0u8; 24];
            bytes[..16].copy_from_slice(&low.to_le_bytes());
            bytes[16..].copy_from_slice(&high.to_le_bytes());
            wide_total(&bytes)
        };
        assert_eq!(split(5, 0), (5, 0));
        assert_eq!(split(u128::MAX, -1), (-1, 0));
        assert_eq!(split(1 << 127, 0), (i128::MIN, 1), "2^127 = -2^127 + 2^128");
        assert_eq!(split(0, 1), (0, 1));
    }

    #[test]
    fn wide_totals_come_back_from_their_bytes() {
        for (low, carry) in [(5, 0), (-1, 0), (i128::MIN, 1), (i128::MAX, -3), (0, i64::MAX - 1)] {
            assert_eq!(wide_total(&wide_bytes(low, carry)), (low, carry));
        }
    }
}
