//! Which pairs of bytes have their common bits counted sixteen at a time (`pairs.cuh`): those of the streamed table and of a
//! build all of whose rows every row is paired with.

use headrace_columns::repr::Repr;
use headrace_ir::{Function, ProbeKind};
use headrace_pipeline::bound::{Bound, BoundExpr, BoundKind, BoundProbe, BoundSink, BoundStep};
use headrace_pipeline::build::{BuildIndex, PayloadData};

use crate::codegen::plan::probes::walks;
use crate::tuning::Tuning;

/// Widest values: the counts of more would take registers from everything else.
const BYTES_MAX: usize = 256;

/// Rows of a build that are counted at a time.
const PAIRED: u64 = 16;

/// A column of the streamed table and one of a build whose values are compared bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedPairs {
    /// The probe of the build.
    pub(crate) step: usize,
    /// The streamed table's register.
    pub(crate) own: usize,
    /// The register of the build's payload.
    pub(crate) theirs: usize,
    /// The column of the build.
    pub(crate) column: usize,
    /// Bytes of a value.
    pub(crate) width: usize,
}

impl CountedPairs {
    /// The first such columns, if there are any.
    pub(crate) fn of(bound: &Bound) -> Option<Self> {
        let (step, probe) = bound.steps.iter().enumerate().find_map(|(step, kind)| match kind {
            BoundStep::Probe(probe) if pairs_all(probe) => Some((step, probe)),
            _ => None,
        })?;
        let later = bound.steps[step + 1..].iter().flat_map(step_expressions);
        let all = probe.residual.iter().chain(later).chain(sink_expressions(&bound.sink));
        all.into_iter().find_map(|expr| of_expression(bound, step, probe, expr))
    }

    /// Shared memory of a block, in bytes: `PairCounts` for each warp.
    pub(crate) fn shared_bytes(tuning: Tuning) -> u64 {
        let (threads, rows) = (u64::from(tuning.block_threads), u64::from(tuning.rows_per_thread));
        let common = PAIRED * (32 * rows / 2 + 4) * 4;
        threads.div_ceil(32) * (common + 2 * PAIRED * 4)
    }

    /// Whether a function of these values is one of their counts.
    pub(crate) fn is_of(&self, function: Function, arguments: &[BoundExpr]) -> bool {
        let registers = arguments.iter().map(register).collect::<Option<Vec<_>>>();
        is_counted(function)
            && registers.is_some_and(|pair| {
                pair == [self.own, self.theirs] || pair == [self.theirs, self.own]
            })
    }
}

fn is_counted(function: Function) -> bool {
    matches!(function, Function::Tanimoto | Function::HammingDistance)
}

/// Whether every row is paired with the same rows of the build: its keys are constants.
fn pairs_all(probe: &BoundProbe) -> bool {
    let is_constant = |key: &BoundExpr| matches!(&key.kind, BoundKind::Literal(_));
    probe.kind == ProbeKind::Inner
        && walks(probe)
        && matches!(probe.build.index, BuildIndex::Chains(_))
        && probe.keys.iter().all(is_constant)
}

fn of_expression(
    bound: &Bound,
    step: usize,
    probe: &BoundProbe,
    expr: &BoundExpr,
) -> Option<CountedPairs> {
    let below = || expr.children().into_iter().find_map(|e| of_expression(bound, step, probe, e));
    let BoundKind::Call { function, arguments } = &expr.kind else { return below() };
    let [left, right] = arguments.as_slice() else { return below() };
    if !is_counted(*function) {
        return below();
    }
    let (left, right) = (register(left)?, register(right)?);
    let (own, theirs) = (left.min(right), left.max(right));
    let column = *probe.payload.get(theirs.checked_sub(probe.first_register)?)?;
    let (Repr::Bytes(width), true) = (&bound.registers[own].repr, own < bound.source_registers)
    else {
        return None;
    };
    let is_like_it = matches!(&probe.build.payload[column].data, PayloadData::Bytes { width: theirs, .. } if theirs == width);
    (is_like_it && width % 16 == 0 && (16..=BYTES_MAX).contains(width)).then_some(CountedPairs {
        step,
        own,
        theirs,
        column,
        width: *width,
    })
}

fn register(expr: &BoundExpr) -> Option<usize> {
    match expr.kind {
        BoundKind::Register(register) => Some(register),
        _ => None,
    }
}

fn step_expressions(step: &BoundStep) -> Vec<&BoundExpr> {
    match step {
        BoundStep::Filter { expr, .. } | BoundStep::Compute { expr, .. } => vec![expr],
        BoundStep::Probe(probe) => probe.keys.iter().chain(&probe.residual).collect(),
    }
}

fn sink_expressions(sink: &BoundSink) -> Vec<&BoundExpr> {
    match sink {
        BoundSink::Aggregate { keys, accumulators, .. } => {
            let keys = keys.iter().map(|key| &key.expr);
            keys.chain(accumulators.iter().flat_map(|a| a.argument.iter().chain(&a.filter)))
                .collect()
        }
        BoundSink::Rows { columns, .. } | BoundSink::Sorted { columns, .. } => {
            columns.iter().map(|(_, expr)| expr).collect()
        }
        BoundSink::Build { keys, payload } => {
            keys.iter().chain(payload).map(|(_, expr)| expr).collect()
        }
    }
}
