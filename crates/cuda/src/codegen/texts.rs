//! Plain texts: text over `text.cuh`.

use std::sync::Arc;

use arrow_array::Array;
use headrace_columns::automaton::Automaton;
use headrace_columns::repr::{Dictionary, Repr};
use headrace_ir::function::{Function, TrimSide};
use headrace_ir::{CompareOp, Scalar, Unmatched, Value as Constant};
use headrace_pipeline::bound::BoundExpr;

use crate::codegen::constants::CONSTANTS_MAX;
use crate::codegen::generator::Generator;
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::{operand, operator};
use crate::codegen::value::{Held, Value};
use crate::fields::SegmentField;
use crate::layout::ColumnForm;
use crate::place::Place;

/// Bytes of the texts of a dictionary that goes to the device with each query.
const DICTIONARY_BYTES_MAX: usize = 64 << 20;

impl Generator<'_> {
    /// Loads plain texts, whose offsets must lie in the bytes unless they are NULLs.
    pub(super) fn load_texts(
        &mut self,
        register: usize,
        name: String,
        form: ColumnForm,
    ) -> Result<()> {
        let column = self.bound.registers[register].name.clone();
        if form != ColumnForm::Text {
            return refuse(format!("column {column} is plain text that lies in an unexpected way"));
        }
        let values = self.segment_field(SegmentField::Values(register), &name);
        let bytes = self.segment_field(SegmentField::Bytes(register), &format!("{name}_at"));
        let length = SegmentField::BytesLength(register);
        let length = self.segment_field(length, &format!("{name}_length"));
        let base = self.segment_field(SegmentField::Base(register), &format!("{name}_base"));
        let outside = self.names.unique(&format!("{name}_outside"));
        self.body.line(format!("hr::Text {name}[ROWS];"));
        self.body.line(format!(
            "const u32 {outside} = \
             hr::load_texts({name}, {values}, {bytes}, {length}, u32({base}), row, rows);"
        ));
        let valid = self.load_validity(register, &name)?;
        let known = valid.as_ref().map(|valid| format!(" & {valid}")).unwrap_or_default();
        let cause = "offsets outside its bytes".into();
        let place = self.place(Place::Corrupt { column, cause });
        self.body.open(format!("if (alive{known} & {outside})"));
        self.raise(&place);
        self.body.line("continue;");
        self.body.close();
        self.held[register] = Held::Array { name, valid };
        Ok(())
    }

    /// Finds the bytes of rows that all have the same number of bytes.
    pub(super) fn load_bytes(
        &mut self,
        register: usize,
        name: String,
        (form, width): (ColumnForm, usize),
    ) -> Result<()> {
        let column = &self.bound.registers[register].name;
        if form != ColumnForm::Plain {
            return refuse(format!("column {column} is bytes that lie in an unexpected way"));
        }
        let values = self.segment_field(SegmentField::Values(register), &name);
        let width = self.constant(width as u64, "u32", &format!("{name}_width"));
        self.body.line(format!("hr::Text {name}[ROWS];"));
        self.body.line(format!("hr::load_bytes({name}, {values}, {width}, row, rows);"));
        self.count_likeness(register, &values)?;
        let valid = self.load_validity(register, &name)?;
        self.held[register] = Held::Array { name, valid };
        Ok(())
    }

    /// A constant text, or constant bytes.
    pub(super) fn bytes_literal(&mut self, text: &[u8], wish: &str) -> Result<String> {
        if self.constants.len() + self.tables.len() + 2 > CONSTANTS_MAX {
            return refuse("more texts than a kernel has parameters for");
        }
        let length = self.constant(text.len() as u64, "u32", &format!("{wish}_bytes"));
        let bytes = self.table(text.to_vec(), "const u8*", wish);
        Ok(format!("hr::Text({bytes}, {length})"))
    }

    /// Whether a text, or bytes, are among a list.
    pub(super) fn text_member(&mut self, code: &str, list: &[Scalar]) -> Result<String> {
        let text = |scalar: &'_ Scalar| match &scalar.value {
            Constant::Utf8(text) => Some(text.clone().into_bytes()),
            Constant::Binary(bytes) => Some(bytes.clone()),
            _ => None,
        };
        let Some(mut texts) = list.iter().map(text).collect::<Option<Vec<Vec<u8>>>>() else {
            return refuse("an IN list of something else than texts or bytes");
        };
        texts.sort_unstable();
        let Some(bytes) = text_table(texts.iter().map(Vec::as_slice)) else {
            return refuse("an IN list of more than 4 GiB");
        };
        let table = self.table(bytes, "const u32*", "in_list");
        let length = self.constant(texts.len() as u64, "u32", "in_list_length");
        Ok(format!("hr::in_texts({table}, {length}, {code})"))
    }

    /// The text of a code.
    pub(super) fn decode(&mut self, value: &BoundExpr) -> Result<Value> {
        let Repr::Code(dictionary) = &value.repr else {
            return refuse(format!("{} is no code of a dictionary", value.text));
        };
        let code = self.value(value)?;
        let index = self.index_within(&code.code, dictionary.values.len());
        let table = self.dictionary(dictionary, &value.text)?;
        Ok(Value { code: format!("hr::table_text({table}, {index})"), null: code.null })
    }

    /// The texts of a dictionary as a table, which is one however often it is asked for.
    fn dictionary(&mut self, dictionary: &Arc<Dictionary>, whose: &str) -> Result<String> {
        let known = self.dictionaries.iter().find(|(known, _)| Arc::ptr_eq(known, dictionary));
        if let Some((_, table)) = known {
            return Ok(table.clone());
        }
        let bytes = dictionary.values.value_data().len();
        if bytes > DICTIONARY_BYTES_MAX {
            return refuse(format!(
                "{whose}: its dictionary has {bytes} bytes of texts, a kernel takes {DICTIONARY_BYTES_MAX}"
            ));
        }
        // There is a text to read even where there is none.
        let texts = (0..dictionary.values.len()).map(|code| dictionary.values.value(code));
        let none = dictionary.values.is_empty().then_some("");
        let Some(bytes) = text_table(texts.chain(none).map(str::as_bytes)) else {
            return refuse(format!("{whose}: a dictionary of more than 4 GiB"));
        };
        let table = self.table(bytes, "const u32*", "texts");
        self.dictionaries.push((Arc::clone(dictionary), table.clone()));
        Ok(table)
    }

    /// Whether a text is as a pattern.
    pub(super) fn like(
        &mut self,
        value: &BoundExpr,
        items: &[u16],
        negated: bool,
    ) -> Result<Value> {
        let text = self.value(value)?;
        let bytes = items.iter().flat_map(|item| item.to_le_bytes()).collect();
        let table = self.table(bytes, "const u16*", "pattern");
        let count = self.constant(items.len() as u64, "u32", "pattern_items");
        let not = if negated { "!" } else { "" };
        Ok(Value {
            code: format!("{not}hr::like({}, {table}, {count})", text.code),
            null: text.null,
        })
    }

    /// What an automaton finds in a text.
    pub(super) fn search(
        &mut self,
        expr: &BoundExpr,
        value: &BoundExpr,
        automaton: &Automaton,
    ) -> Result<Value> {
        let text = self.value(value)?;
        let table = self.table(automaton.bytes(), "const u32*", "automaton");
        // A kernel for any automaton that has as many registers, or fewer.
        let registers = automaton.registers.next_power_of_two();
        if !matches!(expr.repr, Repr::Str) {
            let code = format!("hr::matches<{registers}>({table}, {})", text.code);
            return Ok(Value { code, null: text.null });
        }
        let call = format!("hr::matched_part<{registers}>({table}, {}", text.code);
        let (part, is_there) = self.part_of(&call);
        let null = match text.null {
            _ if automaton.unmatched != Unmatched::Null => text.null,
            None => Some(format!("!{is_there}")),
            Some(null) => Some(format!("{} || !{is_there}", operand(&null))),
        };
        Ok(Value { code: part, null })
    }

    /// The part that a call puts where its last argument points, which is added here, and whether it is there.
    fn part_of(&mut self, call: &str) -> (String, String) {
        let part = self.names.unique("part");
        self.body.line(format!("hr::Text {part};"));
        let is_there = self.named("bool", "is_there", format!("{call}, &{part})"));
        (part, is_there)
    }

    /// Calls of functions of a text and more that make no new one: their texts are parts of the first.
    pub(super) fn text_call(
        &mut self,
        expr: &BoundExpr,
        function: Function,
        arguments: &[BoundExpr],
    ) -> Result<Value> {
        let is_known = matches!(
            function,
            Function::Substring
                | Function::Left
                | Function::Right
                | Function::Trim(_)
                | Function::StartsWith
                | Function::Position
        );
        if !is_known {
            return refuse(format!("{} of texts", function.name()));
        }
        let values =
            arguments.iter().map(|argument| self.value(argument)).collect::<Result<Vec<_>>>()?;
        let null = self.any_null(&values);
        let codes: Vec<&str> = values.iter().map(|value| value.code.as_str()).collect();
        let code = match (function, codes.as_slice()) {
            (Function::Substring, [text, from]) => format!("hr::substring_from({text}, {from})"),
            (Function::Substring, [text, from, count]) => {
                let (part, is_there) =
                    self.part_of(&format!("hr::substring({text}, {from}, {count}"));
                if expr.node_can_fail() {
                    let place = Place::Cast { place: expr.text.to_string() };
                    self.fail_if(&null, &format!("!{is_there}"), place);
                }
                part
            }
            (Function::Left, [text, number]) => format!("hr::first_characters({text}, {number})"),
            (Function::Right, [text, number]) => {
                let number = self.named("i32", "number", (*number).to_string());
                if expr.node_can_fail() {
                    let smallest = format!("{number} == hr::Limits<i32>::min");
                    self.fail_if(&null, &smallest, Self::overflow_place(expr));
                }
                format!("hr::last_characters({text}, {number})")
            }
            (Function::Trim(TrimSide::Start), [text, set]) => {
                format!("hr::without_start({text}, {set})")
            }
            (Function::Trim(TrimSide::End), [text, set]) => {
                format!("hr::without_end({text}, {set})")
            }
            (Function::Trim(TrimSide::Both), [text, set]) => {
                format!("hr::without_end(hr::without_start({text}, {set}), {set})")
            }
            (Function::StartsWith, [text, start]) => format!("hr::begins_with({text}, {start})"),
            (Function::Position, [text, wanted]) => format!("hr::position_of({text}, {wanted})"),
            _ => return refuse(format!("{} of {} texts", function.name(), codes.len())),
        };
        Ok(Value { code, null })
    }
}

/// Texts as `hr::table_text` finds them; `None`: too many for its offsets.
fn text_table<'t>(texts: impl Iterator<Item = &'t [u8]> + Clone) -> Option<Vec<u8>> {
    let count = texts.clone().count();
    let first = (count + 1) * 4;
    let ends = texts.clone().scan(first, |end, text| {
        *end += text.len();
        Some(*end)
    });
    let offsets = std::iter::once(first).chain(ends).map(u32::try_from);
    let offsets = offsets.collect::<std::result::Result<Vec<u32>, _>>().ok()?;
    let mut bytes = Vec::with_capacity(offsets.last().map_or(first, |end| *end as usize));
    bytes.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
    texts.for_each(|text| bytes.extend_from_slice(text));
    Some(bytes)
}

/// Two texts compared by their bytes.
pub(super) fn compare_texts(op: CompareOp, left: &str, right: &str) -> String {
    match op {
        CompareOp::Eq => format!("hr::same_text({left}, {right})"),
        CompareOp::Ne => format!("!hr::same_text({left}, {right})"),
        op => format!("(hr::compare_texts({left}, {right}) {} 0)", operator(op)),
    }
}

/// A pattern as `text.cuh` has it; an escape at the very end stands for itself.
pub(super) fn like_items(pattern: &str, escape: char) -> Vec<u16> {
    const ONE: u16 = 256;
    const ANY: u16 = 257;
    let mut items = Vec::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let literal = match character {
            character if character == escape => characters.next().unwrap_or(escape),
            '%' => {
                items.push(ANY);
                continue;
            }
            '_' => {
                items.push(ONE);
                continue;
            }
            character => character,
        };
        let mut bytes = [0; 4];
        items.extend(literal.encode_utf8(&mut bytes).bytes().map(u16::from));
    }
    items.dedup_by(|next, item| *next == ANY && *item == ANY);
    items
}
