//! Keys of groups that come in order, as those of a table do that is clustered by one of them: then groups are numbered
//! without a hash table, and no two of them need to be compared but neighbours.

use crate::build::integers;
use crate::cpu::group_keys::{KeyLayout, KeyRows};
use crate::cpu::vector::Vector;

/// By which key column groups are in order, so far: each group's value is larger than that of the group before.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyOrder {
    column: Option<usize>,
}

impl KeyOrder {
    /// The column, if there are groups.
    pub fn column(&self) -> Option<usize> {
        self.column
    }

    /// Numbers the groups of `rows` rows, whose keys are `batch`; new ones become groups. False if they are not in order: then
    /// groups may have been added that these rows have, and the numbers are of no use.
    pub fn number(
        &mut self,
        (layout, keys): (&KeyLayout, &mut KeyRows),
        columns: &[&Vector<'_>],
        (batch, rows): (&KeyRows, usize),
        numbers: &mut Vec<u32>,
    ) -> bool {
        let candidates = match self.column {
            Some(column) => column..column + 1,
            None => 0..columns.len(),
        };
        for column in candidates {
            let vector = columns[column].spelled(rows);
            let has_nulls = vector.validity.as_deref().is_some_and(|valid| valid.contains(&0));
            let Some(values) = integers(&vector.data).filter(|_| !has_nulls) else { continue };
            if self.column.is_none() && !values.is_sorted() {
                continue;
            }
            let last = match keys.len().checked_sub(1) {
                Some(last) => keys.integer(layout, column, last),
                None => None,
            };
            self.column = Some(column);
            return append((layout, keys), (last, &values), batch, numbers);
        }
        false
    }
}

/// The groups of rows with these values of the column, after groups of which the last has the value `last`.
fn append(
    (layout, keys): (&KeyLayout, &mut KeyRows),
    (mut last, values): (Option<i64>, &[i64]),
    batch: &KeyRows,
    numbers: &mut Vec<u32>,
) -> bool {
    // A key of one column is equal where that is.
    let is_whole = layout.parts() == 1;
    numbers.clear();
    for (row, &value) in values.iter().enumerate() {
        if last.is_none_or(|last| value > last) {
            keys.push(batch, row, layout);
            last = Some(value);
        } else if last != Some(value)
            || !is_whole && !keys.equal(keys.len() - 1, batch, row, layout)
        {
            return false;
        }
        numbers.push(keys.len() as u32 - 1);
    }
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashMap;

    use super::*;
    use crate::bound::Repr;
    use crate::cpu::group_table::GroupTable;
    use crate::cpu::vector::Data;

    type Key = (Option<i32>, &'static str);

    /// Numbers batches of keys, and compares with a map; answers the column by which groups are in order at the end.
    fn numbered(batches: &[Vec<Key>]) -> Option<usize> {
        let layout = KeyLayout::new([(Repr::I32, true), (Repr::Str, false)].into_iter());
        let (mut table, mut numbers) = (GroupTable::new(layout), Vec::new());
        let mut known: HashMap<Key, u32> = HashMap::new();
        for batch in batches {
            let values = batch.iter().map(|key| key.0.unwrap_or(0)).collect();
            let valid = batch.iter().map(|key| u8::from(key.0.is_some())).collect();
            let texts = batch.iter().map(|key| key.1).collect();
            let integers = Vector::with_validity(Data::I32(values), Some(valid));
            let texts = Vector::new(Data::Str(texts));
            table.number(&[&integers, &texts], batch.len(), &mut numbers).unwrap();
            for (key, &number) in batch.iter().zip(&numbers) {
                let next = known.len() as u32;
                assert_eq!(*known.entry(*key).or_insert(next), number, "{key:?}");
            }
            assert_eq!(table.len(), known.len());
        }
        let order = table.order();
        let mut hashes = Vec::new();
        table.hashes(0..table.len(), &mut hashes).unwrap();
        if let Some(column) = order {
            for group in 0..table.len() {
                let value = table.value(column, group).unwrap();
                assert_eq!(table.groups_below(column, value), group);
                assert_eq!(table.groups_below(column, value + 1), group + 1);
            }
        }
        order
    }

    #[test]
    fn groups_in_order_are_those_of_any_other_order() {
        let keys = |range: std::ops::Range<i32>| -> Vec<Key> {
            range
                .map(|key| (Some(key / 3), if key / 3 % 2 == 0 { "even" } else { "odd" }))
                .collect()
        };
        assert_eq!(numbered(&[keys(0..1000), keys(1000..1001), keys(1001..4000)]), Some(0));
        // A value that falls, a NULL, and a value with two texts: in the first batch, and after others.
        let falls = vec![(Some(7000), "odd"), (Some(6), "even"), (Some(7001), "odd")];
        let null = vec![(Some(8000), "even"), (None, ""), (Some(8001), "odd"), (None, "")];
        let both = vec![(Some(9000), "even"), (Some(9000), "odd"), (Some(9000), "even")];
        for other in [falls, null, both] {
            assert_eq!(numbered(&[other.clone(), keys(0..500)]), None);
            assert_eq!(numbered(&[keys(0..500), other.clone(), keys(300..900), other]), None);
        }
        assert_eq!(numbered(&[keys(0..500), keys(499..600), keys(10..40)]), None);
    }
}
