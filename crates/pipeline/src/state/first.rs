//! Of finished groups the first by an output column, before anything else is made of the others.

use headrace_ir::{AggregateFunction, AggregateOutput, OrderKey};

use crate::ExecError;
use crate::bound::{Accumulator, Bound, BoundCall, BoundKey, BoundSink, Repr};
use crate::column::Column;
use crate::column_in::append_array;
use crate::cpu::sorted::compare;
use crate::cpu::vector::Vector;
use crate::state::AccumulatorState;
use crate::state::finish::finish_calls;

/// What an aggregation is asked for whose sink wants the first of its groups.
pub(crate) struct FirstGroups<'a> {
    keys: &'a [BoundKey],
    accumulators: &'a [Accumulator],
    calls: &'a [BoundCall],
    by: OrderKey,
    wanted: usize,
}

impl<'a> FirstGroups<'a> {
    /// `None` where all groups are wanted, or where they are ordered by codes, whose order is not that of their texts.
    pub fn of(bound: &'a Bound) -> Option<Self> {
        let BoundSink::Aggregate { keys, accumulators, calls, output, .. } = &bound.sink else {
            return None;
        };
        let AggregateOutput::First { by, groups } = *output else { return None };
        let is_code = |key: &BoundKey| matches!(key.expr.repr, Repr::Code(_));
        let by_codes = keys.get(by.column).is_some_and(is_code);
        let wanted = usize::try_from(groups).unwrap_or(usize::MAX).max(1);
        (!by_codes).then_some(Self { keys, accumulators, calls, by, wanted })
    }

    /// Whether any of so many groups are not wanted.
    pub fn leaves_out(&self, groups: usize) -> bool {
        groups > self.wanted
    }

    /// The key that groups are ordered by, if it is one.
    pub fn key(&self) -> Option<usize> {
        (self.by.column < self.keys.len()).then_some(self.by.column)
    }

    /// Those of some groups. `key`: [`Self::key`] of each.
    pub fn among(
        &self,
        groups: &[u32],
        key: Option<Vector<'_>>,
        states: &[AccumulatorState],
    ) -> Result<Vec<u32>, ExecError> {
        let numbers: Vec<usize> = groups.iter().map(|&group| group as usize).collect();
        let finished =
            |call| finish_calls(std::slice::from_ref(call), self.accumulators, states, &numbers);
        let call = self.by.column.checked_sub(self.keys.len()).and_then(|i| self.calls.get(i));
        for call in self.calls.iter().filter(|call| may_overflow(call)) {
            finished(call)?;
        }
        let column;
        let by = match (key, call) {
            (Some(key), _) => key,
            (None, Some(call)) => {
                let repr = Repr::of(&call.field.data_type);
                let repr = repr.ok_or_else(|| internal(&call.field.name))?;
                let mut values = Column::new(repr)?;
                finished(call)?
                    .iter()
                    .try_for_each(|a| append_array(&mut values, a, &call.field))?;
                column = values;
                column.vector()
            }
            (None, None) => return Err(internal("no column")),
        };
        let (order, by) = ([self.by], [by]);
        let before = |a: &u32, b: &u32| compare(&order, (&by, *a), (&by, *b));
        let mut rows: Vec<u32> = (0..groups.len() as u32).collect();
        let (_, &mut last, _) = rows.select_nth_unstable_by(self.wanted - 1, before);
        let is_wanted = |row: &u32| before(row, &last).is_le();
        let rows = (0..groups.len() as u32).filter(is_wanted);
        Ok(rows.map(|row| groups[row as usize]).collect())
    }
}

/// Whether a result may not fit its type.
fn may_overflow(call: &BoundCall) -> bool {
    let is_exact = call.argument_type.as_ref().is_some_and(|argument| !argument.is_float());
    matches!(call.function, AggregateFunction::Sum | AggregateFunction::Avg) && is_exact
}

fn internal(what: &str) -> ExecError {
    ExecError::Internal(format!("groups ordered by {what}"))
}
