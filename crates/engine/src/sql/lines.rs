//! Where the characters of a text lie, by line and column, as tokens have them.

use std::cell::Cell;

/// A text and where its lines begin.
#[derive(Debug)]
pub struct Lines<'a> {
    text: &'a str,
    begins: Vec<usize>,
    /// The last place that was asked for, and its byte: tokens are asked for one after the other, and a long line is not walked
    /// from its begin for each.
    last: Cell<(u64, u64, usize)>,
}

impl<'a> Lines<'a> {
    /// Those of a text.
    pub fn of(text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let begins = [0].into_iter().chain(breaks.map(|(at, _)| at + 1)).collect();
        Self { text, begins, last: Cell::new((1, 1, 0)) }
    }

    /// The byte of a character; both counted from 1.
    pub fn offset(&self, line: u64, column: u64) -> usize {
        let nth = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        let (mut from, mut begin) =
            (1, self.begins.get(nth(line)).copied().unwrap_or(self.text.len()));
        let (last_line, last_column, last) = self.last.get();
        if last_line == line && last_column <= column {
            (from, begin) = (last_column, last);
        }
        let rest = &self.text[begin..];
        let chars = nth(column - from + 1);
        let offset = begin + rest.char_indices().nth(chars).map_or(rest.len(), |(at, _)| at);
        self.last.set((line, column, offset));
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_found_in_any_order() {
        let text = "aé\nüb日c";
        let lines = Lines::of(text);
        let places =
            [(1, 1, 0), (1, 2, 1), (1, 3, 3), (2, 1, 4), (2, 2, 6), (2, 4, 10), (2, 5, 11)];
        for (line, column, at) in places.into_iter().chain(places.into_iter().rev()) {
            assert_eq!(lines.offset(line, column), at, "{line}:{column}");
        }
        assert_eq!((lines.offset(9, 1), lines.offset(2, 99)), (text.len(), text.len()));
        assert_eq!(lines.offset(2, 2), 6);
    }

    #[test]
    fn a_long_line_is_walked_once() {
        let text = "1, ".repeat(300_000);
        let lines = Lines::of(&text);
        let started = std::time::Instant::now();
        for column in 1..=900_000 {
            assert_eq!(lines.offset(1, column), column as usize - 1);
        }
        assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    }
}
