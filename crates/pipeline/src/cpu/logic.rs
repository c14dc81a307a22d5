//! Three-valued logic, and CASE: an operand that can fail is evaluated only for the rows that
//! need it.

use std::rc::Rc;

use crate::ExecError;
use crate::bound::{BoundExpr, Repr};
use crate::cpu::context::Context;
use crate::cpu::eval::eval;
use crate::cpu::payload;
use crate::cpu::select::{positions, truth_bytes};
use crate::cpu::vector::{Data, Vector};

/// AND or OR.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Connective {
    /// Decided by the first false.
    And,
    /// Decided by the first true.
    Or,
}

fn bool_values<'v>(vector: &'v Vector<'_>) -> Result<&'v [u8], ExecError> {
    match &vector.data {
        Data::Bool(values) => Ok(values),
        _ => Err(ExecError::Internal("a condition is not Bool".into())),
    }
}

/// Conjunction or disjunction, operands from left to right.
pub fn connect<'a>(
    context: &mut Context<'a>,
    operands: &'a [BoundExpr],
    connective: Connective,
) -> Result<Vector<'a>, ExecError> {
    let rows = context.rows();
    let deciding = u8::from(connective == Connective::Or);
    // For AND, `decided` says false and `unknown` says NULL unless decided; for OR, true.
    let mut decided = vec![0u8; rows];
    let mut unknown: Option<Vec<u8>> = None;
    for (i, operand) in operands.iter().enumerate() {
        let subset = (i > 0 && operand.can_fail()).then(|| {
            let open: Vec<u8> = decided.iter().map(|&d| d ^ 1).collect();
            positions(&open)
        });
        match subset {
            None => {
                let vector = eval(context, operand)?;
                combine(&vector.spelled(rows), deciding, &mut decided, &mut unknown)?;
            }
            Some(open) if open.is_empty() => break,
            Some(open) => {
                let vector = eval_subset(context, operand, open.clone())?;
                combine_subset(
                    &vector.spelled(open.len()),
                    &open,
                    deciding,
                    &mut decided,
                    &mut unknown,
                )?;
            }
        }
    }
    let values = match connective {
        Connective::And => decided.iter().map(|&d| d ^ 1).collect(),
        Connective::Or => decided.clone(),
    };
    let validity =
        unknown.map(|unknown| unknown.iter().zip(&decided).map(|(&u, &d)| (u ^ 1) | d).collect());
    Ok(Vector::bools(values, validity))
}

fn combine(
    vector: &Vector<'_>,
    deciding: u8,
    decided: &mut [u8],
    unknown: &mut Option<Vec<u8>>,
) -> Result<(), ExecError> {
    let values = bool_values(vector)?;
    let flip = deciding ^ 1;
    match &vector.validity {
        None => decided.iter_mut().zip(values).for_each(|(d, &v)| *d |= v ^ flip),
        Some(valid) => {
            let unknown = unknown.get_or_insert_with(|| vec![0; decided.len()]);
            for (row, (&value, &valid)) in values.iter().zip(valid.iter()).enumerate() {
                decided[row] |= (value ^ flip) & valid;
                unknown[row] |= valid ^ 1;
            }
        }
    }
    Ok(())
}

fn combine_subset(
    vector: &Vector<'_>,
    rows: &[u32],
    deciding: u8,
    decided: &mut [u8],
    unknown: &mut Option<Vec<u8>>,
) -> Result<(), ExecError> {
    let values = bool_values(vector)?;
    for (i, &row) in rows.iter().enumerate() {
        if !vector.is_valid(i) {
            unknown.get_or_insert_with(|| vec![0; decided.len()])[row as usize] = 1;
        } else if values[i] == deciding {
            decided[row as usize] = 1;
        }
    }
    Ok(())
}

/// The value of an expression for some of the current rows.
pub fn eval_subset<'a>(
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

/// Three-valued negation.
pub fn not<'a>(vector: &Vector<'a>, rows: usize) -> Result<Vector<'a>, ExecError> {
    let vector = vector.spelled(rows);
    let values = bool_values(&vector)?.iter().map(|&v| v ^ 1).collect();
    Ok(Vector::bools(values, vector.validity.as_deref().map(<[u8]>::to_vec)))
}

/// Whether each row is NULL.
pub fn is_null<'a>(vector: &Vector<'_>, rows: usize) -> Vector<'a> {
    let values = match vector.validity_bytes(rows) {
        None => vec![0; rows],
        Some(valid) => valid.iter().map(|&v| v ^ 1).collect(),
    };
    Vector::bools(values, None)
}

/// Searched CASE.
pub fn case<'a>(
    context: &mut Context<'a>,
    branches: &'a [(BoundExpr, BoundExpr)],
    otherwise: Option<&'a BoundExpr>,
    repr: &Repr,
) -> Result<Vector<'a>, ExecError> {
    let rows = context.rows();
    let mut result = CaseResult { data: payload::empty_data(repr, rows)?, valid: vec![0; rows] };
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
    Ok(Vector::with_validity(result.data, Some(result.valid)))
}

struct CaseResult<'a> {
    data: Data<'a>,
    valid: Vec<u8>,
}

impl<'a> CaseResult<'a> {
    fn scatter(&mut self, vector: &Vector<'a>, rows: &[u32]) -> Result<(), ExecError> {
        let vector = vector.spelled(rows.len());
        for (i, &row) in rows.iter().enumerate() {
            self.valid[row as usize] = u8::from(vector.is_valid(i));
        }
        if scatter_data(&mut self.data, &vector.data, rows) {
            return Ok(());
        }
        Err(ExecError::Internal("CASE branches of different representations".into()))
    }
}

macro_rules! scatter_variants {
    ($into:expr, $from:expr, $rows:expr, $($variant:ident),*) => {
        match ($into, $from) {
            $((Data::$variant(into), Data::$variant(from)) => {
                let into = into.to_mut();
                $rows.iter().zip(from.iter()).for_each(|(&row, &v)| into[row as usize] = v);
                true
            })*
            _ => false,
        }
    };
}

fn scatter_data<'a>(into: &mut Data<'a>, from: &Data<'a>, rows: &[u32]) -> bool {
    if let (Data::Str(into), Data::Str(from)) = (&mut *into, from) {
        rows.iter().zip(from).for_each(|(&row, &text)| into[row as usize] = text);
        return true;
    }
    scatter_variants!(into, from, rows, Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, I128)
}
