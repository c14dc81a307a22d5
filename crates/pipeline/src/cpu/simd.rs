//! The few loops that are worth vector instructions by hand, and a way to have ordinary loops
//! compiled for them. Everything has a portable twin, and tests compare the two.

/// Whether the machine has the AVX-512 instructions that are used here.
#[inline]
fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
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

/// A bitmap over keys `base .. base + domain`, as a direct-address build has it. All its keys
/// are 32-bit integers.
#[derive(Clone, Copy)]
pub struct KeyBitmap<'b> {
    /// Smallest key.
    pub base: i32,
    /// Number of possible keys; `base + domain - 1` is a 32-bit integer too.
    pub domain: u32,
    /// One bit a key.
    pub words: &'b [u64],
}

/// Rows whose key is in the bitmap, and what each of them adds to `base`; `None` if there is no
/// loop faster than the portable one.
pub fn probe_bitmap(keys: &[i32], bitmap: KeyBitmap<'_>) -> Option<(Vec<u32>, Vec<u32>)> {
    if (bitmap.words.len() as u64) < u64::from(bitmap.domain).div_ceil(64) {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the instructions were detected, and the bitmap has a bit for each key.
        return Some(unsafe { x86::probe_bitmap(keys, bitmap) });
    }
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::KeyBitmap;

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

    /// # Safety
    /// The bitmap has a bit for each key of its domain.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
    pub unsafe fn probe_bitmap(keys: &[i32], bitmap: KeyBitmap<'_>) -> (Vec<u32>, Vec<u32>) {
        let mut rows = vec![0u32; keys.len() + LANES];
        let mut entries = vec![0u32; keys.len() + LANES];
        let mut count = 0;
        let base = _mm512_set1_epi32(bitmap.base);
        let domain = _mm512_set1_epi32(bitmap.domain as i32);
        let (one, low_bits) = (_mm512_set1_epi32(1), _mm512_set1_epi32(31));
        let words: *const i32 = bitmap.words.as_ptr().cast();
        for (block, chunk) in keys.chunks(LANES).enumerate() {
            let lanes = first_lanes(chunk.len());
            // SAFETY: only the keys of the chunk are read.
            let chunk = unsafe { _mm512_maskz_loadu_epi32(lanes, chunk.as_ptr()) };
            // A key below `base` wraps to at least 2^31 - base, which is no entry.
            let entry = _mm512_sub_epi32(chunk, base);
            let inside = _mm512_mask_cmplt_epu32_mask(lanes, entry, domain);
            // SAFETY: lanes inside the domain read the half word of their bit; others do not
            // read. (Words of 64 bits lie little-endian, as the halves are numbered.)
            let half = unsafe {
                _mm512_mask_i32gather_epi32::<4>(
                    _mm512_setzero_si512(),
                    inside,
                    _mm512_srli_epi32::<5>(entry),
                    words,
                )
            };
            let bit = _mm512_srlv_epi32(half, _mm512_and_si512(entry, low_bits));
            let found = _mm512_mask_test_epi32_mask(inside, bit, one);
            let first = _mm512_set1_epi32((block * LANES) as i32);
            compress_into(&mut rows, count, found, _mm512_add_epi32(first, lane_numbers()));
            compress_into(&mut entries, count, found, entry);
            count += found.count_ones() as usize;
        }
        rows.truncate(count);
        entries.truncate(count);
        (rows, entries)
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

    #[test]
    fn a_bitmap_finds_its_keys_and_no_others() {
        let mut seed = 2;
        for (base, domain) in [(0, 1), (-5, 77), (1_000, 4_096), (i32::MAX, 1), (i32::MIN, 64)] {
            let words: Vec<u64> = (0..u64::from(domain as u32).div_ceil(64))
                .map(|_| random(&mut seed) ^ random(&mut seed) << 31)
                .collect();
            let near = |seed: &mut u64| {
                let offset = (random(seed) % (domain as u64 + 40)) as i32 - 20;
                base.wrapping_add(offset)
            };
            let mut keys: Vec<i32> = (0..999).map(|_| near(&mut seed)).collect();
            keys.extend([i32::MIN, i32::MAX, 0, base]);
            let expected: (Vec<u32>, Vec<u32>) = keys
                .iter()
                .enumerate()
                .filter_map(|(row, &key)| {
                    let entry = i64::from(key) - i64::from(base);
                    let inside = (0..i64::from(domain)).contains(&entry);
                    let hit = inside && words[entry as usize / 64] >> (entry % 64) & 1 == 1;
                    hit.then_some((row as u32, entry as u32))
                })
                .unzip();
            let bitmap = KeyBitmap { base, domain: domain as u32, words: &words };
            match probe_bitmap(&keys, bitmap) {
                Some(found) => assert_eq!(found, expected),
                None => assert!(!has_avx512()),
            }
        }
    }
}
