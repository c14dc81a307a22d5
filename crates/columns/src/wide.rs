//! Exact totals beyond 128 bits: `low + carry * 2^128`.

/// Adds to a 128-bit total that counts its overflows.
#[inline(always)]
pub fn add_wide(low: &mut i128, carry: &mut i64, value: i128) {
    let (sum, overflow) = low.overflowing_add(value);
    *low = sum;
    if overflow {
        *carry = carry.wrapping_add(if value < 0 { -1 } else { 1 });
    }
}

/// A total of 192 bits, little-endian in two's complement: how it travels.
pub fn wide_bytes(low: i128, carry: i64) -> [u8; 24] {
    let high = carry.wrapping_sub(i64::from(low < 0));
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&low.to_le_bytes());
    bytes[16..].copy_from_slice(&high.to_le_bytes());
    bytes
}

/// A total of 192 bits, little-endian in two's complement, as it travels, as `low + carry * 2^128`.
pub fn wide_total(bytes: &[u8; 24]) -> (i128, i64) {
    let mut low = [0; 16];
    let mut high = [0; 8];
    low.copy_from_slice(&bytes[..16]);
    high.copy_from_slice(&bytes[16..]);
    let low = i128::from_le_bytes(low);
    (low, i64::from_le_bytes(high).wrapping_add(i64::from(low < 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_totals_split_into_low_and_carry() {
        let split = |low: u128, high: i64| {
            let mut bytes = [0u8; 24];
            bytes[..16].copy_from_slice(&low.to_le_bytes());
            bytes[16..].copy_from_slice(&high.to_le_bytes());
            wide_total(&bytes)
        };
        assert_eq!(split(5, 0), (5, 0));
        assert_eq!(split(u128::MAX, -1), (-1, 0));
        assert_eq!(split(1 << 127, 0), (i128::MIN, 1), "2^127 = -2^127 + 2^128");
        assert_eq!(split(0, 1), (0, 1));
    }

    #[test]
    fn wide_totals_come_back_from_their_bytes() {
        for (low, carry) in [(5, 0), (-1, 0), (i128::MIN, 1), (i128::MAX, -3), (0, i64::MAX - 1)] {
            assert_eq!(wide_total(&wide_bytes(low, carry)), (low, carry));
        }
    }
}
