//! Grouped aggregation: group numbers of rows, and the loops that fold values into states.

use headrace_columns::ColumnError;
use headrace_columns::convert::integers;
use headrace_columns::narrow::Narrow;
use headrace_columns::repr::Repr;
use headrace_columns::select::truth_bytes;
use headrace_columns::simd::positions;
use headrace_columns::spread::Spread;
use headrace_columns::vector::{Data, Element, Shared, Vector, take_values};
use headrace_columns::wide::add_wide;

use crate::ExecError;
use crate::bound::{Accumulator, AccumulatorKind, BoundExpr, BoundKey};
use crate::cpu::context::Context;
use crate::cpu::eval::eval;
use crate::cpu::narrow::{self};
use crate::state::merge::extreme;
use crate::state::{AccumulatorState, Texts};

/// The group of each row.
#[derive(Clone, Debug)]
pub enum Groups {
    /// All rows belong to group 0.
    One,
    /// One number a row, below the number of groups.
    Numbers(Vec<u32>),
}

impl Groups {
    fn take(&self, indices: &[u32]) -> Groups {
        match self {
            Self::One => Self::One,
            Self::Numbers(numbers) => Self::Numbers(take_values(numbers, indices)),
        }
    }
}

/// Group numbers from the digits of dense keys.
pub fn dense_groups<'a>(
    context: &mut Context<'a>,
    keys: &'a [BoundKey],
) -> Result<Groups, ExecError> {
    if keys.is_empty() {
        return Ok(Groups::One);
    }
    let rows = context.rows();
    let mut numbers = vec![0u32; rows];
    for key in keys {
        let vector = eval(context, &key.expr)?;
        add_digits(key, &vector.spelled(rows), &mut numbers)?;
    }
    Ok(Groups::Numbers(numbers))
}

fn add_digits(key: &BoundKey, vector: &Vector<'_>, numbers: &mut [u32]) -> Result<(), ExecError> {
    let internal = |cause: &str| ExecError::Internal(format!("key {}: {cause}", key.field.name));
    let dense = key.dense.ok_or_else(|| internal("no digits"))?;
    let digits = dense.cardinality - u64::from(dense.has_null);
    let stride = dense.stride as u32;
    let mut largest = 0u64;
    let valid = vector.validity.as_deref();
    match (&vector.data, valid) {
        (Data::I32(values), None) => {
            for (number, &value) in numbers.iter_mut().zip(values.iter()) {
                let digit = i64::from(value).wrapping_sub(dense.min) as u64;
                largest = largest.max(digit);
                *number = number.wrapping_add((digit as u32).wrapping_mul(stride));
            }
        }
        (data, valid) => {
            let values = integers(data).ok_or_else(|| internal("not held as an integer"))?;
            for (row, (number, &value)) in numbers.iter_mut().zip(values.iter()).enumerate() {
                let digit = if valid.is_none_or(|valid| valid[row] != 0) {
                    let digit = value.wrapping_sub(dense.min) as u64;
                    largest = largest.max(digit);
                    digit
                } else if dense.has_null {
                    digits
                } else {
                    return Err(internal("a NULL where none was planned"));
                };
                *number = number.wrapping_add((digit as u32).wrapping_mul(stride));
            }
        }
    }
    let any_valid = valid.map_or(!numbers.is_empty(), |valid| valid.contains(&1));
    if any_valid && largest >= digits {
        let cause = "a value lies outside the bounds that its statistics tell".into();
        return Err(ColumnError::Corrupt { column: key.field.name.clone(), cause }.into());
    }
    Ok(())
}

/// Folds the current rows into the states of all accumulators.
pub fn update<'a>(
    context: &mut Context<'a>,
    accumulators: &'a [Accumulator],
    states: &mut [AccumulatorState],
    groups: &Groups,
) -> Result<(), ExecError> {
    let mut batch = Batch { arguments: vec![None; accumulators.len()], tally: None };
    for (index, (accumulator, state)) in accumulators.iter().zip(states).enumerate() {
        match &accumulator.filter {
            None => batch.fold(context, (index, accumulator), state, groups)?,
            Some(filter) => {
                let truth = eval(context, filter)?;
                let kept = positions(&truth_bytes(&truth, context.rows()));
                let groups = groups.take(&kept);
                let depth = context.depth();
                context.push(kept);
                let folded = batch.fold(context, (index, accumulator), state, &groups);
                context.truncate(depth);
                folded?;
            }
        }
    }
    Ok(())
}

/// Values that an accumulator folds.
#[derive(Clone)]
enum Argument<'a> {
    /// Decimals that fit 64 bits.
    Narrow(Narrow<'a>),
    Wide(Shared<'a>),
}

impl<'a> Argument<'a> {
    fn of(
        context: &mut Context<'a>,
        argument: &'a BoundExpr,
        narrow_will_do: bool,
    ) -> Result<Self, ExecError> {
        if narrow_will_do
            && matches!(argument.repr, Repr::I128)
            && let Some(narrow) = narrow::eval(context, argument)?
        {
            return Ok(Self::Narrow(narrow));
        }
        Ok(Self::Wide(eval(context, argument)?))
    }

    fn vector(&self) -> &Vector<'a> {
        match self {
            Self::Narrow(narrow) => &narrow.vector,
            Self::Wide(vector) => vector,
        }
    }
}

/// What the accumulators have in common for the rows of one batch. A sum of values that may be NULL comes with the
/// count of its values: both see the same argument, and where no row is NULL, all such counts are one.
struct Batch<'a> {
    /// By accumulator.
    arguments: Vec<Option<Argument<'a>>>,
    /// Rows of each group, where groups are few.
    tally: Option<Vec<u64>>,
}

impl<'a> Batch<'a> {
    fn argument(
        &mut self,
        context: &mut Context<'a>,
        (index, accumulator): (usize, &'a Accumulator),
    ) -> Result<Option<Argument<'a>>, ExecError> {
        let Some(expr) = &accumulator.argument else { return Ok(None) };
        let argument = match accumulator.same_as.and_then(|earlier| self.arguments[earlier].clone())
        {
            Some(made) => made,
            None => Argument::of(context, expr, !accumulator.kind.is_extreme())?,
        };
        self.arguments[index] = Some(argument.clone());
        Ok(Some(argument))
    }

    fn fold(
        &mut self,
        context: &mut Context<'a>,
        (index, accumulator): (usize, &'a Accumulator),
        state: &mut AccumulatorState,
        groups: &Groups,
    ) -> Result<(), ExecError> {
        let rows = context.rows();
        if rows == 0 {
            return Ok(());
        }
        let argument = self.argument(context, (index, accumulator))?;
        match (state, &argument) {
            (AccumulatorState::Count(counts), argument) => {
                let spelled = argument.as_ref().map(|it| it.vector().spelled(rows));
                let valid = spelled.as_ref().and_then(|it| it.validity.as_deref());
                if valid.is_none() && accumulator.filter.is_none() {
                    self.count_all(counts, groups, rows);
                } else {
                    count_rows(counts, groups, valid, rows);
                }
                Ok(())
            }
            (state, Some(Argument::Narrow(narrow))) => sum_narrow(state, narrow, groups, rows),
            (state, Some(Argument::Wide(vector))) => {
                let smaller = accumulator.kind == AccumulatorKind::Min;
                fold_wide(state, vector, groups, (rows, smaller))
                    .ok_or_else(|| mismatch(accumulator))
            }
            (_, None) => Err(mismatch(accumulator)),
        }
    }

    /// Counts every row of the batch.
    fn count_all(&mut self, counts: &mut [u64], groups: &Groups, rows: usize) {
        if counts.len() > TALLY_GROUPS_MAX {
            return count_rows(counts, groups, None, rows);
        }
        let tally = self.tally.get_or_insert_with(|| {
            let mut tally = vec![0; counts.len()];
            count_rows(&mut tally, groups, None, rows);
            tally
        });
        for (count, rows) in counts.iter_mut().zip(tally) {
            *count = count.wrapping_add(*rows);
        }
    }
}

fn mismatch(accumulator: &Accumulator) -> ExecError {
    ExecError::Internal(format!("{:?} of another type", accumulator.kind))
}

fn fold_wide(
    state: &mut AccumulatorState,
    vector: &Vector<'_>,
    groups: &Groups,
    (rows, smaller): (usize, bool),
) -> Option<()> {
    let vector = vector.spelled(rows);
    let valid = vector.validity.as_deref();
    match state {
        AccumulatorState::Count(_) => None,
        AccumulatorState::SumI64(totals) => sum_i64(totals, &vector.data, groups, valid),
        AccumulatorState::SumI128(totals) => sum_i128(totals, &vector.data, groups, valid),
        AccumulatorState::SumWide { low, carry } => sum_wide(low, carry, &vector, groups),
        AccumulatorState::SumF64(totals) => sum_f64(totals, &vector.data, groups, valid),
        AccumulatorState::SquaredDeviations(spreads) => {
            floats(&vector.data).map(|values| deviations(spreads, &values, groups, valid))
        }
        AccumulatorState::ExtremeI64(kept) => {
            integers(&vector.data).map(|values| extremes(kept, &values, groups, valid, smaller))
        }
        AccumulatorState::ExtremeU64(kept) => {
            u64::values(&vector.data).map(|values| extremes(kept, values, groups, valid, smaller))
        }
        AccumulatorState::ExtremeI128(kept) => {
            i128::values(&vector.data).map(|values| extremes(kept, values, groups, valid, smaller))
        }
        AccumulatorState::ExtremeF64(kept) => {
            floats(&vector.data).map(|values| extremes(kept, &values, groups, valid, smaller))
        }
        AccumulatorState::ExtremeText(kept) => extreme_texts(kept, &vector, groups, smaller),
    }
}

fn count_rows(counts: &mut [u64], groups: &Groups, valid: Option<&[u8]>, rows: usize) {
    match (groups, valid) {
        (Groups::One, None) => counts[0] += rows as u64,
        (Groups::One, Some(valid)) => {
            counts[0] += valid.iter().map(|&v| u64::from(v)).fold(0, u64::wrapping_add);
        }
        (Groups::Numbers(numbers), None) => {
            for &group in numbers {
                counts[group as usize] = counts[group as usize].wrapping_add(1);
            }
        }
        (Groups::Numbers(numbers), Some(valid)) => {
            for (&group, &valid) in numbers.iter().zip(valid) {
                counts[group as usize] = counts[group as usize].wrapping_add(u64::from(valid));
            }
        }
    }
}

/// Calls `f(group, value)` for each row that is not NULL.
#[inline(always)]
fn each<T: Copy>(values: &[T], groups: &Groups, valid: Option<&[u8]>, mut f: impl FnMut(usize, T)) {
    match (groups, valid) {
        (Groups::One, None) => values.iter().for_each(|&v| f(0, v)),
        (Groups::Numbers(numbers), None) => {
            numbers.iter().zip(values).for_each(|(&group, &v)| f(group as usize, v));
        }
        (groups, Some(valid)) => {
            for (row, (&value, &valid)) in values.iter().zip(valid).enumerate() {
                if valid != 0 {
                    let group = match groups {
                        Groups::One => 0,
                        Groups::Numbers(numbers) => numbers[row] as usize,
                    };
                    f(group, value);
                }
            }
        }
    }
}

fn sum_i64(
    totals: &mut [i64],
    data: &Data<'_>,
    groups: &Groups,
    valid: Option<&[u8]>,
) -> Option<()> {
    macro_rules! sum {
        ($values:expr) => {
            match (groups, valid) {
                (Groups::One, None) => {
                    let total = $values.iter().fold(0i64, |t, &v| t.wrapping_add(i64::from(v)));
                    totals[0] = totals[0].wrapping_add(total);
                }
                _ => each($values, groups, valid, |group, v| {
                    totals[group] = totals[group].wrapping_add(i64::from(v));
                }),
            }
        };
    }
    match data {
        Data::I8(values) => sum!(values),
        Data::I16(values) => sum!(values),
        Data::I32(values) => sum!(values),
        Data::I64(values) => sum!(values),
        Data::U8(values) => sum!(values),
        Data::U16(values) => sum!(values),
        Data::U32(values) => sum!(values),
        _ => return None,
    }
    Some(())
}

fn sum_i128(
    totals: &mut [i128],
    data: &Data<'_>,
    groups: &Groups,
    valid: Option<&[u8]>,
) -> Option<()> {
    macro_rules! sum {
        ($values:expr) => {
            each($values, groups, valid, |group, v| {
                totals[group] = totals[group].wrapping_add(i128::from(v));
            })
        };
    }
    match data {
        Data::I8(values) => sum!(values),
        Data::I16(values) => sum!(values),
        Data::I32(values) => sum!(values),
        Data::I64(values) => sum!(values),
        Data::U8(values) => sum!(values),
        Data::U16(values) => sum!(values),
        Data::U32(values) => sum!(values),
        Data::U64(values) => sum!(values),
        Data::I128(values) => sum!(values),
        _ => return None,
    }
    Some(())
}

fn sum_wide(
    low: &mut [i128],
    carry: &mut [i64],
    vector: &Vector<'_>,
    groups: &Groups,
) -> Option<()> {
    let values = i128::values(&vector.data)?;
    each(values, groups, vector.validity.as_deref(), |group, value| {
        add_wide(&mut low[group], &mut carry[group], value);
    });
    Some(())
}

/// Batches of few groups are summed in 64 bits first, row by row in turn to as many sums of a group: what is added
/// to the same place again waits for what was added before.
const FEW_GROUPS: usize = 64;
const TURNS: usize = 4;

/// Up to so many groups, adding a batch's rows group by group costs less than counting them row by row again.
const TALLY_GROUPS_MAX: usize = 256;

fn sum_narrow(
    state: &mut AccumulatorState,
    narrow: &Narrow<'_>,
    groups: &Groups,
    rows: usize,
) -> Result<(), ExecError> {
    match state {
        AccumulatorState::SumI128(totals) => {
            let count = totals.len();
            let add = |group: usize, value| totals[group] = totals[group].wrapping_add(value);
            add_narrow(narrow, groups, (rows, count), add)
        }
        AccumulatorState::SumWide { low, carry } => {
            let count = low.len();
            let add = |group: usize, value| add_wide(&mut low[group], &mut carry[group], value);
            add_narrow(narrow, groups, (rows, count), add)
        }
        _ => Err(ExecError::Internal("a sum of another state".into())),
    }
}

#[inline(always)]
fn add_narrow(
    narrow: &Narrow<'_>,
    groups: &Groups,
    (rows, count): (usize, usize),
    mut add: impl FnMut(usize, i128),
) -> Result<(), ExecError> {
    let vector = narrow.vector.spelled(rows);
    let Some(values) = i64::values(&vector.data) else {
        return Err(ExecError::Internal("narrow values that are not".into()));
    };
    let valid = vector.validity.as_deref();
    let fits = u128::from(narrow.bound) * rows as u128 <= i64::MAX as u128;
    match groups {
        Groups::One if fits => {
            let mut total = 0;
            each(values, groups, valid, |_, value| total += value);
            add(0, total.into());
        }
        Groups::Numbers(numbers) if fits && count <= FEW_GROUPS && valid.is_none() => {
            let mut totals = [[0i64; TURNS]; FEW_GROUPS];
            for (row, (&group, &value)) in numbers.iter().zip(values).enumerate() {
                totals[group as usize % FEW_GROUPS][row % TURNS] += value;
            }
            for (group, totals) in totals.iter().enumerate().take(count) {
                add(group, totals.iter().sum::<i64>().into());
            }
        }
        _ => each(values, groups, valid, |group, value| add(group, value.into())),
    }
    Ok(())
}

fn sum_f64(
    totals: &mut [f64],
    data: &Data<'_>,
    groups: &Groups,
    valid: Option<&[u8]>,
) -> Option<()> {
    match data {
        Data::F32(values) => each(values, groups, valid, |g, v| totals[g] += f64::from(v)),
        Data::F64(values) => each(values, groups, valid, |g, v| totals[g] += v),
        _ => return None,
    }
    Some(())
}

fn deviations(spreads: &mut [Spread], values: &[f64], groups: &Groups, valid: Option<&[u8]>) {
    match (groups, valid) {
        (Groups::One, None) => spreads[0].merge(&Spread::of(values)),
        (Groups::One, Some(_)) => {
            let mut present = Vec::with_capacity(values.len());
            each(values, groups, valid, |_, v| present.push(v));
            spreads[0].merge(&Spread::of(&present));
        }
        _ => each(values, groups, valid, |group, v| spreads[group].merge(&Spread::one(v))),
    }
}

fn floats<'v>(data: &'v Data<'_>) -> Option<std::borrow::Cow<'v, [f64]>> {
    match data {
        Data::F32(values) => Some(values.iter().map(|&v| f64::from(v)).collect()),
        Data::F64(values) => Some(std::borrow::Cow::Borrowed(values)),
        _ => None,
    }
}

fn extremes<T: Element>(
    kept: &mut [T],
    values: &[T],
    groups: &Groups,
    valid: Option<&[u8]>,
    smaller: bool,
) {
    each(values, groups, valid, |group, v| kept[group] = extreme(kept[group], v, smaller));
}

fn extreme_texts(
    kept: &mut Texts,
    vector: &Vector<'_>,
    groups: &Groups,
    smaller: bool,
) -> Option<()> {
    let Data::Str(texts) = &vector.data else { return None };
    each(texts, groups, vector.validity.as_deref(), |group, text| {
        kept.offer(group, text, smaller);
    });
    Some(())
}
