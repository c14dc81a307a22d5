//! Grouping sets as a join: every row meets a row of constants for each set.
//!
//! Where one of the sets has all keys, as in ROLLUP and CUBE, the rows are grouped by them first, and these groups meet the
//! constants in place of the rows.

use std::borrow::Cow;

use crate::expr::{Expr, NamedExpr};
use crate::parts::Parts;
use crate::pipeline::{GROUPING_SET, Input, Pipeline, Probe, ProbeKind, Sink, Source, Step};
use crate::program::Program;
use crate::scalar::Scalar;
use crate::types::{DataType, Field};
use crate::validate::IrError;

impl Program {
    /// The same program with groups by all keys below grouping sets, if one of them has all and the calls can be made of
    /// parts.
    pub(crate) fn with_finest_groups(&self) -> Cow<'_, Self> {
        let mut program = Cow::Borrowed(self);
        let mut number = 0;
        while let Some(stage) = program.stage(number) {
            if let (true, Some(parts)) = (has_finest(&stage.sink), Parts::of(stage)) {
                let part = parts.part(stage);
                let (input, columns) = (Input::Stage(number), part.sink.output());
                let table = &part.source.table;
                let whole = Source::of_stage(input, table, columns.unwrap_or_default());
                let whole = parts.whole(whole);
                let program = program.to_mut();
                program.insert(number, part);
                number += 1;
                if let Some(stage) = program.stage_mut(number) {
                    *stage = whole;
                }
            }
            number += 1;
        }
        program
    }

    /// The same program without grouping sets: the rows of a stage that has some are joined with
    /// constants, a row a set, and grouped by the set's number and by the keys, which are NULL outside
    /// of it.
    ///
    /// # Errors
    /// The program is not valid.
    pub fn without_grouping_sets(&self) -> Result<Cow<'_, Self>, IrError> {
        let mut program = Cow::Borrowed(self);
        let mut number = 0;
        while let Some(stage) = program.stage(number) {
            let Sink::Aggregate { keys, sets, .. } = &stage.sink else {
                number += 1;
                continue;
            };
            if !sets.is_empty() {
                let sets = build_of(keys, sets);
                let registers = stage.registers(&program.stages)?.len();
                let program = program.to_mut();
                program.insert(number, sets);
                number += 1;
                let sets = program.stages[number - 1].clone();
                if let Some(stage) = program.stage_mut(number) {
                    stage.join_sets(&sets, number - 1, registers);
                }
            }
            number += 1;
        }
        Ok(program)
    }
}

impl Pipeline {
    /// Joins the rows with the constants of a stage, whose first payload register is `first`.
    fn join_sets(&mut self, constants: &Self, build: usize, first: usize) {
        let payload = constants.build_columns().map(|(_, payload)| payload).unwrap_or_default();
        let Sink::Aggregate { keys, sets, .. } = &mut self.sink else { return };
        let register = |index: usize| {
            let Field { name, data_type, nullable } = payload[index].field();
            Expr::Register { index: first + index, data_type, nullable, name }
        };
        let mut grouped: Vec<NamedExpr> = Vec::with_capacity(keys.len() + 1);
        for (index, key) in keys.iter().enumerate() {
            let always = sets.iter().all(|set| set.contains(&index));
            let expr =
                if always { key.expr.clone() } else { inside(register(index + 1), &key.expr) };
            grouped.push(NamedExpr { name: key.name.clone(), expr });
        }
        grouped.push(NamedExpr { name: GROUPING_SET.into(), expr: register(0) });
        *keys = grouped;
        sets.clear();
        self.steps.push(Step::Probe(Probe {
            build,
            keys: vec![Expr::Literal(Scalar::int(DataType::Int32, 0))],
            kind: ProbeKind::Inner,
            null_equal: false,
            residual: None,
            payload: (0..payload.len()).collect(),
            is_optional: false,
        }));
    }
}

/// Whether one of several grouping sets has all keys.
fn has_finest(sink: &Sink) -> bool {
    let Sink::Aggregate { keys, sets, .. } = sink else { return false };
    sets.len() > 1 && sets.iter().any(|set| set.len() == keys.len())
}

/// A key where it belongs to the set, else NULL.
fn inside(in_set: Expr, key: &Expr) -> Expr {
    let branches = vec![(in_set, key.clone())];
    Expr::Case { branches, otherwise: None, data_type: key.data_type() }
}

/// A build of a row a set under one key: its number, and for each group key whether it belongs to the
/// set.
fn build_of(keys: &[NamedExpr], sets: &[Vec<usize>]) -> Pipeline {
    let row = |(number, set): (usize, &Vec<usize>)| {
        let number = Scalar::int(DataType::Int32, number as i128);
        let belongs = (0..keys.len()).map(|key| Scalar::bool(set.contains(&key)));
        let key = Scalar::int(DataType::Int32, 0);
        [key, number].into_iter().chain(belongs).collect()
    };
    let input = Input::Values(sets.iter().enumerate().map(row).collect());
    let flag = |key: &NamedExpr| Field::new(format!("by {}", key.name), DataType::Bool, false);
    let numbers = ["all", GROUPING_SET].map(|name| Field::new(name, DataType::Int32, false));
    let columns = numbers.into_iter().chain(keys.iter().map(flag)).collect();
    let source = Source::of_stage(input, "grouping sets", columns);
    let mut columns = source.all_columns();
    let payload = columns.split_off(1);
    Pipeline { source, steps: Vec::new(), sink: Sink::Build { keys: columns, payload } }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{AggregateCall, AggregateFunction, AggregateOutput};

    /// The sinks of all stages that a sum by sets of two keys is lowered to.
    fn sinks(sets: &[&[usize]], function: AggregateFunction) -> Vec<String> {
        let columns = ["a", "b", "c"].map(|name| Field::new(name, DataType::Int64, true));
        let source = Source::of_stage(Input::Table(0), "t", columns.to_vec());
        let key = |index| NamedExpr { name: format!("k{index}"), expr: source.register(index) };
        let argument = Some(source.register(2));
        let sink = Sink::Aggregate {
            keys: [0, 1].map(key).to_vec(),
            sets: sets.iter().map(|set| set.to_vec()).collect(),
            calls: vec![AggregateCall::new("x", function, argument, DataType::Int64)],
            output: AggregateOutput::Final,
        };
        let program = Program::new(vec![], Pipeline { source, steps: vec![], sink });
        program.validate().unwrap();
        program.lowered().unwrap().validate().unwrap();
        let finest = program.with_finest_groups();
        finest.all().map(|stage| Program::sink_line(&stage.sink)).collect()
    }

    #[test]
    fn sets_beside_one_of_all_keys_are_made_of_its_groups() {
        let [finest, sets] = &sinks(&[&[0, 1], &[0], &[]], AggregateFunction::Sum)[..] else {
            panic!("two stages")
        };
        assert_eq!(finest, "aggregate sum(c) by k0 = a, k1 = b");
        assert_eq!(sets, "aggregate sum(part 0) by k0, k1 in (k0, k1), (k0), ()");
    }

    #[test]
    fn sets_without_keys_have_groups_of_no_rows() {
        let columns = ["a", "b"].map(|name| Field::new(name, DataType::Int64, true));
        let source = Source::of_stage(Input::Table(0), "t", columns.to_vec());
        let call =
            |function| AggregateCall::new("x", function, Some(source.register(1)), DataType::Int64);
        let calls = vec![call(AggregateFunction::Sum), call(AggregateFunction::Count)];
        let keys = source.all_columns()[..1].to_vec();
        let rows_of = |sets: &[&[usize]]| {
            let sets: Vec<Vec<usize>> = sets.iter().map(|set| set.to_vec()).collect();
            let output = AggregateOutput::of_sets(&sets, &calls);
            let sink = Sink::Aggregate { keys: keys.clone(), sets, calls: calls.clone(), output };
            let program =
                Program::new(vec![], Pipeline { source: source.clone(), steps: vec![], sink });
            program.validate().unwrap();
            let lowered = program.lowered().unwrap();
            lowered.validate().unwrap();
            lowered.answer.sink.rows_of_none()
        };
        let null = || Scalar::null(DataType::Int64);
        let total = |set: i128| {
            let count = Scalar::int(DataType::Int64, 0);
            vec![null(), Scalar::int(DataType::Int32, set), null(), count]
        };
        // Of the groups by all keys, and of the rows.
        assert_eq!(rows_of(&[&[0], &[]]), [total(1)]);
        assert_eq!(rows_of(&[&[], &[0], &[]]), [total(0), total(2)]);
        assert_eq!(rows_of(&[&[]]), [total(0)]);
        assert!(rows_of(&[&[0]]).is_empty());
    }

    #[test]
    fn other_sets_are_of_the_rows() {
        for sets in [&[&[0][..], &[1]][..], &[&[0, 1]]] {
            assert_eq!(sinks(sets, AggregateFunction::Sum).len(), 1);
        }
        // There are no means of means.
        assert_eq!(sinks(&[&[0, 1], &[0]], AggregateFunction::Avg).len(), 1);
    }
}
