//! The order of steps: those first that remove many rows for little work, as far as the
//! evaluation rules allow.
//!
//! A step may move before another if it reads no register that the other sets. A step that
//! can fail stays behind every step that removes rows and stood before it.

use headrace_columns::repr::Repr;
use headrace_ir::ProbeKind;

use crate::bound::{Bound, BoundExpr, BoundStep, RegisterInfo};
use crate::build::{BuildIndex, BuildTable, Chains, Heads};

/// The memory that look-ups go through, which decides the order of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookups {
    /// A core's caches.
    Cpu,
    /// Shared memory, or L2.
    Gpu,
}

/// Reading a value of a column that no earlier step has read, relative to computing on one.
const LOAD_COST: f64 = 1.0;
/// One node of an expression.
const NODE_COST: f64 = 0.25;
/// A lookup by the bytes of what is looked into: in L1, in L2, or further out.
const CPU_LOOKUP_COSTS: [(u64, f64); 3] = [(32 << 10, 1.0), (1 << 20, 2.0), (u64::MAX, 6.0)];
/// The same on a GPU, in shared memory; a megabyte costs as much again.
const GPU_NEAR_LOOKUP_COST: f64 = 0.5;
/// In L2, or further out.
const GPU_LOOKUP_COSTS: [(u64, f64); 2] = [(24 << 20, 5.0), (u64::MAX, 8.0)];
/// Tables up to this many bytes leave shared memory for several blocks on a multiprocessor.
const GPU_SMALL_TABLE_BYTES: u64 = 32 << 10;
/// Tables up to this many bytes fit it at all, next to accumulators and queues.
const GPU_NEAR_TABLE_BYTES: u64 = 192 << 10;
/// A table that leaves room for one block only is worth it if this share of all rows looks into it.
/// Fewer rows are served by L2 while more blocks hide the time that takes.
const GPU_LARGE_TABLE_RATE_MIN: f64 = 0.3;
/// The share of the rows for which any table is.
const GPU_TABLE_RATE_MIN: f64 = 0.01;

/// Whether a table belongs into the shared memory of a GPU when `rate` is the share of the rows
/// that looks into it.
pub fn is_near_on_gpu(bytes: u64, rate: f64) -> bool {
    let (max, rate_min) = match bytes {
        ..=GPU_SMALL_TABLE_BYTES => (GPU_SMALL_TABLE_BYTES, GPU_TABLE_RATE_MIN),
        _ => (GPU_NEAR_TABLE_BYTES, GPU_LARGE_TABLE_RATE_MIN),
    };
    bytes <= max && rate >= rate_min
}
/// A hash table lookup on top of reaching memory.
const HASH_COST: f64 = 10.0;

struct Candidate {
    step: BoundStep,
    /// In the program.
    place: usize,
    reads: Vec<usize>,
    sets: Vec<usize>,
    selectivity: f64,
    removes: bool,
    can_fail: bool,
}

impl Candidate {
    fn new((place, step): (usize, BoundStep)) -> Self {
        let (reads, sets, removes, can_fail) = match &step {
            BoundStep::Filter { expr, .. } => (expr.registers(), vec![], true, expr.can_fail()),
            BoundStep::Compute { register, expr } => {
                (expr.registers(), vec![*register], false, expr.can_fail())
            }
            BoundStep::Probe(probe) => {
                let mark = usize::from(probe.kind == ProbeKind::Mark);
                let end = probe.first_register + probe.payload.len() + mark;
                let sets: Vec<usize> = (probe.first_register..end).collect();
                let exprs: Vec<&BoundExpr> = probe.keys.iter().chain(&probe.residual).collect();
                let mut reads: Vec<usize> = exprs.iter().flat_map(|e| e.registers()).collect();
                reads.retain(|register| !sets.contains(register));
                let keeps = matches!(probe.kind, ProbeKind::Left | ProbeKind::Mark);
                let can_fail = exprs.iter().any(|e| e.can_fail());
                (reads, sets, !keeps, can_fail)
            }
        };
        let selectivity = step.selectivity();
        Self { step, place, reads, sets, selectivity, removes, can_fail }
    }

    fn is_compute(&self) -> bool {
        matches!(self.step, BoundStep::Compute { .. })
    }

    fn cost(&self, registers: &[RegisterInfo], loaded: &[bool], at: At) -> f64 {
        let loads: f64 = self
            .reads
            .iter()
            .filter(|&&register| !loaded[register])
            .map(|&register| LOAD_COST * load_weight(&registers[register].repr))
            .sum();
        let work = match &self.step {
            BoundStep::Filter { expr, .. } | BoundStep::Compute { expr, .. } => nodes(expr),
            BoundStep::Probe(probe) => {
                probe.keys.iter().chain(&probe.residual).map(nodes).sum::<f64>()
                    + lookup_cost(&probe.build, at)
            }
        };
        loads + work
    }
}

fn load_weight(repr: &Repr) -> f64 {
    match repr {
        Repr::Str => 4.0,
        // As many words of 4 bytes.
        Repr::Bytes(width) => *width as f64 / 4.0,
        Repr::I128 => 4.0,
        Repr::I64 | Repr::U64 | Repr::F64 => 2.0,
        _ => 1.0,
    }
}

fn nodes(expr: &BoundExpr) -> f64 {
    let mut count = 0.0;
    expr.visit(&mut |e| count += if matches!(e.repr, Repr::Str) { 8.0 } else { 1.0 });
    count * NODE_COST
}

fn lookup_cost(build: &BuildTable, at: At) -> f64 {
    let (bytes, hash) = match &build.index {
        // Payload is read only for the rows that are left.
        BuildIndex::Direct(present) => (present.domain / 8, 0.0),
        BuildIndex::Chains(Chains { heads: Heads::Direct { heads, .. }, .. })
            if matches!(at.lookups, Lookups::Cpu) =>
        {
            (4 * heads.len() as u64, 0.0)
        }
        BuildIndex::Chains(_) => (build.bytes, HASH_COST),
    };
    let costs: &[(u64, f64)] = match at.lookups {
        Lookups::Cpu => &CPU_LOOKUP_COSTS,
        Lookups::Gpu if hash == 0.0 && is_near_on_gpu(bytes, at.rate) => {
            return GPU_NEAR_LOOKUP_COST * (1.0 + bytes as f64 / 1e6);
        }
        Lookups::Gpu => &GPU_LOOKUP_COSTS,
    };
    let cost = costs.iter().find(|(limit, _)| bytes <= *limit).map_or(0.0, |(_, cost)| *cost);
    cost + hash
}

/// Where a step would stand.
#[derive(Clone, Copy)]
struct At {
    lookups: Lookups,
    /// Share of the rows that gets there.
    rate: f64,
}

/// The steps of a program in the order in which they shall run, and the place of each in it.
pub(crate) fn ordered(
    steps: Vec<BoundStep>,
    registers: &[RegisterInfo],
    source_registers: usize,
    lookups: Lookups,
) -> (Vec<usize>, Vec<BoundStep>) {
    let mut left: Vec<Candidate> = steps.into_iter().enumerate().map(Candidate::new).collect();
    let mut known: Vec<bool> = (0..registers.len()).map(|r| r < source_registers).collect();
    let mut loaded = vec![false; registers.len()];
    let mut order = Vec::with_capacity(left.len());
    let mut at = At { lookups, rate: 1.0 };
    while !left.is_empty() {
        let next = best(&left, registers, &known, &loaded, at);
        let candidate = left.remove(next);
        at.rate *= candidate.selectivity.min(1.0);
        for &register in &candidate.reads {
            loaded[register] = true;
        }
        for &register in &candidate.sets {
            known[register] = true;
            loaded[register] = true;
        }
        order.push((candidate.place, candidate.step));
    }
    order.into_iter().unzip()
}

impl Bound {
    /// The shares of rows that the steps are expected to keep, in the order of the program.
    pub fn selectivities(&self) -> Vec<f64> {
        let mut selectivities = vec![1.0; self.steps.len()];
        for (place, step) in self.places.iter().zip(&self.steps) {
            selectivities[*place] = step.selectivity();
        }
        selectivities
    }

    /// The same with other expectations, one for each step of the program, and so perhaps in
    /// another order: all that a program whose expectations these are has the same but for its
    /// constants is the same here.
    pub fn expecting(&self, selectivities: &[f64], lookups: Lookups) -> Self {
        let mut steps: Vec<_> = self.places.iter().copied().zip(self.steps.clone()).collect();
        steps.sort_by_key(|(place, _)| *place);
        for ((_, step), expected) in steps.iter_mut().zip(selectivities) {
            match step {
                BoundStep::Filter { selectivity, .. } => *selectivity = *expected,
                BoundStep::Probe(probe) => probe.selectivity = *expected,
                BoundStep::Compute { .. } => {}
            }
        }
        let steps = steps.into_iter().map(|(_, step)| step).collect();
        let (places, steps) = ordered(steps, &self.registers, self.source_registers, lookups);
        Self { steps, places, ..self.clone() }
    }
}

impl BoundStep {
    /// The share of rows that it is expected to keep; more than 1 with duplicates.
    pub fn selectivity(&self) -> f64 {
        match self {
            Self::Filter { selectivity, .. } => *selectivity,
            Self::Probe(probe) => probe.selectivity,
            Self::Compute { .. } => 1.0,
        }
    }
}

/// The candidate with the least cost for each row that it removes. A computation runs only
/// when nothing that removes rows can run without it.
fn best(
    left: &[Candidate],
    registers: &[RegisterInfo],
    known: &[bool],
    loaded: &[bool],
    at: At,
) -> usize {
    let ready = |index: usize| {
        let candidate = &left[index];
        candidate.reads.iter().all(|&register| known[register])
            && !(candidate.can_fail && left[..index].iter().any(|earlier| earlier.removes))
    };
    let rank = |index: usize| {
        let candidate = &left[index];
        if candidate.is_compute() {
            return f64::MAX / 2.0;
        }
        let removed = 1.0 - candidate.selectivity;
        let cost = candidate.cost(registers, loaded, at);
        // What removes nothing comes after all that does, the costly and multiplying last.
        if removed > 1.0e-9 { cost / removed } else { 1.0e12 * (cost + candidate.selectivity) }
    };
    (0..left.len())
        .filter(|&index| ready(index))
        .min_by(|&a, &b| rank(a).total_cmp(&rank(b)))
        // The first one left has nothing before it, and IR steps read only earlier registers.
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headrace_ir::{DataType, Field};

    use super::*;
    use crate::bound::{BoundKind, BoundProbe};
    use crate::build::{BuildId, Presence};

    /// A dimension with keys `1..=domain` of which a share is left, probed by register `key`.
    fn dimension(name: &str, key: usize, domain: u64, selectivity: f64) -> BoundStep {
        let build = BuildTable {
            name: name.into(),
            keys: vec![Field::new("key", DataType::Int32, false)],
            key_reprs: vec![Repr::I32],
            rows: (domain as f64 * selectivity) as u64,
            source_rows: None,
            nulls_equal: false,
            has_null_key: false,
            unique: true,
            index: BuildIndex::Direct(Presence { base: 1, domain, words: Vec::new() }),
            payload: Vec::new(),
            bytes: domain / 8,
            id: BuildId::default(),
        };
        let key = BoundExpr {
            kind: BoundKind::Register(key),
            data_type: DataType::Int32,
            repr: Repr::I32,
            nullable: false,
            range: None,
            text: name.into(),
        };
        BoundStep::Probe(BoundProbe {
            build: Arc::new(build),
            keys: vec![key],
            kind: ProbeKind::Semi,
            null_equal: false,
            residual: None,
            payload: Vec::new(),
            first_register: 3,
            selectivity,
        })
    }

    fn names(steps: Vec<BoundStep>, lookups: Lookups) -> Vec<String> {
        let register = RegisterInfo {
            name: "key".into(),
            data_type: DataType::Int32,
            repr: Repr::I32,
            nullable: false,
            range: None,
        };
        let name = |step: BoundStep| match step {
            BoundStep::Probe(probe) => probe.build.name.clone(),
            _ => String::new(),
        };
        let (_, steps) =
            ordered(steps, &[register.clone(), register.clone(), register], 3, lookups);
        steps.into_iter().map(name).collect()
    }

    #[test]
    fn what_fits_shared_memory_comes_early_on_a_gpu() {
        let steps =
            || vec![dimension("supplier", 0, 200_000, 0.2), dimension("part", 1, 1_400_000, 0.04)];
        assert_eq!(names(steps(), Lookups::Cpu), ["supplier", "part"]);
        assert_eq!(names(steps(), Lookups::Gpu), ["part", "supplier"]);
    }

    #[test]
    fn a_large_table_is_not_near_when_few_rows_are_left() {
        let steps = vec![
            dimension("supplier", 0, 200_000, 0.2),
            dimension("part", 1, 1_400_000, 0.4),
            dimension("customer", 2, 3_000_000, 0.2),
        ];
        assert_eq!(names(steps, Lookups::Gpu), ["supplier", "customer", "part"]);
        assert!(is_near_on_gpu(175_000, 1.0) && !is_near_on_gpu(175_000, 0.2));
        assert!(is_near_on_gpu(25_000, 0.02) && !is_near_on_gpu(25_000, 0.001));
    }
}
