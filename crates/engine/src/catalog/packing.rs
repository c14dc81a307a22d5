//! Compression of files as a whole, by their names.

use std::path::Path;

/// How a file's bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip, `.gz`.
    Gzip,
    /// Zstandard, `.zst`.
    Zstd,
}

/// How a file is packed, by its name.
pub fn packing_of(path: &Path) -> Packing {
    match extension(path).as_str() {
        "gz" => Packing::Gzip,
        "zst" | "zstd" => Packing::Zstd,
        _ => Packing::Plain,
    }
}

impl Packing {
    /// As an option says it.
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "none" | "uncompressed" => Self::Plain,
            "gz" | "gzip" => Self::Gzip,
            "zst" | "zstd" => Self::Zstd,
            _ => return None,
        })
    }

    /// What an option says.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// A file's extension in lower case, without that of its packing.
pub fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_how_its_file_is_compressed() {
        assert_eq!(packing_of(Path::new("a/b.csv.GZ")), Packing::Gzip);
        assert_eq!(packing_of(Path::new("b.json.zst")), Packing::Zstd);
        assert_eq!(packing_of(Path::new("b.csv")), Packing::Plain);
        assert_eq!(packing_of(Path::new("é")), Packing::Plain);
    }
}
