//! A program that reads what another one gives, as one program.

use crate::expr::{Expr, NamedExpr, Register};
use crate::pipeline::{Pipeline, Source, Step};
use crate::program::Program;

impl Program {
    /// Puts the stages of another program before a stage of this one, and its parameters behind this
    /// one's. Returns the number that the other's last stage has then.
    pub fn splice(&mut self, before: usize, other: Self) -> usize {
        let parameters = self.parameters.len();
        self.parameters.extend(other.parameters);
        let mut last = before;
        for (at, mut stage) in other.stages.into_iter().chain([other.answer]).enumerate() {
            stage.renumber(&|read| read + before);
            for expr in stage.exprs_mut() {
                expr.replace(&mut |e| match e {
                    Expr::Parameter { index, data_type, nullable } => Some(Expr::Parameter {
                        index: index + parameters,
                        data_type: data_type.clone(),
                        nullable: *nullable,
                    }),
                    _ => None,
                });
            }
            last = before + at;
            self.insert(last, stage);
        }
        last
    }
}

impl Pipeline {
    /// The same over other rows: those that `steps` leave of a source, after which there are so many registers. `columns` of
    /// them are the columns of the source that is replaced.
    pub fn over(
        self,
        (source, mut steps): (Source, Vec<Step>),
        registers: usize,
        columns: Vec<NamedExpr>,
    ) -> Self {
        let mut places: Vec<Expr> = Vec::with_capacity(columns.len());
        let mut appended = registers;
        for column in columns {
            places.push(match column.expr {
                Expr::Register { .. } | Expr::Literal(_) => column.expr,
                _ => {
                    let place = Expr::Register {
                        index: appended,
                        data_type: column.expr.data_type(),
                        nullable: column.expr.nullable(),
                        name: column.name.clone(),
                    };
                    appended += 1;
                    steps.push(Step::Compute(column));
                    place
                }
            });
        }
        let replaced = places.len();
        let place = |register: Register, e: &Expr| match places.get(register) {
            Some(place) => place.clone(),
            None => e.moved_to(register - replaced + appended),
        };
        let mut own = self;
        for expr in own.exprs_mut() {
            expr.replace(&mut |e| match e {
                Expr::Register { index, .. } => Some(place(*index, e)),
                _ => None,
            });
        }
        steps.append(&mut own.steps);
        Self { source, steps, sink: own.sink }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::aggregate::{AggregateCall, AggregateFunction};
    use crate::pipeline::{Input, Sink};
    use crate::{ArithmeticOp, CompareOp, DataType, Field, Scalar};

    fn field(name: &str) -> Field {
        Field::new(name, DataType::Int64, true)
    }

    fn parameter(index: usize) -> Expr {
        Expr::Parameter { index, data_type: DataType::Int64, nullable: true }
    }

    /// The sum of `b` by `a` of rows whose `a` is above a parameter.
    fn groups() -> Program {
        let source = Source::of_stage(Input::Table(0), "t", ["a", "b"].map(field).to_vec());
        let above = Expr::compare(CompareOp::Gt, source.register(0), parameter(0));
        let key = NamedExpr { name: "a".into(), expr: source.register(0) };
        let function = AggregateFunction::Sum;
        let sum = AggregateCall::new("s", function, Some(source.register(1)), DataType::Int64);
        let sink = Sink::aggregate(vec![key], vec![sum]);
        let answer = Pipeline { source, steps: vec![Step::Filter(above)], sink };
        Program { parameters: vec![field("least")], ..Program::new(vec![], answer) }
    }

    /// `x + y` of batches with `y` below a parameter.
    fn rows() -> Program {
        let source = Source::of_stage(Input::Batches(1), "rows", ["x", "y"].map(field).to_vec());
        let below = Expr::compare(CompareOp::Lt, source.register(1), parameter(0));
        let sum = Expr::arithmetic(ArithmeticOp::Add, source.register(0), source.register(1));
        let sum = NamedExpr { name: "sum".into(), expr: sum };
        let steps = vec![Step::Filter(below), Step::Compute(sum)];
        let sum = source.register(1).moved_to(2);
        let columns = vec![NamedExpr { name: "z".into(), expr: sum }];
        let answer = Pipeline { source, steps, sink: Sink::Rows { columns, limit: None } };
        Program { parameters: vec![field("most")], ..Program::new(vec![], answer) }
    }

    #[test]
    fn what_a_program_reads_becomes_stages_of_it() {
        let mut program = rows();
        let stage = program.splice(0, groups());
        let output = program.stages[stage].sink.output().unwrap();
        let source = Source::of_stage(Input::Stage(stage), "t", output);
        let few = Expr::compare(
            CompareOp::Lt,
            source.register(1),
            Expr::Literal(Scalar::int(DataType::Int64, 9)),
        );
        let twice = Expr::arithmetic(ArithmeticOp::Add, source.register(1), source.register(1));
        let columns = vec![
            NamedExpr { name: "x".into(), expr: twice },
            NamedExpr { name: "y".into(), expr: source.register(0) },
        ];
        let registers = source.columns.len();
        let few = vec![Step::Filter(few)];
        program.answer = program.answer.clone().over((source, few), registers, columns);
        program.validate().unwrap();
        let names: Vec<_> = program.parameters.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["most", "least"]);
        let lines: Vec<_> = program.answer.steps.iter().map(|s| program.step_line(s)).collect();
        assert_eq!(
            lines,
            ["filter s < 9", "compute x = s + s", "filter a < $1", "compute sum = x + a"]
        );
        assert_eq!(program.step_line(&program.stages[0].steps[0]), "filter a > $2");
        assert_eq!(Program::sink_line(&program.answer.sink), "rows z = y");
        let Sink::Rows { columns, .. } = &program.answer.sink else { panic!() };
        // Behind the two columns and the one that is computed of them.
        assert_eq!(columns[0].expr.registers(), [3]);
    }
}
