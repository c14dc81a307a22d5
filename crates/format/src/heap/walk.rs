//! Finds the positions of a tuple's wanted values.

use super::bytes::align_up;
use super::plan::{Plan, Run, Step};
use super::relation::Length;
use super::tuple::Tuple;
use super::varlena;

/// Instead of a position: the value is NULL. No value starts there, in the page header.
pub(super) const NULL: u16 = 0;
/// Instead of a position: the tuple is older than the column and has its default.
pub(super) const MISSING: u16 = 1;

const CUT: &str = "a value is longer than its tuple";
const NOT_NULL: &str = "a value is null in a column that is not";

/// The positions of a page's values, column by column. Blocks have at most 32 kB, so positions fit
/// 16 bits.
#[derive(Debug)]
pub(super) struct Places {
    places: Vec<u16>,
    /// Whether a column has NULLs or missing values in this page.
    gaps: Vec<bool>,
    pub(super) max_rows: usize,
    pub(super) rows: usize,
}

impl Places {
    pub(super) fn new(columns: usize, max_rows: usize) -> Self {
        Self {
            places: vec![NULL; columns * max_rows],
            gaps: vec![false; columns],
            max_rows,
            rows: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.rows = 0;
        self.gaps.fill(false);
    }

    /// The positions of a column's values, and whether some are NULL or missing.
    pub(super) fn column(&self, slot: usize) -> (&[u16], bool) {
        (&self.places[slot * self.max_rows..][..self.rows], self.gaps[slot])
    }

    #[inline(always)]
    pub(super) fn set(&mut self, slot: usize, row: usize, place: usize) {
        self.places[slot * self.max_rows + row] = place as u16;
    }

    /// Sets the positions of all rows.
    #[inline(always)]
    pub(super) fn set_all(&mut self, slot: usize, all: impl ExactSizeIterator<Item = u16>) {
        let places = &mut self.places[slot * self.max_rows..][..all.len()];
        places.iter_mut().zip(all).for_each(|(place, at)| *place = at);
    }

    fn set_gap(&mut self, slot: usize, kind: u16) {
        self.set(slot, self.rows, usize::from(kind));
        self.gaps[slot] = true;
    }

    /// Adds a row: the positions of a tuple's wanted values.
    #[inline]
    pub(super) fn add(
        &mut self,
        plan: &Plan,
        page: &[u8],
        tuple: &Tuple<'_>,
    ) -> Result<(), &'static str> {
        if self.rows == self.max_rows {
            return Err("the page has more tuples than fit");
        }
        if tuple.has_all(plan.steps.len()) {
            self.add_full(plan, page, tuple)?;
        } else {
            self.add_any(plan, page, tuple)?;
        }
        self.rows += 1;
        Ok(())
    }

    #[inline]
    fn add_full(
        &mut self,
        plan: &Plan,
        page: &[u8],
        tuple: &Tuple<'_>,
    ) -> Result<(), &'static str> {
        if plan.has_varlena {
            check_varlena(tuple)?;
        }
        let mut at = tuple.start;
        for run in &plan.runs {
            match run {
                Run::Fixed { align_mask, bytes, wanted } => {
                    let start = align_up(at, *align_mask);
                    at = start + bytes;
                    if at > tuple.end {
                        return Err(CUT);
                    }
                    for (distance, slot) in wanted {
                        self.set(*slot, self.rows, start + distance);
                    }
                }
                Run::Variable { length, align_mask, slot } => {
                    let (start, end) = variable(page, at, *length, *align_mask, tuple.end)?;
                    at = end;
                    if let Some(slot) = slot {
                        self.set(*slot, self.rows, start);
                    }
                }
            }
        }
        Ok(())
    }

    fn add_any(&mut self, plan: &Plan, page: &[u8], tuple: &Tuple<'_>) -> Result<(), &'static str> {
        let mut at = tuple.start;
        for (index, step) in plan.steps.iter().enumerate() {
            let place = if index >= tuple.attributes {
                if step.has_missing { Err(MISSING) } else { Err(NULL) }
            } else if tuple.is_null(index) {
                Err(NULL)
            } else {
                let (start, end) = value(page, at, step, tuple)?;
                at = end;
                Ok(start)
            };
            if place == Err(NULL) && step.not_null {
                return Err(NOT_NULL);
            }
            match (step.slot, place) {
                (Some(slot), Ok(start)) => self.set(slot, self.rows, start),
                (Some(slot), Err(gap)) => self.set_gap(slot, gap),
                (None, _) => {}
            }
        }
        Ok(())
    }
}

/// Start and end of an attribute that exists.
fn value(
    page: &[u8],
    at: usize,
    step: &Step,
    tuple: &Tuple<'_>,
) -> Result<(usize, usize), &'static str> {
    match step.length {
        Length::Fixed(bytes) => {
            let start = align_up(at, step.align_mask);
            let end = start + usize::from(bytes);
            (end <= tuple.end).then_some((start, end)).ok_or(CUT)
        }
        length => {
            check_varlena(tuple)?;
            variable(page, at, length, step.align_mask, tuple.end)
        }
    }
}

fn check_varlena(tuple: &Tuple<'_>) -> Result<(), &'static str> {
    tuple.has_varlena.then_some(()).ok_or("it has a value of variable length and denies it")
}

#[inline(always)]
pub(super) fn variable(
    page: &[u8],
    at: usize,
    length: Length,
    align_mask: usize,
    end: usize,
) -> Result<(usize, usize), &'static str> {
    match length {
        Length::CString => {
            let start = align_up(at, align_mask);
            let rest = page.get(start..end).ok_or(CUT)?;
            let zero = rest.iter().position(|byte| *byte == 0).ok_or(CUT)?;
            Ok((start, start + zero + 1))
        }
        _ => varlena::span(page, at, align_mask, end),
    }
}
