//! How floats spread around their mean.

/// The number of some floats, their sum, and the sum of their squared differences from their mean: what
/// two parts of a group must tell of themselves to be put together without losing digits.
///
/// The squares are NaN once a value is not finite, or infinite once finite values or squares overflow, whichever
/// comes first. Of two parts an overflow outweighs a NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    count: u64,
    sum: f64,
    squares: f64,
}

/// Sums that are kept beside each other, so that additions need not wait for one another.
const LANES: usize = 8;

impl Spread {
    /// That of one value.
    #[inline(always)]
    pub fn one(value: f64) -> Self {
        let squares = if value.is_finite() { 0.0 } else { f64::NAN };
        Self { count: 1, sum: value, squares }
    }

    /// That of any values, in two passes: their mean, then the squares.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let sum = total(values, |value| value);
        let mean = sum / count;
        // What the mean's rounding leaves of the differences, which is 0 of the true mean.
        let rest = total(values, |value| value - mean);
        let squares = total(values, |value| (value - mean) * (value - mean)) - rest * rest / count;
        if squares.is_finite() {
            return Self { count: values.len() as u64, sum, squares: squares.max(0.0) };
        }
        // No values, or some that are not finite, or too large.
        let mut spread = Self::default();
        values.iter().for_each(|&value| spread.merge(&Self::one(value)));
        spread
    }

    /// Takes in other values (Chan, Golub and LeVeque 1979; of one value: Youngs and Cramer 1971).
    #[inline(always)]
    pub fn merge(&mut self, other: &Self) {
        if self.count == 0 || other.count == 0 {
            *self = if self.count == 0 { *other } else { *self };
            return;
        }
        let (mine, others) = (self.count as f64, other.count as f64);
        let sum = self.sum + other.sum;
        let difference = self.sum / mine - other.sum / others;
        let between = mine * others / (mine + others) * difference * difference;
        let squares = self.squares + other.squares + between;
        let is_finite = self.squares.is_finite() && other.squares.is_finite();
        let overflows = match is_finite {
            true => !(sum.is_finite() && squares.is_finite()),
            false => self.squares.is_infinite() || other.squares.is_infinite(),
        };
        let squares = if overflows { f64::INFINITY } else { squares };
        *self = Self { count: self.count.wrapping_add(other.count), sum, squares };
    }

    /// The sum of squared differences from the mean.
    pub fn squared_deviations(&self) -> f64 {
        self.squares
    }

    /// How it travels: little-endian, count, sum, squares.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sum.to_le_bytes());
        bytes[16..].copy_from_slice(&self.squares.to_le_bytes());
        bytes
    }

    /// The inverse of [`Self::to_bytes`].
    pub fn of_bytes(bytes: &[u8; 24]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let [count, sum, squares] = [words[0], words[1], words[2]];
        let (sum, squares) = (f64::from_le_bytes(sum), f64::from_le_bytes(squares));
        Self { count: u64::from_le_bytes(count), sum, squares }
    }
}

/// The sum of what `term` makes of each value.
fn total(values: &[f64], term: impl Fn(f64) -> f64) -> f64 {
    let (rows, rest) = values.as_chunks::<LANES>();
    let mut totals = [0.0; LANES];
    for row in rows {
        for (total, &value) in totals.iter_mut().zip(row) {
            *total += term(value);
        }
    }
    totals.iter().sum::<f64>() + rest.iter().map(|&value| term(value)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(values: &[f64]) -> f64 {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.iter().map(|value| (value - mean) * (value - mean)).sum()
    }

    /// One by one.
    fn folded(values: &[f64]) -> Spread {
        let mut spread = Spread::default();
        values.iter().for_each(|&value| spread.merge(&Spread::one(value)));
        spread
    }

    /// Of parts of `rows` values.
    fn merged(values: &[f64], rows: usize) -> Spread {
        let mut spread = Spread::default();
        values.chunks(rows).for_each(|part| spread.merge(&Spread::of(part)));
        spread
    }

    fn ways(values: &[f64]) -> [f64; 5] {
        let reversed: Vec<f64> = values.iter().rev().copied().collect();
        let spreads = [
            Spread::of(values),
            folded(values),
            merged(values, 7),
            merged(values, 1000),
            merged(&reversed, 3),
        ];
        assert!(spreads.iter().all(|spread| spread.count == values.len() as u64));
        spreads.map(|spread| spread.squared_deviations())
    }

    #[test]
    fn small_differences_of_large_values_are_kept() {
        for (offset, tolerance) in [(0.0, 1e-13), (-3.5e3, 1e-12), (1e9, 1e-6), (1e12, 1e-3)] {
            let noise = |i: i32| f64::from(i * 7919 % 2003 - 1001) / 2048.0;
            let values: Vec<f64> = (0..5000).map(|i| offset + noise(i)).collect();
            let expected = naive(&values);
            for found in ways(&values) {
                let error = (found - expected).abs() / expected;
                assert!(error < tolerance, "{found} instead of {expected}: {error:e}");
            }
        }
    }

    #[test]
    fn few_values_and_equal_ones() {
        assert_eq!(ways(&[]), [0.0; 5]);
        assert_eq!(ways(&[1e300]), [0.0; 5]);
        assert_eq!(ways(&[1.0, 4.0]), [4.5; 5]);
        assert_eq!(ways(&[-7.25; 4096]), [0.0; 5]);
        assert!(ways(&[0.1; 999]).iter().all(|&squares| (0.0..1e-25).contains(&squares)));
        assert_eq!(Spread::of(&[0.0; 3]).squared_deviations().to_bits(), 0);
    }

    #[test]
    fn what_is_not_finite_is_nan() {
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for place in 0..9 {
                let mut values = [2.5; 9];
                values[place] = odd;
                assert!(ways(&values).iter().all(|squares| squares.is_nan()), "{values:?}");
            }
            assert!(ways(&[odd]).iter().all(|squares| squares.is_nan()));
        }
        let both = [f64::INFINITY, f64::NEG_INFINITY];
        assert!(ways(&both).iter().all(|squares| squares.is_nan()));
    }

    #[test]
    fn an_overflow_of_finite_values_is_told_from_nan() {
        for large in [&[1e308, 1e308][..], &[1e200, -1e200], &[f64::MAX, 0.0, f64::MIN, 1.0]] {
            assert_eq!(ways(large), [f64::INFINITY; 5], "{large:?}");
            let mut spread = Spread::of(large);
            spread.merge(&Spread::of(&[f64::NAN, 1.0]));
            assert_eq!(spread.squared_deviations(), f64::INFINITY);
            let mut spread = Spread::of(&[f64::INFINITY]);
            spread.merge(&Spread::of(large));
            assert_eq!(spread.squared_deviations(), f64::INFINITY);
        }
    }

    #[test]
    fn it_comes_back_from_its_bytes() {
        for values in [&[][..], &[1.5, -2.0], &[f64::MIN; 2], &[f64::INFINITY]] {
            let (there, back) =
                (Spread::of(values), Spread::of_bytes(&Spread::of(values).to_bytes()));
            assert_eq!(format!("{there:?}"), format!("{back:?}"));
        }
    }
}
