//! Inputs of SIMD kernels besides plain numbers: conditions, and integers of 24 bits.

/// An unsigned integer of 24 bits, least significant byte first.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct U24(pub [u8; 3]);

impl From<U24> for i32 {
    #[inline(always)]
    fn from(U24([low, middle, high]): U24) -> Self {
        Self::from_le_bytes([low, middle, high, 0])
    }
}

/// A condition on a value of 32 bits.
#[derive(Clone, Copy, Debug)]
pub enum Test<'t> {
    /// Not below `low`, and above it by at most `width`, in wrapping arithmetic.
    Between {
        /// The smallest value.
        low: i32,
        /// The largest value less the smallest.
        width: u32,
    },
    /// In a set.
    Member(Members<'t>),
}

/// A set of numbers as a bitmap.
#[derive(Clone, Copy, Debug)]
pub struct Members<'t> {
    pub(super) base: i32,
    pub(super) domain: u32,
    pub(super) present: &'t [u64],
}

impl<'t> Members<'t> {
    /// The numbers `base + i` for which bit `i % 64` of `present[i / 64]` is set; `i < domain`.
    /// `None`: not within 32 bits, or there are too few words.
    pub fn new(base: i64, domain: u64, present: &'t [u64]) -> Option<Self> {
        let last = base.checked_add_unsigned(domain.checked_sub(1)?)?;
        i32::try_from(last).ok()?;
        let (base, domain) = (i32::try_from(base).ok()?, u32::try_from(domain).ok()?);
        // Vector instructions take the index of a word of 32 bits as signed: it has 27.
        (present.len() >= (domain as usize).div_ceil(64)).then_some(Self { base, domain, present })
    }

    /// The same numbers less `base`, in wrapping arithmetic.
    pub fn less(self, base: i32) -> Self {
        Self { base: self.base.wrapping_sub(base), ..self }
    }

    /// The bitmap's bytes: bit `i % 8` of byte `i / 8` is that of `base + i`.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn bytes(&self) -> &'t [u8] {
        let present = self.present;
        // SAFETY: the bytes of initialised words, as many as they have, borrowed as long.
        unsafe { std::slice::from_raw_parts(present.as_ptr().cast(), size_of_val(present)) }
    }

    #[inline(always)]
    pub(super) fn contains(&self, value: i32) -> bool {
        let entry = value.wrapping_sub(self.base) as u32;
        entry < self.domain && (self.present[entry as usize / 64] >> (entry % 64)) & 1 != 0
    }
}
