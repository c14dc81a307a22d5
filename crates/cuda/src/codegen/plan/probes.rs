//! What probes do to the rows: whether they multiply them, loop, or may be asked again.

use headrace_ir::ProbeKind;
use headrace_pipeline::bound::{Bound, BoundKind, BoundProbe, BoundStep};
use headrace_pipeline::build::BuildIndex;

use crate::codegen::refusal::{Result, refuse};
use crate::room::OUTPUT_ROWS_MAX;
use crate::tables::payload_shape;
use crate::tuning::Tuning;

/// Whether a probe loops over the matches of a row.
pub(crate) fn walks(probe: &BoundProbe) -> bool {
    !probe.build.unique && (multiplies(probe) || probe.residual.is_some())
}

/// Whether a step does.
pub(crate) fn walks_step(step: &BoundStep) -> bool {
    matches!(step, BoundStep::Probe(probe) if walks(probe))
}

/// Whether one row may become several.
fn multiplies(probe: &BoundProbe) -> bool {
    matches!(probe.kind, ProbeKind::Inner | ProbeKind::Left) && !probe.build.unique
}

/// Most rows that reach the sink for one streamed row.
pub(crate) fn matches_max(bound: &Bound) -> u64 {
    let of_step = |step: &BoundStep| match step {
        BoundStep::Probe(probe) if multiplies(probe) => probe.build.duplicates_max().max(1),
        _ => 1,
    };
    bound.steps.iter().map(of_step).fold(1, u64::saturating_mul)
}

/// Output buffers have room for every match of every row of two tiles, so that whoever has begun one
/// gets to its end: refused where that would be too much.
pub(crate) fn check_rows(bound: &Bound, tuning: Tuning) -> Result<()> {
    let matches = matches_max(bound);
    let rows = bound.rows_max.min(2 * u64::from(tuning.tile_rows()));
    if matches > 1 && rows.saturating_mul(matches) > OUTPUT_ROWS_MAX {
        return refuse(format!(
            "up to {matches} rows for each row of {}, of which a launch puts out {OUTPUT_ROWS_MAX}",
            bound.table
        ));
    }
    Ok(())
}

/// Whether the payload of rows that found a match can be read by key at any later time.
pub(crate) fn can_be_read_again(probe: &BoundProbe) -> bool {
    probe.kind == ProbeKind::Inner
        && probe.residual.is_none()
        && matches!(probe.build.index, BuildIndex::Direct(_))
        && probe.keys.iter().all(|key| matches!(key.kind, BoundKind::Register(_)))
}

/// The narrowest payload column of a probe whose entries tell absent keys.
pub(crate) fn marked_payload(probe: &BoundProbe) -> Option<usize> {
    if !matches!(probe.kind, ProbeKind::Inner | ProbeKind::Left) {
        return None;
    }
    probe
        .payload
        .iter()
        .copied()
        .filter_map(|column| {
            let shape = payload_shape(&probe.build.payload[column].data);
            shape.absent.map(|_| (shape.width_bytes, column))
        })
        .min()
        .map(|(_, column)| column)
}
