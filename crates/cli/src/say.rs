//! Output for people on standard error: errors, notes, summaries.
//!
//! Names of files and tables may contain anything, including escape sequences. Here, and only here, all of it
//! becomes visible text. A closed standard error is no failure.

use std::fmt;
use std::io::{self, Write};

/// Like `eprintln!`, without characters that control the terminal.
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}

/// Writes a line.
pub fn line(text: fmt::Arguments<'_>) {
    let text = visible(&text.to_string()) + "\n";
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// A text with escaped control characters, except line ends and tabs.
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
