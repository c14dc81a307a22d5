//! Aligned columns. Widths come from the first rows; wider values later overflow.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::{DataType, SchemaRef};

use super::cells::{Cells, cut, header, numeric, width, widths};
use super::expanded::write_expanded;
use super::format::{Expanded, Format, Layout, Room, Writer, other};

/// Rows held back to determine the widths.
const HELD_ROWS: usize = 1000;
const HELD_BYTES: usize = 1 << 20;

/// Minimum width when columns are cut to fit.
const CUT_COLUMNS_MIN: usize = 16;

/// Aligned columns.
pub struct TableWriter {
    layout: Layout,
    names: Vec<String>,
    numeric: Vec<bool>,
    /// Columns whose values would change their meaning when cut.
    fixed: Vec<bool>,
    /// Widths set by the user.
    widths: Vec<i32>,
    is_plan: bool,
    /// Until the widths are known.
    held: Vec<Vec<String>>,
    held_bytes: usize,
    shape: Option<Shape>,
    rows: u64,
}

/// How a table is drawn.
enum Shape {
    Columns(Vec<Shown>),
    /// One line per value.
    Lines,
}

/// A horizontal line.
#[derive(Clone, Copy)]
enum Edge {
    Top,
    Middle,
    Bottom,
}

/// A visible column.
#[derive(Clone, Copy)]
enum Shown {
    Column {
        index: usize,
        width: usize,
    },
    /// A placeholder for columns without room.
    Gap,
}

impl TableWriter {
    pub fn new(schema: SchemaRef, layout: Layout) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|f| header(f.name())).collect();
        Self {
            layout,
            widths: widths(),
            is_plan: names == ["plan_type", "plan"],
            numeric: numeric(&schema),
            fixed: schema.fields().iter().map(|field| !is_cut(field.data_type())).collect(),
            names,
            held: Vec::new(),
            held_bytes: 0,
            shape: None,
            rows: 0,
        }
    }

    fn row(&mut self, cells: &Cells, row: usize) -> io::Result<Vec<String>> {
        let mut texts = Vec::with_capacity(self.names.len());
        for column in 0..self.names.len() {
            let mut text = String::new();
            cells.write(row, column, &mut text).map_err(other)?;
            self.held_bytes += text.len();
            texts.push(text);
        }
        Ok(texts)
    }

    /// Determines the widths and writes the rows held back.
    fn begin(&mut self, text: &mut String) {
        let held = std::mem::take(&mut self.held);
        let shape = self.shape_of(&held);
        if let Shape::Columns(columns) = &shape {
            self.border(columns, Edge::Top, text);
            if self.layout.headers {
                self.line(columns, &self.names, text, true);
                self.border(columns, Edge::Middle, text);
            }
        }
        self.shape = Some(shape);
        for row in &held {
            self.put(row, text);
        }
    }

    fn shape_of(&self, held: &[Vec<String>]) -> Shape {
        let widest = |i: usize| {
            let cells = held.iter().map(|row| width(&row[i]));
            match self.said(i) {
                0 => cells.max().unwrap_or(0).max(width(&self.names[i])),
                said => said.unsigned_abs() as usize,
            }
        };
        let widths: Vec<usize> = (0..self.names.len()).map(widest).collect();
        let Some(room) = self.layout.terminal else { return Shape::Columns(all(&widths)) };
        if self.layout.expanded == Expanded::Auto && !fits(&widths, room.columns_max) {
            return Shape::Lines;
        }
        if !self.widths.is_empty() {
            return Shape::Columns(all(&widths));
        }
        Shape::Columns(fitted(&widths, &self.fixed, room))
    }

    /// The user's width of a column; 0 is none.
    fn said(&self, column: usize) -> i32 {
        self.widths.get(column).copied().unwrap_or(0)
    }

    fn put(&mut self, row: &[String], text: &mut String) {
        match &self.shape {
            Some(Shape::Columns(columns)) => self.line(columns, row, text, false),
            Some(Shape::Lines) => write_expanded(&self.names, row, self.rows + 1, text),
            None => {}
        }
        self.rows += 1;
    }

    fn line(&self, columns: &[Shown], cells: &[String], text: &mut String, is_head: bool) {
        let bar = if self.layout.format == Format::Box { '│' } else { '|' };
        for shown in columns {
            text.push(bar);
            let Shown::Column { index, width: columns } = *shown else {
                text.push_str(" … ");
                continue;
            };
            // Off a terminal nothing is cut that nobody asked for.
            let is_cut = self.layout.terminal.is_some() || self.said(index) != 0;
            let cell = if is_cut { &cut(&cells[index], columns) } else { &cells[index] };
            let blanks = columns.saturating_sub(width(cell));
            text.push(' ');
            if (self.numeric[index] && !is_head) || self.said(index) < 0 {
                text.extend(std::iter::repeat_n(' ', blanks));
                text.push_str(cell);
            } else {
                text.push_str(cell);
                text.extend(std::iter::repeat_n(' ', blanks));
            }
            text.push(' ');
        }
        text.push(bar);
        text.push('\n');
    }

    fn border(&self, columns: &[Shown], edge: Edge, text: &mut String) {
        let [line, left, crossing, right] = match (self.layout.format, edge) {
            (Format::Box, Edge::Top) => ['─', '┌', '┬', '┐'],
            (Format::Box, Edge::Middle) => ['─', '├', '┼', '┤'],
            (Format::Box, Edge::Bottom) => ['─', '└', '┴', '┘'],
            _ => ['-', '+', '+', '+'],
        };
        for (nth, shown) in columns.iter().enumerate() {
            let columns = match shown {
                Shown::Column { width, .. } => *width,
                Shown::Gap => 1,
            };
            text.push(if nth == 0 { left } else { crossing });
            text.extend(std::iter::repeat_n(line, columns + 2));
        }
        text.push(right);
        text.push('\n');
    }
}

/// Whether a truncated value is still meaningful: true for a text, false for a number or a date.
fn is_cut(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_cut(value),
        other => !(other.is_numeric() || other.is_temporal() || *other == DataType::Boolean),
    }
}

fn all(widths: &[usize]) -> Vec<Shown> {
    let shown = |(index, &width): (usize, &usize)| Shown::Column { index, width };
    widths.iter().enumerate().map(shown).collect()
}

/// The width of a table of such columns.
fn taken(widths: impl Iterator<Item = usize>) -> usize {
    widths.map(|width| width + 3).sum::<usize>() + 1
}

fn fits(widths: &[usize], columns_max: usize) -> bool {
    taken(widths.iter().copied()) <= columns_max
}

/// Cuts the widest columns, except those of `fixed` values, then omits columns in the middle.
fn fitted(widths: &[usize], fixed: &[bool], room: Room) -> Vec<Shown> {
    let most = widths.iter().copied().max().unwrap_or(0);
    let mut cap = most.min(room.columns_max.max(CUT_COLUMNS_MIN));
    let capped = |cap: usize| {
        let width = move |(&width, &fixed)| if fixed { width } else { cap.min(width) };
        widths.iter().zip(fixed).map(width)
    };
    while cap > CUT_COLUMNS_MIN && taken(capped(cap)) > room.columns_max {
        cap -= 1;
    }
    let widths: Vec<usize> = capped(cap).collect();
    let mut shown = all(&widths);
    let gap = 4;
    let taken_by = |shown: &[Shown]| {
        taken(shown.iter().filter_map(|shown| match shown {
            Shown::Column { width, .. } => Some(*width),
            Shown::Gap => None,
        }))
    };
    if taken_by(&shown) <= room.columns_max {
        return shown;
    }
    while shown.len() > 1 && taken_by(&shown) + gap > room.columns_max {
        shown.remove(shown.len() / 2);
    }
    let middle = shown.len().div_ceil(2);
    shown.insert(middle, Shown::Gap);
    shown
}

impl Writer for TableWriter {
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        if self.is_plan
            && let Some(plans) = plan_texts(batch)
        {
            self.shape = Some(Shape::Lines);
            return plans.iter().try_for_each(|plan| writeln!(out, "{}", plan.trim_end()));
        }
        let cells = Cells::of(batch).map_err(other)?;
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            let texts = self.row(&cells, row)?;
            if self.shape.is_some() {
                self.put(&texts, &mut text);
                continue;
            }
            self.held.push(texts);
            if self.held.len() >= HELD_ROWS || self.held_bytes >= HELD_BYTES {
                self.begin(&mut text);
            }
        }
        out.write_all(text.as_bytes())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        if self.shape.is_none() {
            self.begin(&mut text);
        }
        if let Some(Shape::Columns(columns)) = &self.shape {
            self.border(columns, Edge::Bottom, &mut text);
            let whole =
                columns.iter().filter(|shown| matches!(shown, Shown::Column { .. })).count();
            if whole < self.names.len() {
                text += &format!(
                    "({whole} of {} columns shown; \\x shows all, a line each)\n",
                    self.names.len()
                );
            }
        }
        out.write_all(text.as_bytes())
    }
}

/// The texts of an EXPLAIN: plans are indented lines, which a box makes hard to read. Plans that
/// include the logical plan show only the physical one.
fn plan_texts(batch: &RecordBatch) -> Option<Vec<String>> {
    let kinds = batch.column(0).as_string_opt::<i32>()?;
    let plans = batch.column(1).as_string_opt::<i32>()?;
    let pairs: Vec<_> = kinds.iter().flatten().zip(plans.iter().flatten()).collect();
    // Some formats show the logical plan alone.
    let is_wanted = |kind: &str| kind != "logical_plan";
    let shows_all = !pairs.iter().any(|(kind, _)| is_wanted(kind));
    let wanted = pairs.into_iter().filter(|(kind, _)| shows_all || is_wanted(kind));
    Some(wanted.map(|(_, plan)| plan.to_string()).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use std::sync::Arc;

    fn batch(rows: usize, columns: usize, text: &str) -> RecordBatch {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![text; rows]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; rows]));
        let columns = (0..columns).map(|i| {
            (format!("column_{i}"), if i % 2 == 0 { texts.clone() } else { numbers.clone() })
        });
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn layout(columns_max: Option<usize>) -> Layout {
        let terminal = columns_max.map(|columns_max| Room { rows_max: 1 << 20, columns_max });
        Layout { terminal, ..Layout::plain(Format::Table) }
    }

    fn written(batches: &[RecordBatch], layout: Layout) -> (Vec<usize>, String) {
        let mut out = Vec::new();
        let mut writer = TableWriter::new(batches[0].schema(), layout);
        let mut lengths = Vec::new();
        for batch in batches {
            writer.rows(&mut out, batch).unwrap();
            lengths.push(out.len());
        }
        writer.finish(&mut out).unwrap();
        (lengths, String::from_utf8(out).unwrap())
    }

    #[test]
    fn widths_are_those_of_the_first_rows() {
        let (lengths, text) =
            written(&[batch(HELD_ROWS, 1, "ab"), batch(1, 1, "much wider")], layout(None));
        assert!(lengths[0] > 0, "what is held back goes out with row {HELD_ROWS}");
        assert!(text.ends_with("| ab       |\n| much wider |\n+----------+\n"), "{text}");
        let (lengths, _) = written(&[batch(20, 1, &"x".repeat(HELD_BYTES / 10))], layout(None));
        assert!(lengths[0] > HELD_BYTES);
    }

    #[test]
    fn a_terminal_is_never_left_on_the_right() {
        for columns_max in 24..200 {
            let (_, text) =
                written(&[batch(2, 9, "some text of this and that")], layout(Some(columns_max)));
            let widest = text.lines().filter(|l| !l.starts_with('(')).map(width).max().unwrap();
            assert!(widest <= columns_max, "{columns_max}: {widest}\n{text}");
            assert_eq!(text.contains(" of 9 columns shown"), text.contains("| … |"), "{text}");
        }
    }

    #[test]
    fn numbers_are_never_cut() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1_234_567_890_123_456_789; 2]));
        let columns = (0..9).map(|i| (format!("column_{i}"), numbers.clone()));
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        for columns_max in 24..250 {
            let (_, text) = written(std::slice::from_ref(&batch), layout(Some(columns_max)));
            assert!(text.contains("1234567890123456789 |"), "{columns_max}:\n{text}");
            assert!(!text.contains("7…"), "{columns_max}:\n{text}");
        }
    }

    #[test]
    fn boxes_have_lines() {
        let boxed = Layout { format: Format::Box, ..layout(None) };
        let (_, text) = written(&[batch(1, 2, "ab")], boxed);
        assert_eq!(
            text,
            "┌──────────┬──────────┐\n│ column_0 │ column_1 │\n├──────────┼──────────┤\n\
             │ ab       │        7 │\n└──────────┴──────────┘\n"
        );
    }

    #[test]
    fn nothing_is_cut_elsewhere() {
        let (_, text) = written(&[batch(2, 60, "some text of this and that")], layout(None));
        assert!(text.contains("column_59") && !text.contains('…'));
    }

    #[test]
    fn what_is_too_wide_becomes_lines_when_asked_to() {
        let auto = |columns| Layout { expanded: Expanded::Auto, ..layout(Some(columns)) };
        assert!(written(&[batch(1, 9, "text")], auto(60)).1.starts_with("-[ row 1 ]"));
        assert!(written(&[batch(1, 2, "text")], auto(60)).1.starts_with("+--"));
    }
}
