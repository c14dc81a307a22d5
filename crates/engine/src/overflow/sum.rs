//! `sum` of integers and decimals that is exact: it fails if and only if the total does not
//! fit its type, in whatever order rows come.
//!
//! A running total is an `i128`; the rare total that outgrows it is carried into 256 bits.
//! The partial state between aggregation phases is one nullable Decimal256 with the
//! argument's scale.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal256Array, Decimal256Builder,
};
use datafusion::arrow::datatypes::{DataType, Decimal256Type, Field, FieldRef, i256};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature,
};

use super::shape::{Shape, checked_scale, for_each_value, result_array};
use super::sum_distinct::{self, DistinctSum};

/// Digits of the totals between aggregation phases.
pub const STATE_PRECISION: u8 = 76;

/// The aggregate function; other types than integers and decimals are DataFusion's business.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckedSum {
    built_in: Sum,
}

/// `sum` as the session registers it.
pub fn checked_sum() -> AggregateUDF {
    AggregateUDF::from(CheckedSum::default())
}

/// Exact totals by group.
#[derive(Debug, Default)]
struct Totals {
    low: Vec<i128>,
    /// What did not fit `low`; empty as long as nothing did.
    carried: Vec<i256>,
    seen: Vec<bool>,
}

impl Totals {
    fn resize(&mut self, groups: usize) {
        self.low.resize(groups, 0);
        self.seen.resize(groups, false);
        if !self.carried.is_empty() {
            self.carried.resize(groups, i256::ZERO);
        }
    }

    #[inline]
    fn add(&mut self, group: usize, value: i128) {
        self.seen[group] = true;
        match self.low[group].checked_add(value) {
            Some(total) => self.low[group] = total,
            None => self.carry(group, i256::from_i128(value)),
        }
    }

    /// Moves a group's running total and one more value into 256 bits. 2^64 additions of
    /// 128-bit values cannot overflow those.
    #[cold]
    fn carry(&mut self, group: usize, value: i256) {
        if self.carried.is_empty() {
            self.carried.resize(self.low.len(), i256::ZERO);
        }
        let low = i256::from_i128(std::mem::take(&mut self.low[group]));
        self.carried[group] = self.carried[group].wrapping_add(low).wrapping_add(value);
    }

    fn add_state(&mut self, group: usize, value: i256) {
        match value.to_i128() {
            Some(small) => self.add(group, small),
            None => {
                self.seen[group] = true;
                self.carry(group, value);
            }
        }
    }

    fn total(&self, group: usize) -> Option<i256> {
        self.seen[group].then(|| {
            let low = i256::from_i128(self.low[group]);
            self.carried.get(group).map_or(low, |carried| carried.wrapping_add(low))
        })
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Option<i256>> {
        let count = match emit_to {
            EmitTo::All => self.low.len(),
            EmitTo::First(count) => count,
        };
        let totals = (0..count).map(|group| self.total(group)).collect();
        self.low.drain(..count);
        self.seen.drain(..count);
        if !self.carried.is_empty() {
            self.carried.drain(..count);
        }
        totals
    }

    fn bytes(&self) -> usize {
        self.low.capacity() * 16 + self.carried.capacity() * 32 + self.seen.capacity()
    }
}

fn state_array(totals: &[Option<i256>], scale: i8) -> Result<Decimal256Array> {
    let mut builder = Decimal256Builder::with_capacity(totals.len());
    totals.iter().for_each(|total| builder.append_option(*total));
    Ok(builder.finish().with_precision_and_scale(STATE_PRECISION, scale)?)
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        self.built_in.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.built_in.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match Shape::of(&args) {
            Some(shape) if args.is_distinct => Ok(Box::new(DistinctSum::new(shape))),
            Some(shape) => Ok(Box::new(SumAccumulator::new(shape))),
            None => self.built_in.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match checked_scale(args.return_type()) {
            Some(_) if args.is_distinct => {
                Ok(sum_distinct::state_fields(args.name, &args.input_fields[0]))
            }
            Some(scale) => Ok(vec![Arc::new(Field::new(
                format_state_name(args.name, "sum"),
                DataType::Decimal256(STATE_PRECISION, scale),
                true,
            ))]),
            None => self.built_in.state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.built_in.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match Shape::of(&args) {
            Some(shape) => Ok(Box::new(GroupedSum { shape, totals: Totals::default() })),
            None => self.built_in.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match Shape::of(&args) {
            Some(shape) if !args.is_distinct => Ok(Box::new(SumAccumulator::new(shape))),
            _ => self.built_in.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.built_in.set_monotonicity(data_type)
    }
}

/// One total; rows can be taken out again, for window frames.
#[derive(Debug)]
struct SumAccumulator {
    shape: Shape,
    total: i256,
    values: u64,
}

impl SumAccumulator {
    fn new(shape: Shape) -> Self {
        Self { shape, total: i256::ZERO, values: 0 }
    }

    fn current(&self) -> Option<i256> {
        (self.values > 0).then_some(self.total)
    }

    fn batch_total(values: &ArrayRef) -> Result<(i256, u64)> {
        let mut totals = Totals::default();
        totals.resize(1);
        for_each_value(values, |_, value| totals.add(0, value))?;
        let count = (values.len() - values.null_count()) as u64;
        Ok((totals.total(0).unwrap_or(i256::ZERO), count))
    }
}

impl Accumulator for SumAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (total, count) = Self::batch_total(&values[0])?;
        self.total = self.total.wrapping_add(total);
        self.values += count;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (total, count) = Self::batch_total(&values[0])?;
        self.total = self.total.wrapping_sub(total);
        self.values -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&result_array(&[self.current()], &self.shape)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Decimal256(self.current(), STATE_PRECISION, self.shape.scale)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for total in states[0].as_primitive::<Decimal256Type>().iter().flatten() {
            self.total = self.total.wrapping_add(total);
            self.values += 1;
        }
        Ok(())
    }
}

/// Totals of many groups.
struct GroupedSum {
    shape: Shape,
    totals: Totals,
}

impl GroupsAccumulator for GroupedSum {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.totals.resize(total_num_groups);
        let totals = &mut self.totals;
        match opt_filter {
            None => for_each_value(&values[0], |row, value| totals.add(group_indices[row], value)),
            Some(filter) => for_each_value(&values[0], |row, value| {
                if filter.is_valid(row) && filter.value(row) {
                    totals.add(group_indices[row], value);
                }
            }),
        }
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        result_array(&self.totals.take(emit_to), &self.shape)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(state_array(&self.totals.take(emit_to), self.shape.scale)?)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.totals.resize(total_num_groups);
        for (row, total) in values[0].as_primitive::<Decimal256Type>().iter().enumerate() {
            if let Some(total) = total {
                self.totals.add_state(group_indices[row], total);
            }
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let mut totals = vec![None; values[0].len()];
        for_each_value(&values[0], |row, value| {
            if opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                totals[row] = Some(i256::from_i128(value));
            }
        })?;
        Ok(vec![Arc::new(state_array(&totals, self.shape.scale)?)])
    }

    fn size(&self) -> usize {
        self.totals.bytes()
    }
}
