//! Calls of regular expressions as expressions of the IR.

use headrace_ir::{DataType, Expr, Function, MatchPart, Scalar, Unmatched, Value};
use headrace_pipeline::{WhyNot, check_pattern};
use regex_syntax::hir::{Hir, HirKind, Look};

/// `text ~ pattern` and its kin.
pub fn operator(
    text: Expr,
    pattern: &str,
    case_insensitive: bool,
    negated: bool,
) -> Result<Expr, WhyNot> {
    let pattern = flagged(pattern, if case_insensitive { "i" } else { "" })?;
    let matches = matches(text, &pattern)?;
    Ok(if negated { Expr::Not(Box::new(matches)) } else { matches })
}

/// A call by name, of constants behind its first argument; `None` for others.
pub fn called(name: &str, text: &Expr, constants: &[Scalar]) -> Result<Option<Expr>, WhyNot> {
    let values: Vec<&Value> = constants.iter().map(|constant| &constant.value).collect();
    let (pattern, flags) = match (name, values.as_slice()) {
        (_, [Value::Utf8(pattern)]) => (pattern, ""),
        ("regexp_like", [Value::Utf8(pattern), Value::Utf8(flags)]) => (pattern, flags.as_str()),
        ("regexp_replace", [Value::Utf8(pattern), Value::Utf8(_)]) => (pattern, ""),
        // The planner refuses no flags.
        ("regexp_replace", [Value::Utf8(pattern), Value::Utf8(_), Value::Utf8(flags)])
            if !flags.is_empty() =>
        {
            (pattern, flags.as_str())
        }
        ("regexp_extract", [Value::Utf8(pattern), Value::Int(_)]) => (pattern, ""),
        ("regexp_extract", [Value::Utf8(pattern), Value::Int(_), Value::Utf8(flags)]) => {
            (pattern, flags.as_str())
        }
        _ => return Ok(None),
    };
    let pattern = flagged(pattern, flags)?;
    match (name, &values[1..]) {
        ("regexp_like", _) => matches(text.clone(), &pattern).map(Some),
        ("regexp_substr", []) => {
            part(text, &pattern, MatchPart::Group(0), Unmatched::Null).map(Some)
        }
        ("regexp_extract", groups) => {
            let group = match groups.first() {
                Some(Value::Int(group)) => u16::try_from(*group).ok(),
                _ => Some(0),
            };
            // The planner says which groups there are.
            let Some(group) = group.filter(|group| *group < groups_of(&pattern)) else {
                return Ok(None);
            };
            part(text, &pattern, MatchPart::Group(group), Unmatched::Empty).map(Some)
        }
        ("regexp_replace", [Value::Utf8(template), ..]) => {
            replaced(text, &pattern, template).map(Some)
        }
        _ => Ok(None),
    }
}

/// A pattern with its flags.
fn flagged(pattern: &str, flags: &str) -> Result<String, WhyNot> {
    match flags {
        "" => Ok(pattern.to_string()),
        flags if flags.chars().all(|flag| "isx".contains(flag)) => {
            Ok(format!("(?{flags}){pattern}"))
        }
        flags => Err(WhyNot::new(format!("flags '{flags}' of regular expressions"))),
    }
}

fn matches(text: Expr, pattern: &str) -> Result<Expr, WhyNot> {
    searched(Function::Matches, text, pattern, DataType::Bool)
}

/// A part of the text; a group that took no part in the match is empty.
fn part(text: &Expr, pattern: &str, part: MatchPart, unmatched: Unmatched) -> Result<Expr, WhyNot> {
    searched(Function::MatchedPart(part, unmatched), text.clone(), pattern, DataType::Utf8)
}

fn searched(
    function: Function,
    text: Expr,
    pattern: &str,
    data_type: DataType,
) -> Result<Expr, WhyNot> {
    check_pattern(pattern, function)?;
    Ok(Expr::Call { function, arguments: vec![text, constant(pattern)], data_type })
}

fn constant(text: &str) -> Expr {
    Expr::Literal(Scalar::utf8(text))
}

/// A piece of what stands in place of a text.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Of(MatchPart),
    Text(String),
}

/// The text with its first match replaced.
fn replaced(text: &Expr, pattern: &str, template: &str) -> Result<Expr, WhyNot> {
    let (at_start, at_end) = anchors(pattern)?;
    let mut pieces = vec![];
    pieces.extend((!at_start).then_some(Piece::Of(MatchPart::Before)));
    pieces.extend(pieces_of(template, groups_of(pattern))?);
    pieces.extend((!at_end).then_some(Piece::Of(MatchPart::Behind)));
    if let [Piece::Of(one)] = pieces.as_slice() {
        return part(text, pattern, *one, Unmatched::Whole);
    }
    // Each level would have several copies of the one below.
    let mut is_searched = false;
    text.visit(&mut |expr| {
        is_searched |= matches!(expr, Expr::Call { function, .. } if function.takes_pattern());
    });
    if is_searched {
        return Err(WhyNot::new(format!(
            "'{pattern}' replaces a part of what another one replaced"
        )));
    }
    let texts = pieces.into_iter().map(|piece| match piece {
        Piece::Of(one) => part(text, pattern, one, Unmatched::Empty),
        Piece::Text(text) => Ok(constant(&text)),
    });
    let mut texts = texts.collect::<Result<Vec<_>, _>>()?;
    let data_type = DataType::Utf8;
    let instead = match texts.len() {
        0 => constant(""),
        1 => texts.remove(0),
        _ => Expr::Call { function: Function::Concat, arguments: texts, data_type: DataType::Utf8 },
    };
    let branches = vec![(matches(text.clone(), pattern)?, instead)];
    Ok(Expr::Case { branches, otherwise: Some(Box::new(text.clone())), data_type })
}

/// The pieces of a replacement; `\1` or `\\1` is a group, as the planner reads it.
fn pieces_of(template: &str, groups: u16) -> Result<Vec<Piece>, WhyNot> {
    if template.contains(|c: char| c == '$' || c.is_numeric() && !c.is_ascii()) {
        return Err(WhyNot::new(format!("'{template}' may name groups in other ways")));
    }
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_numeric()).len();
    let mut pieces = Vec::new();
    let (mut rest, mut text) = (template, String::new());
    while let Some(at) = rest.find('\\') {
        let after = &rest[at + 1..];
        let number = after.strip_prefix('\\').unwrap_or(after);
        let (number, behind) = number.split_at(digits(number));
        if number.is_empty() {
            text.push_str(&rest[..=at]);
            rest = after;
            continue;
        }
        text.push_str(&rest[..at]);
        pieces.push(Piece::Text(std::mem::take(&mut text)));
        if let Ok(group) = number.parse::<u16>()
            && group < groups
        {
            pieces.push(Piece::Of(MatchPart::Group(group)));
        }
        rest = behind;
    }
    pieces.push(Piece::Text(text + rest));
    pieces.retain(|piece| *piece != Piece::Text(String::new()));
    Ok(pieces)
}

/// Whether matches begin and end where the text does.
fn anchors(pattern: &str) -> Result<(bool, bool), WhyNot> {
    let properties = parsed(pattern)?;
    let properties = properties.properties();
    let start = properties.look_set_prefix().contains(Look::Start);
    Ok((start, properties.look_set_suffix().contains(Look::End)))
}

/// Number of groups, the whole match among them; none of what is no pattern.
fn groups_of(pattern: &str) -> u16 {
    let groups = parsed(pattern).map_or(0, |hir| last_group(&hir) + 1);
    u16::try_from(groups).unwrap_or(u16::MAX)
}

/// The highest number of a group: one that is never repeated is gone, and those behind it keep their numbers.
fn last_group(hir: &Hir) -> u32 {
    match hir.kind() {
        HirKind::Capture(capture) => last_group(&capture.sub).max(capture.index),
        HirKind::Repetition(repetition) => last_group(&repetition.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(last_group).max().unwrap_or(0)
        }
        _ => 0,
    }
}

fn parsed(pattern: &str) -> Result<Hir, WhyNot> {
    regex_syntax::parse(pattern).map_err(|cause| WhyNot::new(format!("'{pattern}': {cause}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_have_the_groups_that_the_planner_finds() {
        let text = |text: &str| Piece::Text(text.into());
        let group = |number| Piece::Of(MatchPart::Group(number));
        for (template, wanted) in [
            ("", vec![]),
            ("a", vec![text("a")]),
            (r"\1", vec![group(1)]),
            (r"\\1b", vec![group(1), text("b")]),
            (r"\\\1", vec![text(r"\"), group(1)]),
            (r"\x\", vec![text(r"\x\")]),
            (r"<\2\12>\0", vec![text("<"), group(2), text(">"), group(0)]),
        ] {
            assert_eq!(pieces_of(template, 3).ok(), Some(wanted), "{template}");
        }
        assert!(pieces_of("$1", 3).is_err());
    }
}
