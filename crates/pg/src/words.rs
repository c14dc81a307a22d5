//! Parameters of a DSN that the library does not know: removed before it is parsed.

use std::collections::BTreeMap;

/// A DSN without these keys, and their values. Malformed text is left for the library to refuse.
pub(crate) fn take(dsn: &str, keys: &[&str]) -> (String, BTreeMap<String, String>) {
    let is_uri = ["postgres://", "postgresql://"].iter().any(|scheme| dsn.starts_with(scheme));
    match is_uri {
        true => take_of_uri(dsn, keys),
        false => take_of_pairs(dsn, keys),
    }
}

fn take_of_uri(dsn: &str, keys: &[&str]) -> (String, BTreeMap<String, String>) {
    let Some((rest, query)) = dsn.split_once('?') else { return (dsn.into(), BTreeMap::new()) };
    let (mut kept, mut taken) = (Vec::new(), BTreeMap::new());
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some((key, value)) if keys.contains(&key) => {
                taken.insert(key.to_string(), unescaped(value));
            }
            _ => kept.push(pair),
        }
    }
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    (format!("{rest}{query}"), taken)
}

/// Bytes written as %XX.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            None => bytes.extend([b"%", part.as_bytes()].concat()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn take_of_pairs(dsn: &str, keys: &[&str]) -> (String, BTreeMap<String, String>) {
    let (mut kept, mut taken) = (String::new(), BTreeMap::new());
    let mut rest = dsn.trim_start();
    while let Some((key, after)) = rest.split_once('=') {
        let (value, length) = value(after.trim_start());
        let end = rest.len() - after.trim_start().len() + length;
        match keys.contains(&key.trim()) {
            true => drop(taken.insert(key.trim().to_string(), value)),
            false => kept += &format!("{} ", &rest[..end]),
        }
        rest = rest[end..].trim_start();
    }
    (kept + rest, taken)
}

/// The value at the beginning of a text, and its length.
fn value(text: &str) -> (String, usize) {
    let is_quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut characters = text.char_indices().skip(usize::from(is_quoted));
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => value.extend(characters.next().map(|(_, c)| c)),
            '\'' if is_quoted => return (value, at + 1),
            c if c.is_whitespace() && !is_quoted => return (value, at),
            c => value.push(c),
        }
    }
    (value, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(dsn: &str) -> (String, Vec<(String, String)>) {
        let (rest, words) = take(dsn, &["sslmode", "sslkey"]);
        (rest.trim_end().to_string(), words.into_iter().collect())
    }

    #[test]
    fn words_are_taken_out_of_both_forms_and_the_rest_stays_as_it_is() {
        let word = |key: &str, value: &str| (key.to_string(), value.to_string());
        for (dsn, rest, words) in [
            ("", "", vec![]),
            ("host=h dbname='my shop'", "host=h dbname='my shop'", vec![]),
            (
                r"host=h sslmode = require dbname='a\'b'",
                r"host=h dbname='a\'b'",
                vec![word("sslmode", "require")],
            ),
            (
                r"sslkey='a b\'c' password='x sslmode=y'",
                "password='x sslmode=y'",
                vec![word("sslkey", "a b'c")],
            ),
            ("sslmode=disable", "", vec![word("sslmode", "disable")]),
            ("postgresql://a:b@h/d", "postgresql://a:b@h/d", vec![]),
            (
                "postgresql://h/d?sslmode=require&port=5433&sslkey=%2Ftmp%2fk",
                "postgresql://h/d?port=5433",
                vec![word("sslkey", "/tmp/k"), word("sslmode", "require")],
            ),
            ("postgres://h/d?sslmode=a%zz%", "postgres://h/d", vec![word("sslmode", "a%zz%")]),
        ] {
            assert_eq!(taken(dsn), (rest.to_string(), words), "{dsn}");
        }
    }
}
