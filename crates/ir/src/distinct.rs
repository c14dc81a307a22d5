//! DISTINCT as stages: a grouping by the keys and the argument, and a grouping of its groups by the
//! keys alone.
//!
//! With several distinct arguments each row is in the groups of all of them, each in its own grouping
//! set, and other calls are of the first set. Without keys there is a group of no rows, in which a
//! count that is the sum of parts would be NULL: a third stage makes it 0.

use std::borrow::Cow;

use crate::aggregate::{AggregateCall, AggregateFunction, AggregateOutput};
use crate::expr::{CompareOp, Expr, NamedExpr};
use crate::pipeline::{GROUPING_SET, Input, Pipeline, Sink, Source};
use crate::program::Program;
use crate::scalar::Scalar;
use crate::types::{DataType, Field};
use crate::validate::{IrError, fail};

impl AggregateCall {
    /// Whether it is another one without DISTINCT: extremes are not.
    pub fn is_distinct(&self) -> bool {
        let is_extreme = matches!(self.function, AggregateFunction::Min | AggregateFunction::Max);
        self.distinct && !is_extreme
    }

    /// What it is distinct by. Rows that its filter leaves out are as those without a value.
    fn value(&self) -> Option<Expr> {
        let value = self.argument.clone()?;
        Some(match &self.filter {
            None => value,
            Some(filter) => Expr::Case {
                data_type: value.data_type(),
                branches: vec![(filter.clone(), value)],
                otherwise: None,
            },
        })
    }
}

impl Program {
    /// The same program without distinct calls.
    ///
    /// # Errors
    /// The program is not valid, or has means or squared deviations beside its distinct calls: these
    /// cannot be made of those of parts.
    pub fn without_distinct(&self) -> Result<Cow<'_, Self>, IrError> {
        let mut program = Cow::Borrowed(self);
        let mut number = 0;
        while let Some(stage) = program.stage(number) {
            if let Some(stages) = without_distinct(stage, number)? {
                let program = program.to_mut();
                let added = stages.before.len();
                stages.before.into_iter().enumerate().for_each(|(at, stage)| {
                    program.insert(number + at, stage);
                });
                number += added;
                if let Some(stage) = program.stage_mut(number) {
                    *stage = stages.last;
                }
            }
            number += 1;
        }
        Ok(program)
    }
}

/// The stages that replace one stage.
struct Stages {
    before: Vec<Pipeline>,
    last: Pipeline,
}

/// Splits a stage with distinct calls; `number` is the number of the first part.
fn without_distinct(stage: &Pipeline, number: usize) -> Result<Option<Stages>, IrError> {
    let Sink::Aggregate { keys, calls, output: of_groups, .. } = &stage.sink else {
        return Ok(None);
    };
    let mut arguments: Vec<Expr> = Vec::new();
    let distinct = calls.iter().filter(|call| call.is_distinct());
    for value in distinct.filter_map(AggregateCall::value) {
        if !arguments.contains(&value) {
            arguments.push(value);
        }
    }
    if arguments.is_empty() {
        return Ok(None);
    }
    let mut lowering = Lowering::new(keys, &arguments);
    let of_parts = calls.iter().map(|call| lowering.call(call)).collect::<Result<Vec<_>, _>>()?;
    let Lowering { keys: by, sets, parts, columns, .. } = lowering;
    let table = &stage.source.table;
    let sink = Sink::Aggregate { keys: by, sets, calls: parts, output: AggregateOutput::Final };
    let values = Pipeline { sink, ..stage.clone() };
    let source = Source::of_stage(Input::Stage(number), table, columns);
    let key = |(index, key): (usize, &NamedExpr)| NamedExpr {
        name: key.name.clone(),
        expr: source.register(index),
    };
    let by = keys.iter().enumerate().map(key).collect();
    let (sets, output) = (Vec::new(), of_groups.clone());
    let sink = Sink::Aggregate { keys: by, sets, calls: of_parts, output };
    let groups = Pipeline { source, steps: Vec::new(), sink };
    let is_count =
        |call: &AggregateCall| call.function == AggregateFunction::Count && !call.is_distinct();
    if !keys.is_empty() || !calls.iter().any(is_count) {
        return Ok(Some(Stages { before: vec![values], last: groups }));
    }
    let last = with_counts(&groups, calls, number + 1);
    Ok(Some(Stages { before: vec![values, groups], last }))
}

/// The one group of a stage without keys, with 0 where the sum of no counts is NULL.
fn with_counts(groups: &Pipeline, calls: &[AggregateCall], number: usize) -> Pipeline {
    let columns = groups.sink.output().unwrap_or_default();
    let source = Source::of_stage(Input::Stage(number), &groups.source.table, columns);
    let mut columns = source.all_columns();
    for (column, call) in columns.iter_mut().zip(calls) {
        if call.function == AggregateFunction::Count && !call.is_distinct() {
            let zero = Expr::Literal(Scalar::int(call.result.clone(), 0));
            column.expr = Expr::Case {
                data_type: call.result.clone(),
                branches: vec![(Expr::IsNull(Box::new(column.expr.clone())), zero)],
                otherwise: Some(Box::new(column.expr.clone())),
            };
        }
    }
    Pipeline { source, steps: Vec::new(), sink: Sink::Rows { columns, limit: None } }
}

struct Lowering<'a> {
    arguments: &'a [Expr],
    /// Of the first grouping: the keys, then the arguments.
    keys: Vec<NamedExpr>,
    sets: Vec<Vec<usize>>,
    /// Calls of the first grouping.
    parts: Vec<AggregateCall>,
    /// Its output.
    columns: Vec<Field>,
    first_argument: usize,
}

impl<'a> Lowering<'a> {
    fn new(keys: &[NamedExpr], arguments: &'a [Expr]) -> Self {
        let first_argument = keys.len();
        let argument = |(number, expr): (usize, &Expr)| NamedExpr {
            name: format!("distinct {number}"),
            expr: expr.clone(),
        };
        let keys = keys.iter().cloned().chain(arguments.iter().enumerate().map(argument));
        let keys: Vec<NamedExpr> = keys.collect();
        let set = |argument| (0..first_argument).chain([argument]).collect();
        let sets = match arguments.len() {
            1 => Vec::new(),
            _ => (first_argument..keys.len()).map(set).collect(),
        };
        let mut columns: Vec<Field> =
            keys.iter().map(|k| Field::new(&k.name, k.expr.data_type(), true)).collect();
        if !sets.is_empty() {
            columns.push(Field::new(GROUPING_SET, DataType::Int32, false));
        }
        Self { arguments, keys, sets, parts: Vec::new(), columns, first_argument }
    }

    /// The second grouping's call for one of the program's.
    fn call(&mut self, call: &AggregateCall) -> Result<AggregateCall, IrError> {
        let argument = match call.is_distinct().then(|| call.value()).flatten() {
            None => None,
            Some(value) => self.arguments.iter().position(|known| *known == value),
        };
        let (column, function) = match argument {
            Some(argument) => (self.first_argument + argument, call.function),
            None => self.part(call)?,
        };
        let Field { name, data_type, nullable } = self.columns[column].clone();
        Ok(AggregateCall {
            function,
            argument: Some(Expr::Register { index: column, data_type, nullable, name }),
            filter: self.is_of_set(argument.unwrap_or(0)),
            distinct: false,
            ..call.clone()
        })
    }

    /// The column of a call within the groups of the first grouping, and the function that puts
    /// the whole together.
    fn part(&mut self, call: &AggregateCall) -> Result<(usize, AggregateFunction), IrError> {
        let Some((part, function)) = call.part(format!("part {}", self.parts.len())) else {
            return fail(&call.name, format!("{call} beside distinct calls"));
        };
        self.columns.push(Field::new(&part.name, part.result.clone(), true));
        self.parts.push(part);
        Ok((self.columns.len() - 1, function))
    }

    /// Whether a row of the first grouping is of a set, if there are any.
    fn is_of_set(&self, set: usize) -> Option<Expr> {
        let number = self.keys.len();
        let field = self.columns.get(number).filter(|_| !self.sets.is_empty())?;
        let Field { name, data_type, nullable } = field.clone();
        let set_of_row = Expr::Register { index: number, data_type, nullable, name };
        let set = Expr::Literal(Scalar::int(DataType::Int32, set as i128));
        Some(Expr::compare(CompareOp::Eq, set_of_row, set))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn source() -> Source {
        let columns = ["a", "b", "c"].map(|name| Field::new(name, DataType::Int64, true)).to_vec();
        Source::of_stage(Input::Table(0), "t", columns)
    }

    fn call(function: AggregateFunction, column: Option<usize>, distinct: bool) -> AggregateCall {
        let argument = column.map(|column| source().register(column));
        let call = AggregateCall::new("x", function, argument, DataType::Int64);
        AggregateCall { distinct, ..call }
    }

    fn program(keys: Vec<NamedExpr>, calls: Vec<AggregateCall>) -> Program {
        let sink = Sink::aggregate(keys, calls);
        Program::new(vec![], Pipeline { source: source(), steps: vec![], sink })
    }

    /// The sinks of all stages, as EXPLAIN shows them.
    fn lowered(program: &Program) -> Vec<String> {
        let lowered = program.without_distinct().unwrap();
        lowered.validate().unwrap();
        lowered.without_grouping_sets().unwrap().validate().unwrap();
        lowered.all().map(|stage| Program::sink_line(&stage.sink)).collect()
    }

    fn by_a(calls: Vec<AggregateCall>) -> Program {
        program(vec![NamedExpr { name: "a".into(), expr: source().register(0) }], calls)
    }

    #[test]
    fn calls_of_one_argument_share_a_grouping_by_it() {
        use AggregateFunction::{Count, Max, Sum};
        let calls = vec![
            call(Count, Some(1), true),
            call(Sum, Some(1), true),
            call(Count, None, false),
            call(Sum, Some(2), false),
            call(Max, Some(1), true),
        ];
        let [values, groups] = &lowered(&by_a(calls))[..] else { panic!() };
        assert_eq!(values, "aggregate count(*), sum(c), max(b) by a, distinct 0 = b");
        let parts = "sum(part 0), sum(part 1), max(part 2)";
        assert_eq!(*groups, format!("aggregate count(distinct 0), sum(distinct 0), {parts} by a"));
    }

    #[test]
    fn arguments_that_differ_have_a_grouping_set_each() {
        use AggregateFunction::{Count, Sum};
        let mut filtered = call(Count, Some(1), true);
        filtered.filter = Some(Expr::IsNull(Box::new(source().register(2))));
        let calls = vec![call(Count, Some(1), true), filtered, call(Sum, Some(2), false)];
        let [values, groups] = &lowered(&by_a(calls))[..] else { panic!() };
        let distinct = "distinct 0 = b, distinct 1 = CASE WHEN c IS NULL THEN b END";
        let sets = "(a, distinct 0), (a, distinct 1)";
        assert_eq!(*values, format!("aggregate sum(c) by a, {distinct} in {sets}"));
        let of = |set| format!("filter (where grouping_set = {set})");
        let (first, second) = (of(0), of(1));
        assert_eq!(
            *groups,
            format!(
                "aggregate count(distinct 0) {first}, count(distinct 1) {second}, \
                 sum(part 0) {first} by a"
            )
        );
    }

    #[test]
    fn counts_of_no_rows_are_0() {
        use AggregateFunction::{Count, Sum};
        let calls = vec![call(Count, None, false), call(Sum, Some(1), true)];
        let stages = lowered(&program(vec![], calls));
        assert_eq!(stages.len(), 3);
        assert_eq!(stages[2], "rows x = CASE WHEN x IS NULL THEN 0 ELSE x END, x");
        assert_eq!(lowered(&program(vec![], vec![call(Count, Some(1), true)])).len(), 2);
    }

    #[test]
    fn what_reads_a_stage_with_distinct_calls_reads_its_last() {
        let mut program = by_a(vec![call(AggregateFunction::Count, Some(1), true)]);
        let columns = program.answer.sink.output().unwrap();
        let source = Source::of_stage(Input::Stage(0), "t", columns);
        let sink = Sink::Rows { columns: source.all_columns(), limit: None };
        let above = Pipeline { source, steps: vec![], sink };
        program.stages.push(std::mem::replace(&mut program.answer, above));
        program.validate().unwrap();
        let lowered = program.without_distinct().unwrap();
        lowered.validate().unwrap();
        assert_eq!(lowered.answer.source.input, Input::Stage(1));
        assert_eq!(lowered.stages[1].source.input, Input::Stage(0));
    }

    #[test]
    fn what_is_not_made_of_parts_is_not_beside_distinct_calls() {
        use AggregateFunction::{Avg, Count, SquaredDeviations};
        for function in [Avg, SquaredDeviations] {
            let calls = vec![call(Count, Some(1), true), call(function, Some(2), false)];
            let cause = program(vec![], calls).without_distinct().unwrap_err().cause;
            assert_eq!(cause, format!("{}(c) beside distinct calls", function.name()));
        }
    }

    #[test]
    fn what_has_no_distinct_calls_stays_as_it_is() {
        let program = program(vec![], vec![call(AggregateFunction::Min, Some(1), true)]);
        assert!(matches!(program.without_distinct().unwrap(), Cow::Borrowed(_)));
    }
}
