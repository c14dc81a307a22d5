//! Text in XML.

/// `text` without what XML cannot hold at all: control characters become blanks.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { ' ' } else { c })
        .collect()
}

/// `text` as character data or as the value of an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A small reader for tests: whether elements are nested and closed, attributes quoted and
/// unique, and references known.
#[cfg(test)]
pub(crate) mod check {
    /// An element as it was opened.
    #[derive(Debug)]
    pub(crate) struct Element {
        pub name: String,
        pub attributes: Vec<(String, String)>,
    }

    impl Element {
        pub fn number(&self, attribute: &str) -> f64 {
            let found = self.attributes.iter().find(|(name, _)| name == attribute);
            found.and_then(|(_, value)| value.parse().ok()).unwrap_or(f64::NAN)
        }
    }

    /// Every element in the order of opening, and every piece of text.
    #[derive(Debug, Default)]
    pub(crate) struct Document {
        pub elements: Vec<Element>,
        pub texts: Vec<String>,
    }

    impl Document {
        pub fn count(&self, name: &str) -> usize {
            self.elements.iter().filter(|element| element.name == name).count()
        }

        pub fn says(&self, text: &str) -> bool {
            self.texts.iter().any(|found| found.contains(text))
        }
    }

    pub(crate) fn parse(mut rest: &str) -> Result<Document, String> {
        let mut document = Document::default();
        let mut open: Vec<String> = Vec::new();
        while let Some(at) = rest.find('<') {
            text(&rest[..at], open.is_empty(), &mut document)?;
            let inner = &rest[at + 1..];
            let end = tag_end(inner).ok_or(format!("a tag is not closed: {inner:.40}"))?;
            let tag = &inner[..end];
            rest = &inner[end + 1..];
            if tag.starts_with('?') || tag.starts_with('!') {
                continue;
            }
            if let Some(name) = tag.strip_prefix('/') {
                let opened = open.pop().ok_or(format!("</{name}> was not opened"))?;
                if opened != name.trim() {
                    return Err(format!("<{opened}> is closed by </{name}>"));
                }
                continue;
            }
            let closed = tag.ends_with('/');
            let element = element(tag.trim_end_matches('/'))?;
            if !closed {
                if open.is_empty() && !document.elements.is_empty() {
                    return Err(format!("<{}> is a second root", element.name));
                }
                open.push(element.name.clone());
            }
            document.elements.push(element);
        }
        text(rest, true, &mut document)?;
        match open.last() {
            Some(name) => Err(format!("<{name}> is not closed")),
            None if document.elements.is_empty() => Err("there is no element".to_string()),
            None => Ok(document),
        }
    }

    /// The `>` that is not in quotes.
    fn tag_end(text: &str) -> Option<usize> {
        let mut quote = None;
        text.char_indices().find_map(|(at, c)| match (quote, c) {
            (None, '>') => Some(at),
            (None, '"' | '\'') => {
                quote = Some(c);
                None
            }
            (Some(open), c) if open == c => {
                quote = None;
                None
            }
            _ => None,
        })
    }

    fn element(tag: &str) -> Result<Element, String> {
        let (name, mut rest) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
        let name_letters = |c: char| c.is_ascii_alphanumeric() || "-_:.".contains(c);
        if name.is_empty() || !name.chars().all(name_letters) {
            return Err(format!("<{tag}> has no name"));
        }
        let mut attributes: Vec<(String, String)> = Vec::new();
        while !rest.trim().is_empty() {
            let (key, after) = rest.split_once('=').ok_or(format!("<{tag}>: no value"))?;
            let after = after.trim_start();
            let quote = after.chars().next().filter(|c| "\"'".contains(*c));
            let quote = quote.ok_or(format!("<{tag}>: a value is not quoted"))?;
            let (value, after) =
                after[1..].split_once(quote).ok_or(format!("<{tag}>: a quote is open"))?;
            let key = key.trim().to_string();
            if attributes.iter().any(|(known, _)| *known == key) {
                return Err(format!("<{tag}>: {key} is there twice"));
            }
            attributes.push((key, unescape(value)?));
            rest = after;
        }
        Ok(Element { name: name.to_string(), attributes })
    }

    fn text(text: &str, outside: bool, document: &mut Document) -> Result<(), String> {
        let text = unescape(text)?;
        match (text.trim(), outside) {
            ("", _) => {}
            (text, true) => return Err(format!("text outside of the root: {text}")),
            (text, false) => document.texts.push(text.to_string()),
        }
        Ok(())
    }

    fn unescape(text: &str) -> Result<String, String> {
        if let Some(c) = text.chars().find(|c| c.is_control() && !"\n\t\r".contains(*c)) {
            return Err(format!("the character {c:?} cannot be in XML"));
        }
        if text.contains('<') {
            return Err(format!("a < in {text}"));
        }
        let mut plain = String::new();
        let mut parts = text.split('&');
        plain.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let (name, after) = part.split_once(';').ok_or(format!("a bare & in {text}"))?;
            plain.push(match name {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                _ => return Err(format!("&{name}; is not known")),
            });
            plain.push_str(after);
        }
        Ok(plain)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_check_finds_what_is_wrong() {
            let good = r#"<?xml version="1.0"?><a x="1"><b y='a>&amp;'/>t &lt; u</a>"#;
            let document = parse(good).expect("well-formed");
            assert_eq!((document.count("a"), document.count("b")), (1, 1));
            assert!(document.says("t < u"));
            for bad in [
                "",
                "text",
                "<a>",
                "</a>",
                "<a></b>",
                "<a x=1/>",
                "<a x='1' x='2'/>",
                "<a>&</a>",
                "<a>&nbsp;</a>",
                "<a/>text",
                "<a></a><b></b>",
                "<a x='<'/>",
                "<a>\u{1}</a>",
                "< a/>",
            ] {
                assert!(parse(bad).is_err(), "{bad}");
            }
        }
    }
}
