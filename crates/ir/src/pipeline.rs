//! Steps, sinks, builds and whole programs.

use serde::{Deserialize, Serialize};

use crate::aggregate::AggregateCall;
use crate::expr::Expr;
use crate::types::Field;

/// What happens to each chunk of one streamed table with no stop in between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Where rows come from; its columns are registers `0..n`.
    pub source: Source,
    /// Steps in order. A processor may reorder them within the evaluation rules.
    pub steps: Vec<Step>,
    /// Where rows end.
    pub sink: Sink,
}

/// The streamed rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// How rows arrive.
    pub kind: SourceKind,
    /// Table name for EXPLAIN and errors.
    pub table: String,
    /// The columns that the pipeline reads, in register order.
    pub columns: Vec<Field>,
}

/// How rows arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SourceKind {
    /// As byte ranges of files, read by the race.
    Extents,
    /// As rows that someone else produces (a child plan, pages of a buffer pool).
    Batches,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Keeps rows for which the expression is true.
    Filter(Expr),
    /// Appends one register.
    Compute(NamedExpr),
    /// Looks rows up in a build; appends one register per payload column, and one Bool
    /// register for [`ProbeKind::Mark`].
    Probe(Probe),
}

/// An expression with the name of its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedExpr {
    /// Name of the register or column.
    pub name: String,
    /// Its value.
    pub expr: Expr,
}

/// A lookup in a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Index into [`Program::builds`].
    pub build: usize,
    /// Keys of the streamed row, one per key of the build, of equal types.
    pub keys: Vec<Expr>,
    /// What a match means.
    pub kind: ProbeKind,
    /// Whether NULL matches NULL.
    pub null_equal: bool,
    /// Further condition on a matched pair. Its registers count the payload registers of this
    /// probe as already appended.
    pub residual: Option<Expr>,
    /// Payload columns of the build that are appended, by their index in
    /// [`BuildPlan::payload`].
    pub payload: Vec<usize>,
}

/// What a match means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProbeKind {
    /// One row per match; rows without a match are dropped.
    Inner,
    /// One row per match; a row without a match is kept once with NULL payload.
    Left,
    /// `Inner`, and unmatched build rows afterwards.
    Right,
    /// `Left` and `Right`.
    Full,
    /// The row once, if there is a match.
    Semi,
    /// The row once, if there is no match.
    Anti,
    /// `NOT IN`: as `Anti`, but a NULL key, or any NULL in the build, drops the row.
    NullAwareAnti,
    /// Every row once, with a three-valued Bool register that tells whether there is a match.
    Mark,
}

/// Where rows end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Sink {
    /// Grouped aggregation; without keys there is exactly one group, even for no rows.
    /// Output columns: keys, then calls.
    Aggregate {
        /// Group keys; NULLs form one group.
        keys: Vec<NamedExpr>,
        /// Aggregates.
        calls: Vec<AggregateCall>,
    },
    /// The rows themselves, in no order.
    Rows {
        /// Output columns.
        columns: Vec<NamedExpr>,
        /// At most this many rows, whichever come first.
        limit: Option<u64>,
    },
    /// The first `limit` rows of an order.
    TopK {
        /// Output columns.
        columns: Vec<NamedExpr>,
        /// Sort keys over output columns.
        order: Vec<SortKey>,
        /// How many.
        limit: u64,
    },
    /// Rows become a build that other pipelines probe.
    Build {
        /// Keys.
        keys: Vec<NamedExpr>,
        /// Payload columns.
        payload: Vec<NamedExpr>,
    },
}

/// One sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SortKey {
    /// Output column.
    pub column: usize,
    /// Descending.
    pub descending: bool,
    /// NULLs first.
    pub nulls_first: bool,
}

/// A build: rows by key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildPlan {
    /// Name for EXPLAIN (the dimension's table name).
    pub name: String,
    /// Where its rows come from.
    pub source: BuildSource,
    /// Key columns.
    pub keys: Vec<Field>,
    /// Payload columns.
    pub payload: Vec<Field>,
}

/// Where the rows of a build come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BuildSource {
    /// A pipeline of its own with a [`Sink::Build`]; it may probe builds of a smaller index.
    Pipeline(Box<Pipeline>),
    /// Rows of a child plan, by its index; its columns are the keys, then the payload.
    Child(usize),
}

/// A pipeline and the builds that it probes, in an order in which they can be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Builds; a build's pipeline probes only builds before it.
    pub builds: Vec<BuildPlan>,
    /// The streamed pipeline.
    pub pipeline: Pipeline,
}
