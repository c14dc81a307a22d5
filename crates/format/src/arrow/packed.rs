//! Columns in as few bytes as the range of their values needs: unsigned differences of 1 to 4 bytes from a base
//! (frame of reference), where a narrow integer or decimal would take more.
//!
//! Arrow has no such type. A packed column has binary values of that width, and its metadata describe it:
//! `headrace.type`, the table's type, and `headrace.base`. Other programs see bytes, not wrong numbers.
//!
//! Differences have whole bytes, not bits: rows stay addressable one by one, a value is one shuffle or one
//! unaligned load away, and a row range that begins at a multiple of 64 begins at a byte in any width. A value that
//! does not fit is an error of the writer. Conditions on the cores compare differences as they lie, with constants
//! moved by the base; kernels add the base from the segment's descriptor, so one kernel serves files of any base.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Int16Type, Int32Type, Int64Type,
};
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, PrimitiveArray};
use arrow_buffer::Buffer;
use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, Field};
use headrace_ir::Encoding;

/// Metadata key of a file's column: the table's type, where the file's is narrower.
pub(crate) const TABLE_TYPE_KEY: &str = "headrace.type";

/// Metadata key of a packed column: the base of its differences.
pub(crate) const BASE_KEY: &str = "headrace.base";

/// Maximum bytes of a difference.
const DELTA_BYTES_MAX: u8 = 4;

/// How a column is packed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Packed {
    /// The table's type.
    pub is: DataType,
    pub base: i64,
    pub delta_bytes: u8,
}

impl Packed {
    /// From a file's column; `None` if it is not packed, or invalid.
    pub fn of(field: &Field) -> Option<Self> {
        let &DataType::FixedSizeBinary(width) = field.data_type() else { return None };
        let said = field.metadata().get(TABLE_TYPE_KEY)?;
        let base = field.metadata().get(BASE_KEY)?.parse().ok()?;
        let known = [DataType::Int16, DataType::Int32, DataType::Int64, DataType::Date32];
        let plain = known.into_iter().find(|known| known.to_string() == *said);
        let packed = Self {
            is: plain.or_else(|| decimal_said(said))?,
            base,
            delta_bytes: width.try_into().ok()?,
        };
        if packed.is.primitive_width()? <= usize::from(packed.delta_bytes) {
            return None;
        }
        let values = values_of(&packed.is)?;
        let last = base.checked_add(delta_max(packed.delta_bytes)?)?;
        (values.contains(&base) && values.contains(&last)).then_some(packed)
    }

    /// For values within bounds; `None` if they need more bytes.
    pub fn for_values(is: DataType, bounds: &RangeInclusive<i128>) -> Option<Self> {
        let values = values_of(&is)?;
        let (least, most) =
            (i64::try_from(*bounds.start()).ok()?, i64::try_from(*bounds.end()).ok()?);
        let span = most.checked_sub(least)?;
        let holds = |bytes: &u8| delta_max(*bytes).is_some_and(|largest| span <= largest);
        let delta_bytes = (1..=DELTA_BYTES_MAX).find(holds)?;
        // Whatever lies in the bytes is to be a value of the type.
        let base = least.min(values.end().checked_sub(delta_max(delta_bytes)?)?);
        values.contains(&base).then_some(Self { is, base, delta_bytes })
    }

    /// The encoding in the pipeline IR.
    pub fn encoding(&self) -> Encoding {
        Encoding::Deltas { base: self.base, delta_bytes: self.delta_bytes }
    }

    /// Packs values of the table's type.
    ///
    /// # Errors
    /// A value lies outside of the column's range, or the column has another type.
    pub fn pack(&self, column: &ArrayRef) -> Result<ArrayRef, String> {
        match (&self.is, column.data_type()) {
            (is, own) if is != own => Err(format!("{own} given, {is} expected")),
            (DataType::Int16, _) => self.pack_values::<Int16Type>(column),
            (DataType::Int32, _) => self.pack_values::<Int32Type>(column),
            (DataType::Int64, _) => self.pack_values::<Int64Type>(column),
            (DataType::Date32, _) => self.pack_values::<Date32Type>(column),
            (DataType::Decimal128(_, _), _) => self.pack_values::<Decimal128Type>(column),
            (other, _) => Err(format!("{other} is never packed")),
        }
    }

    fn pack_values<T: ArrowPrimitiveType>(&self, column: &ArrayRef) -> Result<ArrayRef, String>
    where
        T::Native: Into<i128>,
    {
        let column: &PrimitiveArray<T> = column.as_primitive();
        let (base, largest) =
            (i128::from(self.base), i128::from(delta_max(self.delta_bytes).unwrap_or(0)));
        let width = usize::from(self.delta_bytes);
        let mut bytes = Vec::with_capacity(column.len() * width);
        for (row, &value) in column.values().iter().enumerate() {
            let delta = value.into().wrapping_sub(base);
            // What lies under a NULL may be anything.
            let delta = match (0..=largest).contains(&delta) {
                true => delta,
                false if column.is_null(row) => 0,
                false => {
                    return Err(format!(
                        "{} is not within {base} and {}",
                        value.into(),
                        base + largest
                    ));
                }
            };
            bytes.extend_from_slice(&delta.to_le_bytes()[..width]);
        }
        let (width, nulls) = (i32::from(self.delta_bytes), column.nulls().cloned());
        let packed = FixedSizeBinaryArray::try_new(width, Buffer::from_vec(bytes), nulls);
        packed.map(|array| Arc::new(array) as ArrayRef).map_err(|cause| cause.to_string())
    }

    /// Unpacks values into the table's type.
    ///
    /// # Errors
    /// The column has another width.
    pub fn unpack(&self, column: &ArrayRef) -> Result<ArrayRef, String> {
        let own = column.as_fixed_size_binary_opt();
        let Some(packed) = own.filter(|own| own.value_length() == i32::from(self.delta_bytes))
        else {
            return Err(format!(
                "{} where {} bytes a value are packed",
                column.data_type(),
                self.delta_bytes
            ));
        };
        Ok(match self.is {
            DataType::Int16 => {
                Arc::new(self.unpack_values::<Int16Type>(packed, |value| value as i16))
            }
            DataType::Date32 => {
                Arc::new(self.unpack_values::<Date32Type>(packed, |value| value as i32))
            }
            DataType::Int32 => {
                Arc::new(self.unpack_values::<Int32Type>(packed, |value| value as i32))
            }
            DataType::Decimal128(_, _) => {
                let values = self.unpack_values::<Decimal128Type>(packed, i128::from);
                Arc::new(values.with_data_type(self.is.clone()))
            }
            _ => Arc::new(self.unpack_values::<Int64Type>(packed, |value| value)),
        })
    }

    fn unpack_values<T: ArrowPrimitiveType>(
        &self,
        packed: &FixedSizeBinaryArray,
        value: impl Fn(i64) -> T::Native,
    ) -> PrimitiveArray<T> {
        let width = usize::from(self.delta_bytes);
        let one = |bytes: &[u8]| {
            let mut delta = [0; 8];
            delta[..width].copy_from_slice(bytes);
            // `of` and `for_values` have seen to it that this fits.
            value(self.base.wrapping_add(i64::from_le_bytes(delta)))
        };
        let values = packed.value_data().chunks_exact(width).map(one).collect();
        PrimitiveArray::new(values, packed.nulls().cloned())
    }
}

/// The type of the values of a file's column: the table's for a packed one.
pub(crate) fn value_type(field: &Field) -> DataType {
    Packed::of(field).map_or_else(|| field.data_type().clone(), |packed| packed.is)
}

/// The decimal type of a text.
pub(crate) fn decimal_said(said: &str) -> Option<DataType> {
    let (digits, scale) = said.strip_prefix("Decimal128(")?.strip_suffix(')')?.split_once(", ")?;
    let (digits, scale) = (digits.parse().ok()?, scale.parse().ok()?);
    let is_type = (1..=DECIMAL128_MAX_PRECISION).contains(&digits);
    let decimal = DataType::Decimal128(digits, scale);
    (is_type && *said == decimal.to_string()).then_some(decimal)
}

/// The largest difference in this many bytes; `None`: not a width of a packed column.
fn delta_max(delta_bytes: u8) -> Option<i64> {
    (1..=DELTA_BYTES_MAX).contains(&delta_bytes).then(|| (1 << (8 * delta_bytes)) - 1)
}

/// The values of a type that may be packed, as far as they fit 64 bits.
fn values_of(is: &DataType) -> Option<RangeInclusive<i64>> {
    match is {
        DataType::Int16 => Some(i16::MIN.into()..=i16::MAX.into()),
        DataType::Int32 | DataType::Date32 => Some(i32::MIN.into()..=i32::MAX.into()),
        DataType::Int64 | DataType::Decimal128(_, _) => Some(i64::MIN..=i64::MAX),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::types::{Date32Type, Decimal128Type, Int32Type, Int64Type};

    use arrow_schema::Schema;

    use super::super::packed_schema;
    use super::*;

    fn packed(is: DataType, bounds: RangeInclusive<i128>) -> Option<Field> {
        let schema = Schema::new(vec![Field::new("x", is, true)]);
        let packed = packed_schema(&schema, |_| Some(bounds.clone()));
        Packed::of(packed.field(0)).map(|_| packed.field(0).clone())
    }

    fn width(is: DataType, bounds: RangeInclusive<i128>) -> Option<u8> {
        packed(is, bounds).and_then(|field| Some(Packed::of(&field)?.delta_bytes))
    }

    #[test]
    fn as_few_bytes_as_the_range_asks_for() {
        let decimal = DataType::Decimal128(15, 2);
        assert_eq!(width(DataType::Int32, 19_920_101..=19_990_101), Some(3));
        assert_eq!(width(DataType::Int32, 19_920_101..=19_980_802), Some(2));
        assert_eq!(width(DataType::Date32, 8035..=10_591), Some(2));
        assert_eq!(width(DataType::Int64, 1..=6_000_000), Some(3));
        assert_eq!(width(DataType::Int64, 0..=i128::from(u32::MAX)), Some(4));
        assert_eq!(width(DataType::Int64, 0..=1 << 32), None);
        assert_eq!(width(decimal.clone(), 90_091..=10_494_950), Some(3));
        assert_eq!(width(decimal.clone(), 0..=10), Some(1));
        // What narrow columns have already, and what is not packed.
        assert_eq!(width(DataType::Int32, 1..=50), None);
        assert_eq!(width(DataType::Int32, -8_000_000..=40_000_000), None);
        assert_eq!(width(DataType::UInt32, 70_000..=70_001), None);
        assert_eq!(width(decimal, i128::MIN..=0), None);
        assert_eq!(width(DataType::Float64, 0..=1), None);
    }

    #[test]
    fn whatever_lies_in_the_bytes_is_a_value() {
        for (is, values) in [
            (DataType::Int32, i32::MIN.into()..=i128::from(i32::MAX)),
            (DataType::Int64, i64::MIN.into()..=i64::MAX.into()),
        ] {
            for bounds in
                [*values.end() - 70_000..=*values.end(), *values.start()..=*values.start() + 70_000]
            {
                let packed = Packed::of(&packed(is.clone(), bounds.clone()).unwrap()).unwrap();
                assert!(i128::from(packed.base) <= *bounds.start());
                assert!(
                    i128::from(packed.base) + i128::from(delta_max(packed.delta_bytes).unwrap())
                        >= *bounds.end()
                );
            }
        }
    }

    #[test]
    fn what_is_packed_is_unpacked_and_what_does_not_fit_is_told() {
        let nulls = || Some(vec![true, false, true].into());
        let arrays: [(ArrayRef, RangeInclusive<i128>); 4] = [
            (
                Arc::new(PrimitiveArray::<Int32Type>::new(
                    vec![19_920_101, 0, 19_980_802].into(),
                    nulls(),
                )),
                19_920_101..=19_980_802,
            ),
            (
                Arc::new(PrimitiveArray::<Int64Type>::new(
                    vec![-8_000_000, 5, 8_000_000].into(),
                    nulls(),
                )),
                -8_000_000..=8_000_000,
            ),
            (
                Arc::new(PrimitiveArray::<Date32Type>::new(
                    vec![9000, 1 << 30, 8035].into(),
                    nulls(),
                )),
                8035..=10_591,
            ),
            (
                Arc::new(
                    PrimitiveArray::<Decimal128Type>::new(vec![-255, 1 << 100, 0].into(), nulls())
                        .with_data_type(DataType::Decimal128(15, 2)),
                ),
                -255..=0,
            ),
        ];
        for (array, bounds) in arrays {
            let field = packed(array.data_type().clone(), bounds).unwrap();
            let packed = Packed::of(&field).unwrap();
            let there = packed.pack(&array).unwrap();
            assert_eq!(there.data_type(), field.data_type());
            assert_eq!(&packed.unpack(&there).unwrap(), &array);
            assert_eq!(&packed.unpack(&there.slice(1, 2)).unwrap(), &array.slice(1, 2));
        }
        let field = packed(DataType::Int32, 70_000..=70_010).unwrap();
        let packed = Packed::of(&field).unwrap();
        let of = |value| Arc::new(PrimitiveArray::<Int32Type>::from(vec![value])) as ArrayRef;
        assert!(packed.pack(&of(70_255)).is_ok());
        assert_eq!(packed.pack(&of(70_256)).unwrap_err(), "70256 is not within 70000 and 70255");
        assert!(packed.pack(&of(69_999)).is_err());
        assert!(
            packed
                .pack(&(Arc::new(PrimitiveArray::<Int64Type>::from(vec![70_000])) as ArrayRef))
                .is_err()
        );
    }

    #[test]
    fn what_a_column_says_that_cannot_be_is_ignored() {
        let field = packed(DataType::Int32, 70_000..=200_000).unwrap();
        let with = |key: &str, value: &str| {
            let mut field = field.clone();
            field.metadata_mut().insert(key.into(), value.into());
            Packed::of(&field)
        };
        assert!(with(BASE_KEY, "-5").is_some());
        for base in ["", "x", "2147483647", "-2147483649", "9223372036854775807"] {
            assert_eq!(with(BASE_KEY, base), None, "{base}");
        }
        for is in ["Int8", "Utf8", "Float64", "Decimal128(99, 2)", "Decimal128(15, 02)"] {
            assert_eq!(with(TABLE_TYPE_KEY, is), None, "{is}");
        }
        for width in [0, 5, 1 << 20] {
            let wide = field.clone().with_data_type(DataType::FixedSizeBinary(width));
            assert_eq!(Packed::of(&wide), None, "{width}");
        }
        // As many bytes as the type has.
        let mut wide = field.with_data_type(DataType::FixedSizeBinary(4));
        wide.metadata_mut().insert(BASE_KEY.into(), i32::MIN.to_string());
        assert_eq!(Packed::of(&wide), None);
    }
}
