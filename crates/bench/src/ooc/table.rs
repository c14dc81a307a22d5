//! Tables, as text and as Markdown.

use crate::aligned;

/// A table with a title and footnotes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Table {
    pub title: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Reasons and explanations that do not belong to a row.
    pub notes: Vec<String>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, header: &[&str]) -> Table {
        let header = header.iter().map(ToString::to_string).collect();
        Table { title: title.into(), header, ..Table::default() }
    }

    /// Rows and columns by name, in order of appearance; of several values for a cell the first
    /// counts, and an empty cell is a dash.
    pub fn pivot(
        title: impl Into<String>,
        corner: &str,
        cells: impl IntoIterator<Item = (String, String, String)>,
    ) -> Table {
        let mut table = Table::new(title, &[corner]);
        for (row, column, value) in cells {
            let at = table.header.iter().position(|name| *name == column).unwrap_or_else(|| {
                table.header.push(column);
                table.header.len() - 1
            });
            let rows = &mut table.rows;
            let of_row = rows.iter().position(|cells| cells[0] == row).unwrap_or_else(|| {
                rows.push(vec![row]);
                rows.len() - 1
            });
            let cells = &mut rows[of_row];
            cells.resize(cells.len().max(at + 1), String::new());
            if cells[at].is_empty() {
                cells[at] = value;
            }
        }
        for row in &mut table.rows {
            row.resize(table.header.len(), String::new());
            row.iter_mut().filter(|cell| cell.is_empty()).for_each(|cell| *cell = "-".to_string());
        }
        table
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        // A header alone says nothing that the notes do not say.
        if !self.rows.is_empty() {
            let lines: Vec<_> = std::iter::once(&self.header).chain(&self.rows).collect();
            for line in aligned(&lines, |row, column| row == 0 || is_number(&lines[row][column])) {
                text.push_str(&format!("  {line}\n"));
            }
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
        text
    }

    /// For a document.
    pub fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n", self.title);
        let line = |row: &[String]| {
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        if !self.rows.is_empty() {
            text.push_str(&line(&self.header));
            let rules: Vec<String> = (0..self.header.len())
                .map(|column| match self.rows.iter().all(|row| is_number(&row[column])) {
                    true => "---:".to_string(),
                    false => "---".to_string(),
                })
                .collect();
            text.push_str(&line(&rules));
            self.rows.iter().for_each(|row| text.push_str(&line(row)));
            text.push('\n');
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("* {note}\n")));
        if !self.notes.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// Whether a cell aligns right: it begins with a digit, or is empty.
fn is_number(cell: &str) -> bool {
    cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pivot() -> Table {
        let cell = |row: &str, column: &str, value: &str| {
            (row.to_string(), column.to_string(), value.to_string())
        };
        let cells = [cell("pread", "1 MiB", "1.5"), cell("a|b", "4 MiB", "12.25")];
        Table::pivot("ways", "way", cells)
    }

    #[test]
    fn every_place_has_a_value_or_a_dash() {
        let table = pivot();
        assert_eq!(table.header, ["way", "1 MiB", "4 MiB"]);
        assert_eq!(table.rows, [["pread", "1.5", "-"], ["a|b", "-", "12.25"]]);
    }

    #[test]
    fn columns_are_aligned_and_bars_are_escaped() {
        let mut table = pivot();
        table.notes.push("not measured: mmap".to_string());
        let text = table.text();
        assert_eq!(
            text,
            "ways\n    way  1 MiB  4 MiB\n  pread    1.5      -\n  a|b        -  12.25\n  \
             not measured: mmap\n"
        );
        let markdown = table.markdown();
        assert!(markdown.contains("| way | 1 MiB | 4 MiB |\n| --- | ---: | ---: |\n"));
        assert!(markdown.contains("| a\\|b | - | 12.25 |\n\n* not measured: mmap\n"), "{markdown}");
    }

    #[test]
    fn without_rows_there_are_the_notes() {
        let notes = vec!["nothing".to_string()];
        let table = Table { notes, ..Table::new("empty", &["a"]) };
        assert_eq!(table.text(), "empty\n  nothing\n");
        assert_eq!(table.markdown(), "### empty\n\n* nothing\n\n");
    }
}
