//! Which bytes have their common bits counted by warps (`pairs.cuh`): those of the streamed table, with a constant, or with a build
//! all of whose rows every row is paired with.

use headrace_columns::repr::Repr;
use headrace_ir::{Function, ProbeKind, Value};
use headrace_pipeline::bound::{Bound, BoundExpr, BoundKind, BoundProbe, BoundSink, BoundStep};
use headrace_pipeline::build::{BuildIndex, PayloadData};

use crate::codegen::plan::probes::walks;
use crate::tuning::Tuning;

/// Widest values: the counts of more would take registers from everything else.
const BYTES_MAX: usize = 256;

/// Rows of a build that are counted at a time.
const PAIRED: u64 = 16;

/// A column of the streamed table whose values are compared bit by bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountedPairs {
    /// The streamed table's register.
    pub(crate) own: usize,
    /// Bytes of a value.
    pub(crate) width: usize,
    /// What with.
    pub(crate) with: CountedWith,
}

/// What values are compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CountedWith {
    /// Rows of the build that the step probes: a column of it, which is this register.
    Rows { step: usize, column: usize, register: usize },
    /// A constant.
    Constant(Vec<u8>),
}

impl CountedPairs {
    /// The first such values, if there are any.
    pub(crate) fn of(bound: &Bound) -> Option<Self> {
        Self::with_rows(bound).or_else(|| Self::with_constant(bound))
    }

    /// Those with rows of a build.
    pub(crate) fn with_rows(bound: &Bound) -> Option<Self> {
        let (step, probe) = bound.steps.iter().enumerate().find_map(|(step, kind)| match kind {
            BoundStep::Probe(probe) if pairs_all(probe) => Some((step, probe)),
            _ => None,
        })?;
        let of_build = |expr: &BoundExpr| {
            let register = register(expr)?;
            let column = *probe.payload.get(register.checked_sub(probe.first_register)?)?;
            let PayloadData::Bytes { width, .. } = &probe.build.payload[column].data else {
                return None;
            };
            Some((CountedWith::Rows { step, column, register }, *width))
        };
        let later = bound.steps[step + 1..].iter().flat_map(step_expressions);
        let all = probe.residual.iter().chain(later).chain(sink_expressions(&bound.sink));
        all.into_iter().find_map(|expr| call_in(bound, expr, &of_build))
    }

    fn with_constant(bound: &Bound) -> Option<Self> {
        let of_constant = |expr: &BoundExpr| {
            constant(expr).map(|bytes| (CountedWith::Constant(bytes.clone()), bytes.len()))
        };
        let steps = bound.steps.iter().flat_map(step_expressions);
        let all = steps.chain(sink_expressions(&bound.sink));
        all.into_iter().find_map(|expr| call_in(bound, expr, &of_constant))
    }

    /// Shared memory of a block, in bytes: for each warp `PairCounts`, or a word for each row.
    pub(crate) fn shared_bytes(&self, tuning: Tuning) -> u64 {
        let (threads, rows) = (u64::from(tuning.block_threads), u64::from(tuning.rows_per_thread));
        let of_warp = match self.with {
            CountedWith::Rows { .. } => PAIRED * (32 * rows / 2 + 4) * 4 + 2 * PAIRED * 4,
            CountedWith::Constant(_) => 32 * rows * 4,
        };
        threads.div_ceil(32) * of_warp
    }

    /// Whether a function of these values is one of their counts.
    pub(crate) fn is_of(&self, function: Function, arguments: &[BoundExpr]) -> bool {
        let is_own = |expr: &BoundExpr| register(expr) == Some(self.own);
        let is_other = |expr: &BoundExpr| match &self.with {
            CountedWith::Rows { register: theirs, .. } => register(expr) == Some(*theirs),
            CountedWith::Constant(bytes) => constant(expr) == Some(bytes),
        };
        is_counted(function)
            && matches!(arguments, [a, b] if is_own(a) && is_other(b) || is_other(a) && is_own(b))
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

/// The first call of an expression that compares a streamed column with what `other` takes, which also tells its width.
fn call_in(
    bound: &Bound,
    expr: &BoundExpr,
    other: &impl Fn(&BoundExpr) -> Option<(CountedWith, usize)>,
) -> Option<CountedPairs> {
    let of = |own: &BoundExpr, with: &BoundExpr| {
        let own = register(own)?;
        let (with, width) = other(with)?;
        (width_of(bound, own)? == width).then_some(CountedPairs { own, width, with })
    };
    let here = match &expr.kind {
        BoundKind::Call { function, arguments } if is_counted(*function) => match &arguments[..] {
            [a, b] => of(a, b).or_else(|| of(b, a)),
            _ => None,
        },
        _ => None,
    };
    here.or_else(|| expr.children().into_iter().find_map(|below| call_in(bound, below, other)))
}

/// The width of a streamed column whose values can be counted.
fn width_of(bound: &Bound, own: usize) -> Option<usize> {
    let Repr::Bytes(width) = bound.registers[own].repr else { return None };
    let is_whole_quads = width % 16 == 0 && (16..=BYTES_MAX).contains(&width);
    (own < bound.source_registers && is_whole_quads).then_some(width)
}

fn register(expr: &BoundExpr) -> Option<usize> {
    match expr.kind {
        BoundKind::Register(register) => Some(register),
        _ => None,
    }
}

fn constant(expr: &BoundExpr) -> Option<&Vec<u8>> {
    match &expr.kind {
        BoundKind::Literal(scalar) => match &scalar.value {
            Value::Binary(bytes) => Some(bytes),
            _ => None,
        },
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
