//! Text of generated kernels: indentation, identifiers, literals.

use std::collections::HashSet;

use headrace_columns::repr::Repr;
use headrace_ir::{CompareOp, Scalar, Value};
use headrace_pipeline::WhyNot;

/// Lines under an indentation.
#[derive(Debug, Default)]
pub struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    /// A writer whose lines begin `depth` levels in.
    pub fn at_depth(depth: usize) -> Self {
        Self { text: String::new(), depth }
    }

    /// One line.
    pub fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !line.is_empty() {
            self.text.extend(std::iter::repeat_n("    ", self.depth));
            self.text.push_str(line);
        }
        self.text.push('\n');
    }

    /// A comment line; whatever the text holds, it stays one comment.
    pub fn comment(&mut self, text: &str) {
        self.line(format!("// {}", comment_text(text)));
    }

    /// `head {`, and one level in.
    pub fn open(&mut self, head: impl AsRef<str>) {
        self.line(format!("{} {{", head.as_ref()));
        self.depth += 1;
    }

    /// One level out, and `}`.
    pub fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// One level out, and `}` with what follows it.
    pub fn close_with(&mut self, after: &str) {
        self.depth -= 1;
        self.line(format!("}}{after}"));
    }

    /// One level out, and `};`.
    pub fn close_struct(&mut self) {
        self.depth -= 1;
        self.line("};");
        self.line("");
    }

    /// One level out, and `} else {`, and in again.
    pub fn otherwise(&mut self) {
        self.depth -= 1;
        self.line("} else {");
        self.depth += 1;
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Text that cannot end or continue a `//` comment.
pub fn comment_text(text: &str) -> String {
    let mut safe: String =
        text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
    if safe.ends_with('\\') {
        safe.push('.');
    }
    // Trigraphs are gone from C++17, but compilers still warn of them.
    safe.replace("??", "?")
}

/// Identifiers of one kernel, none used twice.
#[derive(Debug, Default)]
pub struct Names {
    used: HashSet<String>,
}

/// What the generated code declares beside what it asks a name for.
const RESERVED: &str = "p r s row rows alive group tile segment shared slot found hit replica digit output at \
    segments tiles error rows_used group_count shared_memory code key matched null_key run stride first_group \
    queue queued taken shared_counts pairs paired all_alive together turn first first_row end run_end hits key_words group_texts";

impl Names {
    /// Takes a name away.
    pub fn reserve(&mut self, name: &str) {
        self.used.insert(name.to_string());
    }

    /// An identifier that reads like `wish`, which is one, and is new.
    pub fn unique(&mut self, wish: &str) -> String {
        let is_taken = RESERVED.split_whitespace().any(|word| word == wish);
        let mut candidate = if is_taken { format!("{wish}_0") } else { wish.to_string() };
        let mut number = 1;
        while !self.used.insert(candidate.clone()) {
            candidate = format!("{wish}_{number}");
            number += 1;
        }
        candidate
    }
}

/// The C++ type that holds a representation in a register.
pub fn c_type(repr: &Repr) -> Result<&'static str, WhyNot> {
    Ok(match repr {
        Repr::Bool => "bool",
        Repr::I8 => "i8",
        Repr::I16 => "i16",
        Repr::I32 | Repr::Code(_) => "i32",
        Repr::I64 => "i64",
        Repr::U8 => "u8",
        Repr::U16 => "u16",
        Repr::U32 => "u32",
        Repr::U64 => "u64",
        Repr::F32 => "f32",
        Repr::F64 => "f64",
        Repr::I128 => "i128",
        Repr::Str | Repr::Bytes(_) => "hr::Text",
    })
}

/// Whether a representation is an integer of at most 64 bits (codes included, bool not).
pub fn is_integer(repr: &Repr) -> bool {
    use Repr::{Bool, Bytes, F32, F64, I128, Str};
    !matches!(repr, Bool | F32 | F64 | I128 | Str | Bytes(_))
}

/// Whether a representation is a float.
pub fn is_float(repr: &Repr) -> bool {
    matches!(repr, Repr::F32 | Repr::F64)
}

/// An integer literal of 64 bits signed.
pub fn i64_literal(value: i64) -> String {
    match value {
        i64::MIN => "(-9223372036854775807ll - 1)".to_string(),
        _ if value < 0 => format!("({value}ll)"),
        _ => format!("{value}ll"),
    }
}

/// An integer literal of 128 bits signed.
pub fn i128_literal(value: i128) -> String {
    match i64::try_from(value) {
        Ok(small) => format!("i128({})", i64_literal(small)),
        Err(_) => {
            let bits = value as u128;
            format!("i128(u128({:#x}ull) << 64 | u128({:#x}ull))", (bits >> 64) as u64, bits as u64)
        }
    }
}

/// An integer literal of the type of a representation.
pub fn integer_literal(value: i128, repr: &Repr) -> Result<String, WhyNot> {
    Ok(match repr {
        Repr::I128 => i128_literal(value),
        Repr::U64 => format!("{value}ull"),
        Repr::U32 => format!("{value}u"),
        Repr::I64 => i64_literal(value as i64),
        _ if value == i128::from(i32::MIN) => "(-2147483647 - 1)".to_string(),
        _ if value < 0 => format!("({value})"),
        _ => value.to_string(),
    })
}

/// A float literal, exact.
pub fn float_literal(value: f64, repr: &Repr) -> String {
    match repr {
        Repr::F32 => {
            let narrow = value as f32;
            if narrow.is_finite() && !narrow.is_sign_negative() {
                format!("{narrow:?}f")
            } else {
                format!("hr::bits_as<f32>({:#x}u)", narrow.to_bits())
            }
        }
        _ if value.is_finite() && !value.is_sign_negative() => format!("{value:?}"),
        _ => format!("hr::bits_as<f64>({:#x}ull)", value.to_bits()),
    }
}

/// A constant that is not NULL, in a representation.
pub fn literal(scalar: &Scalar, repr: &Repr) -> Result<String, WhyNot> {
    match (&scalar.value, repr) {
        (Value::Bool(value), _) => Ok(value.to_string()),
        (Value::Int(value), Repr::F32 | Repr::F64) => Ok(float_literal(*value as f64, repr)),
        (Value::Int(value), Repr::Bool) => Ok((*value != 0).to_string()),
        (Value::Int(value), _) => integer_literal(*value, repr),
        (Value::Float(value), Repr::F32 | Repr::F64) => Ok(float_literal(*value, repr)),
        _ => Err(WhyNot::new(format!("the CUDA processor has no constant {scalar}"))),
    }
}

/// The operator of a comparison.
pub fn operator(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

/// Parentheses around what is not one word, call or parenthesised expression already.
pub fn operand(code: &str) -> String {
    let simple = code.chars().all(|c| c.is_ascii_alphanumeric() || "_[].".contains(c));
    if simple || is_wrapped(code) { code.to_string() } else { format!("({code})") }
}

/// Whether the first character opens a parenthesis that the last one closes.
fn is_wrapped(code: &str) -> bool {
    if !code.starts_with('(') || !code.ends_with(')') {
        return false;
    }
    let mut depth = 0i32;
    for (at, c) in code.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 && at + 1 < code.len() {
            return false;
        }
    }
    true
}

/// A value as unsigned bits that are the same for equal keys; `None` for a text.
pub fn key_bits(repr: &Repr, code: &str) -> Option<String> {
    Some(match repr {
        Repr::Bool | Repr::I8 | Repr::U8 => format!("u8({code})"),
        Repr::I16 | Repr::U16 => format!("u16({code})"),
        Repr::I32 | Repr::U32 | Repr::Code(_) => format!("u32({code})"),
        Repr::I64 | Repr::U64 => format!("u64({code})"),
        Repr::I128 => format!("u128({code})"),
        Repr::F32 => format!("hr::float_key(f32({code}))"),
        Repr::F64 => format!("hr::float_key(f64({code}))"),
        Repr::Str | Repr::Bytes(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_differ_from_each_other_and_from_what_kernels_declare() {
        let mut names = Names::default();
        assert_eq!(names.unique("column3"), "column3");
        assert_eq!(names.unique("column3"), "column3_1");
        assert_eq!(names.unique("rows"), "rows_0");
        assert_eq!(names.unique("rows"), "rows_1");
    }

    #[test]
    fn comments_stay_comments() {
        assert_eq!(comment_text("a\nint x;"), "a?int x;");
        assert_eq!(comment_text("ends \\"), "ends \\.");
    }

    #[test]
    fn extreme_literals_are_exact() {
        assert_eq!(
            integer_literal(i64::MIN.into(), &Repr::I64).unwrap(),
            "(-9223372036854775807ll - 1)"
        );
        assert_eq!(
            integer_literal(u64::MAX.into(), &Repr::U64).unwrap(),
            "18446744073709551615ull"
        );
        assert_eq!(i128_literal(-1), "i128((-1ll))");
        assert_eq!(i128_literal(1 << 64), "i128(u128(0x1ull) << 64 | u128(0x0ull))");
        assert_eq!(
            float_literal(f64::NAN, &Repr::F64),
            format!("hr::bits_as<f64>({:#x}ull)", f64::NAN.to_bits())
        );
        assert_eq!(float_literal(0.1, &Repr::F64), "0.1");
    }
}
