//! In which order a pipeline probes and filters.
//!
//! A step only needs the registers that it reads (a snowflake's outer dimension is keyed by the
//! payload of an inner one), unless it can fail: then everything that stands below it in the plan
//! comes first, so that it never sees a row that the query has removed.

use headrace_ir::{CompareOp, DataType, Expr, ProbeKind, Scalar};
use headrace_pipeline::WhyNot;

use super::graph::{Conjunct, Edge, Graph, Leaf, SideJoin};
use super::translate::compare;

/// A probe over graph registers.
pub struct PlannedProbe {
    /// The leaf that becomes its build.
    pub leaf: usize,
    /// What a match means.
    pub kind: ProbeKind,
    /// `(over streamed rows, over the leaf)`.
    pub keys: Vec<(Expr, Expr)>,
    /// Whether NULL equals NULL.
    pub null_equal: bool,
    /// Further condition on a pair.
    pub residual: Option<Expr>,
}

/// A step over graph registers.
pub enum PlannedStep {
    /// Keeps rows.
    Filter(Expr),
    /// Looks rows up.
    Probe(PlannedProbe),
}

impl PlannedStep {
    /// What it evaluates for streamed rows.
    pub fn exprs(&self) -> Vec<&Expr> {
        match self {
            Self::Filter(condition) => vec![condition],
            Self::Probe(probe) => {
                probe.keys.iter().map(|(kept, _)| kept).chain(&probe.residual).collect()
            }
        }
    }

    /// What a probe evaluates for streamed rows.
    pub fn probe_exprs_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Self::Filter(_) => vec![],
            Self::Probe(probe) => {
                probe.keys.iter_mut().map(|(kept, _)| kept).chain(&mut probe.residual).collect()
            }
        }
    }
}

/// The steps after the streamed leaf's own filters. Of the graph, the leaves are left, with the
/// conditions that are applied when they are read.
pub fn ordered(graph: Graph, stream: usize) -> Result<(Graph, Vec<PlannedStep>), WhyNot> {
    let joined = vec![false; graph.leaves.len()];
    let mut ordering = Ordering { graph, stream, joined, steps: vec![] };
    ordering.join(stream);
    ordering.run()?;
    Ok((ordering.graph, ordering.steps))
}

fn why<T>(reason: impl Into<String>) -> Result<T, WhyNot> {
    Err(WhyNot::new(reason))
}

struct Ordering {
    graph: Graph,
    stream: usize,
    joined: Vec<bool>,
    steps: Vec<PlannedStep>,
}

impl Ordering {
    fn run(&mut self) -> Result<(), WhyNot> {
        self.close_edges(|edge, graph| {
            graph.leaves_of(&edge.left).is_empty() || graph.leaves_of(&edge.right).is_empty()
        })?;
        self.push_down();
        loop {
            let joined = self.joined.clone();
            self.close_edges(|edge, graph| {
                [&edge.left, &edge.right].into_iter().all(|e| all_joined(graph, &joined, e))
            })?;
            self.place_safe_conjuncts();
            // What can fail waits until nothing else can go on.
            let progress = self.attach_paired(true)
                || self.attach_side_join()
                || self.attach_inner()?
                || self.attach_paired(false)
                || self.place_failing_conjunct();
            if !progress {
                break;
            }
        }
        match self.joined.iter().position(|joined| !joined) {
            None => Ok(()),
            Some(leaf) => why(self.not_joined(leaf)),
        }
    }

    /// A leaf is at hand from now on, and has removed what it removes.
    fn join(&mut self, leaf: usize) {
        self.joined[leaf] = true;
        self.graph.leaves[leaf].paired = None;
    }

    fn not_joined(&self, leaf: usize) -> String {
        let name = self.graph.leaves[leaf].name();
        let edges = self.graph.edges.iter().flat_map(|edge| [&edge.left, &edge.right]);
        let failing = edges.filter(|e| e.can_fail()).find(|e| self.graph.leaves_of(e) == [leaf]);
        match failing {
            Some(key) => format!("{key} can fail for rows of {name} that another join removes"),
            None => format!(
                "no equality joins {name} with the streamed {}",
                self.graph.leaves[self.stream].name()
            ),
        }
    }

    /// Equalities of what is at hand already, or of a constant, are conditions like any other.
    fn close_edges(&mut self, closed: impl Fn(&Edge, &Graph) -> bool) -> Result<(), WhyNot> {
        let edges = std::mem::take(&mut self.graph.edges);
        let (closed, open): (Vec<_>, Vec<_>) =
            edges.into_iter().partition(|edge| closed(edge, &self.graph));
        self.graph.edges = open;
        for edge in closed {
            if edge.null_equal {
                return why("a cycle of joins where NULL equals NULL");
            }
            let start = edge.left_below.start.min(edge.right_below.start);
            let end = edge.left_below.end.max(edge.right_below.end);
            let expr = compare(CompareOp::Eq, edge.left, edge.right)?;
            self.graph.conjuncts.push(Conjunct { expr, part: edge.part, below: start..end });
        }
        Ok(())
    }

    /// Conditions on one leaf alone are applied when it is read.
    fn push_down(&mut self) {
        for conjunct in std::mem::take(&mut self.graph.conjuncts) {
            let leaf = match self.graph.leaves_of(&conjunct.expr).as_slice() {
                [leaf] => Some(&mut self.graph.leaves[*leaf]),
                _ => None,
            };
            match leaf {
                Some(leaf) if !leaf.is_side && leaf.rows.is_ok() && !conjunct.expr.can_fail() => {
                    leaf.filters.push(conjunct.expr);
                }
                _ => self.graph.conjuncts.push(conjunct),
            }
        }
    }

    fn place_safe_conjuncts(&mut self) {
        let conjuncts = std::mem::take(&mut self.graph.conjuncts);
        for conjunct in conjuncts {
            if all_joined(&self.graph, &self.joined, &conjunct.expr) && !conjunct.expr.can_fail() {
                self.steps.push(PlannedStep::Filter(conjunct.expr));
            } else {
                self.graph.conjuncts.push(conjunct);
            }
        }
    }

    fn place_failing_conjunct(&mut self) -> bool {
        let ready = |c: &Conjunct| {
            all_joined(&self.graph, &self.joined, &c.expr) && !self.graph.holds_any(&c.below)
        };
        let Some(position) = self.graph.conjuncts.iter().position(ready) else { return false };
        self.steps.push(PlannedStep::Filter(self.graph.conjuncts.remove(position).expr));
        true
    }

    /// Attaches the first semi, anti or outer join that can be.
    fn attach_side_join(&mut self) -> bool {
        let ready = |side: &SideJoin| self.side_join_is_ready(side);
        let Some(position) = self.graph.side_joins.iter().position(ready) else { return false };
        let side = self.graph.side_joins.remove(position);
        self.join(side.leaf);
        self.steps.push(PlannedStep::Probe(PlannedProbe {
            leaf: side.leaf,
            kind: side.kind,
            keys: side.keys,
            null_equal: side.null_equal,
            residual: side.residual,
        }));
        true
    }

    fn side_join_is_ready(&self, side: &SideJoin) -> bool {
        let exprs = || side.keys.iter().map(|(kept, _)| kept).chain(&side.residual);
        let at_hand = |e: &Expr| {
            self.graph.leaves_of(e).into_iter().all(|l| l == side.leaf || self.joined[l])
        };
        exprs().all(at_hand) && !(exprs().any(Expr::can_fail) && self.graph.holds_any(&side.below))
    }

    /// Attaches the first leaf that an inner join connects with what is at hand.
    fn attach_inner(&mut self) -> Result<bool, WhyNot> {
        for leaf in 0..self.graph.leaves.len() {
            if self.joined[leaf] || self.graph.leaves[leaf].is_side {
                continue;
            }
            let (keys, rest) = self.split_edges(leaf);
            let Some(first) = keys.first() else { continue };
            let null_equal = first.null_equal;
            if keys.iter().any(|k| k.null_equal != null_equal) {
                return why("a join on some keys where NULL equals NULL and some where not");
            }
            self.graph.edges = rest;
            self.join(leaf);
            self.steps.push(PlannedStep::Probe(PlannedProbe {
                leaf,
                kind: ProbeKind::Inner,
                keys: keys.into_iter().map(|edge| (edge.left, edge.right)).collect(),
                null_equal,
                residual: None,
            }));
            return Ok(true);
        }
        Ok(false)
    }

    /// Attaches the first leaf that is paired with all rows: each row finds all of its rows by a constant. Those of one row
    /// come first, those that may multiply the rows when nothing else makes them fewer.
    fn attach_paired(&mut self, of_one_row: bool) -> bool {
        let is_next = |leaf: &Leaf| leaf.paired.is_some_and(|it| it.is_one_row == of_one_row);
        let Some(leaf) = self.graph.leaves.iter().position(is_next) else { return false };
        self.join(leaf);
        let one = || Expr::Literal(Scalar::int(DataType::Int32, 1));
        self.steps.push(PlannedStep::Probe(PlannedProbe {
            leaf,
            kind: ProbeKind::Inner,
            keys: vec![(one(), one())],
            null_equal: false,
            residual: None,
        }));
        true
    }

    /// Edges between the joined leaves (made their left side) and `leaf` that may be probed now,
    /// and all others.
    fn split_edges(&self, leaf: usize) -> (Vec<Edge>, Vec<Edge>) {
        let (mut keys, mut rest) = (Vec::new(), Vec::new());
        for edge in &self.graph.edges {
            let swapped = edge.clone().swapped();
            match [edge, &swapped].into_iter().find(|edge| self.is_key(edge, leaf)) {
                Some(key) => keys.push(key.clone()),
                None => rest.push(edge.clone()),
            }
        }
        (keys, rest)
    }

    /// Whether an edge's left side is at hand, and its right side is a key of `leaf`. A key that
    /// can fail is evaluated for all rows that are left of the leaf: only where no join stands
    /// between is that what the plan does.
    fn is_key(&self, edge: &Edge, leaf: usize) -> bool {
        let graph = &self.graph;
        all_joined(graph, &self.joined, &edge.left)
            && graph.leaves_of(&edge.right) == [leaf]
            && !(edge.left.can_fail() && graph.holds_any(&edge.left_below))
            && (!edge.right.can_fail() || edge.right_below.is_empty())
    }
}

/// Whether every leaf that an expression reads is at hand.
fn all_joined(graph: &Graph, joined: &[bool], expr: &Expr) -> bool {
    graph.leaves_of(expr).into_iter().all(|leaf| joined[leaf])
}
