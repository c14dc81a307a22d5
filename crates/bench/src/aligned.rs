//! Cells in aligned columns.

/// A line of text a row; a cell goes to the right end of its column where `is_right` says so of its row and column.
pub fn aligned<R: AsRef<[String]>>(
    rows: &[R],
    is_right: impl Fn(usize, usize) -> bool,
) -> Vec<String> {
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    let width = |column: usize| {
        rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |(number, row): (usize, &R)| {
        let cells = row.as_ref().iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match is_right(number, column) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().enumerate().map(line).collect()
}
