//! `to_char` of moments, as what groups are made by: a pattern that shows the year and every part down to some other
//! shows as many texts as there are moments truncated to that part. Groups are made of these, and PostgreSQL's own
//! function makes the text of each.

use headrace_ir::{DatePart, Expr, Function};
use pgrx::pg_sys::{self, Node, NodeTag};

use super::call::call;
use super::constant::text;
use super::expr::{Translator, operands};
use crate::nodes::{WhyNot, cast};

/// The parts of a moment as patterns have them, each a part of the one before it.
const PARTS: [(&str, DatePart, &str); 6] = [
    ("YYYY", DatePart::Year, "year"),
    ("MM", DatePart::Month, "month"),
    ("DD", DatePart::Day, "day"),
    ("HH24", DatePart::Hour, "hour"),
    ("MI", DatePart::Minute, "minute"),
    ("SS", DatePart::Second, "second"),
];

/// What stands between parts, and is shown as it is.
const BETWEEN: &str = " -/.:,_";

impl Translator {
    /// The truncated moments that a key shows, and its pattern; `None`: it is no such key.
    pub unsafe fn formatted(&mut self, key: *mut Node) -> Result<Option<(Expr, String)>, WhyNot> {
        let Some(call_of_key) = cast::<pg_sys::FuncExpr>(key, NodeTag::T_FuncExpr) else {
            return Ok(None);
        };
        let [moment, pattern] = operands((*call_of_key).args)[..] else { return Ok(None) };
        let has_zone = match (*call_of_key).funcid.to_u32() {
            pg_sys::F_TO_CHAR_TIMESTAMPTZ_TEXT => true,
            pg_sys::F_TO_CHAR_TIMESTAMP_TEXT => false,
            _ => return Ok(None),
        };
        let Some(pattern) = constant_text(pattern) else { return Ok(None) };
        let Some((part, _)) = finest(&pattern) else { return Ok(None) };
        let moment = self.expr(moment)?;
        // What the session's clocks show is all that the pattern does.
        let local = if has_zone { self.local(moment)? } else { moment };
        Ok(Some((call(Function::DateTrunc(part), local)?, pattern)))
    }
}

/// A constant's text.
pub unsafe fn constant_text(node: *mut Node) -> Option<String> {
    let constant = &*cast::<pg_sys::Const>(node, NodeTag::T_Const)?;
    let is_text = constant.consttype == pg_sys::TEXTOID && !constant.constisnull;
    is_text.then(|| text(constant.constvalue).ok()).flatten()
}

/// The finest part that a pattern shows, and its name, if it shows all that this one is a part of, and nothing else.
pub fn finest(pattern: &str) -> Option<(DatePart, &'static str)> {
    let (mut rest, mut shown) = (pattern, [false; PARTS.len()]);
    while let Some(next) = rest.chars().next() {
        if BETWEEN.contains(next) {
            rest = &rest[1..];
            continue;
        }
        let is_next = |(word, ..): &(&str, DatePart, &str)| {
            rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
        };
        let part = PARTS.iter().position(is_next)?;
        let word = PARTS[part].0;
        // A letter more is another word: DDD, SSSS.
        let last = word.chars().last();
        rest = &rest[word.len()..];
        if rest.chars().next().map(|next| next.to_ascii_uppercase()) == last {
            return None;
        }
        shown[part] = true;
    }
    let count = shown.iter().take_while(|is_shown| **is_shown).count();
    let is_whole = shown.iter().skip(count).all(|is_shown| !is_shown);
    let (_, part, name) = PARTS[..count].last().filter(|_| is_whole)?;
    Some((*part, name))
}

#[cfg(test)]
mod tests {
    use super::finest;

    #[test]
    fn patterns_show_a_part_and_all_that_it_is_a_part_of() {
        let name = |pattern: &str| finest(pattern).map(|(_, name)| name);
        for (pattern, part) in [
            ("YYYY", "year"),
            ("yyyy-mm", "month"),
            ("MM/YYYY", "month"),
            ("DD.MM.YYYY", "day"),
            ("YYYYMMDD", "day"),
            ("YYYY-MM-DD HH24:MI:SS", "second"),
            ("YYYYMMDDHH24MI", "minute"),
            ("YYYY MM YYYY", "month"),
        ] {
            assert_eq!(name(pattern), Some(part), "{pattern}");
        }
        for pattern in [
            "", "-", "MM", "YYYY-DD", "YYY", "YYYYY", "YYYY-DDD", "YYYY-MM-DDTH", "FMYYYY",
            "YYYY-Mon", "YYYY-MM-DD HH:MI", "YYYY-MM-DD\"T\"HH24", "YYYY-MM-DD HH24:MI:SSSS",
            "YYYY-MM-DD HH24:MI:SS.MS", "YYYY-MM 1", "YYYY-Q", "IYYY-IW", "YYYY-MM-DD é",
        ] {
            assert_eq!(name(pattern), None, "{pattern}");
        }
    }
}
