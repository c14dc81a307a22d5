//! Stages of windows hand over what is read of them, and what they have computed.
//!
//! ```text
//! stage 0: t ─► a, b, distance(a, b) with row_number() in order of distance(a, b)
//! stage 1: stage 0 ─► filter row_number <= 10 ─► distance(a, b), row_number          ───►
//!
//! stage 0: t ─► distance(a, b) with row_number() in order of it
//! stage 1: stage 0 ─► filter row_number <= 10 ─► distance, row_number
//! ```
//!
//! A planner computes below a window what the window's order needs, and above it what the answer needs: that may be the same.
//! The rows that are sorted are narrower, and columns that no window takes are none of it.

use std::collections::BTreeSet;

use crate::expr::{Expr, Register};
use crate::pipeline::{Input, Pipeline, Sink};
use crate::program::Program;
use crate::windows::Windows;

impl Program {
    /// The same program where stages of windows have the columns that are read of them.
    #[must_use]
    pub fn with_windows_as_read(self) -> Self {
        let mut narrow = self.clone();
        // Readers first: what they leave out nobody reads.
        for number in (0..narrow.stages.len()).rev() {
            narrow.narrow_windows(number);
        }
        if narrow.validate().is_ok() { narrow } else { self }
    }

    fn narrow_windows(&mut self, number: usize) {
        let Sink::Windows(windows) = &self.stages[number].sink else { return };
        let windows = windows.clone();
        let read = Input::Stage(number);
        let is_reader = |stage: &&Pipeline| stage.source.input.stages().contains(&number);
        if self.all().filter(is_reader).any(|reader| reader.source.input != read) {
            return;
        }
        let mut used: BTreeSet<usize> = windows.read().collect();
        for reader in self.all_mut().filter(|stage| stage.source.input == read) {
            reader.read_computed(&windows);
            reader.leave_unread_out();
            used.extend(&reader.source.ordinals);
        }
        let columns = windows.columns.len();
        used.retain(|column| *column < columns);
        if used.is_empty() || used.len() == columns {
            return;
        }
        let place = |column: usize| used.iter().position(|own| *own == column).unwrap_or(0);
        let places: Vec<usize> = (0..columns).map(place).collect();
        let mut narrow = windows.over(&places);
        narrow.columns = used.iter().map(|&column| windows.columns[column].clone()).collect();
        for reader in self.all_mut().filter(|stage| stage.source.input == read) {
            for ordinal in &mut reader.source.ordinals {
                *ordinal = match places.get(*ordinal) {
                    Some(place) => *place,
                    None => *ordinal - columns + used.len(),
                };
            }
        }
        self.stages[number].sink = Sink::Windows(narrow);
    }
}

impl Pipeline {
    /// Reads what the windows that are its source have computed, in place of computing it again.
    fn read_computed(&mut self, windows: &Windows) {
        let stands = self.source.ordinals.iter();
        let stands: Vec<Option<Expr>> =
            stands.map(|&column| Some(windows.columns.get(column)?.expr.clone())).collect();
        // The column of the windows that an expression is.
        let computed = |expr: &Expr| {
            let registers = expr.registers();
            let is_known = |at: &Register| stands.get(*at).is_some_and(Option::is_some);
            if expr.as_register().is_some()
                || registers.is_empty()
                || !registers.iter().all(is_known)
            {
                return None;
            }
            let mut made = expr.clone();
            made.replace(&mut |expr| stands.get(expr.as_register()?)?.clone());
            windows.columns.iter().position(|column| column.expr == made)
        };
        let mut wanted = BTreeSet::new();
        for expr in self.exprs() {
            expr.visit(&mut |expr| wanted.extend(computed(expr)));
        }
        let mut source = self.source.clone();
        wanted.retain(|column| !source.ordinals.contains(column));
        source.columns.extend(wanted.iter().map(|&column| windows.columns[column].field()));
        source.ordinals.extend(wanted);
        let mut stage = self.reading(&source);
        for expr in stage.exprs_mut() {
            expr.replace(&mut |expr| {
                let column = computed(expr)?;
                let at = source.ordinals.iter().position(|own| *own == column)?;
                Some(source.register(at))
            });
        }
        *self = stage;
    }

    /// Drops the columns of its source that nothing reads.
    fn leave_unread_out(&mut self) {
        let exprs = self.exprs().into_iter();
        let mut read: BTreeSet<Register> = exprs.flat_map(Expr::registers).collect();
        let own = self.source.columns.len();
        read.retain(|register| *register < own);
        // How many rows there are is known by a column.
        if read.is_empty() {
            read.insert(0);
        }
        let mut source = self.source.clone();
        source.columns = read.iter().map(|&at| self.source.columns[at].clone()).collect();
        source.ordinals = read.iter().map(|&at| self.source.ordinals[at]).collect();
        *self = self.reading(&source);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::expr::{ArithmeticOp, CompareOp, NamedExpr};
    use crate::order::OrderKey;
    use crate::pipeline::{Source, Step};
    use crate::windows::{WindowCall, WindowFunction};
    use crate::{DataType, Field, Scalar};

    fn named(name: &str, expr: Expr) -> NamedExpr {
        NamedExpr { name: name.to_string(), expr }
    }

    fn sum(left: Expr, right: Expr) -> Expr {
        Expr::arithmetic(ArithmeticOp::Add, left, right)
    }

    /// Windows of `a`, `b`, `c` and a sum by `c` in the order of the sum; the answer's columns are made of what it reads of them:
    /// `a`, `b`, `c` and the number.
    fn program(answer: impl Fn(&Source) -> Vec<Expr>) -> Program {
        let column = |name| Field::new(name, DataType::Int64, false);
        let table = Source::of_stage(Input::Table(0), "t", ["a", "b", "c"].map(column).to_vec());
        let mut columns = table.all_columns();
        columns.push(named("sum", sum(table.register(0), table.register(1))));
        let call = WindowCall { name: "n".to_string(), function: WindowFunction::RowNumber };
        let order = vec![OrderKey { column: 3, descending: true, nulls_first: true }];
        let (partition, calls) = (vec![2], vec![call]);
        let windows = Windows { columns, partition, order, calls, first: None };
        let fields = windows.output();
        let sink = Sink::Windows(windows);
        let stage = Pipeline { source: table, steps: vec![], sink };
        let mut source = Source::of_stage(Input::Stage(0), "t", fields);
        source.columns.remove(3);
        source.ordinals.remove(3);
        let ten = Expr::Literal(Scalar::int(DataType::UInt64, 10));
        let steps = vec![
            Step::Compute(named("copy", source.register(3))),
            Step::Filter(Expr::compare(CompareOp::Le, source.register(3), ten)),
        ];
        let exprs = answer(&source).into_iter();
        let columns = exprs.enumerate().map(|(at, expr)| named(&at.to_string(), expr)).collect();
        let sink = Sink::Rows { columns, limit: None };
        Program::new(vec![stage], Pipeline { source, steps, sink })
    }

    fn windows_of(program: &Program) -> &Windows {
        match &program.stages[0].sink {
            Sink::Windows(windows) => windows,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_the_order_computed_is_read_and_what_it_was_made_of_is_not() {
        let before = program(|source| {
            let again = sum(source.register(0), source.register(1));
            let copy = Expr::Register {
                index: 4,
                data_type: DataType::UInt64,
                nullable: false,
                name: "copy".to_string(),
            };
            vec![source.register(3), sum(again, source.register(2)), copy]
        });
        before.validate().unwrap();
        let after = before.with_windows_as_read();
        after.validate().unwrap();
        let windows = windows_of(&after);
        let names: Vec<_> = windows.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["c", "sum"]);
        assert_eq!((&*windows.partition, windows.order[0].column), (&[0][..], 1));
        assert_eq!(after.answer.source.ordinals, [0, 2, 1]);
        let Sink::Rows { columns, .. } = &after.answer.sink else { panic!("{:?}", after.answer) };
        let read: Vec<_> = columns.iter().map(|column| column.expr.registers()).collect();
        assert_eq!(read, [vec![1], vec![0, 2], vec![3]]);
    }

    #[test]
    fn what_is_read_stays_and_other_sums_are_computed() {
        let before = program(|source| {
            let other = sum(source.register(1), source.register(0));
            vec![other, source.register(2)]
        });
        let after = before.clone().with_windows_as_read();
        assert_eq!(windows_of(&after).columns.len(), 4);
        let unread = program(|source| vec![source.register(3)]).with_windows_as_read();
        assert_eq!(windows_of(&unread).columns.len(), 2);
        unread.validate().unwrap();
        assert_eq!(unread.answer.source.ordinals, [2]);
    }
}
