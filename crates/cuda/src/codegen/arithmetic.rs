//! Arithmetic, for row `r` of the thread.

use headrace_columns::repr::Repr;
use headrace_ir::{ArithmeticOp, DataType, OnOverflow};
use headrace_pipeline::bound::{BoundExpr, BoundKind};

use crate::codegen::generator::Generator;
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::{c_type, i128_literal, is_float, is_integer, literal, operand};
use crate::codegen::value::Value;
use crate::place::Place;

pub(super) fn scale_of(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal128 { scale, .. } => i32::from(*scale),
        _ => 0,
    }
}

/// `10^precision` of a decimal type: its values lie strictly between it and its negative.
pub(super) fn digit_limit(data_type: &DataType) -> Option<i128> {
    match data_type {
        DataType::Decimal128 { precision, .. } if *precision <= 38 => {
            Some(10i128.pow(u32::from(*precision)))
        }
        _ => None,
    }
}

/// `10^exponent`, where it fits.
pub(super) fn power_of_ten(exponent: i32) -> Result<i128> {
    match u32::try_from(exponent) {
        Ok(exponent @ 0..=38) => Ok(10i128.pow(exponent)),
        _ => refuse(format!("a decimal factor of 10^{exponent}")),
    }
}

impl Generator<'_> {
    pub(super) fn arithmetic(
        &mut self,
        expr: &BoundExpr,
        op: ArithmeticOp,
        left: &BoundExpr,
        right: &BoundExpr,
        checked: bool,
        cannot_overflow: bool,
    ) -> Result<Value> {
        if matches!(expr.repr, Repr::I128) {
            return self.decimal_arithmetic(expr, op, left, right, checked);
        }
        let kind = c_type(&expr.repr)?;
        let l = self.value(left)?;
        let r = match &right.kind {
            // A division by a known number is a multiplication.
            BoundKind::Literal(scalar) if divides(op) && !scalar.is_null() => {
                Value::known(literal(scalar, &right.repr)?)
            }
            _ => self.value(right)?,
        };
        let null = self.either_null(&l, &r);
        if is_float(&expr.repr) {
            let code = match op {
                ArithmeticOp::Modulo => {
                    format!("hr::modulo({kind}({}), {kind}({}))", l.code, r.code)
                }
                _ if expr.is_strict() => return Ok(self.strict(expr, op, kind, (l, r), null)),
                op => format!("({} {op} {})", l.code, r.code),
            };
            return Ok(Value { code, null });
        }
        if !is_integer(&expr.repr) {
            return refuse(format!("{} is not arithmetic on numbers", expr.text));
        }
        if divides(op) {
            return self.divide(expr, op, l, r, null, checked);
        }
        let verb = verb(op);
        if checked {
            let result = self.names.unique("checked");
            self.body.line(format!("{kind} {result};"));
            let exact = format!("hr::{verb}_checked<{kind}>({}, {}, &{result})", l.code, r.code);
            // Evaluated for NULLs as well, so that the result is always set.
            let exact = self.named("bool", "exact", exact);
            self.fail_if(&null, &format!("!{exact}"), Self::overflow_place(expr));
            return Ok(Value { code: result, null });
        }
        let code =
            if cannot_overflow && matches!(expr.repr, Repr::I32 | Repr::I64) && null.is_none() {
                format!("({} {op} {})", l.code, r.code)
            } else {
                format!("hr::{verb}_wrapping<{kind}>({}, {})", l.code, r.code)
            };
        Ok(Value { code, null })
    }

    /// Arithmetic of floats that fails where they leave their range.
    fn strict(
        &mut self,
        expr: &BoundExpr,
        op: ArithmeticOp,
        kind: &str,
        (l, r): (Value, Value),
        null: Option<String>,
    ) -> Value {
        let (left, right) = (self.named(kind, "left", l.code), self.named(kind, "right", r.code));
        let result = self.named(kind, "result", format!("{left} {op} {right}"));
        if op == ArithmeticOp::Divide {
            let by_zero = format!("({right} == 0 && {left} == {left})");
            self.fail_if(&null, &by_zero, Place::DivisionByZero { place: expr.text.to_string() });
        }
        let over =
            format!("hr::is_infinite({result}) && hr::is_finite({left}) && hr::is_finite({right})");
        let under = match op {
            ArithmeticOp::Multiply => format!("{result} == 0 && {left} != 0 && {right} != 0"),
            ArithmeticOp::Divide => {
                format!("{result} == 0 && {left} != 0 && hr::is_finite({right})")
            }
            _ => "false".into(),
        };
        self.fail_if(&null, &format!("({over} || {under})"), Self::overflow_place(expr));
        Value { code: result, null }
    }

    fn divide(
        &mut self,
        expr: &BoundExpr,
        op: ArithmeticOp,
        l: Value,
        r: Value,
        null: Option<String>,
        checked: bool,
    ) -> Result<Value> {
        let kind = c_type(&expr.repr)?;
        let dividend = self.named(kind, "dividend", l.code);
        let divisor = self.named(kind, "divisor", r.code);
        self.fail_if(
            &null,
            &format!("{divisor} == 0"),
            Place::DivisionByZero { place: expr.text.to_string() },
        );
        // A modulo never overflows: the remainder of the smallest value by -1 is 0.
        if checked && op == ArithmeticOp::Divide {
            self.fail_if(
                &null,
                &format!("hr::divides_over<{kind}>({dividend}, {divisor})"),
                Self::overflow_place(expr),
            );
        }
        let verb = if op == ArithmeticOp::Divide { "divide" } else { "modulo" };
        let safe = format!("{divisor} == 0 ? {kind}(1) : {divisor}");
        Ok(Value { code: format!("hr::{verb}<{kind}>({dividend}, {safe})"), null })
    }

    fn decimal_arithmetic(
        &mut self,
        expr: &BoundExpr,
        op: ArithmeticOp,
        left: &BoundExpr,
        right: &BoundExpr,
        checked: bool,
    ) -> Result<Value> {
        if divides(op) {
            return self.decimal_division(expr, op, left, right);
        }
        let (l, r) = (self.value(left)?, self.value(right)?);
        let null = self.either_null(&l, &r);
        let scale = scale_of(&expr.data_type);
        let (l, r) = match op {
            ArithmeticOp::Multiply => (l.code, r.code),
            _ => {
                let left_factor = power_of_ten(scale - scale_of(&left.data_type))?;
                let right_factor = power_of_ten(scale - scale_of(&right.data_type))?;
                (
                    self.rescaled(expr, l.code, left_factor, &null, checked)?,
                    self.rescaled(expr, r.code, right_factor, &null, checked)?,
                )
            }
        };
        let verb = verb(op);
        if !checked {
            return Ok(Value { code: format!("hr::{verb}_wrapping<i128>({l}, {r})"), null });
        }
        let result = self.names.unique("checked");
        self.body.line(format!("i128 {result};"));
        let exact =
            self.named("bool", "exact", format!("hr::{verb}_checked<i128>({l}, {r}, &{result})"));
        let limit = digit_limit(&expr.data_type).map(i128_literal).unwrap_or_else(|| "0".into());
        let over = format!("!{exact} || !hr::has_digits({result}, {limit})");
        self.fail_if(&null, &format!("({over})"), Self::overflow_place(expr));
        Ok(Value { code: result, null })
    }

    /// A quotient, whose dividend has the digits that the result's scale asks for, or a remainder.
    fn decimal_division(
        &mut self,
        expr: &BoundExpr,
        op: ArithmeticOp,
        left: &BoundExpr,
        right: &BoundExpr,
    ) -> Result<Value> {
        let (l, r) = (self.value(left)?, self.value(right)?);
        let null = self.either_null(&l, &r);
        let (ls, rs, scale) =
            (scale_of(&left.data_type), scale_of(&right.data_type), scale_of(&expr.data_type));
        let (left_digits, right_digits) = match op {
            ArithmeticOp::Divide => ((scale - ls + rs).max(0), (ls - rs - scale).max(0)),
            _ => (scale - ls, scale - rs),
        };
        let dividend = self.rescaled(expr, l.code, power_of_ten(left_digits)?, &null, true)?;
        let divisor = self.rescaled(expr, r.code, power_of_ten(right_digits)?, &null, true)?;
        let (dividend, divisor) =
            (self.named("i128", "dividend", dividend), self.named("i128", "divisor", divisor));
        let place = Place::DivisionByZero { place: expr.text.to_string() };
        self.fail_if(&null, &format!("{divisor} == 0"), place);
        let safe = format!("{divisor} == 0 ? i128(1) : {divisor}");
        let verb = verb(op);
        let result = self.named("i128", "result", format!("hr::{verb}<i128>({dividend}, {safe})"));
        let limit = digit_limit(&expr.data_type).map_or_else(|| "0".into(), i128_literal);
        let mut over = format!("!hr::has_digits({result}, {limit})");
        if op == ArithmeticOp::Divide {
            over = format!("(hr::divides_over<i128>({dividend}, {divisor}) || {over})");
        }
        self.fail_if(&null, &over, Self::overflow_place(expr));
        Ok(Value { code: result, null })
    }

    /// A decimal times a power of ten, checked where `expr` is.
    pub(super) fn rescaled(
        &mut self,
        expr: &BoundExpr,
        code: String,
        factor: i128,
        null: &Option<String>,
        checked: bool,
    ) -> Result<String> {
        if factor == 1 {
            return Ok(code);
        }
        let factor = i128_literal(factor);
        if !checked {
            return Ok(format!("hr::multiply_wrapping<i128>({code}, {factor})"));
        }
        let result = self.names.unique("rescaled");
        self.body.line(format!("i128 {result};"));
        let exact = format!("hr::multiply_checked<i128>({code}, {factor}, &{result})");
        let exact = self.named("bool", "exact", exact);
        self.fail_if(null, &format!("!{exact}"), Self::overflow_place(expr));
        Ok(result)
    }

    pub(super) fn negate(
        &mut self,
        expr: &BoundExpr,
        value: &BoundExpr,
        on_overflow: OnOverflow,
    ) -> Result<Value> {
        let kind = c_type(&expr.repr)?;
        let inner = self.value(value)?;
        if is_float(&expr.repr) {
            return Ok(Value { code: format!("(-{})", operand(&inner.code)), null: inner.null });
        }
        if on_overflow == OnOverflow::Wrap {
            let code = format!("hr::negate_wrapping<{kind}>({})", inner.code);
            return Ok(Value { code, null: inner.null });
        }
        let result = self.names.unique("checked");
        self.body.line(format!("{kind} {result};"));
        let exact = format!("hr::negate_checked<{kind}>({}, &{result})", inner.code);
        let exact = self.named("bool", "exact", exact);
        self.fail_if(&inner.null, &format!("!{exact}"), Self::overflow_place(expr));
        Ok(Value { code: result, null: inner.null })
    }
}

fn divides(op: ArithmeticOp) -> bool {
    matches!(op, ArithmeticOp::Divide | ArithmeticOp::Modulo)
}

fn verb(op: ArithmeticOp) -> &'static str {
    match op {
        ArithmeticOp::Add => "add",
        ArithmeticOp::Subtract => "subtract",
        ArithmeticOp::Multiply => "multiply",
        ArithmeticOp::Divide => "divide",
        ArithmeticOp::Modulo => "modulo",
    }
}
