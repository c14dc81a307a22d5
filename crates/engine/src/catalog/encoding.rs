//! Texts of other encodings as UTF-8.

use std::io::{self, Read};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// How the letters of a text are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// One to four bytes a letter.
    Utf8,
    /// ISO 8859-1: one byte a letter.
    Latin1,
    /// Two or four bytes a letter, the small end first.
    Utf16Le,
    /// The same, the large end first.
    Utf16Be,
}

impl Encoding {
    /// By its name.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().replace('_', "-").as_str() {
            "utf-8" | "utf8" => Self::Utf8,
            "latin-1" | "latin1" | "iso-8859-1" | "iso8859-1" => Self::Latin1,
            "utf-16" | "utf16" | "utf-16le" => Self::Utf16Le,
            "utf-16be" => Self::Utf16Be,
            _ => return None,
        })
    }
}

/// A text in UTF-8, of bytes in another encoding.
pub struct Transcoded<R> {
    source: R,
    encoding: Encoding,
    /// Read, and no whole letter yet.
    rest: Vec<u8>,
    text: Vec<u8>,
    taken: usize,
}

impl<R: Read> Transcoded<R> {
    /// Of what the source has left.
    pub fn new(source: R, encoding: Encoding) -> Self {
        Self { source, encoding, rest: Vec::new(), text: Vec::new(), taken: 0 }
    }

    /// Whether there is more text.
    fn fill(&mut self) -> io::Result<bool> {
        self.text.clear();
        self.taken = 0;
        while self.text.is_empty() {
            let read = self.source.by_ref().take(READ_BYTES as u64).read_to_end(&mut self.rest)?;
            if read == 0 {
                return match self.rest.is_empty() {
                    true => Ok(false),
                    false => Err(invalid("it ends within a letter of UTF-16")),
                };
            }
            match self.encoding {
                Encoding::Utf8 => self.text.append(&mut self.rest),
                Encoding::Latin1 => {
                    let letters: String = self.rest.drain(..).map(char::from).collect();
                    self.text = letters.into_bytes();
                }
                Encoding::Utf16Le => self.utf16(u16::from_le_bytes)?,
                Encoding::Utf16Be => self.utf16(u16::from_be_bytes)?,
            }
        }
        Ok(true)
    }

    fn utf16(&mut self, unit: fn([u8; 2]) -> u16) -> io::Result<()> {
        let mut units: Vec<u16> =
            self.rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        // The first half of a letter waits for the second.
        if units.last().is_some_and(|last| (0xD800..0xDC00).contains(last)) {
            units.pop();
        }
        self.rest.drain(..units.len() * 2);
        let letters: Result<String, _> = char::decode_utf16(units).collect();
        let letters =
            letters.map_err(|_| invalid("it is not UTF-16: half a letter stands alone"))?;
        self.text = letters.into_bytes();
        Ok(())
    }
}

fn invalid(cause: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}

impl<R: Read> Read for Transcoded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.text.len() && !self.fill()? {
            return Ok(0);
        }
        let given = into.len().min(self.text.len() - self.taken);
        into[..given].copy_from_slice(&self.text[self.taken..][..given]);
        self.taken += given;
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn texts_are_the_same_in_every_encoding() {
        let text = "a\u{e9}\u{10348}\n".repeat(40_000);
        let wide =
            |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<_>>();
        for (encoding, bytes) in [
            (Encoding::Utf8, text.clone().into_bytes()),
            (Encoding::Utf16Le, wide(u16::to_le_bytes)),
            (Encoding::Utf16Be, wide(u16::to_be_bytes)),
        ] {
            let mut found = String::new();
            Transcoded::new(bytes.as_slice(), encoding).read_to_string(&mut found).unwrap();
            assert!(found == text, "{encoding:?}");
        }
        let mut latin = String::new();
        Transcoded::new(&b"caf\xe9"[..], Encoding::Latin1).read_to_string(&mut latin).unwrap();
        assert_eq!(latin, "caf\u{e9}");
        for half in [&b"a\0b"[..], &b"\x00\xd8"[..], &b"\x00\xdca\0"[..]] {
            assert!(io::read_to_string(Transcoded::new(half, Encoding::Utf16Le)).is_err());
        }
    }
}
