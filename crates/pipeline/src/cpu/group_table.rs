//! Grouping by any keys: a hash table from keys to group numbers.

use headrace_columns::ColumnError;
use headrace_columns::group_keys::{KeyLayout, KeyRows};
use headrace_columns::hash::hash_keys;
use headrace_columns::simd::prefetch;
use headrace_columns::vector::Vector;

use crate::ExecError;
use crate::cpu::key_order::KeyOrder;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 64;

/// How many rows ahead a slot is asked for, then where the key of its group lies, then the key.
const SLOT_AHEAD: usize = 24;
const PLACE_AHEAD: usize = 16;
const KEY_AHEAD: usize = 8;

/// Slots of a table that a core's own caches hold with its keys: nothing is asked for ahead.
const SLOTS_CACHED: usize = 1 << 12;

/// Groups that get slots at a time.
const PORTION_GROUPS: usize = 8 * 1024;

/// How keys lie that are numbered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// One behind the other.
    InOrder,
    /// Here and there: they are asked for ahead.
    Scattered,
}

/// Groups in the order in which they were first seen, in open addressing with linear probing.
/// A slot holds the low half of the hash and the group's number + 1; 0 is empty. As long as keys come in order there are no slots.
#[derive(Debug)]
pub struct GroupTable {
    layout: KeyLayout,
    keys: KeyRows,
    /// Hashes of the groups, where keys have texts, which cost more to hash again than to keep that.
    key_hashes: Vec<u64>,
    /// The order of the groups; `None` as soon as there are slots.
    order: Option<KeyOrder>,
    slots: Vec<u64>,
    /// Keys and hashes of the rows at hand.
    batch: KeyRows,
    hashes: Vec<u64>,
}

impl GroupTable {
    /// An empty table.
    pub fn new(layout: KeyLayout) -> Self {
        let (keys, batch) = (KeyRows::default(), KeyRows::default());
        let (key_hashes, slots, hashes) = (Vec::new(), Vec::new(), Vec::new());
        let order = Some(KeyOrder::default());
        Self { layout, keys, key_hashes, order, slots, batch, hashes }
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.keys.rows()
    }

    /// Host bytes.
    pub fn bytes(&self) -> u64 {
        let order_bytes = self.order.as_ref().map_or(0, KeyOrder::bytes);
        let batch_bytes = size_of_val::<[u64]>(&self.hashes) as u64 + self.batch.bytes();
        self.groups_bytes() + order_bytes + batch_bytes
    }

    /// Host bytes of the groups and their slots alone.
    pub fn groups_bytes(&self) -> u64 {
        let words = self.slots.len() + self.key_hashes.len();
        (words * size_of::<u64>()) as u64 + self.keys.bytes()
    }

    /// Host bytes of a group, about: texts not counted.
    pub fn group_bytes(&self) -> u64 {
        // Slots are between 3/8 and 3/4 full. A text has a place and a hash.
        self.layout.header_bytes() as u64 + if self.layout.has_text() { 32 } else { 16 }
    }

    /// Whether it may take more slots while it takes in `rows` more groups.
    pub fn grows(&self, rows: usize) -> bool {
        self.order.is_none() && (self.len() + rows) * 4 > self.slots.len() * 3
    }

    /// Takes over some groups of another table of the same layout, without slots: no keys are looked for from now on.
    pub fn append(
        &mut self,
        other: &Self,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<(), ExecError> {
        self.check_room(groups.len())?;
        self.order = None;
        self.slots = Vec::new();
        if self.layout.has_text() {
            let hashes = groups.clone().map(|group| other.key_hashes[group]);
            self.key_hashes.extend(hashes);
        }
        self.keys.append(&other.keys, &self.layout, groups);
        Ok(())
    }

    /// Bytes of the slots of so many groups.
    pub fn slots_bytes(groups: usize) -> u64 {
        (slots_of(groups) * size_of::<u64>()) as u64
    }

    /// Gets slots for so many groups at once, if it has none.
    pub fn expect(&mut self, groups: usize) -> Result<(), ExecError> {
        if self.len() == 0 && self.order.take().is_some() {
            self.check_room(groups)?;
            self.slots = vec![0; slots_of(groups)];
        }
        Ok(())
    }

    /// Host bytes that `rows` more groups may take at once: old and new slots while it grows.
    pub fn growth_bytes(&self, rows: usize) -> u64 {
        if self.order.is_some() {
            return (slots_of(self.len() + rows) * size_of::<u64>()) as u64;
        }
        if self.grows(rows) { size_of_val::<[u64]>(&self.slots) as u64 * 2 } else { 0 }
    }

    /// Forgets all groups; what they took is kept.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.key_hashes.clear();
        self.slots.fill(0);
        if let Some(order) = &mut self.order {
            order.clear();
        }
    }

    /// The groups in the order of their values of a key column, if that is known.
    pub fn in_order(&self) -> Option<(usize, Vec<u32>)> {
        let order = self.order.as_ref()?;
        Some((order.column()?, order.groups().collect()))
    }

    /// The key column by which groups are in order.
    pub fn order(&self) -> Option<usize> {
        self.order.as_ref()?.column()
    }

    /// The value of a group in an integer key column.
    pub fn value(&self, column: usize, group: usize) -> Option<i64> {
        self.keys.integer(&self.layout, column, group)
    }

    /// Values of key `part` of the groups at `groups`.
    pub fn key_column(
        &self,
        part: usize,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<Vector<'_>, ColumnError> {
        self.keys.column(&self.layout, part, groups)
    }

    /// The group of each of `rows` rows into `numbers`; new keys become new groups.
    pub fn number(
        &mut self,
        columns: &[&Vector<'_>],
        rows: usize,
        numbers: &mut Vec<u32>,
    ) -> Result<(), ExecError> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.encode(&self.layout, columns, rows)?;
        let numbered = self.number_batch(columns, (&batch, rows), numbers);
        self.batch = batch;
        numbered
    }

    fn number_batch(
        &mut self,
        columns: &[&Vector<'_>],
        (batch, rows): (&KeyRows, usize),
        numbers: &mut Vec<u32>,
    ) -> Result<(), ExecError> {
        self.check_room(rows)?;
        if let Some(order) = &mut self.order
            && order.number((&self.layout, &mut self.keys), columns, (batch, rows), numbers)
        {
            return Ok(());
        }
        self.make_slots()?;
        hash_keys(columns, rows, &mut self.hashes);
        self.number_keys((batch, Source::InOrder), 0..rows, numbers);
        Ok(())
    }

    /// Gives the groups slots, if they have none: from now on keys come in any order.
    fn make_slots(&mut self) -> Result<(), ExecError> {
        if self.order.take().is_none() {
            return Ok(());
        }
        let groups = self.len();
        self.slots = vec![0; slots_of(groups)];
        for start in (0..groups).step_by(PORTION_GROUPS) {
            let portion = start..groups.min(start + PORTION_GROUPS);
            let mut hashes = std::mem::take(&mut self.hashes);
            self.hash_groups(portion.clone(), &mut hashes)?;
            for (group, &hash) in portion.zip(&hashes) {
                self.place(slot(hash as u32, group as u32));
            }
            if self.layout.has_text() {
                self.key_hashes.extend_from_slice(&hashes);
            }
            self.hashes = hashes;
        }
        Ok(())
    }

    /// The group of each of some groups of another table of the same layout.
    pub fn number_groups(
        &mut self,
        other: &GroupTable,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
        numbers: &mut Vec<u32>,
    ) -> Result<(), ExecError> {
        self.check_room(groups.len())?;
        self.make_slots()?;
        other.hashes(groups.clone(), &mut self.hashes)?;
        self.number_keys((&other.keys, Source::Scattered), groups, numbers);
        Ok(())
    }

    /// The hashes of some groups' keys, as [`hash_keys`].
    pub fn hashes(
        &self,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
        hashes: &mut Vec<u64>,
    ) -> Result<(), ExecError> {
        if self.layout.has_text() && self.order.is_none() {
            hashes.clear();
            hashes.extend(groups.map(|group| self.key_hashes[group]));
            return Ok(());
        }
        self.hash_groups(groups, hashes)
    }

    fn hash_groups(
        &self,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
        hashes: &mut Vec<u64>,
    ) -> Result<(), ExecError> {
        let columns = (0..self.layout.parts()).map(|part| self.key_column(part, groups.clone()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        hash_keys(&columns.iter().collect::<Vec<_>>(), groups.len(), hashes);
        Ok(())
    }

    fn check_room(&self, rows: usize) -> Result<(), ExecError> {
        match self.len() + rows < u32::MAX as usize {
            true => Ok(()),
            false => Err(ExecError::Internal("more than 2^32 - 2 groups in one table".into())),
        }
    }

    /// The groups of keys whose hashes are at hand.
    fn number_keys(
        &mut self,
        (keys, source): (&KeyRows, Source),
        rows: impl ExactSizeIterator<Item = usize> + Clone,
        numbers: &mut Vec<u32>,
    ) {
        let mut places = rows.clone().skip(PLACE_AHEAD);
        let mut ahead = rows.clone().skip(KEY_AHEAD);
        let hashes = std::mem::take(&mut self.hashes);
        numbers.clear();
        let is_cached = self.slots.len() <= SLOTS_CACHED;
        assert!(!self.slots.is_empty(), "groups that are put aside take in no more");
        numbers.extend(rows.zip(&hashes).enumerate().map(|(i, (row, &hash))| {
            if !is_cached {
                self.ask_ahead(&hashes[i..]);
            }
            if source == Source::Scattered {
                if let Some(row) = places.next().filter(|_| self.layout.has_text()) {
                    keys.ask_for_place(row);
                }
                if let Some(row) = ahead.next() {
                    keys.ask_for(row, &self.layout);
                }
            }
            self.find_or_insert(keys, row, hash)
        }));
        self.hashes = hashes;
    }

    /// Asks for what the rows ahead are going to read, as far as what leads there has come.
    #[inline(always)]
    fn ask_ahead(&self, hashes: &[u64]) {
        let slot_of = |hash: u64| &self.slots[hash as u32 as usize & (self.slots.len() - 1)];
        let group_of = |hash: u64| {
            let slot = *slot_of(hash);
            ((slot >> 32) as u32 == hash as u32 && slot != 0).then(|| slot as u32 as usize - 1)
        };
        if let Some(&hash) = hashes.get(SLOT_AHEAD) {
            prefetch(slot_of(hash));
        }
        if self.layout.has_text()
            && let Some(group) = hashes.get(PLACE_AHEAD).and_then(|&hash| group_of(hash))
        {
            self.keys.ask_for_place(group);
        }
        if let Some(group) = hashes.get(KEY_AHEAD).and_then(|&hash| group_of(hash)) {
            self.keys.ask_for(group, &self.layout);
        }
    }

    #[inline(always)]
    fn find_or_insert(&mut self, keys: &KeyRows, row: usize, key_hash: u64) -> u32 {
        let hash = key_hash as u32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return self.insert(at, key_hash, keys, row);
            }
            let group = slot as u32 - 1;
            if (slot >> 32) as u32 == hash
                && self.keys.equal(group as usize, keys, row, &self.layout)
            {
                return group;
            }
            at = (at + 1) & mask;
        }
    }

    fn insert(&mut self, at: usize, key_hash: u64, keys: &KeyRows, row: usize) -> u32 {
        let group = self.keys.rows() as u32;
        self.keys.push(keys, row, &self.layout);
        if self.layout.has_text() {
            self.key_hashes.push(key_hash);
        }
        self.slots[at] = slot(key_hash as u32, group);
        if self.len() * 4 > self.slots.len() * 3 {
            self.grow();
        }
        group
    }

    fn grow(&mut self) {
        let slots = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, vec![0; slots]);
        old.into_iter().filter(|&slot| slot != 0).for_each(|slot| self.place(slot));
    }

    /// Puts a group that has no slot into the first that is free.
    fn place(&mut self, slot: u64) {
        let mask = self.slots.len() - 1;
        let mut at = (slot >> 32) as usize & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }
}

/// Slots for so many groups.
fn slots_of(groups: usize) -> usize {
    (groups * 4).div_ceil(3).next_power_of_two().max(SLOTS_MIN)
}

fn slot(hash: u32, group: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(group + 1)
}
