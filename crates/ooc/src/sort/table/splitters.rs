//! Maps keys to buckets.

use super::keys::{Key, Keys};

/// A sampled key.
pub(super) type Sampled = (u64, Box<[u8]>);

/// Where buckets begin: at a key, or after it.
#[derive(Debug)]
pub(super) struct Splitters {
    /// Sorted by key; a key that occurs twice is alone in the bucket between.
    bounds: Vec<(Sampled, bool)>,
}

impl Splitters {
    /// About `buckets` buckets that share the sample evenly. A key that would fill one has its own. No bucket has all
    /// sampled rows unless it has a single key.
    pub fn of_sample(mut sample: Vec<Sampled>, buckets: usize) -> Splitters {
        sample.sort_unstable();
        let mut bounds: Vec<(Sampled, bool)> = Vec::new();
        for part in 1..buckets.max(2) {
            let Some(key) = sample.get(part * sample.len() / buckets.max(2)) else { break };
            if bounds.last().is_some_and(|(last, _)| last == key) {
                continue;
            }
            let before = sample.partition_point(|other| other < key);
            let count = sample[before..].partition_point(|other| other == key);
            bounds.push((key.clone(), false));
            if count * buckets >= sample.len() {
                bounds.push((key.clone(), true));
            }
        }
        Splitters { bounds }
    }

    pub fn buckets(&self) -> usize {
        self.bounds.len() + 1
    }

    /// Whether the bucket can contain only one key.
    pub fn is_single(&self, bucket: usize) -> bool {
        let around = bucket.checked_sub(1).and_then(|before| self.bounds.get(before..before + 2));
        around.is_some_and(|around| around[0].0 == around[1].0)
    }

    /// The bucket of a key.
    pub fn bucket(&self, (prefix, row): Key<'_>) -> usize {
        self.bounds.partition_point(|((first, rest), is_behind)| {
            let order = first.cmp(&prefix).then_with(|| (**rest).cmp(row));
            order.is_lt() || (order.is_eq() && !is_behind)
        })
    }

    /// The rows in bucket order, stable within a bucket; and the borders of the buckets.
    pub fn divide(&self, keys: &Keys) -> (Vec<u32>, Vec<u32>) {
        let rows = keys.prefixes.len();
        let ids: Vec<u16> = (0..rows).map(|row| self.bucket(keys.key(row)) as u16).collect();
        let mut starts = vec![0; self.buckets() + 1];
        ids.iter().for_each(|id| starts[usize::from(*id) + 1] += 1);
        for bucket in 1..starts.len() {
            starts[bucket] += starts[bucket - 1];
        }
        let (mut order, mut places) = (vec![0; rows], starts.clone());
        for (row, id) in ids.iter().enumerate() {
            let place: &mut u32 = &mut places[usize::from(*id)];
            order[*place as usize] = row as u32;
            *place += 1;
        }
        (order, starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splitters(keys: &[u64], buckets: usize) -> Splitters {
        Splitters::of_sample(keys.iter().map(|key| (*key, Box::default())).collect(), buckets)
    }

    #[test]
    fn buckets_are_in_order_and_a_frequent_key_is_alone() {
        let mut keys: Vec<u64> = (0..1000).map(|i| i * 7919 % 1000).collect();
        keys.extend([400; 300]);
        let found = splitters(&keys, 8);
        let buckets: Vec<usize> = (0..1000).map(|key| found.bucket((key, &[]))).collect();
        assert!(buckets.is_sorted() && found.buckets() >= 8);
        assert!(
            found.is_single(buckets[400])
                && buckets[399] < buckets[400]
                && buckets[400] < buckets[401]
        );
        assert_eq!((0..found.buckets()).filter(|bucket| found.is_single(*bucket)).count(), 1);
        let alone = splitters(&[7], 4);
        assert!(alone.is_single(alone.bucket((7, &[]))) && alone.bucket((6, &[])) == 0);
        assert_eq!(splitters(&[], 4).buckets(), 1);
    }

    #[test]
    fn two_sampled_keys_are_never_in_one_bucket_with_all_others() {
        for (heavy, buckets) in
            (0..=20).flat_map(|heavy| [2, 3, 4, 50].map(|buckets| (heavy, buckets)))
        {
            let keys: Vec<u64> = (0..20).map(|i| if i < heavy { 3 } else { 4 + i }).collect();
            let found = splitters(&keys, buckets);
            let all = found.bucket((keys[0], &[]));
            let is_divided = keys.iter().any(|key| found.bucket((*key, &[])) != all);
            assert!(is_divided || found.is_single(all), "{heavy} {buckets}");
        }
    }
}
