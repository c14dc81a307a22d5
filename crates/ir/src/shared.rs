//! Equal stages as one: groups that a query asks for several times are made once.
//!
//! ```text
//! stage 0: returns ─► sum by customer, store            stage 0: returns ─► sum by customer, store
//! stage 1: stage 0 ─► mean by store                     stage 1: stage 0 ─► mean by store
//! stage 2: stage 1 ─► build                     ───►    stage 2: stage 1 ─► build
//! stage 3: returns ─► sum by customer, store            stage 3: stage 0 ─► probe stage 2 ..
//! stage 4: stage 3 ─► probe stage 2 ..
//! ```
//!
//! Stages that differ in the calls alone are one with the calls of both, and the columns that both read. So are window
//! functions over the same partitions of the same rows. Rows are not shared:
//! they are passed on while they come. Nor are builds, though groups of rows that probe equal ones are equal: a build that one stage probes may be divided if
//! it does not fit memory, a build that several probe may not.

use crate::aggregate::{AggregateCall, AggregateOutput};
use crate::expr::{Expr, NamedExpr, Register};
use crate::pipeline::{Input, Pipeline, Sink, Source};
use crate::program::Program;
use crate::windows::{WindowCall, Windows};

impl Program {
    /// The same with one stage in place of several that make the same groups.
    #[must_use]
    pub fn with_shared_groups(self) -> Self {
        let shared = self.clone().sharing();
        if shared.validate().is_ok() { shared } else { self }
    }

    fn sharing(mut self) -> Self {
        // Of each stage the first that is equal to it; builds that are equal stay several.
        let mut firsts: Vec<usize> = Vec::with_capacity(self.stages.len());
        // A union alone reads its members.
        let is_member: Vec<bool> = (0..self.stages.len()).map(|it| self.is_member(it)).collect();
        for number in 0..self.stages.len() {
            if is_member[number] {
                firsts.push(number);
                continue;
            }
            let stage = self.over_firsts(number, &firsts);
            let is_first = |&earlier: &usize| firsts[earlier] == earlier && !is_member[earlier];
            let found = (0..number).filter(is_first).find_map(|earlier| {
                let other = self.over_firsts(earlier, &firsts);
                let both = other.groups_with(&stage);
                (both.is_some() || other == stage).then_some((earlier, both))
            });
            firsts.push(found.as_ref().map_or(number, |(earlier, _)| *earlier));
            if let Some((earlier, Some(both))) = found {
                self.share(earlier, number, both);
            }
        }
        self.without_unread()
    }

    /// Whether a union reads a stage.
    pub(crate) fn is_member(&self, number: usize) -> bool {
        let is_union = |source: &&Source| matches!(source.input, Input::Union(_));
        self.sources().filter(is_union).any(|source| source.input.stages().contains(&number))
    }

    /// A stage that reads and probes the first of equal stages.
    fn over_firsts(&self, number: usize, firsts: &[usize]) -> Pipeline {
        let mut stage = self.stages[number].clone();
        stage.renumber(&|read| firsts.get(read).copied().unwrap_or(read));
        stage
    }

    /// Lets an earlier stage do for another.
    fn share(&mut self, earlier: usize, number: usize, both: Both) {
        let stage = &self.stages[earlier];
        // It goes on reading and probing what it does.
        let source = Source { input: stage.source.input.clone(), ..both.source };
        let mut stage = stage.reading(&source);
        stage.sink = both.sink;
        self.stages[earlier] = stage;
        for (read, columns) in [(earlier, both.own), (number, both.others)] {
            let read = Input::Stage(read);
            for source in self.sources_mut().filter(|source| source.input == read) {
                for ordinal in &mut source.ordinals {
                    // None: the program is not valid, and stays what it is.
                    *ordinal = columns.get(*ordinal).copied().unwrap_or(*ordinal);
                }
            }
        }
        let read = Input::Stage(number);
        for source in self.sources_mut().filter(|source| source.input == read) {
            source.input = Input::Stage(earlier);
        }
    }

    /// The same without stages that no other reads or probes.
    pub(crate) fn without_unread(mut self) -> Self {
        for number in (0..self.stages.len()).rev() {
            let is_read = (number + 1..=self.stages.len())
                .any(|reader| self.inputs(reader).any(|input| input == number));
            if !is_read {
                self.stages.remove(number);
                for stage in self.all_mut() {
                    stage.renumber(&|read| read - usize::from(read > number));
                }
            }
        }
        self
    }
}

/// What two stages make as one.
struct Both {
    /// The columns that both read.
    source: Source,
    sink: Sink,
    /// Of each column of the first stage, which it is.
    own: Vec<usize>,
    /// The same of the other stage.
    others: Vec<usize>,
}

impl Pipeline {
    /// The groups of this stage and of another, if these are of the same rows by the same keys; windows likewise.
    fn groups_with(&self, other: &Self) -> Option<Both> {
        let source = self.source.with_columns_of(&other.source)?;
        let (stage, other) = (self.reading(&source), other.reading(&source));
        if stage.steps != other.steps {
            return None;
        }
        if let (Sink::Windows(own), Sink::Windows(others)) = (&stage.sink, &other.sink) {
            return own.with(others, source);
        }
        let (own, others) = (stage.sink.groups()?, other.sink.groups()?);
        if (own.keys, own.sets) != (others.keys, others.sets) {
            return None;
        }
        let first = own.keys.len() + usize::from(!own.sets.is_empty());
        let mut calls = own.calls.to_vec();
        let mut columns: Vec<usize> = (0..first).collect();
        for call in others.calls {
            columns.push(first + place_of(&mut calls, call.clone()));
        }
        // Distinct calls become stages that have no place for some others.
        if calls.len() > own.calls.len() && calls.iter().any(AggregateCall::is_distinct) {
            return None;
        }
        let own = (0..first + own.calls.len()).collect();
        let mut sink = stage.sink;
        if let Sink::Aggregate { calls: of_both, sets, output, .. } = &mut sink {
            if let AggregateOutput::OfNone(_) = output {
                *output = AggregateOutput::of_sets(sets, &calls);
            }
            *of_both = calls;
        }
        Some(Both { source, sink, own, others: columns })
    }

    /// The same over a source that has other columns, and all that are read.
    pub(crate) fn reading(&self, source: &Source) -> Self {
        let read = self.source.columns.len();
        let place = |register: Register| match self.source.ordinals.get(register) {
            Some(ordinal) => source.ordinals.iter().position(|other| other == ordinal),
            None => Some(register - read + source.columns.len()),
        };
        let mut stage = Self { source: source.clone(), ..self.clone() };
        for expr in stage.exprs_mut() {
            expr.replace(&mut |e| match e {
                Expr::Register { index, .. } => place(*index).map(|index| e.moved_to(index)),
                _ => None,
            });
        }
        stage
    }
}

/// The place of something among others, once it is one of them.
fn place_of<T: PartialEq>(all: &mut Vec<T>, one: T) -> usize {
    all.iter().position(|own| *own == one).unwrap_or_else(|| {
        all.push(one);
        all.len() - 1
    })
}

impl Windows {
    /// These and others over the same partitions of the rows of a source, in the same order.
    fn with(&self, others: &Self, source: Source) -> Option<Both> {
        // What the readers of each drop is asked again.
        let mut both = Self { first: None, ..self.clone() };
        let mut columns = Vec::with_capacity(others.columns.len());
        for column in &others.columns {
            let known = self.columns.iter().position(|own| own.expr == column.expr);
            columns.push(known.unwrap_or_else(|| place_of(&mut both.columns, column.clone())));
        }
        let others = others.over(&columns);
        if (&self.partition, &self.order) != (&others.partition, &others.order) {
            return None;
        }
        let first = both.columns.len();
        let own = (0..self.columns.len()).chain((0..self.calls.len()).map(|call| first + call));
        for WindowCall { name, function } in others.calls {
            let known = self.calls.iter().position(|own| own.function == function);
            let call = WindowCall { name, function };
            columns.push(first + known.unwrap_or_else(|| place_of(&mut both.calls, call)));
        }
        let own = own.collect();
        Some(Both { source, sink: Sink::Windows(both), own, others: columns })
    }
}

impl Source {
    /// The same with the columns of another source of the same rows; `None`: the rows are others.
    fn with_columns_of(&self, other: &Self) -> Option<Self> {
        if (&self.input, &self.table) != (&other.input, &other.table) {
            return None;
        }
        let mut all = self.clone();
        for (column, ordinal) in other.columns.iter().zip(&other.ordinals) {
            match self.ordinals.iter().position(|own| own == ordinal) {
                Some(place) if self.columns[place] != *column => return None,
                Some(_) => {}
                None => {
                    all.columns.push(column.clone());
                    all.ordinals.push(*ordinal);
                }
            }
        }
        Some(all)
    }
}

impl Sink {
    /// Of groups that are results, what makes them.
    fn groups(&self) -> Option<Groups<'_>> {
        match self {
            Self::Aggregate {
                keys,
                sets,
                calls,
                output: AggregateOutput::Final | AggregateOutput::OfNone(_),
            } => Some(Groups { keys, sets, calls }),
            _ => None,
        }
    }
}

/// Keys, grouping sets and calls.
struct Groups<'a> {
    keys: &'a [NamedExpr],
    sets: &'a [Vec<usize>],
    calls: &'a [AggregateCall],
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::aggregate::AggregateFunction;
    use crate::pipeline::{Probe, Step};
    use crate::{DataType, Field};

    fn source(input: Input) -> Source {
        let column = |name| Field::new(name, DataType::Int64, true);
        Source::of_stage(input, "t", ["a", "b", "c"].map(column).to_vec())
    }

    /// Calls of a column by `a`.
    fn groups(of: &[(AggregateFunction, usize)]) -> Pipeline {
        let source = source(Input::Table(0));
        let key = NamedExpr { name: "a".into(), expr: source.register(0) };
        let call = |&(function, column)| {
            AggregateCall::new("call", function, Some(source.register(column)), DataType::Int64)
        };
        let calls = of.iter().map(call).collect();
        Pipeline { sink: Sink::aggregate(vec![key], calls), steps: vec![], source }
    }

    fn rows(of: usize) -> Pipeline {
        let source = source(Input::Stage(of));
        let columns = source.all_columns();
        Pipeline { source, steps: vec![], sink: Sink::Rows { columns, limit: None } }
    }

    fn build(of: usize) -> Pipeline {
        let columns = source(Input::Stage(of)).all_columns();
        let (keys, payload) = (columns[..1].to_vec(), columns[1..].to_vec());
        Pipeline { sink: Sink::Build { keys, payload }, ..rows(of) }
    }

    fn probing(build: usize, mut stage: Pipeline) -> Pipeline {
        let keys = vec![stage.source.register(0)];
        stage.steps.push(Step::Probe(Probe::semi(build, keys)));
        stage
    }

    #[test]
    fn groups_of_the_same_rows_are_made_once_with_the_calls_of_all() {
        use AggregateFunction::{Max, Min, Sum};
        let few = groups(&[(Sum, 1), (Min, 2)]);
        let other = groups(&[(Max, 1), (Sum, 1)]);
        let answer = probing(1, rows(2));
        let program = Program::new(vec![few, build(0), other], answer).with_shared_groups();
        program.validate().unwrap();
        assert!(program.is_shared(0));
        assert_eq!(program.stages.len(), 2);
        assert_eq!(program.stages[0], groups(&[(Sum, 1), (Min, 2), (Max, 1)]));
        assert_eq!(program.stages[1].source.ordinals, [0, 1, 2]);
        assert_eq!(program.answer.source.ordinals, [0, 3, 1]);
        assert_eq!(program.answer.source.input, Input::Stage(0));
    }

    #[test]
    fn what_reads_equal_groups_is_equal_in_turn() {
        use AggregateFunction::Sum;
        let first = groups(&[(Sum, 1), (Sum, 2)]);
        let over = |stage| Pipeline { source: source(Input::Stage(stage)), ..first.clone() };
        let stages = vec![first.clone(), over(0), build(1), first.clone(), over(3)];
        let program = Program::new(stages, probing(2, rows(4))).with_shared_groups();
        program.validate().unwrap();
        assert_eq!(program.stages.len(), 3);
        assert_eq!(program.answer.source.input, Input::Stage(1));
        assert_eq!((program.is_shared(0), program.is_shared(1)), (false, true));
    }

    #[test]
    fn groups_of_rows_that_probe_equal_builds_are_equal_and_builds_stay_several() {
        use AggregateFunction::Sum;
        let build = || Pipeline { source: source(Input::Table(1)), ..build(0) };
        let first = groups(&[(Sum, 1), (Sum, 2)]);
        let stages = vec![
            build(),
            probing(0, first.clone()),
            build(),
            probing(2, first.clone()),
            build(),
            super::tests::build(1),
        ];
        let answer = probing(4, probing(5, rows(3)));
        let program = Program::new(stages, answer).with_shared_groups();
        program.validate().unwrap();
        let expected = vec![build(), probing(0, first), build(), super::tests::build(1)];
        assert_eq!(program.stages, expected);
        assert_eq!(program.answer, probing(2, probing(3, rows(1))));
    }

    #[test]
    fn a_stage_that_does_for_another_reads_the_columns_of_both() {
        use AggregateFunction::{Max, Sum};
        // Reads `c` and `a`, and sums what it computes of them.
        let mut other = groups(&[(Max, 1), (Sum, 1)]);
        (other.source.columns, other.source.ordinals) = {
            let columns = &other.source.columns;
            (vec![columns[2].clone(), columns[0].clone()], vec![2, 0])
        };
        let (c, a) = (other.source.register(0), other.source.register(1));
        let mut few = groups(&[(Sum, 1)]);
        few.source.columns.truncate(2);
        few.source.ordinals.truncate(2);
        if let Sink::Aggregate { keys, calls, .. } = &mut other.sink {
            keys[0].expr = a;
            calls.iter_mut().for_each(|call| call.argument = Some(c.clone()));
        }
        let program = Program::new(vec![few, build(0), other], probing(1, rows(2)));
        let program = program.with_shared_groups();
        program.validate().unwrap();
        assert_eq!(program.stages[0], groups(&[(Sum, 1), (Max, 2), (Sum, 2)]));
        assert_eq!(program.answer.source.ordinals, [0, 2, 3]);
    }

    #[test]
    fn a_stage_that_does_for_another_probes_what_it_did() {
        use AggregateFunction::{Max, Sum};
        let build = || Pipeline { source: source(Input::Table(1)), ..build(0) };
        let (few, other) = (groups(&[(Sum, 1), (Sum, 2)]), groups(&[(Max, 1), (Max, 2)]));
        // The first build is probed by the answer alone.
        let stages = vec![
            build(),
            build(),
            probing(1, few),
            build(),
            probing(3, other),
            super::tests::build(2),
        ];
        let answer = probing(0, probing(5, rows(4)));
        let program = Program::new(stages, answer).with_shared_groups();
        program.validate().unwrap();
        let probed: Vec<Vec<usize>> =
            program.all().map(|s| s.probes().map(|p| p.build).collect()).collect();
        assert_eq!(probed, [vec![], vec![], vec![1], vec![], vec![3, 0]]);
    }

    #[test]
    fn other_rows_keys_and_distinct_calls_stay_apart() {
        use AggregateFunction::{Count, Sum};
        let first = groups(&[(Sum, 1)]);
        let mut filtered = first.clone();
        filtered
            .steps
            .push(Step::Compute(NamedExpr { name: "x".into(), expr: filtered.source.register(1) }));
        let mut keyed = first.clone();
        if let Sink::Aggregate { keys, .. } = &mut keyed.sink {
            keys[0].expr = keyed.source.register(2);
        }
        let mut distinct = groups(&[(Count, 2)]);
        if let Sink::Aggregate { calls, .. } = &mut distinct.sink {
            calls[0].distinct = true;
        }
        for other in [filtered, keyed, distinct] {
            let stages = vec![first.clone(), build(0), other];
            let program = Program::new(stages, probing(1, rows(2)));
            assert_eq!(program.clone().with_shared_groups(), program);
        }
    }
}
