//! Random numbers by position: the n-th draw of a stream is computed from n alone.
//!
//! A generator that must start anywhere, on any thread, cannot carry a state from row to row.
//! SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014) is a
//! mixing function applied to an arithmetic progression, so its n-th output needs no
//! predecessor. Every attribute group of every table has its own [`Stream`], and the position in
//! it is the row (or order and line) number.

use headrace_io::random::{GAMMA, mixed};

/// The purpose of a stream of draws. The discriminants are part of the data: changing one changes
/// every value drawn from it.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Purpose {
    OrderAttributes = 1,
    OrderCustomer = 2,
    LinePart = 3,
    LineSupplier = 4,
    LineAttributes = 5,
    CustomerAttributes = 6,
    CustomerPhone = 7,
    CustomerAddress = 8,
    SupplierAttributes = 9,
    SupplierPhone = 10,
    SupplierAddress = 11,
    PartAttributes = 12,
    PartName = 13,
    Hit = 14,
    HitUser = 15,
    HitTitle = 16,
    HitPhrase = 17,
    Compound = 18,
    CompoundFamily = 19,
    JoinLarge = 20,
    JoinSmall = 21,
}

/// A sequence of independent 64-bit draws with random access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    origin: u64,
}

impl Stream {
    pub(crate) const fn new(seed: u64, purpose: Purpose) -> Self {
        Self {
            origin: mixed(mixed(seed.wrapping_add(GAMMA)) ^ (purpose as u64).wrapping_mul(GAMMA)),
        }
    }

    /// The draw at `position`, uniform over all 64-bit words.
    #[inline]
    pub(crate) const fn draw(self, position: u64) -> u64 {
        mixed(self.origin.wrapping_add(position.wrapping_mul(GAMMA)))
    }

    /// The draw at `position`, split into small numbers.
    #[inline]
    pub(crate) const fn digits(self, position: u64) -> Digits {
        Digits::new(self.draw(position))
    }
}

/// A draw as a binary fraction in [0, 1), from which numbers are taken one after the other:
/// multiplying by n moves a uniform number below n before the point and leaves a uniform fraction
/// after it. Each step costs log2(n) bits; the rest bounds the bias of the last number, so the
/// product of all ranges taken from one draw is kept below 2^44.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digits(u64);

impl Digits {
    /// Of a whole draw.
    #[inline]
    pub(crate) const fn new(draw: u64) -> Self {
        Self(draw)
    }

    /// A number in 0..n.
    #[inline]
    pub(crate) const fn below(&mut self, n: u32) -> u32 {
        let product = self.0 as u128 * n as u128;
        self.0 = product as u64;
        (product >> 64) as u32
    }
}

/// A number in 0..n from a draw x, as a fraction: n·x². A few numbers are frequent: 0 has a share
/// of n^(-1/2), and the share of k decreases with k^(-1/2).
#[inline]
pub(crate) const fn skewed(draw: u64, n: u64) -> u64 {
    scaled(scaled(draw, draw), n)
}

/// Like [`skewed`], steeper: n·x³, so 0 has a share of n^(-1/3).
#[inline]
pub(crate) const fn steep(draw: u64, n: u64) -> u64 {
    scaled(scaled(scaled(draw, draw), draw), n)
}

/// n times the fraction.
#[inline]
const fn scaled(fraction: u64, n: u64) -> u64 {
    ((fraction as u128 * n as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_seeds_differ() {
        let draws: Vec<u64> = [
            Stream::new(1, Purpose::LinePart),
            Stream::new(1, Purpose::LineSupplier),
            Stream::new(2, Purpose::LinePart),
            Stream::new(0, Purpose::LinePart),
        ]
        .iter()
        .map(|stream| stream.draw(0))
        .collect();
        for (i, a) in draws.iter().enumerate() {
            assert!(draws[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn skewed_numbers_have_their_shares() {
        let stream = Stream::new(5, Purpose::Hit);
        let draws = 1 << 16;
        let share = |number: fn(u64, u64) -> u64| {
            let numbers = (0..draws).map(|position| number(stream.draw(position), 64));
            numbers.filter(|&number| number == 0).count() as f64 / draws as f64
        };
        assert!((share(skewed) - 0.125).abs() < 0.01);
        assert!((share(steep) - 0.25).abs() < 0.01);
        assert_eq!((skewed(u64::MAX, 64), steep(u64::MAX, 64), skewed(0, 64)), (63, 63, 0));
    }

    #[test]
    fn digits_are_uniform_and_independent() {
        // A chi-squared test over the joint distribution of two digits, 5 x 7 cells.
        let stream = Stream::new(7, Purpose::LineAttributes);
        let draws = 350_000_u64;
        let mut cells = [[0_u32; 7]; 5];
        for position in 0..draws {
            let mut digits = stream.digits(position);
            let first = digits.below(5);
            let second = digits.below(7);
            cells[first as usize][second as usize] += 1;
        }
        let expected = draws as f64 / 35.0;
        let chi_squared: f64 =
            cells.iter().flatten().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        // 34 degrees of freedom: 0.1% quantile at 65.
        assert!(chi_squared < 65.0, "chi squared {chi_squared}");
    }
}
