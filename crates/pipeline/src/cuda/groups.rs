//! Grouping by hash on the device: how keys lie, how large the table is, and the way back.

use arrow_array::{ArrayRef, RecordBatch};

use crate::bound::{Bound, BoundKey, BoundSink, Repr};
use crate::column::vector_array;
use crate::cpu::vector::Vector;
use crate::cuda::decode::data_of;
use crate::cuda::tables::repr_bytes;
use crate::error::{ExecError, WhyNot};
use crate::state::{AccumulatorState, finish_calls, output_batch};

/// Device memory that a group table with its accumulators may take.
const TABLE_BYTES_MAX: u64 = 2 << 30;

/// Group numbers are 32 bits, of which the last few mean something else.
const GROUPS_MAX: u64 = 1 << 30;

/// One key within the words of a group's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupKeyPart {
    /// First byte of the value.
    pub at: usize,
    /// Bytes of the value.
    pub bytes: usize,
    /// The byte that is 1 where the key is NULL, if it can be; the value is 0 then.
    pub null_at: Option<usize>,
}

/// How the keys of hashed groups lie: side by side in one or two 64-bit words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTableLayout {
    /// One per key.
    pub parts: Vec<GroupKeyPart>,
    /// 64-bit words of a group's key, 1 or 2.
    pub words: usize,
    /// Most groups that there can be.
    pub capacity: u64,
}

impl GroupTableLayout {
    /// The table of an aggregation whose streamed rows number at most `rows_max` at the sink,
    /// each group's accumulators taking `accumulator_bytes`.
    ///
    /// # Errors
    /// Keys that do not fit, or too many possible groups.
    pub(super) fn of(
        keys: &[BoundKey],
        rows_max: u64,
        accumulator_bytes: u64,
    ) -> Result<Self, WhyNot> {
        let mut at = 0;
        let mut parts = Vec::with_capacity(keys.len());
        for key in keys {
            let bytes = repr_bytes(&key.expr.repr).map_err(|_| {
                let name = &key.field.name;
                WhyNot::new(format!("hashed groups by {name}, which is a float or plain text"))
            })?;
            let null_at = key.expr.nullable.then_some(at + bytes);
            parts.push(GroupKeyPart { at, bytes, null_at });
            at += bytes + usize::from(key.expr.nullable);
        }
        if at > 16 {
            return Err(WhyNot::new(format!(
                "the keys of hashed groups take {at} bytes, the CUDA processor has 16"
            )));
        }
        let words = if at <= 8 { 1 } else { 2 };
        let possible = keys.iter().try_fold(1u64, |product, key| {
            let range = key.expr.range.filter(|_| key.expr.repr.is_integer_like())?;
            let values = u64::try_from(i128::from(range.max) - i128::from(range.min) + 1).ok()?;
            product.checked_mul(values.checked_add(u64::from(key.expr.nullable))?)
        });
        let capacity = possible.unwrap_or(u64::MAX).min(rows_max).max(1);
        // At most four slots a group.
        let bytes = capacity.saturating_mul(16 + words as u64 * 8 + accumulator_bytes);
        if capacity > GROUPS_MAX || bytes > TABLE_BYTES_MAX {
            return Err(WhyNot::new(format!(
                "up to {capacity} groups would take {bytes} bytes of device memory, \
                 {TABLE_BYTES_MAX} may be taken"
            )));
        }
        Ok(Self { parts, words, capacity })
    }

    /// Slots of the table.
    pub fn slots(&self) -> u64 {
        (self.capacity * 2).next_power_of_two()
    }
}

/// Hashed groups as the device leaves them as a batch: keys, then calls. `keys` has `words`
/// 64-bit words a group, the states as many groups.
///
/// # Errors
/// [`ExecError`] for totals that overflow, or a code that lies outside its dictionary.
pub fn hashed_batch(
    bound: &Bound,
    layout: Option<&GroupTableLayout>,
    keys: &[u8],
    states: &[AccumulatorState],
) -> Result<RecordBatch, ExecError> {
    let BoundSink::Aggregate { keys: bound_keys, accumulators, calls, .. } = &bound.sink else {
        return Err(ExecError::Internal("groups of another sink".into()));
    };
    let count = states.first().map_or(0, AccumulatorState::groups);
    let groups: Vec<usize> = (0..count).collect();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(bound_keys.len() + calls.len());
    for (index, key) in bound_keys.iter().enumerate() {
        let part = layout.and_then(|l| Some((l.words * 8, l.parts.get(index)?)));
        let vector = key_vector(&key.expr.repr, part, keys, count)?;
        columns.push(vector_array(&vector, &key.expr.repr, &key.field.data_type, count)?);
    }
    columns.extend(finish_calls(calls, accumulators, states, &groups)?);
    let fields = bound_keys.iter().map(|key| &key.field).chain(calls.iter().map(|c| &c.field));
    output_batch(fields, columns, count)
}

fn key_vector(
    repr: &Repr,
    part: Option<(usize, &GroupKeyPart)>,
    keys: &[u8],
    count: usize,
) -> Result<Vector<'static>, ExecError> {
    let Some((stride, part)) = part else {
        return Ok(Vector::new(data_of(repr, &[], 0)?));
    };
    let entries = || keys.chunks_exact(stride).take(count);
    let values: Vec<u8> =
        entries().flat_map(|key| key[part.at..part.at + part.bytes].iter().copied()).collect();
    let validity = part.null_at.map(|at| entries().map(|key| u8::from(key[at] == 0)).collect());
    Ok(Vector::with_validity(data_of(repr, &values, count)?, validity))
}
