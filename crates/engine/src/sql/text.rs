//! Places of tokens in a text.

use datafusion::sql::sqlparser::tokenizer::Location;

/// Characters between two whose offsets are kept.
const MARK_CHARS: usize = 256;

/// From lines and columns, in characters, to offsets, in bytes, and back.
pub struct Places<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
    /// Offsets of every 256th character; `None`: characters are bytes.
    marks: Option<Vec<usize>>,
}

impl<'a> Places<'a> {
    /// The places of a text.
    pub fn of(text: &'a str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        let marks = || text.char_indices().step_by(MARK_CHARS).map(|(at, _)| at).collect();
        Self {
            text,
            line_starts: std::iter::once(0).chain(after_breaks).collect(),
            marks: (!text.is_ascii()).then(marks),
        }
    }

    /// The offset of a place, no further than the end of the text.
    pub fn offset(&self, place: Location) -> usize {
        let line = (place.line as usize).saturating_sub(1);
        let Some(&start) = self.line_starts.get(line) else { return self.text.len() };
        let column = (place.column as usize).saturating_sub(1);
        let Some(marks) = &self.marks else { return (start + column).min(self.text.len()) };
        let character = self.character(start) + column;
        let Some(&mark) = marks.get(character / MARK_CHARS) else { return self.text.len() };
        let behind = self.text[mark..].char_indices().nth(character % MARK_CHARS);
        behind.map_or(self.text.len(), |(at, _)| mark + at)
    }

    /// The number of the character at an offset, from the beginning of the text.
    fn character(&self, offset: usize) -> usize {
        let Some(marks) = &self.marks else { return offset };
        let mark = marks.partition_point(|&mark| mark <= offset).saturating_sub(1);
        let start = marks.get(mark).copied().unwrap_or(0);
        mark * MARK_CHARS + self.text[start..offset].chars().count()
    }

    /// The column of an offset, in characters; the first is 1.
    pub fn column(&self, offset: usize) -> usize {
        let start = self.line_starts[self.line(offset) - 1];
        self.character(offset) - self.character(start) + 1
    }

    /// The line of an offset; the first is 1.
    pub fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_behind_wide_characters() {
        let places = Places::of("é1\nab\n");
        assert_eq!(places.offset(Location::new(1, 2)), 2);
        assert_eq!(places.offset(Location::new(2, 2)), 5);
        assert_eq!(places.offset(Location::new(9, 1)), 7);
        assert_eq!([places.line(0), places.line(3), places.line(4)], [1, 1, 2]);
        assert_eq!([places.column(2), places.column(4), places.column(5)], [2, 1, 2]);
        let long = format!("a\n{}é", "éx".repeat(1000));
        let places = Places::of(&long);
        for column in [1, 2, 255, 256, 257, 2001] {
            let offset = places.offset(Location::new(2, column));
            assert_eq!(long[2..offset].chars().count() + 1, column as usize);
            assert_eq!(places.column(offset), column as usize);
        }
        assert_eq!(places.offset(Location::new(2, 5000)), long.len());
    }
}
