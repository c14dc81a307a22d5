//! Of many hashed groups those that come first by an output column, before any leaves the device.
//!
//! ```text
//! groups ─► a number each, in the order of the column ─► the last number that is wanted, digit by digit
//!                                                                        │
//!              hand-over ◄─ keys and accumulators of those groups ◄─ a list of the groups up to it
//! ```
//!
//! The host still says which groups are the first: it sees all that tie by the first column of the order, and those
//! whose numbers are equal though their values are not. Where that column is the whole order, any of those that tie with the
//! last one will do, and it sees as many as are wanted. What is asked of all groups, that totals fit their types, is
//! asked here.

use std::ops::RangeInclusive;
use std::sync::Arc;

use headrace_gpu::{DeviceBuffer, Grid, Source, Stream};
use headrace_ir::{AggregateOutput, FirstGroups, OrderKey};
use headrace_pipeline::bound::{Bound, BoundSink};

use crate::accumulator::DeviceAccumulator;
use crate::decode::chunks;
use crate::device::CudaDevice;
use crate::device_state::{DeviceState, GroupBuffers};
use crate::error::CudaError;
use crate::group_columns::{GroupColumn, NumberOrder, all_fit};
use crate::headers::HEADERS;
use crate::program::CudaProgram;
use crate::words::queue_words;

/// Name of the kernel.
const KERNEL_NAME: &str = "headrace_first_groups";

const BLOCK_THREADS: u32 = 256;

/// Bits of a digit, and how many digits there are.
const DIGIT_BITS: u32 = 8;
const DIGITS: usize = 1 << DIGIT_BITS;

/// The host takes fewer groups than this as they are: selecting would take longer.
const GROUPS_MIN: u64 = 1 << 14;

/// Groups beyond those that are wanted, below which no further digit is looked at.
const SPARE_GROUPS: u64 = 1 << 12;

/// The kernel's source.
pub fn first_groups_source() -> Source<'static> {
    let text = include_str!("../kernels/first_groups.cu");
    Source { name: "first_groups.cu", text, headers: &HEADERS }
}

/// A step of the kernel; numbered as there.
#[derive(Clone, Copy, Debug)]
pub enum FirstStep {
    /// Counts the digit at `shift` of the numbers whose digits above it are `prefix`.
    Count {
        /// Digits above it.
        prefix: u64,
        /// Bits below it.
        shift: u32,
        /// Counters by digit.
        counts: u64,
    },
    /// Lists groups whose number lies between two, both included, up to so many on the list.
    List {
        /// The first number.
        first: u64,
        /// The last.
        last: u64,
        /// For how many the list has room; of more it has any.
        room: u64,
        /// How many are on the list so far.
        count: u64,
        /// Group numbers of 32 bits.
        list: u64,
    },
    /// Gathers words of the groups on a list.
    Gather {
        /// The list.
        list: u64,
        /// Where they go.
        to: u64,
        /// Words of a group.
        words: u64,
    },
}

impl FirstStep {
    /// The parameter struct of `first_groups.cu`, field by field, over `rows` numbers, or groups on a list, from the address
    /// on.
    pub fn params(self, (from, rows): (u64, u64)) -> [u64; 11] {
        match self {
            Self::Count { prefix, shift, counts } => {
                [0, from, rows, prefix, shift.into(), counts, 0, 0, 0, 0, 0]
            }
            Self::List { first, last, room, count, list } => {
                [1, from, rows, last, 0, count, list, 0, 0, first, room]
            }
            Self::Gather { list, to, words } => [2, from, rows, 0, 0, 0, list, to, words, 0, 0],
        }
    }
}

/// Whether groups of a number that is not the first or the last of all have the same value: there values that have no
/// number of their own share one, and NULLs.
fn is_exact(number: u64) -> bool {
    !matches!(number, 0 | u64::MAX)
}

/// How the groups up to `last` are listed, `up_to` of them, and how many come on the list: all, or, where any of those that
/// tie will do, the ones before `last` and as many of it as are wanted.
pub fn listing(
    (wanted, up_to): (u64, u64),
    last: u64,
    any_will_do: bool,
) -> (Vec<RangeInclusive<u64>>, u64) {
    match any_will_do && up_to > wanted.saturating_add(SPARE_GROUPS) && is_exact(last) {
        true => (vec![0..=last - 1, last..=last], wanted),
        false => (vec![0..=last], up_to),
    }
}

/// The last of the numbers that `wanted` groups have at least, and how many have one up to it: of no more digits than
/// leave `spare` groups at most beyond these. `count` counts a digit, by the digits above it and the bits below it.
pub fn last_wanted<E>(
    (wanted, spare): (u64, u64),
    mut count: impl FnMut(u64, u32) -> Result<[u64; DIGITS], E>,
) -> Result<(u64, u64), E> {
    let (mut prefix, mut before) = (0u64, 0u64);
    let mut shift = u64::BITS;
    loop {
        shift -= DIGIT_BITS;
        let counts = count(prefix, shift)?;
        let mut digit = 0;
        while digit + 1 < DIGITS && before + counts[digit] < wanted {
            before += counts[digit];
            digit += 1;
        }
        prefix = prefix << DIGIT_BITS | digit as u64;
        let up_to = before + counts[digit];
        if up_to <= wanted.saturating_add(spare) || shift == 0 {
            return Ok((prefix << shift | ((1 << shift) - 1), up_to));
        }
    }
}

/// The first groups of a state, as a state of their own; `None`: all are to be handed over. Waits for the stream.
///
/// # Errors
/// [`CudaError::Gpu`].
pub(crate) fn first_groups(
    device: &Arc<CudaDevice>,
    stream: &Stream,
    program: &CudaProgram,
    state: &DeviceState,
) -> Result<Option<DeviceState>, CudaError> {
    let Some(groups) = &state.groups else { return Ok(None) };
    let Some(first) = wanted(&program.bound) else { return Ok(None) };
    let (wanted, by) = (first.groups.max(1), first.by[0]);
    let rows = groups.room.groups(state.take_groups_used(stream)?) as u64;
    if rows < GROUPS_MIN || wanted > rows / 4 {
        return Ok(None);
    }
    let Some((column, checked)) = columns(program, groups, by) else { return Ok(None) };
    let search = Search { device, stream, state, groups, rows };
    let chosen = search.first(&column, &checked, first).and_then(|found| match found {
        Some((list, count)) => search.gather(program, &list, count).map(Some),
        None => Ok(None),
    });
    match chosen {
        Err(error) if error.is_out_of_memory() => Ok(None),
        chosen => chosen,
    }
}

/// Which groups are wanted, if they are in an order.
fn wanted(bound: &Bound) -> Option<&FirstGroups> {
    match &bound.sink {
        BoundSink::Aggregate { output: AggregateOutput::First(first), .. } => {
            Some(first).filter(|first| !first.by.is_empty())
        }
        _ => None,
    }
}

/// The column of the order, and the columns whose results must fit their types; `None` if the device cannot check them.
fn columns(
    program: &CudaProgram,
    groups: &GroupBuffers,
    by: OrderKey,
) -> Option<(GroupColumn, Vec<GroupColumn>)> {
    let BoundSink::Aggregate { keys, calls, .. } = &program.bound.sink else { return None };
    let each = GroupColumn::each(&program.bound, &groups.layout, &program.accumulators).ok()?;
    let column = each.get(by.column)?.as_ref().ok().filter(|column| column.has_order())?.clone();
    let mut checked = Vec::new();
    for (call, made) in calls.iter().zip(each.into_iter().skip(keys.len())) {
        let total = program.accumulators[call.value];
        match made {
            Ok(column) => checked.push(column),
            // A float has room for any total of 128 bits.
            Err(_) if call.field.data_type.is_float() && total != DeviceAccumulator::Limbs(6) => {}
            Err(_) => return None,
        }
    }
    Some((column, checked))
}

struct Search<'a> {
    device: &'a Arc<CudaDevice>,
    stream: &'a Stream,
    state: &'a DeviceState,
    groups: &'a GroupBuffers,
    rows: u64,
}

impl Search<'_> {
    /// The first groups as a list, and their number.
    fn first(
        &self,
        column: &GroupColumn,
        checked: &[GroupColumn],
        first: &FirstGroups,
    ) -> Result<Option<(DeviceBuffer, u64)>, CudaError> {
        let by = first.by[0];
        let groups = self.state.group_addresses(self.groups);
        // SAFETY: the state holds the groups, and the stream alone uses them.
        if !unsafe { all_fit(self.device, self.stream, checked, (&groups, self.rows)) }? {
            return Ok(None);
        }
        let numbers = self.device.alloc(self.rows as usize * 8)?;
        let counts = self.device.alloc(DIGITS * 8)?;
        let order = NumberOrder { descending: by.descending, nulls_first: by.nulls_first };
        let to = (order, numbers.ptr());
        // SAFETY: the buffers and the groups stay until the wait below.
        let found = unsafe {
            column
                .queue_order(self.device, self.stream, &groups, self.rows, to)
                .and_then(|()| self.listed((&numbers, &counts), first))
        };
        // Whatever was queued uses what is about to go.
        self.stream.synchronize()?;
        found
    }

    /// The groups with the first numbers.
    ///
    /// # Safety
    /// Both buffers must stay until the stream was waited for.
    unsafe fn listed(
        &self,
        (numbers, counts): (&DeviceBuffer, &DeviceBuffer),
        first: &FirstGroups,
    ) -> Result<Option<(DeviceBuffer, u64)>, CudaError> {
        let wanted = first.groups.max(1);
        let from = (numbers.ptr(), self.rows);
        let (last, up_to) = last_wanted((wanted, SPARE_GROUPS), |prefix, shift| {
            let step = FirstStep::Count { prefix, shift, counts: counts.ptr() };
            // SAFETY: the caller's promise.
            unsafe { self.clear(counts).and_then(|()| self.queue(step, from)) }?;
            let mut bytes = [0; DIGITS * 8];
            self.stream.download(counts, 0, &mut bytes)?;
            let mut by_digit = [0; DIGITS];
            let words = chunks::<8>(&bytes).map(u64::from_le_bytes);
            by_digit.iter_mut().zip(words).for_each(|(to, word)| *to = word);
            Ok::<_, CudaError>(by_digit)
        })?;
        let any_will_do = first.by.len() == 1 && !first.with_ties;
        let (ranges, count) = listing((wanted, up_to), last, any_will_do);
        if count > self.rows / 2 {
            return Ok(None);
        }
        let list = self.device.alloc(count as usize * 4)?;
        // SAFETY: the caller's promise; the list has the room that is told, and stays until the wait below.
        let mut queued = unsafe { self.clear(counts) };
        for numbers in ranges {
            let (first, last) = numbers.into_inner();
            let (count_at, list) = (counts.ptr(), list.ptr());
            let step = FirstStep::List { first, last, room: count, count: count_at, list };
            // SAFETY: as above.
            queued = queued.and_then(|()| unsafe { self.queue(step, from) });
        }
        self.stream.synchronize()?;
        queued.map(|()| Some((list, count)))
    }

    /// The groups on a list as a state of their own. Waits for the stream.
    fn gather(
        &self,
        program: &CudaProgram,
        list: &DeviceBuffer,
        count: u64,
    ) -> Result<DeviceState, CudaError> {
        let chosen = self.state.of_some(self.device, program, self.stream, count)?;
        let copies = self.state.arrays().into_iter().zip(chosen.arrays());
        let mut queued = Ok(());
        for ((from, bytes), (to, _)) in copies {
            let step = FirstStep::Gather { list: list.ptr(), to, words: bytes / 8 };
            // SAFETY: both states and the list stay until the wait below.
            queued = queued.and_then(|()| unsafe { self.queue(step, (from, count)) });
        }
        self.stream.synchronize()?;
        queued.map(|()| chosen)
    }

    /// # Safety
    /// The buffer must stay until the stream has done it.
    unsafe fn clear(&self, counts: &DeviceBuffer) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.stream.fill_async(counts, 0, DIGITS * 8, 0) }?)
    }

    /// # Safety
    /// What the step's addresses say must be memory of this device until the stream has done it.
    unsafe fn queue(&self, step: FirstStep, from: (u64, u64)) -> Result<(), CudaError> {
        let function = self.device.function(&first_groups_source(), KERNEL_NAME)?;
        let grid = Grid {
            blocks: from.1.div_ceil(u64::from(BLOCK_THREADS)).clamp(1, 1 << 12) as u32,
            threads: BLOCK_THREADS,
            shared_bytes: DIGITS as u32 * 4,
        };
        // SAFETY: the struct is filled field by field as `first_groups.cu` declares it; the addresses are the
        // caller's promise.
        unsafe { queue_words(&function, self.stream, grid, &step.params(from)) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn the_last_number_that_is_wanted_is_found_digit_by_digit() {
        let counted = |numbers: &[u64], prefix: u64, shift: u32| {
            let mut counts = [0; DIGITS];
            let above = shift + DIGIT_BITS;
            for number in numbers {
                if above == 64 || number >> above == prefix {
                    counts[(number >> shift) as usize & (DIGITS - 1)] += 1;
                }
            }
            Ok::<_, Infallible>(counts)
        };
        let spread: Vec<u64> =
            (0..50_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let near: Vec<u64> = (0..50_000u64).map(|i| (1 << 63) + i / 7).collect();
        let equal = vec![u64::MAX; 20_000];
        for numbers in [spread, near, equal] {
            for wanted in [1, 10, 9_999, 20_000] {
                let count = |prefix, shift| counted(&numbers, prefix, shift);
                let (last, up_to) = last_wanted((wanted, SPARE_GROUPS), count).unwrap();
                let found = numbers.iter().filter(|number| **number <= last).count() as u64;
                assert_eq!(found, up_to);
                assert!(found >= wanted, "{found} of {wanted}");
                let ties = numbers.iter().filter(|number| **number == last).count() as u64;
                assert!(found <= wanted + SPARE_GROUPS || found - ties < wanted, "{found}");
            }
        }
    }
}
