//! Calls of named functions: text over `calendar.cuh` and `arithmetic.cuh`.

use headrace_columns::calendar::inner_calendar;
use headrace_columns::calendar::{DAY_SECONDS, span_ticks, timestamp_ticks};
use headrace_columns::function::round_unit;
use headrace_columns::repr::Repr;
use headrace_ir::DataType;
use headrace_ir::function::{DatePart, Function};
use headrace_pipeline::bound::BoundExpr;

use crate::codegen::arithmetic::{digit_limit, power_of_ten, scale_of};
use crate::codegen::generator::Generator;
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::{c_type, float_literal, i64_literal, i128_literal, is_float, operand};
use crate::codegen::value::Value;

impl Generator<'_> {
    pub(super) fn call(
        &mut self,
        expr: &BoundExpr,
        function: Function,
        arguments: &[BoundExpr],
    ) -> Result<Value> {
        if let (Function::AddDays, [days, more]) = (function, arguments) {
            let (days, more) = (self.value(days)?, self.value(more)?);
            let null = self.either_null(&days, &more);
            let call = |sum: &str| format!("hr::days_added({}, {}, &{sum})", days.code, more.code);
            return self.checked(expr, "i32", &null, call);
        }
        if let [text, _, ..] = arguments
            && matches!(text.repr, Repr::Str)
        {
            return self.text_call(expr, function, arguments);
        }
        if let ([left, right], Some(name)) = (arguments, distance(function, arguments)) {
            let counted = self.counted_pair(function, arguments);
            let (left, right) = (self.value(left)?, self.value(right)?);
            let null = self.either_null(&left, &right);
            if let Some(code) = counted {
                return Ok(Value { code, null });
            }
            self.compares_rows = true;
            return Ok(Value { code: format!("hr::{name}({}, {})", left.code, right.code), null });
        }
        let [argument] = arguments else {
            return refuse(format!("{} of {} arguments", function.name(), arguments.len()));
        };
        let value = self.value(argument)?;
        let null = value.null.clone();
        let known = |code: String| Ok(Value { code, null: null.clone() });
        match (function, &argument.repr) {
            (Function::InCalendar, repr) => {
                let (first, last) = inner_calendar(&argument.data_type);
                let moment = self.named(c_type(repr)?, "moment", value.code);
                let (first, last) = (i64_literal(first), i64_literal(last));
                let outside = format!("i64({moment}) < {first} || i64({moment}) > {last}");
                self.fail_if(&null, &outside, Self::overflow_place(expr));
                Ok(Value { code: moment, null })
            }
            (Function::DatePart(part), _) => self.date_part(expr, part, argument, value),
            (Function::DateTrunc(part), _) => self.date_trunc(expr, part, argument, value),
            (Function::CharacterLength, Repr::Str) => {
                known(format!("hr::character_length({})", value.code))
            }
            (Function::OctetLength, Repr::Str) => known(format!("i32({}.bytes)", value.code)),
            (Function::Abs, Repr::F32 | Repr::F64) => {
                known(format!("hr::magnitude({})", value.code))
            }
            (Function::Abs, Repr::I128) => known(format!("hr::magnitude_wrapping({})", value.code)),
            (Function::Abs, repr) => {
                let kind = c_type(repr)?;
                let call = |result: &str| {
                    format!("hr::magnitude_checked<{kind}>({}, &{result})", value.code)
                };
                self.checked(expr, kind, &value.null, call)
            }
            (Function::BitCount, Repr::Bytes(_)) => {
                self.compares_rows = true;
                known(format!("hr::ones({})", value.code))
            }
            (Function::BitCount, repr) => {
                known(format!("hr::bit_count<{}>({})", c_type(repr)?, value.code))
            }
            (Function::Floor | Function::Ceil, Repr::I128) => {
                let DataType::Decimal128 { scale, .. } = expr.data_type else {
                    return refuse(format!("{} of {}", function.name(), argument.data_type));
                };
                let unit = i128_literal(power_of_ten(scale.into())?);
                let limit = i128_literal(digit_limit(&expr.data_type).unwrap_or(i128::MAX));
                let name = function.name();
                let call = |result: &str| {
                    let whole = format!("{result} = hr::{name}_decimal({}, {unit})", value.code);
                    format!("hr::has_digits({whole}, {limit})")
                };
                self.checked(expr, "i128", &value.null, call)
            }
            (Function::Trunc(_), Repr::I128) => {
                let lost = scale_of(&argument.data_type) - scale_of(&expr.data_type);
                let unit = i128_literal(power_of_ten(lost)?);
                known(format!("({} / {unit})", operand(&value.code)))
            }
            (Function::Floor | Function::Ceil | Function::Trunc(_) | Function::RoundEven, repr)
                if is_float(repr) =>
            {
                known(format!("hr::{}_float({})", function.name(), value.code))
            }
            (Function::Round(_), Repr::I128) => {
                let lost = scale_of(&argument.data_type) - scale_of(&expr.data_type);
                let unit = power_of_ten(lost)?;
                known(format!("hr::divide_rounding({}, {})", value.code, i128_literal(unit)))
            }
            (Function::Round(digits), repr) if is_float(repr) => {
                let kind = c_type(repr)?;
                let unit = float_literal(round_unit(digits), repr);
                known(format!("hr::round_float<{kind}>({}, {unit})", value.code))
            }
            _ => refuse(format!("{} of {}", function.name(), argument.data_type)),
        }
    }

    /// What `call` sets, given the name to be set; an overflow where the answer is that it is not
    /// exact.
    fn checked(
        &mut self,
        expr: &BoundExpr,
        kind: &str,
        null: &Option<String>,
        call: impl FnOnce(&str) -> String,
    ) -> Result<Value> {
        let result = self.names.unique("checked");
        self.body.line(format!("{kind} {result};"));
        let exact = self.named("bool", "exact", call(&result));
        if expr.node_can_fail() {
            self.fail_if(null, &format!("!{exact}"), Self::overflow_place(expr));
        }
        Ok(Value { code: result, null: null.clone() })
    }

    fn date_part(
        &mut self,
        expr: &BoundExpr,
        part: DatePart,
        argument: &BoundExpr,
        value: Value,
    ) -> Result<Value> {
        let ticks = timestamp_ticks(&argument.data_type);
        if part == DatePart::Epoch {
            let code = match ticks {
                Some(ticks) => format!("(f64({}) / {ticks}.0)", value.code),
                None => format!("(f64({}) * {DAY_SECONDS}.0)", value.code),
            };
            return Ok(Value { code, null: value.null });
        }
        let (name, of_day) = (part.name(), part.is_of_day());
        let Some(ticks) = ticks else {
            if !of_day {
                return Ok(Value { code: "0".into(), null: value.null });
            }
            let day = self.named("i32", "day", value.code);
            let code = format!("hr::part_{name}(hr::calendar_day<i32>({day}))");
            return Ok(Value { code, null: outside(expr, "i32", &day, value.null) });
        };
        let ticks = i64_literal(ticks);
        let moment = self.named("i64", "moment", value.code);
        let day = self.named("i64", "day", format!("hr::day_of({moment}, {ticks})"));
        let code = if of_day {
            format!("hr::part_{name}(hr::calendar_day<i64>({day}))")
        } else {
            format!("hr::part_{name}({moment}, {ticks})")
        };
        Ok(Value { code, null: outside(expr, "i64", &day, value.null) })
    }

    fn date_trunc(
        &mut self,
        expr: &BoundExpr,
        part: DatePart,
        argument: &BoundExpr,
        value: Value,
    ) -> Result<Value> {
        let Some(ticks) = timestamp_ticks(&argument.data_type) else {
            return refuse(format!("date_trunc of {}", argument.data_type));
        };
        let moment = self.named("i64", "moment", value.code);
        if let Some(span) = span_ticks(part, ticks) {
            let span = i64_literal(span);
            let call = |result: &str| format!("hr::span_began({moment}, {span}, &{result})");
            return self.checked(expr, "i64", &value.null, call);
        }
        let (name, day_ticks) = (part.name(), i64_literal(ticks * DAY_SECONDS));
        let day = self.named("i64", "day", format!("hr::day_of({moment}, {})", i64_literal(ticks)));
        let call = |result: &str| {
            let first = format!("{day} - hr::begun_{name}({day})");
            format!("hr::multiply_checked<i64>({first}, {day_ticks}, &{result})")
        };
        self.checked(expr, "i64", &value.null, call)
    }
}

/// What compares two values of one length.
fn distance(function: Function, arguments: &[BoundExpr]) -> Option<String> {
    let float = match arguments.first()?.data_type {
        DataType::FloatList { item_bytes: 4, .. } => "<f32>",
        DataType::FloatList { .. } => "<f64>",
        _ => "",
    };
    match function {
        Function::HammingDistance
        | Function::Tanimoto
        | Function::Dot
        | Function::L2Distance
        | Function::CosineDistance => Some(format!("{}{float}", function.name())),
        _ => None,
    }
}

/// NULL for NULL, and for days outside the calendar where there may be any.
fn outside(expr: &BoundExpr, kind: &str, day: &str, null: Option<String>) -> Option<String> {
    if !expr.nullable {
        return null;
    }
    let outside = format!("!hr::in_calendar<{kind}>({day})");
    Some(match null {
        None => outside,
        Some(null) => format!("{} || {outside}", operand(&null)),
    })
}

#[cfg(test)]
mod tests {
    use headrace_columns::calendar::CALENDAR_DAYS;

    #[test]
    fn the_calendar_of_kernels_has_the_same_first_and_last_day() {
        let (first, last) = CALENDAR_DAYS;
        let wanted = format!("return days >= T({first}) && days <= T({last});");
        assert!(include_str!("../../kernels/calendar.cuh").contains(&wanted), "{wanted}");
    }
}
