//! Window functions whose reader drops rows by their ranks: the stage is told the largest one that is wanted.
//!
//! ```text
//! stage 0: sales ─► rank() by region                        stage 0: sales ─► rank() by region, up to rank 10
//! stage 1: stage 0 ─► filter rank <= 10 ─► rows    ───►     stage 1: stage 0 ─► filter rank <= 10 ─► rows
//! ```
//!
//! The filter stays: what the stage leaves out is up to the processor.

use crate::expr::{CompareOp, Expr};
use crate::pipeline::{Input, Pipeline, Sink, Step};
use crate::program::Program;
use crate::scalar::Value;
use crate::windows::{FrameEnd, WindowFunction, Windows};

/// The largest rank that is told to a stage of windows.
const FIRST_MAX: u64 = 1 << 16;

impl Program {
    /// The same program where stages of windows know which rows the one that reads them drops by their numbers or ranks.
    #[must_use]
    pub fn with_first_of_partitions(mut self) -> Self {
        for number in 0..self.stages.len() {
            let Sink::Windows(windows) = &self.stages[number].sink else { continue };
            let readers = self.all().filter(|stage| stage.source.input.stages().contains(&number));
            let wanted = readers.map(|reader| match reader.source.input {
                Input::Stage(_) => windows.first_wanted(reader),
                _ => None,
            });
            // Of the whole partition all rows are looked at.
            let is_asked =
                !windows.order.is_empty() && windows.looks_until() != FrameEnd::Partition;
            let wanted = wanted.collect::<Option<Vec<u64>>>().filter(|_| is_asked);
            let first = wanted.and_then(|wanted| wanted.into_iter().max());
            if let Sink::Windows(windows) = &mut self.stages[number].sink {
                windows.first = first;
            }
        }
        self
    }
}

impl Windows {
    /// The largest rank that a reader wants, if the filters that come first tell.
    fn first_wanted(&self, reader: &Pipeline) -> Option<u64> {
        let filters = reader.steps.iter().map_while(|step| match step {
            Step::Filter(condition) => Some(condition.clone().conjuncts()),
            _ => None,
        });
        let bounds = filters.flatten().filter_map(|condition| {
            let Expr::Compare { op, left, right } = condition else { return None };
            let (Expr::Register { index, .. }, Expr::Literal(bound)) = (&*left, &*right) else {
                return None;
            };
            let output = *reader.source.ordinals.get(*index)?;
            let call = self.calls.get(output.checked_sub(self.columns.len())?)?;
            let is_number =
                matches!(call.function, WindowFunction::RowNumber | WindowFunction::Rank);
            let bound = match bound.value {
                Value::Int(bound) if is_number => bound,
                _ => return None,
            };
            let bound = match op {
                CompareOp::Lt => bound.checked_sub(1)?,
                CompareOp::Le | CompareOp::Eq => bound,
                _ => return None,
            };
            u64::try_from(bound.max(0)).ok()
        });
        bounds.min().filter(|bound| *bound <= FIRST_MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pipeline::{Probe, Source};
    use crate::windows::{ColumnCall, RowOf, WindowCall};
    use crate::{AggregateFunction, DataType, Field, NamedExpr, OnOverflow, OrderKey, Scalar};

    fn source(input: Input) -> Source {
        let column = |name| Field::new(name, DataType::Int64, true);
        Source::of_stage(input, "t", ["a", "b", "c"].map(column).to_vec())
    }

    /// Functions by `a` in the order of `b`, over some columns of the table.
    fn windows(read: &[usize], functions: Vec<WindowFunction>) -> Pipeline {
        let source = source(Input::Table(0));
        let all = source.all_columns();
        let columns: Vec<NamedExpr> = read.iter().map(|&at| all[at].clone()).collect();
        let place = |at: usize| read.iter().position(|other| *other == at).unwrap();
        let order = vec![OrderKey { column: place(1), descending: true, nulls_first: false }];
        let call = |function| WindowCall { name: "w".into(), function };
        let calls = functions.into_iter().map(call).collect();
        let partition = vec![place(0)];
        let sink = Sink::Windows(Windows { columns, partition, order, calls, first: None });
        Pipeline { source, steps: vec![], sink }
    }

    /// The rows of a stage for which its output column is within a bound.
    fn reader(stage: usize, of: &Pipeline, column: usize, op: CompareOp, bound: i64) -> Pipeline {
        let columns = of.sink.output().unwrap();
        let source = Source::of_stage(Input::Stage(stage), "w", columns);
        let scalar = Scalar::int(source.columns[column].data_type.clone(), bound.into());
        let filter = Expr::compare(op, source.register(column), Expr::Literal(scalar));
        let columns = source.all_columns();
        let steps = vec![Step::Filter(filter)];
        Pipeline { source, steps, sink: Sink::Rows { columns, limit: None } }
    }

    fn first_of(
        functions: Vec<WindowFunction>,
        column: usize,
        op: CompareOp,
        bound: i64,
    ) -> Option<u64> {
        let stage = windows(&[0, 1], functions);
        let program = Program::new(vec![stage.clone()], reader(0, &stage, column, op, bound));
        let program = program.with_first_of_partitions();
        program.validate().unwrap();
        let Sink::Windows(windows) = &program.stages[0].sink else { panic!() };
        windows.first
    }

    fn count(until: FrameEnd) -> WindowFunction {
        let function = AggregateFunction::Count;
        let (result, on_overflow) = (DataType::Int64, OnOverflow::Error);
        let call = ColumnCall { function, argument: Some(1), filter: None, result, on_overflow };
        WindowFunction::Aggregate { call, until }
    }

    #[test]
    fn rows_that_the_reader_drops_by_their_ranks_are_not_wanted() {
        use WindowFunction::{DenseRank, Rank, RowNumber};
        assert_eq!(first_of(vec![Rank], 2, CompareOp::Le, 3), Some(3));
        assert_eq!(first_of(vec![count(FrameEnd::Row), RowNumber], 3, CompareOp::Lt, 3), Some(2));
        assert_eq!(first_of(vec![Rank], 2, CompareOp::Eq, 0), Some(0));
        // Another order, another column, and numbers of which many rows have the same.
        assert_eq!(first_of(vec![Rank], 2, CompareOp::Ge, 3), None);
        assert_eq!(first_of(vec![Rank], 1, CompareOp::Le, 3), None);
        assert_eq!(first_of(vec![DenseRank], 2, CompareOp::Le, 3), None);
        assert_eq!(first_of(vec![Rank], 2, CompareOp::Le, 1 << 20), None);
        // Another call is of all rows.
        assert_eq!(first_of(vec![Rank, count(FrameEnd::Partition)], 2, CompareOp::Le, 3), None);
        let lag = WindowFunction::Value { column: 0, of: RowOf::Before(1) };
        assert_eq!(first_of(vec![Rank, lag], 2, CompareOp::Le, 3), None);
    }

    #[test]
    fn of_several_readers_the_one_that_wants_most_counts() {
        let stage = windows(&[0, 1], vec![WindowFunction::Rank]);
        let mut build = reader(0, &stage, 2, CompareOp::Le, 7);
        let (keys, payload) = (build.source.all_columns(), vec![]);
        build.sink = Sink::Build { keys, payload };
        let first = |build: Pipeline| {
            let answer = reader(0, &stage, 2, CompareOp::Le, 3);
            let program = Program::new(vec![stage.clone(), build], answer);
            let Sink::Windows(windows) = &program.with_first_of_partitions().stages[0].sink else {
                panic!()
            };
            windows.first
        };
        assert_eq!(first(build.clone()), Some(7));
        build.steps.clear();
        assert_eq!(first(build), None);
    }

    #[test]
    fn windows_over_the_same_partitions_are_one_stage() {
        use WindowFunction::{Rank, RowNumber};
        let few = windows(&[0, 1], vec![Rank, count(FrameEnd::Row)]);
        let other = windows(&[2, 1, 0], vec![RowNumber, Rank]);
        let build = |stage: usize, of: &Pipeline| {
            let mut build = reader(stage, of, 0, CompareOp::Ge, 0);
            let mut keys = build.source.all_columns();
            let payload = keys.split_off(1);
            build.sink = Sink::Build { keys, payload };
            build
        };
        let stages = vec![few.clone(), build(0, &few), other.clone()];
        let probing = |mut answer: Pipeline| {
            let keys = vec![answer.source.register(0)];
            answer.steps.push(Step::Probe(Probe::semi(1, keys)));
            answer
        };
        let answer = probing(reader(2, &other, 3, CompareOp::Le, 1));
        let program = Program::new(stages, answer).with_shared_groups();
        program.validate().unwrap();
        assert_eq!(program.stages.len(), 2);
        let Sink::Windows(both) = &program.stages[0].sink else { panic!() };
        assert_eq!(both.to_string(), "rank(), count(b) up to the row, row_number()");
        // Columns a, b and c, then the calls.
        assert_eq!(program.stages[1].source.ordinals, [0, 1, 3, 4]);
        assert_eq!(program.answer.source.ordinals, [2, 1, 0, 5, 3]);
        assert_eq!(program.answer.source.input, Input::Stage(0));
        let mut ascending = other;
        let Sink::Windows(windows) = &mut ascending.sink else { panic!() };
        windows.order[0].descending = false;
        let answer = probing(reader(2, &ascending, 3, CompareOp::Le, 1));
        let program = Program::new(vec![few.clone(), build(0, &few), ascending], answer);
        assert_eq!(program.clone().with_shared_groups(), program);
    }

    #[test]
    fn windows_read_columns_that_are_there() {
        let sink_of = |change: &dyn Fn(&mut Windows)| {
            let mut stage = windows(&[0, 1], vec![count(FrameEnd::Peers)]);
            let Sink::Windows(windows) = &mut stage.sink else { panic!() };
            change(windows);
            Program::new(vec![], stage).validate().map_err(|error| error.to_string())
        };
        assert_eq!(sink_of(&|_| {}), Ok(()));
        let outside = sink_of(&|windows| windows.partition.push(2)).unwrap_err();
        assert!(outside.contains("windows over column 2 of 2"), "{outside}");
        let without = sink_of(&|windows| (windows.partition.clear(), windows.order.clear()).0);
        assert!(without.unwrap_err().contains("without partitions and without an order"));
        let first = sink_of(&|windows| {
            windows.first = Some(1);
            windows.order.clear();
        });
        assert!(first.unwrap_err().contains("of which all rows are read"));
    }
}
