//! From partial states to output columns.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::i256;
use headrace_columns::ColumnError;
use headrace_columns::column::{output_batch, vector_array};
use headrace_columns::convert::from_i64;
use headrace_columns::decimal;
use headrace_columns::key::canonical_f64;
use headrace_columns::mean::mean_f64;
use headrace_columns::repr::Repr;
use headrace_columns::vector::{Data, Vector};
use headrace_ir::{AggregateFunction, DataType, OnOverflow};

use crate::ExecError;
use crate::bound::{Accumulator, Bound, BoundCall, BoundKey, BoundSink, Grouping};
use crate::partial::PartialSchema;
use crate::state::{AccumulatorState, DenseState};

/// The groups that exist, as a record batch: keys, then calls; or their partial states, if the
/// sink says so. Without keys there is always one row.
pub fn finish_dense(bound: &Bound, state: &DenseState) -> Result<RecordBatch, ExecError> {
    let BoundSink::Aggregate { keys, grouping: Grouping::Dense { .. }, accumulators, .. } =
        &bound.sink
    else {
        return Err(ExecError::Internal("a dense state of another sink".into()));
    };
    let groups = existing_groups(keys, state)?;
    let vectors = keys.iter().map(|key| dense_key(key, &groups)).collect::<Result<Vec<_>, _>>()?;
    let reprs: Vec<&Repr> = keys.iter().map(|key| &key.expr.repr).collect();
    let Some(form) = PartialSchema::of_output(bound)? else {
        return finish_groups(bound, (&vectors, &reprs), &state.accumulators, &groups);
    };
    let groups: Vec<u32> = groups.into_iter().map(|group| group as u32).collect();
    let states = form.convert(&state.accumulators, accumulators);
    form.encode(&vectors, &reprs, &states, &groups)
}

/// Groups as output: keys, a value a row as `reprs` say, then calls, row `i` from the running
/// values of group `groups[i]`.
pub(crate) fn finish_groups(
    bound: &Bound,
    (vectors, reprs): (&[Vector<'_>], &[&Repr]),
    states: &[AccumulatorState],
    groups: &[usize],
) -> Result<RecordBatch, ExecError> {
    let BoundSink::Aggregate { keys, accumulators, calls, .. } = &bound.sink else {
        return Err(ExecError::Internal("groups of another sink".into()));
    };
    let arrays = keys.iter().zip(vectors).zip(reprs).map(|((key, vector), repr)| {
        vector_array(vector, repr, &key.field.data_type, groups.len())
    });
    let mut columns = arrays.collect::<Result<Vec<_>, _>>()?;
    columns.extend(finish_calls(calls, accumulators, states, groups)?);
    let fields = keys.iter().map(|key| &key.field).chain(calls.iter().map(|call| &call.field));
    Ok(output_batch(fields, columns, groups.len())?)
}

/// Numbers of the dense groups that exist. Without keys there is always one.
fn existing_groups(keys: &[BoundKey], state: &DenseState) -> Result<Vec<usize>, ExecError> {
    match state.accumulators.first() {
        _ if keys.is_empty() => Ok(vec![0]),
        Some(AccumulatorState::Count(counts)) => {
            Ok((0..counts.len()).filter(|&group| counts[group] > 0).collect())
        }
        _ => Err(ExecError::Internal("accumulator 0 does not count rows".into())),
    }
}

/// Values of one key from group numbers.
fn dense_key(key: &BoundKey, groups: &[usize]) -> Result<Vector<'static>, ExecError> {
    let dense = key
        .dense
        .ok_or_else(|| ExecError::Internal(format!("key {} has no digits", key.field.name)))?;
    let digits: Vec<u64> =
        groups.iter().map(|&group| group as u64 / dense.stride % dense.cardinality).collect();
    let null = dense.has_null.then(|| dense.cardinality - 1);
    let values =
        digits.iter().map(|&d| if Some(d) == null { 0 } else { dense.min.wrapping_add(d as i64) });
    let data = from_i64(&key.expr.repr, values)?;
    let validity = null.map(|null| digits.iter().map(|&d| u8::from(d != null)).collect());
    Ok(Vector::with_validity(data, validity))
}

/// The aggregate columns of the given groups.
pub(crate) fn finish_calls(
    calls: &[BoundCall],
    accumulators: &[Accumulator],
    states: &[AccumulatorState],
    groups: &[usize],
) -> Result<Vec<ArrayRef>, ExecError> {
    calls
        .iter()
        .map(|call| {
            let AccumulatorState::Count(counts) = &states[call.count] else {
                return Err(ExecError::Internal(format!("{} has no count", call.text)));
            };
            let argument = accumulators[call.value].argument.as_ref();
            let repr = match (&states[call.value], argument) {
                // Text, or codes that have become text on their way.
                (AccumulatorState::ExtremeText(_), _) | (_, None) => Repr::Str,
                (_, Some(argument)) => argument.repr.clone(),
            };
            let finish = CallFinish { call, counts, groups, repr };
            finish.array(&states[call.value])
        })
        .collect()
}

struct CallFinish<'c> {
    call: &'c BoundCall,
    counts: &'c [u64],
    groups: &'c [usize],
    /// Of the argument.
    repr: Repr,
}

impl CallFinish<'_> {
    fn array(&self, state: &AccumulatorState) -> Result<ArrayRef, ExecError> {
        match self.call.function {
            AggregateFunction::Count => self.count(state),
            AggregateFunction::Sum => self.sum(state),
            AggregateFunction::Avg => self.mean(state),
            AggregateFunction::SquaredDeviations => self.squared_deviations(state),
            AggregateFunction::Min | AggregateFunction::Max => self.extreme(state),
        }
    }

    fn overflow(&self) -> ExecError {
        let type_name = self.call.field.data_type.to_string();
        ColumnError::Overflow { type_name, place: self.call.text.to_string() }.into()
    }

    fn mismatch(&self) -> ExecError {
        ExecError::Internal(format!(
            "{} with the result type {}",
            self.call.text, self.call.field.data_type
        ))
    }

    fn result_repr(&self) -> Result<Repr, ExecError> {
        Repr::of(&self.call.field.data_type).ok_or_else(|| self.mismatch())
    }

    fn column(&self, data: Data<'_>) -> Result<ArrayRef, ExecError> {
        let validity = self.groups.iter().map(|&g| u8::from(self.counts[g] > 0)).collect();
        let vector = Vector::with_validity(data, Some(validity));
        let data_type = &self.call.field.data_type;
        let repr = match self.call.function {
            AggregateFunction::Min | AggregateFunction::Max => self.repr.clone(),
            _ => self.result_repr()?,
        };
        Ok(vector_array(&vector, &repr, data_type, self.groups.len())?)
    }

    fn count(&self, state: &AccumulatorState) -> Result<ArrayRef, ExecError> {
        let AccumulatorState::Count(counts) = state else { return Err(self.mismatch()) };
        let repr = self.result_repr()?;
        let data = match repr {
            Repr::I64 => Data::I64(self.groups.iter().map(|&g| counts[g] as i64).collect()),
            Repr::U64 => Data::U64(self.groups.iter().map(|&g| counts[g]).collect()),
            _ => return Err(self.mismatch()),
        };
        let vector = Vector::new(data);
        Ok(vector_array(&vector, &repr, &self.call.field.data_type, self.groups.len())?)
    }

    /// Exact totals in 256 bits; `None` for float totals.
    fn totals(&self, state: &AccumulatorState) -> Option<Vec<i256>> {
        let groups = self.groups.iter();
        Some(match state {
            AccumulatorState::SumI64(v) => {
                groups.map(|&g| i256::from_i128(i128::from(v[g]))).collect()
            }
            AccumulatorState::SumI128(v) => groups.map(|&g| i256::from_i128(v[g])).collect(),
            AccumulatorState::SumWide { low, carry } => groups
                .map(|&g| {
                    // low + carry * 2^128, the sign of `low` extended.
                    let (bits, high) = i256::from_i128(low[g]).to_parts();
                    i256::from_parts(bits, high.wrapping_add(i128::from(carry[g])))
                })
                .collect(),
            _ => return None,
        })
    }

    fn sum(&self, state: &AccumulatorState) -> Result<ArrayRef, ExecError> {
        if let AccumulatorState::SumF64(totals) = state {
            return self.floats(self.groups.iter().map(|&g| totals[g]));
        }
        let totals = self.totals(state).ok_or_else(|| self.mismatch())?;
        let wrap = self.call.on_overflow == OnOverflow::Wrap;
        let fit = |total: &i256, min: i128, max: i128| match total.to_i128() {
            Some(total) if (min..=max).contains(&total) => Ok(total),
            _ if wrap => Ok(total.as_i128()),
            _ => Err(self.overflow()),
        };
        let data = match &self.call.field.data_type {
            DataType::Int64 => {
                let (min, max) = (i128::from(i64::MIN), i128::from(i64::MAX));
                Data::I64(self.collect(&totals, |t| Ok(fit(t, min, max)? as i64))?.into())
            }
            DataType::UInt64 => {
                let max = i128::from(u64::MAX);
                Data::U64(self.collect(&totals, |t| Ok(fit(t, 0, max)? as u64))?.into())
            }
            DataType::Decimal128 { precision, .. } => {
                let limit = decimal::magnitude_limit(*precision) - 1;
                Data::I128(self.collect(&totals, |t| fit(t, -limit, limit))?.into())
            }
            result if result.is_float() => {
                let totals = self.collect(&totals, |t| self.narrow(t))?;
                return self.floats(totals.iter().map(|&t| t as f64));
            }
            _ => return Err(self.mismatch()),
        };
        self.column(data)
    }

    fn narrow(&self, total: &i256) -> Result<i128, ExecError> {
        total.to_i128().ok_or_else(|| self.overflow())
    }

    fn collect<T>(
        &self,
        totals: &[i256],
        convert: impl Fn(&i256) -> Result<T, ExecError>,
    ) -> Result<Vec<T>, ExecError> {
        totals.iter().map(convert).collect()
    }

    fn floats(&self, values: impl Iterator<Item = f64>) -> Result<ArrayRef, ExecError> {
        let data = match self.result_repr()? {
            Repr::F64 => Data::F64(values.collect()),
            Repr::F32 => Data::F32(values.map(|v| v as f32).collect()),
            _ => return Err(self.mismatch()),
        };
        self.column(data)
    }

    fn mean(&self, state: &AccumulatorState) -> Result<ArrayRef, ExecError> {
        let counts = self.groups.iter().map(|&g| self.counts[g]);
        if let AccumulatorState::SumF64(totals) = state {
            let totals = self.groups.iter().map(|&g| totals[g]);
            return self.floats(totals.zip(counts).map(|(total, count)| total / count as f64));
        }
        let totals = self.totals(state).ok_or_else(|| self.mismatch())?;
        match (&self.call.field.data_type, &self.call.argument_type) {
            (
                DataType::Decimal128 { precision, scale },
                Some(DataType::Decimal128 { scale: from, .. }),
            ) => {
                let means = totals.iter().zip(counts).map(|(&total, count)| match count {
                    0 => Ok(0),
                    _ => decimal::mean(total, count, *from, *scale, *precision)
                        .ok_or_else(|| self.overflow()),
                });
                let means = means.collect::<Result<Vec<i128>, _>>()?;
                self.column(Data::I128(means.into()))
            }
            (result, Some(argument)) if result.is_float() => {
                let unit = match argument {
                    DataType::Decimal128 { scale, .. } => 10f64.powi(i32::from(*scale)),
                    _ => 1.0,
                };
                let totals = self.collect(&totals, |t| self.narrow(t))?;
                let means = totals.iter().zip(counts);
                self.floats(means.map(|(&total, count)| mean_f64(total, count) / unit))
            }
            _ => Err(self.mismatch()),
        }
    }

    fn squared_deviations(&self, state: &AccumulatorState) -> Result<ArrayRef, ExecError> {
        let AccumulatorState::SquaredDeviations(spreads) = state else {
            return Err(self.mismatch());
        };
        self.floats(self.groups.iter().map(|&g| spreads[g].squared_deviations()))
    }

    fn extreme(&self, state: &AccumulatorState) -> Result<ArrayRef, ExecError> {
        let groups = self.groups.iter();
        // What stands in a group without values must not reach a dictionary.
        let seen = |g: usize| self.counts[g] > 0;
        let data: Data<'_> = match (state, &self.repr) {
            (AccumulatorState::ExtremeI64(v), repr) => {
                from_i64(repr, groups.map(|&g| if seen(g) { v[g] } else { 0 }))?
            }
            (AccumulatorState::ExtremeU64(v), _) => Data::U64(groups.map(|&g| v[g]).collect()),
            (AccumulatorState::ExtremeF64(v), Repr::F32) => {
                Data::F32(groups.map(|&g| canonical_f64(v[g]) as f32).collect())
            }
            (AccumulatorState::ExtremeF64(v), _) => {
                Data::F64(groups.map(|&g| canonical_f64(v[g])).collect())
            }
            (AccumulatorState::ExtremeI128(v), _) => {
                Data::I128(groups.map(|&g| if seen(g) { v[g] } else { 0 }).collect())
            }
            (AccumulatorState::ExtremeText(v), _) => {
                Data::Str(groups.map(|&g| v.get(g).unwrap_or_default()).collect())
            }
            _ => return Err(self.mismatch()),
        };
        self.column(data)
    }
}
