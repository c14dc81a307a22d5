//! Means of integers, as exact as a float can say them.

/// `total / count`, rounded once: the nearest binary64, ties to even. NaN for a count of 0.
pub fn mean_f64(total: i128, count: u64) -> f64 {
    if total == 0 || count == 0 {
        return if count == 0 { f64::NAN } else { 0.0 };
    }
    let magnitude = total.unsigned_abs();
    // The quotient of the shifted total has at least 64 bits, 11 more than a float keeps. What
    // is left over after them only has to break ties, which a last bit of 1 does.
    let shift = magnitude.leading_zeros();
    let shifted = magnitude << shift;
    let divisor = u128::from(count);
    let quotient = (shifted / divisor) | u128::from(!shifted.is_multiple_of(divisor));
    let mean = quotient as f64 * 2f64.powi(-(shift as i32));
    if total < 0 { -mean } else { mean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_rounded_once() {
        assert_eq!(mean_f64(4, 5), 0.8);
        assert_eq!(mean_f64(-1, 3), -1.0 / 3.0);
        assert_eq!(mean_f64(i128::from(i64::MAX), 1), i64::MAX as f64);
        assert_eq!(mean_f64(0, 7), 0.0);
        assert!(mean_f64(0, 0).is_nan());
        // 2^53 + 1 is no float: rounding the total first would be one rounding too many.
        let (total, count) = ((1i128 << 53) + 1, 3u64);
        assert_eq!(mean_f64(total, count), 3_002_399_751_580_331.0);
        assert_eq!(total as f64 / count as f64, 3_002_399_751_580_330.5);
        assert_eq!(mean_f64(i128::MIN, u64::MAX), -(2f64.powi(63)));
    }

    #[test]
    fn small_means_agree_with_one_division() {
        for total in -300i64..300 {
            for count in 1..60u64 {
                assert_eq!(mean_f64(total.into(), count), total as f64 / count as f64);
            }
        }
    }
}
