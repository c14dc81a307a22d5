//! Lowers expressions.

use std::sync::Arc;

use headrace_columns::repr::Repr;
use headrace_columns::shift::Shift;
use headrace_ir::{
    ArithmeticOp, CastFailure, DataType, Expr, Function, Interval, Scalar, TimeZone, Value,
    ValueRange,
};

use crate::WhyNot;
use crate::bind::{Binder, lookup, no_repr, ordered, proof, range, regex};
use crate::bound::{BoundExpr, BoundKind};
use crate::function;

impl Binder {
    /// Lowers one expression.
    pub(super) fn expr(&self, expr: &Expr) -> Result<BoundExpr, WhyNot> {
        if let Some(lookup) = lookup::tabulated(&self.registers, expr)? {
            return Ok(lookup);
        }
        match expr {
            Expr::Register { index, .. } => self.register(*index),
            Expr::Literal(scalar) => literal(scalar),
            Expr::Parameter { .. } => Err(WhyNot::new(format!("parameter {expr} has no value"))),
            Expr::Arithmetic { op, left, right, data_type, on_overflow } => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                let bounds = range::arithmetic(*op, left.range, right.range);
                let (_, range) = range::fitted(bounds, data_type);
                let proven = |e: &BoundExpr| proof::proven(e, &self.proven);
                let bounds = range::arithmetic(*op, proven(&left), proven(&right));
                let (fits, _) = range::fitted(bounds, data_type);
                let nullable = left.nullable || right.nullable;
                let cannot_overflow = fits
                    || range::decimal_fits(*op, &left.data_type, &right.data_type, data_type)
                    || (*op == ArithmeticOp::Modulo && data_type.is_integer());
                let kind = BoundKind::Arithmetic {
                    op: *op,
                    left: Box::new(left),
                    right: Box::new(right),
                    on_overflow: *on_overflow,
                    cannot_overflow,
                };
                built(expr, kind, data_type, nullable, range)
            }
            Expr::Negate { value, on_overflow } => {
                let value = self.expr(value)?;
                let bounds = value.range.map(|r| (-i128::from(r.max), -i128::from(r.min)));
                let (_, range) = range::fitted(bounds, &value.data_type);
                let (data_type, nullable) = (value.data_type.clone(), value.nullable);
                let kind = BoundKind::Negate { value: Box::new(value), on_overflow: *on_overflow };
                built(expr, kind, &data_type, nullable, range)
            }
            Expr::Compare { op, left, right } => {
                let (left, right) = comparable(self.expr(left)?, self.expr(right)?);
                ordered(&left)?;
                let nullable = left.nullable || right.nullable;
                let kind =
                    BoundKind::Compare { op: *op, left: Box::new(left), right: Box::new(right) };
                truth(expr, kind, nullable)
            }
            Expr::And(operands) => {
                let (operands, nullable) = self.all(operands)?;
                truth(expr, BoundKind::And(operands), nullable)
            }
            Expr::Or(operands) => {
                let (operands, nullable) = self.all(operands)?;
                truth(expr, BoundKind::Or(operands), nullable)
            }
            Expr::Not(value) => {
                let value = self.expr(value)?;
                let nullable = value.nullable;
                truth(expr, BoundKind::Not(Box::new(value)), nullable)
            }
            Expr::IsNull(value) => {
                truth(expr, BoundKind::IsNull(Box::new(self.expr(value)?)), false)
            }
            Expr::InList { value, list, negated } => self.in_list(expr, value, list, *negated),
            Expr::Like { value, pattern, escape, negated, case_insensitive } => {
                let value = decoded(self.expr(value)?);
                let nullable = value.nullable;
                let kind = BoundKind::Like {
                    value: Box::new(value),
                    pattern: pattern.as_str().into(),
                    escape: escape.unwrap_or('\\'),
                    negated: *negated,
                    case_insensitive: *case_insensitive,
                };
                truth(expr, kind, nullable)
            }
            Expr::Case { branches, otherwise, data_type } => {
                self.case(expr, branches, otherwise.as_deref(), data_type)
            }
            Expr::Cast { value, to, on_failure } => {
                let value = self.expr(value)?;
                if value.data_type == *to {
                    return Ok(value);
                }
                let may_be_null = *on_failure == CastFailure::Null;
                let nullable = value.nullable || may_be_null && value.data_type.cast_can_fail(to);
                let bounds = value.range.map(|r| (i128::from(r.min), i128::from(r.max)));
                let same_numbers = value.data_type.is_integer() && to.is_integer();
                let (_, range) = range::fitted(bounds.filter(|_| same_numbers), to);
                let kind = BoundKind::Cast { value: Box::new(value), on_failure: *on_failure };
                built(expr, kind, to, nullable, range)
            }
            Expr::Call { function, arguments, data_type } => {
                self.call(expr, *function, arguments, data_type)
            }
            Expr::Cuda { function, arguments, twin } => {
                let twin = twin.as_ref().map(|twin| self.expr(twin)).transpose()?;
                let arguments = arguments.iter().map(|argument| Ok(decoded(self.expr(argument)?)));
                let arguments = arguments.collect::<Result<Vec<_>, WhyNot>>()?;
                let data_type = &function.result;
                let nullable = arguments.iter().chain(&twin).any(|e| e.nullable);
                let function = Arc::new(function.as_ref().clone());
                let kind = BoundKind::Cuda { function, arguments, twin: twin.map(Box::new) };
                built(expr, kind, data_type, nullable, range::type_range(data_type))
            }
        }
    }

    fn call(
        &self,
        expr: &Expr,
        function: Function,
        arguments: &[Expr],
        data_type: &DataType,
    ) -> Result<BoundExpr, WhyNot> {
        if function.takes_binary() {
            return self.shift(expr, function, arguments, data_type);
        }
        if function.takes_pattern() {
            return self.search(expr, function, arguments, data_type);
        }
        let arguments = arguments.iter().map(|argument| Ok(decoded(self.expr(argument)?)));
        let mut arguments = arguments.collect::<Result<Vec<_>, WhyNot>>()?;
        let Some(argument) = arguments.first() else {
            return Err(WhyNot::new(format!("{expr} has no arguments")));
        };
        if function::is_identity(function, &argument.data_type, data_type) {
            return Ok(arguments.swap_remove(0));
        }
        let range = function::range(function, &argument.data_type, argument.range, data_type);
        let proven = proof::proven(argument, &self.proven);
        let sure = function::in_calendar(&argument.data_type, proven);
        let may_be_null = expr.signature().is_none_or(|signature| signature.may_be_null);
        let nullable = arguments.iter().any(|a| a.nullable) || may_be_null && !sure;
        let kind = BoundKind::Call { function, arguments };
        built(expr, kind, data_type, nullable, range)
    }

    /// A call whose second argument is a zone or an interval.
    fn shift(
        &self,
        expr: &Expr,
        function: Function,
        arguments: &[Expr],
        data_type: &DataType,
    ) -> Result<BoundExpr, WhyNot> {
        let [value, Expr::Literal(by)] = arguments else {
            return Err(WhyNot::new(format!("{expr}: its second argument is no constant")));
        };
        if by.is_null() {
            return literal(&Scalar::null(data_type.clone()));
        }
        let value = Box::new(self.expr(value)?);
        let by = match function {
            Function::LocalTime => TimeZone::of(by).map(Shift::ToLocal),
            Function::Instant => TimeZone::of(by).map(Shift::ToUtc),
            Function::AddInterval => Interval::of(by).map(Shift::By),
            _ => Interval::of(by).and_then(Interval::negated).map(Shift::By),
        };
        let by = by.ok_or_else(|| WhyNot::new(format!("{expr}: no such zone or interval")))?;
        let nullable = value.nullable;
        let kind = BoundKind::Shift { value, by: Arc::new(by) };
        built(expr, kind, data_type, nullable, range::type_range(data_type))
    }

    /// A call whose second argument is a regular expression.
    fn search(
        &self,
        expr: &Expr,
        function: Function,
        arguments: &[Expr],
        data_type: &DataType,
    ) -> Result<BoundExpr, WhyNot> {
        let [value, Expr::Literal(Scalar { value: Value::Utf8(pattern), .. })] = arguments else {
            return Err(WhyNot::new(format!("{expr}: its regular expression is no constant")));
        };
        let value = Box::new(decoded(self.expr(value)?));
        let by = Arc::new(regex::automaton(pattern, regex::part_of(function))?);
        let may_be_null = expr.signature().is_none_or(|signature| signature.may_be_null);
        let nullable = value.nullable || may_be_null;
        let range = range::type_range(data_type);
        built(expr, BoundKind::Search { value, by }, data_type, nullable, range)
    }

    fn all(&self, operands: &[Expr]) -> Result<(Vec<BoundExpr>, bool), WhyNot> {
        let operands = operands.iter().map(|e| self.expr(e)).collect::<Result<Vec<_>, _>>()?;
        let nullable = operands.iter().any(|e| e.nullable);
        Ok((operands, nullable))
    }

    pub(super) fn register(&self, index: usize) -> Result<BoundExpr, WhyNot> {
        let info = self
            .registers
            .get(index)
            .ok_or_else(|| WhyNot::new(format!("register {index} is not there")))?;
        Ok(BoundExpr {
            kind: BoundKind::Register(index),
            data_type: info.data_type.clone(),
            repr: info.repr.clone(),
            nullable: info.nullable,
            range: info.range,
            text: info.name.as_str().into(),
        })
    }

    fn in_list(
        &self,
        expr: &Expr,
        value: &Expr,
        list: &[Scalar],
        negated: bool,
    ) -> Result<BoundExpr, WhyNot> {
        let value = decoded(self.expr(value)?);
        ordered(&value)?;
        let list_has_null = list.iter().any(Scalar::is_null);
        let mut constants: Vec<Scalar> = list.iter().filter(|s| !s.is_null()).cloned().collect();
        constants.sort_by(|a, b| order_of(&a.value, &b.value));
        let nullable = value.nullable || list_has_null;
        let kind = BoundKind::InList {
            value: Box::new(value),
            list: constants.into(),
            list_has_null,
            negated,
        };
        truth(expr, kind, nullable)
    }

    fn case(
        &self,
        expr: &Expr,
        branches: &[(Expr, Expr)],
        otherwise: Option<&Expr>,
        data_type: &DataType,
    ) -> Result<BoundExpr, WhyNot> {
        let branches = branches
            .iter()
            .map(|(condition, value)| Ok((self.expr(condition)?, self.expr(value)?)))
            .collect::<Result<Vec<_>, WhyNot>>()?;
        let otherwise = otherwise.map(|e| self.expr(e)).transpose()?;
        // Codes of one dictionary stay what they are.
        let first = branches.first().map(|(_, value)| value.repr.clone());
        let mut values = branches.iter().map(|(_, value)| value).chain(&otherwise);
        let codes = first.filter(|first| {
            matches!(first, Repr::Code(_)) && values.all(|value| value.repr.same_as(first))
        });
        let plain = |value| if codes.is_some() { value } else { decoded(value) };
        let branches: Vec<_> = branches.into_iter().map(|(c, value)| (c, plain(value))).collect();
        let otherwise = otherwise.map(plain);
        let values = || branches.iter().map(|(_, value)| value).chain(&otherwise);
        let nullable = otherwise.is_none() || values().any(|value| value.nullable);
        let range = values().map(|value| value.range).reduce(range::union).flatten();
        let kind = BoundKind::Case { branches, otherwise: otherwise.map(Box::new) };
        let chosen = built(expr, kind, data_type, nullable, range)?;
        Ok(match codes {
            Some(repr) => BoundExpr { repr, ..chosen },
            None => chosen,
        })
    }
}

fn order_of(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        (Value::Utf8(a), Value::Utf8(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Binary(a), Value::Binary(b)) => a.cmp(b),
        _ => std::cmp::Ordering::Equal,
    }
}

fn built(
    expr: &Expr,
    kind: BoundKind,
    data_type: &DataType,
    nullable: bool,
    range: Option<ValueRange>,
) -> Result<BoundExpr, WhyNot> {
    let repr = Repr::of(data_type).ok_or_else(|| no_repr(data_type, &expr.to_string()))?;
    let text: Arc<str> = expr.to_string().into();
    Ok(BoundExpr { kind, data_type: data_type.clone(), repr, nullable, range, text })
}

fn truth(expr: &Expr, kind: BoundKind, nullable: bool) -> Result<BoundExpr, WhyNot> {
    built(expr, kind, &DataType::Bool, nullable, range::type_range(&DataType::Bool))
}

fn literal(scalar: &Scalar) -> Result<BoundExpr, WhyNot> {
    let expr = Expr::Literal(scalar.clone());
    let range = range::of_scalar(scalar);
    built(&expr, BoundKind::Literal(scalar.clone()), &scalar.data_type, scalar.is_null(), range)
}

/// Text in place of codes.
pub(super) fn decoded(expr: BoundExpr) -> BoundExpr {
    if !matches!(expr.repr, Repr::Code(_)) {
        return expr;
    }
    BoundExpr {
        data_type: expr.data_type.clone(),
        repr: Repr::Str,
        nullable: expr.nullable,
        range: None,
        text: Arc::clone(&expr.text),
        kind: BoundKind::Decode(Box::new(expr)),
    }
}

fn comparable(left: BoundExpr, right: BoundExpr) -> (BoundExpr, BoundExpr) {
    if left.repr.same_as(&right.repr) { (left, right) } else { (decoded(left), decoded(right)) }
}
