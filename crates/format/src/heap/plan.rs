//! The plan for walking a tuple, computed once.

use super::relation::{Length, Relation};

/// The walk up to the last wanted attribute.
#[derive(Debug)]
pub(super) struct Plan {
    /// Attribute by attribute: any tuple.
    pub(super) steps: Vec<Step>,
    /// Tuples in which none of these attributes is null or missing.
    pub(super) runs: Vec<Run>,
    /// Whether such a tuple has a value of variable length among the steps.
    pub(super) has_varlena: bool,
}

/// One attribute.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) length: Length,
    pub(super) align_mask: usize,
    pub(super) not_null: bool,
    pub(super) has_missing: bool,
    /// The slot among the wanted columns.
    pub(super) slot: Option<usize>,
}

/// Attributes whose positions follow from the start of the first.
#[derive(Debug)]
pub(super) enum Run {
    /// Attributes of fixed length. None is aligned more strictly than the first, so their distances
    /// from the aligned start are constant.
    Fixed {
        align_mask: usize,
        bytes: usize,
        /// Distance from the start, and slot, of the wanted ones.
        wanted: Vec<(usize, usize)>,
    },
    /// One attribute of another length.
    Variable { length: Length, align_mask: usize, slot: Option<usize> },
}

impl Plan {
    pub(super) fn new(relation: &Relation, wanted: &[usize]) -> Self {
        let needed = wanted.iter().map(|index| index + 1).max().unwrap_or(0);
        let steps: Vec<Step> = (0..)
            .zip(&relation.attributes[..needed])
            .map(|(index, attribute)| Step {
                length: attribute.length,
                align_mask: attribute.align.mask(),
                not_null: attribute.not_null && !attribute.dropped,
                has_missing: attribute.missing.is_some(),
                slot: wanted.iter().position(|wanted| *wanted == index),
            })
            .collect();
        let runs = runs(&steps);
        let has_varlena = steps.iter().any(|step| !matches!(step.length, Length::Fixed(_)));
        Self { steps, runs, has_varlena }
    }
}

fn runs(steps: &[Step]) -> Vec<Run> {
    // Attributes start at a multiple of the strictest alignment.
    let mut runs = vec![Run::Fixed { align_mask: 7, bytes: 0, wanted: Vec::new() }];
    for step in steps {
        let Length::Fixed(length) = step.length else {
            let (length, align_mask, slot) = (step.length, step.align_mask, step.slot);
            runs.push(Run::Variable { length, align_mask, slot });
            continue;
        };
        let joins = matches!(runs.last(), Some(Run::Fixed { align_mask, .. })
            if step.align_mask <= *align_mask);
        if !joins {
            let (align_mask, wanted) = (step.align_mask, Vec::new());
            runs.push(Run::Fixed { align_mask, bytes: 0, wanted });
        }
        if let Some(Run::Fixed { bytes, wanted, .. }) = runs.last_mut() {
            let at = super::bytes::align_up(*bytes, step.align_mask);
            wanted.extend(step.slot.map(|slot| (at, slot)));
            *bytes = at + usize::from(length);
        }
    }
    runs
}
