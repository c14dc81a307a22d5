//! Predicates over one dictionary column: evaluated once for each distinct text, by the same
//! evaluator that would evaluate them for each row.

use std::rc::Rc;
use std::sync::Arc;

use arrow_array::Array;
use headrace_ir::{DataType, Expr};

use crate::WhyNot;
use crate::bind::{Binder, range};
use crate::bound::{BoundExpr, BoundKind, RegisterInfo, Repr, Truth};
use crate::cpu::check;
use crate::cpu::context::Context;
use crate::cpu::eval::eval;
use crate::cpu::vector::{Data, Vector};
use crate::segment::Dictionary;

/// The predicate as a lookup by code, if it reads nothing but one dictionary register and
/// cannot fail.
pub fn tabulated(registers: &[RegisterInfo], expr: &Expr) -> Result<Option<BoundExpr>, WhyNot> {
    if expr.data_type() != DataType::Bool || expr.can_fail() {
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
    let predicate = Binder::new(as_text.clone(), 0).expr(expr)?;
    check::expression(&predicate)?;
    let table = truth_table(&as_text, register, dictionary, &predicate)?;
    let null_entry = if *nullable { table.len() } else { table.len() - 1 };
    Ok(Some(BoundExpr {
        nullable: table[..null_entry].contains(&Truth::Null),
        kind: BoundKind::Lookup { register, table: table.into() },
        data_type: DataType::Bool,
        repr: Repr::Bool,
        range: range::type_range(&DataType::Bool),
        text: Arc::clone(&predicate.text),
    }))
}

/// Truth for each text, then for NULL.
fn truth_table(
    registers: &[RegisterInfo],
    register: usize,
    dictionary: &Dictionary,
    predicate: &BoundExpr,
) -> Result<Vec<Truth>, WhyNot> {
    let codes = dictionary.values.len();
    let rows = codes + 1;
    let mut texts: Vec<&str> = (0..codes).map(|code| dictionary.values.value(code)).collect();
    texts.push("");
    let mut valid = vec![1u8; rows];
    valid[codes] = 0;
    let column = Vector::with_validity(Data::Str(texts), Some(valid));
    let mut context = Context::from_vectors(registers, rows, Vec::new());
    context.set(register, Rc::new(column));
    let truth = eval(&mut context, predicate)
        .map_err(|e| WhyNot::new(format!("{} over its dictionary: {e}", predicate.text)))?
        .expanded(rows);
    let Data::Bool(values) = &truth.data else {
        return Err(WhyNot::new(format!("{} is not a condition", predicate.text)));
    };
    let entry = |row: usize| match (truth.is_valid(row), values[row]) {
        (false, _) => Truth::Null,
        (true, 0) => Truth::False,
        (true, _) => Truth::True,
    };
    Ok((0..rows).map(entry).collect())
}
