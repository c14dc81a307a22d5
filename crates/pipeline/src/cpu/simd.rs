//! The few loops that are worth vector instructions by hand, and a way to have ordinary loops
//! compiled for them. Everything has a portable twin, and tests compare the two.
//!
//! Probes are not among them: gathering 16 bits of a key bitmap at a time (`vpgatherdd`) was
//! slower on an AMD EPYC (Zen 5) than the branch-free scalar loop over narrow payload.

/// Whether the machine has the AVX-512 instructions that are used here, and all others that
/// the functions of `x86` are compiled for.
#[inline]
fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Sets `output[i] = f(input[i])`, compiled for the vector instructions at hand.
#[inline(always)]
pub fn map_into<T: Copy, U>(input: &[T], output: &mut [U], f: impl Fn(T) -> U) {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the instructions were detected.
        return unsafe { x86::map_into(input, output, f) };
    }
    input.iter().zip(output).for_each(|(&i, o)| *o = f(i));
}

/// Positions of the bytes that are not 0, ascending.
pub fn positions(mask: &[u8]) -> Vec<u32> {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the instructions were detected.
        return unsafe { x86::positions(mask) };
    }
    positions_portable(mask)
}

fn positions_portable(mask: &[u8]) -> Vec<u32> {
    // One more entry than rows: the branch-free loop writes before it knows.
    let mut found = vec![0u32; mask.len() + 1];
    let mut count = 0;
    let mut eight = |first: usize, bytes: &[u8]| {
        for (offset, &keep) in bytes.iter().enumerate() {
            found[count] = (first + offset) as u32;
            count += usize::from(keep != 0);
        }
    };
    let (words, tail) = mask.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        if u64::from_ne_bytes(*word) != 0 {
            eight(i * 8, word);
        }
    }
    eight(words.len() * 8, tail);
    found.truncate(count);
    found
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Lanes of 32 bits.
    const LANES: usize = 16;

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
    pub fn map_into<T: Copy, U>(input: &[T], output: &mut [U], f: impl Fn(T) -> U) {
        input.iter().zip(output).for_each(|(&i, o)| *o = f(i));
    }

    /// The first `lanes` lanes, at most 16.
    fn first_lanes(lanes: usize) -> u16 {
        if lanes >= LANES { u16::MAX } else { (1 << lanes) - 1 }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
    fn lane_numbers() -> __m512i {
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    }

    /// Writes the lanes of `values` that `mask` selects to `output[at ..]`, and rubbish after
    /// them; 16 entries must be there.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
    fn compress_into(output: &mut [u32], at: usize, mask: u16, values: __m512i) {
        let target = &mut output[at..at + LANES];
        // SAFETY: `target` has room for 16 values of 32 bits.
        unsafe {
            _mm512_storeu_si512(
                target.as_mut_ptr().cast(),
                _mm512_maskz_compress_epi32(mask, values),
            );
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
    pub fn positions(mask: &[u8]) -> Vec<u32> {
        let mut found = vec![0u32; mask.len() + LANES];
        let mut count = 0;
        for (block, bytes) in mask.chunks(LANES).enumerate() {
            // SAFETY: only the bytes of the chunk are read.
            let bytes =
                unsafe { _mm_maskz_loadu_epi8(first_lanes(bytes.len()), bytes.as_ptr().cast()) };
            let kept = _mm_test_epi8_mask(bytes, bytes);
            let first = _mm512_set1_epi32((block * LANES) as i32);
            compress_into(&mut found, count, kept, _mm512_add_epi32(first, lane_numbers()));
            count += kept.count_ones() as usize;
        }
        found.truncate(count);
        found
    }
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

    #[test]
    fn positions_are_those_of_the_portable_loop() {
        let mut seed = 1;
        for length in (0..200).chain([4095, 4096]) {
            for density in [0, 1, 50, 100] {
                let mask: Vec<u8> =
                    (0..length).map(|_| u8::from(random(&mut seed) % 100 < density)).collect();
                assert_eq!(positions(&mask), positions_portable(&mask));
            }
        }
    }
}
