//! Keys of groups that come in order, as those of a table do that is clustered by one of them: then groups are numbered
//! without a hash table, and no two of them need to be compared but neighbours.
//!
//! A worker's chunks come in any order, and a group's rows may be at the end of one and at the beginning of another. So the
//! groups are *runs*, whose ranges of values do not meet; a batch goes on with one, or begins one between others.
//!
//! A worker's table begins without slots. The first batch that breaks the order gives all groups their slots and
//! the table becomes an ordinary hash table. Ordered tables are merged by ranges of the key. No statistics are
//! believed.

use headrace_columns::convert::integers;
use headrace_columns::group_keys::{KeyLayout, KeyRows};
use headrace_columns::vector::Vector;

/// Of more runs each would take long to be put in its place.
const RUNS_MAX: usize = 1 << 16;

/// By which key column groups are in order, so far.
#[derive(Clone, Debug, Default)]
pub struct KeyOrder {
    column: Option<usize>,
    /// In the order of their values.
    runs: Vec<Run>,
    /// The run that the last group was added to.
    current: usize,
}

/// Groups that follow one another, each with a larger value than the one before.
#[derive(Clone, Copy, Debug)]
struct Run {
    min: i64,
    max: i64,
    first: u32,
    last: u32,
}

/// Where a batch goes on.
#[derive(Clone, Copy)]
struct Place {
    /// The value and the group of the row before, if there is one that the next may be of.
    last: Option<(i64, u32)>,
    /// The first value of the run above, and its group.
    ceiling: Option<(i64, u32)>,
    /// The run that new groups go to; `None`: a new one.
    run: Option<usize>,
}

impl KeyOrder {
    /// The column, if there are groups.
    pub fn column(&self) -> Option<usize> {
        self.column
    }

    /// The groups in the order of their values.
    pub fn groups(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|run| run.first..=run.last)
    }

    /// Host bytes.
    pub fn bytes(&self) -> u64 {
        size_of_val::<[Run]>(&self.runs) as u64
    }

    /// Forgets the groups.
    pub fn clear(&mut self) {
        self.runs.clear();
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
            self.column = Some(column);
            let Some(&first) = values.first() else { return true };

            let place = self.place(first);
            return place.is_some_and(|place| {
                self.append((layout, keys), (place, &values), batch, numbers)
            });
        }
        false
    }

    /// Where rows go on that begin with a value; `None` within a run, or if there are too many.
    fn place(&self, value: i64) -> Option<Place> {
        if self.runs.len() >= RUNS_MAX {
            return None;
        }
        let below = self.runs.partition_point(|run| run.min <= value);
        let ceiling = self.runs.get(below).map(|run| (run.min, run.first));
        let Some(under) = below.checked_sub(1) else {
            return Some(Place { last: None, ceiling, run: None });
        };
        let run = self.runs[under];
        if value >= run.max {
            // Only the newest run is followed by the groups that come now. Where values are left out, others may lie.
            let goes_on = value == run.max && under == self.current;
            let run_of_new = goes_on.then_some(under);
            return Some(Place { last: Some((run.max, run.last)), ceiling, run: run_of_new });
        }
        let at_its_beginning = value == run.min;
        let within = Some((run.min, run.first));
        at_its_beginning.then_some(Place { last: within, ceiling: within, run: None })
    }

    /// The groups of rows with these values of the column.
    fn append(
        &mut self,
        (layout, keys): (&KeyLayout, &mut KeyRows),
        (mut place, values): (Place, &[i64]),
        batch: &KeyRows,
        numbers: &mut Vec<u32>,
    ) -> bool {
        // A key of one column is equal where that is.
        let is_whole = layout.parts() == 1;
        let limit = place.ceiling.map_or(i64::MAX, |(value, _)| value);
        // The largest value is that of a ceiling, or has none above.
        let has_room = |value: i64| value < limit || place.ceiling.is_none();
        let mut begun: Option<Run> = None;
        numbers.clear();
        let mut is_in_order = true;
        for (row, &value) in values.iter().enumerate() {
            let is_new = place.last.is_none_or(|(last, _)| value > last);
            if is_new && has_room(value) {
                let group = keys.rows() as u32;
                keys.push(batch, row, layout);
                let run =
                    begun.get_or_insert(Run { min: value, max: value, first: group, last: group });
                (run.max, run.last) = (value, group);
                place.last = Some((value, group));
            } else {
                if is_new {
                    place.last = place.ceiling;
                }
                let (last, group) = place.last.unwrap_or((value, 0));
                let is_same =
                    last == value && (is_whole || keys.equal(group as usize, batch, row, layout));
                if !is_same {
                    is_in_order = false;
                    break;
                }
            }
            numbers.push(place.last.map_or(0, |(_, group)| group));
        }
        if let Some(begun) = begun {
            self.keep(begun, place.run);
        }
        is_in_order
    }

    /// Adds groups to a run, or a run.
    fn keep(&mut self, groups: Run, run: Option<usize>) {
        if let Some(run) = run {
            (self.runs[run].max, self.runs[run].last) = (groups.max, groups.last);
            return;
        }
        self.current = self.runs.partition_point(|run| run.min < groups.min);
        self.runs.insert(self.current, groups);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashMap;

    use super::*;
    use crate::cpu::group_table::GroupTable;
    use headrace_columns::repr::Repr;
    use headrace_columns::vector::Data;

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
        let mut hashes = Vec::new();
        table.hashes(0..table.len(), &mut hashes).unwrap();
        let (column, order) = table.in_order()?;
        let values: Vec<i64> =
            order.iter().map(|&group| table.value(column, group as usize).unwrap()).collect();
        assert_eq!(values.len(), table.len());
        assert!(values.is_sorted_by(|a, b| a < b));
        Some(column)
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

    #[test]
    fn batches_may_come_in_any_order_that_leaves_groups_whole() {
        let keys = |range: std::ops::Range<i32>| -> Vec<Key> {
            range
                .map(|key| (Some(key / 3), if key / 3 % 2 == 0 { "even" } else { "odd" }))
                .collect()
        };
        // Groups begin in one batch and end in another, which comes before or after.
        let shuffled = [
            vec![keys(600..1000), keys(0..301), keys(1000..1201), keys(301..601)],
            vec![keys(10..20), keys(40..50), keys(20..40), keys(0..10), keys(50..61)],
            vec![keys(100..101), keys(101..102), keys(99..100), keys(102..103), keys(98..99)],
            vec![keys(30..60), keys(0..30), keys(60..90), keys(30..31), keys(89..90)],
        ];
        for batches in shuffled {
            assert_eq!(numbered(&batches), Some(0));
        }
        let ends = |low, high| vec![(Some(low), "x"), (Some(high), "x")];
        assert_eq!(numbered(&[ends(i32::MIN, -5), ends(7, i32::MAX), ends(-5, 7)]), Some(0));
        // Within another, over its end, and over the beginning of one above.
        for other in [keys(100..110), keys(550..700), keys(0..100)] {
            assert_eq!(numbered(&[keys(90..600), other]), None);
        }
    }
}
