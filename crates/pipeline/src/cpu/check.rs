//! What this processor takes.

use headrace_columns::cast;
use headrace_columns::repr::Repr;

use crate::WhyNot;
use crate::bound::{Bound, BoundExpr, BoundKind, BoundSink, BoundStep};

/// Checks every expression, probe and sink.
pub fn supported(bound: &Bound) -> Result<(), WhyNot> {
    for step in &bound.steps {
        match step {
            BoundStep::Filter { expr, .. } | BoundStep::Compute { expr, .. } => expression(expr)?,
            BoundStep::Probe(probe) => {
                probe.keys.iter().chain(&probe.residual).try_for_each(expression)?;
            }
        }
    }
    match &bound.sink {
        BoundSink::Aggregate { keys, accumulators, .. } => {
            keys.iter().map(|key| &key.expr).try_for_each(expression)?;
            accumulators
                .iter()
                .flat_map(|a| a.argument.iter().chain(&a.filter))
                .try_for_each(expression)
        }
        BoundSink::Rows { columns, .. } | BoundSink::Sorted { columns, .. } => {
            columns.iter().map(|(_, expr)| expr).try_for_each(expression)
        }
        BoundSink::Build { keys, payload } => {
            keys.iter().chain(payload).map(|(_, expr)| expr).try_for_each(expression)
        }
    }
}

/// Checks one expression.
pub fn expression(expr: &BoundExpr) -> Result<(), WhyNot> {
    let mut reason = None;
    expr.visit(&mut |e| {
        if let (None, BoundKind::Cuda { function, twin: None, .. }) = (&reason, &e.kind) {
            reason = Some(WhyNot::new(function.without_twin()));
        }
        if let (None, BoundKind::Cast { value, .. }) = (&reason, &e.kind) {
            let (from, to) = (&value.data_type, &e.data_type);
            if matches!(value.repr, Repr::Code(_) | Repr::Str) || !cast::is_supported(from, to) {
                reason = Some(WhyNot::new(format!("cast from {from} to {to} is not built yet")));
            }
        }
    });
    reason.map_or(Ok(()), Err)
}
