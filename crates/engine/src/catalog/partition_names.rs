//! Names of folders that are values of columns, as Hive and Spark write them.

use std::path::Path;

/// What stands for NULL in the name of a folder.
pub(crate) const NULL_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Key and value of a folder named `key=value`.
pub fn partition_of(folder: &Path) -> Option<(String, String)> {
    let (key, value) = folder.file_name()?.to_str()?.split_once('=')?;
    (!key.is_empty()).then(|| (plain(key), value.to_string()))
}

/// The name of the folder of rows whose column `key` has a value; `None` is NULL. What [`partition_of`] and the
/// reader of its values make of it is the same again.
pub fn partition_name(key: &str, value: Option<&str>) -> String {
    let value = match value {
        None => NULL_VALUE.to_string(),
        // A text that looks like none.
        Some(NULL_VALUE) => format!("%5F{}", &NULL_VALUE[1..]),
        Some(value) => escaped(value),
    };
    let key = match key.strip_prefix('.') {
        Some(rest) => format!("%2E{}", escaped(rest)),
        None => escaped(key),
    };
    format!("{key}={value}")
}

/// A text in which `%41` stands for `A`, as Hive writes it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if letter.is_ascii_control() || "\"#%'*/:=?\\{}[]^<>|".contains(letter) => {
                escaped.push_str(&format!("%{:02X}", letter as u32));
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The value that a folder's name stands for, as Hive and Spark write them.
pub fn unescaped(value: &str) -> Option<String> {
    if value == NULL_VALUE {
        return None;
    }
    Some(plain(value))
}

/// A text in which `%41` stands for `A`.
fn plain(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        let code = code.filter(|code| !code.starts_with('+'));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders_are_read_as_they_were_meant() {
        let texts = ["", "a", "a/b=c %", "..", "%41", "Ω\n\u{1}\"", NULL_VALUE, "%5F", "a=b"];
        for key in texts.iter().filter(|key| !key.is_empty()) {
            for value in texts.iter().copied().map(Some).chain([None]) {
                let name = partition_name(key, value);
                assert!(!name.contains('/') && !name.starts_with('.'), "{name}");
                let (read_key, read) = partition_of(Path::new(&name)).unwrap_or_default();
                assert_eq!(
                    (read_key.as_str(), unescaped(&read).as_deref()),
                    (*key, value),
                    "{name}"
                );
            }
        }
    }
}
