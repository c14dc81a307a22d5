//! Automata beside the library of regular expressions.

use headrace_columns::vector::{Data, Vector};
use headrace_ir::{MatchPart, Unmatched};
use regex::Regex;

use super::automaton;

const PATTERNS: [&str; 32] = [
    "",
    "a",
    "ab|a",
    "a|ab",
    "(a|ab)(c|bcd)(d*)",
    "(a+)(b*)$",
    "^(a*?)(a*)$",
    "^$",
    "$",
    "^",
    "b$",
    "^a",
    "(a*)*b",
    "(a)|(b)",
    "((a)|b)*",
    "(a*)(a|b)+?",
    ".",
    "..$",
    "[^a]",
    "(?i)A(B)",
    "a{2,3}",
    "(a{1,2}?)(b?)",
    "(é|a)+",
    r"\w(b+)",
    r"[[:space:]]",
    "(?s)^.(.)",
    "^https?://(?:www\\.)?([^/]+)/.*$",
    "(a)?b",
    "(a){0}(b)",
    "(a|b)*($|c)",
    "(a)?(b)?(c)?$",
    "b*(a?)b*$",
];

/// All texts of at most `longest` of some pieces.
fn texts(pieces: &[&str], longest: usize) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut first = 0;
    for _ in 0..longest {
        let known = first..texts.len();
        first = texts.len();
        for text in known {
            for piece in pieces {
                texts.push(format!("{}{piece}", texts[text]));
            }
        }
    }
    texts
}

fn vector(texts: &[String]) -> Vector<'_> {
    let views: Vec<&str> = texts.iter().map(String::as_str).collect();
    Vector::with_validity(Data::Str(views), None)
}

/// What the automaton finds in each text; `None`: NULL.
fn found(pattern: &str, part: MatchPart, texts: &[String]) -> Vec<Option<String>> {
    let automaton = automaton(pattern, Some((part, Unmatched::Null))).expect(pattern);
    let parts = automaton.parts(&vector(texts), texts.len()).expect("texts");
    let Data::Str(values) = &parts.data else { panic!("no texts") };
    let of = |(row, value): (usize, &&str)| parts.is_valid(row).then(|| (*value).to_string());
    values.iter().enumerate().map(of).collect()
}

#[test]
fn automata_find_what_the_library_finds() {
    let mut all = texts(&["a", "b", "c", "é", "\n", " "], 4);
    let urls = ["http://", "https://", "www.", "x", "/", "\n"];
    all.extend(texts(&urls, 5));
    for pattern in PATTERNS {
        let regex = Regex::new(pattern).expect(pattern);
        let captures: Vec<_> = all.iter().map(|text| regex.captures(text)).collect();
        let automaton = automaton(pattern, None).expect(pattern);
        let matches = automaton.matches(&vector(&all), all.len()).expect("texts");
        let Data::Bool(matches) = &matches.data else { panic!("no truth") };
        for ((text, captures), matches) in all.iter().zip(&captures).zip(matches.iter()) {
            assert_eq!(captures.is_some(), *matches == 1, "{text:?} ~ {pattern:?}");
        }
        let groups = 0..regex.captures_len() as u16;
        let mut parts: Vec<MatchPart> = groups.map(MatchPart::Group).collect();
        parts.extend([MatchPart::Before, MatchPart::Behind]);
        for part in parts {
            let found = found(pattern, part, &all);
            for ((text, captures), found) in all.iter().zip(&captures).zip(found) {
                let wanted = captures.as_ref().map(|captures| match part {
                    MatchPart::Group(group) => {
                        captures.get(group.into()).map_or("", |m| m.as_str())
                    }
                    MatchPart::Before => &text[..captures.get(0).expect("a match").start()],
                    MatchPart::Behind => &text[captures.get(0).expect("a match").end()..],
                });
                assert_eq!(found.as_deref(), wanted, "{part:?} of {text:?} by {pattern:?}");
            }
        }
    }
}

#[test]
fn what_an_automaton_cannot_is_refused_with_the_cause() {
    for (pattern, cause) in [
        (r"\bword\b", "looks at lines or words"),
        ("(?m)^a", "looks at lines or words"),
        ("(a|b|ab|ba|aa|bb)*(a|b){20}(c)", "too many registers"),
        (r"\w{60}(\d+)", "exceeded limit"),
        (r"(\w\d|\d\w|\pL){3}(\d+)", "too many"),
        ("$^", "beginning behind an end"),
        ("(b|$)+", "sets a group again at the end"),
        ("(($)|a|b){2,}", "sets a group again at the end"),
        ("(a", "error parsing regex"),
    ] {
        let group = u16::from(cause.starts_with("sets a group"));
        let refused = automaton(pattern, Some((MatchPart::Group(group), Unmatched::Null)));
        let why = refused.expect_err(pattern).to_string();
        assert!(why.contains(cause), "{pattern}: {why}");
    }
}
