//! Rows that may be among the first of an order, as many as are wanted and as many again.
//!
//! A row that does not come before the last of those that are wanted is dropped before its other columns are
//! read, so that soon most rows cost no more than their order's keys. Where the first of these is a column of the table and
//! nothing can fail, that is asked before any other step.
//!
//! This pre-filter uses the first key alone, and only where nothing can fail, because which rows fail must not
//! depend on which chunk came first. Workers share the last wanted key (`format::FirstBy`). The feed delivers
//! batches best first by it and leaves out those that statistics place behind it.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicI64};

use arrow_array::RecordBatch;
use headrace_columns::ColumnError;
use headrace_columns::column::Column;
use headrace_columns::compare::text_order;
use headrace_columns::convert::{from_i64, integers};
use headrace_columns::key::canonical_f64;
use headrace_columns::repr::Repr;
use headrace_columns::simd::positions;
use headrace_columns::vector::{Data, Element, Vector};
use headrace_ir::{Field, OrderKey, Register};

use crate::ExecError;
use crate::bound::{Bound, BoundExpr, BoundKind, BoundSink, BoundStep};
use crate::cpu::WorkerOptions;
use crate::cpu::context::Context;
use crate::cpu::eval::eval;
use crate::cpu::rows::{OUTPUT_ROWS, append, cut_batch, empty};

/// Rows that are gathered beyond those that are wanted, at least, before they are looked through.
const SPARE_ROWS: usize = 4096;

/// The same of rows that another processor made.
const SPARE_ROWS_TAKEN: usize = 64;

/// The rows of one worker.
pub struct SortedRows {
    columns: Vec<Column>,
    /// Whether rows may be dropped before the steps.
    is_early: bool,
    /// What other workers know, too.
    last_wanted: Option<Arc<AtomicI64>>,
    /// The last of the rows that are wanted so far, its keys alone, once there are as many.
    last: Option<Vec<Column>>,
}

impl SortedRows {
    /// No rows, of these columns.
    pub fn new(
        columns: &[(Field, BoundExpr)],
        bound: &Bound,
        options: &WorkerOptions,
    ) -> Result<Self, ExecError> {
        let is_early = bound.first_by().is_some();
        let columns = empty(columns.iter())?;
        Ok(Self { columns, is_early, last_wanted: options.last_wanted.clone(), last: None })
    }

    /// Host bytes, and those that sorting takes beside them.
    pub fn bytes(&self) -> u64 {
        2 * self.columns.iter().map(Column::bytes).sum::<u64>()
    }

    fn rows(&self) -> usize {
        self.columns.first().map_or(0, Column::rows)
    }

    /// Goes on with the rows that by the first of the order's keys may be among those that are wanted.
    pub(crate) fn drop_early<'a>(
        &self,
        context: &mut Context<'a>,
        columns: &'a [(Field, BoundExpr)],
        order: &[OrderKey],
    ) -> Result<(), ExecError> {
        let (true, Some(key)) = (self.is_early, order.first()) else { return Ok(()) };
        let (_, expr) = &columns[key.column];
        let Some(last) = self.last_known(&expr.repr, key)? else { return Ok(()) };
        let rows = context.rows();
        let vector = eval(context, expr)?;
        let mask = may_precede(&vector.spelled(rows), &last, key);
        let kept = positions(&mask);
        if kept.len() < rows {
            context.push(kept);
        }
        Ok(())
    }

    /// The first key of the last row that is wanted, by what anybody knows.
    fn last_known(&self, repr: &Repr, key: &OrderKey) -> Result<Option<Vector<'_>>, ExecError> {
        let none = if key.descending { i64::MIN } else { i64::MAX };
        let shared = self.last_wanted.as_ref().map(|last| last.load(atomic::Ordering::Relaxed));
        if let Some(last) = shared.filter(|last| *last != none) {
            let data = match repr {
                Repr::I128 => Data::I128(vec![last.into()].into()),
                _ => from_i64(repr, std::iter::once(last))?,
            };
            return Ok(Some(Vector::new(data)));
        }
        let own = self.last.as_ref().map(|last| last[0].vector());
        Ok(own.filter(|last| last.is_valid(0)))
    }

    /// Tells the other workers what this one knows.
    fn tell(&self, key: &OrderKey) {
        let (Some(shared), Some(last)) = (&self.last_wanted, &self.last) else { return };
        let last = last[0].vector();
        let value = match &last.data {
            Data::I128(values) => i64::try_from(values[0]).ok(),
            data => integers(data).map(|values| values[0]),
        };
        if let Some(value) = value.filter(|_| last.is_valid(0)) {
            match key.descending {
                true => shared.fetch_max(value, atomic::Ordering::Relaxed),
                false => shared.fetch_min(value, atomic::Ordering::Relaxed),
            };
        }
    }

    /// Takes in the current rows.
    pub(crate) fn consume<'a>(
        &mut self,
        context: &mut Context<'a>,
        columns: &'a [(Field, BoundExpr)],
        order: &[OrderKey],
        limit: Option<u64>,
    ) -> Result<(), ExecError> {
        if let Some(last) = &self.last {
            drop_later(context, columns, order, last)?;
        }
        append(&mut self.columns, columns.iter(), context)?;
        self.shrink(order, limit, SPARE_ROWS)
    }

    /// Takes in rows that another processor made, column by column.
    pub fn take_in(
        &mut self,
        rows: &[Vector<'_>],
        order: &[OrderKey],
        limit: Option<u64>,
    ) -> Result<(), ExecError> {
        let count = rows.first().map_or(0, |column| column.data.count());
        let kept = self.last.as_ref().map(|last| {
            let keys: Vec<&Vector<'_>> = order.iter().map(|key| &rows[key.column]).collect();
            preceding(order, &keys, last)
        });
        for (column, vector) in self.columns.iter_mut().zip(rows) {
            match &kept {
                Some(kept) if kept.len() < count => column.push(&vector.take(kept), kept.len())?,
                _ => column.push(vector, count)?,
            }
        }
        // Each row came over the link. The sooner the last wanted row is known, the fewer rows the device sends.
        self.shrink(order, limit, SPARE_ROWS_TAKEN)
    }

    /// The first key of the last row that is wanted so far, as a word that orders as the key does: a float's bits, a text's first eight
    /// bytes. `None`: not as many rows have come, or the key is NULL or has no such word.
    pub fn last_word(&self) -> Option<i64> {
        let last = self.last.as_ref()?.first()?.vector();
        if !last.is_valid(0) {
            return None;
        }
        match &last.data {
            Data::Str(texts) => Some(first_bytes(texts[0])),
            Data::F32(floats) => Some(float_order(floats[0].into())),
            Data::F64(floats) => Some(float_order(floats[0])),
            data => integers(data).map(|values| values[0]),
        }
    }

    /// Takes in another worker's rows.
    pub(crate) fn merge(
        &mut self,
        other: &Self,
        order: &[OrderKey],
        limit: Option<u64>,
    ) -> Result<(), ExecError> {
        let pairs = self.columns.iter_mut().zip(&other.columns);
        pairs.into_iter().try_for_each(|(own, theirs)| own.append(theirs))?;
        self.shrink(order, limit, SPARE_ROWS)
    }

    /// Drops what is not wanted, once it is as much as what is.
    fn shrink(
        &mut self,
        order: &[OrderKey],
        limit: Option<u64>,
        spare_rows: usize,
    ) -> Result<(), ExecError> {
        let wanted = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let rows = self.rows();
        if rows < wanted.saturating_add(wanted.max(spare_rows)) {
            return Ok(());
        }
        let mut numbers = numbers(rows)?;
        if wanted > 0 {
            let keys = self.keys(order);
            numbers.select_nth_unstable_by(wanted - 1, |a, b| {
                compare(order, (&keys, *a), (&keys, *b))
            });
        }
        numbers.truncate(wanted);
        self.columns = taken(&self.columns, &numbers)?;
        if let Some(last) = rows_before(wanted) {
            let keys: Vec<&Column> = order.iter().map(|key| &self.columns[key.column]).collect();
            let last = keys.into_iter().map(|column| column.take(&[last]));
            self.last = Some(last.collect::<Result<_, _>>()?);
            if let (true, Some(key)) = (self.is_early, order.first()) {
                self.tell(key);
            }
        }
        Ok(())
    }

    /// The rows that are wanted, in their order.
    pub fn finish(
        self,
        columns: &[(Field, BoundExpr)],
        order: &[OrderKey],
        limit: Option<u64>,
    ) -> Result<Vec<RecordBatch>, ExecError> {
        let mut numbers = numbers(self.rows())?;
        let keys = self.keys(order);
        numbers.sort_unstable_by(|a, b| compare(order, (&keys, *a), (&keys, *b)));
        if let Some(wanted) = limit.and_then(|limit| usize::try_from(limit).ok()) {
            numbers.truncate(wanted);
        }
        let portions = numbers.chunks(OUTPUT_ROWS);
        let batches = portions.map(|rows| cut_batch(&mut taken(&self.columns, rows)?, columns));
        Ok(batches.collect::<Result<_, ColumnError>>()?)
    }

    fn keys(&self, order: &[OrderKey]) -> Vec<Vector<'_>> {
        order.iter().map(|key| self.columns[key.column].vector()).collect()
    }
}

impl Bound {
    /// The source register by which rows are ordered first, and how, if rows may be dropped by it before the steps: then none
    /// of these, nor what is put out, can fail for a row.
    pub fn first_by(&self) -> Option<(Register, OrderKey)> {
        let BoundSink::Sorted { columns, order, limit: Some(_) } = &self.sink else { return None };
        let key = order.first()?;
        let BoundKind::Register(register) = columns.get(key.column)?.1.kind else { return None };
        let can_fail = |step: &BoundStep| match step {
            BoundStep::Filter { expr, .. } | BoundStep::Compute { expr, .. } => expr.can_fail(),
            BoundStep::Probe(probe) => {
                probe.keys.iter().chain(&probe.residual).any(BoundExpr::can_fail)
            }
        };
        let may_fail =
            self.steps.iter().any(can_fail) || columns.iter().any(|(_, expr)| expr.can_fail());
        (register < self.source_registers && !may_fail).then_some((register, *key))
    }
}

/// A float as a number that orders as floats do, NaN above all others.
pub(crate) fn float_order(value: f64) -> i64 {
    let bits = canonical_f64(value).to_bits();
    (if bits >> 63 == 1 { !bits ^ 1 << 63 } else { bits }).cast_signed()
}

/// The first eight bytes of a text, zeros behind its end, as a number that orders as they do.
pub(crate) fn first_bytes(text: &str) -> i64 {
    let mut first = [0; 8];
    let bytes = text.len().min(8);
    first[..bytes].copy_from_slice(&text.as_bytes()[..bytes]);
    (u64::from_be_bytes(first) ^ 1 << 63) as i64
}

/// One byte a row, 0 where it comes after a row whose key is not NULL.
fn may_precede(keys: &Vector<'_>, last: &Vector<'_>, key: &OrderKey) -> Vec<u8> {
    macro_rules! by_element {
        ($($variant:ident),*) => {
            match (&keys.data, &last.data) {
                $((Data::$variant(keys), Data::$variant(last)) => {
                    let last = last[0];
                    match key.descending {
                        true => keys.iter().map(|key| u8::from(!key.less(last))).collect(),
                        false => keys.iter().map(|key| u8::from(!last.less(*key))).collect(),
                    }
                })*
                // Bool and texts: what is dropped later is dropped then.
                (data, _) => vec![1; data.count()],
            }
        };
    }
    let mut mask: Vec<u8> = by_element!(I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, I128);
    if let Some(valid) = &keys.validity {
        let null = u8::from(key.nulls_first);
        mask.iter_mut().zip(valid.iter()).for_each(|(m, &v)| *m = if v == 0 { null } else { *m });
    }
    mask
}

/// The number of the last of some rows, if there is one.
fn rows_before(rows: usize) -> Option<u32> {
    rows.checked_sub(1).and_then(|last| u32::try_from(last).ok())
}

fn numbers(rows: usize) -> Result<Vec<u32>, ExecError> {
    let rows = u32::try_from(rows);
    let rows = rows.map_err(|_| ExecError::Internal("4 billion rows to be sorted".into()))?;
    Ok((0..rows).collect())
}

fn taken(columns: &[Column], rows: &[u32]) -> Result<Vec<Column>, ColumnError> {
    columns.iter().map(|column| column.take(rows)).collect()
}

/// Goes on with the current rows that come before a row.
fn drop_later<'a>(
    context: &mut Context<'a>,
    columns: &'a [(Field, BoundExpr)],
    order: &[OrderKey],
    last: &[Column],
) -> Result<(), ExecError> {
    let rows = context.rows();
    let mut keys = Vec::new();
    for key in order {
        let vector = eval(context, &columns[key.column].1)?;
        keys.push(vector.spelled(rows).into_owned());
    }
    let kept = preceding(order, &keys, last);
    if kept.len() < rows {
        context.push(kept);
    }
    Ok(())
}

/// The rows that come before another, by the keys of both; those first that the first key alone leaves.
fn preceding<'a>(
    order: &[OrderKey],
    keys: &[impl Borrow<Vector<'a>>],
    last: &[Column],
) -> Vec<u32> {
    let last: Vec<Vector<'_>> = last.iter().map(Column::vector).collect();
    let (Some(first_keys), Some(first), Some(key)) = (keys.first(), last.first(), order.first())
    else {
        return Vec::new();
    };
    let first_keys: &Vector<'_> = first_keys.borrow();
    let mut kept = match first.is_valid(0) {
        true => positions(&may_precede(first_keys, first, key)),
        false => (0..first_keys.data.count() as u32).collect(),
    };
    kept.retain(|row| compare(order, (keys, *row), (&last, 0)).is_lt());
    kept
}

/// Which of two rows comes first, each given by its keys' columns and its number there.
pub(crate) fn compare<'a, 'b>(
    order: &[OrderKey],
    (left, l): (&[impl Borrow<Vector<'a>>], u32),
    (right, r): (&[impl Borrow<Vector<'b>>], u32),
) -> Ordering {
    let (l, r) = (l as usize, r as usize);
    let mut found = order.iter().zip(left.iter().zip(right)).map(|(key, (left, right))| {
        let (left, right): (&Vector<'_>, &Vector<'_>) = (left.borrow(), right.borrow());
        match (left.is_valid(l), right.is_valid(r)) {
            (true, true) if key.descending => values(&right.data, r, &left.data, l),
            (true, true) => values(&left.data, l, &right.data, r),
            (false, false) => Ordering::Equal,
            (left, _) if left == key.nulls_first => Ordering::Greater,
            _ => Ordering::Less,
        }
    });
    found.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

macro_rules! ordered {
    ($left:expr, $l:expr, $right:expr, $r:expr, $($variant:ident),*) => {
        match ($left, $right) {
            $((Data::$variant(left), Data::$variant(right)) => elements(left[$l], right[$r]),)*
            (Data::Bool(left), Data::Bool(right)) => left[$l].cmp(&right[$r]),
            (Data::Str(left), Data::Str(right)) => text_order(left[$l], right[$r]),
            (Data::Bytes(left), Data::Bytes(right)) => left[$l].cmp(right[$r]),
            _ => unreachable!("a key's columns are of one expression"),
        }
    };
}

fn values(left: &Data<'_>, l: usize, right: &Data<'_>, r: usize) -> Ordering {
    ordered!(left, l, right, r, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, I128)
}

fn elements<T: Element>(left: T, right: T) -> Ordering {
    match left {
        _ if left.less(right) => Ordering::Less,
        _ if left.equal(right) => Ordering::Equal,
        _ => Ordering::Greater,
    }
}
