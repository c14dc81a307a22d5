//! Grouping by hash on the device: how keys lie, how much room there is, and how a launch is cut
//! so that the room is enough.
//!
//! # A table that may fill
//!
//! A table has room for all groups that there can be, if that is little enough memory. Otherwise
//! it may fill in the middle of a launch, with thousands of warps at work. Every row is applied
//! exactly once all the same, because a warp's run of tiles is applied as a whole or not at all:
//!
//! - Before each run a warp reads how many groups there are. Up to the limit it goes on, beyond it
//!   leaves, and writes down the run at which it stands (`hr::has_room`, `hr::leave_run`).
//! - Above the limit there is room for one run of every warp of the grid
//!   ([`GroupRoom::shape`]). Groups are only added, so that a warp that has read more than the limit
//!   reads more than the limit until the table is cleared, and each warp adds at most the run that
//!   it had begun when the limit was passed. The table never overflows, whatever the rows are and
//!   however often a join multiplies them.
//! - So after a launch that left the table above its limit, what was applied are the runs before the
//!   one that each warp wrote down. Kernels of one table run one after the other: those launched
//!   behind it find it full and apply nothing.
//! - The host takes the groups (`hand_over.rs`), clears the table and launches the same grid again
//!   over the same tiles; each warp begins where it stands. If all of them had just finished, that
//!   launch does nothing.
//!
//! A table with room for all groups has no limit, and pays one comparison of a parameter a run.
//!
//! # A table that grows
//!
//! A table begins with little of the device's memory. One that is full is made larger as long as the device has memory for
//! it, in place of handing its groups over (`execution/growing.rs`): keys, accumulators and texts are copied as they lie,
//! since groups keep their numbers, and a kernel enters them in the larger slots (`rehash.cu`).
//!
//! # Texts that groups keep
//!
//! A key's text of more than 31 bytes, and a smallest or largest text, lie in a buffer beside the table: what
//! a row points to goes with its chunk. Nobody knows how many bytes they will be. Once half of the buffer is taken, the
//! number of groups is above any limit, and the table begins anew as one that is full. The other half is for the
//! runs that have begun, if a text has [`TEXT_BYTES_EXPECTED`] on average; where it is not enough, the launch fails
//! with a reason why the pipeline is not the GPU's.

use headrace_columns::ColumnError;
use headrace_columns::repr::Repr;
use headrace_columns::vector::{Data, Vector};
use headrace_pipeline::bound::{Bound, BoundKey, BoundSink};
use headrace_pipeline::group_states::MadeGroups;
use headrace_pipeline::state::{AccumulatorState, Texts};
use headrace_pipeline::{ExecError, WhyNot};

use crate::accumulator::DeviceAccumulator;
use crate::decode::{accumulator_state, chunks, data_of};
use crate::keys::{KeyLayout, KeyPart, LONG_TEXT, TEXT_KEY_BYTES};
use crate::room::LaunchShape;
use crate::text_values::TEXT_VALUE_BYTES;
use crate::tuning::Tuning;

/// Device memory that a group table with its accumulators begins with at most.
pub(crate) const TABLE_BYTES_MAX: u64 = 2 << 30;

/// How much larger a table becomes that grows.
const GROWTH: u64 = 4;

/// Group numbers are 32 bits, of which the last few mean something else.
const GROUPS_MAX: u64 = 1 << 30;

/// An accumulator's entry before any text.
const NO_TEXT: u64 = u64::MAX;

/// The bit of the number of groups that says that their texts take more than half of their room.
const TEXTS_FULL: u32 = 1 << 31;

/// The assumed bytes of a text that a group keeps; the table has no statistics of them.
const TEXT_BYTES_EXPECTED: u64 = 128;

/// Room for texts: bytes for each text of a group, and in all, but at most half of the table's bytes. A text's place is a
/// 32-bit number of words of four bytes.
const TEXT_ROOM_BYTES: u64 = 2 * TEXT_BYTES_EXPECTED;
const TEXTS_BYTES_MIN: u64 = 16 << 20;
const TEXTS_BYTES_MAX: u64 = 4 << 32;

/// How hashed groups lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTableLayout {
    /// Their keys.
    pub keys: KeyLayout,
    /// Most groups that there can be.
    pub groups_max: u64,
    /// Device memory of a group: its slots, its key and its accumulators.
    pub group_bytes: u64,
    /// Texts that a group keeps at most: those of its key, and of accumulators.
    pub kept_texts: usize,
}

/// For how many groups a table has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupRoom {
    /// Groups.
    pub capacity: u64,
    /// Whether there can be more.
    pub may_fill: bool,
    /// Bytes of the texts that they keep; 0 where they keep none.
    pub texts_bytes: u64,
    /// Texts of a group.
    kept_texts: usize,
}

impl GroupTableLayout {
    /// The table of an aggregation whose streamed rows number at most `rows_max`, of which each
    /// becomes up to `matches_max` at the sink, each group having such accumulators.
    ///
    /// # Errors
    /// Keys that do not fit, or rows that multiply so much that one tile may fill a table.
    pub(crate) fn of(
        keys: &[BoundKey],
        (rows_max, matches_max): (u64, u64),
        accumulators: &[DeviceAccumulator],
    ) -> Result<Self, WhyNot> {
        let columns: Vec<_> = keys.iter().map(|key| (&key.expr.repr, key.expr.nullable)).collect();
        let key_layout = KeyLayout::of(&columns, "hashed groups")?;
        let kept_texts = key_layout.texts + accumulators.iter().filter(|a| a.is_text()).count();
        let accumulator_bytes: u64 = accumulators.iter().map(|a| a.bytes()).sum();
        let possible = keys.iter().try_fold(1u64, |product, key| {
            let range = key.expr.range.filter(|_| key.expr.repr.is_integer_like())?;
            let values = u64::try_from(i128::from(range.max) - i128::from(range.min) + 1).ok()?;
            product.checked_mul(values.checked_add(u64::from(key.expr.nullable))?)
        });
        let rows_max = rows_max.saturating_mul(matches_max);
        let groups_max = possible.unwrap_or(u64::MAX).min(rows_max).max(1);
        // At most four slots a group.
        let group_bytes = 16 + key_layout.bytes() as u64 + accumulator_bytes;
        let layout = Self { keys: key_layout, groups_max, group_bytes, kept_texts };
        let room =
            layout.room((GROUPS_MAX, TABLE_BYTES_MAX), Tuning::FULL.tile_groups(matches_max));
        let bytes = room.capacity.saturating_mul(group_bytes);
        if bytes > TABLE_BYTES_MAX {
            return Err(WhyNot::new(format!(
                "up to {matches_max} rows for each streamed row: the groups of one tile would take \
                 {bytes} bytes of device memory, {TABLE_BYTES_MAX} may be taken"
            )));
        }
        Ok(layout)
    }

    /// The room of a table of at most so many groups and bytes, but at least for twice the
    /// `tile_groups` groups that one tile may have.
    pub fn room(&self, (groups, bytes): (u64, u64), tile_groups: u64) -> GroupRoom {
        let affordable = groups.min(GROUPS_MAX).min(bytes / self.group_bytes);
        let capacity = affordable.max(tile_groups.saturating_mul(2)).min(self.groups_max);
        let kept_texts = self.kept_texts;
        let texts_bytes = match kept_texts as u64 {
            0 => 0,
            texts => (capacity.saturating_mul(texts * TEXT_ROOM_BYTES))
                .clamp(TEXTS_BYTES_MIN, TEXTS_BYTES_MAX)
                .min((bytes / 2).max(bytes.min(TEXTS_BYTES_MIN))),
        };
        GroupRoom { capacity, may_fill: capacity < self.groups_max, texts_bytes, kept_texts }
    }

    /// The room of a table that is full with less, within so many groups and bytes; `None`: it cannot be much larger.
    /// `used` is the number of groups that a launch left.
    pub fn larger(
        &self,
        room: &GroupRoom,
        used: u32,
        (groups, bytes): (u64, u64),
        tile_groups: u64,
    ) -> Option<GroupRoom> {
        let taken = room.capacity * self.group_bytes;
        let mut larger = self.room((groups, taken.saturating_mul(GROWTH).min(bytes)), tile_groups);
        let is_worth_it = |before: u64, now: u64| now >= before / 2 * 3;
        if used & TEXTS_FULL == 0 {
            let is_larger = is_worth_it(room.capacity, larger.capacity) || !larger.may_fill;
            return Some(larger).filter(|larger| is_larger && larger.capacity > room.capacity);
        }
        let texts_bytes = room.texts_bytes.saturating_mul(GROWTH).min(TEXTS_BYTES_MAX);
        larger.texts_bytes = larger.texts_bytes.max(texts_bytes.min(bytes));
        let is_larger = is_worth_it(room.texts_bytes, larger.texts_bytes);
        Some(larger).filter(|larger| is_larger && larger.capacity >= room.capacity)
    }

    /// Where the texts lie that these groups keep, as [`TEXT_VALUE_BYTES`] each, by text and group: those of keys, then those
    /// of accumulators. An empty text is one that is not kept. `taken` are the bytes of all from the address on.
    ///
    /// # Errors
    /// [`ColumnError::Corrupt`] for a text that lies elsewhere.
    pub fn kept_texts<'a>(
        &self,
        keys: &[u8],
        accumulators: impl IntoIterator<Item = (DeviceAccumulator, &'a [u8])>,
        (address, taken): (u64, u64),
    ) -> Result<Vec<Vec<u8>>, ExecError> {
        let value = |kept: Option<u64>| {
            let Some(kept) = kept else { return Ok([0; TEXT_VALUE_BYTES]) };
            let (at, bytes) = (4 * (kept >> 32), kept & u64::from(u32::MAX));
            if at + bytes > taken {
                let cause = "a text of a group that lies outside those of all".to_string();
                return Err(ColumnError::Corrupt { column: "groups".into(), cause });
            }
            let mut value = [0; TEXT_VALUE_BYTES];
            value[..8].copy_from_slice(&(address + at).to_le_bytes());
            value[8..].copy_from_slice(&bytes.to_le_bytes());
            Ok(value)
        };
        let of = |words: &mut dyn Iterator<Item = Option<u64>>| {
            let values: Result<Vec<_>, _> = words.map(value).collect();
            values.map(|values| values.into_flattened())
        };
        let mut texts = Vec::with_capacity(self.kept_texts);
        for key in 0..self.keys.texts {
            let parts =
                keys.chunks_exact(self.key_bytes()).map(|group| &group[key * TEXT_KEY_BYTES..]);
            texts.push(of(&mut parts.map(|part| is_long(part).then(|| word(part))))?);
        }
        for (_, entries) in accumulators.into_iter().filter(|(kind, _)| kind.is_text()) {
            let entries = chunks::<8>(entries).map(u64::from_le_bytes);
            texts.push(of(&mut entries.map(|kept| (kept != NO_TEXT).then_some(kept)))?);
        }
        Ok(texts)
    }

    /// Bytes of a key.
    pub(crate) fn key_bytes(&self) -> usize {
        self.keys.bytes()
    }
}

/// Whether the text of a key is kept apart from it.
fn is_long(part: &[u8]) -> bool {
    part[TEXT_KEY_BYTES - 1] == LONG_TEXT
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))
}

impl GroupRoom {
    /// Room for so many, whose texts lie elsewhere.
    pub(crate) fn of_some(&self, groups: u64) -> Self {
        Self { capacity: groups.max(1), texts_bytes: 0, ..*self }
    }

    /// Slots of the table: at most half are taken.
    pub fn slots(&self) -> u64 {
        (self.capacity * 2).next_power_of_two()
    }

    /// Cuts a launch of up to `blocks_max` blocks and `run_tiles` tiles a run, if there is room,
    /// so that at most half of the table is kept for runs that have begun. A tile has up to
    /// `tile_groups` groups.
    ///
    /// # Errors
    /// [`ExecError::Internal`] if there is not room for a tile.
    pub fn shape(
        &self,
        (blocks_max, run_tiles): (u64, u64),
        tile_groups: u64,
    ) -> Result<LaunchShape, ExecError> {
        let groups = if self.may_fill { self.capacity / 2 } else { u64::MAX };
        let texts = match self.kept_texts as u64 {
            0 if !self.may_fill => {
                return Ok(LaunchShape { blocks_max, run_tiles, limit: None });
            }
            0 => u64::MAX,
            texts => self.texts_bytes / 2 / (TEXT_BYTES_EXPECTED * texts),
        };
        let cut = LaunchShape::within(groups.min(texts), tile_groups, (blocks_max, run_tiles));
        let limit = match self.may_fill {
            true => self.capacity.saturating_sub(cut.begun(tile_groups)),
            false => u64::from(TEXTS_FULL - 1),
        };
        if limit == 0 || limit >= u64::from(u32::MAX) {
            let (capacity, tile) = (self.capacity, tile_groups);
            let what = format!("a table of {capacity} groups for tiles of {tile}");
            return Err(ExecError::Internal(what));
        }
        Ok(LaunchShape { limit: Some(limit), ..cut })
    }

    /// Whether groups may leave before a launch is at its end.
    pub(crate) fn may_leave(&self) -> bool {
        self.may_fill || self.kept_texts > 0
    }

    /// How many groups there are, by the number that a launch leaves.
    pub fn groups(&self, used: u32) -> usize {
        u64::from(used & !TEXTS_FULL).min(self.capacity) as usize
    }
}

/// Groups as a device leaves them.
pub struct DeviceGroups<'a> {
    layout: &'a GroupTableLayout,
    keys: &'a [u8],
    /// Of keys that are texts, those that are kept apart from them.
    texts: Vec<&'a [&'a [u8]]>,
    states: Vec<AccumulatorState>,
}

impl<'a> DeviceGroups<'a> {
    /// Keys, the entries of each accumulator with its kind, and the texts that [`GroupTableLayout::kept_texts`] lists, of
    /// the same groups.
    ///
    /// # Errors
    /// [`ColumnError::Corrupt`] for a smallest or largest text that is none.
    pub fn new<'b>(
        layout: &'a GroupTableLayout,
        keys: &'a [u8],
        accumulators: impl IntoIterator<Item = (DeviceAccumulator, &'b [u8])>,
        mut texts: Vec<&'a [&'a [u8]]>,
    ) -> Result<Self, ExecError> {
        let extremes = texts.split_off(layout.keys.texts.min(texts.len()));
        let mut extremes = extremes.into_iter();
        let mut state = |(kind, bytes): (DeviceAccumulator, &[u8])| match kind.is_text() {
            true => extreme_texts(bytes, extremes.next().unwrap_or_default()),
            false => Ok(accumulator_state(kind, bytes)),
        };
        let states = accumulators.into_iter().map(&mut state).collect::<Result<_, _>>()?;
        Ok(Self { layout, keys, texts, states })
    }

    fn key_vector(
        &self,
        repr: &Repr,
        part: KeyPart,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<Vector<'static>, ExecError> {
        let (count, stride) = (groups.len(), self.layout.key_bytes());
        let mut values = Vec::with_capacity(count * part.bytes);
        for group in groups.clone() {
            let at = group * stride + part.at;
            values.extend_from_slice(&self.keys[at..at + part.bytes]);
        }
        let is_valid = |at: usize| u8::from(self.keys[at] == 0);
        let validity =
            part.null_at.map(|at| groups.map(|group| is_valid(group * stride + at)).collect());
        Ok(Vector::with_validity(data_of(repr, &values, count)?, validity))
    }

    fn text_vector(
        &self,
        key: &BoundKey,
        (part, long): (KeyPart, &'a [&'a [u8]]),
        groups: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Vector<'a>, ExecError> {
        let (all, stride) = (self.keys, self.layout.key_bytes());
        let mut texts = Vec::with_capacity(groups.len());
        let mut valid = Vec::with_capacity(groups.len());
        for group in groups {
            let part = &all[group * stride + part.at..][..part.bytes];
            let length = part[TEXT_KEY_BYTES - 1];
            let bytes = match length {
                LONG_TEXT => long.get(group).copied(),
                length => part[..TEXT_KEY_BYTES - 1].get(..usize::from(length).saturating_sub(1)),
            };
            texts.push(text_of(bytes, || key.field.name.clone())?);
            valid.push(u8::from(length > 0));
        }
        Ok(Vector::with_validity(Data::Str(texts), Some(valid)))
    }
}

impl MadeGroups for DeviceGroups<'_> {
    fn count(&self) -> usize {
        self.keys.len() / self.layout.key_bytes()
    }

    fn keys(
        &self,
        bound: &Bound,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<Vec<Vector<'_>>, ExecError> {
        let BoundSink::Aggregate { keys, .. } = &bound.sink else { return Err(another_sink()) };
        let mut texts = self.texts.iter();
        let vector = |(key, part): (&BoundKey, &KeyPart)| match &key.expr.repr {
            Repr::Str => {
                let long = texts.next().copied().unwrap_or_default();
                self.text_vector(key, (*part, long), groups.clone())
            }
            repr => self.key_vector(repr, *part, groups.clone()),
        };
        keys.iter().zip(&self.layout.keys.parts).map(vector).collect()
    }

    fn states(&self) -> &[AccumulatorState] {
        &self.states
    }
}

/// A text that a device left.
fn text_of(bytes: Option<&[u8]>, column: impl Fn() -> String) -> Result<&str, ColumnError> {
    let corrupt = |cause: &str| ColumnError::Corrupt { column: column(), cause: cause.to_string() };
    let bytes = bytes.ok_or_else(|| corrupt("a text of a group that did not come"))?;
    std::str::from_utf8(bytes).map_err(|_| corrupt("a text of a group is not UTF-8"))
}

/// The smallest or largest texts of groups, by the entries of their accumulator.
fn extreme_texts(entries: &[u8], texts: &[&[u8]]) -> Result<AccumulatorState, ExecError> {
    let mut kept = Texts::new(entries.len() / 8);
    for (group, entry) in chunks::<8>(entries).map(u64::from_le_bytes).enumerate() {
        let bytes = match (entry, entry as u32) {
            (NO_TEXT, _) => continue,
            // Where all are empty, none is brought.
            (_, 0) => Some(&[][..]),
            _ => texts.get(group).copied(),
        };
        kept.offer(group, text_of(bytes, || "a smallest or largest text".into())?, true);
    }
    Ok(AccumulatorState::ExtremeText(kept))
}

fn another_sink() -> ExecError {
    ExecError::Internal("groups of another sink".into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn layout(groups_max: u64) -> GroupTableLayout {
        GroupTableLayout {
            keys: KeyLayout { parts: vec![], words: 1, texts: 0 },
            groups_max,
            group_bytes: 32,
            kept_texts: 0,
        }
    }

    #[test]
    fn extremes_that_are_empty_need_no_bytes() {
        let entries = [NO_TEXT, 0, 7 << 32, 3].map(u64::to_le_bytes);
        let Ok(AccumulatorState::ExtremeText(texts)) =
            extreme_texts(entries[..3].as_flattened(), &[])
        else {
            panic!("texts")
        };
        assert_eq!([0, 1, 2].map(|group| texts.get(group)), [None, Some(""), Some("")]);
        assert!(extreme_texts(entries.as_flattened(), &[]).is_err());
    }

    #[test]
    fn a_table_for_all_groups_has_no_limit() {
        let room = layout(1000).room((u64::MAX, 32_000), 8192);
        assert_eq!((room.capacity, room.may_fill, room.may_leave()), (1000, false, false));
        let shape = room.shape((528, 8), 8192).unwrap();
        assert_eq!(shape, LaunchShape { blocks_max: 528, run_tiles: 8, limit: None });
    }

    #[test]
    fn beyond_the_limit_there_is_room_for_all_runs_that_have_begun() {
        for groups in [1, 1000, 20_000, 1 << 20, 40 << 20] {
            for (tile_groups, blocks, run_tiles) in [(4096, 528, 8), (8192, 132, 1), (64, 1, 3)] {
                let room = layout(1 << 40).room((groups, u64::MAX), tile_groups);
                assert!(room.may_fill && room.capacity >= groups);
                let shape = room.shape((blocks, run_tiles), tile_groups).unwrap();
                assert!((1..=blocks).contains(&shape.blocks_max));
                assert!((1..=run_tiles).contains(&shape.run_tiles));
                let begun = shape.blocks_max * shape.run_tiles * tile_groups;
                let limit = shape.limit.unwrap();
                assert!(limit + begun == room.capacity && limit >= room.capacity / 2);
            }
        }
        // A large table cuts nothing.
        let room = layout(1 << 40).room((40 << 20, u64::MAX), 4096);
        let shape = room.shape((528, 8), 4096).unwrap();
        assert_eq!((shape.blocks_max, shape.run_tiles), (528, 8));
    }

    #[test]
    fn a_table_that_has_no_room_for_a_tile_is_an_error() {
        let room = GroupRoom { capacity: 100, may_fill: true, texts_bytes: 0, kept_texts: 0 };
        assert!(room.shape((1, 1), 100).unwrap_err().to_string().contains("100 groups"));
    }
}
