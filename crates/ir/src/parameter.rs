//! Values that a program gets when it is run.

use std::borrow::Cow;

use crate::expr::Expr;
use crate::program::Program;
use crate::scalar::Scalar;
use crate::types::Field;

/// Values that do not fit a program's parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Too few or too many.
    #[error("the program takes {wanted} parameters, {found} values are given")]
    Number {
        /// Parameters of the program.
        wanted: usize,
        /// Values.
        found: usize,
    },
    /// A value that its parameter cannot have.
    #[error("parameter ${} ({name}) cannot be {value}: {cause}", index + 1)]
    Value {
        /// Position among the parameters, from 0.
        index: usize,
        /// The parameter's name.
        name: String,
        /// The value as EXPLAIN prints it.
        value: String,
        /// Why not.
        cause: String,
    },
}

impl Program {
    /// The program that has a constant wherever this one has a parameter.
    ///
    /// # Errors
    /// The values are not one a parameter, each of its type, and NULL only where it may be.
    pub fn with_values(&self, values: &[Scalar]) -> Result<Cow<'_, Program>, ParameterError> {
        let (wanted, found) = (self.parameters.len(), values.len());
        if wanted != found {
            return Err(ParameterError::Number { wanted, found });
        }
        for (index, (parameter, value)) in self.parameters.iter().zip(values).enumerate() {
            if let Some(cause) = misfit(parameter, value) {
                let (name, value) = (parameter.name.clone(), value.to_string());
                return Err(ParameterError::Value { index, name, value, cause });
            }
        }
        if self.parameters.is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        let mut program = self.clone();
        program.parameters.clear();
        for expr in program.exprs_mut() {
            expr.replace(&mut |e| match e {
                Expr::Parameter { index, .. } => values.get(*index).cloned().map(Expr::Literal),
                _ => None,
            });
        }
        Ok(Cow::Owned(program))
    }
}

fn misfit(parameter: &Field, value: &Scalar) -> Option<String> {
    if value.data_type != parameter.data_type {
        return Some(format!("it is {}, not {}", value.data_type, parameter.data_type));
    }
    if !value.is_of_its_type() {
        return Some(format!("no {} has this value", value.data_type));
    }
    (value.is_null() && !parameter.nullable).then(|| "it is never NULL".into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::expr::NamedExpr;
    use crate::pipeline::{Input, Pipeline, Probe, Sink, Source, Step};
    use crate::scalar::Value;
    use crate::types::DataType;
    use crate::{AggregateCall, AggregateFunction, CompareOp};

    fn year(nullable: bool) -> Field {
        Field::new("year", DataType::Int32, nullable)
    }

    fn source(nullable: bool) -> Source {
        Source::of_stage(Input::Table(0), "t", vec![year(nullable)])
    }

    fn year_is(value: &Expr) -> Expr {
        Expr::compare(CompareOp::Eq, source(false).register(0), value.clone())
    }

    /// A program that reads `value` wherever an expression may stand.
    fn reading(parameters: Vec<Field>, value: &Expr) -> Program {
        let named = |expr| NamedExpr { name: "named".into(), expr };
        let keys = vec![named(source(false).register(0))];
        let payload = vec![named(value.clone())];
        let build = Pipeline {
            source: source(false),
            steps: vec![Step::Filter(year_is(value))],
            sink: Sink::Build { keys, payload },
        };
        let probe = Probe {
            residual: Some(Expr::Not(Box::new(year_is(value)))),
            ..Probe::semi(0, vec![value.clone()])
        };
        let function = AggregateFunction::Sum;
        let mut call = AggregateCall::new("sum", function, Some(value.clone()), DataType::Int64);
        call.filter = Some(Expr::IsNull(Box::new(value.clone())));
        let steps = vec![Step::Probe(probe), Step::Compute(named(value.clone()))];
        let sink = Sink::aggregate(vec![named(value.clone())], vec![call]);
        let pipeline = Pipeline { source: source(false), steps, sink };
        Program { parameters, ..Program::new(vec![build], pipeline) }
    }

    fn parameter(nullable: bool) -> Expr {
        Expr::Parameter { index: 0, data_type: DataType::Int32, nullable }
    }

    #[test]
    fn a_value_takes_its_parameters_place_everywhere() {
        let program = reading(vec![year(true)], &parameter(true));
        program.validate().unwrap();
        for value in [Scalar::int(DataType::Int32, 1993), Scalar::null(DataType::Int32)] {
            let literal = Expr::Literal(value.clone());
            let given = program.with_values(std::slice::from_ref(&value)).unwrap();
            assert_eq!(*given, reading(vec![], &literal));
            given.validate().unwrap();
        }
    }

    #[test]
    fn values_are_as_many_as_parameters_and_of_their_types() {
        let program = reading(vec![year(false)], &parameter(false));
        let two = [Scalar::int(DataType::Int32, 1), Scalar::int(DataType::Int32, 2)];
        for values in [&two[..0], &two[..]] {
            let error = program.with_values(values).unwrap_err();
            assert_eq!(error, ParameterError::Number { wanted: 1, found: values.len() });
        }
        for (value, cause) in [
            (Scalar::int(DataType::Int64, 1), "it is int64, not int32"),
            (Scalar::null(DataType::Int32), "it is never NULL"),
            (Scalar::int(DataType::Int32, 1 << 31), "no int32 has this value"),
            (Scalar::new(DataType::Int32, Value::Bool(true)), "no int32 has this value"),
        ] {
            let text = program.with_values(&[value]).unwrap_err().to_string();
            assert!(text.starts_with("parameter $1 (year) cannot be "), "{text}");
            assert!(text.ends_with(cause), "{text}");
        }
    }

    #[test]
    fn what_reads_a_parameter_knows_it_as_the_program_declares_it() {
        for (parameters, read, cause) in [
            (vec![], parameter(true), "parameter $1 of 0"),
            (vec![year(true)], parameter(false), "parameter $1 (year) may be NULL"),
            (
                vec![Field::new("year", DataType::Int64, true)],
                parameter(true),
                "parameter $1 (year) is int64, read as int32",
            ),
        ] {
            let error = reading(parameters, &read).validate().unwrap_err();
            assert!(error.cause.contains(cause), "{error}");
        }
    }
}
