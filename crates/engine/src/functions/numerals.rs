//! Patterns of PostgreSQL's `to_char` for numbers: `999,999.99`, `FM000`, `S9.9`.

use datafusion::common::{Result, exec_err};

/// A pattern of digits, read once.
#[derive(Default)]
struct Pattern {
    /// Digits before and behind the point, and what stands between them.
    whole: Vec<Part>,
    fraction: Vec<Part>,
    is_bare: bool,
    sign: Sign,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Sign {
    /// Before the first digit, and a space for none.
    #[default]
    Minus,
    /// `S`: before the first digit, always.
    Both,
    /// `MI`, `SG` and `S` behind the digits.
    Behind,
    BothBehind,
    /// `PR`: `<1>`.
    Angles,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Nine,
    Zero,
    Comma,
    Other(char),
}

/// A number in a pattern.
///
/// # Errors
/// A pattern that asks for what is not known here.
pub fn of(number: f64, pattern: &str) -> Result<String> {
    let parts = read(pattern)?;
    let digits =
        |parts: &[Part]| parts.iter().filter(|p| matches!(p, Part::Nine | Part::Zero)).count();
    let decimals = digits(&parts.fraction);
    let shown = rounded(number.abs(), decimals);
    let (whole, fraction) = shown.split_once('.').unwrap_or((&shown, ""));
    let is_negative = number < 0.0 && shown.bytes().any(|b| (b'1'..=b'9').contains(&b));
    let places = digits(&parts.whole);
    let whole = whole.trim_start_matches('0');
    if whole.len() > places || !number.is_finite() {
        let hashes = "#".repeat(places);
        let behind = if parts.fraction.is_empty() {
            String::new()
        } else {
            format!(".{}", "#".repeat(decimals))
        };
        return Ok(signed(&parts, is_negative, 0, hashes + &behind));
    }
    let (body, spaces) = body(&parts, whole, fraction, places);
    Ok(signed(&parts, is_negative, spaces, body))
}

/// A number with so many decimals: of what its digits say, halves go up, as those of `numeric` do.
fn rounded(number: f64, decimals: usize) -> String {
    let shown = number.to_string();
    let (whole, fraction) = shown.split_once('.').unwrap_or((&shown, ""));
    if fraction.len() <= decimals || !number.is_finite() {
        return format!("{whole}.{fraction:0<decimals$}");
    }
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes().take(decimals)).collect();
    let mut carries = fraction.as_bytes()[decimals] >= b'5';
    for digit in digits.iter_mut().rev() {
        match (carries, *digit) {
            (false, _) => break,
            (true, b'9') => *digit = b'0',
            (true, _) => {
                *digit += 1;
                carries = false;
            }
        }
    }
    if carries {
        digits.insert(0, b'1');
    }
    let digits: String = digits.into_iter().map(char::from).collect();
    let (whole, fraction) = digits.split_at(digits.len() - decimals);
    format!("{whole}.{fraction}")
}

/// Digits in their places; the number of places before them that are empty.
fn body(parts: &Pattern, whole: &str, fraction: &str, places: usize) -> (String, usize) {
    let (mut out, mut spaces, mut digits) = (String::new(), 0_usize, whole.chars());
    let (mut empty, mut started) = (places - whole.len(), false);
    for part in &parts.whole {
        match part {
            Part::Nine | Part::Zero if empty > 0 => {
                empty -= 1;
                started |= *part == Part::Zero;
                if started { out.push('0') } else { spaces += 1 }
            }
            Part::Nine | Part::Zero => {
                started = true;
                out.extend(digits.next());
            }
            Part::Comma if started => out.push(','),
            Part::Comma => spaces += 1,
            Part::Other(letter) => out.push(*letter),
        }
    }
    if parts.fraction.is_empty() {
        // A nought is a digit, too.
        if out.is_empty() && places > 0 {
            out.push('0');
            spaces = spaces.saturating_sub(1);
        }
        return (out, spaces);
    }
    if parts.is_bare && out.is_empty() && places > 0 && !fraction.bytes().any(|b| b != b'0') {
        out.push('0');
    }
    out.push('.');
    let kept = match parts.is_bare {
        // Noughts at the end stay where the pattern has noughts.
        true => {
            let zeros =
                parts.fraction.iter().rposition(|p| *p == Part::Zero).map_or(0, |at| at + 1);
            fraction.trim_end_matches('0').len().max(zeros.min(fraction.len()))
        }
        false => fraction.len(),
    };
    out += &fraction[..kept];
    (out, spaces)
}

fn signed(parts: &Pattern, is_negative: bool, spaces: usize, body: String) -> String {
    let spaces = if parts.is_bare { String::new() } else { " ".repeat(spaces) };
    let room = if parts.is_bare { "" } else { " " };
    match parts.sign {
        Sign::Minus => format!("{spaces}{}{body}", if is_negative { "-" } else { room }),
        Sign::Both => format!("{spaces}{}{body}", if is_negative { "-" } else { "+" }),
        Sign::Behind => format!("{spaces}{body}{}", if is_negative { "-" } else { room }),
        Sign::BothBehind => format!("{spaces}{body}{}", if is_negative { "-" } else { "+" }),
        Sign::Angles if is_negative => format!("{spaces}<{body}>"),
        Sign::Angles => format!("{spaces}{room}{body}{room}"),
    }
}

fn read(pattern: &str) -> Result<Pattern> {
    let (mut parts, mut rest, mut is_behind) = (Pattern::default(), pattern, false);
    while let Some(first) = rest.chars().next() {
        let two = rest.get(..2).map(str::to_uppercase).unwrap_or_default();
        let has_digits = !parts.whole.is_empty() || is_behind;
        let taken = match two.as_str() {
            "FM" => {
                parts.is_bare = true;
                2
            }
            "MI" => {
                parts.sign = Sign::Behind;
                2
            }
            "SG" => {
                parts.sign = Sign::BothBehind;
                2
            }
            "PR" => {
                parts.sign = Sign::Angles;
                2
            }
            "TH" | "RN" | "EE" | "PL" => {
                return exec_err!(
                    "to_char() does not know {two} in '{pattern}'\nhint: 9, 0, ., ',', FM, S, MI, SG and PR are known"
                );
            }
            _ => 0,
        };
        if taken > 0 {
            rest = &rest[taken..];
            continue;
        }
        let side = if is_behind { &mut parts.fraction } else { &mut parts.whole };
        match first {
            '9' => side.push(Part::Nine),
            '0' => side.push(Part::Zero),
            ',' | 'G' | 'g' => side.push(Part::Comma),
            '.' | 'D' | 'd' if !is_behind => is_behind = true,
            'S' | 's' if has_digits => parts.sign = Sign::BothBehind,
            'S' | 's' => parts.sign = Sign::Both,
            'V' | 'v' => {
                return exec_err!(
                    "to_char() does not know V in '{pattern}'\nhint: multiply by a power of ten"
                );
            }
            other => side.push(Part::Other(other)),
        }
        rest = &rest[first.len_utf8()..];
    }
    Ok(parts)
}
