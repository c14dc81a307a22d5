//! Matched rows: their payload as registers, and pairs in portions where a row matches several times.

use std::rc::Rc;

use headrace_columns::select::{positions_not, truth_bytes};
use headrace_columns::simd::positions;
use headrace_columns::vector::Vector;

use crate::ExecError;
use crate::bound::BoundProbe;
use crate::build::BuildIndex;
use crate::build::fetch::NO_MATCH;
use crate::cpu::context::Context;
use crate::cpu::eval::eval;

/// At most about this many matched pairs are in flight, however many duplicates a key has.
pub const PAIRS_MAX: usize = 16 * 1024;

/// The same where texts are put out.
const TEXT_PAIRS_MAX: usize = 4 * 1024;

/// Sets the payload registers of the current rows, whose entries in the build are given; one column may be known.
pub fn set_payload<'a>(
    context: &mut Context<'a>,
    probe: &'a BoundProbe,
    entries: Vec<u32>,
    known: Option<(usize, Vector<'a>)>,
) {
    let entries = Rc::new(entries);
    let known_position = known.as_ref().map(|(position, _)| *position);
    for (position, &column) in probe.payload.iter().enumerate() {
        if known_position != Some(position) {
            let register = probe.first_register + position;
            context.set_payload(register, &probe.build, column, Rc::clone(&entries));
        }
    }
    if let Some((position, vector)) = known {
        context.set(probe.first_register + position, Rc::new(vector));
    }
}

/// Chains of at most so many rows are walked together ..
const SHORT_CHAIN: usize = 64;
/// .. so many of them.
const BLOCK_ROWS: usize = 64;

/// So many rows of one key are paired with each of its entries at once.
const TOGETHER_ROWS: usize = 64;

/// Matched pairs in portions.
pub struct PairStream<'a> {
    probe: &'a BoundProbe,
    /// Pairs of a portion, at most.
    pairs_max: usize,
    /// First entry of each streamed row, or [`NO_MATCH`].
    heads: Vec<u32>,
    /// The next entry of all rows, where they have the same key: their columns are read where they are.
    of_all: Option<u32>,
    row: usize,
    /// Next entry of `row`, if its chain has been begun.
    entry: Option<u32>,
}

impl<'a> PairStream<'a> {
    /// Those of streamed rows whose first entries are `heads`.
    pub fn new(probe: &'a BoundProbe, heads: Vec<u32>) -> Self {
        let first = heads.first().copied().filter(|_| heads.len() >= TOGETHER_ROWS);
        let of_all = first.filter(|first| heads.iter().all(|head| head == first));
        let row = if of_all.is_some() { heads.len() } else { 0 };
        let pairs_max = PAIRS_MAX;
        Self {
            probe,
            pairs_max,
            heads,
            of_all: of_all.filter(|first| *first != NO_MATCH),
            row,
            entry: None,
        }
    }

    /// In smaller portions: texts of the pairs are copied.
    pub fn with_texts(self) -> Self {
        Self { pairs_max: TEXT_PAIRS_MAX, ..self }
    }

    /// The next pairs; empty at the end.
    fn next_pairs(&mut self) -> (Vec<u32>, Vec<u32>) {
        match &self.probe.build.index {
            BuildIndex::Chains(chains) if chains.duplicates_max <= SHORT_CHAIN as u64 => {
                self.short_chains(&chains.next)
            }
            _ => self.chain_by_chain(),
        }
    }

    /// Those of rows in blocks: a step along each chain of a block after the other, so that what they wait for of memory
    /// comes at the same time.
    fn short_chains(&mut self, next: &[u32]) -> (Vec<u32>, Vec<u32>) {
        const BLOCK_PAIRS: usize = BLOCK_ROWS * SHORT_CHAIN;
        const { assert!(BLOCK_PAIRS <= TEXT_PAIRS_MAX) };
        let (mut rows, mut entries) = (Vec::new(), Vec::new());
        while self.row < self.heads.len() && rows.len() + BLOCK_PAIRS <= self.pairs_max {
            let end = self.heads.len().min(self.row + BLOCK_ROWS);
            let (walked, lengths) = walk_together(&self.heads[self.row..end], next);
            for ((row, chain), length) in (self.row..end).zip(&walked).zip(lengths) {
                rows.extend(std::iter::repeat_n(row as u32, length));
                entries.extend_from_slice(&chain[..length]);
            }
            self.row = end;
        }
        (rows, entries)
    }

    /// Those of chains of any length, which a portion may end within.
    fn chain_by_chain(&mut self) -> (Vec<u32>, Vec<u32>) {
        let (mut rows, mut entries) = (Vec::new(), Vec::new());
        while self.row < self.heads.len() && rows.len() < self.pairs_max {
            let mut entry = self.entry.take().unwrap_or(self.heads[self.row]);
            while entry != NO_MATCH && rows.len() < self.pairs_max {
                rows.push(self.row as u32);
                entries.push(entry);
                entry = next_of(self.probe, entry);
            }
            if entry == NO_MATCH {
                self.row += 1;
            } else {
                self.entry = Some(entry);
            }
        }
        (rows, entries)
    }

    /// Pushes a frame with the next pairs that satisfy the residual; `None` at the end.
    /// Otherwise the rows of the frame below that it holds.
    pub fn push_next(&mut self, context: &mut Context<'a>) -> Result<Option<Vec<u32>>, ExecError> {
        if let Some(entry) = self.of_all {
            self.of_all = Some(next_of(self.probe, entry)).filter(|next| *next != NO_MATCH);
            context.push_same();
            set_payload(context, self.probe, vec![entry; self.heads.len()], None);
            let rows = (0..self.heads.len() as u32).collect();
            return satisfying(context, self.probe, rows).map(Some);
        }
        let (rows, entries) = self.next_pairs();
        if rows.is_empty() {
            return Ok(None);
        }
        push_pairs(context, self.probe, rows, entries).map(Some)
    }

    /// Number of streamed rows.
    pub fn rows(&self) -> usize {
        self.heads.len()
    }

    /// The probe.
    pub fn probe(&self) -> &'a BoundProbe {
        self.probe
    }
}

/// The build rows of each of at most [`BLOCK_ROWS`] chains, and how many they are.
fn walk_together(
    heads: &[u32],
    next: &[u32],
) -> ([[u32; SHORT_CHAIN]; BLOCK_ROWS], [usize; BLOCK_ROWS]) {
    let (mut walked, mut lengths) = ([[0; SHORT_CHAIN]; BLOCK_ROWS], [0; BLOCK_ROWS]);
    let mut live = [(0, NO_MATCH); BLOCK_ROWS];
    let mut count = 0;
    for (row, &head) in heads.iter().enumerate() {
        live[count] = (row, head);
        count += usize::from(head != NO_MATCH);
    }
    while count > 0 {
        let mut left = 0;
        for i in 0..count {
            let (row, entry) = live[i];
            walked[row][lengths[row]] = entry;
            lengths[row] += 1;
            live[left] = (row, next[entry as usize]);
            left += usize::from(live[left].1 != NO_MATCH);
        }
        count = left;
    }
    (walked, lengths)
}

/// The build row after `entry` in its chain, or [`NO_MATCH`].
pub fn next_of(probe: &BoundProbe, entry: u32) -> u32 {
    match &probe.build.index {
        BuildIndex::Direct(_) => NO_MATCH,
        BuildIndex::Chains(chains) => chains.next[entry as usize],
    }
}

/// Pushes a frame with the pairs of streamed and build rows that satisfy the residual, and
/// answers the streamed rows that it holds.
pub fn push_pairs<'a>(
    context: &mut Context<'a>,
    probe: &'a BoundProbe,
    rows: Vec<u32>,
    entries: Vec<u32>,
) -> Result<Vec<u32>, ExecError> {
    context.push(rows.clone());
    set_payload(context, probe, entries, None);
    satisfying(context, probe, rows)
}

/// Pushes a frame with those pairs of the current one that satisfy the residual, and answers their streamed rows.
fn satisfying<'a>(
    context: &mut Context<'a>,
    probe: &'a BoundProbe,
    rows: Vec<u32>,
) -> Result<Vec<u32>, ExecError> {
    let Some(residual) = &probe.residual else { return Ok(rows) };
    let truth = eval(context, residual)?;
    let kept = positions(&truth_bytes(&truth, rows.len()));
    let rows = kept.iter().map(|&i| rows[i as usize]).collect();
    context.push(kept);
    Ok(rows)
}

/// Pushes the frame of a left probe's rows without a match.
pub fn push_unmatched<'a>(context: &mut Context<'a>, probe: &'a BoundProbe, matched: &[u8]) {
    let rows = positions_not(matched);
    let entries = vec![NO_MATCH; rows.len()];
    context.push(rows);
    set_payload(context, probe, entries, None);
}
