//! The builds of a program, without rows that cannot be part of the answer.
//!
//! A row of a build is of use where a streamed row finds it and comes through. What tells which rows those are is
//! another build, that is made first and asked by the pipeline of this one (semi-join reduction: Bernstein and Chiu, "Using
//! semi-joins to solve relational queries", JACM 1981):
//!
//! ```text
//! lineitem ⋈ orders ⋈ σ(customer)               of orders, those of such customers: σ(customer) is looked up by a
//!                                               column of orders alone
//! lineitem ⋈ partsupp ⋈ σ(part) on the same key of partsupp, those of such parts
//! σ(lineitem) ⋈ σ(orders) ▷ lineitem            of the second lineitem, what the streamed rows that are left look
//!                                               for: few keys, for which the streamed columns are read once more
//! ```
//!
//! A build that is only asked so may be left out by whoever runs the program: it changes no answer.
//!
//! Where few streamed rows are expected to look for a match in a build about as large as the stream, the streamed
//! columns are read once more for these keys alone. The estimate affects speed only: such a probe is optional
//! (`Probe::is_optional`), and it is skipped if its build does not fit in memory.

use std::collections::{BTreeSet, HashMap};

use headrace_ir::{CompareOp, Expr, NamedExpr, Pipeline, Probe, ProbeKind, Register, Sink, Step};
use headrace_pipeline::WhyNot;

use super::graph::{Graph, Leaf, register};
use super::order::{PlannedProbe, PlannedStep};
use super::program::{Feeds, Numbering, Stream, filter_steps};
use super::reduce::plain;

/// What a row of keys takes at most in a build, few and short as they are.
pub(super) const REDUCER_ROW_BYTES: u64 = 64;

/// Share of rows that a condition is expected to keep: an equality, and any other.
const EQUAL_SHARE: f64 = 0.1;
const UNKNOWN_SHARE: f64 = 1.0 / 3.0;

/// Rows are looked up in another build first where it is expected to have at most this share of its table.
const SELECTIVE_SHARE: f64 = 0.5;

/// Streamed rows are read twice where at most this share of them is expected to look for a match,
const FEW_SHARE: f64 = 1.0 / 8.0;
/// and where a build has at least this share as many rows: a row of it costs several times as much as one that is read.
const LARGE_SHARE: f64 = 1.0 / 4.0;

/// Builds as they are planned, each after those that its pipeline asks.
pub(super) struct Builds<'a> {
    graph: &'a Graph,
    probes: Vec<&'a PlannedProbe>,
    stream: &'a Stream,
    /// Registers that the streamed pipeline reads.
    needed: &'a BTreeSet<Register>,
    reducer_bytes_max: u64,
    feeds: Feeds,
    plans: Vec<Pipeline>,
    /// The build of a leaf.
    of_leaf: HashMap<usize, usize>,
    /// Builds of the keys by which streamed rows look for a match.
    of_streamed_keys: Vec<(Vec<Expr>, usize)>,
}

/// A build, and what of a row is looked up in it: without a match the row is of no use.
struct Reducer {
    build: usize,
    keys: Vec<Expr>,
    null_equal: bool,
}

impl<'a> Builds<'a> {
    pub fn new(
        graph: &'a Graph,
        steps: &'a [PlannedStep],
        stream: &'a Stream,
        needed: &'a BTreeSet<Register>,
        reducer_bytes_max: u64,
        feeds: Feeds,
    ) -> Self {
        let probes = steps.iter().filter_map(|step| match step {
            PlannedStep::Probe(probe) => Some(probe),
            PlannedStep::Filter(_) => None,
        });
        Self {
            graph,
            probes: probes.collect(),
            stream,
            needed,
            reducer_bytes_max,
            feeds,
            plans: Vec::new(),
            of_leaf: HashMap::new(),
            of_streamed_keys: Vec::new(),
        }
    }

    pub fn finish(self) -> (Vec<Pipeline>, Feeds) {
        (self.plans, self.feeds)
    }

    /// The columns of a probe's leaf that are read behind it.
    pub fn payload(&self, probe: &PlannedProbe) -> Vec<Register> {
        let leaf = &self.graph.leaves[probe.leaf];
        self.needed.iter().copied().filter(|&register| leaf.owns(register)).collect()
    }

    /// The build that a probe asks, planned when it is first wanted.
    pub fn of(&mut self, probe: &PlannedProbe) -> Result<usize, WhyNot> {
        if let Some(&build) = self.of_leaf.get(&probe.leaf) {
            return Ok(build);
        }
        let mut reducers = Vec::new();
        if self.may_reduce(probe) {
            let keys = probe.keys.iter().map(|(_, key)| key.clone()).collect();
            let (build, null_equal) = (self.of_streamed_keys(probe)?, probe.null_equal);
            reducers.push(Reducer { build, keys, null_equal });
        }
        for (teller, keys) in self.tellers(probe) {
            let build = self.of(teller)?;
            reducers.push(Reducer { build, keys, null_equal: false });
        }
        let payload = self.payload(probe);
        let leaf = &self.graph.leaves[probe.leaf];
        let keys: Vec<_> = probe.keys.iter().map(|(_, key)| key.clone()).collect();
        let build = plan_build(leaf, &keys, &payload, reducers, &mut self.feeds)?;
        let build = self.add(build);
        self.of_leaf.insert(probe.leaf, build);
        Ok(build)
    }

    fn add(&mut self, plan: Pipeline) -> usize {
        self.plans.push(plan);
        self.plans.len() - 1
    }

    /// A build of the keys by which streamed rows look for a match, without those of rows that another probe removes.
    fn of_streamed_keys(&mut self, probe: &PlannedProbe) -> Result<usize, WhyNot> {
        let keys: Vec<_> = probe.keys.iter().map(|(kept, _)| kept.clone()).collect();
        if let Some((_, build)) = self.of_streamed_keys.iter().find(|(known, _)| *known == keys) {
            return Ok(*build);
        }
        let mut reducers = Vec::new();
        for other in self.narrowing() {
            let keys = other.keys.iter().map(|(kept, _)| kept.clone()).collect();
            reducers.push(Reducer { build: self.of(other)?, keys, null_equal: false });
        }
        let stream = &self.graph.leaves[self.stream.leaf];
        let build = plan_build(stream, &keys, &[], reducers, &mut self.feeds)?;
        let build = self.add(build);
        self.of_streamed_keys.push((keys, build));
        Ok(build)
    }

    /// What tells of a build's rows which are of use, and the columns of the build that are looked up there.
    fn tellers(&self, probe: &'a PlannedProbe) -> Vec<(&'a PlannedProbe, Vec<Expr>)> {
        let asks = probe.kind == ProbeKind::Inner
            && !probe.null_equal
            && self.graph.leaves[probe.leaf].table().is_some()
            && probe.keys.iter().all(|(_, key)| !key.can_fail());
        let others = self.probes.iter().filter(|other| asks && other.leaf != probe.leaf);
        let tells = |other: &&'a PlannedProbe| {
            let keys = self.told_as_key(other, probe).or_else(|| self.told_by(other, probe));
            keys.map(|keys| (*other, keys))
        };
        others.filter_map(tells).collect()
    }

    /// A streamed row that matches the rows of an inner join looks for the same values in another build. Of two inner joins
    /// the one of fewer rows tells the other.
    fn told_as_key(&self, other: &PlannedProbe, probe: &PlannedProbe) -> Option<Vec<Expr>> {
        if !removes_alone(other) {
            return None;
        }
        let same = |wanted: &Expr| {
            let mut keys = probe.keys.iter();
            keys.find(|(kept, key)| is_same_value(kept, key, wanted)).map(|(_, key)| key.clone())
        };
        let keys = other.keys.iter().map(|(kept, _)| same(kept)).collect::<Option<_>>()?;
        let tells = match other.kind {
            ProbeKind::Semi => true,
            _ => self.is_selective(other) && self.expected_rows(other) < self.expected_rows(probe),
        };
        (tells && !self.may_reduce(other)).then_some(keys)
    }

    /// What is looked up in the build of a later join, which few rows match, is of this one alone.
    fn told_by(&self, later: &PlannedProbe, probe: &PlannedProbe) -> Option<Vec<Expr>> {
        let leaf = &self.graph.leaves[probe.leaf];
        let is_of_probe = |(kept, _): &(Expr, Expr)| {
            let registers = kept.registers();
            let of_leaf = registers.iter().all(|&register| leaf.owns(register));
            !registers.is_empty() && of_leaf && !kept.can_fail()
        };
        let tells =
            removes_alone(later) && later.keys.iter().all(is_of_probe) && self.is_selective(later);
        tells.then(|| later.keys.iter().map(|(kept, _)| kept.clone()).collect())
    }

    /// The probes that are expected to remove most streamed rows, by what is at hand in each of these.
    fn narrowing(&self) -> Vec<&'a PlannedProbe> {
        let is_narrowing = |probe: &&&PlannedProbe| {
            removes_alone(probe)
                && self.asks_for_streamed(probe)
                && !self.is_large(probe)
                && self.is_selective(probe)
        };
        self.probes.iter().filter(is_narrowing).copied().collect()
    }

    /// Whether a build is to be made of rows alone that can find a match: because it is larger than what is streamed, or
    /// because few streamed rows are expected to look for one. What remains has the same matches. Where a NULL in the
    /// build means something, all of it is made.
    fn may_reduce(&self, probe: &PlannedProbe) -> bool {
        let stream = &self.graph.leaves[self.stream.leaf];
        let is_exact = probe.kind != ProbeKind::NullAwareAnti;
        let may = stream.table().is_some() && is_exact && self.asks_for_streamed(probe);
        if !may || !self.is_large(probe) {
            return false;
        }
        let share = self.expected_share();
        let keys_bytes = rows(stream) * share * REDUCER_ROW_BYTES as f64;
        (share <= FEW_SHARE || self.is_larger(probe)) && keys_bytes <= self.reducer_bytes_max as f64
    }

    /// Whether a build hangs from what is streamed though it is larger.
    fn is_larger(&self, probe: &PlannedProbe) -> bool {
        self.stream.smaller_than.contains(&probe.leaf)
    }

    /// Whether a build is about as large as what is streamed.
    fn is_large(&self, probe: &PlannedProbe) -> bool {
        let streamed = rows(&self.graph.leaves[self.stream.leaf]);
        self.is_larger(probe) || self.expected_rows(probe) >= streamed * LARGE_SHARE
    }

    /// Rows of a build that its own conditions are expected to leave; none where they are not known.
    fn expected_rows(&self, probe: &PlannedProbe) -> f64 {
        let leaf = &self.graph.leaves[probe.leaf];
        rows(leaf) * kept_share(leaf)
    }

    /// Share of streamed rows that is expected to be left by its own conditions and by others' builds.
    fn expected_share(&self) -> f64 {
        let own = kept_share(&self.graph.leaves[self.stream.leaf]);
        self.narrowing().iter().fold(own, |share, probe| share * self.share(probe))
    }

    /// Share of a build's rows that is expected to be left of all.
    fn share(&self, probe: &PlannedProbe) -> f64 {
        let is_inner = probe.kind == ProbeKind::Inner;
        let told = |later: &&&PlannedProbe| is_inner && self.told_by(later, probe).is_some();
        let later = self.probes.iter().filter(told);
        later.fold(kept_share(&self.graph.leaves[probe.leaf]), |share, it| share * self.share(it))
    }

    fn is_selective(&self, probe: &PlannedProbe) -> bool {
        self.share(probe) <= SELECTIVE_SHARE
    }

    fn asks_for_streamed(&self, probe: &PlannedProbe) -> bool {
        let is_streamed =
            |key: &Expr| !key.can_fail() && self.graph.leaves_of(key) == [self.stream.leaf];
        probe.keys.iter().all(|(kept, _)| is_streamed(kept))
    }
}

/// Whether a row without an equal in a probe's build is removed, whatever else it holds.
fn removes_alone(probe: &PlannedProbe) -> bool {
    matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi)
        && probe.residual.is_none()
        && !probe.null_equal
}

/// Whether a key of a build, where it matches a streamed row's, is the value that is wanted of that row.
fn is_same_value(streamed: &Expr, key: &Expr, wanted: &Expr) -> bool {
    let is_wanted = plain(wanted).is_some() && plain(streamed) == plain(wanted);
    is_wanted && plain(key).is_some() && key.data_type() == wanted.data_type()
}

fn rows(leaf: &Leaf) -> f64 {
    leaf.table_rows().unwrap_or(0) as f64
}

/// Share of a leaf's rows that its conditions are expected to keep.
fn kept_share(leaf: &Leaf) -> f64 {
    leaf.filters.iter().map(expected_share).product()
}

/// Share of rows that a condition is expected to keep, by its form.
fn expected_share(condition: &Expr) -> f64 {
    let share = match condition {
        Expr::Compare { op: CompareOp::Eq, .. } => EQUAL_SHARE,
        Expr::Compare { op: CompareOp::Ne, .. } => 1.0 - EQUAL_SHARE,
        Expr::InList { list, negated: false, .. } => EQUAL_SHARE * list.len() as f64,
        Expr::InList { negated: true, .. } | Expr::Like { negated: true, .. } => 1.0 - EQUAL_SHARE,
        Expr::And(all) => all.iter().map(expected_share).product(),
        Expr::Or(any) => any.iter().map(expected_share).sum(),
        Expr::Not(value) => 1.0 - expected_share(value),
        _ => UNKNOWN_SHARE,
    };
    share.clamp(0.0, 1.0)
}

fn named(expr: Expr) -> NamedExpr {
    NamedExpr { name: expr.to_string(), expr }
}

fn plan_build(
    leaf: &Leaf,
    keys: &[Expr],
    payload: &[Register],
    reducers: Vec<Reducer>,
    feeds: &mut Feeds,
) -> Result<Pipeline, WhyNot> {
    let mut needed: BTreeSet<Register> = payload.iter().copied().collect();
    let asked = reducers.iter().flat_map(|reducer| &reducer.keys);
    needed.extend(keys.iter().chain(&leaf.filters).chain(asked).flat_map(Expr::registers));
    let mut numbering = Numbering::default();
    let source = feeds.source(leaf, &needed, &mut numbering)?;
    let mut steps = filter_steps(&leaf.filters, &numbering)?;
    let at_hand = keys.iter().map(|key| numbering.apply(key)).collect::<Result<Vec<_>, _>>()?;
    for Reducer { build, keys, null_equal } in reducers {
        let keys = keys.iter().map(|key| numbering.apply(key)).collect::<Result<_, _>>()?;
        let is_optional = true;
        steps.push(Step::Probe(Probe { null_equal, is_optional, ..Probe::semi(build, keys) }));
    }
    let payload = payload.iter().map(|&r| {
        let field = leaf.columns[r - leaf.first].clone()?;
        numbering.apply(&register(r, &field)).map(named)
    });
    let payload = payload.collect::<Result<_, WhyNot>>()?;
    let sink = Sink::Build { keys: at_hand.into_iter().map(named).collect(), payload };
    Ok(Pipeline { source, steps, sink })
}
