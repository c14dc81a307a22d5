//! Files of keys.

use std::path::{Path, PathBuf};

use headrace_io::random::drawn_at;

use super::fill::{Filled, fill, on_cores};
use crate::files::check_outputs;
use crate::{Number, NumberType, OocError, Options, Report, Result};

/// The order of a file's keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// Ascending.
    #[default]
    Sorted,
    /// Descending.
    Reversed,
    /// Random bits in random order.
    Random,
    /// Small numbers in random order with a Zipf distribution: the n-th most frequent is about 1/n as
    /// frequent as the first.
    Zipf,
}

headrace_io::named!(
    KeyOrder, "order", Sorted => "sorted", Reversed => "reversed", Random => "random", Zipf => "zipf",
);

/// One or two files of keys.
#[derive(Debug, Clone)]
pub struct KeysJob {
    /// Path and number of keys of each file.
    pub outputs: Vec<(PathBuf, u64)>,
    /// The type of the keys.
    pub number: NumberType,
    /// Their order.
    pub order: KeyOrder,
    /// For sorted files: the share of the smaller file's keys that the larger one also has.
    pub selectivity: f64,
    /// For sorted files: how unevenly the smaller file lies among the keys of the larger one, from 0,
    /// evenly, to below 1, almost all of it at the beginning.
    pub skew: f64,
    /// For sorted and reversed files: how often each key occurs.
    pub repeats: u64,
    /// Another seed makes other keys of the same distribution.
    pub seed: u64,
}

/// Writes the files.
///
/// # Errors
/// Impossible distributions; errors of writing.
pub fn keys(job: &KeysJob, options: &Options) -> Result<Report> {
    match job.number {
        NumberType::I32 => of_type(job, options, |place| (place as i64 - (1 << 31)) as i32),
        NumberType::U32 => of_type(job, options, |place| place as u32),
        NumberType::I64 => of_type(job, options, |place| (place ^ (1 << 63)).cast_signed()),
        NumberType::U64 => of_type(job, options, |place| place),
        NumberType::F32 => of_type(job, options, |place| place as f32 - (1 << 23) as f32),
        NumberType::F64 => of_type(job, options, |place| place as f64 - (1u64 << 52) as f64),
        NumberType::Bf16 => Err(OocError::usage("bf16 is no type of keys", "take f32")),
    }
}

/// Distinct positions for the keys of a type, so that each position is one key.
fn places(number: NumberType) -> u64 {
    match number {
        NumberType::F32 => 1 << 24,
        NumberType::F64 => 1 << 53,
        _ if number.bytes() == 4 => 1 << 32,
        _ => u64::MAX,
    }
}

fn of_type<K: Number>(job: &KeysJob, options: &Options, key: fn(u64) -> K) -> Result<Report> {
    let shape = Shape::of(job)?;
    let file = |(path, keys): &(PathBuf, u64)| {
        let bytes = keys.checked_mul(size_of::<K>() as u64).filter(|bytes| *bytes < 1 << 62);
        let what = || format!("{keys} keys are more than a file can have");
        let bytes = bytes.ok_or_else(|| OocError::usage(what(), "take fewer"))?;
        Ok(Filled { path: path.clone(), bytes })
    };
    let files: Vec<Filled> = job.outputs.iter().map(file).collect::<Result<_>>()?;
    let paths: Vec<&Path> = files.iter().map(|file| file.path.as_path()).collect();
    check_outputs(&paths, &[])?;
    fill(&files, options, &on_cores(options)?, |file, offset, bytes| {
        let first = offset / size_of::<K>() as u64;
        // Windows begin with a page.
        let into: &mut [K] = bytemuck::cast_slice_mut(bytes);
        for (number, into) in into.iter_mut().enumerate() {
            *into = key(shape.place(file, first + number as u64));
        }
    })
}

/// The position of the keys in the key space.
struct Shape<'a> {
    job: &'a KeysJob,
    /// Distinct keys of the largest file.
    span: u64,
    /// Maximum distance between neighbouring positions.
    gap: u64,
    places: u64,
}

impl<'a> Shape<'a> {
    fn of(job: &'a KeysJob) -> Result<Self> {
        let is_share = |value: f64| (0.0..=1.0).contains(&value);
        if !is_share(job.selectivity) || !is_share(job.skew) || job.skew == 1.0 || job.repeats == 0
        {
            let what = format!(
                "selectivity {}, skew {}, repeats {}: there is no such shape",
                job.selectivity, job.skew, job.repeats
            );
            let remedy =
                "selectivity is a share from 0 to 1, skew from 0 to below 1, repeats 1 or more";
            return Err(OocError::usage(what, remedy));
        }
        let different = |keys: u64| keys.div_ceil(job.repeats);
        let span = job.outputs.iter().map(|(_, keys)| different(*keys)).max().unwrap_or(0);
        let (places, wanted) = (places(job.number), span.saturating_mul(2).saturating_add(2));
        if wanted > places && matches!(job.order, KeyOrder::Sorted | KeyOrder::Reversed) {
            let what = format!("{} has no {span} different keys to choose from", job.number);
            return Err(OocError::usage(what, "take a wider type, fewer keys, or repeats"));
        }
        Ok(Shape { job, span, gap: (places / wanted.max(1)).max(1), places })
    }

    /// The position of the file's key.
    fn place(&self, file: usize, number: u64) -> u64 {
        let seed = self.job.seed;
        let keys = self.job.outputs[file].1;
        match self.job.order {
            KeyOrder::Sorted => self.sorted(file, number / self.job.repeats),
            KeyOrder::Reversed => self.sorted(file, (keys - 1 - number) / self.job.repeats),
            // A file of its own each.
            KeyOrder::Random => {
                let bits = drawn_at(seed.wrapping_add(file as u64), number);
                if self.places == u64::MAX { bits } else { bits % self.places }
            }
            KeyOrder::Zipf => {
                // The inverse of the distribution's integral: e^(u ln n).
                let share =
                    drawn_at(seed.wrapping_add(file as u64), number) as f64 / u64::MAX as f64;
                ((share * (keys.max(2) as f64).ln()).exp() as u64 - 1).min(self.places - 1)
            }
        }
    }

    /// The position of a file's n-th distinct key: in the n-th of as many stretches as the largest file
    /// has keys, in its first half if both files have it, so that a share of the keys is common.
    fn sorted(&self, file: usize, different: u64) -> u64 {
        let own = self.job.outputs[file].1.div_ceil(self.job.repeats);
        let stretch = if own == self.span {
            different
        } else {
            let at = different as f64 / own as f64;
            different + ((self.span - own) as f64 * at.powf(1.0 / (1.0 - self.job.skew))) as u64
        };
        let is_common = || {
            let share = drawn_at(self.job.seed ^ 0x5eed, stretch) as f64 / u64::MAX as f64;
            share < self.job.selectivity || self.job.selectivity == 1.0
        };
        let half = 2 * stretch + u64::from(file == 1 && !is_common());
        half * self.gap + drawn_at(self.job.seed, half) % self.gap
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn made(order: KeyOrder, counts: &[u64], change: impl Fn(&mut KeysJob)) -> Vec<Vec<i64>> {
        let folder = tempfile::tempdir().unwrap();
        let output =
            |(number, keys): (usize, &u64)| (folder.path().join(number.to_string()), *keys);
        let mut job = KeysJob {
            outputs: counts.iter().enumerate().map(output).collect(),
            number: NumberType::I64,
            order,
            selectivity: 0.25,
            skew: 0.0,
            repeats: 1,
            seed: 1,
        };
        change(&mut job);
        keys(&job, &Options::default()).unwrap();
        let read = |(path, _): &(PathBuf, u64)| std::fs::read(path).unwrap();
        job.outputs.iter().map(|output| bytemuck::pod_collect_to_vec(&read(output))).collect()
    }

    #[test]
    fn sorted_lists_share_as_many_keys_as_they_were_to() {
        for (counts, skew) in
            [([100_000, 100_000], 0.0), ([100_000, 9_000], 0.0), ([7000, 90_000], 0.9)]
        {
            let lists = made(KeyOrder::Sorted, &counts, |job| job.skew = skew);
            assert!(lists.iter().all(|list| list.windows(2).all(|pair| pair[0] < pair[1])));
            let common = lists[0].iter().filter(|key| lists[1].binary_search(key).is_ok()).count();
            let share = common as f64 / counts[0].min(counts[1]) as f64;
            assert!((share - 0.25).abs() < 0.02, "{share} of {counts:?}");
        }
    }

    #[test]
    fn keys_are_repeated_and_reversed() {
        let list = &made(KeyOrder::Reversed, &[10_001], |job| job.repeats = 10)[0];
        assert!(list.windows(2).all(|pair| pair[0] >= pair[1]));
        let mut different = list.clone();
        different.dedup();
        assert_eq!((list.len(), different.len()), (10_001, 1001));
    }

    #[test]
    fn random_and_zipf_are_what_they_say() {
        let random = &made(KeyOrder::Random, &[50_000], |_| ())[0];
        let ascents = random.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((24_000..26_000).contains(&ascents));
        let mut zipf = made(KeyOrder::Zipf, &[50_000], |_| ()).remove(0);
        zipf.sort_unstable();
        let times = |key: i64| zipf.iter().filter(|other| **other == key).count() as f64;
        let (first, tenth) = (times(zipf[0]), times(zipf[0] + 9));
        assert!((5.0..14.0).contains(&(first / tenth)), "{first} and {tenth}");
    }

    #[test]
    fn shapes_that_there_are_not_are_refused() {
        let job = KeysJob {
            outputs: vec![("out".into(), 1 << 33)],
            number: NumberType::I32,
            order: KeyOrder::Sorted,
            selectivity: 0.5,
            skew: 0.0,
            repeats: 1,
            seed: 0,
        };
        let told = keys(&job, &Options::default()).unwrap_err().to_string();
        assert!(told.contains("no 8589934592 different keys"), "{told}");
        let job = KeysJob { selectivity: 2.0, ..job };
        assert!(matches!(keys(&job, &Options::default()), Err(OocError::Usage { .. })));
    }
}
