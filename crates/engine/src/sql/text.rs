//! Places of tokens in a text.

use datafusion::sql::sqlparser::tokenizer::Location;

/// From lines and columns, in characters, to offsets, in bytes.
pub struct Places<'a> {
    text: &'a str,
    /// Characters are bytes.
    is_ascii: bool,
    line_starts: Vec<usize>,
}

impl<'a> Places<'a> {
    /// The places of a text.
    pub fn of(text: &'a str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            is_ascii: text.is_ascii(),
            line_starts: std::iter::once(0).chain(after_breaks).collect(),
        }
    }

    /// The offset of a place, no further than the end of the text.
    pub fn offset(&self, place: Location) -> usize {
        let line = (place.line as usize).saturating_sub(1);
        let Some(&start) = self.line_starts.get(line) else { return self.text.len() };
        let column = (place.column as usize).saturating_sub(1);
        if self.is_ascii {
            return (start + column).min(self.text.len());
        }
        let line = &self.text[start..];
        line.char_indices().nth(column).map_or(self.text.len(), |(at, _)| start + at)
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
    }
}
