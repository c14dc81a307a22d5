//! All tuples of a page at once, if their headers are equal.
//!
//! In most tables the tuples have equal headers and no NULLs. Then one header is checked for all, and
//! each step of the walk is taken for all tuples before the next step: loops without branches over
//! small arrays. Everything else is left to the [walk](super::walk) of one tuple after the other,
//! which finds the same positions, or the fault.

use super::bytes::gather;
use super::page::Page;
use super::plan::{Plan, Run};
use super::relation::Length;
use super::tuple::{HEADER_AT, HEADER_SAME, Tuple, VOUCHED_SAME};
use super::varlena::is_short;
use super::walk::{Places, variable};

/// Runs of more bytes are not decoded this way.
const STEP_MAX: u16 = 0x7FF0;

/// Positions of the current page's tuples.
#[derive(Debug)]
pub(super) struct Tuples {
    starts: Vec<u16>,
    ends: Vec<u16>,
    /// Start of the next step of the walk.
    at: Vec<u16>,
    /// The bytes there.
    firsts: Vec<u8>,
}

impl Tuples {
    /// Room for the maximum of tuples per page.
    pub(super) fn new(max_rows: usize) -> Self {
        let room = || Vec::with_capacity(max_rows);
        Self { starts: room(), ends: room(), at: room(), firsts: Vec::with_capacity(max_rows) }
    }

    /// The first tuple, if its header holds for all of them.
    fn first<'a>(
        &self,
        page: &'a [u8],
        relation_attributes: usize,
        is_vouched: bool,
    ) -> Option<Tuple<'a>> {
        let start = usize::from(*self.starts.first()?);
        let bytes = usize::from(*self.ends.first()?) - start;
        let mut words = gather(page, &self.starts, HEADER_AT)?.map(u64::from_le_bytes);
        let first = words.next()?;
        let differing = words.fold(0, |differing, word| differing | (word ^ first));
        let same = if is_vouched { VOUCHED_SAME } else { HEADER_SAME };
        if differing & same != 0 {
            return None;
        }
        let first = match is_vouched {
            true => Tuple::open(page, start, bytes, relation_attributes),
            false => Tuple::all_visible(page, start, bytes, relation_attributes),
        };
        first.ok()
    }
}

impl Places {
    /// Adds the rows of a page that is all-visible, or known to be visible. `false`: not possible this way; no
    /// row was added.
    pub(super) fn add_uniform(
        &mut self,
        plan: &Plan,
        page: &Page<'_>,
        tuples: &mut Tuples,
        relation_attributes: usize,
        is_vouched: bool,
    ) -> bool {
        page.tuples(&mut tuples.starts, &mut tuples.ends);
        let rows = tuples.starts.len();
        let Some(first) = tuples.first(page.bytes, relation_attributes, is_vouched) else {
            return false;
        };
        let has_all = first.bitmap.is_none() && first.attributes >= plan.steps.len();
        let is_fit = has_all && (first.has_varlena || !plan.has_varlena) && rows <= self.max_rows;
        let header_bytes = (first.start - usize::from(tuples.starts[0])) as u16;
        if !is_fit || self.walk(plan, page.bytes, tuples, header_bytes).is_none() {
            return false;
        }
        self.rows = rows;
        true
    }

    /// Steps through all tuples. `None`: a value of one of them is not sound.
    fn walk(
        &mut self,
        plan: &Plan,
        page: &[u8],
        tuples: &mut Tuples,
        header_bytes: u16,
    ) -> Option<()> {
        let Tuples { starts, ends, at, firsts } = tuples;
        at.clear();
        at.extend(starts.iter().map(|start| start + header_bytes));
        for run in &plan.runs {
            // Places are at most 32 kB here and a step is less than that, so that no sum wraps.
            match run {
                Run::Fixed { align_mask, bytes, wanted } => {
                    let bytes = u16::try_from(*bytes).ok().filter(|bytes| *bytes < STEP_MAX)?;
                    let mask = *align_mask as u16;
                    at.iter_mut().for_each(|at| *at = (*at + mask) & !mask);
                    for (distance, slot) in wanted {
                        let distance = *distance as u16;
                        self.set_all(*slot, at.iter().map(|at| at + distance));
                    }
                    at.iter_mut().for_each(|at| *at += bytes);
                }
                Run::Variable { length, align_mask, slot } => {
                    firsts.clear();
                    firsts.extend(gather(page, at, 0)?.map(|[first]| first));
                    let are_short = *length == Length::Varlena
                        && firsts.iter().fold(true, |all, first| all & is_short(*first));
                    if !are_short {
                        let ends = at.iter_mut().zip(&*ends).enumerate();
                        for (row, (at, end)) in ends {
                            let (start, behind) =
                                variable(page, (*at).into(), *length, *align_mask, (*end).into())
                                    .ok()?;
                            if let Some(slot) = slot {
                                self.set(*slot, row, start);
                            }
                            // Not behind the tuple's end.
                            *at = behind as u16;
                        }
                        continue;
                    }
                    if let Some(slot) = slot {
                        self.set_all(*slot, at.iter().copied());
                    }
                    let firsts = firsts.iter().map(|first| u16::from(first >> 1));
                    at.iter_mut().zip(firsts).for_each(|(at, bytes)| *at += bytes);
                }
            }
            let is_over = |over, (at, end): (&u16, &u16)| over | (at > end);
            if at.iter().zip(&*ends).fold(false, is_over) {
                return None;
            }
        }
        Some(())
    }
}
