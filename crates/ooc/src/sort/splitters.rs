//! Maps keys to buckets.
//!
//! ```text
//! key ──► cell (its top bits from the least sampled key on) ──► first bucket of the cell
//!                                             └── `steps` comparisons with splitters inside the cell
//! ```
//!
//! A cell's first bucket is looked up in a table that stays in the first-level cache. If keys are distributed so
//! evenly that splitters can lie at cell borders, no search is needed.

/// Keys that are looked up at once.
pub(super) const AT_ONCE: usize = 8;

/// Cells per bucket, on average, in bits.
const CELL_BITS: u32 = 3;

/// Maximum buckets: their numbers have 16 bits.
pub(super) const BUCKETS_MAX: usize = 1 << 13;

/// Fewer would not always split the keys: see [`Splitters::of_sample`].
const BUCKETS_MIN: usize = 4;

/// The keys at which buckets begin.
#[derive(Debug)]
pub(super) struct Splitters {
    /// Sorted, distinct: bucket `b` has keys from `keys[b - 1]` on, below `keys[b]`. Padding follows.
    keys: Vec<u64>,
    buckets: usize,
    key_max: u64,
    min: u64,
    shift: u32,
    cells: Vec<u16>,
    steps: u32,
}

impl Splitters {
    /// About `buckets` buckets that share the sample evenly. A key that would fill buckets gets its own. If keys,
    /// or sampled keys, are not all equal, no bucket has all of them unless it has a single key.
    pub fn of_sample(sample: &mut [u64], buckets: usize, key_max: u64) -> Splitters {
        sample.sort_unstable();
        let buckets = buckets.clamp(BUCKETS_MIN, BUCKETS_MAX / 2);
        let (mut keys, mut has_own) = (Vec::with_capacity(buckets), false);
        let mut last = None;
        for part in 1..buckets {
            let Some(&key) = sample.get(part * sample.len() / buckets) else { break };
            match last == Some(key) {
                false => keys.push(key),
                // A second time: the bucket that begins here has many of this key, and has it alone.
                true if key < key_max => {
                    has_own = true;
                    keys.push(key + 1);
                }
                true => has_own = true,
            }
            last = Some(key);
        }
        keys.sort_unstable();
        keys.dedup();
        // Nothing is below the first.
        keys.retain(|key| *key > 0);
        let min = sample.first().copied().unwrap_or(0);
        let range = sample.last().copied().unwrap_or(0) - min;
        let cell_bits = buckets.ilog2() + 1 + CELL_BITS;
        let shift = (u64::BITS - range.leading_zeros()).saturating_sub(cell_bits);
        if !has_own && let Some(rounded) = rounded(&keys, min, shift, sample) {
            keys = rounded;
        }
        Splitters::new(keys, key_max, min, (shift, (range >> shift) as usize + 1))
    }

    fn new(mut keys: Vec<u64>, key_max: u64, min: u64, (shift, cells): (u32, usize)) -> Splitters {
        let buckets = keys.len() + 1;
        let start = |cell: usize| min.checked_add((cell as u64) << shift);
        let first = |cell| match (cell, start(cell)) {
            (0, _) => 0,
            (_, Some(start)) => keys.partition_point(|key| *key <= start),
            (_, None) => keys.len(),
        };
        let end = |cell| match (cell + 1 == cells, start(cell + 1)) {
            (false, Some(end)) => keys.partition_point(|key| *key < end),
            _ => keys.len(),
        };
        let most = (0..cells).map(|cell| end(cell) - first(cell)).max().unwrap_or(0);
        let cells = (0..cells).map(|cell| first(cell) as u16).collect();
        let steps = usize::BITS - most.leading_zeros();
        keys.resize(keys.len() + (1 << steps), u64::MAX);
        Splitters { keys, buckets, key_max, min, shift, cells, steps }
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.buckets
    }

    /// Whether the bucket can contain only one key.
    pub fn is_single(&self, bucket: usize) -> bool {
        let first = if bucket == 0 { 0 } else { self.keys[bucket - 1] };
        let last = if bucket + 1 == self.buckets { self.key_max } else { self.keys[bucket] - 1 };
        first == last
    }

    /// Whether the table alone suffices.
    pub fn is_table(&self) -> bool {
        self.steps == 0
    }

    /// The buckets of keys. `SEARCHES` must be the opposite of [`is_table`](Self::is_table).
    #[inline(always)]
    pub fn buckets_of<const SEARCHES: bool>(&self, keys: &[u64; AT_ONCE]) -> [u16; AT_ONCE] {
        let mut buckets = keys.map(|key| {
            let cell = (key.saturating_sub(self.min) >> self.shift) as usize;
            usize::from(self.cells[cell.min(self.cells.len() - 1)])
        });
        if SEARCHES {
            // Side by side, because each step waits for the one before; and without branches, of which half would
            // be guessed wrong. The padding is as long as all steps together.
            for step in (0..self.steps).rev() {
                let more = 1 << step;
                for (bucket, key) in buckets.iter_mut().zip(keys) {
                    // SAFETY: all steps together are one less than the padding is long, and the first bucket of a cell
                    // is no more than there are splitters before the padding.
                    let first = unsafe { *self.keys.get_unchecked(*bucket + more - 1) };
                    *bucket += std::hint::select_unpredictable(first <= *key, more, 0);
                }
            }
            // Behind the last splitter only padding was passed.
            buckets = buckets.map(|bucket| bucket.min(self.buckets - 1));
        }
        buckets.map(|bucket| bucket as u16)
    }
}

/// Splitters at cell borders, if these split the sample nearly as evenly.
fn rounded(keys: &[u64], min: u64, shift: u32, sample: &[u64]) -> Option<Vec<u64>> {
    let start = |key: &u64| min + (key.saturating_sub(min) >> shift << shift);
    let mut starts: Vec<u64> = keys.iter().map(start).filter(|start| *start > min).collect();
    starts.dedup();
    let even = sample.len() / (keys.len() + 1);
    let mut before = 0;
    let mut largest = 0;
    for start in &starts {
        let at = sample.partition_point(|key| key < start);
        largest = largest.max(at - before);
        before = at;
    }
    largest = largest.max(sample.len() - before);
    (starts.len() * 4 >= keys.len() * 3 && largest <= 2 * even + 8).then_some(starts)
}

#[cfg(test)]
mod tests {
    use headrace_io::random::Random;

    use super::*;

    fn check(mut sample: Vec<u64>, buckets: usize, key_max: u64, probes: &[u64]) -> Splitters {
        let splitters = Splitters::of_sample(&mut sample, buckets, key_max);
        let bucket = |key| bucket(&splitters, key);
        let mut keys: Vec<u64> =
            sample.iter().flat_map(|key| [*key, key.saturating_sub(1)]).collect();
        keys.extend(sample.iter().map(|key| key.saturating_add(1).min(key_max)));
        keys.extend(probes.iter().chain(&[0, key_max]));
        keys.sort_unstable();
        for key in keys {
            let expected =
                splitters.keys[..splitters.buckets - 1].partition_point(|first| *first <= key);
            assert_eq!(usize::from(bucket(key)), expected, "key {key}");
        }
        splitters
    }

    fn bucket(splitters: &Splitters, key: u64) -> u16 {
        let keys = [0, key, 5, u64::MAX, 1 << 40, 0, 1, 2];
        match splitters.is_table() {
            true => splitters.buckets_of::<false>(&keys)[1],
            false => splitters.buckets_of::<true>(&keys)[1],
        }
    }

    fn random(seed: u64) -> impl Iterator<Item = u64> {
        let mut random = Random(seed);
        std::iter::repeat_with(move || random.draw())
    }

    #[test]
    fn every_key_is_in_the_bucket_that_its_splitters_say() {
        let probes: Vec<u64> = random(9).take(1000).collect();
        let even = check(random(1).take(20_000).collect(), 512, u64::MAX, &probes);
        assert!(even.is_table() && even.buckets() > 380, "{} buckets", even.buckets());
        let lumpy = random(2).take(5000).map(|key| (key % 7) << 60 | key >> 40).collect();
        assert!(!check(lumpy, 300, u64::MAX, &probes).is_table());
        for few in [vec![], vec![0], vec![5, 5, 5, 5], vec![u64::MAX; 9], vec![0, u64::MAX]] {
            check(few, 16, u64::MAX, &probes);
        }
        let narrow = random(3).take(900).map(|key| key % 100).collect();
        check(narrow, 4096, u64::from(u32::MAX), &[7, 99, 100, u64::from(u32::MAX)]);
    }

    #[test]
    fn a_key_that_is_most_of_the_sample_has_a_bucket_of_its_own() {
        for (key, key_max) in [(0, 99), (50, 99), (99, 99), (u64::MAX, u64::MAX)] {
            let sample = vec![key; 1000];
            let splitters = check(sample, 8, key_max, &[]);
            let own = usize::from(bucket(&splitters, key));
            assert!(splitters.is_single(own), "{key}");
            assert_eq!((0..splitters.buckets()).filter(|b| splitters.is_single(*b)).count(), 1);
        }
    }

    #[test]
    fn two_sampled_keys_are_never_left_in_one_bucket_with_all_others() {
        for heavy in 0..=20 {
            let sample = (0..20).map(|i| if i < heavy { 3 } else { 4 + i }).collect();
            let splitters = check(sample, 4, u64::MAX, &[]);
            let first = bucket(&splitters, 3);
            assert!(heavy == 0 || heavy == 20 || first != bucket(&splitters, 23), "{heavy}");
        }
    }
}
