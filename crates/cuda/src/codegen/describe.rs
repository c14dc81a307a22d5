//! Steps and sink as the comments of a kernel show them: the plan without its constants and its names,
//! on which the text must not depend.

use headrace_ir::AggregateFunction;
use headrace_pipeline::bound::{Bound, BoundExpr, BoundKind, BoundProbe, BoundSink, BoundStep};

/// What a register is called: by its number, so that the same query over other columns is the same text.
pub(super) fn register_name(bound: &Bound, register: usize) -> String {
    let is_column = register < bound.source_registers;
    format!("{}{register}", if is_column { "column" } else { "computed" })
}

/// A step.
pub(super) fn step(bound: &Bound, step: &BoundStep) -> String {
    match step {
        BoundStep::Filter { expr, .. } => format!("filter {}", text(bound, expr)),
        BoundStep::Compute { register, expr } => {
            format!("compute {} = {}", register_name(bound, *register), text(bound, expr))
        }
        BoundStep::Probe(probe) => self::probe(bound, probe),
    }
}

fn probe(bound: &Bound, probe: &BoundProbe) -> String {
    let keys: Vec<String> = probe.keys.iter().map(|key| text(bound, key)).collect();
    let keys = keys.join(", ");
    let residual = probe.residual.as_ref().map(|e| format!(" and {}", text(bound, e)));
    let last = probe.first_register + probe.payload.len();
    let payload: Vec<String> =
        (probe.first_register..last).map(|register| register_name(bound, register)).collect();
    let arrow = if payload.is_empty() { "" } else { " -> " };
    format!(
        "probe {} on {keys}{}{arrow}{}",
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
            let keys: Vec<String> = keys.iter().map(|key| text(bound, &key.expr)).collect();
            match keys.is_empty() {
                true => format!("aggregate {}", calls.join(", ")),
                false => format!("aggregate {} by {}", calls.join(", "), keys.join(", ")),
            }
        }
        BoundSink::Rows { columns, .. } | BoundSink::Sorted { columns, .. } => {
            let columns: Vec<String> = columns.iter().map(|(_, e)| text(bound, e)).collect();
            format!("rows {}", columns.join(", "))
        }
        BoundSink::Build { .. } => "build".to_string(),
    }
}

fn call_text(bound: &Bound, function: AggregateFunction, of: Option<&BoundExpr>) -> String {
    let argument = of.map_or_else(|| "*".to_string(), |expr| text(bound, expr));
    format!("{}({argument})", function.name())
}

/// An expression; `?` stands for a constant.
fn text(bound: &Bound, expr: &BoundExpr) -> String {
    let name = |register: usize| register_name(bound, register);
    let inner = |expr: &BoundExpr| operand(bound, expr);
    let joined =
        |operands: &[BoundExpr], by: &str| operands.iter().map(inner).collect::<Vec<_>>().join(by);
    let not = |negated: bool| if negated { "not " } else { "" };
    match &expr.kind {
        BoundKind::Register(register) => name(*register),
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
        BoundKind::Cuda { function, arguments, .. } => {
            let arguments: Vec<String> = arguments.iter().map(|a| text(bound, a)).collect();
            format!("{function}({})", arguments.join(", "))
        }
        BoundKind::Shift { value, .. } => format!("{} moved by ?", inner(value)),
        BoundKind::Search { value, .. } => format!("{} searched by ?", inner(value)),
        BoundKind::Decode(value) => text(bound, value),
    }
}

/// In parentheses where it is not one word.
fn operand(bound: &Bound, expr: &BoundExpr) -> String {
    let whole = text(bound, expr);
    if whole.contains(' ') { format!("({whole})") } else { whole }
}
