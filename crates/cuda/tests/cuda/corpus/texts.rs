//! Plain texts: what the CUDA processor does with them, and what it does not.

use headrace_ir::function::TrimSide;
use headrace_ir::{MatchPart, Unmatched};

use super::*;
use crate::differential::text_shapes;

/// Cases over texts that are no codes.
pub fn plain_texts() -> Vec<Case> {
    use AggregateFunction::{Count, Max, Min};
    let case_of = |name, steps, sink| Case { name, steps, sink };
    let call_of = |function| {
        let arguments = vec![reg("f")];
        Expr::Call { function, arguments, data_type: DataType::Int32 }
    };
    let texts = |list: &[&str]| list.iter().map(|t| Scalar::utf8(*t)).collect::<Vec<_>>();
    let many: Vec<String> = (0..30).map(|i| format!("text {:02}", i * 3)).collect();
    let many: Vec<Scalar> = many.into_iter().map(Scalar::utf8).collect();
    let or = |a, b| Expr::Or(vec![a, b]);
    let unlike = |pattern: &str| Expr::Like {
        value: Box::new(reg("f")),
        pattern: pattern.into(),
        escape: Some('!'),
        negated: true,
        case_insensitive: false,
    };
    let of = |op, value: &str| cmp(op, reg("f"), text(value));
    // A text or another by a number, longer than a word.
    let either = || {
        let branches =
            vec![(lt(reg("a"), i32s(-20)), text("text 07")), (lt(reg("a"), i32s(20)), reg("f"))];
        case(branches, Some(text("text 07, or one that is longer")))
    };
    let by = |keys: &[(&'static str, Expr)], calls| aggregate(keys.to_vec(), calls);
    let calls =
        || vec![count(), sum(reg("a")), call(Count, Some(reg("f"))), call(Max, Some(reg("c")))];
    let small = || Step::Filter(lt(reg("a"), i32s(-45)));
    let mut cases = vec![
        counted("text = ", of(CompareOp::Eq, "text 07")),
        case_of(
            "groups by keys of 160 bytes",
            vec![],
            by(&["f", "g", "h", "i", "j"].map(|name| (name, reg("f"))), calls()),
        ),
        counted("text <>", of(CompareOp::Ne, "text 07")),
        counted("text <", of(CompareOp::Lt, "text 3")),
        counted("text <=", of(CompareOp::Le, "text 31éé")),
        counted("text >", of(CompareOp::Gt, "text 31éé")),
        counted("text >=", of(CompareOp::Ge, "text 35ééé, and more")),
        counted("text = nothing", of(CompareOp::Eq, "")),
        counted("text > nothing", of(CompareOp::Gt, "")),
        counted("texts compared", cmp(CompareOp::Lt, reg("f"), either())),
        counted("text in a short list", in_list(reg("f"), texts(&["text 01", "", "none"]), false)),
        counted("text in a long list", in_list(reg("f"), many.clone(), false)),
        counted("text not in a long list", in_list(reg("f"), many, true)),
        counted("text or null", or(like(reg("f"), "%9"), is_null(reg("f")))),
        counted("text not like", unlike("%!%1%")),
        counted("lengths of texts", lt(call_of(Function::CharacterLength), i32s(9))),
        counted("bytes of texts", lt(call_of(Function::OctetLength), i32s(10))),
    ];
    let patterns = [
        "text 0_", "%", "", "_______", "%é", "%é%_", "text __é%", "t%t%0%", "%text 31éé", "%%7",
        "text 07", "_%_%_", "%é_é%", "%1é%é", "te_t 1%", "%xx%",
    ];
    cases.extend(parts_of_texts());
    let likes = patterns.iter().map(|pattern| counted("text like", like(reg("f"), pattern)));
    cases.extend(likes);
    cases.extend([
        case_of("rows of texts", vec![], rows(vec![("f", reg("f"))])),
        case_of(
            "rows of texts, their parts, and constants",
            vec![small()],
            rows(vec![("a", reg("a")), ("f", reg("f")), ("e", either()), ("c", reg("c"))]),
        ),
        case_of(
            "first rows by a text",
            vec![],
            first_rows(vec![("f", reg("f")), ("a", reg("a")), ("e", either())], 40),
        ),
        case_of(
            "first rows by a text, upwards",
            vec![],
            first_rows(vec![("f", reg("f")), ("a", reg("a"))], 33),
        ),
        case_of(
            "first rows by a text, NULLs behind",
            vec![],
            first_rows(vec![("f", reg("f")), ("a", reg("a"))], 35),
        ),
        case_of("texts counted", vec![], by(&[], calls())),
        case_of("by text", vec![], by(&[("f", reg("f"))], calls())),
        case_of("by text of few rows", vec![small()], by(&[("f", reg("f"))], calls())),
        case_of(
            "by texts and numbers",
            vec![],
            by(&[("h", reg("h")), ("f", reg("f")), ("g", reg("g")), ("e", either())], calls()),
        ),
        case_of(
            "by a text and a decimal",
            vec![small()],
            by(&[("h", reg("h")), ("d", reg("d")), ("f", reg("f")), ("x", reg("x"))], calls()),
        ),
        case_of(
            "first and last texts by a number",
            vec![],
            by(&[("c", reg("c"))], vec![call(Min, Some(reg("f"))), call(Max, Some(either()))]),
        ),
        case_of(
            "first and last texts by text",
            vec![small()],
            by(&[("f", reg("f"))], vec![call(Max, Some(reg("f"))), call(Min, Some(either()))]),
        ),
        case_of(
            "by a computed text",
            vec![Step::Compute(named("e", either()))],
            by(&[("e", appended(0, DataType::Utf8, true, "e"))], calls()),
        ),
    ]);
    cases.extend(wide_keys::wide_keys());
    cases
}

/// Functions that give a part of a text, or say where it is: compared, found in lists, grouped by.
fn parts_of_texts() -> Vec<Case> {
    let of = |function, arguments: Vec<Expr>, data_type: DataType| {
        let arguments = std::iter::once(reg("f")).chain(arguments).collect();
        Expr::Call { function, arguments, data_type }
    };
    let part = |function, arguments| of(function, arguments, DataType::Utf8);
    let trim = |side, set| part(Function::Trim(side), vec![text(set)]);
    let parts = vec![
        ("substr of the beginning", part(Function::Substring, vec![i32s(1), i32s(6)])),
        ("substr before the beginning", part(Function::Substring, vec![i32s(-2), i32s(9)])),
        ("substr across letters of two bytes", part(Function::Substring, vec![i32s(7), i32s(2)])),
        ("substr of nothing", part(Function::Substring, vec![i32s(3), i32s(0)])),
        ("substr beyond the end", part(Function::Substring, vec![i32s(900), i32s(1)])),
        (
            "substr as long as can be",
            part(Function::Substring, vec![i32s(7), i32s(i32::MAX.into())]),
        ),
        ("substr from a character on", part(Function::Substring, vec![i32s(8)])),
        ("left", part(Function::Left, vec![i32s(8)])),
        ("left of all but some", part(Function::Left, vec![i32s(-2)])),
        ("left of nothing", part(Function::Left, vec![i32s(-99)])),
        ("right", part(Function::Right, vec![i32s(2)])),
        ("right of all but some", part(Function::Right, vec![i32s(-6)])),
        ("ltrim", trim(TrimSide::Start, "etx")),
        ("rtrim", trim(TrimSide::End, "0é9")),
        ("btrim", trim(TrimSide::Both, "é 123t")),
        ("btrim of nothing", trim(TrimSide::Both, "")),
    ];
    let mut cases: Vec<Case> = parts
        .into_iter()
        .map(|(name, part)| {
            let calls = vec![count(), sum(reg("a"))];
            Case { name, steps: vec![], sink: aggregate(vec![("p", part)], calls) }
        })
        .collect();
    let matched = |part, unmatched, pattern| {
        of(Function::MatchedPart(part, unmatched), vec![text(pattern)], DataType::Utf8)
    };
    let (group, null) = (MatchPart::Group, Unmatched::Null);
    let searched = vec![
        ("a group of a match", matched(group(1), Unmatched::Whole, "^text (?:0|3)?([0-9é]+).*$")),
        ("a group or NULL", matched(group(1), null, "([13])é?$|tail")),
        ("a group that is none of the match", matched(group(2), null, "x(t)|(5)")),
        ("a match or nothing", matched(group(0), Unmatched::Empty, "é.|[0-9]{2}")),
        ("before a match", matched(MatchPart::Before, null, "[0-9]+")),
        ("behind a match", matched(MatchPart::Behind, Unmatched::Whole, "e|é")),
        ("many registers", matched(group(1), null, "(t|te|tex|text|text |text 1|text 2)[^x]*$")),
    ];
    cases.extend(searched.into_iter().map(|(name, part)| Case {
        name,
        steps: vec![],
        sink: aggregate(vec![("p", part)], vec![count(), sum(reg("a"))]),
    }));
    let matches = |pattern| of(Function::Matches, vec![text(pattern)], DataType::Bool);
    cases.extend([
        counted("matches", matches("[0-9]é?$")),
        counted("matches nothing", matches("^$")),
        counted("matches in whatever case", matches("(?i)TAIL")),
        counted("does not match", Expr::Not(Box::new(matches("\\w\\d")))),
    ]);
    let position = |wanted| of(Function::Position, vec![text(wanted)], DataType::Int32);
    let starts = |start| of(Function::StartsWith, vec![text(start)], DataType::Bool);
    let codes = part(Function::Substring, vec![i32s(6), i32s(2)]);
    let list = ["07", "31", "3é"].map(Scalar::utf8).to_vec();
    cases.extend([
        counted("position of a text", lt(i32s(7), position("é"))),
        counted("position of nothing", lt(position(""), i32s(2))),
        counted("position of what is nowhere", lt(position("none"), i32s(1))),
        counted("starts with", starts("text 3")),
        counted("starts with more than there is", starts("text 07 and a tail that is longer")),
        counted("substr in a list", in_list(codes, list, false)),
    ]);
    cases
}

/// What is not taken, with a part of the reason.
pub fn refused() -> Vec<(Case, &'static str)> {
    use AggregateFunction::{Min, SquaredDeviations};
    let of = |sink| Case { name: "refused", steps: vec![], sink };
    let ilike = Expr::Like {
        value: Box::new(reg("f")),
        pattern: "TEXT%".into(),
        escape: None,
        negated: false,
        case_insensitive: true,
    };
    let keys = ["f", "g", "h", "i", "j", "k"].map(|name| (name, reg("f"))).to_vec();
    vec![
        (
            of(aggregate(vec![], vec![call(Min, Some(reg("f")))])),
            "min and max of plain text without hashed groups",
        ),
        (
            of(aggregate(vec![], vec![call(SquaredDeviations, Some(reg("e")))])),
            "deviations of floats",
        ),
        (counted("refused", ilike), "not on the CUDA processor"),
        (of(aggregate(keys, vec![count()])), "take 192 bytes, the CUDA processor has 160"),
    ]
}

/// Tables of which one row's offsets lie outside its bytes, in a segment of offsets.
pub fn corrupt_texts() -> Vec<(Shape, Table)> {
    let mut tables = Vec::new();
    for shape in text_shapes() {
        let shape = Shape { nulls: false, ..shape };
        // The end of the last row, the end of one, the begin of one.
        for (offset, value) in [(1000, u32::MAX), (1000, 1 << 20), (500, 1 << 20), (500, 0)] {
            let mut table = Table::random(shape, &[1000, 77]);
            let column = &mut table.segments[0].columns[5];
            let at = shape.skew + offset * 4;
            let Some(offsets) = &mut column.offsets else { panic!("a column of texts") };
            offsets[at..at + 4].copy_from_slice(&value.to_le_bytes());
            tables.push((shape, table));
        }
    }
    tables
}
