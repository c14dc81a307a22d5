//! Expressions over one dictionary column: evaluated once for each distinct text, by the same
//! evaluator that would evaluate them for each row.

use std::rc::Rc;

use arrow_array::Array;
use headrace_columns::lookup::Truth;
use headrace_columns::repr::{Dictionary, Repr};
use headrace_columns::text::Texts;
use headrace_columns::vector::{Data, Vector};
use headrace_ir::{DataType, Expr, ValueRange};

use crate::WhyNot;
use crate::bind::{Binder, range};
use crate::bound::{BoundExpr, BoundKind, RegisterInfo};
use crate::cpu::check;
use crate::cpu::context::Context;
use crate::cpu::eval::eval;

/// The expression as a lookup by code, if it is a predicate or a function of texts that reads
/// nothing but one dictionary register and cannot fail.
pub fn tabulated(registers: &[RegisterInfo], expr: &Expr) -> Result<Option<BoundExpr>, WhyNot> {
    let of_text = matches!(expr, Expr::Call { .. }) && expr.data_type() == DataType::Int32;
    if !(of_text || expr.data_type() == DataType::Bool) || expr.can_fail() {
        return Ok(None);
    }
    let [register] = expr.registers()[..] else { return Ok(None) };
    let Some(RegisterInfo { repr: Repr::Code(dictionary), nullable, .. }) = registers.get(register)
    else {
        return Ok(None);
    };
    let mut as_text = registers.to_vec();
    as_text[register].repr = Repr::Str;
    as_text[register].nullable = true;
    let expr = Binder::new(as_text.clone(), 0).expr(expr)?;
    check::expression(&expr)?;
    let looked_up = {
        let texts = Texts::new(None);
        let found = over_texts(&as_text, register, dictionary, &expr, &texts)?;
        match &found.data {
            Data::Bool(values) => truths(&found, values, register, *nullable),
            Data::I32(values) => numbers(&found, values, register, *nullable),
            _ => None,
        }
    };
    Ok(looked_up.map(|(kind, nullable, range)| BoundExpr { kind, nullable, range, ..expr }))
}

/// What an expression is for each text, then for NULL.
fn over_texts<'a>(
    registers: &'a [RegisterInfo],
    register: usize,
    dictionary: &'a Dictionary,
    expr: &'a BoundExpr,
    made: &'a Texts,
) -> Result<Vector<'a>, WhyNot> {
    let codes = dictionary.values.len();
    let rows = codes + 1;
    let mut texts: Vec<&str> = (0..codes).map(|code| dictionary.values.value(code)).collect();
    texts.push("");
    let mut valid = vec![1u8; rows];
    valid[codes] = 0;
    let column = Vector::with_validity(Data::Str(texts), Some(valid));
    let mut context = Context::from_vectors(registers, rows, Vec::new(), made);
    context.set(register, Rc::new(column));
    let value = eval(&mut context, expr)
        .map_err(|e| WhyNot::new(format!("{} over its dictionary: {e}", expr.text)))?;
    Ok(value.spelled(rows).into_owned())
}

/// A lookup, whether it may be NULL, and its bounds.
type LookedUp = Option<(BoundKind, bool, Option<ValueRange>)>;

fn truths(found: &Vector<'_>, values: &[u8], register: usize, nullable: bool) -> LookedUp {
    let entry = |row: usize| match (found.is_valid(row), values[row]) {
        (false, _) => Truth::Null,
        (true, 0) => Truth::False,
        (true, _) => Truth::True,
    };
    let table: Vec<Truth> = (0..values.len()).map(entry).collect();
    let null_entry = if nullable { table.len() } else { table.len() - 1 };
    let may_be_null = table[..null_entry].contains(&Truth::Null);
    let kind = BoundKind::Lookup { register, table: table.into() };
    Some((kind, may_be_null, range::type_range(&DataType::Bool)))
}

/// Only what is NULL for NULL alone.
fn numbers(found: &Vector<'_>, values: &[i32], register: usize, nullable: bool) -> LookedUp {
    let (_, of_texts) = values.split_last()?;
    let strict = !found.is_valid(of_texts.len()) && (0..of_texts.len()).all(|r| found.is_valid(r));
    // Where there is no text there is no number either.
    let table = if of_texts.is_empty() { &[0] } else { of_texts };
    let bounds = table.iter().min().zip(table.iter().max());
    let range = bounds.map(|(&min, &max)| ValueRange { min: min.into(), max: max.into() });
    let kind = BoundKind::Numbers { register, table: table.into() };
    strict.then_some((kind, nullable, range))
}
