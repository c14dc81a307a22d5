//! How expressions, steps and programs read in EXPLAIN: one line a step, SQL spelling.

use std::fmt;

use crate::aggregate::{AggregateCall, AggregateOutput, FirstGroups};
use crate::expr::{ArithmeticOp, CompareOp, Expr, NamedExpr};
use crate::function::{Function, MatchPart};
use crate::moment::{Interval, TimeZone};
use crate::order::OrderKey;
use crate::pipeline::{Pipeline, Probe, ProbeKind, Sink, Step};
use crate::program::Program;
use crate::scalar::{Scalar, Value};
use crate::types::DataType;
use crate::windows::Windows;

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decimal128 { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::FixedBinary(bytes) => write!(f, "binary({bytes})"),
            Self::FloatList { item_bytes, items } => {
                write!(f, "float{}[{items}]", 8 * u32::from(*item_bytes))
            }
            Self::Timestamp { unit, timezone: Some(zone) } => {
                write!(f, "timestamp({unit:?}, {zone})")
            }
            Self::Timestamp { unit, timezone: None } => write!(f, "timestamp({unit:?})"),
            Self::Time64(unit) => write!(f, "time({unit:?})"),
            other => write!(f, "{}", format!("{other:?}").to_lowercase()),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.value, &self.data_type) {
            (Value::Null, _) => f.write_str("NULL"),
            (Value::Bool(b), _) => write!(f, "{b}"),
            (Value::Int(unscaled), DataType::Decimal128 { scale, .. }) => {
                write_decimal(f, *unscaled, *scale)
            }
            (Value::Int(days), DataType::Date32) => write!(f, "date {days}"),
            (Value::Int(i), _) => write!(f, "{i}"),
            (Value::Float(x), _) => write!(f, "{x:?}"),
            (Value::Utf8(text), _) => write!(f, "'{}'", text.replace('\'', "''")),
            (Value::Binary(bytes), _) => {
                f.write_str("x'")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
                f.write_str("'")
            }
        }
    }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, unscaled: i128, scale: i8) -> fmt::Result {
    if scale <= 0 {
        return write!(f, "{unscaled}{}", "0".repeat(usize::from(scale.unsigned_abs())));
    }
    let scale = scale as usize;
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    write!(f, "{sign}{whole}.{fraction}")
}

impl fmt::Display for ArithmeticOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        })
    }
}

impl fmt::Display for CompareOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eq => "=",
            Self::Ne => "<>",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        })
    }
}

/// Operands that are themselves operators stand in parentheses.
struct Operand<'a>(&'a Expr);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Expr::Register { .. }
            | Expr::Literal(_)
            | Expr::Parameter { .. }
            | Expr::Cast { .. }
            | Expr::Call { .. }
            | Expr::Cuda { .. }
            | Expr::Case { .. } => write!(f, "{}", self.0),
            other => write!(f, "({other})"),
        }
    }
}

fn write_list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    separator: &str,
) -> fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            f.write_str(separator)?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        match self {
            Self::Register { name, .. } => f.write_str(name),
            Self::Literal(scalar) => write!(f, "{scalar}"),
            Self::Parameter { index, .. } => write!(f, "${}", index + 1),
            Self::Arithmetic { op, left, right, .. } => {
                write!(f, "{} {op} {}", Operand(left), Operand(right))
            }
            Self::Negate { value, .. } => write!(f, "-{}", Operand(value)),
            Self::Compare { op, left, right } => {
                write!(f, "{} {op} {}", Operand(left), Operand(right))
            }
            Self::And(operands) if operands.is_empty() => f.write_str("true"),
            Self::Or(operands) if operands.is_empty() => f.write_str("false"),
            Self::And(operands) => write_list(f, operands.iter().map(Operand), " AND "),
            Self::Or(operands) => write_list(f, operands.iter().map(Operand), " OR "),
            Self::Not(value) => write!(f, "NOT {}", Operand(value)),
            Self::IsNull(value) => write!(f, "{} IS NULL", Operand(value)),
            Self::InList { value, list, negated } => {
                write!(f, "{} {}IN (", Operand(value), not(negated))?;
                write_list(f, list, ", ")?;
                f.write_str(")")
            }
            Self::Like { value, pattern, negated, case_insensitive, .. } => {
                let like = if *case_insensitive { "ILIKE" } else { "LIKE" };
                let pattern = pattern.replace('\'', "''");
                write!(f, "{} {}{like} '{pattern}'", Operand(value), not(negated))
            }
            Self::Case { branches, otherwise, .. } => {
                f.write_str("CASE")?;
                for (condition, value) in branches {
                    write!(f, " WHEN {condition} THEN {value}")?;
                }
                if let Some(value) = otherwise {
                    write!(f, " ELSE {value}")?;
                }
                f.write_str(" END")
            }
            Self::Cast { value, to, .. } => write!(f, "cast({value} as {to})"),
            Self::Call { function, arguments, .. } => write_call(f, *function, arguments),
            Self::Cuda { function, arguments, .. } => {
                write!(f, "{function}(")?;
                write_list(f, arguments, ", ")?;
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for NamedExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expr = self.expr.to_string();
        if expr == self.name { f.write_str(&expr) } else { write!(f, "{} = {expr}", self.name) }
    }
}

impl fmt::Display for AggregateCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let distinct = if self.distinct { "distinct " } else { "" };
        match &self.argument {
            Some(argument) => write!(f, "{}({distinct}{argument})", self.function.name())?,
            None => write!(f, "{}(*)", self.function.name())?,
        }
        match &self.filter {
            Some(filter) => write!(f, " filter (where {filter})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inner => "inner",
            Self::Left => "left",
            Self::Semi => "semi",
            Self::Anti => "anti",
            Self::NullAwareAnti => "null-aware anti",
            Self::Mark => "mark",
        })
    }
}

impl Program {
    /// One step as EXPLAIN prints it.
    pub fn step_line(&self, step: &Step) -> String {
        match step {
            Step::Filter(expr) => format!("filter {expr}"),
            Step::Compute(named) => format!("compute {named}"),
            Step::Probe(probe) => self.probe_line(probe),
        }
    }

    /// A build by the name of its table, with the stage's number where several have the same.
    pub fn build_name(&self, number: usize) -> String {
        let name_of =
            |stage: &Pipeline| stage.build_columns().is_some().then(|| stage.source.table.clone());
        let Some(name) = self.stages.get(number).and_then(name_of) else { return "?".into() };
        match self.stages.iter().filter_map(name_of).filter(|other| *other == name).count() {
            1 => name,
            _ => format!("{name} (stage {number})"),
        }
    }

    fn probe_line(&self, probe: &Probe) -> String {
        let (name, build) = (self.build_name(probe.build), self.stages.get(probe.build));
        let (keys, payload) = build.and_then(|build| build.build_columns()).unwrap_or_default();
        let names = |columns: &mut dyn Iterator<Item = &NamedExpr>| {
            columns.map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let keys = names(&mut keys.iter());
        let payload = names(&mut probe.payload.iter().filter_map(|&column| payload.get(column)));
        let on = probe.keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let mut line = format!("probe {name} {} on {on} = {keys}", probe.kind);
        if let Some(residual) = &probe.residual {
            line += &format!(" and {residual}");
        }
        if !payload.is_empty() {
            line += &format!(" -> {payload}");
        }
        line
    }

    /// The sink as EXPLAIN prints it.
    pub fn sink_line(sink: &Sink) -> String {
        let names = |exprs: &[NamedExpr]| {
            exprs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        match sink {
            Sink::Aggregate { keys, sets, calls, output } => {
                let texts = calls.iter().map(ToString::to_string).collect::<Vec<_>>();
                let calls = texts.iter().map(|call| format!(" {call}")).collect::<Vec<_>>();
                let calls = calls.join(",");
                let partial = if *output == AggregateOutput::Partial { "partial " } else { "" };
                if keys.is_empty() && sets.is_empty() {
                    format!("{partial}aggregate{calls}")
                } else if !sets.is_empty() {
                    let name = |&key: &usize| keys.get(key).map_or("?", |key| key.name.as_str());
                    let set = |set: &Vec<usize>| {
                        format!("({})", set.iter().map(name).collect::<Vec<_>>().join(", "))
                    };
                    let sets: Vec<_> = sets.iter().map(set).collect();
                    format!("{partial}aggregate{calls} by {} in {}", names(keys), sets.join(", "))
                } else {
                    let columns = keys.iter().map(|key| key.name.clone()).chain(texts);
                    let first = first_of(output, &columns.collect::<Vec<_>>());
                    format!("{partial}aggregate{calls} by {}{first}", names(keys))
                }
            }
            Sink::Rows { columns, limit: None } => format!("rows {}", names(columns)),
            Sink::Rows { columns, limit: Some(limit) } => {
                format!("rows {} limit {limit}", names(columns))
            }
            Sink::Sorted { columns, order, limit } => {
                let limit = limit.map(|limit| format!(" limit {limit}")).unwrap_or_default();
                format!("rows {} by {}{limit}", names(columns), keys_of(order, columns))
            }
            Sink::Windows(windows) => {
                let Windows { columns, partition, order, first, .. } = windows;
                let partition: Vec<_> = partition.iter().map(|&at| name_of(columns, at)).collect();
                let partition = match partition.is_empty() {
                    true => String::new(),
                    false => format!(" by {}", partition.join(", ")),
                };
                let order = match order.is_empty() {
                    true => String::new(),
                    false => format!(" in order of {}", keys_of(order, columns)),
                };
                let first = first.map(|rank| format!(", up to rank {rank}")).unwrap_or_default();
                format!("rows {} with windows {windows}{partition}{order}{first}", names(columns))
            }
            Sink::Build { keys, payload } => {
                let payload = names(payload);
                let payload =
                    if payload.is_empty() { payload } else { format!(" payload {payload}") };
                format!("build on {}{payload}", names(keys))
            }
            Sink::Partition { keys, payload } => {
                let payload = names(payload);
                let payload = if payload.is_empty() { payload } else { format!(" with {payload}") };
                format!("partition by {}{payload}", names(keys))
            }
        }
    }
}

/// The name of a column.
fn name_of(columns: &[NamedExpr], at: usize) -> &str {
    columns.get(at).map_or("?", |column| column.name.as_str())
}

fn keys_of(order: &[OrderKey], columns: &[NamedExpr]) -> String {
    let names: Vec<_> = columns.iter().map(|column| column.name.clone()).collect();
    order.iter().map(|key| key_of(key, &names)).collect::<Vec<_>>().join(", ")
}

fn key_of(key: &OrderKey, columns: &[String]) -> String {
    let name = columns.get(key.column).map_or("?", String::as_str);
    let direction = if key.descending { " desc" } else { "" };
    let nulls = if key.nulls_first { "first" } else { "last" };
    format!("{name}{direction} nulls {nulls}")
}

/// Which groups are wanted, if not all.
fn first_of(output: &AggregateOutput, columns: &[String]) -> String {
    match output {
        AggregateOutput::First(FirstGroups { by, groups, with_ties }) => {
            let keys: Vec<String> = by.iter().map(|key| key_of(key, columns)).collect();
            let ties = if *with_ties { " with ties" } else { "" };
            format!(", the first {groups} by {}{ties}", keys.join(", "))
        }
        AggregateOutput::Final | AggregateOutput::Partial | AggregateOutput::OfNone(_) => {
            String::new()
        }
    }
}
/// A call as SQL: the function with its arguments.
fn write_call(f: &mut fmt::Formatter<'_>, function: Function, arguments: &[Expr]) -> fmt::Result {
    write!(f, "{}(", function.name())?;
    if let Function::DatePart(part) | Function::DateTrunc(part) = function {
        write!(f, "'{}', ", part.name())?;
    }
    for (i, argument) in arguments.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        match argument {
            // A zone's name says more than its bytes.
            Expr::Literal(scalar) if let Some(zone) = TimeZone::of(scalar) => {
                write!(f, "{comma}'{}'", zone.name)?;
            }
            Expr::Literal(scalar) if let Some(interval) = Interval::of(scalar) => {
                let Interval { months, days, microseconds } = interval;
                write!(f, "{comma}'{months} mons {days} days {microseconds} us'")?;
            }
            argument => write!(f, "{comma}{argument}")?,
        }
    }
    match function {
        Function::Round(digits) | Function::Trunc(digits) if digits > 0 => {
            write!(f, ", {digits})")
        }
        Function::MatchedPart(MatchPart::Group(group), _) => write!(f, ", {group})"),
        Function::MatchedPart(MatchPart::Before, _) => f.write_str(", before)"),
        Function::MatchedPart(MatchPart::Behind, _) => f.write_str(", behind)"),
        _ => f.write_str(")"),
    }
}
