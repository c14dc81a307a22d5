//! Columns that are loaded ahead of the step that needs them.
//!
//! A load that waits for the step before it costs a trip to memory for each tile. It is worth the
//! wait only if that step spares memory sectors: if a sector's rows are all gone. Where most
//! sectors would be read anyway, the column is loaded together with the ones before.

use headrace_columns::repr::Repr;
use headrace_pipeline::bound::{Bound, BoundExpr, BoundStep};

use crate::codegen::plan::probes::walks_step;
use crate::layout::{ColumnForm, SegmentLayout};
use crate::tuning::Tuning;

/// Bytes that memory is read by.
const SECTOR_BYTES: i32 = 32;

/// A column is loaded ahead when at least this share of its sectors is expected to be read.
const TOUCHED_MIN: f64 = 0.7;

/// Most columns that are loaded together: they wait in registers.
const TOGETHER_MAX: usize = 3;

/// When columns are loaded.
#[derive(Debug, Default)]
pub(crate) struct EagerPlan {
    /// For each step the columns that are loaded with its own.
    by_step: Vec<Vec<usize>>,
}

impl EagerPlan {
    pub(crate) fn of(
        bound: &Bound,
        layout: &SegmentLayout,
        tuning: Tuning,
        queue_step: Option<usize>,
    ) -> Self {
        let mut by_step: Vec<Vec<usize>> = vec![Vec::new(); bound.steps.len()];
        let mut seen: Vec<usize> = Vec::new();
        // The step with which columns are loaded, how many are, and the share of rows that is
        // there before and after it.
        let (mut group, mut together, mut before, mut rate) = (0, 0, 1.0, 1.0);
        let vector_steps = queue_step.unwrap_or(bound.steps.len());
        for (index, step) in bound.steps.iter().enumerate().take(vector_steps) {
            let needed = new_columns(bound, step_expressions(step), &mut seen);
            let ahead = |column: &usize| {
                let (form, repr) = (layout.columns[*column].form, &bound.registers[*column].repr);
                touched(form, repr, rate) >= TOUCHED_MIN * touched(form, repr, before)
                    && may_load_ahead(bound, layout, *column)
            };
            if !needed.is_empty() {
                if tuning.ahead
                    && index > 0
                    && together + needed.len() <= TOGETHER_MAX
                    && needed.iter().all(ahead)
                {
                    by_step[group].extend(&needed);
                    together += needed.len();
                } else {
                    (group, together, before) = (index, needed.len(), rate);
                }
            }
            rate *= selectivity(step);
            // Rows of later steps may be other rows.
            if walks_step(step) {
                together = TOGETHER_MAX;
            }
        }
        Self { by_step }
    }

    /// The columns that are loaded with those of a step.
    pub(crate) fn with_step(&self, step: usize) -> &[usize] {
        &self.by_step[step]
    }
}

/// Share of a column's sectors of which a row is read, where a share of the rows is.
fn touched(form: ColumnForm, repr: &Repr, rate: f64) -> f64 {
    let row_bytes = match form {
        ColumnForm::Deltas(3) => 2,
        ColumnForm::Deltas(bytes)
        | ColumnForm::Packed(bytes)
        | ColumnForm::Codes(bytes)
        | ColumnForm::Narrow(bytes) => i32::from(bytes),
        ColumnForm::Bits => 1,
        _ => match repr {
            Repr::I8 | Repr::U8 => 1,
            Repr::I16 | Repr::U16 => 2,
            Repr::I64 | Repr::U64 | Repr::F64 => 8,
            Repr::I128 | Repr::Str | Repr::Bytes(_) => 16,
            _ => 4,
        },
    };
    1.0 - (1.0 - rate.clamp(0.0, 1.0)).powi(SECTOR_BYTES / row_bytes)
}

/// Loading must not fail for a row that is removed later: codes and bitmaps that should not be
/// there are checked while loading.
pub(crate) fn may_load_ahead(bound: &Bound, layout: &SegmentLayout, column: usize) -> bool {
    let info = &bound.registers[column];
    let checked = layout.columns[column].validity && !info.nullable;
    !checked && !matches!(info.repr, Repr::Code(_) | Repr::I128 | Repr::Str | Repr::Bytes(_))
}

/// The share of rows that are left, which no duplicates add to.
pub(crate) fn selectivity(step: &BoundStep) -> f64 {
    step.selectivity().clamp(0.0, 1.0)
}

pub(crate) fn step_expressions(step: &BoundStep) -> Vec<&BoundExpr> {
    match step {
        BoundStep::Filter { expr, .. } | BoundStep::Compute { expr, .. } => vec![expr],
        BoundStep::Probe(probe) => probe.keys.iter().collect(),
    }
}

/// Source columns that are read for the first time.
fn new_columns(bound: &Bound, expressions: Vec<&BoundExpr>, seen: &mut Vec<usize>) -> Vec<usize> {
    let mut new = Vec::new();
    for register in expressions.into_iter().flat_map(BoundExpr::registers) {
        if register < bound.source_registers && !seen.contains(&register) {
            seen.push(register);
            new.push(register);
        }
    }
    new
}
