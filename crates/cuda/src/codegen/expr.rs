//! Expressions, for row `r` of the thread.

use headrace_columns::lookup::Truth;
use headrace_columns::repr::Repr;
use headrace_ir::{CastFailure, CompareOp, OnOverflow, Scalar, Value as Constant};
use headrace_pipeline::bound::{BoundExpr, BoundKind};

use crate::codegen::arithmetic::{power_of_ten, scale_of};
use crate::codegen::generator::Generator;
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::{c_type, i128_literal, is_float, is_integer, operand, operator};
use crate::codegen::texts::{compare_texts, like_items};
use crate::codegen::value::{Held, Value};
use crate::place::Place;

/// Dictionaries of at most this many texts have their predicates as bits of one parameter.
const MASK_ENTRIES_MAX: usize = 64;

/// IN lists of at most this many constants are compared one by one.
const SHORT_LIST_MAX: usize = 8;

impl Generator<'_> {
    /// Whether the generated value of `expr` has a NULL part.
    pub(super) fn may_be_null(&self, expr: &BoundExpr) -> bool {
        match &expr.kind {
            BoundKind::Register(register) => match &self.held[*register] {
                Held::Array { valid, .. }
                | Held::Raw { valid, .. }
                | Held::Deltas { valid, .. } => valid.is_some(),
                Held::Bits { .. } => false,
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
            BoundKind::Search { value, .. } => expr.nullable || self.may_be_null(value),
            // Parts of moments outside the calendar are NULL.
            // A twin tells of the cores.
            BoundKind::Cuda { arguments, .. } => arguments.iter().any(|a| self.may_be_null(a)),
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
                let index = self.index_within(&code.code, table.len());
                let bytes = table.iter().flat_map(|number| number.to_le_bytes()).collect();
                let table = self.table(bytes, "const i32*", "numbers");
                Ok(Value { code: format!("{table}[{index}]"), null: code.null })
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
            BoundKind::Cuda { function, arguments, .. } => {
                self.user_call(expr, function, arguments)
            }
            BoundKind::Like { value, pattern, escape, negated, case_insensitive } => {
                if *case_insensitive {
                    return refuse(format!("{} is not on the CUDA processor", expr.text));
                }
                self.like(value, &like_items(pattern, *escape), *negated)
            }
            BoundKind::Search { value, by } => self.search(expr, value, by),
            BoundKind::Decode(value) => self.decode(value),
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
            Held::Bits { name } => Value::known(format!("bool({name} >> r & 1u)")),
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

    /// NULL of a strict operation on any number of values.
    pub(super) fn any_null(&mut self, values: &[Value]) -> Option<String> {
        values.iter().fold(None, |null, value| {
            let before = Value { code: String::new(), null };
            self.either_null(&before, value)
        })
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

    /// Whether the table has `wanted` at an index.
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
        let index = self.index_within(index, words.len() * 32);
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let table = self.table(bytes, "const u32*", wish);
        Ok(format!("hr::bit({table}, {index})"))
    }

    /// A code as an index of a table of so many entries. The code of a row without a match may lie outside; it is cut so that
    /// nothing but the table is read.
    pub(super) fn index_within(&mut self, code: &str, entries: usize) -> String {
        let last = self.constant(entries.saturating_sub(1) as u64, "u32", "last_entry");
        format!("hr::least(u32({code}), {last})")
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
        } else if matches!(left.repr, Repr::Str | Repr::Bytes(_)) {
            compare_texts(op, &l.code, &r.code)
        } else if matches!(left.repr, Repr::I128) && ls != rs {
            let scale = ls.max(rs);
            let left_factor = i128_literal(power_of_ten(scale - ls)?);
            let right_factor = i128_literal(power_of_ten(scale - rs)?);
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
        if matches!(value.repr, Repr::Str | Repr::Bytes(_)) {
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
