//! Variables of the shell, as in psql: `\set name value`, then `:name`, `:'name'` and `:"name"` in statements.

use std::collections::BTreeMap;

/// Variables by name.
#[derive(Debug, Default)]
pub struct Variables(BTreeMap<String, String>);

/// Quoted text and comments stay unchanged.
const CLOSED_BY: [(&str, &str); 4] = [("'", "'"), ("\"", "\""), ("--", "\n"), ("/*", "*/")];

impl Variables {
    /// Sets one.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_string(), value.to_string());
    }

    /// Unsets one; returns whether it was set.
    pub fn unset(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// All, one per line.
    pub fn listed(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name} = '{value}'\n")).collect()
    }

    /// A text with its variables replaced. Other names stay.
    pub fn put_into(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_string();
        }
        let (mut done, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(c) = rest.chars().next() {
            let quoted = CLOSED_BY.iter().find(|(open, _)| rest.starts_with(open));
            let taken = if let Some((open, close)) = quoted {
                let inner = &rest[open.len()..];
                let end = inner.find(close).map_or(rest.len(), |at| open.len() + at + close.len());
                done += &rest[..end];
                end
            } else if rest.starts_with("::") {
                done += "::";
                2
            } else if let Some((value, taken)) = self.named_by(rest) {
                done += &value;
                taken
            } else {
                done.push(c);
                c.len_utf8()
            };
            rest = &rest[taken..];
        }
        done
    }

    /// The value of the variable at the beginning of a text, as it is to be written, and the length of
    /// its name.
    fn named_by(&self, text: &str) -> Option<(String, usize)> {
        let rest = text.strip_prefix(':')?;
        let quote = rest.chars().next().filter(|c| ['\'', '"'].contains(c));
        let begin = quote.map_or(0, char::len_utf8);
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let name = &rest[begin..];
        let name = &name[..name.find(|c| !is_name(c)).unwrap_or(name.len())];
        let value = self.0.get(name)?;
        let Some(quote) = quote else { return Some((value.clone(), 1 + name.len())) };
        rest[begin + name.len()..].starts_with(quote).then_some(())?;
        let doubled = value.replace(quote, &format!("{quote}{quote}"));
        Some((format!("{quote}{doubled}{quote}"), name.len() + 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_values() {
        let mut variables = Variables::default();
        assert_eq!(variables.put_into("select :n"), "select :n");
        variables.set("n", "3");
        variables.set("who", "O'Neil");
        let put = |text: &str| variables.put_into(text);
        assert_eq!(
            put("select :n, :'who', :\"who\", ':n', x::n, a[1:n] -- :n\n, :m"),
            "select 3, 'O''Neil', \"O'Neil\", ':n', x::n, a[13] -- :n\n, :m"
        );
        assert_eq!(put("select 'it''s :n', é:n"), "select 'it''s :n', é3");
        assert_eq!(put(":'n"), ":'n");
        assert_eq!(variables.listed(), "n = '3'\nwho = 'O'Neil'\n");
    }
}
