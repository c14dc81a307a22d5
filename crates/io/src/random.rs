//! Numbers that look like chance and are the same for a seed: SplitMix64 (Steele, Lea, Flood 2014), a mixing function
//! of an arithmetic progression, so that any number of a sequence is computed without those before it. They are no
//! defence against an adversary.

/// The increment of the progression: 2^64 / golden ratio, odd.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The mixing function: a bijection of 64-bit words (Stafford's variant 13).
#[inline]
pub const fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The number at a place of a seed's sequence; places count from 0.
#[inline]
pub const fn drawn_at(seed: u64, place: u64) -> u64 {
    mixed(seed.wrapping_add(place.wrapping_add(1).wrapping_mul(GAMMA)))
}

/// A seed's sequence.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub const fn draw(&mut self) -> u64 {
        let drawn = drawn_at(self.0, 0);
        self.0 = self.0.wrapping_add(GAMMA);
        drawn
    }

    /// The next number below `end`, which is not 0; its bias of at most end / 2^64 does not matter here.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one_from_any_place() {
        let mut random = Random(1_234_567);
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random.draw(), random.draw()], published);
        assert_eq!([0, 1].map(|place| drawn_at(1_234_567, place)), published);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}
