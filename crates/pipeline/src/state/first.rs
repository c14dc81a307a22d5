//! Of finished groups the first by output columns, before anything else is made of the others.
//!
//! Each portion of merged groups keeps its first ones (`AggregateOutput::First`), column by column of the order,
//! and looks at the next column for ties alone; the planner's sort above does the rest. All ties are kept where the
//! order goes on by something that is no column, by codes, or after a float, whose zeros are equal here but not in
//! the planner's sort. Whether a total fits its type is still checked for all groups, unless its bounds prove it.

use std::cmp::Ordering;

use headrace_columns::column::Column;
use headrace_columns::column_in::append_array;
use headrace_columns::convert::integers;
use headrace_columns::repr::Repr;
use headrace_columns::vector::Vector;
use headrace_ir::{
    AggregateFunction, AggregateOutput, DataType, FirstGroups, OnOverflow, OrderKey,
};

use crate::ExecError;
use crate::bound::{Accumulator, Bound, BoundCall, BoundKey, BoundSink};
use crate::cpu::sorted::compare;
use crate::state::AccumulatorState;
use crate::state::finish::finish_calls;

/// Decimal digits of 64-bit numbers, at most.
const I64_DIGITS: i32 = 19;

/// What an aggregation is asked for whose sink wants the first of its groups.
pub(crate) struct Choice<'a> {
    keys: &'a [BoundKey],
    accumulators: &'a [Accumulator],
    calls: &'a [BoundCall],
    first: FirstGroups,
}

impl<'a> Choice<'a> {
    /// `None` where all groups are wanted, or where they are ordered by codes first.
    pub fn of(bound: &'a Bound) -> Option<Self> {
        let BoundSink::Aggregate { keys, accumulators, calls, output, .. } = &bound.sink else {
            return None;
        };
        let AggregateOutput::First(first) = output else { return None };
        let is_code = |key: &BoundKey| matches!(key.expr.repr, Repr::Code(_));
        let no_code = |column: usize| (!keys.get(column).is_some_and(is_code)).then_some(column);
        let mut first = first.clone().by_others(no_code)?;
        // Zeros of either sign tie here, but not for whoever sorts what comes out.
        let is_float = |key: &OrderKey| match key.column.checked_sub(keys.len()) {
            Some(call) => calls.get(call).is_some_and(|call| call.field.data_type.is_float()),
            None => keys[key.column].field.data_type.is_float(),
        };
        if let Some(float) = first.by.iter().position(is_float) {
            first.by.truncate(float + 1);
            first.with_ties = true;
        }
        Some(Self { keys, accumulators, calls, first })
    }

    /// How many groups are wanted.
    fn wanted(&self) -> usize {
        usize::try_from(self.first.groups).unwrap_or(usize::MAX).max(1)
    }

    /// Whether any of so many groups are not wanted.
    pub fn leaves_out(&self, groups: usize) -> bool {
        groups > self.wanted()
    }

    /// Those of some groups. `key_column`: values of a key, of some groups.
    pub fn among<'v>(
        &self,
        groups: &[u32],
        states: &[AccumulatorState],
        key_column: impl Fn(usize, &[u32]) -> Result<Vector<'v>, ExecError>,
    ) -> Result<Vec<u32>, ExecError> {
        for call in self.calls.iter().filter(|call| may_overflow(call, states)) {
            self.finished(call, states, groups)?;
        }
        let (mut chosen, mut tied, mut wanted) = (Vec::new(), groups.to_vec(), self.wanted());
        for by in &self.first.by {
            if tied.len() <= wanted {
                break;
            }
            let call = by.column.checked_sub(self.keys.len());
            let ranks = match call.and_then(|call| self.calls.get(call)) {
                Some(call) => ranks(by, &self.finished(call, states, &tied)?.vector(), wanted),
                None => ranks(by, &key_column(by.column, &tied)?, wanted),
            };
            let with = |rank| tied.iter().zip(&ranks).filter(move |(_, r)| **r == rank);
            chosen.extend(with(Ordering::Less).map(|(&group, _)| group));
            wanted -= with(Ordering::Less).count();
            tied = with(Ordering::Equal).map(|(&group, _)| group).collect();
        }
        if !self.first.with_ties {
            tied.truncate(wanted);
        }
        chosen.extend(tied);
        Ok(chosen)
    }

    /// Results of a call.
    fn finished(
        &self,
        call: &BoundCall,
        states: &[AccumulatorState],
        groups: &[u32],
    ) -> Result<Column, ExecError> {
        let numbers: Vec<usize> = groups.iter().map(|&group| group as usize).collect();
        let repr = Repr::of(&call.field.data_type)
            .ok_or_else(|| ExecError::Internal(format!("groups ordered by {}", call.field.name)))?;
        let mut values = Column::new(repr)?;
        finish_calls(std::slice::from_ref(call), self.accumulators, states, &numbers)?
            .iter()
            .try_for_each(|array| append_array(&mut values, array, &call.field))?;
        Ok(values)
    }
}

/// Where each row of a column is beside the last of the first `wanted` rows.
fn ranks(by: &OrderKey, column: &Vector<'_>, wanted: usize) -> Vec<Ordering> {
    if let (None, false, Some(integers)) =
        (&column.validity, column.constant, integers(&column.data))
    {
        // All bits turned over, the largest is the smallest.
        let turn = if by.descending { -1 } else { 0 };
        let keys: Vec<i64> = integers.iter().map(|value| value ^ turn).collect();
        let (_, &mut last, _) = keys.clone().select_nth_unstable(wanted - 1);
        return keys.iter().map(|key| key.cmp(&last)).collect();
    }
    let (order, columns) = ([*by], std::slice::from_ref(column));
    let before = |a: &u32, b: &u32| compare(&order, (columns, *a), (columns, *b));
    let mut rows: Vec<u32> = (0..column.data.count() as u32).collect();
    let (_, &mut last, _) = rows.select_nth_unstable_by(wanted - 1, before);
    (0..column.data.count() as u32).map(|row| before(&row, &last)).collect()
}

/// Whether a result may not fit its type.
fn may_overflow(call: &BoundCall, states: &[AccumulatorState]) -> bool {
    let is_total = matches!(call.function, AggregateFunction::Sum | AggregateFunction::Avg);
    let fits_i64 = matches!(states[call.value], AccumulatorState::SumI64(_));
    let fits_i128 = fits_i64 || matches!(states[call.value], AccumulatorState::SumI128(_));
    let is_exact = match (&call.field.data_type, &call.argument_type) {
        (DataType::Int64, _) => fits_i64,
        (DataType::Decimal128 { precision, scale }, Some(argument)) => {
            let shift = match argument {
                DataType::Decimal128 { scale: from, .. } => scale.saturating_sub(*from),
                _ => *scale,
            };
            fits_i64 && i32::from(*precision) >= I64_DIGITS + i32::from(shift)
        }
        (result, Some(argument)) => argument.is_float() || (result.is_float() && fits_i128),
        (_, None) => true,
    };
    let wraps = call.function == AggregateFunction::Sum && call.on_overflow == OnOverflow::Wrap;
    is_total && !is_exact && !wraps
}
