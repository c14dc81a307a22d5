//! Functions of texts.

use headrace_ir::function::TrimSide;
use headrace_ir::{Expr, Function, Scalar};
use pgrx::pg_sys::{self, Node, NodeTag, Oid};

use super::call::{call, call_of};
use super::choice::or_else;
use super::constant;
use super::expr::{Translated, Translator};
use super::types::is_deterministic;
use crate::nodes::{WhyNot, cast, why_not};
use crate::version;

/// `reverse(text)`, which has another name since PostgreSQL 18.
const F_REVERSE: u32 = 3062;

/// `LIKE`, as it is written.
struct Pattern {
    text: *mut Node,
    is_negated: bool,
    any_case: bool,
}

impl Translator {
    /// A function of texts; `None` for others.
    pub(super) unsafe fn text_call(
        &mut self,
        node: *mut Node,
        function: u32,
        arguments: &[*mut Node],
    ) -> Result<Option<Expr>, WhyNot> {
        let collation = pg_sys::exprInputCollation(node);
        let translated = match (function, arguments) {
            (
                pg_sys::F_LENGTH_TEXT
                | pg_sys::F_CHAR_LENGTH_TEXT
                | pg_sys::F_CHARACTER_LENGTH_TEXT,
                _,
            ) => self.of_texts(Function::CharacterLength, arguments),
            (
                pg_sys::F_LENGTH_BPCHAR
                | pg_sys::F_CHAR_LENGTH_BPCHAR
                | pg_sys::F_CHARACTER_LENGTH_BPCHAR,
                &[value],
            ) => call(Function::CharacterLength, self.unpadded(value)?),
            (pg_sys::F_OCTET_LENGTH_TEXT | pg_sys::F_OCTET_LENGTH_BPCHAR, _) => {
                self.of_texts(Function::OctetLength, arguments)
            }
            (pg_sys::F_TEXT_BPCHAR, &[value]) => self.unpadded(value),
            (pg_sys::F_LOWER_TEXT, &[value]) => {
                let value = self.expr(value)?;
                call(Function::Lower, folded(value, collation)?)
            }
            (pg_sys::F_UPPER_TEXT, &[value]) => {
                let value = self.expr(value)?;
                call(Function::Upper, folded(value, collation)?)
            }
            (
                pg_sys::F_SUBSTR_TEXT_INT4
                | pg_sys::F_SUBSTR_TEXT_INT4_INT4
                | pg_sys::F_SUBSTRING_TEXT_INT4
                | pg_sys::F_SUBSTRING_TEXT_INT4_INT4,
                _,
            ) => self.of_texts(Function::Substring, arguments),
            (pg_sys::F_LEFT, _) => self.of_texts(Function::Left, arguments),
            (pg_sys::F_RIGHT, _) => self.of_texts(Function::Right, arguments),
            (pg_sys::F_LTRIM_TEXT | pg_sys::F_LTRIM_TEXT_TEXT, _) => {
                self.trimmed(TrimSide::Start, arguments)
            }
            (pg_sys::F_RTRIM_TEXT | pg_sys::F_RTRIM_TEXT_TEXT, _) => {
                self.trimmed(TrimSide::End, arguments)
            }
            (pg_sys::F_BTRIM_TEXT | pg_sys::F_BTRIM_TEXT_TEXT, _) => {
                self.trimmed(TrimSide::Both, arguments)
            }
            (
                pg_sys::F_REPLACE
                | pg_sys::F_STRPOS
                | pg_sys::F_POSITION_TEXT_TEXT
                | pg_sys::F_STARTS_WITH,
                _,
            ) => {
                if !is_deterministic(collation) {
                    return why_not("a search under a collation that is not deterministic");
                }
                let function = match function {
                    pg_sys::F_REPLACE => Function::Replace,
                    pg_sys::F_STARTS_WITH => Function::StartsWith,
                    _ => Function::Position,
                };
                self.of_texts(function, arguments)
            }
            (F_REVERSE, _) => self.of_texts(Function::Reverse, arguments),
            (pg_sys::F_TEXTCAT, _) => self.of_texts(Function::Concat, arguments),
            (pg_sys::F_CONCAT, _) => self.concatenated(node, arguments),
            (pg_sys::F_TEXTLIKE | pg_sys::F_BPCHARLIKE, &[value, text]) => {
                self.like(value, Pattern { text, is_negated: false, any_case: false }, collation)
            }
            (pg_sys::F_TEXTNLIKE | pg_sys::F_BPCHARNLIKE, &[value, text]) => {
                self.like(value, Pattern { text, is_negated: true, any_case: false }, collation)
            }
            (pg_sys::F_TEXTICLIKE | pg_sys::F_BPCHARICLIKE, &[value, text]) => {
                self.like(value, Pattern { text, is_negated: false, any_case: true }, collation)
            }
            (pg_sys::F_TEXTICNLIKE | pg_sys::F_BPCHARICNLIKE, &[value, text]) => {
                self.like(value, Pattern { text, is_negated: true, any_case: true }, collation)
            }
            _ => return Ok(None),
        };
        translated.map(Some)
    }

    unsafe fn of_texts(&mut self, function: Function, arguments: &[*mut Node]) -> Translated {
        let arguments = arguments.iter().map(|argument| self.expr(*argument));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        call_of(function, arguments)
    }

    /// A text of type `bpchar` without the blanks at its end.
    unsafe fn unpadded(&mut self, value: *mut Node) -> Translated {
        let value = self.expr(value)?;
        call_of(Function::Trim(TrimSide::End), vec![value, literal(" ")])
    }

    unsafe fn trimmed(&mut self, side: TrimSide, arguments: &[*mut Node]) -> Translated {
        let arguments = arguments.iter().map(|argument| self.expr(*argument));
        let mut arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        if arguments.len() == 1 {
            arguments.push(literal(" "));
        }
        call_of(Function::Trim(side), arguments)
    }

    /// `concat(...)` of texts, of which NULLs are empty.
    unsafe fn concatenated(&mut self, node: *mut Node, arguments: &[*mut Node]) -> Translated {
        if (*node.cast::<pg_sys::FuncExpr>()).funcvariadic {
            return why_not("concat of an array");
        }
        let mut texts = Vec::new();
        for &argument in arguments {
            let of = pg_sys::exprType(argument);
            if of == pg_sys::UNKNOWNOID
                && let Some(constant) = cast::<pg_sys::Const>(argument, NodeTag::T_Const)
            {
                let constant = &*constant;
                let text = crate::nodes::owned(constant.constvalue.cast_mut_ptr());
                texts.push(literal(if constant.constisnull { "" } else { &text }));
                continue;
            }
            if !matches!(of, pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID) {
                return why_not("concat of what is no text");
            }
            texts.push(or_else(self.expr(argument)?, literal("")));
        }
        match texts.len() {
            1 => Ok(texts.remove(0)),
            _ => call_of(Function::Concat, texts),
        }
    }

    unsafe fn like(&mut self, value: *mut Node, pattern: Pattern, collation: Oid) -> Translated {
        if !is_deterministic(collation) {
            return why_not("LIKE under a collation that is not deterministic");
        }
        let Some(constant) = cast::<pg_sys::Const>(pattern.text, NodeTag::T_Const) else {
            return why_not("LIKE with a pattern that is not constant");
        };
        if (*constant).constisnull {
            return why_not("LIKE with a pattern that is not constant");
        }
        let mut value = self.expr(value)?;
        let mut datum = (*constant).constvalue;
        if pattern.any_case {
            // The server makes both small; of ASCII alone it is known what that is.
            value = call(Function::Lower, ascii(value, collation)?)?;
            datum = pg_sys::OidFunctionCall1Coll(pg_sys::F_LOWER_TEXT.into(), collation, datum);
        }
        let text = constant::text(datum)?;
        let backslashes = text.chars().rev().take_while(|c| *c == '\\').count();
        if backslashes % 2 == 1 {
            return why_not("LIKE with a pattern that ends in its escape character");
        }
        Ok(Expr::Like {
            value: Box::new(value),
            pattern: text,
            escape: None,
            negated: pattern.is_negated,
            case_insensitive: false,
        })
    }
}

fn literal(text: &str) -> Expr {
    Expr::Literal(Scalar::utf8(text))
}

/// A text of which it is known what capital and small letters are.
unsafe fn folded(value: Expr, collation: Oid) -> Translated {
    if version::is_c_ctype(collation) { Ok(value) } else { ascii(value, collation) }
}

/// A text that is of ASCII alone, or the run fails; the letters of which a collation takes for capital and
/// small ones as everybody does.
unsafe fn ascii(value: Expr, collation: Oid) -> Translated {
    let all: String = (1..128_u8).map(char::from).collect();
    let is_usual = |function: u32, wanted: String| {
        let text = pg_sys::cstring_to_text_with_len(all.as_ptr().cast(), all.len() as i32);
        let text = pg_sys::Datum::from(text);
        let changed = pg_sys::OidFunctionCall1Coll(function.into(), collation, text);
        constant::text(changed).is_ok_and(|changed| changed == wanted)
    };
    let is_known = collation != Oid::INVALID
        && is_usual(pg_sys::F_LOWER_TEXT, all.to_ascii_lowercase())
        && is_usual(pg_sys::F_UPPER_TEXT, all.to_ascii_uppercase());
    match is_known {
        true => call(Function::Ascii, value),
        false => why_not("capital and small letters of such a collation"),
    }
}
