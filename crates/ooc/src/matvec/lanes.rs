//! Eight binary64 numbers at a time, in a processor's widest suitable registers. Every operation is the same,
//! lane by lane, on all of them, except where there is no fused multiply-add.

/// Lanes of a vector.
pub(crate) const LANES: usize = 8;

/// Eight numbers of binary64.
///
/// Implementations with optional instructions may only be used in functions that are compiled for these, and
/// called where the processor supports them.
pub(crate) trait Lanes: Copy {
    fn splat(value: f64) -> Self;
    fn load(from: &[f64; LANES]) -> Self;
    fn store(self, to: &mut [f64; LANES]);
    /// From bf16.
    fn of_bf16(from: &[[u8; 2]; LANES]) -> Self;
    /// From binary32.
    fn of_f32(from: &[[u8; 4]; LANES]) -> Self;
    /// From binary64.
    fn of_f64(from: &[[u8; 8]; LANES]) -> Self;
    /// `self * b + c`.
    fn multiply_add(self, b: Self, c: Self) -> Self;
    /// Prefetches data some distance behind these values.
    fn prefetch<T>(_from: &T) {}
    /// Pairwise: lanes that are 4 apart, then 2, then 1.
    fn sum(self) -> f64;
}

/// A number as stored in a file.
pub(crate) trait Value: bytemuck::Pod {
    fn widen<L: Lanes>(from: &[Self; LANES]) -> L;

    /// Fewer than [`LANES`] of them, padded with zeros.
    #[inline(always)]
    fn widen_rest<L: Lanes>(from: &[Self]) -> L {
        Self::widen(&padded(from))
    }
}

/// Numbers padded with zeros.
#[inline(always)]
pub(crate) fn padded<V: bytemuck::Pod>(from: &[V]) -> [V; LANES] {
    std::array::from_fn(|lane| from.get(lane).copied().unwrap_or(V::zeroed()))
}

/// bf16.
impl Value for [u8; 2] {
    #[inline(always)]
    fn widen<L: Lanes>(from: &[Self; LANES]) -> L {
        L::of_bf16(from)
    }
}

/// binary32.
impl Value for [u8; 4] {
    #[inline(always)]
    fn widen<L: Lanes>(from: &[Self; LANES]) -> L {
        L::of_f32(from)
    }
}

/// binary64.
impl Value for [u8; 8] {
    #[inline(always)]
    fn widen<L: Lanes>(from: &[Self; LANES]) -> L {
        L::of_f64(from)
    }
}

/// The fallback.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f64; LANES]);

impl Lanes for Plain {
    #[inline(always)]
    fn splat(value: f64) -> Self {
        Plain([value; LANES])
    }

    #[inline(always)]
    fn load(from: &[f64; LANES]) -> Self {
        Plain(*from)
    }

    #[inline(always)]
    fn store(self, to: &mut [f64; LANES]) {
        *to = self.0;
    }

    #[inline(always)]
    fn of_bf16(from: &[[u8; 2]; LANES]) -> Self {
        Plain(from.map(|[a, b]| f64::from(f32::from_le_bytes([0, 0, a, b]))))
    }

    #[inline(always)]
    fn of_f32(from: &[[u8; 4]; LANES]) -> Self {
        Plain(from.map(|bytes| f64::from(f32::from_le_bytes(bytes))))
    }

    #[inline(always)]
    fn of_f64(from: &[[u8; 8]; LANES]) -> Self {
        Plain(from.map(f64::from_le_bytes))
    }

    #[inline(always)]
    fn multiply_add(self, b: Self, c: Self) -> Self {
        // Elsewhere than on x86-64 every processor has it; here it would be a call for each number.
        let fused = !cfg!(target_arch = "x86_64");
        let one = |(a, b): (f64, f64), c: f64| if fused { a.mul_add(b, c) } else { a * b + c };
        Plain(std::array::from_fn(|lane| one((self.0[lane], b.0[lane]), c.0[lane])))
    }

    #[inline(always)]
    fn sum(self) -> f64 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, Lanes};

    /// Prefetch distance in bytes.
    const AHEAD: usize = 1024;

    /// One register of AVX-512.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512d);

    // SAFETY, of every block below: the instructions are there (the promise of who uses the type), and loads and
    // stores are of the arrays that they are given, at any alignment.
    #[allow(clippy::undocumented_unsafe_blocks)]
    impl Lanes for Avx512 {
        #[inline(always)]
        fn splat(value: f64) -> Self {
            Avx512(unsafe { _mm512_set1_pd(value) })
        }

        #[inline(always)]
        fn load(from: &[f64; LANES]) -> Self {
            Avx512(unsafe { _mm512_loadu_pd(from.as_ptr()) })
        }

        #[inline(always)]
        fn store(self, to: &mut [f64; LANES]) {
            unsafe { _mm512_storeu_pd(to.as_mut_ptr(), self.0) }
        }

        #[inline(always)]
        fn of_bf16(from: &[[u8; 2]; LANES]) -> Self {
            Avx512(unsafe {
                let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
                _mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves)))
            })
        }

        #[inline(always)]
        fn of_f32(from: &[[u8; 4]; LANES]) -> Self {
            Avx512(unsafe { _mm512_cvtps_pd(_mm256_loadu_ps(from.as_ptr().cast())) })
        }

        #[inline(always)]
        fn of_f64(from: &[[u8; 8]; LANES]) -> Self {
            Avx512(unsafe { _mm512_loadu_pd(from.as_ptr().cast()) })
        }

        #[inline(always)]
        fn multiply_add(self, b: Self, c: Self) -> Self {
            Avx512(unsafe { _mm512_fmadd_pd(self.0, b.0, c.0) })
        }

        #[inline(always)]
        fn prefetch<T>(from: &T) {
            // Never a fault, whatever lies there.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(
                    std::ptr::from_ref(from).cast::<i8>().wrapping_add(AHEAD),
                )
            }
        }

        #[inline(always)]
        fn sum(self) -> f64 {
            let halves =
                unsafe { [_mm512_castpd512_pd256(self.0), _mm512_extractf64x4_pd::<1>(self.0)] };
            Avx2(halves).sum()
        }
    }

    /// Two registers of AVX2.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2([__m256d; 2]);

    // SAFETY, of every block below: as for `Avx512`; an array of eight has two halves of four.
    #[allow(clippy::undocumented_unsafe_blocks)]
    impl Lanes for Avx2 {
        #[inline(always)]
        fn splat(value: f64) -> Self {
            Avx2([unsafe { _mm256_set1_pd(value) }; 2])
        }

        #[inline(always)]
        fn load(from: &[f64; LANES]) -> Self {
            Avx2(unsafe { [_mm256_loadu_pd(from.as_ptr()), _mm256_loadu_pd(from.as_ptr().add(4))] })
        }

        #[inline(always)]
        fn store(self, to: &mut [f64; LANES]) {
            unsafe {
                _mm256_storeu_pd(to.as_mut_ptr(), self.0[0]);
                _mm256_storeu_pd(to.as_mut_ptr().add(4), self.0[1]);
            }
        }

        #[inline(always)]
        fn of_bf16(from: &[[u8; 2]; LANES]) -> Self {
            Avx2(unsafe {
                let all = _mm_loadu_si128(from.as_ptr().cast());
                let low = _mm_slli_epi32::<16>(_mm_cvtepu16_epi32(all));
                let high = _mm_slli_epi32::<16>(_mm_cvtepu16_epi32(_mm_srli_si128::<8>(all)));
                [_mm256_cvtps_pd(_mm_castsi128_ps(low)), _mm256_cvtps_pd(_mm_castsi128_ps(high))]
            })
        }

        #[inline(always)]
        fn of_f32(from: &[[u8; 4]; LANES]) -> Self {
            let from: *const f32 = from.as_ptr().cast();
            Avx2(unsafe {
                [_mm256_cvtps_pd(_mm_loadu_ps(from)), _mm256_cvtps_pd(_mm_loadu_ps(from.add(4)))]
            })
        }

        #[inline(always)]
        fn of_f64(from: &[[u8; 8]; LANES]) -> Self {
            let from: *const f64 = from.as_ptr().cast();
            Avx2(unsafe { [_mm256_loadu_pd(from), _mm256_loadu_pd(from.add(4))] })
        }

        #[inline(always)]
        fn multiply_add(self, b: Self, c: Self) -> Self {
            let ([a, d], [b, e], [c, f]) = (self.0, b.0, c.0);
            Avx2(unsafe { [_mm256_fmadd_pd(a, b, c), _mm256_fmadd_pd(d, e, f)] })
        }

        #[inline(always)]
        fn sum(self) -> f64 {
            unsafe {
                let four = _mm256_add_pd(self.0[0], self.0[1]);
                let two =
                    _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
                _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
            }
        }
    }
}
