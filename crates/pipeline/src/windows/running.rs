//! Aggregates of the rows from a partition's first one to the end of a row's frame.

use headrace_columns::column::Column;
use headrace_columns::text::Texts;
use headrace_ir::{AggregateCall, AggregateOutput, Expr, Field, FrameEnd, WindowFunction, Windows};

use super::begins::Begins;
use super::results::Results;
use crate::bind::{BindOptions, Binder, source_register};
use crate::bound::{Accumulator, AccumulatorKind, BoundCall, BoundSink, RegisterInfo};
use crate::cpu::aggregate::{Groups, update};
use crate::cpu::context::Context;
use crate::source::SourceColumn;
use crate::state::{AccumulatorState, finish_calls};
use crate::{ExecError, WhyNot};

/// The aggregates whose frames end alike.
pub struct Running {
    until: FrameEnd,
    /// The columns that they read, which are the registers.
    columns: Vec<usize>,
    registers: Vec<RegisterInfo>,
    accumulators: Vec<Accumulator>,
    calls: Vec<BoundCall>,
    /// Of each call, which of the stage it is.
    places: Vec<usize>,
    /// What the rows of the last partition have added up to.
    carried: Vec<AccumulatorState>,
}

impl Running {
    /// Those of a stage.
    pub fn of(windows: &Windows, fields: &[Field], until: FrameEnd) -> Result<Self, WhyNot> {
        let aggregates = windows.calls.iter().enumerate().filter_map(|(place, call)| {
            let WindowFunction::Aggregate { call: of, until: end } = &call.function else {
                return None;
            };
            (*end == until).then_some((place, &call.name, of))
        });
        let aggregates: Vec<_> = aggregates.collect();
        let read = aggregates.iter().flat_map(|(_, _, of)| of.argument.iter().chain(&of.filter));
        let mut columns: Vec<usize> = read.copied().collect();
        columns.sort_unstable();
        columns.dedup();
        let register = |column: usize| {
            let Field { name, data_type, nullable } = fields[column].clone();
            let index = columns.partition_point(|other| *other < column);
            Expr::Register { index, data_type, nullable, name }
        };
        let calls: Vec<AggregateCall> =
            aggregates.iter().map(|(_, name, of)| of.over(name, register)).collect();
        let unknown = SourceColumn { dictionary: None, range: None, may_have_nulls: true };
        let registers = columns.iter().map(|&column| source_register(&fields[column], &unknown));
        let registers = registers.collect::<Result<Vec<_>, _>>()?;
        let binder = Binder::new(registers.clone(), u128::from(u64::MAX));
        let options = BindOptions::default();
        let bound = binder.aggregate(&[], &calls, AggregateOutput::Final, &options)?;
        let BoundSink::Aggregate { accumulators, calls, .. } = bound else {
            return Err(WhyNot::new("aggregates that are none"));
        };
        let places = aggregates.iter().map(|(place, _, _)| *place).collect();
        let carried = Vec::new();
        Ok(Self { until, columns, registers, accumulators, calls, places, carried })
    }

    /// Their results for rows that follow those before.
    pub fn evaluate(
        &mut self,
        begins: &[Begins],
        column: &dyn Fn(usize) -> Result<Column, ExecError>,
        results: &mut Results<'_>,
    ) -> Result<(), ExecError> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let (units, restarts) = units(begins, self.until)?;
        let columns = self.columns.iter().map(|&at| column(at)).collect::<Result<Vec<_>, _>>()?;
        let vectors = columns.iter().map(Column::vector).collect();
        let texts = Texts::new(None);
        let new = |accumulator| AccumulatorState::new(accumulator, restarts.len());
        let mut states: Vec<AccumulatorState> = self.accumulators.iter().map(new).collect();
        let groups = units.iter().map(|&unit| unit as usize).collect::<Vec<_>>();
        let mut context = Context::from_vectors(&self.registers, begins.len(), vectors, &texts);
        update(&mut context, &self.accumulators, &mut states, &Groups::Numbers(units))?;
        if self.until != FrameEnd::Partition {
            self.add_up(&mut states, &restarts)?;
        }
        results.put(&self.places, |rows| {
            finish_calls(&self.calls, &self.accumulators, &states, &groups[rows])
        })?;
        Ok(())
    }

    /// Adds each unit of rows to those of its partition before it.
    fn add_up(
        &mut self,
        states: &mut [AccumulatorState],
        restarts: &[bool],
    ) -> Result<(), ExecError> {
        let mut carried = Vec::with_capacity(states.len());
        for (index, (state, accumulator)) in states.iter_mut().zip(&self.accumulators).enumerate() {
            let smaller = accumulator.kind == AccumulatorKind::Min;
            if let (false, Some(before)) = (restarts[0], self.carried.get(index)) {
                state.fold(before, std::iter::once((0, 0)), smaller)?;
            }
            state.add_up(restarts, smaller);
            let mut last = AccumulatorState::new(accumulator, 1);
            last.fold(state, std::iter::once((0, restarts.len() - 1)), smaller)?;
            carried.push(last);
        }
        self.carried = carried;
        Ok(())
    }
}

/// The unit of each row, which all enter a frame together; and of each unit, whether a partition begins with it.
fn units(begins: &[Begins], until: FrameEnd) -> Result<(Vec<u32>, Vec<bool>), ExecError> {
    let begins_unit = match until {
        FrameEnd::Row => Begins::Nothing,
        FrameEnd::Peers => Begins::Peers,
        FrameEnd::Partition => Begins::Partition,
    };
    if u32::try_from(begins.len()).is_err() {
        return Err(ExecError::Internal("4 billion rows of one partition".into()));
    }
    let (mut units, mut restarts) = (Vec::with_capacity(begins.len()), Vec::new());
    for (row, &what) in begins.iter().enumerate() {
        if row == 0 || what >= begins_unit {
            restarts.push(what == Begins::Partition);
        }
        units.push(restarts.len() as u32 - 1);
    }
    Ok((units, restarts))
}
