//! What a worker gathers.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use headrace_columns::column::Column;
use headrace_columns::convert::decode;
use headrace_columns::repr::Repr;
use headrace_columns::vector::Vector;
use headrace_flow::Verdict;
use headrace_io::try_map;
use headrace_ir::Field;

use crate::ExecError;
use crate::bound::{Bound, BoundExpr, BoundSink, Grouping};
use crate::build::{BuildColumn, BuildOptions, BuildTable, threads_for};
use crate::cpu::WorkerOptions;
use crate::cpu::aggregate;
use crate::cpu::context::Context;
use crate::cpu::hash_sink::HashSink;
use crate::cpu::rows::{self, append, cut_batch, empty, is_full, last_batch};
use crate::cpu::sorted::SortedRows;
use crate::state::{AccumulatorState, DenseState};

/// What is done between two portions of pairs, of which a batch may make any number, and between pieces of rows with long
/// texts: rows that are put out leave the sink. Whether more are wanted.
pub type Between<'s> = &'s mut dyn FnMut(&mut SinkState) -> Result<Verdict, ExecError>;

/// State of one worker's sink.
pub enum SinkState {
    /// Dense groups.
    Dense(DenseState),
    /// Hashed groups, which account for themselves.
    Hash(Box<HashSink>),
    /// Rows on their way out.
    Rows {
        /// Rows not yet in a batch.
        columns: Vec<Column>,
        /// Finished batches.
        batches: Vec<RecordBatch>,
    },
    /// Rows that may be among the first of an order.
    Sorted(SortedRows),
    /// Rows of a build: keys, then payload.
    Build {
        /// The columns.
        columns: Vec<Column>,
    },
}

impl SinkState {
    /// An empty state.
    pub fn new(bound: &Bound, options: &WorkerOptions) -> Result<Self, ExecError> {
        Ok(match &bound.sink {
            BoundSink::Aggregate { grouping: Grouping::Dense { groups }, accumulators, .. } => {
                Self::Dense(DenseState::new(accumulators, *groups as usize))
            }
            BoundSink::Aggregate { .. } => {
                Self::Hash(Box::new(HashSink::new(&options.hash_level(bound)?)))
            }
            BoundSink::Rows { columns, .. } => {
                Self::Rows { columns: empty(columns.iter())?, batches: Vec::new() }
            }
            BoundSink::Sorted { columns, .. } => {
                Self::Sorted(SortedRows::new(columns, bound, options)?)
            }
            BoundSink::Build { keys, payload } => {
                Self::Build { columns: empty(keys.iter().chain(payload))? }
            }
        })
    }

    /// Host bytes, but for what accounts for itself.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Dense(state) => state.accumulators.iter().map(AccumulatorState::bytes).sum(),
            Self::Hash(_) => 0,
            Self::Rows { columns, batches } => {
                columns.iter().map(Column::bytes).sum::<u64>()
                    + batches.iter().map(|b| b.get_array_memory_size() as u64).sum::<u64>()
            }
            Self::Sorted(rows) => rows.bytes(),
            Self::Build { columns } => columns.iter().map(Column::bytes).sum(),
        }
    }

    /// Whether rows are put out with their texts.
    pub fn copies_texts(&self) -> bool {
        match self {
            Self::Rows { columns, .. } => columns.iter().any(Column::is_text),
            _ => false,
        }
    }

    /// Drops rows that the sink has no use for, before the steps.
    pub fn drop_early<'a>(
        &self,
        sink: &'a BoundSink,
        context: &mut Context<'a>,
    ) -> Result<(), ExecError> {
        match (self, sink) {
            (Self::Sorted(rows), BoundSink::Sorted { columns, order, .. }) => {
                rows.drop_early(context, columns, order)
            }
            _ => Ok(()),
        }
    }

    /// Takes in the current rows. Of long texts they are put out in pieces: `between` two of them, whoever takes the rows has
    /// those so far. Whether more rows are wanted.
    pub fn consume<'a>(
        &mut self,
        sink: &'a BoundSink,
        context: &mut Context<'a>,
        options: &WorkerOptions,
        between: Between<'_>,
    ) -> Result<Verdict, ExecError> {
        if let BoundSink::Rows { columns, limit } = sink {
            limit_rows(context, *limit, &options.emitted_rows);
            let (vectors, rows) = (rows::vectors(columns, context)?, context.rows());
            let piece_rows = rows::batch_rows(columns, &vectors, rows);
            let is_divided = piece_rows < rows;
            for start in (0..rows).step_by(piece_rows) {
                let piece = start..rows.min(start + piece_rows);
                self.put_out(&vectors, piece, columns, is_divided)?;
                if start + piece_rows < rows && between(self)? == Verdict::Enough {
                    return Ok(Verdict::Enough);
                }
            }
            return Ok(Verdict::Continue);
        }
        self.fold(sink, context).map(|()| Verdict::Continue)
    }

    /// Adds some of the rows that these vectors hold. `is_batch`: they are a batch, with those before.
    fn put_out(
        &mut self,
        vectors: &[Rc<Vector<'_>>],
        piece: Range<usize>,
        outputs: &[(Field, BoundExpr)],
        is_batch: bool,
    ) -> Result<(), ExecError> {
        let Self::Rows { columns, batches } = self else {
            return Err(ExecError::Internal("a worker of another sink".into()));
        };
        rows::push(columns, vectors, piece)?;
        if is_batch || is_full(columns) {
            batches.push(cut_batch(columns, outputs)?);
        }
        Ok(())
    }

    /// Takes in the current rows, but for those that are put out.
    fn fold<'a>(
        &mut self,
        sink: &'a BoundSink,
        context: &mut Context<'a>,
    ) -> Result<(), ExecError> {
        match (self, sink) {
            (Self::Dense(state), BoundSink::Aggregate { keys, accumulators, .. }) => {
                let groups = aggregate::dense_groups(context, keys)?;
                aggregate::update(context, accumulators, &mut state.accumulators, &groups)
            }
            (Self::Hash(groups), BoundSink::Aggregate { keys, accumulators, .. }) => {
                groups.consume(context, keys, accumulators)
            }
            (Self::Sorted(rows), BoundSink::Sorted { columns, order, limit }) => {
                rows.consume(context, columns, order, *limit)
            }
            (Self::Build { columns }, BoundSink::Build { keys, payload }) => {
                append(columns, keys.iter().chain(payload), context)
            }
            _ => Err(ExecError::Internal("a worker of another sink".into())),
        }
    }

    /// Makes a batch of the rows that there are, however few; `false` if they are none to be
    /// put out.
    pub fn cut_rows(&mut self, sink: &BoundSink) -> Result<bool, ExecError> {
        let (Self::Rows { columns, batches }, BoundSink::Rows { columns: outputs, .. }) =
            (self, sink)
        else {
            return Ok(false);
        };
        batches.extend(last_batch(columns, outputs)?);
        Ok(true)
    }

    /// Folds another worker's state into this one.
    pub fn merge(&mut self, other: SinkState, sink: &BoundSink) -> Result<(), ExecError> {
        match (self, other, sink) {
            (Self::Dense(a), Self::Dense(b), BoundSink::Aggregate { accumulators, .. }) => {
                a.merge(&b, accumulators)
            }
            (
                Self::Rows { batches, .. },
                Self::Rows { mut columns, batches: others },
                BoundSink::Rows { columns: outputs, .. },
            ) => {
                batches.extend(others);
                batches.extend(last_batch(&mut columns, outputs)?);
                Ok(())
            }
            (Self::Sorted(a), Self::Sorted(b), BoundSink::Sorted { order, limit, .. }) => {
                a.merge(&b, order, *limit)
            }
            _ => Err(ExecError::Internal("workers of different sinks".into())),
        }
    }
}

/// Keeps only as many of the current rows as the query still wants.
fn limit_rows(context: &mut Context<'_>, limit: Option<u64>, emitted: &AtomicU64) {
    let Some(limit) = limit else { return };
    let rows = context.rows() as u64;
    let before = emitted.fetch_add(rows, Ordering::Relaxed);
    let wanted = limit.saturating_sub(before).min(rows);
    if wanted < rows {
        context.push((0..wanted as u32).collect());
    }
}

/// The build of the rows that workers gathered. Keys that are codes become text again: another
/// pipeline's codes are of another dictionary.
pub fn finish_build(
    name: &str,
    workers: &[Vec<Column>],
    keys: &[(Field, BoundExpr)],
    payload: &[(Field, BoundExpr)],
    options: BuildOptions,
) -> Result<BuildTable, ExecError> {
    let rows = workers.iter().filter_map(|columns| columns.first()).map(Column::rows).sum();
    // `None` where the key is no code.
    let texts = try_map(workers.len(), (1, threads_for(rows, options.threads)), |worker| {
        let columns = &workers[worker][..keys.len()];
        columns.iter().map(key_texts).collect::<Result<Vec<_>, _>>()
    })?;
    let outputs = keys.iter().chain(payload).enumerate();
    let mut columns: Vec<BuildColumn<'_>> = outputs
        .map(|(place, (field, expr))| {
            let parts = workers.iter().zip(&texts).map(|(own, texts)| {
                texts.get(place).and_then(Option::as_ref).unwrap_or(&own[place])
            });
            let parts: Vec<&Column> = parts.collect();
            let repr = match (parts.first(), &expr.repr) {
                (Some(part), _) => part.repr(),
                (None, Repr::Code(_)) if place < keys.len() => &Repr::Str,
                (None, repr) => repr,
            };
            let repr = repr.clone();
            BuildColumn { field: field.clone(), repr, parts }
        })
        .collect();
    let payload = columns.split_off(keys.len());
    BuildTable::assemble(name, columns, payload, options)
}

/// A column of codes as text.
fn key_texts(column: &Column) -> Result<Option<Column>, ExecError> {
    let Repr::Code(dictionary) = column.repr() else { return Ok(None) };
    let texts = decode(&column.vector(), dictionary)?;
    Ok(Some(Column::of(Repr::Str, &texts, column.rows())?))
}
