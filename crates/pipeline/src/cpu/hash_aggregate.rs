//! Grouping by any keys: a hash table from encoded keys to group numbers.

use hashbrown::HashTable;

use crate::ExecError;
use crate::bound::BoundKey;
use crate::build::key;
use crate::column::Column;
use crate::cpu::aggregate::Groups;
use crate::cpu::context::Context;
use crate::cpu::eval::{Shared, eval};
use crate::cpu::vector::Vector;

/// Groups in the order in which they were first seen.
pub struct GroupTable {
    table: HashTable<u32>,
    hashes: Vec<u64>,
    key_bytes: Vec<u8>,
    key_offsets: Vec<usize>,
    /// Key values by group.
    columns: Vec<Column>,
}

impl GroupTable {
    /// An empty table.
    pub fn new(keys: &[BoundKey]) -> Result<Self, ExecError> {
        Ok(Self {
            table: HashTable::new(),
            hashes: Vec::new(),
            key_bytes: Vec::new(),
            key_offsets: vec![0],
            columns: keys
                .iter()
                .map(|key| Column::new(key.expr.repr.clone()))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Host bytes.
    pub fn bytes(&self) -> u64 {
        let table = self.table.capacity() * 5 + self.hashes.len() * 16 + self.key_bytes.len();
        table as u64 + self.columns.iter().map(Column::bytes).sum::<u64>()
    }

    /// Key values by group.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The group of each current row; new keys become new groups.
    pub fn groups<'a>(
        &mut self,
        context: &mut Context<'a>,
        keys: &'a [BoundKey],
    ) -> Result<Groups, ExecError> {
        let vectors: Vec<Shared<'a>> =
            keys.iter().map(|key| eval(context, &key.expr)).collect::<Result<_, _>>()?;
        let vectors: Vec<&Vector<'a>> = vectors.iter().map(|vector| &**vector).collect();
        self.number(&vectors, context.rows()).map(Groups::Numbers)
    }

    /// The group in this table of each group of another.
    pub fn absorb(&mut self, other: &GroupTable) -> Result<Vec<u32>, ExecError> {
        let vectors: Vec<Vector<'_>> = other.columns.iter().map(Column::vector).collect();
        self.number(&vectors.iter().collect::<Vec<_>>(), other.len())
    }

    fn number(&mut self, keys: &[&Vector<'_>], rows: usize) -> Result<Vec<u32>, ExecError> {
        let encoded = key::encode(keys.iter().copied(), rows);
        let mut fresh = Vec::new();
        let numbers = (0..rows)
            .map(|row| {
                let (group, is_new) = self.find_or_insert(encoded.row(row));
                if is_new {
                    fresh.push(row as u32);
                }
                group
            })
            .collect();
        if !fresh.is_empty() {
            for (column, key) in self.columns.iter_mut().zip(keys) {
                column.push(&key.take(&fresh), fresh.len())?;
            }
        }
        if self.len() >= u32::MAX as usize {
            return Err(ExecError::Internal("more than 2^32 - 2 groups".into()));
        }
        Ok(numbers)
    }

    fn find_or_insert(&mut self, key: &[u8]) -> (u32, bool) {
        let hash = key::hash(key);
        let Self { table, hashes, key_bytes, key_offsets, .. } = self;
        let found = table.find(hash, |&group| {
            let group = group as usize;
            hashes[group] == hash && &key_bytes[key_offsets[group]..key_offsets[group + 1]] == key
        });
        if let Some(&group) = found {
            return (group, false);
        }
        let group = hashes.len() as u32;
        hashes.push(hash);
        key_bytes.extend_from_slice(key);
        key_offsets.push(key_bytes.len());
        table.insert_unique(hash, group, |&group| hashes[group as usize]);
        (group, true)
    }
}
