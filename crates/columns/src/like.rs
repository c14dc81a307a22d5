//! LIKE with a constant pattern.

use memchr::memmem::Finder;

use crate::ColumnError;
use crate::vector::{Data, Vector};

/// A compiled pattern.
pub struct Pattern {
    parts: Vec<Part>,
    case_insensitive: bool,
}

enum Part {
    /// These characters.
    Text(Box<Wanted>),
    /// Any one character.
    One,
    /// Any number of characters.
    Any,
}

/// A text that is looked for.
struct Wanted {
    text: String,
    finder: Finder<'static>,
}

impl Wanted {
    fn new(text: &str) -> Self {
        Self { text: text.to_string(), finder: Finder::new(text).into_owned() }
    }

    /// The first place of it in another text; it begins with a character, and so does what is found.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.finder.find(text.as_bytes()).and_then(|at| text.get(at..))
    }
}

impl Pattern {
    /// Compiles a pattern; an escape at the very end stands for itself.
    pub fn new(pattern: &str, escape: char, case_insensitive: bool) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        let mut text = String::new();
        let wanted = |text: &str| match case_insensitive {
            true => Part::Text(Box::new(Wanted::new(&text.to_lowercase()))),
            false => Part::Text(Box::new(Wanted::new(text))),
        };
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
                parts.push(wanted(&std::mem::take(&mut text)));
            }
            if !matches!((&wildcard, parts.last()), (Part::Any, Some(Part::Any))) {
                parts.push(wildcard);
            }
        }
        if !text.is_empty() {
            parts.push(wanted(&text));
        }
        Self { parts, case_insensitive }
    }

    /// Whether the whole text matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        if self.case_insensitive {
            return match_parts(&self.parts, &text.to_lowercase());
        }
        match self.parts.as_slice() {
            [Part::Text(wanted)] => text == wanted.text,
            [Part::Any, Part::Text(suffix)] => text.ends_with(&suffix.text),
            parts => match_parts(parts, text),
        }
    }
}

/// Greedy matching that comes back only to the last `%`: a later `%` can do whatever an
/// earlier one could.
fn match_parts(parts: &[Part], text: &str) -> bool {
    let (mut part, mut rest) = (0, text);
    // What stands behind the last %, and where it was tried.
    let mut retry: Option<(usize, &str)> = None;
    loop {
        let advanced = match parts.get(part) {
            None if rest.is_empty() => return true,
            None => None,
            Some(Part::Any) if part + 1 == parts.len() => return true,
            Some(Part::Any) => {
                let Some(begin) = may_begin(&parts[part + 1], rest) else { return false };
                retry = Some((part + 1, begin));
                Some(begin)
            }
            Some(Part::One) => skip_one(rest),
            Some(Part::Text(wanted)) => rest.strip_prefix(wanted.text.as_str()),
        };
        if let Some(after) = advanced {
            rest = after;
            part += 1;
            continue;
        }
        let again = retry.and_then(|(behind, tried)| {
            Some((behind, may_begin(&parts[behind], skip_one(tried)?)?))
        });
        let Some((behind, begin)) = again else { return false };
        retry = again;
        (part, rest) = (behind, begin);
    }
}

/// From where on a part may match first.
fn may_begin<'t>(part: &Part, text: &'t str) -> Option<&'t str> {
    match part {
        Part::Text(wanted) => wanted.find(text),
        Part::One | Part::Any => Some(text),
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
) -> Result<Vector<'a>, ColumnError> {
    let vector = vector.spelled(rows);
    let Data::Str(texts) = &vector.data else {
        return Err(ColumnError::Internal("LIKE over something that is no text".into()));
    };
    let values = texts.iter().map(|text| u8::from(pattern.matches(text) != negated)).collect();
    Ok(Vector::bools(values, vector.validity.as_deref().map(<[u8]>::to_vec)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the standard words it.
    fn means(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'%', rest @ ..] => (0..=text.len()).any(|from| means(rest, &text[from..])),
            [b'_', rest @ ..] => !text.is_empty() && means(rest, &text[1..]),
            [wanted, rest @ ..] => text.first() == Some(wanted) && means(rest, &text[1..]),
        }
    }

    /// All texts of at most so many of some letters.
    fn all(letters: &str, longest: usize) -> Vec<String> {
        let mut texts = vec![String::new()];
        let mut first = 0;
        for _ in 0..longest {
            let of_length = first..texts.len();
            first = texts.len();
            for text in of_length {
                for letter in letters.chars() {
                    texts.push(format!("{}{letter}", texts[text]));
                }
            }
        }
        texts
    }

    #[test]
    fn every_short_pattern_matches_what_it_means() {
        let texts = all("ab", 6);
        for pattern in all("ab%_", 5) {
            let compiled = Pattern::new(&pattern, '\\', false);
            for text in &texts {
                let wanted = means(pattern.as_bytes(), text.as_bytes());
                assert_eq!(compiled.matches(text), wanted, "{text} LIKE {pattern}");
            }
        }
    }

    #[test]
    fn characters_are_whole() {
        for (pattern, text, wanted) in [
            ("%é%", "caf\u{e9}s", true),
            ("_é", "éé", true),
            ("_", "é", true),
            ("%\u{a9}%", "é", false),
        ] {
            assert_eq!(Pattern::new(pattern, '\\', false).matches(text), wanted, "{pattern}");
        }
        assert!(Pattern::new("%É_%", '\\', true).matches("caféS"));
    }
}
