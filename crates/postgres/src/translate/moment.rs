//! Functions of dates and timestamps.

use headrace_ir::{
    ArithmeticOp, CompareOp, DataType, DatePart, Expr, Function, Interval, Scalar, TimeUnit, Value,
};
use pgrx::pg_sys::{self, Node, NodeTag};

use super::call::{call, call_of, decimal_operation, whole};
use super::constant::interval;
use super::expr::{Translated, Translator, widened};
use super::zone;
use crate::nodes::{WhyNot, cast, why_not};

/// A part of a moment; the years of some parts are those of another.
#[derive(Clone, Copy)]
enum Part {
    Of(DatePart),
    /// Of so many years.
    Years(i128),
}

/// What a moment is moved by: an expression, and whether it is turned.
struct Span {
    by: *mut Node,
    is_negative: bool,
}

impl Translator {
    /// A function of moments; `None` for others.
    pub(super) unsafe fn moment_call(
        &mut self,
        function: u32,
        arguments: &[*mut Node],
    ) -> Result<Option<Expr>, WhyNot> {
        let plus = |by| Span { by, is_negative: false };
        let minus = |by| Span { by, is_negative: true };
        let translated = match (function, arguments) {
            (pg_sys::F_EXTRACT_TEXT_DATE | pg_sys::F_EXTRACT_TEXT_TIMESTAMP, &[part, moment]) => {
                let moment = self.expr(moment)?;
                self.extract(part, moment.clone(), moment, true)
            }
            (
                pg_sys::F_DATE_PART_TEXT_DATE | pg_sys::F_DATE_PART_TEXT_TIMESTAMP,
                &[part, moment],
            ) => {
                let moment = self.expr(moment)?;
                self.extract(part, moment.clone(), moment, false)
            }
            (
                pg_sys::F_EXTRACT_TEXT_TIMESTAMPTZ | pg_sys::F_DATE_PART_TEXT_TIMESTAMPTZ,
                &[part, moment],
            ) => {
                let moment = self.expr(moment)?;
                let local = self.local(moment.clone())?;
                self.extract(part, local, moment, function == pg_sys::F_EXTRACT_TEXT_TIMESTAMPTZ)
            }
            (pg_sys::F_DATE_TRUNC_TEXT_TIMESTAMP, &[part, moment]) => {
                let part = self.span_of_time(part)?;
                call(Function::DateTrunc(part), self.expr(moment)?)
            }
            (pg_sys::F_DATE_TRUNC_TEXT_TIMESTAMPTZ, &[part, moment]) => {
                let zone = self.session_zone();
                self.truncated(part, moment, zone)
            }
            (pg_sys::F_DATE_TRUNC_TEXT_TIMESTAMPTZ_TEXT, &[part, moment, zone]) => {
                let zone = self.named_zone(zone)?;
                self.truncated(part, moment, zone)
            }
            (pg_sys::F_TIMESTAMP_DATE | pg_sys::F_DATE_TIMESTAMP, &[moment]) => {
                let to = if function == pg_sys::F_TIMESTAMP_DATE {
                    local_type()
                } else {
                    DataType::Date32
                };
                Ok(self.expr(moment)?.cast(to))
            }
            (pg_sys::F_TIMESTAMP_TIMESTAMPTZ, &[moment]) => {
                let moment = self.expr(moment)?;
                self.local(moment)
            }
            (pg_sys::F_DATE_TIMESTAMPTZ, &[moment]) => {
                let moment = self.expr(moment)?;
                Ok(self.local(moment)?.cast(DataType::Date32))
            }
            (pg_sys::F_TIMESTAMPTZ_TIMESTAMP | pg_sys::F_TIMESTAMPTZ_DATE, &[moment]) => {
                let moment = self.expr(moment)?;
                self.instant(moment)
            }
            (pg_sys::F_TIMEZONE_TEXT_TIMESTAMPTZ, &[zone, moment]) => {
                let zone = self.named_zone(zone)?;
                call_of(Function::LocalTime, vec![self.expr(moment)?, zone])
            }
            (pg_sys::F_TIMEZONE_TEXT_TIMESTAMP, &[zone, moment]) => {
                let zone = self.named_zone(zone)?;
                call_of(Function::Instant, vec![self.expr(moment)?, zone])
            }
            (pg_sys::F_DATE_PLI, &[date, days]) | (pg_sys::F_INTEGER_PL_DATE, &[days, date]) => {
                call_of(Function::AddDays, vec![self.expr(date)?, self.expr(days)?])
            }
            (pg_sys::F_DATE_MII, &[date, days]) => {
                let less = Expr::Negate {
                    value: Box::new(self.expr(days)?),
                    on_overflow: headrace_ir::OnOverflow::Error,
                };
                call_of(Function::AddDays, vec![self.expr(date)?, less])
            }
            (pg_sys::F_DATE_MI, &[date, from]) => {
                let number = |date: Expr| date.cast(DataType::Int32);
                let (date, from) = (number(self.expr(date)?), number(self.expr(from)?));
                Ok(Expr::arithmetic(ArithmeticOp::Subtract, date, from))
            }
            (pg_sys::F_DATE_PL_INTERVAL | pg_sys::F_TIMESTAMP_PL_INTERVAL, &[moment, by]) => {
                self.moved(moment, plus(by))
            }
            (pg_sys::F_DATE_MI_INTERVAL | pg_sys::F_TIMESTAMP_MI_INTERVAL, &[moment, by]) => {
                self.moved(moment, minus(by))
            }
            (pg_sys::F_TIMESTAMPTZ_PL_INTERVAL, &[moment, by]) => {
                self.moved_by_clock(moment, plus(by))
            }
            (pg_sys::F_TIMESTAMPTZ_MI_INTERVAL, &[moment, by]) => {
                self.moved_by_clock(moment, minus(by))
            }
            _ => return Ok(None),
        };
        translated.map(Some)
    }

    /// The session's time zone, when the program is run.
    unsafe fn session_zone(&mut self) -> Expr {
        let text =
            |text: &str| pg_sys::cstring_to_text_with_len(text.as_ptr().cast(), text.len() as i32);
        let name = pg_sys::makeConst(
            pg_sys::TEXTOID,
            -1,
            pg_sys::DEFAULT_COLLATION_OID,
            -1,
            pg_sys::Datum::from(text("TimeZone")),
            false,
            false,
        );
        let node = pg_sys::makeFuncExpr(
            pg_sys::F_CURRENT_SETTING_TEXT.into(),
            pg_sys::TEXTOID,
            crate::nodes::list([name]),
            pg_sys::Oid::INVALID,
            pg_sys::DEFAULT_COLLATION_OID,
            pg_sys::CoercionForm::COERCE_EXPLICIT_CALL,
        );
        self.add_parameter(node.cast(), DataType::Binary)
    }

    unsafe fn named_zone(&self, name: *mut Node) -> Translated {
        match self.constant(name) {
            Some(Ok(Scalar { value: Value::Utf8(name), .. })) => {
                Ok(Expr::Literal(zone::named(&name)?.scalar()))
            }
            _ => why_not("a time zone that is not constant"),
        }
    }

    /// What the session's clocks show at a moment.
    pub(super) unsafe fn local(&mut self, moment: Expr) -> Translated {
        let zone = self.session_zone();
        call_of(Function::LocalTime, vec![moment, zone])
    }

    /// The moment of a local time, or of a day's beginning.
    unsafe fn instant(&mut self, local: Expr) -> Translated {
        let zone = self.session_zone();
        call_of(Function::Instant, vec![widened(local, &local_type()), zone])
    }

    unsafe fn truncated(&mut self, part: *mut Node, moment: *mut Node, zone: Expr) -> Translated {
        let part = self.span_of_time(part)?;
        let moment = self.expr(moment)?;
        let local = call_of(Function::LocalTime, vec![moment.clone(), zone.clone()])?;
        let began = call(Function::DateTrunc(part), local.clone())?;
        if part.is_of_day() {
            return call_of(Function::Instant, vec![began, zone]);
        }
        // An hour and what is shorter begins before a moment by as much as on its clock.
        let number = |moment: Expr| moment.cast(DataType::Int64);
        let minus = |a, b| Expr::arithmetic(ArithmeticOp::Subtract, a, b);
        let since = minus(number(local), number(began));
        let to = moment.data_type();
        Ok(minus(number(moment), since).cast(to))
    }

    /// A timestamp, or a date as one, moved by an interval.
    unsafe fn moved(&mut self, moment: *mut Node, span: Span) -> Translated {
        let moment = widened(self.expr(moment)?, &local_type());
        let by = match self.interval(span.by) {
            Some(interval) => Expr::Literal(interval?.scalar()),
            None => self.interval_parameter(span.by)?,
        };
        let function =
            if span.is_negative { Function::SubtractInterval } else { Function::AddInterval };
        call_of(function, vec![moment, by])
    }

    /// A moment moved by an interval, of which months and days are those of local time.
    unsafe fn moved_by_clock(&mut self, moment: *mut Node, span: Span) -> Translated {
        let Some(interval) = self.interval(span.by) else {
            return why_not("timestamptz and an interval that is not constant");
        };
        let interval = match span.is_negative {
            true => interval?.negated().ok_or_else(|| WhyNot("such a long interval".into()))?,
            false => interval?,
        };
        let mut moment = self.expr(moment)?;
        let Interval { months, days, microseconds } = interval;
        let nothing = Interval::default();
        for part in [Interval { months, ..nothing }, Interval { days, ..nothing }] {
            if part != nothing {
                let by = Expr::Literal(part.scalar());
                let local = call_of(Function::AddInterval, vec![self.local(moment)?, by])?;
                moment = self.instant(local)?;
            }
        }
        let by = Expr::Literal(Interval { microseconds, ..nothing }.scalar());
        call_of(Function::AddInterval, vec![moment, by])
    }

    unsafe fn interval(&self, node: *mut Node) -> Option<Result<Interval, WhyNot>> {
        let constant = &*cast::<pg_sys::Const>(node, NodeTag::T_Const)?;
        let is_interval = constant.consttype == pg_sys::INTERVALOID && !constant.constisnull;
        is_interval.then(|| interval(constant.constvalue))
    }

    unsafe fn interval_parameter(&mut self, node: *mut Node) -> Translated {
        self.known_once(node)?;
        Ok(self.add_parameter(node, DataType::Binary))
    }

    unsafe fn part(&self, part: *mut Node) -> Result<Part, WhyNot> {
        let name = match self.constant(part) {
            Some(Ok(Scalar { value: Value::Utf8(name), .. })) => name.to_ascii_lowercase(),
            _ => return why_not("a part of a date that is not constant"),
        };
        Ok(match name.as_str() {
            "milliseconds" => Part::Of(DatePart::Millisecond),
            "microseconds" => Part::Of(DatePart::Microsecond),
            "decade" => Part::Years(10),
            "century" => Part::Years(100),
            "millennium" => Part::Years(1000),
            name => match DatePart::of_name(name) {
                Some(part) => Part::Of(part),
                None => return why_not(format!("the part {name} of a date")),
            },
        })
    }

    /// A part that begins.
    unsafe fn span_of_time(&self, part: *mut Node) -> Result<DatePart, WhyNot> {
        match self.part(part)? {
            Part::Of(part) if part.begins() => Ok(part),
            _ => why_not("date_trunc of a part longer than a year, or of none that begins"),
        }
    }

    /// A part of a moment, of which the local time is known: `extract` is a number, `date_part` a float.
    unsafe fn extract(
        &mut self,
        part: *mut Node,
        local: Expr,
        moment: Expr,
        exact: bool,
    ) -> Translated {
        let part = self.part(part)?;
        let of_date = local.data_type() == DataType::Date32;
        if let Part::Of(DatePart::Epoch) = part {
            return epoch(moment, exact);
        }
        if let (Part::Of(part), true) = (part, of_date)
            && !part.is_of_day()
        {
            return why_not(format!("the part {} of a date", part.name()));
        }
        let local = call(Function::InCalendar, local)?;
        let fraction = |part, digits| match exact {
            true => seconds(local.clone(), digits),
            false => float_seconds(local.clone(), part),
        };
        let value = match part {
            Part::Of(DatePart::Second) => return fraction(DatePart::Second, 6),
            Part::Of(DatePart::Millisecond) => return fraction(DatePart::Millisecond, 3),
            Part::Of(part @ (DatePart::Year | DatePart::Isoyear)) => {
                without_zero(call(Function::DatePart(part), local)?)
            }
            Part::Of(part) => call(Function::DatePart(part), local)?,
            Part::Years(years) => {
                years_part(call(Function::DatePart(DatePart::Year), local)?, years)
            }
        };
        Ok(value.cast(if exact { whole(10) } else { DataType::Float64 }))
    }
}

fn local_type() -> DataType {
    DataType::Timestamp { unit: TimeUnit::Microsecond, timezone: None }
}

fn number(value: i128) -> Expr {
    Expr::Literal(Scalar::int(DataType::Int32, value))
}

/// There is no year 0: the one before year 1 is -1. Nor are centuries and millennia otherwise.
fn without_zero(value: Expr) -> Expr {
    let is_after = Expr::compare(CompareOp::Gt, value.clone(), number(0));
    let before = Expr::arithmetic(ArithmeticOp::Subtract, value.clone(), number(1));
    Expr::Case {
        branches: vec![(is_after, value)],
        otherwise: Some(Box::new(before)),
        data_type: DataType::Int32,
    }
}

/// Decades count from the year 0, centuries and millennia from the year 1.
fn years_part(year: Expr, years: i128) -> Expr {
    // Whole spans before the first year, so that all are positive: division goes towards 0.
    const EARLIER: i128 = 300_000;
    let first = if years == 10 { 0 } else { 1 };
    let shifted = Expr::arithmetic(ArithmeticOp::Add, year, number(EARLIER - first));
    let spans = Expr::arithmetic(ArithmeticOp::Divide, shifted, number(years));
    let part = Expr::arithmetic(ArithmeticOp::Subtract, spans, number(EARLIER / years - first));
    if years == 10 { part } else { without_zero(part) }
}

fn decimal_one(scale: i8) -> Expr {
    let data_type = DataType::Decimal128 { precision: scale as u8, scale };
    Expr::Literal(Scalar::new(data_type, Value::Int(1)))
}

/// Seconds in microseconds as a number that shows so many digits behind the point: as seconds, or as
/// milliseconds.
fn seconds(moment: Expr, digits: i8) -> Translated {
    let parts = call(Function::DatePart(DatePart::Microsecond), moment)?.cast(whole(8));
    decimal_operation(ArithmeticOp::Multiply, parts, decimal_one(digits))
}

/// The float that PostgreSQL adds up.
fn float_seconds(moment: Expr, part: DatePart) -> Translated {
    let per_second = if part == DatePart::Second { 1.0 } else { 1000.0 };
    let float = |value| Expr::Literal(Scalar::new(DataType::Float64, Value::Float(value)));
    let operation = Expr::arithmetic;
    let microseconds = call(Function::DatePart(DatePart::Microsecond), moment.clone())?;
    let rest = operation(ArithmeticOp::Modulo, microseconds, number(1_000_000));
    let rest = operation(
        ArithmeticOp::Divide,
        rest.cast(DataType::Float64),
        float(1_000_000.0 / per_second),
    );
    let seconds = call(Function::DatePart(DatePart::Second), moment)?.cast(DataType::Float64);
    let seconds = operation(ArithmeticOp::Multiply, seconds, float(per_second));
    Ok(operation(ArithmeticOp::Add, seconds, rest))
}

fn epoch(moment: Expr, exact: bool) -> Translated {
    if !exact {
        return call(Function::DatePart(DatePart::Epoch), moment);
    }
    if moment.data_type() == DataType::Date32 {
        let day = Expr::Literal(Scalar::int(DataType::Int64, 86_400));
        let days = moment.cast(DataType::Int64);
        return Ok(Expr::arithmetic(ArithmeticOp::Multiply, days, day).cast(whole(19)));
    }
    let microseconds = moment.cast(DataType::Int64).cast(whole(19));
    decimal_operation(ArithmeticOp::Multiply, microseconds, decimal_one(6))
}
