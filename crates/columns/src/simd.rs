//! The few loops that are worth vector instructions by hand, and a way to have ordinary loops
//! compiled for them. A [`Tier`] says for which instructions; every tier gives the same answers,
//! and tests compare each with `portable`.
//!
//! Rows are selected as bits (bit `i % 64` of word `i / 64` is row `i`) while many are alive, and
//! as ascending positions once few are.
//!
//! `vpgatherdd` of a bitmap takes 0.5 ns a row on a Xeon with AMX, half of what scalars take; a bitmap of up to
//! 2,048 keys is looked up in registers; gathers on AMD were slower than scalars.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod input;
mod portable;

use std::sync::LazyLock;

pub use input::{Members, Test, U24};
pub use portable::keep_positions;

/// Instructions that kernels are run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    // Private: a tier is only ever made of what the machine has.
    level: Level,
    /// Whether loads from addresses in a vector are worth it: AMD's microcode and the mitigation
    /// of Gather Data Sampling make them slower than loads one by one.
    gathers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Runs a kernel of the tier's module.
macro_rules! of_tier {
    ($tier:expr, $kernel:ident($($argument:expr),*)) => {
        match $tier.level {
            Level::Portable => portable::$kernel($($argument),*),
            // SAFETY: a tier is only made where its instructions were detected.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2::$kernel($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512::$kernel($($argument),*) },
        }
    };
}

impl Tier {
    /// The fastest of this machine.
    pub fn best() -> Self {
        static BEST: LazyLock<Tier> = LazyLock::new(|| {
            let level = levels().last().copied().unwrap_or(Level::Portable);
            Tier { level, gathers: level != Level::Portable && has_fast_gathers() }
        });
        *BEST
    }

    /// All that this machine can run, slow ones included.
    pub fn all() -> Vec<Self> {
        let tiers = levels()
            .into_iter()
            .flat_map(|level| [false, true].map(|gathers| Self { level, gathers }));
        tiers.filter(|tier| tier.level != Level::Portable || !tier.gathers).collect()
    }

    /// Clears the bits of rows whose value fails the test.
    pub fn keep_bits(self, test: &Test<'_>, column: &[i32], words: &mut [u64]) {
        assert_eq!(words.len(), column.len().div_ceil(64), "one bit a row");
        match test {
            Test::Member(members) if !self.gathers && !self.holds(members) => {
                of_tier!(self, look_up(members, column, words));
            }
            _ => of_tier!(self, keep_bits(test, column, words)),
        }
    }

    /// Whether a set's bitmap fits registers.
    fn holds(self, members: &Members<'_>) -> bool {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => members.domain <= avx512::TABLE_BITS,
            _ => false,
        }
    }

    /// Moves the positions whose value passes the test to the front; answers how many.
    ///
    /// # Panics
    /// If a position lies outside the column.
    pub fn keep_positions(self, test: &Test<'_>, column: &[i32], positions: &mut [u32]) -> usize {
        // Vector instructions take indices as signed.
        if !self.gathers || i32::try_from(column.len()).is_err() {
            return portable::keep_positions(test, column, positions);
        }
        of_tier!(self, keep_positions(test, column, positions))
    }

    /// Appends `first + i` for each bit `i` that is set, ascending.
    pub fn push_positions(self, words: &[u64], first: u32, positions: &mut Vec<u32>) {
        of_tier!(self, push_positions(words, first, positions));
    }

    /// Sets one bit a byte that is not 0.
    fn pack(self, bytes: &[u8], words: &mut Vec<u64>) {
        words.extend(bytes.chunks(64).map(|bytes| of_tier!(self, pack(bytes))));
    }
}

fn levels() -> Vec<Level> {
    #[allow(unused_mut)]
    let mut levels = vec![Level::Portable];
    #[cfg(target_arch = "x86_64")]
    {
        let bits = is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt");
        if bits && is_x86_feature_detected!("avx2") {
            levels.push(Level::Avx2);
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
            {
                levels.push(Level::Avx512);
            }
        }
    }
    levels
}

/// Intel from Alder Lake and Sapphire Rapids on, which are those with AVX-VNNI.
fn has_fast_gathers() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        let is_intel = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened()
            == b"GenuineIntel";
        is_intel && is_x86_feature_detected!("avxvnni")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// An integer that lies in at most 32 bits.
pub trait Widen: Copy + Into<i32> {
    /// Sets `output[i]` to `input[i]`, as far as there are both.
    fn widen(_tier: Tier, input: &[Self], output: &mut [i32]) {
        map_into(input, output, Into::into);
    }
}

impl Widen for i8 {}
impl Widen for u8 {}
impl Widen for i16 {}
impl Widen for u16 {}
impl Widen for i32 {}

impl Widen for U24 {
    fn widen(tier: Tier, input: &[Self], output: &mut [i32]) {
        of_tier!(tier, widen_24(input, output));
    }
}

/// Asks for a value, soon to be read.
#[inline(always)]
pub fn prefetch<T>(value: *const T) {
    // SAFETY: prefetching an address never faults.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(value.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Asks for the values of these rows.
pub fn prefetch_rows<T>(values: &[T], rows: &[u32]) {
    rows.iter().for_each(|&row| prefetch(values.as_ptr().wrapping_add(row as usize)));
}

/// Asks for the first cache lines of each page that is about to be read: the processor's own
/// prefetching of what is read in order ends with a page.
pub fn prefetch_pages<T>(values: &[T]) {
    const PAGE_BYTES: usize = 4096;
    const LINE_BYTES: usize = 64;
    const LINES: usize = 8;
    for page in values.chunks(PAGE_BYTES / size_of::<T>()) {
        let lines = page.chunks(LINE_BYTES / size_of::<T>());
        lines.take(LINES).for_each(|line| prefetch(line.as_ptr()));
    }
}

/// Sets `output[i] = f(input[i])`, compiled for the vector instructions at hand.
#[inline(always)]
pub(crate) fn map_into<T: Copy, U>(input: &[T], output: &mut [U], f: impl Fn(T) -> U) {
    of_tier!(Tier::best(), map_into(input, output, f))
}

/// Positions of the bytes that are not 0, ascending.
pub fn positions(mask: &[u8]) -> Vec<u32> {
    let (tier, mut words) = (Tier::best(), Vec::with_capacity(mask.len().div_ceil(64)));
    tier.pack(mask, &mut words);
    let mut positions = Vec::new();
    tier.push_positions(&words, 0, &mut positions);
    positions
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn random(seed: &mut u64) -> u64 {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    fn lengths() -> impl Iterator<Item = usize> {
        (0..200).chain([1000, 4095, 4096])
    }

    /// Of `length` bits, about `percent` in a hundred.
    fn bits(seed: &mut u64, length: usize, percent: u64) -> Vec<u64> {
        let mut words = vec![0; length.div_ceil(64)];
        for i in 0..length {
            words[i / 64] |= u64::from(random(seed) % 100 < percent) << (i % 64);
        }
        words
    }

    fn is_set(words: &[u64], i: usize) -> bool {
        words[i / 64] >> (i % 64) & 1 != 0
    }

    /// Conditions at the edges of 32 bits and in the middle, each with what it means.
    fn with_tests(seed: &mut u64, mut f: impl FnMut(&Test<'_>, &dyn Fn(i32) -> bool, i32)) {
        for (low, high) in [(1, 3), (-5, 90), (i32::MIN, -7), (7, i32::MAX), (i32::MIN, i32::MAX)] {
            let width = high.wrapping_sub(low) as u32;
            f(&Test::Between { low, width }, &|v| (low..=high).contains(&v), low);
        }
        for (base, domain) in [
            (1, 1),
            (1, 100),
            (-40, 63),
            (-40, 64),
            (19_920_101, 61_131),
            (i32::MIN, 1000),
            (i32::MAX - 999, 1000),
            (-3, 2048),
            (-3, 2049),
        ] {
            for percent in [4, 50, 100] {
                let present = bits(seed, domain, percent);
                let members = Members::new(base.into(), domain as u64, &present).unwrap();
                let holds = |v: i32| {
                    let entry = i64::from(v) - i64::from(base);
                    (0..domain as i64).contains(&entry) && is_set(&present, entry as usize)
                };
                f(&Test::Member(members), &holds, base);
            }
        }
    }

    /// Values near `around`, and the extremes.
    fn values(seed: &mut u64, length: usize, around: i32) -> Vec<i32> {
        let mut value = || match random(seed) % 16 {
            0 => i32::MIN,
            1 => i32::MAX,
            2 => around.wrapping_sub(1 + (random(seed) % 50) as i32),
            n if n < 6 => around.wrapping_add((random(seed) % 60_000) as i32),
            _ => around.wrapping_add((random(seed) % 120) as i32),
        };
        (0..length).map(|_| value()).collect()
    }

    #[test]
    fn every_tier_keeps_the_same_rows() {
        let mut seed = 1;
        for length in lengths() {
            let percent = [0, 2, 50, 100][length % 4];
            let alive = bits(&mut seed, length, percent);
            let mut column_seed = seed;
            with_tests(&mut seed, |test, holds, around| {
                let column = values(&mut column_seed, length, around);
                let kept: Vec<u32> = (0..length)
                    .filter(|&i| is_set(&alive, i) && holds(column[i]))
                    .map(|i| i as u32)
                    .collect();
                for tier in Tier::all() {
                    let mut words = alive.clone();
                    tier.keep_bits(test, &column, &mut words);
                    let mut found = vec![7];
                    tier.push_positions(&words, 0, &mut found);
                    assert_eq!(found[1..], kept, "{tier:?} {test:?} bits of {length}");
                    let mut found = vec![];
                    tier.push_positions(&alive, 0, &mut found);
                    let count = tier.keep_positions(test, &column, &mut found);
                    assert_eq!(found[..count], kept, "{tier:?} {test:?} positions of {length}");
                }
            });
        }
    }

    #[test]
    fn every_tier_widens_alike() {
        let mut seed = 3;
        for length in lengths() {
            let input: Vec<U24> =
                (0..length).map(|_| U24([0; 3].map(|_: u8| random(&mut seed) as u8))).collect();
            let expected: Vec<i32> = input.iter().map(|&value| value.into()).collect();
            for tier in Tier::all() {
                let mut output = vec![-1; length + 1];
                U24::widen(tier, &input, &mut output);
                assert_eq!(output.pop(), Some(-1));
                assert_eq!(output, expected, "{tier:?} of {length}");
            }
        }
    }

    #[test]
    fn every_tier_finds_the_bytes_that_are_not_0() {
        let mut seed = 2;
        for length in lengths() {
            for density in [0, 1, 50, 100] {
                let mut byte = || match random(&mut seed) % 100 < density {
                    true => [1, 2, 128, 255][(random(&mut seed) % 4) as usize],
                    false => 0,
                };
                let mask: Vec<u8> = (0..length).map(|_| byte()).collect();
                let expected: Vec<u32> =
                    (0..length as u32).filter(|&i| mask[i as usize] != 0).collect();
                assert_eq!(positions(&mask), expected);
                for tier in Tier::all() {
                    let (mut words, mut found) = (vec![], vec![]);
                    tier.pack(&mask, &mut words);
                    tier.push_positions(&words, 3, &mut found);
                    found.iter_mut().for_each(|position| *position -= 3);
                    assert_eq!(found, expected, "{tier:?} of {length}");
                }
            }
        }
    }

    #[test]
    fn positions_outside_the_column_are_refused() {
        let test = Test::Between { low: 0, width: 9 };
        for tier in Tier::all() {
            for place in [0, 7, 8, 20] {
                let mut positions = vec![2; 21];
                positions[place] = 3;
                let keep = || tier.keep_positions(&test, &[1, 2, 3], &mut positions);
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(keep));
                assert!(outcome.is_err(), "{tier:?} at {place}");
            }
        }
    }

    #[test]
    fn sets_lie_within_32_bits_and_their_words() {
        let words = [u64::MAX; 2];
        assert!(Members::new(5, 128, &words).is_some());
        assert!(Members::new(5, 129, &words).is_none());
        assert!(Members::new(5, 0, &words).is_none());
        let high = i64::from(i32::MAX);
        assert!(Members::new(high, 1, &words).is_some());
        assert!(Members::new(high, 2, &words).is_none());
        assert!(Members::new(i64::from(i32::MIN) - 1, 2, &words).is_none());
        assert!(Members::new(i64::MAX, 2, &words).is_none());
    }
}
