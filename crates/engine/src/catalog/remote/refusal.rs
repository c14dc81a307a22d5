//! What a server said, and what helps.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::ops::Range;

use object_store::Error;

/// Characters of a server's own words that are shown.
const WORDS_MAX: usize = 300;

/// Why an object cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In a line, without its address.
    pub cause: String,
    /// What helps.
    pub remedy: &'static str,
    /// What kind of refusal it is, for those who go on.
    pub kind: Kind,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no such object.
    NotFound,
    /// It is another version by now.
    Changed,
    /// The server does not send parts of a file.
    NoRanges,
    /// No server answered.
    Unreachable,
    /// Anything else.
    Other,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhint: {}", self.cause, self.remedy)
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        io::Error::other(refusal)
    }
}

const NAME: &str = "look at the name";
const BUCKET: &str =
    "look at the bucket's name, and at AWS_ENDPOINT_URL if the store is not Amazon's";
const REGION: &str = "set AWS_REGION to the bucket's region";
const RANGES: &str = "fetch the file and name it by its path; CSV and JSON need no ranges";
const REACH: &str = "see whether the server runs and can be reached from here; behind a proxy set HTTPS_PROXY, \
                     for a store that is not Amazon's AWS_ENDPOINT_URL";
const TRUST: &str = "SSL_CERT_FILE names the certificates that are trusted";
const WHO: &str = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, say who asks; \
                   AWS_SKIP_SIGNATURE=true asks as nobody";
const WHO_WEB: &str = "the server wants to know who asks: give a signed address";
const AGAIN: &str = "try again later";

impl Refusal {
    /// What an error of the library says.
    pub fn of(error: &Error) -> Refusal {
        let text = whole_text(error);
        let root = root_text(error);
        let (kind, cause, remedy) = match error {
            Error::Precondition { .. } => return Self::changed("its version is another one"),
            Error::NotSupported { .. } => {
                (Kind::NoRanges, "the server does not send parts of the file".to_string(), RANGES)
            }
            _ => match status(&text) {
                Some(status) => of_status(status, &text),
                None if text.contains("Received redirect without LOCATION") => {
                    (Kind::Other, "the bucket is in another region".to_string(), REGION)
                }
                None => of_silence(&text, root),
            },
        };
        Refusal { cause, remedy, kind }
    }

    /// It is another version by now.
    pub fn changed(how: &str) -> Refusal {
        Refusal {
            cause: format!("the file changed while it was being read: {how}"),
            remedy: "run the query again",
            kind: Kind::Changed,
        }
    }

    /// Bytes were asked for that the file does not have.
    pub fn outside(range: &Range<u64>, size_bytes: u64) -> Refusal {
        Refusal {
            cause: format!("bytes {} to {} of a file of {size_bytes}", range.start, range.end),
            remedy: "it is damaged or not whole: write it again",
            kind: Kind::Other,
        }
    }

    /// Fewer or more bytes came than were asked for.
    pub fn cut_short(wanted: u64, came: u64) -> Refusal {
        Refusal {
            cause: format!("the server sent {came} of {wanted} bytes"),
            remedy: AGAIN,
            kind: Kind::Other,
        }
    }

    /// The network's own threads failed.
    pub fn local(error: &io::Error) -> Refusal {
        Refusal { cause: error.to_string(), remedy: AGAIN, kind: Kind::Other }
    }
}

fn of_status(status: &str, text: &str) -> (Kind, String, &'static str) {
    let code = between(text, "<Code>", "</Code>").unwrap_or_default();
    let message = between(text, "<Message>", "</Message>").unwrap_or_default();
    let words: String = match (code, message) {
        ("", _) => String::new(),
        (code, "") => format!(" ({code})"),
        (code, message) => format!(" ({code}: {message})"),
    };
    let cause =
        format!("the server said {status}{}", words.chars().take(WORDS_MAX).collect::<String>());
    let is_s3 = text.contains("<Code>") || text.contains("/S3") || text.contains("S3 ");
    let (kind, remedy) = match status.get(..3).unwrap_or_default() {
        _ if code == "NoSuchBucket" => (Kind::NotFound, BUCKET),
        _ if code == "AuthorizationHeaderMalformed" || code == "PermanentRedirect" => {
            (Kind::Other, REGION)
        }
        "404" | "410" => (Kind::NotFound, NAME),
        "401" | "403" if is_s3 => (Kind::Other, WHO),
        "401" | "403" => (Kind::Other, WHO_WEB),
        "301" | "307" => (Kind::Other, REGION),
        "416" => (Kind::Changed, "run the query again"),
        _ => (Kind::Other, AGAIN),
    };
    (kind, cause, remedy)
}

fn of_silence(text: &str, root: String) -> (Kind, String, &'static str) {
    if root.contains("certificate") || text.contains("InvalidCertificate") {
        return (Kind::Unreachable, format!("no secure connection: {root}"), TRUST);
    }
    let is_missing = text.contains("169.254.") || text.contains("MissingAccessKeyId");
    if is_missing {
        return (Kind::Other, format!("no credentials: {root}"), WHO);
    }
    if root.contains("Content-Range") {
        return (Kind::Other, root, RANGES);
    }
    (Kind::Unreachable, root, REACH)
}

/// "403 Forbidden", as the library writes it.
fn status(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    let end = rest.find([':', '\n']).unwrap_or(rest.len());
    rest.get(..end)
}

fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(start)?;
    rest.split_once(end).map(|(inside, _)| inside)
}

fn whole_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += "\n";
        text += &cause.to_string();
        source = cause.source();
    }
    text
}

/// What lies at the bottom of an error, in one line.
fn root_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    text.lines().next().unwrap_or_default().chars().take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Refusal {
        Refusal::of(&Error::Generic { store: "S3", source: text.to_string().into() })
    }

    #[test]
    fn the_servers_words_are_shown() {
        let refusal = of(
            "Error performing GET http://h/b/x in 2ms - Server returned non-2xx status code: 404 Not Found: \
             <?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>The specified bucket does not \
             exist</Message></Error>",
        );
        assert_eq!(refusal.kind, Kind::NotFound);
        let cause =
            "the server said 404 Not Found (NoSuchBucket: The specified bucket does not exist)";
        assert_eq!(refusal.cause, cause);
        assert_eq!(refusal.remedy, BUCKET);
        let refusal = of("Server returned non-2xx status code: 403 Forbidden: <html>no</html>");
        assert_eq!(
            (refusal.cause.as_str(), refusal.kind),
            ("the server said 403 Forbidden", Kind::Other)
        );
        assert_eq!(of("Connection refused (os error 111)").kind, Kind::Unreachable);
    }
}
