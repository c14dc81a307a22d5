//! What people read on standard error: errors, notes, summaries.
//!
//! Names of files and tables may hold anything, escape sequences included: here, and only here, all of it becomes
//! visible text. Who has closed standard error has seen enough.

use std::fmt;
use std::io::{self, Write};

/// As `eprintln!`, of a text in which no character commands the terminal.
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}

/// Writes a line.
pub fn line(text: fmt::Arguments<'_>) {
    let text = visible(&text.to_string()) + "\n";
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// A text whose control characters are spelled out, but for ends of lines and tabs.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_ascii_control() => shown += &format!("\\x{:02x}", u32::from(c)),
            // Those that turn the direction of writing make one name look like another.
            c if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) => {
                shown.extend(c.escape_unicode());
            }
            c if ('\u{2066}'..='\u{2069}').contains(&c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn nothing_commands_the_terminal() {
        assert_eq!(visible("a\x1b[31mb\r\n\tü"), "a\\x1b[31mb\\x0d\n\tü");
        assert_eq!(visible("\u{9b}2J\u{202e}x\x7f"), "\\u{9b}2J\\u{202e}x\\x7f");
    }
}
