//! Steps and sink as the comments of a kernel show them: the plan without its constants, on which
//! the text must not depend.

use crate::bound::{Bound, BoundExpr, BoundKind, BoundProbe, BoundSink, BoundStep};
use headrace_ir::AggregateFunction;

/// A name that is an identifier, or `otherwise`: names that a planner makes up hold constants.
pub(super) fn plain_name<'a>(name: &'a str, otherwise: &'a str) -> &'a str {
    let plain = |c: char| c == '_' || c.is_alphanumeric();
    if name.chars().all(plain) { name } else { otherwise }
}

/// A step.
pub(super) fn step(bound: &Bound, step: &BoundStep) -> String {
    match step {
        BoundStep::Filter { expr, .. } => format!("filter {}", text(bound, expr)),
        BoundStep::Compute { register, expr } => {
            let name = plain_name(&bound.registers[*register].name, "computed");
            format!("compute {name} = {}", text(bound, expr))
        }
        BoundStep::Probe(probe) => self::probe(bound, probe),
    }
}

fn probe(bound: &Bound, probe: &BoundProbe) -> String {
    let build = &probe.build;
    let keys: Vec<String> = probe.keys.iter().map(|key| text(bound, key)).collect();
    let columns: Vec<&str> = build.keys.iter().map(|k| plain_name(&k.name, "key")).collect();
    let (keys, columns) = (keys.join(", "), columns.join(", "));
    let residual = probe.residual.as_ref().map(|e| format!(" and {}", text(bound, e)));
    let payload: Vec<&str> = probe
        .payload
        .iter()
        .map(|&c| plain_name(&build.payload[c].field.name, "payload"))
        .collect();
    let arrow = if payload.is_empty() { "" } else { " -> " };
    format!(
        "probe {} {} on {keys} = {columns}{}{arrow}{}",
        plain_name(&build.name, "build"),
        probe.kind,
        residual.unwrap_or_default(),
        payload.join(", ")
    )
}

/// The sink.
pub(super) fn sink(bound: &Bound) -> String {
    match &bound.sink {
        BoundSink::Aggregate { keys, accumulators, calls, .. } => {
            let calls: Vec<String> = calls
                .iter()
                .map(|call| {
                    let fed = accumulators.get(call.value);
                    let argument = fed.and_then(|a| a.argument.as_ref());
                    let filter = fed.and_then(|a| a.filter.as_ref());
                    let filter = filter.map(|f| format!(" where {}", text(bound, f)));
                    call_text(bound, call.function, argument) + &filter.unwrap_or_default()
                })
                .collect();
            let names: Vec<&str> =
                keys.iter().map(|key| plain_name(&key.field.name, "key")).collect();
            match keys.is_empty() {
                true => format!("aggregate {}", calls.join(", ")),
                false => format!("aggregate {} by {}", calls.join(", "), names.join(", ")),
            }
        }
        BoundSink::Rows { columns, .. } => {
            let columns: Vec<String> = columns.iter().map(|(_, e)| text(bound, e)).collect();
            format!("rows {}", columns.join(", "))
        }
        BoundSink::Sorted { .. } => "sorted rows".to_string(),
        BoundSink::Build { .. } => "build".to_string(),
    }
}

fn call_text(bound: &Bound, function: AggregateFunction, of: Option<&BoundExpr>) -> String {
    let argument = of.map_or_else(|| "*".to_string(), |expr| text(bound, expr));
    format!("{}({argument})", function.name())
}

/// An expression; `?` stands for a constant.
fn text(bound: &Bound, expr: &BoundExpr) -> String {
    let name = |register: usize| plain_name(&bound.registers[register].name, "computed");
    let inner = |expr: &BoundExpr| operand(bound, expr);
    let joined =
        |operands: &[BoundExpr], by: &str| operands.iter().map(inner).collect::<Vec<_>>().join(by);
    let not = |negated: bool| if negated { "not " } else { "" };
    match &expr.kind {
        BoundKind::Register(register) => name(*register).to_string(),
        BoundKind::Literal(scalar) if scalar.is_null() => "NULL".to_string(),
        BoundKind::Literal(_) => "?".to_string(),
        BoundKind::Numbers { register, .. } => format!("number of {}", name(*register)),
        BoundKind::Lookup { register, .. } => format!("{} satisfies ?", name(*register)),
        BoundKind::Arithmetic { op, left, right, .. } => {
            format!("{} {op} {}", inner(left), inner(right))
        }
        BoundKind::Compare { op, left, right } => format!("{} {op} {}", inner(left), inner(right)),
        BoundKind::Negate { value, .. } => format!("-{}", inner(value)),
        BoundKind::And(operands) => joined(operands, " and "),
        BoundKind::Or(operands) => joined(operands, " or "),
        BoundKind::Not(value) => format!("not {}", inner(value)),
        BoundKind::IsNull(value) => format!("{} is null", inner(value)),
        BoundKind::InList { value, negated, .. } => {
            format!("{} {}in ?", inner(value), not(*negated))
        }
        BoundKind::Like { value, negated, .. } => {
            format!("{} {}like ?", inner(value), not(*negated))
        }
        BoundKind::Case { branches, otherwise } => {
            let mut out = "case".to_string();
            for (condition, value) in branches {
                out += &format!(" when {} then {}", text(bound, condition), text(bound, value));
            }
            if let Some(value) = otherwise {
                out += &format!(" else {}", text(bound, value));
            }
            out + " end"
        }
        BoundKind::Cast { value, .. } => {
            format!("cast({} as {})", text(bound, value), expr.data_type)
        }
        BoundKind::Call { function, arguments } => {
            let arguments: Vec<String> = arguments.iter().map(|a| text(bound, a)).collect();
            format!("{}({})", function.name(), arguments.join(", "))
        }
        BoundKind::Shift { value, .. } => format!("{} moved by ?", inner(value)),
        BoundKind::Decode(value) => text(bound, value),
    }
}

/// In parentheses where it is not one word.
fn operand(bound: &Bound, expr: &BoundExpr) -> String {
    let whole = text(bound, expr);
    if whole.contains(' ') { format!("({whole})") } else { whole }
}
