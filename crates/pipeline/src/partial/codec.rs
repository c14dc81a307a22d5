//! Columns of partial states from running values, and back.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, FixedSizeBinaryArray, Float64Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringArray, UInt64Array,
};
use arrow_buffer::Buffer;
use headrace_columns::column::vector_array;
use headrace_columns::repr::{Dictionary, Repr};
use headrace_columns::spread::Spread;
use headrace_columns::vector::{Data, Vector};
use headrace_columns::wide::{wide_bytes, wide_total};

use crate::ExecError;
use crate::bound::Accumulator;
use crate::partial::schema::{PartialKey, PartialSchema};
use crate::state::{AccumulatorState, Texts};

/// Running values on their way into a batch.
pub(crate) struct Held<'s> {
    pub state: &'s AccumulatorState,
    /// Of extremes that are codes.
    pub dictionary: Option<&'s Dictionary>,
}

impl PartialSchema {
    /// One row a group. `keys` hold a value a row, as `reprs` say; row `i` takes the running
    /// values of group `groups[i]`. `states` are one a column: see [`Self::convert`] for those
    /// that are held in another form.
    pub(crate) fn encode(
        &self,
        keys: &[Vector<'_>],
        reprs: &[&Repr],
        states: &[Held<'_>],
        groups: &[u32],
    ) -> Result<RecordBatch, ExecError> {
        let rows = groups.len();
        let key_columns = self.keys().iter().zip(keys).zip(reprs).map(|((key, vector), repr)| {
            let repr = if let Repr::I32 = key.column_repr { &key.column_repr } else { repr };
            Ok(vector_array(vector, repr, &key.column_type, rows)?)
        });
        let value_columns = self
            .values()
            .iter()
            .zip(states)
            .map(|(value, held)| state_array(&value.empty, held, groups));
        let columns = key_columns.chain(value_columns).collect::<Result<Vec<_>, ExecError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(self.arrow()), columns, &options)
            .map_err(|e| ExecError::Internal(format!("partial states: {e}")))
    }

    /// The states of a bound sink's accumulators as columns of this form want them.
    pub(crate) fn convert<'s>(
        &self,
        states: &'s [AccumulatorState],
        accumulators: &'s [Accumulator],
    ) -> Vec<Held<'s>> {
        let held = |number: usize| Held {
            state: &states[number],
            dictionary: match accumulators[number].argument.as_ref().map(|a| &a.repr) {
                Some(Repr::Code(dictionary)) => Some(dictionary),
                _ => None,
            },
        };
        self.values().iter().map(|value| held(value.accumulator)).collect()
    }

    /// The keys of a batch, as tables hold them.
    ///
    /// # Errors
    /// The batch has another schema.
    pub(crate) fn decode_keys<'b>(
        &self,
        batch: &'b RecordBatch,
    ) -> Result<Vec<Vector<'b>>, ExecError> {
        self.check(batch)?;
        self.keys().iter().zip(batch.columns()).map(|(key, array)| key_vector(key, array)).collect()
    }

    /// The running values of a batch that has been checked.
    pub(crate) fn decode_states(
        &self,
        batch: &RecordBatch,
    ) -> Result<Vec<AccumulatorState>, ExecError> {
        let arrays = &batch.columns()[self.keys().len()..];
        self.values().iter().zip(arrays).map(|(value, a)| state_of(&value.empty, a)).collect()
    }
}

fn state_array(
    wanted: &AccumulatorState,
    held: &Held<'_>,
    groups: &[u32],
) -> Result<ArrayRef, ExecError> {
    let wide = matches!(wanted, AccumulatorState::SumWide { .. });
    let text = matches!(wanted, AccumulatorState::ExtremeText(_));
    let numbers = groups.iter().map(|&group| group as usize);
    Ok(match held.state {
        AccumulatorState::SumI64(v) if wide => fixed(numbers.map(|g| wide_bytes(v[g].into(), 0))),
        AccumulatorState::SumI128(v) if wide => fixed(numbers.map(|g| wide_bytes(v[g], 0))),
        AccumulatorState::ExtremeI64(codes) if text => code_texts(codes, held, groups)?,
        AccumulatorState::Count(v) | AccumulatorState::ExtremeU64(v) => {
            Arc::new(UInt64Array::from_iter_values(numbers.map(|g| v[g])))
        }
        AccumulatorState::SumI64(v) | AccumulatorState::ExtremeI64(v) => {
            Arc::new(Int64Array::from_iter_values(numbers.map(|g| v[g])))
        }
        AccumulatorState::SumF64(v) | AccumulatorState::ExtremeF64(v) => {
            Arc::new(Float64Array::from_iter_values(numbers.map(|g| v[g])))
        }
        AccumulatorState::SumI128(v) | AccumulatorState::ExtremeI128(v) => {
            fixed(numbers.map(|g| v[g].to_le_bytes()))
        }
        AccumulatorState::SumWide { low, carry } => {
            fixed(numbers.map(|g| wide_bytes(low[g], carry[g])))
        }
        AccumulatorState::SquaredDeviations(spreads) => {
            fixed(numbers.map(|g| spreads[g].to_bytes()))
        }
        AccumulatorState::ExtremeText(texts) => text_array(numbers.map(|g| texts.get(g)))?,
    })
}

/// Texts, unless they are more than one array holds.
fn text_array<'t>(
    texts: impl Iterator<Item = Option<&'t str>> + Clone,
) -> Result<ArrayRef, ExecError> {
    let bytes: usize = texts.clone().flatten().map(str::len).sum();
    if i32::try_from(bytes).is_err() {
        return Err(ExecError::Internal(format!("{bytes} bytes of text in one batch")));
    }
    Ok(Arc::new(StringArray::from_iter(texts)))
}

fn fixed<const N: usize>(values: impl Iterator<Item = [u8; N]>) -> ArrayRef {
    let bytes: Vec<u8> = values.flatten().collect();
    Arc::new(FixedSizeBinaryArray::new(N as i32, Buffer::from_vec(bytes), None))
}

/// Extremes of codes as text; NULL before the first value, which is outside every dictionary.
fn code_texts(codes: &[i64], held: &Held<'_>, groups: &[u32]) -> Result<ArrayRef, ExecError> {
    let Some(dictionary) = held.dictionary else {
        return Err(ExecError::Internal("extremes of codes that are none".into()));
    };
    let texts = &dictionary.values;
    let text = |&group: &u32| {
        let code = usize::try_from(codes[group as usize]).ok()?;
        (code < texts.len()).then(|| texts.value(code))
    };
    text_array(groups.iter().map(text))
}

fn key_vector<'b>(key: &PartialKey, array: &'b ArrayRef) -> Result<Vector<'b>, ExecError> {
    macro_rules! values {
        ($variant:ident, $type:ty) => {
            Data::$variant(Cow::Borrowed(values_of(array.as_primitive::<$type>())))
        };
    }
    let is_date = matches!(array.data_type(), arrow_schema::DataType::Date32);
    let data = match &key.held {
        Repr::Bool => {
            let bits = array.as_boolean();
            Data::Bool(bits.values().iter().map(u8::from).collect())
        }
        Repr::I8 => values!(I8, Int8Type),
        Repr::I16 => values!(I16, Int16Type),
        Repr::I32 if is_date => values!(I32, Date32Type),
        Repr::I32 => values!(I32, Int32Type),
        Repr::Code(dictionary) => {
            let codes = array.as_primitive::<Int32Type>();
            let size = dictionary.values.len();
            let inside = |code: i32| usize::try_from(code).is_ok_and(|code| code < size);
            if !codes.iter().flatten().all(inside) {
                return Err(ExecError::Partial("a code lies outside its dictionary".into()));
            }
            Data::I32(Cow::Borrowed(values_of(codes)))
        }
        Repr::I64 => Data::I64(long_values(array)?),
        Repr::U8 => values!(U8, UInt8Type),
        Repr::U16 => values!(U16, UInt16Type),
        Repr::U32 => values!(U32, UInt32Type),
        Repr::U64 => values!(U64, UInt64Type),
        Repr::F32 => values!(F32, Float32Type),
        Repr::F64 => values!(F64, Float64Type),
        Repr::I128 => values!(I128, Decimal128Type),
        Repr::Str => {
            let texts = array.as_string::<i32>();
            Data::Str((0..texts.len()).map(|row| texts.value(row)).collect())
        }
        Repr::Bytes(_) => {
            let values = array.as_fixed_size_binary();
            Data::Bytes((0..values.len()).map(|row| values.value(row)).collect())
        }
    };
    let validity = array.nulls().map(|nulls| nulls.iter().map(u8::from).collect());
    Ok(Vector::with_validity(data, validity))
}

fn values_of<T: arrow_array::ArrowPrimitiveType>(
    array: &arrow_array::PrimitiveArray<T>,
) -> &[T::Native] {
    array.values()
}

/// 64-bit integers, whatever time they are.
fn long_values(array: &ArrayRef) -> Result<Cow<'static, [i64]>, ExecError> {
    let plain = array.to_data().into_builder().data_type(arrow_schema::DataType::Int64).build();
    let plain = plain.map_err(|e| ExecError::Partial(e.to_string()))?;
    Ok(Cow::Owned(Int64Array::from(plain).values().to_vec()))
}

fn state_of(empty: &AccumulatorState, array: &ArrayRef) -> Result<AccumulatorState, ExecError> {
    let unsigned = || array.as_primitive::<UInt64Type>().values().to_vec();
    let signed = || array.as_primitive::<Int64Type>().values().to_vec();
    let floats = || array.as_primitive::<Float64Type>().values().to_vec();
    Ok(match empty {
        AccumulatorState::Count(_) => AccumulatorState::Count(unsigned()),
        AccumulatorState::SumI64(_) => AccumulatorState::SumI64(signed()),
        AccumulatorState::SumI128(_) => AccumulatorState::SumI128(wide_values(array)),
        AccumulatorState::SumWide { .. } => {
            let totals = chunks::<24>(array).iter().map(wide_total);
            let (low, carry) = totals.unzip();
            AccumulatorState::SumWide { low, carry }
        }
        AccumulatorState::SumF64(_) => AccumulatorState::SumF64(floats()),
        AccumulatorState::SquaredDeviations(_) => {
            let spreads = chunks::<24>(array).iter().map(Spread::of_bytes);
            AccumulatorState::SquaredDeviations(spreads.collect())
        }
        AccumulatorState::ExtremeI64(_) => AccumulatorState::ExtremeI64(signed()),
        AccumulatorState::ExtremeU64(_) => AccumulatorState::ExtremeU64(unsigned()),
        AccumulatorState::ExtremeF64(_) => AccumulatorState::ExtremeF64(floats()),
        AccumulatorState::ExtremeI128(_) => AccumulatorState::ExtremeI128(wide_values(array)),
        AccumulatorState::ExtremeText(_) => {
            let mut texts = Texts::new(array.len());
            for (group, text) in array.as_string::<i32>().iter().enumerate() {
                if let Some(text) = text {
                    texts.offer(group, text, true);
                }
            }
            AccumulatorState::ExtremeText(texts)
        }
    })
}

/// The values of a `FixedSizeBinary` column of `N` bytes.
fn chunks<const N: usize>(array: &ArrayRef) -> &[[u8; N]] {
    let bytes = array.as_fixed_size_binary().value_data();
    &bytes.as_chunks::<N>().0[..array.len()]
}

fn wide_values(array: &ArrayRef) -> Vec<i128> {
    chunks::<16>(array).iter().map(|bytes| i128::from_le_bytes(*bytes)).collect()
}
