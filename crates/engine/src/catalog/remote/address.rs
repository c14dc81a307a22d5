//! What an address names: a bucket's object or folder, or a web server's file.

use std::path::{Path, PathBuf};

use datafusion::common::Result;

use crate::catalog::refused;

/// Where an object lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `s3://bucket/key`: an object, or a folder of objects.
    S3 {
        /// The bucket.
        bucket: String,
        /// Without a slash at its beginning; it ends with one if only a folder can be meant.
        key: String,
    },
    /// `http://` or `https://`: one file, whatever follows its name included.
    Web {
        /// As it was given.
        url: String,
    },
}

/// Whether a path is the address of something on another machine.
pub fn is_address(path: &Path) -> bool {
    path.to_str().and_then(scheme).is_some_and(|scheme| !scheme.eq_ignore_ascii_case("file"))
}

fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let is_plain = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    (is_plain && scheme.starts_with(|c: char| c.is_ascii_alphabetic())).then_some(scheme)
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(path: &Path) -> Result<Address> {
        let text = path.to_str().unwrap_or_default();
        let fail = |cause: &str, remedy: &str| Err(refused(&shown(text), cause, remedy));
        let scheme = scheme(text).unwrap_or_default().to_ascii_lowercase();
        let rest = text.split_once("://").map_or("", |(_, rest)| rest);
        let (host, inside) = rest.split_once('/').unwrap_or((rest, ""));
        match scheme.as_str() {
            _ if host.is_empty() => {
                fail("it names no server or bucket", "s3://bucket/path, https://host/path")
            }
            _ if host.contains('@') => fail(
                "it has a name and a password in it, which would stand in logs",
                "servers that ask for them are not read; give a signed address",
            ),
            "s3" | "s3a" => Ok(Address::S3 { bucket: host.to_string(), key: inside.to_string() }),
            "http" | "https" => {
                let url = text.split('#').next().unwrap_or_default();
                Ok(Address::Web { url: url.to_string() })
            }
            _ => fail(
                "nothing is read that way",
                "s3://, https:// and http:// addresses are, and paths of this machine",
            ),
        }
    }
}

/// How an address is shown, and its file called: a signature may follow the name of a web server's file. Paths of
/// this machine are as they are.
pub fn shown_path(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) if is_address(path) => shown(text),
        _ => path.to_path_buf(),
    }
}

/// As [`shown_path`], of a text.
pub fn shown(text: &str) -> PathBuf {
    let is_web = scheme(text).is_some_and(|s| s.to_ascii_lowercase().starts_with("http"));
    let end = if is_web { text.find(['?', '#']).unwrap_or(text.len()) } else { text.len() };
    let text = &text[..end];
    let hidden = text.split_once("://").and_then(|(scheme, rest)| {
        let host_end = rest.find('/').unwrap_or(rest.len());
        let at = rest[..host_end].rfind('@')?;
        Some(format!("{scheme}://..{}", &rest[at..]))
    });
    PathBuf::from(hidden.unwrap_or_else(|| text.to_string()))
}

/// A text in which addresses of web servers may stand, as it is shown.
pub fn shown_text(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = ["http://", "https://"].iter().filter_map(|s| rest.find(s)).min() {
        let address = &rest[start..];
        let is_end = |c: char| c.is_whitespace() || "'\",)]".contains(c);
        let end = address.find(is_end).unwrap_or(address.len());
        let hidden = address[..end].find(['?', '#']).unwrap_or(end);
        shown.push_str(&rest[..start + hidden]);
        rest = &address[end..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_told_from_paths() {
        for path in ["a/b.csv", "/s3:/x", "C:x", "file:///a.csv", "a b://c", "://x", "x:/y"] {
            assert!(!is_address(Path::new(path)), "{path}");
        }
        for path in ["s3://b/x", "HTTPS://h/x.csv?a=b", "gs://b/x"] {
            assert!(is_address(Path::new(path)), "{path}");
        }
        let s3 = Address::of(Path::new("s3://b/a b[1]/")).unwrap();
        assert_eq!(s3, Address::S3 { bucket: "b".into(), key: "a b[1]/".into() });
        for (address, cause) in [
            ("gs://b/x", "nothing is read that way"),
            ("s3:///x", "no server or bucket"),
            ("https://ann:secret@h/x.csv", "a name and a password"),
        ] {
            let error = Address::of(Path::new(address)).unwrap_err().to_string();
            assert!(error.contains(cause) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn signatures_are_not_shown() {
        let url = "https://h:8/a/x.csv?X-Amz-Signature=abc#top";
        assert_eq!(shown(url), Path::new("https://h:8/a/x.csv"));
        assert_eq!(shown("s3://b/what?.csv"), Path::new("s3://b/what?.csv"));
        let call = "read_csv(['https://h/x?sig=1', 'a?b'], delim => '?')";
        assert_eq!(shown_text(call), "read_csv(['https://h/x', 'a?b'], delim => '?')");
        let plan = "sum(http://h/x?sig=1.c7) http://h/y#z";
        assert_eq!(shown_text(plan), "sum(http://h/x) http://h/y");
    }
}
