//! `avg` of integers from exact totals, rounded once: the same in every order of rows, and what
//! pipelines answer. DataFusion's own adds up floats.
//!
//! The partial state between aggregation phases is the number of values and their total, as one
//! Decimal256.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal256Array, Float64Array, UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Decimal256Type, Field, FieldRef, UInt64Type, i256};
use datafusion::common::types::{
    NativeType, logical_int8, logical_int16, logical_int32, logical_int64, logical_uint8,
    logical_uint16, logical_uint32, logical_uint64,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Coercion, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature, TypeSignature, TypeSignatureClass,
};
use headrace_columns::mean::mean_f64;

use super::shape::for_each_value;
use super::sum::STATE_PRECISION;
use super::sum_distinct;

/// The aggregate function; other types than integers are DataFusion's business.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ExactAvg {
    built_in: Avg,
    signature: Signature,
}

/// `avg` as the session registers it.
pub fn exact_avg() -> AggregateUDF {
    let built_in = Avg::new();
    let signature = with_integers(built_in.signature());
    AggregateUDF::from(ExactAvg { built_in, signature })
}

/// The signature of a function that casts integers to floats, without that cast: the first
/// signature that takes an argument wins.
fn with_integers(built_in: &Signature) -> Signature {
    let integers = |widest, narrower: Vec<_>, native| {
        let narrower = narrower.into_iter().map(TypeSignatureClass::Native).collect();
        let widest = TypeSignatureClass::Native(widest);
        TypeSignature::Coercible(vec![Coercion::new_implicit(widest, narrower, native)])
    };
    let mut signature = built_in.clone();
    if let TypeSignature::OneOf(signatures) = &mut signature.type_signature {
        let unsigned = vec![logical_uint8(), logical_uint16(), logical_uint32()];
        let signed = vec![logical_int8(), logical_int16(), logical_int32()];
        let floats = signatures.len() - 1;
        signatures.insert(floats, integers(logical_uint64(), unsigned, NativeType::UInt64));
        signatures.insert(floats, integers(logical_int64(), signed, NativeType::Int64));
    }
    signature
}

fn is_exact(args: &AccumulatorArgs) -> bool {
    args.expr_fields.first().is_some_and(|field| is_integer(field.data_type()))
}

fn is_integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int64 | DataType::UInt64)
}

impl AggregateUDFImpl for ExactAvg {
    fn name(&self) -> &str {
        self.built_in.name()
    }

    fn aliases(&self) -> &[String] {
        self.built_in.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.built_in.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match is_exact(&args) {
            true if args.is_distinct => {
                let argument = args.expr_fields[0].data_type().clone();
                Ok(Box::new(DistinctMean { argument, values: HashSet::new() }))
            }
            true => Ok(Box::new(Mean::default())),
            false => self.built_in.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if !is_integer(args.input_fields[0].data_type()) {
            return self.built_in.state_fields(args);
        }
        if args.is_distinct {
            return Ok(sum_distinct::state_fields(args.name, &args.input_fields[0]));
        }
        let field = |part, data_type| {
            Arc::new(Field::new(format_state_name(args.name, part), data_type, true))
        };
        let total = DataType::Decimal256(STATE_PRECISION, 0);
        Ok(vec![field("count", DataType::UInt64), field("sum", total)])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.built_in.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match is_exact(&args) {
            true => Ok(Box::new(GroupedMean::default())),
            false => self.built_in.create_groups_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

fn mean(total: i128, count: u64) -> Option<f64> {
    (count > 0).then(|| mean_f64(total, count))
}

/// Totals of 2^64 integers of 64 bits fit 128.
fn narrow(total: i256) -> Result<i128> {
    match total.to_i128() {
        Some(total) => Ok(total),
        None => internal_err!("a total of integers that takes more than 128 bits"),
    }
}

/// One mean; rows can be taken out again, for window frames.
#[derive(Debug, Default)]
struct Mean {
    total: i128,
    count: u64,
}

impl Accumulator for Mean {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_value(&values[0], |_, value| {
            self.total += value;
            self.count += 1;
        })
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_value(&values[0], |_, value| {
            self.total -= value;
            self.count -= 1;
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(mean(self.total, self.count)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let total = Some(i256::from_i128(self.total));
        let total = ScalarValue::Decimal256(total, STATE_PRECISION, 0);
        Ok(vec![ScalarValue::UInt64(Some(self.count)), total])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let totals = states[1].as_primitive::<Decimal256Type>();
        for (count, total) in states[0].as_primitive::<UInt64Type>().iter().zip(totals) {
            self.count += count.unwrap_or(0);
            self.total += narrow(total.unwrap_or(i256::ZERO))?;
        }
        Ok(())
    }
}

/// The mean of the distinct values of one group.
#[derive(Debug)]
struct DistinctMean {
    argument: DataType,
    values: HashSet<i128>,
}

impl Accumulator for DistinctMean {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_value(&values[0], |_, value| {
            self.values.insert(value);
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        sum_distinct::for_each_list(&states[0], |values| self.update_batch(&[values]))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![sum_distinct::state(&self.values, &self.argument)?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(mean(self.values.iter().sum(), self.values.len() as u64)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<i128>()
    }
}

/// Means of many groups.
#[derive(Debug, Default)]
struct GroupedMean {
    totals: Vec<i128>,
    counts: Vec<u64>,
}

impl GroupedMean {
    fn resize(&mut self, groups: usize) {
        self.totals.resize(groups, 0);
        self.counts.resize(groups, 0);
    }
}

fn is_kept(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

fn state_arrays(counts: Vec<u64>, totals: impl IntoIterator<Item = i128>) -> Result<Vec<ArrayRef>> {
    let totals = Decimal256Array::from_iter_values(totals.into_iter().map(i256::from_i128));
    let totals = totals.with_precision_and_scale(STATE_PRECISION, 0)?;
    Ok(vec![Arc::new(UInt64Array::from(counts)), Arc::new(totals)])
}

impl GroupsAccumulator for GroupedMean {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        for_each_value(&values[0], |row, value| {
            if is_kept(opt_filter, row) {
                self.totals[group_indices[row]] += value;
                self.counts[group_indices[row]] += 1;
            }
        })
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let totals = emit_to.take_needed(&mut self.totals);
        let counts = emit_to.take_needed(&mut self.counts);
        let means = totals.into_iter().zip(counts).map(|(total, count)| mean(total, count));
        Ok(Arc::new(means.collect::<Float64Array>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let totals = emit_to.take_needed(&mut self.totals);
        state_arrays(emit_to.take_needed(&mut self.counts), totals)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let totals = values[1].as_primitive::<Decimal256Type>();
        let states = values[0].as_primitive::<UInt64Type>().iter().zip(totals);
        for ((count, total), &group) in states.zip(group_indices) {
            self.counts[group] += count.unwrap_or(0);
            self.totals[group] += narrow(total.unwrap_or(i256::ZERO))?;
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let mut totals = vec![0; values[0].len()];
        let mut counts = vec![0; values[0].len()];
        for_each_value(&values[0], |row, value| {
            if is_kept(opt_filter, row) {
                totals[row] = value;
                counts[row] = 1;
            }
        })?;
        state_arrays(counts, totals)
    }

    fn size(&self) -> usize {
        self.totals.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<u64>()
    }
}
