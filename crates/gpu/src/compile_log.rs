//! NVRTC's log with numbered excerpts of the source.

use std::collections::BTreeSet;
use std::fmt::Write;

/// Lines shown on each side of the line concerned.
const CONTEXT_LINES: usize = 2;

/// Further places are not shown: the first errors cause the later ones.
const PLACES_MAX: usize = 8;

/// Renders `log`, followed by an excerpt of each place it names. `texts` are the names
/// and contents of the source and its headers.
pub(crate) fn render(log: &str, texts: &[(&str, &str)]) -> String {
    let mut out = log.trim_end().to_string();
    let mut seen = BTreeSet::new();
    for (text_index, line) in log.lines().filter_map(|line| place_in(line, texts)) {
        if seen.len() == PLACES_MAX {
            out.push_str("\n(more places are not shown)");
            break;
        }
        if seen.insert((text_index, line)) {
            append_excerpt(&mut out, texts[text_index], line);
        }
    }
    out
}

/// The text and the line number, from 1, that a log line such as
/// `name(12): error: ...` names.
fn place_in(log_line: &str, texts: &[(&str, &str)]) -> Option<(usize, usize)> {
    texts.iter().enumerate().find_map(|(index, (name, text))| {
        let rest = log_line.trim_start().strip_prefix(name)?.strip_prefix('(')?;
        let (number, rest) = rest.split_once(')')?;
        let line: usize = number.parse().ok()?;
        let known = (1..=text.lines().count()).contains(&line);
        (known && rest.starts_with(':')).then_some((index, line))
    })
}

fn append_excerpt(out: &mut String, (name, text): (&str, &str), line: usize) {
    let first = line.saturating_sub(CONTEXT_LINES).max(1);
    let last = line + CONTEXT_LINES;
    // Writing to a String cannot fail.
    let _ = write!(out, "\n\n  --> {name}:{line}");
    for (index, content) in text.lines().enumerate() {
        let number = index + 1;
        if (first..=last).contains(&number) {
            let mark = if number == line { '>' } else { ' ' };
            let _ = write!(out, "\n{mark} {number:>5} | {content}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "line one\nline two\nbad line\nline four\nline five\nline six";

    #[test]
    fn the_line_named_is_shown_once_with_its_neighbours() {
        let log = "k.cu(3): error: identifier \"x\" is undefined\n    x = 1;\n    ^\n\n\
                   k.cu(3): error: again\n\n2 errors detected\n";
        let shown = render(log, &[("k.cu", SOURCE)]);
        assert!(shown.starts_with("k.cu(3): error"));
        assert_eq!(shown.matches("--> k.cu:3").count(), 1, "{shown}");
        assert!(shown.contains("\n>     3 | bad line\n"), "{shown}");
        assert!(shown.contains("\n      1 | line one\n"), "{shown}");
        assert!(shown.ends_with("\n      5 | line five"), "{shown}");
    }

    #[test]
    fn headers_are_quoted_too_and_unknown_places_are_left_alone() {
        let log = "h.cuh(1): warning #1: odd\nk.cu(99): error: beyond the end\nother(1): note";
        let shown = render(log, &[("k.cu", SOURCE), ("h.cuh", "only line")]);
        assert!(shown.contains("--> h.cuh:1\n>     1 | only line"), "{shown}");
        assert_eq!(shown.matches("-->").count(), 1, "{shown}");
    }

    #[test]
    fn the_number_of_places_is_bounded() {
        let source = "x\n".repeat(50);
        let log: String = (1..=50).map(|n| format!("k.cu({n}): error: e\n")).collect();
        let shown = render(&log, &[("k.cu", &source)]);
        assert_eq!(shown.matches("-->").count(), PLACES_MAX);
        assert!(shown.ends_with("(more places are not shown)"));
    }
}
