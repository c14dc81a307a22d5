//! PostgreSQL's numeric, as stored, to a decimal of a given precision and scale.
//!
//! A header of 16 bits, possibly a weight, and digits to the base of 10000, most significant first;
//! digit `i` counts `10000^(weight - i)`:
//!
//! ```text
//! 00ddddddddddddddd  positive  } long: d = 14 bits of display scale; the next 16 bits are the weight
//! 01ddddddddddddddd  negative  }
//! 10sddddddwwwwwww   short: s = sign, d = 6 bits of display scale, w = 7 bits of signed weight
//! 11..               NaN, infinity, -infinity
//! ```
//!
//! Zero has no digits. The display scale affects how a value is printed, not its value.

use super::bytes::u16_at;

const BASE: u64 = 10_000;

/// A value times `10^scale`, if it is finite, then an integer, and shorter than `precision` digits.
pub(super) fn decimal(content: &[u8], precision: u8, scale: i8) -> Result<i128, &'static str> {
    let (negative, weight, digits) = parts(content)?;
    let magnitude = magnitude(weight, digits, i32::from(scale))?;
    // 10^38 is below the largest i128; the decoder admits no greater precision.
    if magnitude >= 10_i128.pow(u32::from(precision)) {
        return Err("a numeric has more digits than its type");
    }
    Ok(if negative { -magnitude } else { magnitude })
}

/// The display scale of a finite value.
pub(super) fn digits_shown(content: &[u8]) -> Result<i32, &'static str> {
    let header = u16_at(content, 0).ok_or("a numeric is too short")?;
    match header >> 14 {
        0b11 => Err("a numeric is NaN or infinite"),
        0b10 => Ok(i32::from(header >> 7 & 0x3F)),
        _ => Ok(i32::from(header & 0x3FFF)),
    }
}

/// Appends a finite value as PostgreSQL displays it.
pub(super) fn text(content: &[u8], text: &mut Vec<u8>) -> Result<(), &'static str> {
    /// The server formats longer numbers.
    const DIGITS_MAX: i32 = 1000;
    let (negative, weight, digits) = parts(content)?;
    let shown = digits_shown(content)?;
    if shown > DIGITS_MAX || 4 * weight > DIGITS_MAX {
        return Err("a numeric of very many digits");
    }
    let digits = digits.as_chunks::<2>().0;
    let digit = |place: i32| {
        let stored = usize::try_from(place).ok().and_then(|place| digits.get(place));
        match stored.map_or(0, |digit| u16::from_le_bytes(*digit)) {
            digit if u64::from(digit) < BASE => Ok(digit),
            _ => Err("a numeric has a digit beyond 9999"),
        }
    };
    if negative {
        text.push(b'-');
    }
    let first = digit(0)?;
    text.extend_from_slice(if weight < 0 { "0".into() } else { first.to_string() }.as_bytes());
    let four = |digit: u16| [3, 2, 1, 0].map(|place| b'0' + (digit / 10_u16.pow(place) % 10) as u8);
    for place in 1..=weight {
        text.extend(four(digit(place)?));
    }
    if shown == 0 {
        return Ok(());
    }
    text.push(b'.');
    let end = text.len() + shown as usize;
    // Groups behind the point before the first digit are zeros: places below 0.
    let mut place = weight + 1;
    while text.len() < end {
        text.extend(four(digit(place)?));
        place += 1;
    }
    text.truncate(end);
    Ok(())
}

/// Sign, weight and the bytes of the digits.
fn parts(content: &[u8]) -> Result<(bool, i32, &[u8]), &'static str> {
    const SHORT: &str = "a numeric is too short";
    let header = u16_at(content, 0).ok_or(SHORT)?;
    let (negative, weight, digits) = match header >> 14 {
        0b11 => return Err("a numeric is NaN or infinite"),
        0b10 => {
            // Sign-extends the lowest seven bits.
            let weight = i32::from(((header & 0x7F) << 9) as i16 >> 9);
            (header & 0x2000 != 0, weight, &content[2..])
        }
        sign => {
            let weight = u16_at(content, 2).ok_or(SHORT)? as i16;
            (sign == 0b01, i32::from(weight), &content[4..])
        }
    };
    if !digits.len().is_multiple_of(2) {
        return Err("a numeric ends within a digit");
    }
    Ok((negative, weight, digits))
}

fn magnitude(weight: i32, digits: &[u8], scale: i32) -> Result<i128, &'static str> {
    const OVERFLOW: &str = "a numeric has more digits than its type";
    const INEXACT: &str = "a numeric has more decimal places than its type";
    let mut total: i128 = 0;
    // The power of ten that the digit at hand counts, in units of the last place.
    let mut exponent = 4 * weight + scale;
    for digit in digits.as_chunks::<2>().0 {
        let digit = u64::from(u16::from_le_bytes(*digit));
        if digit >= BASE {
            return Err("a numeric has a digit beyond 9999");
        }
        let (factor, addend) = if exponent >= 0 {
            (BASE, digit)
        } else {
            // Only the digit that the last place cuts is kept in part.
            let cut = 10_u64.pow((-exponent).min(4) as u32);
            if !digit.is_multiple_of(cut) {
                return Err(INEXACT);
            }
            (BASE / cut, digit / cut)
        };
        total = times(total, factor)
            .and_then(|total| total.checked_add(i128::from(addend)))
            .ok_or(OVERFLOW)?;
        exponent -= 4;
    }
    // The last digit's exponent was `exponent + 4`: zeros follow that are not stored.
    for _ in 0..(exponent + 4).min(40) {
        total = times(total, 10).ok_or(OVERFLOW)?;
    }
    Ok(total)
}

/// A product; in 64 bits if possible, which is nearly always and much faster.
#[inline]
fn times(total: i128, factor: u64) -> Option<i128> {
    match u64::try_from(total).ok().and_then(|small| small.checked_mul(factor)) {
        Some(product) => Some(i128::from(product)),
        None => total.checked_mul(i128::from(factor)),
    }
}
