//! A table of groups with their running values.

use std::ops::Range;

use arrow_array::RecordBatch;
use headrace_columns::repr::Repr;
use headrace_columns::vector::{Shared, Vector};
use headrace_io::Reservation;

use crate::ExecError;
use crate::bound::{Accumulator, BoundKey};
use crate::cpu::aggregate::{self, Groups};
use crate::cpu::context::Context;
use crate::cpu::eval::eval;
use crate::cpu::group_table::GroupTable;
use crate::partial::PartialSchema;
use crate::partial::codec::Held;
use crate::partial::runs::Runs;
use crate::state::AccumulatorState;

/// Groups are looked at in portions of at most this many,
const PORTION_GROUPS: usize = 8 * 1024;
/// and of about this many bytes, however long their texts are.
const PORTION_BYTES: u64 = 4 << 20;

/// Groups, their keys and running values.
#[derive(Debug)]
pub struct HashState {
    form: PartialSchema,
    table: GroupTable,
    states: Vec<AccumulatorState>,
    /// Groups of the rows at hand.
    numbers: Vec<u32>,
}

impl HashState {
    /// No groups.
    pub fn new(form: PartialSchema) -> Self {
        let table = GroupTable::new(form.layout());
        let states = form.values().iter().map(|value| value.empty.clone()).collect();
        Self { form, table, states, numbers: Vec::new() }
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Host bytes.
    pub fn bytes(&self) -> u64 {
        let values: u64 = self.states.iter().map(AccumulatorState::bytes).sum();
        self.table.bytes() + values + size_of_val::<[u32]>(&self.numbers) as u64
    }

    /// Host bytes of a group, about: texts not counted.
    pub fn group_bytes(&self) -> u64 {
        let mut one = self.states.clone();
        let values = one.iter_mut().zip(self.form.values()).map(|(state, value)| {
            let before = state.bytes();
            state.resize(state.groups() + 1, value.smaller);
            state.bytes() - before
        });
        self.table.group_bytes() + values.sum::<u64>()
    }

    /// The form of its keys and values.
    pub fn form(&self) -> &PartialSchema {
        &self.form
    }

    /// Host bytes that it may take for a moment while it takes in `rows` more groups.
    pub fn growth_bytes(&self, rows: usize) -> u64 {
        self.table.growth_bytes(rows)
    }

    /// Running values, one per accumulator.
    pub fn states(&self) -> &[AccumulatorState] {
        &self.states
    }

    /// Whether it may take more slots while it takes in `rows` more groups.
    pub fn grows(&self, rows: usize) -> bool {
        self.table.grows(rows)
    }

    /// Whether it has so many groups, which take so many bytes: what the rows at hand take is not counted.
    pub fn is_worth(&self, groups: u64, bytes: u64) -> bool {
        let values = || self.states.iter().map(AccumulatorState::bytes).sum::<u64>();
        self.len() as u64 >= groups && self.table.groups_bytes() + values() > bytes
    }

    /// Takes over some groups of another table of the same form, of which none may be here: no keys are looked for
    /// from now on, and no others taken in.
    pub fn append(
        &mut self,
        other: &Self,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<(), ExecError> {
        let first = self.len();
        self.table.append(&other.table, groups.clone())?;
        self.make_room();
        for ((into, from), value) in
            self.states.iter_mut().zip(&other.states).zip(self.form.values())
        {
            into.fold(from, (first..).zip(groups.clone()), value.smaller)?;
        }
        Ok(())
    }

    /// Folds in the current rows.
    pub fn consume<'a>(
        &mut self,
        context: &mut Context<'a>,
        keys: &'a [BoundKey],
        accumulators: &'a [Accumulator],
    ) -> Result<(), ExecError> {
        let vectors: Vec<Shared<'a>> =
            keys.iter().map(|key| eval(context, &key.expr)).collect::<Result<_, _>>()?;
        let vectors: Vec<&Vector<'a>> = vectors.iter().map(|vector| &**vector).collect();
        self.number(&vectors, context.rows())?;
        let groups = Groups::Numbers(std::mem::take(&mut self.numbers));
        let updated = aggregate::update(context, accumulators, &mut self.states, &groups);
        if let Groups::Numbers(numbers) = groups {
            self.numbers = numbers;
        }
        updated
    }

    /// Folds in partial states.
    pub fn absorb(&mut self, batch: &RecordBatch) -> Result<(), ExecError> {
        let keys = self.form.decode_keys(batch)?;
        let states = self.form.decode_states(batch)?;
        self.number(&keys.iter().collect::<Vec<_>>(), batch.num_rows())?;
        self.fold(&states, 0..batch.num_rows())
    }

    /// Gets slots for so many groups at once.
    pub fn expect(&mut self, groups: usize) -> Result<(), ExecError> {
        self.table.expect(groups)
    }

    /// Folds in the groups of another table of the same form.
    pub fn merge(&mut self, other: &HashState) -> Result<(), ExecError> {
        self.merge_groups(other, 0..other.len())
    }

    /// Folds in some groups of another table of the same form.
    pub fn merge_some(&mut self, other: &HashState, groups: &[u32]) -> Result<(), ExecError> {
        self.merge_groups(other, groups.iter().map(|&group| group as usize))
    }

    /// Folds in some groups of another table of the same form.
    pub fn merge_groups(
        &mut self,
        other: &HashState,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<(), ExecError> {
        self.table.number_groups(&other.table, groups.clone(), &mut self.numbers)?;
        self.make_room();
        self.fold(&other.states, groups)
    }

    /// Folds in the running values of groups that were numbered.
    fn fold(
        &mut self,
        states: &[AccumulatorState],
        groups: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), ExecError> {
        let Self { form, states: into, numbers, .. } = self;
        for ((into, from), value) in into.iter_mut().zip(states).zip(form.values()) {
            let numbers = numbers.iter().map(|&group| group as usize);
            let pairs = numbers.zip(groups.clone());
            into.fold(from, pairs, value.smaller)?;
        }
        Ok(())
    }

    fn number(&mut self, keys: &[&Vector<'_>], rows: usize) -> Result<(), ExecError> {
        self.table.number(keys, rows, &mut self.numbers)?;
        self.make_room();
        Ok(())
    }

    /// Gives all groups of the table their running values.
    fn make_room(&mut self) {
        for (state, value) in self.states.iter_mut().zip(self.form.values()) {
            state.resize(self.table.len(), value.smaller);
        }
    }

    /// The groups and their keys.
    pub fn table(&self) -> &GroupTable {
        &self.table
    }

    /// Hashes of the keys of some groups.
    pub fn hashes(&self, groups: Range<usize>, hashes: &mut Vec<u64>) -> Result<(), ExecError> {
        self.table.hashes(groups, hashes)
    }

    /// Keys of some groups.
    pub fn keys(
        &self,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<Vec<Vector<'_>>, ExecError> {
        let keys = 0..self.form.keys().len();
        keys.map(|key| Ok(self.table.key_column(key, groups.clone())?)).collect()
    }

    /// Partial states of some groups in any form, whose columns take `states`.
    pub fn encode(
        &self,
        form: &PartialSchema,
        states: &[Held<'_>],
        groups: &[u32],
    ) -> Result<RecordBatch, ExecError> {
        let keys = self.keys(groups.iter().map(|&group| group as usize))?;
        let reprs: Vec<&Repr> = self.form.keys().iter().map(|key| &key.held).collect();
        form.encode(&keys, &reprs, states, groups)
    }

    /// Groups to take at a time, for keys and values of this size.
    pub fn portion_groups(&self) -> usize {
        let group_bytes = (self.bytes() / self.len().max(1) as u64).max(1);
        (PORTION_BYTES / group_bytes).clamp(1, PORTION_GROUPS as u64) as usize
    }

    /// Hands all groups over to `runs`, whose lists `spare` pays for, and is empty then.
    pub fn flush(&mut self, runs: &Runs, spare: &mut Reservation) -> Result<(), ExecError> {
        let states: Vec<_> =
            self.states.iter().map(|state| Held { state, dictionary: None }).collect();
        let encode = |groups: &[u32]| self.encode(&self.form, &states, groups);
        let hash = |groups, hashes: &mut _| self.hashes(groups, hashes);
        runs.take_in(self.len(), self.portion_groups(), hash, encode, spare)?;
        self.clear();
        Ok(())
    }

    /// Makes sure that there is a group where there are no keys: without rows there is one too.
    pub fn keep_one_without_keys(&mut self) -> Result<(), ExecError> {
        if self.form.keys().is_empty() && self.len() == 0 { self.number(&[], 1) } else { Ok(()) }
    }

    /// Forgets all groups; what they took is kept.
    pub fn clear(&mut self) {
        self.table.clear();
        for (state, value) in self.states.iter_mut().zip(self.form.values()) {
            state.resize(0, value.smaller);
        }
    }
}
