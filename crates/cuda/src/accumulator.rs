//! How running values lie on the device.

use headrace_columns::repr::Repr;
use headrace_pipeline::WhyNot;
use headrace_pipeline::bound::AccumulatorKind;

/// How the entries of a global accumulator array lie on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceAccumulator {
    /// `u64` counts; `u32` in shared memory.
    Count,
    /// `u64` counts everywhere, for rows that multiply within a launch.
    WideCount,
    /// `u64`, two's complement totals.
    Total64,
    /// 4 (128-bit) or 6 (192-bit) little-endian `u32` limbs, two's complement.
    Limbs(u32),
    /// `f64`.
    Float,
    /// `i64` minimum.
    MinSigned,
    /// `i64` maximum.
    MaxSigned,
    /// `u64` minimum.
    MinUnsigned,
    /// `u64` maximum.
    MaxUnsigned,
    /// Minimum of floats as ordered `u64`.
    MinFloat,
    /// Maximum of floats as ordered `u64`.
    MaxFloat,
    /// Minimum of 128-bit values: the value, its version (`u32`: 0 before the first value, odd
    /// while it is written), 12 bytes of padding.
    MinWide,
    /// Maximum, lying as the minimum does.
    MaxWide,
    /// Minimum of texts: where the group keeps it (`u64`).
    MinText,
    /// Maximum of texts.
    MaxText,
}

impl DeviceAccumulator {
    /// Layout for an accumulator whose argument has the representation `argument`.
    pub fn of(kind: AccumulatorKind, argument: Option<&Repr>) -> Result<Self, WhyNot> {
        let extreme = |signed, unsigned, float, wide, text| match argument {
            Some(Repr::U64) => unsigned,
            Some(Repr::F32 | Repr::F64) => float,
            Some(Repr::I128) => wide,
            Some(Repr::Str) => text,
            _ => signed,
        };
        match kind {
            AccumulatorKind::Count => Ok(Self::Count),
            AccumulatorKind::SumI64 => Ok(Self::Total64),
            AccumulatorKind::SumI128 => Ok(Self::Limbs(4)),
            AccumulatorKind::SumWide => Ok(Self::Limbs(6)),
            AccumulatorKind::SumF64 => Ok(Self::Float),
            AccumulatorKind::SquaredDeviations => {
                Err(WhyNot::new("variances and deviations of floats are not on the CUDA processor"))
            }
            AccumulatorKind::Min => Ok(extreme(
                Self::MinSigned,
                Self::MinUnsigned,
                Self::MinFloat,
                Self::MinWide,
                Self::MinText,
            )),
            AccumulatorKind::Max => Ok(extreme(
                Self::MaxSigned,
                Self::MaxUnsigned,
                Self::MaxFloat,
                Self::MaxWide,
                Self::MaxText,
            )),
        }
    }

    /// Bytes of one group's entry in global memory.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Limbs(limbs) => u64::from(limbs) * 4,
            Self::MinWide | Self::MaxWide => 32,
            _ => 8,
        }
    }

    /// Whether it holds a minimum.
    pub(crate) fn is_min(self) -> bool {
        matches!(
            self,
            Self::MinSigned | Self::MinUnsigned | Self::MinFloat | Self::MinWide | Self::MinText
        )
    }

    /// Whether it holds a text that the group keeps.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::MinText | Self::MaxText)
    }

    /// Bytes of one group's entry in shared memory, where counts are `u32`.
    pub fn shared_bytes(self) -> u64 {
        match self {
            Self::Count => 4,
            other => other.bytes(),
        }
    }

    /// The 32-bit words, over and over, of an entry before any row.
    pub fn initial_words(self) -> [u32; 2] {
        match self {
            Self::MinSigned => [u32::MAX, i32::MAX as u32],
            Self::MaxSigned => [0, 0x8000_0000],
            Self::MinUnsigned | Self::MinFloat | Self::MinText | Self::MaxText => [u32::MAX; 2],
            _ => [0; 2],
        }
    }
}
