//! Numbers as stored in files, little-endian, and their sort order.

use std::fmt;

use bytemuck::Pod;
use serde::{Deserialize, Serialize};

/// A type of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NumberType {
    /// 32 bits, signed.
    I32,
    /// 32 bits, unsigned.
    U32,
    /// 64 bits, signed.
    I64,
    /// 64 bits, unsigned.
    U64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// The upper half of a binary32: for storage only, sums use binary32.
    Bf16,
}

impl NumberType {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

headrace_io::named!(
    NumberType,
    "type of numbers",
    I32 => "i32",
    U32 => "u32",
    I64 => "i64",
    U64 => "u64",
    F32 => "f32",
    F64 => "f64",
    Bf16 => "bf16",
);

/// A number that can be a key.
pub trait Number: Pod + Send + Sync + fmt::Debug + fmt::Display {
    /// Its type.
    const TYPE: NumberType;
    /// An unsigned number whose bits have the same order.
    type Ordered: Pod + Ord + Into<u64> + Send + Sync + fmt::Debug;

    /// Numbers sort in the order of these: integers by value; floats by value with -0 equal to 0, and
    /// all NaNs equal and greater than everything else.
    fn ordered(self) -> Self::Ordered;
}

macro_rules! unsigned {
    ($type:ty, $number:ident) => {
        impl Number for $type {
            const TYPE: NumberType = NumberType::$number;
            type Ordered = $type;

            #[inline(always)]
            fn ordered(self) -> $type {
                self
            }
        }
    };
}

macro_rules! signed {
    ($type:ty, $unsigned:ty, $number:ident) => {
        impl Number for $type {
            const TYPE: NumberType = NumberType::$number;
            type Ordered = $unsigned;

            #[inline(always)]
            fn ordered(self) -> $unsigned {
                self.cast_unsigned() ^ (1 << (<$unsigned>::BITS - 1))
            }
        }
    };
}

macro_rules! float {
    ($type:ty, $signed:ty, $unsigned:ty, $number:ident) => {
        impl Number for $type {
            const TYPE: NumberType = NumberType::$number;
            type Ordered = $unsigned;

            #[inline(always)]
            fn ordered(self) -> $unsigned {
                if self.is_nan() {
                    return <$unsigned>::MAX;
                }
                // Adding 0 makes -0 a 0.
                let bits = (self + 0.0).to_bits().cast_signed();
                let top = <$unsigned>::BITS - 1;
                (bits ^ ((bits >> top) | <$signed>::MIN)).cast_unsigned()
            }
        }
    };
}

unsigned!(u32, U32);
unsigned!(u64, U64);
signed!(i32, u32, I32);
signed!(i64, u64, I64);
float!(f32, i32, u32, F32);
float!(f64, i64, u64, F64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_by_value_and_nan_is_above_all() {
        let floats = [
            f64::NEG_INFINITY,
            -1.5,
            -f64::MIN_POSITIVE,
            0.0,
            1e-300,
            2.0,
            f64::INFINITY,
            f64::NAN,
        ];
        assert!(floats.windows(2).all(|pair| pair[0].ordered() < pair[1].ordered()));
        assert_eq!((-0.0f64).ordered(), 0.0f64.ordered());
        assert_eq!((-f64::NAN).ordered(), f64::NAN.ordered());
        assert_eq!((-0.0f32).ordered(), 0.0f32.ordered());
        let integers = [i64::MIN, -1, 0, 1, i64::MAX];
        assert!(integers.windows(2).all(|pair| pair[0].ordered() < pair[1].ordered()));
        assert!(
            [i32::MIN, -1, 0, i32::MAX]
                .windows(2)
                .all(|pair| pair[0].ordered() < pair[1].ordered())
        );
    }

    #[test]
    fn types_are_found_by_their_names() {
        for number in NumberType::ALL {
            assert_eq!(number.name().parse(), Ok(number));
        }
        assert!("int".parse::<NumberType>().is_err_and(|error| error.contains("i32, u32")));
    }
}
