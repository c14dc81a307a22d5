//! The first steps of a pipeline, as far as they only compare and look up numbers that lie in the segment in at most
//! 32 bits, whatever their type: run over its bytes, without a vector in between.
//!
//! ```text
//! batch of rows ──bits──► conditions ──positions──► conditions ──► picked rows of many batches
//!                  while most are alive       once few are            │ a batch of them
//!                                                                     ▼
//!                                                      the other steps, the sink
//! ```
//!
//! Nothing here can fail, so order and number of conditions are free; the rows that are left are
//! those that the steps would have left, in their order.
//!
//! A scan is bound by memory: 14 to 16 GB/s a core from the page cache, where the first lines of a page must be
//! prefetched.

use std::ops::RangeInclusive;

use headrace_columns::compare::scale;
use headrace_columns::load::{Small, SmallColumn, SourceColumns};
use headrace_columns::repr::Repr;
use headrace_columns::simd::{
    Members, Test, Tier, Widen, keep_positions, prefetch_pages, prefetch_rows,
};
use headrace_ir::{CompareOp, ProbeKind, Register, Value};

use crate::ExecError;
use crate::bound::{Bound, BoundExpr, BoundKind, BoundProbe, BoundSink, BoundStep};
use crate::build::{BuildIndex, Presence};
use crate::cpu::WorkerOptions;
use crate::cpu::context::Context;
use crate::cpu::probe::set_direct_payload;

/// A whole column is read while one row in so many is alive: a cache line holds 16 values, so
/// picking some would touch nearly all of them.
const READ_ALL_SHARE: usize = 16;

/// Rows are looked up twice where at most this share is expected to find a match.
const DROP_SHARE_MAX: f64 = 0.5;

/// The first steps over one segment, and the rows that they have left and nobody has taken.
pub struct Scan<'a> {
    conditions: Vec<Condition<'a>>,
    /// Number of steps that the conditions stand for.
    steps: usize,
    /// Those of them that set registers.
    probes: Vec<&'a BoundProbe>,
    tier: Tier,
    portion_rows: usize,
    words: Vec<u64>,
    /// Rows that are left.
    picked: Vec<u32>,
    whole: Option<Portion>,
}

struct Condition<'a> {
    /// The last step that this and all conditions before it stand for.
    step: Option<usize>,
    register: Register,
    column: SmallColumn<'a>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// Not empty.
    Between(RangeInclusive<i32>),
    Member(Members<'a>),
}

/// Rows of a segment.
pub enum Portion {
    /// Consecutive ones.
    Range {
        /// The first.
        start: usize,
        /// How many.
        rows: usize,
    },
    /// These, ascending.
    Picked(Vec<u32>),
}

impl<'a> Scan<'a> {
    /// Over a segment's columns. Takes as many steps as it can, perhaps none.
    pub fn new(bound: &'a Bound, source: &'a SourceColumns<'a>, options: &WorkerOptions) -> Self {
        // Whoever wants few rows wants them soon.
        let has_limit = matches!(bound.sink, BoundSink::Rows { limit: Some(_), .. });
        let mut scan = Self {
            conditions: Vec::new(),
            steps: 0,
            probes: Vec::new(),
            tier: options.tier,
            portion_rows: if has_limit { 1 } else { options.batch_rows },
            words: Vec::new(),
            picked: Vec::new(),
            whole: None,
        };
        for step in &bound.steps {
            let taken = match step {
                BoundStep::Filter { expr, .. } => interval(expr)
                    .and_then(|(register, range)| scan.compare(source, register, range)),
                BoundStep::Probe(probe) => scan.look_up(source, probe),
                BoundStep::Compute { .. } => None,
            };
            if taken.is_none() {
                if let BoundStep::Probe(probe) = step {
                    scan.drop_absent(source, probe);
                }
                break;
            }
            scan.steps += 1;
        }
        scan
    }

    /// Number of steps that are done with.
    pub fn steps(&self) -> usize {
        self.steps
    }

    fn compare(
        &mut self,
        source: &SourceColumns<'a>,
        register: Register,
        range: RangeInclusive<i32>,
    ) -> Option<()> {
        for condition in &mut self.conditions {
            if let (Kind::Between(known), true) =
                (&mut condition.kind, condition.register == register)
            {
                let both = *range.start().max(known.start())..=*range.end().min(known.end());
                if both.is_empty() {
                    return None;
                }
                *known = both;
                let last = self.conditions.last_mut()?;
                last.step = Some(self.steps);
                return Some(());
            }
        }
        self.condition(source, register, Kind::Between(range))
    }

    /// The whole of a probe by address: whether a row has a match.
    fn look_up(&mut self, source: &SourceColumns<'a>, probe: &'a BoundProbe) -> Option<()> {
        if !matches!(probe.build.index, BuildIndex::Direct(_)) || probe.residual.is_some() {
            return None;
        }
        self.keep_present(source, probe)?;
        if probe.kind == ProbeKind::Inner && !probe.payload.is_empty() {
            self.probes.push(probe);
        }
        Some(())
    }

    /// Drops rows whose key a build by chains does not have, before the step itself, which remains to be done.
    fn drop_absent(&mut self, source: &SourceColumns<'a>, probe: &'a BoundProbe) {
        let is_by_chains = matches!(probe.build.index, BuildIndex::Chains(_));
        let finds_nulls = probe.null_equal || probe.build.nulls_equal;
        if is_by_chains && !finds_nulls && probe.selectivity <= DROP_SHARE_MAX {
            // The step itself has yet to be done, and is counted then.
            let conditions = self.conditions.len();
            let _may_be_none = self.keep_present(source, probe);
            self.conditions[conditions..].iter_mut().for_each(|condition| condition.step = None);
        }
    }

    /// Keeps the rows whose key is there, where the build has bits for that and the others are of no use.
    fn keep_present(&mut self, source: &SourceColumns<'a>, probe: &'a BoundProbe) -> Option<()> {
        let Presence { base, domain, words } = probe.build.index.presence()?;
        let [BoundExpr { kind: BoundKind::Register(register), repr, .. }] = probe.keys.as_slice()
        else {
            return None;
        };
        let keeps_matches = matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi);
        if !keeps_matches || matches!(repr, Repr::I128) {
            return None;
        }
        let members = Members::new(*base, *domain, words)?;
        self.condition(source, *register, Kind::Member(members))
    }

    fn condition(
        &mut self,
        source: &SourceColumns<'a>,
        register: Register,
        kind: Kind<'a>,
    ) -> Option<()> {
        let column = source.small(register)?;
        self.conditions.push(Condition { step: Some(self.steps), register, column, kind });
        Some(())
    }

    /// Looks at the next rows, `start .. start + rows`, and counts those that each step left.
    pub fn batch(&mut self, start: usize, rows: usize, left: &mut [u64]) {
        let mut alive = rows;
        self.words.clear();
        self.words.resize(rows.div_ceil(64), u64::MAX);
        if let (Some(last), true) = (self.words.last_mut(), !rows.is_multiple_of(64)) {
            *last = (1 << (rows % 64)) - 1;
        }
        let mut conditions = self.conditions.as_slice();
        while let [condition, later @ ..] = conditions
            && alive * READ_ALL_SHARE >= rows
        {
            conditions = later;
            condition.keep_bits(self.tier, start, rows, &mut self.words);
            condition.prefetch(start + rows, rows);
            alive = self.words.iter().map(|word| word.count_ones() as usize).sum();
            condition.count(alive, left);
            if alive == 0 {
                return;
            }
        }
        if alive == rows && conditions.is_empty() {
            self.whole = Some(Portion::Range { start, rows });
            return;
        }
        let before = self.picked.len();
        self.tier.push_positions(&self.words, start as u32, &mut self.picked);
        for condition in conditions {
            condition.keep_positions(self.tier, before, &mut self.picked);
            condition.count(self.picked.len() - before, left);
        }
    }

    /// Rows that the other steps shall be run over now, in order; `at_end`: there are no more
    /// batches.
    pub fn portion(&mut self, at_end: bool) -> Option<Portion> {
        let enough = self.picked.len() >= self.portion_rows || at_end || self.whole.is_some();
        if enough && !self.picked.is_empty() {
            return Some(Portion::Picked(std::mem::take(&mut self.picked)));
        }
        self.whole.take()
    }

    /// Sets the registers that the steps set.
    pub fn set_registers<'b>(&self, context: &mut Context<'b>) -> Result<(), ExecError>
    where
        'a: 'b,
    {
        self.probes.iter().try_for_each(|probe| set_direct_payload(context, probe))
    }
}

/// Runs something over a column's values, whatever their type.
macro_rules! with_values {
    ($column:expr, $values:ident => $body:expr) => {
        match $column.values {
            Small::I8($values) => $body,
            Small::I16($values) => $body,
            Small::I32($values) => $body,
            Small::U8($values) => $body,
            Small::U16($values) => $body,
            Small::U24($values) => $body,
        }
    };
}

impl Condition<'_> {
    fn count(&self, rows: usize, left: &mut [u64]) {
        if let Some(step) = self.step {
            left[step] += rows as u64;
        }
    }

    /// Of the values as they lie.
    fn test(&self) -> Test<'_> {
        match &self.kind {
            Kind::Between(range) => {
                let (low, high) = (*range.start(), *range.end());
                let width = high.wrapping_sub(low) as u32;
                Test::Between { low: low.wrapping_sub(self.column.base), width }
            }
            Kind::Member(members) => Test::Member(members.less(self.column.base)),
        }
    }

    fn keep_bits(&self, tier: Tier, start: usize, rows: usize, words: &mut [u64]) {
        if let Some(validity) = self.column.validity {
            for (i, word) in words.iter_mut().enumerate() {
                *word &= bits_from(validity, start + i * 64);
            }
        }
        let test = self.test();
        match self.column.values {
            Small::I32(values) => tier.keep_bits(&test, &values[start..start + rows], words),
            _ => with_values!(self.column, values => {
                keep_widened(tier, &test, &values[start..start + rows], words);
            }),
        }
    }

    /// Asks for the rows that will be looked at next.
    fn prefetch(&self, start: usize, rows: usize) {
        with_values!(self.column, values => {
            let next = values.get(start..).unwrap_or_default();
            prefetch_pages(&next[..rows.min(next.len())]);
        });
    }

    /// Of the positions from `first` on.
    fn keep_positions(&self, tier: Tier, first: usize, positions: &mut Vec<u32>) {
        if let Some(validity) = self.column.validity {
            let mut kept = first;
            for at in first..positions.len() {
                let row = positions[at] as usize;
                positions[kept] = positions[at];
                kept += usize::from((validity[row / 8] >> (row % 8)) & 1);
            }
            positions.truncate(kept);
        }
        let (test, left) = (self.test(), &mut positions[first..]);
        let kept = match self.column.values {
            Small::I32(values) => {
                prefetch_rows(values, left);
                tier.keep_positions(&test, values, left)
            }
            _ => with_values!(self.column, values => keep_few(&test, values, left)),
        };
        positions.truncate(first + kept);
    }
}

/// Clears the bits of rows whose value fails the test.
fn keep_widened<N: Widen>(tier: Tier, test: &Test<'_>, values: &[N], words: &mut [u64]) {
    const TOGETHER: usize = 512;
    let mut wide = [0; TOGETHER];
    for (values, words) in values.chunks(TOGETHER).zip(words.chunks_mut(TOGETHER / 64)) {
        let wide = &mut wide[..values.len()];
        N::widen(tier, values, wide);
        tier.keep_bits(test, wide, words);
    }
}

/// Moves the positions whose value passes the test to the front; answers how many.
fn keep_few<N: Widen>(test: &Test<'_>, values: &[N], positions: &mut [u32]) -> usize {
    prefetch_rows(values, positions);
    keep_positions(test, values, positions)
}

/// 64 bits from bit `start` on, 0 past the end.
fn bits_from(bits: &[u8], start: usize) -> u64 {
    let mut bytes = [0; 16];
    let there = &bits[(start / 8).min(bits.len())..];
    let count = there.len().min(9);
    bytes[..count].copy_from_slice(&there[..count]);
    (u128::from_le_bytes(bytes) >> (start % 8)) as u64
}

/// The register and the values for which a comparison with a constant is true, if they are an
/// interval that is not empty.
fn interval(expr: &BoundExpr) -> Option<(Register, RangeInclusive<i32>)> {
    let BoundKind::Compare { op, left, right } = &expr.kind else { return None };
    let (register, op, constant) = match (&left.kind, &right.kind) {
        (BoundKind::Register(register), BoundKind::Literal(constant)) => (register, *op, constant),
        (BoundKind::Literal(constant), BoundKind::Register(register)) => {
            (register, op.swapped(), constant)
        }
        _ => return None,
    };
    let is_signed = matches!(left.repr, Repr::I8 | Repr::I16 | Repr::I32 | Repr::I64 | Repr::I128);
    let Value::Int(value) = constant.value else { return None };
    let is_of_one_scale = scale(&left.data_type) == scale(&right.data_type);
    if !is_signed || !left.repr.same_as(&right.repr) || !is_of_one_scale {
        return None;
    }
    // Of the values that a column of 32 bits may have.
    let (least, most) = (i128::from(i32::MIN), i128::from(i32::MAX));
    let (low, high) = match op {
        CompareOp::Eq => (value, value),
        CompareOp::Ne => return None,
        CompareOp::Lt => (least, value.checked_sub(1)?),
        CompareOp::Le => (least, value),
        CompareOp::Gt => (value.checked_add(1)?, most),
        CompareOp::Ge => (value, most),
    };
    let (low, high) = (low.max(least), high.min(most));
    (low <= high).then_some((*register, low as i32..=high as i32))
}

#[cfg(test)]
mod tests {
    use super::bits_from;

    #[test]
    fn bits_begin_anywhere() {
        let bytes: Vec<u8> = (0..20).map(|i| (i * 37 + 11) as u8).collect();
        for length in [0, 1, 8, 9, 20] {
            let bits = &bytes[..length];
            for start in 0..170 {
                let bit = |row: usize| {
                    let byte = bits.get(row / 8).copied().unwrap_or(0);
                    u64::from((byte >> (row % 8)) & 1)
                };
                let expected = (0..64).fold(0, |word, i| word | bit(start + i) << i);
                assert_eq!(bits_from(bits, start), expected, "{length} bytes from {start}");
            }
        }
    }
}
