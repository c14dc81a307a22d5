//! Keys as words (`keys.cuh`): those of groups, and those that builds are asked for.

use headrace_columns::repr::Repr;

use crate::codegen::generator::Generator;
use crate::codegen::text::key_bits;
use crate::codegen::value::Value;
use crate::keys::{KeyLayout, KeyPart};

impl Generator<'_> {
    /// Declares `key_words` and sets them to values that are held so.
    pub(super) fn set_key_words(&mut self, layout: &KeyLayout, reprs: &[Repr], values: Vec<Value>) {
        self.body.line(format!("u64 key_words[{}] = {{}};", layout.words));
        for ((value, repr), part) in values.into_iter().zip(reprs).zip(&layout.parts) {
            let set = match key_bits(repr, &value.code) {
                Some(bits) => set_bits(*part, &bits),
                None => format!("hr::set_text_key(key_words + {}, {});", part.at / 8, value.code),
            };
            match (value.null, part.null_at) {
                (Some(null), Some(at)) => {
                    let is_null = format!("key_words[{}] |= 1ull << {};", at / 8, at % 8 * 8);
                    self.body.line(format!("if ({null}) {is_null}"));
                    self.body.line(format!("else {{ {set} }}"));
                }
                // The words of a text are those of NULL before.
                (Some(null), None) if matches!(repr, Repr::Str) => {
                    self.body.line(format!("if (!({null})) {set}"));
                }
                _ => self.body.line(set),
            }
        }
    }
}

/// Statements that set a value of at most 16 bytes in the words of a key, which are 0 there.
fn set_bits(part: KeyPart, value: &str) -> String {
    let (word, shift) = (part.at / 8, part.at % 8 * 8);
    let low = format!("key_words[{word}] |= u64({value}) << {shift};");
    if shift + part.bytes * 8 <= 64 {
        return low;
    }
    let rest = format!("key_words[{}] |= u64(u128({value}) >> {});", word + 1, 64 - shift);
    // What is left of 16 bytes that begin within a word fits no third one: none begins there.
    format!("{low} {rest}")
}
