//! Evaluates bound expressions over the current rows of a context.

use std::borrow::Cow;
use std::rc::Rc;

use arrow_array::Array;
use headrace_ir::{OnOverflow, Scalar, Value};

use crate::ExecError;
use crate::bound::{BoundExpr, BoundKind, Repr, Truth};
use crate::cpu::context::Context;
use crate::cpu::vector::{Data, Vector};
use crate::cpu::{arithmetic, cast, compare, function, in_list, like, logic, payload, shift};
use crate::segment::Dictionary;

/// A column that others may hold too.
pub type Shared<'a> = Rc<Vector<'a>>;

/// The value of an expression for the current rows.
pub fn eval<'a>(context: &mut Context<'a>, expr: &'a BoundExpr) -> Result<Shared<'a>, ExecError> {
    let vector = match &expr.kind {
        BoundKind::Register(register) => return context.register(*register),
        BoundKind::Literal(scalar) => literal(scalar, &expr.repr)?,
        BoundKind::Lookup { register, table } => {
            lookup(&*context.register(*register)?, table, context.rows())?
        }
        BoundKind::Numbers { register, table } => numbers(&*context.register(*register)?, table)?,
        BoundKind::Arithmetic { op, left, right, on_overflow, cannot_overflow } => {
            let (l, r) = (eval(context, left)?, eval(context, right)?);
            let wrap = *cannot_overflow || *on_overflow == OnOverflow::Wrap;
            arithmetic::binary(expr, *op, (&l, left), (&r, right), wrap, context.rows())?
        }
        BoundKind::Negate { value, on_overflow } => {
            let vector = eval(context, value)?;
            arithmetic::negate(expr, &vector, *on_overflow == OnOverflow::Wrap)?
        }
        BoundKind::Compare { op, left, right } => {
            let (l, r) = (eval(context, left)?, eval(context, right)?);
            compare::compare(*op, (&l, &left.data_type), (&r, &right.data_type), context.rows())?
        }
        BoundKind::And(operands) => logic::connect(context, operands, logic::Connective::And)?,
        BoundKind::Or(operands) => logic::connect(context, operands, logic::Connective::Or)?,
        BoundKind::Not(value) => logic::not(&*eval(context, value)?, context.rows())?,
        BoundKind::IsNull(value) => logic::is_null(&*eval(context, value)?, context.rows()),
        BoundKind::InList { value, list, list_has_null, negated } => {
            let vector = eval(context, value)?;
            in_list::in_list(&vector, list, *list_has_null, *negated, context.rows())?
        }
        BoundKind::Like { value, pattern, escape, negated, case_insensitive } => {
            let vector = eval(context, value)?;
            let pattern = like::Pattern::new(pattern, *escape, *case_insensitive);
            like::like(&vector, &pattern, *negated, context.rows())?
        }
        BoundKind::Case { branches, otherwise } => {
            logic::case(context, branches, otherwise.as_deref(), &expr.repr)?
        }
        BoundKind::Cast { value, on_failure } => {
            let vector = eval(context, value)?;
            cast::cast(expr, &vector, &value.data_type, *on_failure)?
        }
        BoundKind::Call { function, arguments } => {
            let vectors = arguments.iter().map(|argument| eval(context, argument));
            let vectors = vectors.collect::<Result<Vec<_>, _>>()?;
            function::call(expr, *function, arguments, &vectors, context)?
        }
        BoundKind::Shift { value, by } => {
            let vector = eval(context, value)?;
            shift::shift(expr, by, &vector)?
        }
        BoundKind::Decode(value) => {
            let Repr::Code(dictionary) = &value.repr else {
                return Err(ExecError::Internal("decoding something that is no code".into()));
            };
            decode(&*eval(context, value)?, dictionary)?
        }
    };
    Ok(Rc::new(vector))
}

/// A constant column.
pub fn literal<'a>(scalar: &'a Scalar, repr: &Repr) -> Result<Vector<'a>, ExecError> {
    if scalar.is_null() {
        return Ok(Vector::constant(payload::empty_data(repr, 1)?, true));
    }
    let data = match (&scalar.value, repr) {
        (Value::Bool(value), Repr::Bool) => Data::Bool(vec![u8::from(*value)].into()),
        (Value::Utf8(text), Repr::Str) => Data::Str(vec![text.as_str()]),
        (Value::Float(value), Repr::F64) => Data::F64(vec![*value].into()),
        (Value::Float(value), Repr::F32) => Data::F32(vec![*value as f32].into()),
        (Value::Int(value), Repr::I128) => Data::I128(vec![*value].into()),
        (Value::Int(value), Repr::U64) => Data::U64(vec![*value as u64].into()),
        (Value::Int(value), repr) if repr.is_integer_like() => {
            payload::from_i64(repr, std::iter::once(*value as i64))?
        }
        _ => {
            return Err(ExecError::Internal(format!(
                "constant {scalar} of type {} held as {repr:?}",
                scalar.data_type
            )));
        }
    };
    Ok(Vector::constant(data, false))
}

fn lookup<'a>(codes: &Vector<'a>, table: &[Truth], rows: usize) -> Result<Vector<'a>, ExecError> {
    let codes = codes.spelled(rows);
    let Data::I32(values) = &codes.data else {
        return Err(ExecError::Internal("a lookup of something that is no code".into()));
    };
    let null_entry = table.len() - 1;
    let truth: Vec<Truth> = match &codes.validity {
        None => values.iter().map(|&c| table[c as usize]).collect(),
        Some(valid) => values
            .iter()
            .zip(valid.iter())
            .map(|(&c, &v)| table[if v == 0 { null_entry } else { c as usize }])
            .collect(),
    };
    let values = truth.iter().map(|&t| u8::from(t == Truth::True)).collect();
    let validity = truth
        .contains(&Truth::Null)
        .then(|| truth.iter().map(|&t| u8::from(t != Truth::Null)).collect());
    Ok(Vector::bools(values, validity))
}

fn numbers<'a>(codes: &Vector<'_>, table: &[i32]) -> Result<Vector<'a>, ExecError> {
    let Data::I32(values) = &codes.data else {
        return Err(ExecError::Internal("numbers of something that is no code".into()));
    };
    let data = Data::I32(values.iter().map(|&code| table[code as usize]).collect());
    let validity = codes.validity.as_deref().map(|v| Cow::Owned(v.to_vec()));
    Ok(Vector { data, validity, constant: codes.constant })
}

/// Texts of codes.
pub fn decode<'a>(codes: &Vector<'_>, dictionary: &'a Dictionary) -> Result<Vector<'a>, ExecError> {
    let Data::I32(values) = &codes.data else {
        return Err(ExecError::Internal("decoding something that is no code".into()));
    };
    let texts = &dictionary.values;
    let data = if texts.is_empty() {
        Data::Str(vec![""; values.len()])
    } else {
        Data::Str(values.iter().map(|&c| texts.value(c as usize)).collect())
    };
    let validity = codes.validity.as_deref().map(|v| Cow::Owned(v.to_vec()));
    Ok(Vector { data, validity, constant: codes.constant })
}

/// Combined validity of two operands for `rows` rows; `None`: no NULLs.
pub fn both_valid(left: &Vector<'_>, right: &Vector<'_>, rows: usize) -> Option<Vec<u8>> {
    match (left.validity_bytes(rows), right.validity_bytes(rows)) {
        (None, None) => None,
        (Some(valid), None) | (None, Some(valid)) => Some(valid.into_owned()),
        (Some(l), Some(r)) => Some(l.iter().zip(r.iter()).map(|(&a, &b)| a & b).collect()),
    }
}
