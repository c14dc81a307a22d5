//! Steps, sinks, builds and whole programs.

use serde::{Deserialize, Serialize};

use crate::aggregate::{AggregateCall, AggregateOutput};
use crate::expr::{Expr, Register};
use crate::order::OrderKey;
use crate::scalar::Scalar;
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

/// What the rows of a source are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SourceKind {
    /// A table: it gives the same rows whenever it is read.
    Table,
    /// Record batches of another producer: they come once, and how many is known at their end. No
    /// two sources of a program read the same.
    Batches,
}

/// The streamed rows: columns of one of the tables that the program is run over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// What the table must be.
    pub kind: SourceKind,
    /// Which table: its position among those that are handed over with the program.
    pub table_id: usize,
    /// The table's name for EXPLAIN and errors.
    pub table: String,
    /// The columns that the pipeline reads, in register order.
    pub columns: Vec<Field>,
    /// For each of them, its position in the table's schema.
    pub ordinals: Vec<usize>,
}

impl Source {
    /// The register of a column.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn register(&self, index: Register) -> Expr {
        let Field { name, data_type, nullable } = self.columns[index].clone();
        Expr::Register { index, data_type, nullable, name }
    }
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
    /// Whether it may be left out: what it drops is of no use to anybody, but changes no answer. Only a
    /// semi probe can be.
    pub is_optional: bool,
}

impl Probe {
    /// Keeps the rows that have a match.
    pub fn semi(build: usize, keys: Vec<Expr>) -> Self {
        let (kind, payload) = (ProbeKind::Semi, Vec::new());
        Self { build, keys, kind, null_equal: false, residual: None, payload, is_optional: false }
    }
}

/// What a match means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProbeKind {
    /// One row per match; rows without a match are dropped.
    Inner,
    /// One row per match; a row without a match is kept once with NULL payload.
    Left,
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
        /// Grouping sets (ROLLUP, CUBE, GROUPING SETS), each the positions of the keys that it
        /// groups by; other keys are NULL in its groups. After the keys comes a column then,
        /// [`crate::grouping::GROUPING_SET`], the position of a group's set. None: all keys. A
        /// set without keys has no group for no rows.
        sets: Vec<Vec<usize>>,
        /// Aggregates.
        calls: Vec<AggregateCall>,
        /// Results, or states to be merged with others.
        output: AggregateOutput,
    },
    /// The rows themselves, in no order.
    Rows {
        /// Output columns.
        columns: Vec<NamedExpr>,
        /// At most this many rows, whichever come first.
        limit: Option<u64>,
    },
    /// The rows in an order, those that tie in any.
    Sorted {
        /// Output columns.
        columns: Vec<NamedExpr>,
        /// What they are ordered by; each key decides where those before it tie.
        order: Vec<OrderKey>,
        /// At most this many rows, the first ones.
        limit: Option<u64>,
    },
    /// Rows become a build that other pipelines probe.
    Build {
        /// Keys.
        keys: Vec<NamedExpr>,
        /// Payload columns.
        payload: Vec<NamedExpr>,
    },
}

impl Sink {
    /// The results of a grouped aggregation.
    pub fn aggregate(keys: Vec<NamedExpr>, calls: Vec<AggregateCall>) -> Self {
        let (sets, output) = (Vec::new(), AggregateOutput::Final);
        Self::Aggregate { keys, sets, calls, output }
    }

    /// Of rows no more than `rows` are wanted; groups and builds stay whole.
    pub fn set_limit(&mut self, rows: Option<u64>) {
        if let Self::Rows { limit, .. } | Self::Sorted { limit, .. } = self {
            *limit = rows;
        }
    }
}

impl Pipeline {
    /// Every expression.
    pub(crate) fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        let mut exprs: Vec<&mut Expr> = Vec::new();
        for step in &mut self.steps {
            match step {
                Step::Filter(expr) => exprs.push(expr),
                Step::Compute(named) => exprs.push(&mut named.expr),
                Step::Probe(probe) => {
                    exprs.extend(probe.keys.iter_mut().chain(&mut probe.residual))
                }
            }
        }
        let mut named: Vec<&mut NamedExpr> = Vec::new();
        match &mut self.sink {
            Sink::Aggregate { keys, calls, .. } => {
                named.extend(keys);
                exprs.extend(
                    calls.iter_mut().flat_map(|c| c.argument.iter_mut().chain(&mut c.filter)),
                );
            }
            Sink::Rows { columns, .. } | Sink::Sorted { columns, .. } => named.extend(columns),
            Sink::Build { keys, payload } => named.extend(keys.iter_mut().chain(payload)),
        }
        exprs.extend(named.into_iter().map(|named| &mut named.expr));
        exprs
    }
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
    /// Rows of constants: the keys, then the payload.
    Values(Vec<Vec<Scalar>>),
}

/// The version of programs that this crate writes and reads: changed whenever the meaning of a
/// serialised program changes.
pub const PROGRAM_VERSION: u32 = 6;

/// A pipeline and the builds that it probes, in an order in which they can be made. Together with
/// its tables and the rows of its child plans it says everything that a processor has to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// [`PROGRAM_VERSION`] of whoever made it.
    pub version: u32,
    /// What has to be known to run it: types of values that come with each run.
    #[serde(default)]
    pub parameters: Vec<Field>,
    /// Builds; a build's pipeline probes only builds before it.
    pub builds: Vec<BuildPlan>,
    /// The streamed pipeline.
    pub pipeline: Pipeline,
}

impl Program {
    /// A program of the present version without parameters.
    pub fn new(builds: Vec<BuildPlan>, pipeline: Pipeline) -> Self {
        Self { version: PROGRAM_VERSION, parameters: Vec::new(), builds, pipeline }
    }

    /// Every source: those of builds that are pipelines, then the streamed one.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        let streamed = std::iter::once(&self.pipeline.source);
        self.builds.iter().filter_map(|b| Some(&b.pipeline()?.source)).chain(streamed)
    }

    /// The same, to be changed.
    pub fn sources_mut(&mut self) -> impl Iterator<Item = &mut Source> {
        let of_builds = self.builds.iter_mut().filter_map(|build| match &mut build.source {
            BuildSource::Pipeline(pipeline) => Some(&mut pipeline.source),
            BuildSource::Child(_) | BuildSource::Values(_) => None,
        });
        of_builds.chain(std::iter::once(&mut self.pipeline.source))
    }
}

impl BuildPlan {
    /// The pipeline that makes it, unless its rows come from a child plan.
    pub fn pipeline(&self) -> Option<&Pipeline> {
        match &self.source {
            BuildSource::Pipeline(pipeline) => Some(pipeline),
            BuildSource::Child(_) | BuildSource::Values(_) => None,
        }
    }
}
