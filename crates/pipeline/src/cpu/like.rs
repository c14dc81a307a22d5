//! LIKE with a constant pattern.

use crate::ExecError;
use crate::cpu::vector::{Data, Vector};

/// A compiled pattern.
pub struct Pattern {
    parts: Vec<Part>,
    case_insensitive: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// These characters.
    Text(String),
    /// Any one character.
    One,
    /// Any number of characters.
    Any,
}

impl Pattern {
    /// Compiles a pattern; an escape at the very end stands for itself.
    pub fn new(pattern: &str, escape: char, case_insensitive: bool) -> Self {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            let wildcard = match c {
                c if c == escape => {
                    text.push(chars.next().unwrap_or(escape));
                    continue;
                }
                '%' => Part::Any,
                '_' => Part::One,
                c => {
                    text.push(c);
                    continue;
                }
            };
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            if wildcard != Part::Any || parts.last() != Some(&Part::Any) {
                parts.push(wildcard);
            }
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        if case_insensitive {
            for part in &mut parts {
                if let Part::Text(text) = part {
                    *text = text.to_lowercase();
                }
            }
        }
        Self { parts, case_insensitive }
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        if self.case_insensitive {
            return match_parts(&self.parts, &text.to_lowercase());
        }
        match self.parts.as_slice() {
            [Part::Text(wanted)] => text == wanted,
            [Part::Text(prefix), Part::Any] => text.starts_with(prefix.as_str()),
            [Part::Any, Part::Text(suffix)] => text.ends_with(suffix.as_str()),
            [Part::Any, Part::Text(inner), Part::Any] => text.contains(inner.as_str()),
            parts => match_parts(parts, text),
        }
    }
}

/// Greedy matching that comes back only to the last `%`: a later `%` can do whatever an
/// earlier one could.
fn match_parts(parts: &[Part], text: &str) -> bool {
    let (mut part, mut rest) = (0, text);
    let mut retry: Option<(usize, &str)> = None;
    loop {
        let advanced = match parts.get(part) {
            None if rest.is_empty() => return true,
            None => None,
            Some(Part::Any) => {
                retry = Some((part, rest));
                Some(rest)
            }
            Some(Part::One) => skip_one(rest),
            Some(Part::Text(wanted)) => rest.strip_prefix(wanted.as_str()),
        };
        if let Some(after) = advanced {
            rest = after;
            part += 1;
            continue;
        }
        let Some((any, from)) = retry else { return false };
        let Some(shorter) = skip_one(from) else { return false };
        retry = Some((any, shorter));
        part = any + 1;
        rest = shorter;
    }
}

fn skip_one(text: &str) -> Option<&str> {
    let mut chars = text.chars();
    chars.next().map(|_| chars.as_str())
}

/// `value [NOT] LIKE pattern`.
pub fn like<'a>(
    vector: &Vector<'_>,
    pattern: &Pattern,
    negated: bool,
    rows: usize,
) -> Result<Vector<'a>, ExecError> {
    let vector = vector.spelled(rows);
    let Data::Str(texts) = &vector.data else {
        return Err(ExecError::Internal("LIKE over something that is no text".into()));
    };
    let values = texts.iter().map(|text| u8::from(pattern.matches(text) != negated)).collect();
    Ok(Vector::bools(values, vector.validity.as_deref().map(<[u8]>::to_vec)))
}
