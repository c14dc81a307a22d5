//! Expressions, for row `r` of the thread.

use headrace_ir::{
    ArithmeticOp, CastFailure, CompareOp, DataType, OnOverflow, Scalar, Value as Constant,
};
use headrace_pipeline::bound::{BoundExpr, BoundKind, Repr, Truth};

use super::text::{c_type, is_float, is_integer, literal};
use super::texts::{compare_texts, like_items};
use super::{Generator, Held, Result, refuse};
use crate::program::Place;

/// A C++ expression of the representation's type, and whether it is NULL. Neither has side
/// effects; the value of a NULL has no meaning but may be computed.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) code: String,
    pub(super) null: Option<String>,
}

impl Value {
    fn known(code: impl Into<String>) -> Self {
        Self { code: code.into(), null: None }
    }
}

/// Dictionaries of at most this many texts have their predicates as bits of one parameter.
const MASK_ENTRIES_MAX: usize = 64;

/// IN lists of at most this many constants are compared one by one.
const SHORT_LIST_MAX: usize = 8;

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
    /// Whether the generated value of `expr` has a NULL part.
    pub(super) fn may_be_null(&self, expr: &BoundExpr) -> bool {
        match &expr.kind {
            BoundKind::Register(register) => match &self.held[*register] {
                Held::Array { valid, .. }
                | Held::Raw { valid, .. }
                | Held::Deltas { valid, .. } => valid.is_some(),
                Held::NotLoaded | Held::Late { .. } => self.bound.registers[*register].nullable,
            },
            BoundKind::Literal(scalar) => scalar.is_null(),
            BoundKind::IsNull(_) => false,
            BoundKind::Lookup { .. } | BoundKind::Numbers { .. } => true,
            BoundKind::InList { value, list_has_null, .. } => {
                *list_has_null || self.may_be_null(value)
            }
            BoundKind::Case { branches, otherwise } => {
                otherwise.as_ref().is_none_or(|e| self.may_be_null(e))
                    || branches.iter().any(|(_, value)| self.may_be_null(value))
            }
            BoundKind::Cast { value, on_failure } => {
                *on_failure == CastFailure::Null || self.may_be_null(value)
            }
            // Parts of moments outside the calendar are NULL.
            BoundKind::Call { arguments, .. } => {
                expr.nullable || arguments.iter().any(|argument| self.may_be_null(argument))
            }
            _ => expr.children().into_iter().any(|child| self.may_be_null(child)),
        }
    }

    /// An expression that is true exactly where `expr` is true, not NULL.
    pub(super) fn truth(&mut self, expr: &BoundExpr) -> Result<String> {
        let value = self.value(expr)?;
        Ok(match value.null {
            None => value.code,
            Some(null) if value.code == "true" => format!("!({null})"),
            Some(null) => format!("!({null}) && {}", operand(&value.code)),
        })
    }

    /// The value of `expr`. Statements that it needs are written to the body before.
    pub(super) fn value(&mut self, expr: &BoundExpr) -> Result<Value> {
        match &expr.kind {
            BoundKind::Register(register) => self.register(*register),
            BoundKind::Literal(scalar) if scalar.is_null() => {
                Ok(Value { code: format!("{}(0)", c_type(&expr.repr)?), null: Some("true".into()) })
            }
            BoundKind::Literal(scalar) => {
                Ok(Value::known(self.literal(scalar, &expr.repr, "literal")?))
            }
            BoundKind::Lookup { register, table } => self.lookup(*register, table),
            BoundKind::Numbers { register, table } => {
                let code = self.register(*register)?;
                let bytes = table.iter().flat_map(|number| number.to_le_bytes()).collect();
                let table = self.table(bytes, "const i32*", "numbers");
                Ok(Value { code: format!("{table}[{}]", code.code), null: code.null })
            }
            BoundKind::Arithmetic { op, left, right, on_overflow, cannot_overflow } => {
                let checked = *on_overflow != OnOverflow::Wrap && !cannot_overflow;
                self.arithmetic(expr, *op, left, right, checked, *cannot_overflow)
            }
            BoundKind::Negate { value, on_overflow } => self.negate(expr, value, *on_overflow),
            BoundKind::Compare { op, left, right } => self.compare(*op, left, right),
            BoundKind::And(operands) => self.connective(operands, true),
            BoundKind::Or(operands) => self.connective(operands, false),
            BoundKind::Not(value) => {
                let value = self.value(value)?;
                Ok(Value { code: format!("!{}", operand(&value.code)), null: value.null })
            }
            BoundKind::IsNull(value) => {
                let value = self.value(value)?;
                Ok(Value::known(value.null.unwrap_or_else(|| "false".into())))
            }
            BoundKind::InList { value, list, list_has_null, negated } => {
                self.in_list(value, list, *list_has_null, *negated)
            }
            BoundKind::Case { branches, otherwise } => {
                self.case(expr, branches, otherwise.as_deref())
            }
            BoundKind::Cast { value, on_failure } => self.cast(expr, value, *on_failure),
            BoundKind::Call { function, arguments } => self.call(expr, *function, arguments),
            BoundKind::Like { value, pattern, escape, negated, case_insensitive } => {
                if *case_insensitive {
                    return refuse(format!("{} is not on the CUDA processor", expr.text));
                }
                self.like(value, &like_items(pattern, *escape), *negated)
            }
            BoundKind::Decode(_) => refuse(format!("{} are texts of a dictionary", expr.text)),
            BoundKind::Shift { .. } => {
                refuse(format!("{}: the CUDA processor has no zones and intervals", expr.text))
            }
        }
    }

    fn register(&mut self, register: usize) -> Result<Value> {
        let null =
            |valid: &Option<String>| valid.as_ref().map(|valid| format!("!({valid} >> r & 1u)"));
        Ok(match &self.held[register] {
            Held::Array { name, valid } => Value { code: format!("{name}[r]"), null: null(valid) },
            Held::Raw { name, base, valid } => {
                let kind = c_type(self.register_type(register))?;
                Value { code: format!("{kind}({base} + {name}[r])"), null: null(valid) }
            }
            Held::Deltas { name, base, valid } => {
                let kind = c_type(self.register_type(register))?;
                Value { code: format!("hr::based<{kind}>({base}, {name}, r)"), null: null(valid) }
            }
            Held::NotLoaded | Held::Late { .. } => {
                return refuse(format!(
                    "register {} is not available where it is read",
                    self.bound.registers[register].name
                ));
            }
        })
    }

    /// Gives an expression a name if it is to be used more than once.
    pub(super) fn named(&mut self, c_type: &str, wish: &str, code: String) -> String {
        let name = self.names.unique(wish);
        self.body.line(format!("const {c_type} {name} = {code};"));
        name
    }

    /// NULL of a strict operation.
    pub(super) fn either_null(&mut self, left: &Value, right: &Value) -> Option<String> {
        match (&left.null, &right.null) {
            (None, null) | (null, None) => null.clone(),
            (Some(l), Some(r)) if l == r => Some(l.clone()),
            (Some(l), Some(r)) => {
                let code = format!("{} || {}", operand(l), operand(r));
                Some(if code.len() > 60 { self.named("bool", "null", code) } else { code })
            }
        }
    }

    /// Writes a statement that fails with `place` where `condition` holds, the row is there and
    /// not NULL. (What ranges say cannot fail is evaluated for rows that are gone as well.)
    pub(super) fn fail_if(&mut self, null: &Option<String>, condition: &str, place: Place) {
        let place = self.place(place);
        let not_null = null.as_ref().map(|null| format!(" && !({null})")).unwrap_or_default();
        self.body.open(format!("if ((alive >> r & 1u){not_null} && {})", operand(condition)));
        self.raise(&place);
        self.body.close();
    }

    pub(super) fn overflow_place(expr: &BoundExpr) -> Place {
        Place::Overflow { type_name: expr.data_type.to_string(), place: expr.text.to_string() }
    }

    fn lookup(&mut self, register: usize, table: &[Truth]) -> Result<Value> {
        let Some((when_null, by_code)) = table.split_last() else {
            return refuse("an empty lookup table");
        };
        let code = self.register(register)?;
        let is_true = self.bitmap(by_code, Truth::True, &code.code, "lookup")?;
        let any_null = by_code.contains(&Truth::Null);
        let is_null = if any_null {
            Some(self.bitmap(by_code, Truth::Null, &code.code, "lookup_null")?)
        } else {
            None
        };
        let Some(no_value) = code.null else {
            return Ok(Value { code: is_true, null: is_null });
        };
        let null = match (when_null, is_null) {
            (Truth::Null, None) => Some(no_value.clone()),
            (Truth::Null, Some(null)) => Some(format!("({no_value}) || ({null})")),
            (_, None) => None,
            (_, Some(null)) => Some(format!("!({no_value}) && ({null})")),
        };
        let code = match when_null {
            Truth::Null => is_true,
            Truth::True => format!("(({no_value}) || {is_true})"),
            Truth::False => format!("(!({no_value}) && {is_true})"),
        };
        Ok(Value { code, null })
    }

    /// Whether the table has `wanted` at an index that is known to lie inside it.
    fn bitmap(
        &mut self,
        table: &[Truth],
        wanted: Truth,
        index: &str,
        wish: &str,
    ) -> Result<String> {
        let mut words = vec![0u32; table.len().div_ceil(32).max(1)];
        for (i, _) in table.iter().enumerate().filter(|(_, truth)| **truth == wanted) {
            words[i / 32] |= 1 << (i % 32);
        }
        if table.len() <= MASK_ENTRIES_MAX {
            let mask = words.iter().rev().fold(0, |mask, word| mask << 32 | u64::from(*word));
            let mask = self.constant(mask, "u64", wish);
            return Ok(format!("bool({mask} >> {index} & 1u)"));
        }
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let table = self.table(bytes, "const u32*", wish);
        Ok(format!("hr::bit({table}, {index})"))
    }

    fn arithmetic(
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
        if matches!(op, ArithmeticOp::Divide | ArithmeticOp::Modulo) {
            return refuse(format!(
                "decimal division ({}) is not on the CUDA processor",
                expr.text
            ));
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
        let limit = digit_limit(&expr.data_type)
            .map(super::text::i128_literal)
            .unwrap_or_else(|| "0".into());
        let over = format!("!{exact} || !hr::has_digits({result}, {limit})");
        self.fail_if(&null, &format!("({over})"), Self::overflow_place(expr));
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
        let factor = super::text::i128_literal(factor);
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

    fn negate(
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

    fn compare(&mut self, op: CompareOp, left: &BoundExpr, right: &BoundExpr) -> Result<Value> {
        let (l, r) = (self.value(left)?, self.value(right)?);
        let null = self.either_null(&l, &r);
        let (ls, rs) = (scale_of(&left.data_type), scale_of(&right.data_type));
        let code = if is_float(&left.repr) {
            let kind = c_type(&left.repr)?;
            let (a, b) = (format!("{kind}({})", l.code), format!("{kind}({})", r.code));
            match op {
                CompareOp::Eq => format!("hr::equal({a}, {b})"),
                CompareOp::Ne => format!("!hr::equal({a}, {b})"),
                CompareOp::Lt => format!("hr::less({a}, {b})"),
                CompareOp::Le => format!("!hr::less({b}, {a})"),
                CompareOp::Gt => format!("hr::less({b}, {a})"),
                CompareOp::Ge => format!("!hr::less({a}, {b})"),
            }
        } else if matches!(left.repr, Repr::Str) {
            compare_texts(op, &l.code, &r.code)
        } else if matches!(left.repr, Repr::I128) && ls != rs {
            let scale = ls.max(rs);
            let left_factor = super::text::i128_literal(power_of_ten(scale - ls)?);
            let right_factor = super::text::i128_literal(power_of_ten(scale - rs)?);
            format!(
                "(hr::compare_scaled({}, {left_factor}, {}, {right_factor}) {} 0)",
                l.code,
                r.code,
                operator(op)
            )
        } else {
            c_type(&left.repr)?;
            format!("({} {} {})", l.code, operator(op), r.code)
        };
        Ok(Value { code, null })
    }

    /// AND (`all`) or OR, three-valued, deciding from left to right.
    fn connective(&mut self, operands: &[BoundExpr], all: bool) -> Result<Value> {
        // The value that decides: false for AND, true for OR.
        let decider = !all;
        if operands.is_empty() {
            return Ok(Value::known(all.to_string()));
        }
        let nullable = operands.iter().any(|e| self.may_be_null(e));
        if !nullable && !operands.iter().skip(1).any(BoundExpr::can_fail) {
            let mut parts = Vec::with_capacity(operands.len());
            for operand_expr in operands {
                parts.push(operand(&self.value(operand_expr)?.code));
            }
            let joined = parts.join(if all { " && " } else { " || " });
            return Ok(Value::known(format!("({joined})")));
        }
        let decided = self.names.unique("decided");
        let unknown = self.names.unique("unknown");
        self.body.line(format!("bool {decided} = false;"));
        self.body.line(format!("bool {unknown} = false;"));
        for operand_expr in operands {
            self.body.open(format!("if (!{decided})"));
            let value = self.value(operand_expr)?;
            let decides = if decider { value.code } else { format!("!{}", operand(&value.code)) };
            match value.null {
                None => self.body.line(format!("{decided} = {decides};")),
                Some(null) => {
                    self.body.line(format!("if ({null}) {unknown} = true;"));
                    self.body.line(format!("else {decided} = {decides};"));
                }
            }
            self.body.close();
        }
        let code = if decider { decided.clone() } else { format!("!{decided}") };
        Ok(Value { code, null: nullable.then(|| format!("!{decided} && {unknown}")) })
    }

    fn in_list(
        &mut self,
        value: &BoundExpr,
        list: &[Scalar],
        list_has_null: bool,
        negated: bool,
    ) -> Result<Value> {
        let tested = self.value(value)?;
        let member = self.member(value, &tested.code, list)?;
        if !list_has_null {
            let code = if negated { format!("!{}", operand(&member)) } else { member };
            return Ok(Value { code, null: tested.null });
        }
        // x IN (.., NULL): true if found, NULL otherwise.
        let found = self.named("bool", "listed", member);
        let null = match tested.null {
            None => format!("!{found}"),
            Some(null) => format!("{} || !{found}", operand(&null)),
        };
        Ok(Value { code: (!negated).to_string(), null: Some(null) })
    }

    fn member(&mut self, value: &BoundExpr, code: &str, list: &[Scalar]) -> Result<String> {
        if list.is_empty() {
            return Ok("false".into());
        }
        if matches!(value.repr, Repr::Str) {
            return self.text_member(code, list);
        }
        let kind = c_type(&value.repr)?;
        if list.len() > SHORT_LIST_MAX {
            return self.integer_member(value, kind, code, list);
        }
        // Lists of nearly the same length are one kernel: the last constant stands again.
        let length = list.len().next_power_of_two();
        let mut parts = Vec::with_capacity(length);
        for index in 0..length {
            let scalar = &list[index.min(list.len() - 1)];
            let constant = self.literal(scalar, &value.repr, "listed")?;
            parts.push(if is_float(&value.repr) {
                format!("hr::equal({kind}({code}), {kind}({constant}))")
            } else {
                format!("{code} == {constant}")
            });
        }
        Ok(format!("({})", parts.join(" || ")))
    }

    fn integer_member(
        &mut self,
        value: &BoundExpr,
        kind: &str,
        code: &str,
        list: &[Scalar],
    ) -> Result<String> {
        let integer = |scalar: &Scalar| match scalar.value {
            Constant::Int(value_of) if is_integer(&value.repr) => Some(value_of),
            _ => None,
        };
        let Some(mut list) = list.iter().map(integer).collect::<Option<Vec<i128>>>() else {
            return refuse(format!("a long IN list over {}", value.data_type));
        };
        list.sort_unstable();
        list.dedup();
        let width = match kind {
            "i8" | "u8" => 1,
            "i16" | "u16" => 2,
            "i32" | "u32" => 4,
            _ => 8,
        };
        let bytes = list.iter().flat_map(|v| v.to_le_bytes()[..width].to_vec()).collect();
        let table = self.table(bytes, &format!("const {kind}*"), "in_list");
        let length = self.constant(list.len() as u64, "u32", "in_list_length");
        Ok(format!("hr::in_sorted<{kind}>({table}, {length}, {code})"))
    }

    fn case(
        &mut self,
        expr: &BoundExpr,
        branches: &[(BoundExpr, BoundExpr)],
        otherwise: Option<&BoundExpr>,
    ) -> Result<Value> {
        let kind = c_type(&expr.repr)?;
        let nullable = self.may_be_null(expr);
        let result = self.names.unique("chosen");
        self.body.line(format!("{kind} {result} = {kind}(0);"));
        let null = nullable.then(|| self.names.unique("chosen_null"));
        if let Some(null) = &null {
            self.body.line(format!("bool {null} = true;"));
        }
        for (condition, value) in branches {
            let condition = self.truth(condition)?;
            self.body.open(format!("if ({condition})"));
            self.assign(&result, &null, value)?;
            self.body.otherwise();
        }
        if let Some(value) = otherwise {
            self.assign(&result, &null, value)?;
        }
        for _ in branches {
            self.body.close();
        }
        Ok(Value { code: result, null })
    }

    fn assign(&mut self, result: &str, null: &Option<String>, value: &BoundExpr) -> Result<()> {
        let value = self.value(value)?;
        self.body.line(format!("{result} = {};", value.code));
        if let Some(null) = null {
            let is_null = value.null.unwrap_or_else(|| "false".into());
            self.body.line(format!("{null} = {is_null};"));
        }
        Ok(())
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

pub(super) fn operator(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

/// Parentheses around what is not one word, call or parenthesised expression already.
pub(super) fn operand(code: &str) -> String {
    let simple = code.chars().all(|c| c.is_ascii_alphanumeric() || "_[].".contains(c));
    if simple || is_wrapped(code) { code.to_string() } else { format!("({code})") }
}

/// Whether the first character opens a parenthesis that the last one closes.
fn is_wrapped(code: &str) -> bool {
    if !code.starts_with('(') || !code.ends_with(')') {
        return false;
    }
    let mut depth = 0i32;
    for (at, c) in code.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 && at + 1 < code.len() {
            return false;
        }
    }
    true
}
