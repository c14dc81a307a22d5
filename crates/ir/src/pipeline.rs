//! Pipelines: a source, steps, a sink.

use serde::{Deserialize, Serialize};

use crate::aggregate::{AggregateCall, AggregateFunction, AggregateOutput};
use crate::cuda_function::CudaFunction;
use crate::expr::{Expr, NamedExpr, Register};
use crate::order::OrderKey;
use crate::scalar::Scalar;
use crate::types::{DataType, Field};
use crate::windows::Windows;

/// Name of the output column that tells which grouping set a group is of: its position among the sets.
pub const GROUPING_SET: &str = "grouping_set";

/// What happens to each chunk of one source with no stop in between: one stage of a
/// [`Program`](crate::Program).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Where rows come from; its columns are registers `0..n`.
    pub source: Source,
    /// Steps in order. A processor may reorder them within the evaluation rules.
    pub steps: Vec<Step>,
    /// Where rows end.
    pub sink: Sink,
}

/// Where the rows of a source come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// A table, by its number among those that are handed over with the program. It gives the same
    /// rows whenever it is read.
    Table(usize),
    /// Record batches of another producer, by their number among the tables. They come once, and
    /// how many is known at their end. No two sources of a program read the same.
    Batches(usize),
    /// Rows of constants.
    Values(Vec<Vec<Scalar>>),
    /// The output of an earlier stage, while that stage runs, or kept where several read it and memory allows.
    Stage(usize),
    /// The partitions of an earlier stage that ends in [`Sink::Partition`], each for itself: the
    /// first step probes another such stage, and a row meets the rows of its own partition.
    Partitions(usize),
    /// The outputs of several earlier stages, one after the other, each while that stage runs. Their columns are of the
    /// same types, and no other stage reads them.
    Union(Vec<usize>),
}

impl Input {
    /// The number of the table or batches, if the rows are handed over with the program.
    pub fn table(&self) -> Option<usize> {
        match self {
            Self::Table(number) | Self::Batches(number) => Some(*number),
            Self::Values(_) | Self::Stage(_) | Self::Partitions(_) | Self::Union(_) => None,
        }
    }

    /// The stages whose results are read.
    pub fn stages(&self) -> &[usize] {
        match self {
            Self::Stage(stage) | Self::Partitions(stage) => std::slice::from_ref(stage),
            Self::Union(stages) => stages,
            Self::Table(_) | Self::Batches(_) | Self::Values(_) => &[],
        }
    }

    fn stages_mut(&mut self) -> &mut [usize] {
        match self {
            Self::Stage(stage) | Self::Partitions(stage) => std::slice::from_mut(stage),
            Self::Union(stages) => stages,
            Self::Table(_) | Self::Batches(_) | Self::Values(_) => &mut [],
        }
    }

    /// Gives the stages that are read other numbers.
    pub(crate) fn renumber(&mut self, number: &impl Fn(usize) -> usize) {
        self.stages_mut().iter_mut().for_each(|stage| *stage = number(*stage));
    }

    /// Whether rows cannot be read a second time.
    pub fn comes_once(&self) -> bool {
        matches!(self, Self::Batches(_) | Self::Stage(_) | Self::Union(_))
    }
}

/// The streamed rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Where they come from.
    pub input: Input,
    /// The table's name for EXPLAIN and errors.
    pub table: String,
    /// The columns that the pipeline reads, in register order.
    pub columns: Vec<Field>,
    /// For each of them, its position among the input's columns.
    pub ordinals: Vec<usize>,
}

impl Source {
    /// All columns of what a stage puts out.
    pub fn of_stage(input: Input, table: &str, columns: Vec<Field>) -> Self {
        let ordinals = (0..columns.len()).collect();
        Self { input, table: table.to_string(), columns, ordinals }
    }

    /// The registers of all columns, under their names.
    pub fn all_columns(&self) -> Vec<NamedExpr> {
        let column = |(index, field): (usize, &Field)| NamedExpr {
            name: field.name.clone(),
            expr: self.register(index),
        };
        self.columns.iter().enumerate().map(column).collect()
    }

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

/// A lookup in a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The stage that makes the build.
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
    /// Payload columns of the build that are appended, by their index in the payload of its
    /// [`Sink::Build`].
    pub payload: Vec<usize>,
    /// Whether it may be left out: it only drops rows early that a later step drops anyway. Only a semi
    /// probe can be optional.
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
    /// `NOT IN`: as `Anti`, but a NULL key, or any NULL in the build, drops the row. It has one key and
    /// no residual.
    NullAwareAnti,
    /// Every row once, with a Bool register, never NULL, that tells whether there is a match.
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
        /// [`GROUPING_SET`], the position of a group's set. None: all keys. A
        /// set without keys has a group for no rows if `output` says so.
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
    /// The rows with window functions beside them, in no order.
    Windows(Windows),
    /// Rows become a build that other stages probe.
    Build {
        /// Keys.
        keys: Vec<NamedExpr>,
        /// Payload columns.
        payload: Vec<NamedExpr>,
    },
    /// Rows are divided by the hashes of their keys: rows of equal keys are in one partition, the same
    /// one in every stage that divides by keys of these types.
    Partition {
        /// Keys.
        keys: Vec<NamedExpr>,
        /// Columns beside them.
        payload: Vec<NamedExpr>,
    },
}

impl Sink {
    /// The results of a grouped aggregation.
    pub fn aggregate(keys: Vec<NamedExpr>, calls: Vec<AggregateCall>) -> Self {
        let (sets, output) = (Vec::new(), AggregateOutput::Final);
        Self::Aggregate { keys, sets, calls, output }
    }

    /// The columns of what comes of it; `None` for partial states, whose layout the processors
    /// define.
    pub fn output(&self) -> Option<Vec<Field>> {
        match self {
            Self::Aggregate { output: AggregateOutput::Partial, .. } => None,
            Self::Aggregate { keys, sets, calls, .. } => {
                let key = |key: &NamedExpr| {
                    let nullable = key.expr.nullable() || !sets.is_empty();
                    Field { nullable, ..key.field() }
                };
                let set = Field::new(GROUPING_SET, DataType::Int32, false);
                let call = |call: &AggregateCall| {
                    let nullable = call.function != AggregateFunction::Count;
                    Field::new(&call.name, call.result.clone(), nullable)
                };
                let set = (!sets.is_empty()).then_some(set);
                Some(keys.iter().map(key).chain(set).chain(calls.iter().map(call)).collect())
            }
            Self::Rows { columns, .. } | Self::Sorted { columns, .. } => {
                Some(columns.iter().map(NamedExpr::field).collect())
            }
            Self::Windows(windows) => Some(windows.output()),
            Self::Build { keys, payload } | Self::Partition { keys, payload } => {
                Some(keys.iter().chain(payload).map(NamedExpr::field).collect())
            }
        }
    }

    /// The groups of no rows, as rows of constants: keys, then calls. The last key is the number of the set.
    pub fn rows_of_none(&self) -> Vec<Vec<Scalar>> {
        let Self::Aggregate { keys, calls, output: AggregateOutput::OfNone(of_none), .. } = self
        else {
            return Vec::new();
        };
        let row = |&set: &usize| {
            let (set_key, others) = keys.split_last()?;
            let number = Scalar::int(set_key.expr.data_type(), set as i128);
            let nulls = others.iter().map(|key| Scalar::null(key.expr.data_type()));
            let of_calls =
                calls.iter().enumerate().map(|(at, call)| match of_none.counts.contains(&at) {
                    true => Scalar::int(call.result.clone(), 0),
                    false => Scalar::null(call.result.clone()),
                });
            Some(nulls.chain([number]).chain(of_calls).collect())
        };
        of_none.sets.iter().filter_map(row).collect()
    }

    /// Of rows no more than `rows` are wanted; groups and builds stay whole.
    pub fn set_limit(&mut self, rows: Option<u64>) {
        if let Self::Rows { limit, .. } | Self::Sorted { limit, .. } = self {
            *limit = rows;
        }
    }
}

/// The expressions of a pipeline that is borrowed, all by reference, or all mutably: `$iter` says which.
macro_rules! exprs {
    ($pipeline:expr, $sink:expr, $iter:ident) => {{
        let mut exprs = Vec::new();
        for step in $pipeline.steps.$iter() {
            match step {
                Step::Filter(expr) | Step::Compute(NamedExpr { expr, .. }) => exprs.push(expr),
                Step::Probe(Probe { keys, residual, .. }) => {
                    exprs.extend(keys.$iter().chain(residual.$iter()));
                }
            }
        }
        match $sink {
            Sink::Aggregate { keys, calls, .. } => {
                exprs.extend(keys.$iter().map(|NamedExpr { expr, .. }| expr));
                exprs.extend(calls.$iter().flat_map(
                    |AggregateCall { argument, filter, .. }| argument.$iter().chain(filter.$iter()),
                ));
            }
            Sink::Rows { columns, .. }
            | Sink::Sorted { columns, .. }
            | Sink::Windows(Windows { columns, .. }) => {
                exprs.extend(columns.$iter().map(|NamedExpr { expr, .. }| expr));
            }
            Sink::Build { keys, payload } | Sink::Partition { keys, payload } => {
                let named = keys.$iter().chain(payload.$iter());
                exprs.extend(named.map(|NamedExpr { expr, .. }| expr));
            }
        }
        exprs
    }};
}

impl Pipeline {
    /// Its probes, in order.
    pub fn probes(&self) -> impl Iterator<Item = &Probe> {
        self.steps.iter().filter_map(|step| match step {
            Step::Probe(probe) => Some(probe),
            Step::Filter(_) | Step::Compute(_) => None,
        })
    }

    /// Keys and payload of the build that it makes, or whose rows it divides.
    pub fn build_columns(&self) -> Option<(&[NamedExpr], &[NamedExpr])> {
        match &self.sink {
            Sink::Build { keys, payload } | Sink::Partition { keys, payload } => {
                Some((keys, payload))
            }
            Sink::Aggregate { .. } | Sink::Rows { .. } | Sink::Sorted { .. } | Sink::Windows(_) => {
                None
            }
        }
    }

    /// The same with NULL in place of each constant, to tell pipelines apart that differ in more.
    pub fn without_constants(&self) -> Self {
        let mut pipeline = self.clone();
        for expr in pipeline.exprs_mut() {
            expr.replace(&mut |expr| match expr {
                Expr::Literal(constant) => {
                    Some(Expr::Literal(Scalar::null(constant.data_type.clone())))
                }
                _ => None,
            });
        }
        pipeline
    }

    /// The functions of users that it calls, with whether each call has a twin.
    pub fn cuda_functions(&self) -> Vec<(&CudaFunction, bool)> {
        let mut found = Vec::new();
        for expr in self.exprs() {
            expr.visit(&mut |expr| {
                if let Expr::Cuda { function, twin, .. } = expr {
                    found.push((function.as_ref(), twin.is_some()));
                }
            });
        }
        found
    }

    /// Every expression.
    pub(crate) fn exprs(&self) -> Vec<&Expr> {
        exprs!(self, &self.sink, iter)
    }

    /// Every expression, to be changed.
    pub(crate) fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        exprs!(self, &mut self.sink, iter_mut)
    }
}
