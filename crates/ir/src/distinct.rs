//! DISTINCT as two groupings: by the keys and the argument, and what comes of it by the keys alone.
//!
//! Several distinct arguments are grouping sets of the first grouping. The first runs on either processor; the
//! second runs beside it on the cores.

use crate::aggregate::{AggregateCall, AggregateFunction, AggregateOutput};
use crate::expr::{CompareOp, Expr};
use crate::grouping::GROUPING_SET;
use crate::pipeline::{NamedExpr, Pipeline, Program, Sink, Source, SourceKind};
use crate::scalar::Scalar;
use crate::types::{DataType, Field};
use crate::validate::{IrError, fail};

/// A program with distinct calls, as two without.
#[derive(Clone, Debug, PartialEq)]
pub struct Distinct {
    /// Groups the rows by the keys and by each distinct argument.
    pub values: Program,
    /// Groups what comes of that, its one table, by the keys: the output of the whole.
    pub groups: Program,
    /// Output columns that are numbers of rows: those of no rows are 0, not NULL as here.
    pub counts: Vec<usize>,
}

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
    /// The two groupings that a program with distinct calls is; `None` without such calls.
    ///
    /// With several distinct arguments each row is in the groups of all of them, each in its own
    /// grouping set, and other calls are of the first set.
    ///
    /// # Errors
    /// The program is not valid, or has means or squared deviations beside its distinct calls, which
    /// cannot be put together of those of parts.
    pub fn without_distinct(&self) -> Result<Option<Distinct>, IrError> {
        let Sink::Aggregate { keys, calls, output: of_groups, .. } = &self.pipeline.sink else {
            return Ok(None);
        };
        let mut arguments: Vec<Expr> = Vec::new();
        for value in calls.iter().filter(|call| call.is_distinct()).filter_map(AggregateCall::value)
        {
            if !arguments.contains(&value) {
                arguments.push(value);
            }
        }
        if arguments.is_empty() {
            return Ok(None);
        }
        let mut lowering = Lowering::new(keys, &arguments);
        let groups = calls.iter().map(|call| lowering.call(call)).collect::<Result<Vec<_>, _>>()?;
        let is_count =
            |call: &AggregateCall| call.function == AggregateFunction::Count && !call.distinct;
        let counts = (0..calls.len()).filter(|&call| is_count(&calls[call]));
        let counts = counts.map(|call| keys.len() + call).collect();
        let Lowering { keys: by, sets, parts, columns, .. } = lowering;
        let mut values = self.clone();
        let output = AggregateOutput::Final;
        values.pipeline.sink = Sink::Aggregate { keys: by, sets, calls: parts, output };
        let source = Source {
            kind: SourceKind::Batches,
            table_id: 0,
            table: self.pipeline.source.table.clone(),
            ordinals: (0..columns.len()).collect(),
            columns,
        };
        let key = |(index, key): (usize, &NamedExpr)| NamedExpr {
            name: key.name.clone(),
            expr: source.register(index),
        };
        let keys = keys.iter().enumerate().map(key).collect();
        let (sets, output) = (Vec::new(), of_groups.clone());
        let sink = Sink::Aggregate { keys, sets, calls: groups, output };
        let groups = Program::new(Vec::new(), Pipeline { source, steps: Vec::new(), sink });
        Ok(Some(Distinct { values, groups, counts }))
    }
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
        let of = call.argument.as_ref().map(Expr::data_type);
        let (result, function) = match (call.function, of) {
            (AggregateFunction::Avg | AggregateFunction::SquaredDeviations, _) => {
                return fail(&call.name, format!("{call} beside distinct calls"));
            }
            (AggregateFunction::Count, _) => (call.result.clone(), AggregateFunction::Sum),
            // Totals of parts may be what the whole one is not: too large for its type.
            (AggregateFunction::Sum, Some(integer)) if integer.is_integer() => {
                (DataType::Decimal128 { precision: 38, scale: 0 }, AggregateFunction::Sum)
            }
            (AggregateFunction::Sum, Some(DataType::Decimal128 { scale, .. })) => {
                (DataType::Decimal128 { precision: 38, scale }, AggregateFunction::Sum)
            }
            (AggregateFunction::Sum, _) => (DataType::Float64, AggregateFunction::Sum),
            (extreme, _) => (call.result.clone(), extreme),
        };
        let part = AggregateCall {
            name: format!("part {}", self.parts.len()),
            result: result.clone(),
            distinct: false,
            ..call.clone()
        };
        self.columns.push(Field::new(&part.name, result, true));
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
        let table = "t".to_string();
        Source { kind: SourceKind::Table, table_id: 0, table, columns, ordinals: vec![0, 1, 2] }
    }

    fn call(function: AggregateFunction, column: Option<usize>, distinct: bool) -> AggregateCall {
        let argument = column.map(|column| source().register(column));
        let call = AggregateCall::new("x", function, argument, DataType::Int64);
        AggregateCall { distinct, ..call }
    }

    /// Both groupings, as EXPLAIN shows them.
    fn lowered(calls: Vec<AggregateCall>) -> (String, String) {
        let keys = vec![NamedExpr { name: "a".into(), expr: source().register(0) }];
        let sink = Sink::aggregate(keys, calls);
        let program = Program::new(vec![], Pipeline { source: source(), steps: vec![], sink });
        let Distinct { values, groups, .. } = program.without_distinct().unwrap().unwrap();
        for program in [&values, &groups] {
            program.without_grouping_sets().unwrap().validate().unwrap();
        }
        (Program::sink_line(&values.pipeline.sink), Program::sink_line(&groups.pipeline.sink))
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
        let (values, groups) = lowered(calls);
        assert_eq!(values, "aggregate count(*), sum(c), max(b) by a, distinct 0 = b");
        let parts = "sum(part 0), sum(part 1), max(part 2)";
        assert_eq!(groups, format!("aggregate count(distinct 0), sum(distinct 0), {parts} by a"));
    }

    #[test]
    fn arguments_that_differ_have_a_grouping_set_each() {
        use AggregateFunction::{Count, Sum};
        let mut filtered = call(Count, Some(1), true);
        filtered.filter = Some(Expr::IsNull(Box::new(source().register(2))));
        let (values, groups) =
            lowered(vec![call(Count, Some(1), true), filtered, call(Sum, Some(2), false)]);
        let distinct = "distinct 0 = b, distinct 1 = CASE WHEN c IS NULL THEN b END";
        let sets = "(a, distinct 0), (a, distinct 1)";
        assert_eq!(values, format!("aggregate sum(c) by a, {distinct} in {sets}"));
        let of = |set| format!("filter (where grouping_set = {set})");
        let (first, second) = (of(0), of(1));
        assert_eq!(
            groups,
            format!(
                "aggregate count(distinct 0) {first}, count(distinct 1) {second}, \
                 sum(part 0) {first} by a"
            )
        );
    }

    #[test]
    fn what_is_not_made_of_parts_is_not_beside_distinct_calls() {
        use AggregateFunction::{Avg, Count, SquaredDeviations};
        for function in [Avg, SquaredDeviations] {
            let calls = vec![call(Count, Some(1), true), call(function, Some(2), false)];
            let sink = Sink::aggregate(vec![], calls);
            let program = Program::new(vec![], Pipeline { source: source(), steps: vec![], sink });
            let cause = program.without_distinct().unwrap_err().cause;
            assert_eq!(cause, format!("{}(c) beside distinct calls", function.name()));
        }
    }

    #[test]
    fn what_has_no_distinct_calls_stays_as_it_is() {
        let sink = Sink::aggregate(vec![], vec![call(AggregateFunction::Min, Some(1), true)]);
        let program = Program::new(vec![], Pipeline { source: source(), steps: vec![], sink });
        assert_eq!(program.without_distinct().unwrap(), None);
    }
}
