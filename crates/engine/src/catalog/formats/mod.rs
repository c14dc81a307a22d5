//! The formats of files that are read. Each is a file here that implements [`FileFormat`](super::format::FileFormat), and a
//! member of [`FORMATS`]; nothing else lists them.

mod arrow;
mod csv;
mod json;
mod parquet;

pub use self::parquet::input_of as parquet_input;

use std::path::Path;

use super::format::Format;
use super::packing::{Packing, extension, packing_of};

/// In the order in which errors name them.
pub const FORMATS: &[Format] = &[
    // Streamed.
    &arrow::Arrow,
    // Read by the planner.
    &parquet::Parquet,
    &csv::Csv,
    &json::Json,
];

/// What a name says of a file; `None`: it is no file of a table.
pub fn format_of(path: &Path) -> Option<(Format, Packing)> {
    let packing = packing_of(path);
    let suffix = match packing {
        Packing::Plain => extension(path),
        _ => extension(&path.with_extension("")),
    };
    let is_it = |format: &&Format| {
        format.suffixes().contains(&suffix.as_str())
            && (packing == Packing::Plain || format.is_packable())
    };
    Some((*FORMATS.iter().find(is_it)?, packing))
}

/// Whether a name looks like that of a table's file.
pub fn is_file_name(name: &str) -> bool {
    let path = Path::new(name);
    packing_of(path) != Packing::Plain || format_of(path).is_some()
}

/// What a function of SQL reads; `None`: it reads no files.
pub fn read_by(function: &str) -> Option<Format> {
    FORMATS.iter().copied().find(|format| format.functions().contains(&function))
}

/// What names of files end in that are read, in words.
pub fn known_suffixes() -> String {
    let suffixes = |is_packable: bool| {
        let formats = FORMATS.iter().filter(|format| format.is_packable() == is_packable);
        let suffixes = formats.flat_map(|format| format.suffixes());
        suffixes.map(|suffix| format!(".{suffix}")).collect::<Vec<_>>().join(", ")
    };
    format!("{} (also .gz and .zst of these), {}", suffixes(true), suffixes(false))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_word_means_two_formats() {
        let mut seen = HashSet::new();
        for format in FORMATS {
            assert!(seen.insert(format.name()));
            for word in format.suffixes().iter().chain(format.functions()) {
                assert_eq!(*word, word.to_ascii_lowercase());
                assert!(seen.insert(word), "{word}");
            }
        }
    }

    #[test]
    fn a_name_says_its_format_and_packing() {
        let known =
            |name| format_of(Path::new(name)).map(|(format, packing)| (format.name(), packing));
        assert_eq!(known("a.b/c.CSV"), Some(("CSV", Packing::Plain)));
        assert_eq!(known("x.ndjson.zst"), Some(("JSON", Packing::Zstd)));
        assert_eq!(known("x.parquet"), Some(("Parquet", Packing::Plain)));
        // These compress their parts.
        for name in ["x.parquet.gz", "x.arrow.zst", "x.gz", "csv", "x.csv.txt"] {
            assert_eq!(known(name), None, "{name}");
        }
    }
}
