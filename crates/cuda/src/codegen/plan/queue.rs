//! From which step on rows are taken one by one.

use headrace_ir::ProbeKind;
use headrace_pipeline::bound::{Bound, BoundStep};

use crate::codegen::plan::eager::selectivity;
use crate::codegen::plan::probes::{can_be_read_again, walks};
use crate::tuning::Tuning;

/// The step before which rows begin to be taken one by one (the number of steps: the sink), if
/// that is worth it and what the steps before computed can be had again.
pub(crate) fn queue_step(bound: &Bound, tuning: Tuning) -> Option<usize> {
    if tuning.queue_percent == 0 {
        return None;
    }
    let rate_max = f64::from(tuning.queue_percent) / 100.0;
    let mut rate = 1.0;
    for (index, step) in bound.steps.iter().enumerate() {
        if rate <= rate_max {
            return Some(index);
        }
        let again = match step {
            BoundStep::Filter { .. } => true,
            BoundStep::Compute { .. } => false,
            BoundStep::Probe(probe) => {
                let appends = !probe.payload.is_empty() || probe.kind == ProbeKind::Mark;
                !walks(probe) && (!appends || can_be_read_again(probe))
            }
        };
        rate *= selectivity(step);
        if !again {
            return None;
        }
    }
    (rate <= rate_max).then_some(bound.steps.len())
}
