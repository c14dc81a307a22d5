//! `printf`, as C has it: `%5.2f`, `%-10s`, `%05d`, `%x`, `%e`, `%,d`.

use datafusion::common::{Result, exec_datafusion_err, exec_err};

use super::rows::{Row, Value, text};

/// No result is made wider by a format than so many characters a place.
const WIDTH_MAX: usize = 10_000;

/// Puts a text at the end of another, in a width such as `-10`.
pub fn pad(out: &mut String, shown: &str, width: &str) -> Result<()> {
    let (is_left, digits) = match width.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, width),
    };
    let width = match digits {
        "" => 0,
        digits => digits.parse().ok().filter(|width| *width <= WIDTH_MAX).ok_or_else(|| {
            exec_datafusion_err!("a width of {digits} in a format, and {WIDTH_MAX} is the most")
        })?,
    };
    let spaces = " ".repeat(width.saturating_sub(shown.chars().count()));
    match is_left {
        true => out.extend([shown, &spaces]),
        false => out.extend([spaces.as_str(), shown]),
    }
    Ok(())
}

/// What stands between a percent sign and its letter.
#[derive(Default)]
struct Place {
    is_left: bool,
    has_noughts: bool,
    has_sign: bool,
    has_space: bool,
    has_commas: bool,
    is_alternate: bool,
    width: usize,
    precision: Option<usize>,
}

/// The text of a format and its arguments.
pub fn printf(row: &Row) -> Result<Option<Value>> {
    let (mut out, mut rest, mut next) = (String::new(), row.text(0), 1);
    while let Some(at) = rest.find('%') {
        out += &rest[..at];
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            out.push('%');
            rest = behind;
            continue;
        }
        let place = place(&mut rest)?;
        let Some(letter) = rest.chars().next() else {
            return exec_err!(
                "printf() of a format that ends in '%'\nhint: '%%' is a percent sign"
            );
        };
        rest = &rest[letter.len_utf8()..];
        if next >= row.len() {
            return exec_err!("printf() has too few arguments for '{}'", row.text(0));
        }
        out += &shown(row, next, letter, &place)?;
        next += 1;
    }
    out += rest;
    text(out)
}

fn place(rest: &mut &str) -> Result<Place> {
    let mut place = Place::default();
    while let Some(flag) = rest.chars().next() {
        match flag {
            '-' => place.is_left = true,
            '0' => place.has_noughts = true,
            '+' => place.has_sign = true,
            ' ' => place.has_space = true,
            ',' | '\'' => place.has_commas = true,
            '#' => place.is_alternate = true,
            _ => break,
        }
        *rest = &rest[1..];
    }
    place.width = number(rest)?.unwrap_or(0);
    if let Some(behind) = rest.strip_prefix('.') {
        *rest = behind;
        place.precision = Some(number(rest)?.unwrap_or(0));
    }
    // Widths of C's types.
    *rest = rest.trim_start_matches(['l', 'h', 'q']);
    Ok(place)
}

fn number(rest: &mut &str) -> Result<Option<usize>> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, behind) = rest.split_at(end);
    *rest = behind;
    match digits {
        "" => Ok(None),
        digits => match digits.parse() {
            Ok(number) if number <= WIDTH_MAX => Ok(Some(number)),
            _ => exec_err!("printf() with a width of {digits}, and {WIDTH_MAX} is the most"),
        },
    }
}

fn shown(row: &Row, nth: usize, letter: char, place: &Place) -> Result<String> {
    let shown = row.shown(nth)?;
    let wrong = |what: &str| {
        exec_datafusion_err!("printf() of '{shown}' as %{letter}, and it is no {what}")
    };
    let float = || shown.parse::<f64>().map_err(|_| wrong("number"));
    let whole = || match shown.parse::<i128>() {
        Ok(number) => Ok(number),
        Err(_) => float().map(|number| number as i128),
    };
    let precision = place.precision.unwrap_or(6);
    let (is_negative, digits) = match letter {
        's' | 'v' => {
            let cut = place.precision.unwrap_or(usize::MAX);
            let cut: String = shown.chars().take(cut).collect();
            return Ok(padded(cut, place));
        }
        'c' => {
            let code = shown.parse::<u32>().ok().and_then(char::from_u32);
            let letter = code.or_else(|| shown.chars().next());
            return Ok(padded(letter.map(String::from).unwrap_or_default(), place));
        }
        'd' | 'i' | 'u' => {
            let number = whole()?;
            let digits = number.unsigned_abs().to_string();
            (number < 0, if place.has_commas { with_commas(&digits) } else { digits })
        }
        'x' => (false, format!("{:x}", whole()? as i64)),
        'X' => (false, format!("{:X}", whole()? as i64)),
        'o' => (false, format!("{:o}", whole()? as i64)),
        'b' => (false, format!("{:b}", whole()? as i64)),
        'f' | 'F' => {
            let number = float()?;
            let digits = format!("{:.precision$}", number.abs());
            let digits = if place.has_commas { with_commas(&digits) } else { digits };
            (number.is_sign_negative() && !number.is_nan(), digits)
        }
        'e' | 'E' => {
            let number = float()?;
            let digits = exponential(number.abs(), precision);
            (number < 0.0, if letter == 'E' { digits.to_uppercase() } else { digits })
        }
        'g' | 'G' => {
            let number = float()?;
            (number < 0.0, general(number.abs(), precision.max(1)))
        }
        other => {
            return exec_err!(
                "printf() does not know %{other}\nhint: %s, %d, %f, %e, %g, %x, %X, %o, %b and %c are known"
            );
        }
    };
    let prefix = if place.is_alternate && letter == 'x' { "0x" } else { "" };
    let sign = match (is_negative, place.has_sign, place.has_space) {
        (true, ..) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    };
    let (sign, zeros) = (format!("{sign}{prefix}"), place.has_noughts && !place.is_left);
    let missing = place.width.saturating_sub(sign.len() + digits.len());
    let noughts = if zeros { "0".repeat(missing) } else { String::new() };
    Ok(padded(format!("{sign}{noughts}{digits}"), place))
}

fn padded(shown: String, place: &Place) -> String {
    let spaces = " ".repeat(place.width.saturating_sub(shown.chars().count()));
    if place.is_left { shown + &spaces } else { spaces + &shown }
}

fn with_commas(digits: &str) -> String {
    let (whole, behind) = digits.find('.').map_or((digits, ""), |at| digits.split_at(at));
    let mut out = String::new();
    for (nth, digit) in whole.chars().enumerate() {
        if nth > 0 && (whole.len() - nth).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + behind
}

/// With an exponent of two digits at least.
fn exponential(number: f64, precision: usize) -> String {
    let shown = format!("{number:.precision$e}");
    match shown.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => shown,
    }
}

/// The shorter of both forms, without noughts at its end.
fn general(number: f64, precision: usize) -> String {
    let exponent = if number == 0.0 { 0 } else { number.log10().floor() as i64 };
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if exponent < -4 || exponent >= precision as i64 {
        let shown = exponential(number, precision - 1);
        let (digits, exponent) = shown.split_once('e').unwrap_or((&shown, ""));
        return format!("{}e{exponent}", trimmed(digits));
    }
    let decimals = usize::try_from(precision as i64 - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{number:.decimals$}"))
}
