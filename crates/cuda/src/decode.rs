//! What the device leaves, as values of the host.

use headrace_columns::repr::Repr;
use headrace_columns::vector::Data;
use headrace_columns::wide::wide_total;
use headrace_pipeline::ExecError;
use headrace_pipeline::state::{AccumulatorState, Texts};

use crate::accumulator::DeviceAccumulator;

pub(crate) fn chunks<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// The inverse of `hr::ordered` in `aggregate.cuh`.
fn from_ordered(key: u64) -> f64 {
    match key {
        // What maxima start from, below every float's key. (Minima start from all ones: a NaN.)
        0 => f64::NEG_INFINITY,
        key if key == u64::MAX - 1 => f64::NAN,
        key if key >> 63 == 1 => f64::from_bits(key & !(1 << 63)),
        key => f64::from_bits(!key),
    }
}

/// Accumulators of the device as the state that both processors share; of texts, none.
pub fn accumulator_state(kind: DeviceAccumulator, bytes: &[u8]) -> AccumulatorState {
    let unsigned = || chunks::<8>(bytes).map(u64::from_le_bytes).collect();
    let signed = || chunks::<8>(bytes).map(i64::from_le_bytes).collect();
    match kind {
        DeviceAccumulator::Count | DeviceAccumulator::WideCount => {
            AccumulatorState::Count(unsigned())
        }
        DeviceAccumulator::Total64 => AccumulatorState::SumI64(signed()),
        DeviceAccumulator::Limbs(4) => {
            AccumulatorState::SumI128(chunks::<16>(bytes).map(i128::from_le_bytes).collect())
        }
        DeviceAccumulator::Limbs(_) => {
            let (low, carry) = chunks::<24>(bytes).map(|b| wide_total(&b)).unzip();
            AccumulatorState::SumWide { low, carry }
        }
        DeviceAccumulator::Float => {
            AccumulatorState::SumF64(chunks::<8>(bytes).map(f64::from_le_bytes).collect())
        }
        DeviceAccumulator::MinSigned | DeviceAccumulator::MaxSigned => {
            AccumulatorState::ExtremeI64(signed())
        }
        DeviceAccumulator::MinUnsigned | DeviceAccumulator::MaxUnsigned => {
            AccumulatorState::ExtremeU64(unsigned())
        }
        DeviceAccumulator::MinFloat | DeviceAccumulator::MaxFloat => AccumulatorState::ExtremeF64(
            chunks::<8>(bytes).map(u64::from_le_bytes).map(from_ordered).collect(),
        ),
        DeviceAccumulator::MinText | DeviceAccumulator::MaxText => {
            AccumulatorState::ExtremeText(Texts::new(bytes.len() / 8))
        }
        DeviceAccumulator::MinWide | DeviceAccumulator::MaxWide => {
            let none = if kind.is_min() { i128::MAX } else { i128::MIN };
            AccumulatorState::ExtremeI128(
                chunks::<32>(bytes).map(|b| wide_extreme(&b).unwrap_or(none)).collect(),
            )
        }
    }
}

/// A 128-bit extreme, if there was any value.
fn wide_extreme(entry: &[u8; 32]) -> Option<i128> {
    let (value, rest) = entry.split_first_chunk::<16>()?;
    let version = rest.first_chunk::<4>()?;
    (*version != [0; 4]).then(|| i128::from_le_bytes(*value))
}

pub(crate) fn data_of(repr: &Repr, bytes: &[u8], rows: usize) -> Result<Data<'static>, ExecError> {
    macro_rules! values {
        ($native:ty) => {
            chunks::<{ size_of::<$native>() }>(bytes)
                .take(rows)
                .map(<$native>::from_le_bytes)
                .collect()
        };
    }
    Ok(match repr {
        Repr::Bool => Data::Bool(bytes[..rows].to_vec().into()),
        Repr::I8 => Data::I8(values!(i8)),
        Repr::I16 => Data::I16(values!(i16)),
        Repr::I32 | Repr::Code(_) => Data::I32(values!(i32)),
        Repr::I64 => Data::I64(values!(i64)),
        Repr::U8 => Data::U8(values!(u8)),
        Repr::U16 => Data::U16(values!(u16)),
        Repr::U32 => Data::U32(values!(u32)),
        Repr::U64 => Data::U64(values!(u64)),
        Repr::F32 => Data::F32(values!(f32)),
        Repr::F64 => Data::F64(values!(f64)),
        Repr::I128 => Data::I128(values!(i128)),
        Repr::Str | Repr::Bytes(_) => {
            return Err(ExecError::Internal("text without its bytes".into()));
        }
    })
}

#[cfg(test)]
mod tests {
    use headrace_pipeline::bound::{Accumulator, AccumulatorKind};
    use headrace_pipeline::state::DenseState;

    use super::*;

    #[test]
    fn floats_come_back_from_their_order() {
        let ordered = |value: f64| {
            let bits = value.to_bits();
            if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
        };
        for value in [0.0, 1.5, -1.5, f64::MAX, f64::MIN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(from_ordered(ordered(value)), value);
        }
        assert!(from_ordered(u64::MAX - 1).is_nan());
        assert!(ordered(f64::INFINITY) < u64::MAX - 1);
    }

    #[test]
    fn a_group_that_one_device_has_not_seen_changes_no_extreme_of_another() {
        let low = -1e300f64;
        let seen = !low.to_bits();
        for (device, kind, none) in [
            (DeviceAccumulator::MinFloat, AccumulatorKind::Min, u64::MAX),
            (DeviceAccumulator::MaxFloat, AccumulatorKind::Max, 0),
        ] {
            let accumulators = [Accumulator { kind, ..Accumulator::rows() }];
            let state = |key: u64| DenseState {
                accumulators: vec![accumulator_state(device, &key.to_le_bytes())],
            };
            for (one, other) in [(none, seen), (seen, none)] {
                let mut merged = state(one);
                merged.merge(&state(other), &accumulators).expect("states of one kind");
                assert_eq!(
                    merged.accumulators,
                    [AccumulatorState::ExtremeF64(vec![low])],
                    "{kind:?}"
                );
            }
        }
    }
}
