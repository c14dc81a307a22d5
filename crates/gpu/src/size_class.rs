//! Size classes of device allocations: few enough that freed blocks are reused, close enough that
//! little is wasted.

/// Blocks are multiples of this, so that every buffer may be read in whole 256-byte
/// pieces.
pub(crate) const GRANULE_BYTES: u64 = 256;

/// From here on a class is a multiple of [`LARGE_STEP_BYTES`], the driver's own page
/// size for device memory: rounding up to it wastes nothing that the driver would not.
const LARGE_STEP_BYTES: u64 = 2 << 20;

/// Steps between two powers of two: at most an eighth of a small block is wasted.
const STEPS_PER_DOUBLING: u64 = 8;

/// A free block serves a request when it is at most this much larger, as a fraction of
/// the request: 1/8.
const REUSE_SLACK_DIVISOR: u64 = 8;

/// The block size for a request of `bytes`; `None` when there is none that large.
pub(crate) fn class_of(bytes: u64) -> Option<u64> {
    let bytes = bytes.max(1).checked_next_multiple_of(GRANULE_BYTES)?;
    if bytes >= LARGE_STEP_BYTES {
        return bytes.checked_next_multiple_of(LARGE_STEP_BYTES);
    }
    let power_below = 1u64 << bytes.ilog2();
    let step = (power_below / STEPS_PER_DOUBLING).max(GRANULE_BYTES);
    bytes.checked_next_multiple_of(step)
}

/// The largest free block that may serve a request of class `class_bytes`.
pub(crate) fn largest_reusable(class_bytes: u64) -> u64 {
    class_bytes.saturating_add(class_bytes / REUSE_SLACK_DIVISOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_classes() {
        assert_eq!(class_of(0), Some(256));
        assert_eq!(class_of(1), Some(256));
        assert_eq!(class_of(257), Some(512));
        assert_eq!(class_of(5000), Some(5120));
        assert_eq!(class_of((2 << 20) + 1), Some(4 << 20));
        assert_eq!(class_of(u64::MAX), None);
    }

    proptest! {
        #[test]
        fn a_class_is_large_enough_aligned_and_its_own_class(bytes in 0u64..1 << 40) {
            let class = class_of(bytes).expect("far below 2^64");
            prop_assert!(class >= bytes.max(1));
            prop_assert_eq!(class % GRANULE_BYTES, 0);
            prop_assert_eq!(class_of(class), Some(class));
            let waste_max = (bytes / STEPS_PER_DOUBLING).max(GRANULE_BYTES);
            let waste_max = if bytes > LARGE_STEP_BYTES / 2 {
                waste_max.max(LARGE_STEP_BYTES)
            } else {
                waste_max
            };
            prop_assert!(class - bytes <= waste_max);
        }

        #[test]
        fn classes_grow_with_the_request(a in 0u64..1 << 40, b in 0u64..1 << 40) {
            let (small, large) = (a.min(b), a.max(b));
            prop_assert!(class_of(small) <= class_of(large));
        }
    }
}
