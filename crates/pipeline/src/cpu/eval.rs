//! Evaluates bound expressions over the current rows of a context.

use std::rc::Rc;

use headrace_columns::arithmetic::Limits;
use headrace_columns::convert::{decode, literal};
use headrace_columns::logic::{Chosen, Connected, Connective};
use headrace_columns::lookup::{lookup, numbers};
use headrace_columns::repr::Repr;
use headrace_columns::select::truth_bytes;
use headrace_columns::simd::positions;
use headrace_columns::vector::{Shared, Vector};
use headrace_columns::{arithmetic, cast, compare, function, in_list, like, logic, shift};
use headrace_ir::{DataType, OnOverflow};

use crate::bound::{BoundExpr, BoundKind};
use crate::cpu::context::Context;
use crate::{ExecError, WhyNot};

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
            let limits = Limits { wrap, strict: *on_overflow == OnOverflow::Strict };
            let (l, r) = ((&*l, &left.data_type), (&*r, &right.data_type));
            arithmetic::binary(expr.target(), *op, l, r, limits, context.rows())?
        }
        BoundKind::Negate { value, on_overflow } => {
            let vector = eval(context, value)?;
            arithmetic::negate(expr.target(), &vector, *on_overflow == OnOverflow::Wrap)?
        }
        BoundKind::Compare { op, left, right } => {
            let (l, r) = (eval(context, left)?, eval(context, right)?);
            compare::compare(*op, (&l, &left.data_type), (&r, &right.data_type), context.rows())?
        }
        BoundKind::And(operands) => connect(context, operands, Connective::And)?,
        BoundKind::Or(operands) => connect(context, operands, Connective::Or)?,
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
            case(context, branches, otherwise.as_deref(), &expr.repr)?
        }
        BoundKind::Cast { value, on_failure } => {
            let vector = eval(context, value)?;
            cast::cast(expr.target(), &vector, &value.data_type, *on_failure)?
        }
        BoundKind::Call { function, arguments } => {
            let vectors = arguments.iter().map(|argument| eval(context, argument));
            let vectors = vectors.collect::<Result<Vec<_>, _>>()?;
            let (rows, texts) = (context.rows(), context.texts);
            let of = arguments.first().map(|argument| &argument.data_type);
            function::call(expr.target(), *function, of, &vectors, rows, texts)?
        }
        BoundKind::Cuda { twin: Some(twin), .. } => return eval(context, twin),
        BoundKind::Cuda { function, twin: None, .. } => {
            return Err(WhyNot::new(function.without_twin()).into());
        }
        BoundKind::Shift { value, by } => {
            let vector = eval(context, value)?;
            shift::shift(expr.target(), by, &vector)?
        }
        BoundKind::Search { value, by } => {
            let vector = eval(context, value)?;
            match expr.data_type {
                DataType::Bool => by.matches(&vector, context.rows())?,
                _ => by.parts(&vector, context.rows())?,
            }
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

/// Conjunction or disjunction, operands from left to right. One that can fail is evaluated only for the rows that
/// need it.
fn connect<'a>(
    context: &mut Context<'a>,
    operands: &'a [BoundExpr],
    connective: Connective,
) -> Result<Vector<'a>, ExecError> {
    let mut connected = Connected::new(connective, context.rows());
    for (i, operand) in operands.iter().enumerate() {
        if i == 0 || !operand.can_fail() {
            connected.combine(&*eval(context, operand)?)?;
            continue;
        }
        let open = connected.open();
        if open.is_empty() {
            break;
        }
        let vector = eval_subset(context, operand, open.clone())?;
        connected.combine_rows(&vector, &open)?;
    }
    Ok(connected.finish())
}

/// The value of an expression for some of the current rows.
fn eval_subset<'a>(
    context: &mut Context<'a>,
    expr: &'a BoundExpr,
    rows: Vec<u32>,
) -> Result<Rc<Vector<'a>>, ExecError> {
    let depth = context.depth();
    context.push(rows);
    let vector = eval(context, expr);
    context.truncate(depth);
    vector
}

/// Searched CASE. Branches are evaluated only for the rows that take them.
fn case<'a>(
    context: &mut Context<'a>,
    branches: &'a [(BoundExpr, BoundExpr)],
    otherwise: Option<&'a BoundExpr>,
    repr: &Repr,
) -> Result<Vector<'a>, ExecError> {
    let rows = context.rows();
    let mut result = Chosen::new(repr, rows)?;
    let mut open: Vec<u32> = (0..rows as u32).collect();
    for (condition, value) in branches {
        if open.is_empty() {
            break;
        }
        let condition = eval_subset(context, condition, open.clone())?;
        let mut truth = truth_bytes(&condition, open.len());
        let taken: Vec<u32> = positions(&truth).iter().map(|&i| open[i as usize]).collect();
        truth.iter_mut().for_each(|t| *t ^= 1);
        open = positions(&truth).iter().map(|&i| open[i as usize]).collect();
        if !taken.is_empty() {
            let values = eval_subset(context, value, taken.clone())?;
            result.scatter(&values, &taken)?;
        }
    }
    if let (Some(otherwise), false) = (otherwise, open.is_empty()) {
        let values = eval_subset(context, otherwise, open.clone())?;
        result.scatter(&values, &open)?;
    }
    Ok(result.finish())
}
