//! Regular expressions as deterministic automata with registers (Laurikari, "NFAs with tagged transitions, their
//! conversion to deterministic automata and application to regular expressions", 2000).
//!
//! One step a byte finds the leftmost match that a backtracking search would find first, and where one part
//! of the text begins and ends. A register holds a place in the text, or none.

use headrace_ir::Unmatched;

use crate::ColumnError;
use crate::vector::{Data, Vector};

/// Registers at most: a thread of a GPU keeps all of them at hand.
pub const REGISTERS_MAX: usize = 32;

/// Steps at most: 256 KiB, which caches hold while texts are read.
pub const STEPS_MAX: usize = 1 << 16;

/// The register that holds where the wanted part begins; 0 at first.
pub const BEGIN: u8 = 0;
/// The register that holds where it ends; the text's end at first.
pub const END: u8 = 1;
/// The register that holds any place once something has matched.
pub const MATCHED: u8 = 2;
/// The first of the registers of the search.
pub const FIRST_FREE: u8 = 3;

/// What is moved in place of a register: the place that has been reached.
pub const HERE: u8 = 255;
/// What is moved in place of a register: no place.
pub const NOWHERE: u8 = 254;

/// The state without a way on.
pub const DEAD: u16 = 0;

/// A register without a place.
const UNSET: u32 = u32::MAX;

/// A step: the state that follows and the list of moves on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The next state; none follows [`DEAD`].
    pub state: u16,
    /// Number of the list; the first one is empty.
    pub moves: u16,
}

/// A register set to what another one holds, to [`HERE`], or to [`NOWHERE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The one that is set.
    pub to: u8,
    /// What it is set to.
    pub from: u8,
}

/// An automaton.
#[derive(Debug)]
pub struct Automaton {
    /// Class of each byte.
    pub classes: [u8; 256],
    /// Steps of a state: one a class, and the one at the end of the text.
    pub width: usize,
    /// By state, then class.
    pub steps: Vec<Step>,
    /// The step before the first byte.
    pub start: Step,
    /// Moves by the number of their list.
    pub lists: Vec<Vec<Move>>,
    /// Number of registers.
    pub registers: u8,
    /// What stands for the part where nothing matches.
    pub unmatched: Unmatched,
}

/// What an automaton finds in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// No match.
    Nothing,
    /// A match in which the wanted group took no part.
    NoPart,
    /// The part.
    Part(usize, usize),
}

impl Automaton {
    /// Whether each text has a match.
    pub fn matches<'a>(&self, vector: &Vector<'_>, rows: usize) -> Result<Vector<'a>, ColumnError> {
        let vector = vector.spelled(rows);
        let Data::Str(texts) = &vector.data else { return no_text() };
        let matched = |text: &&str| u8::from(self.find(text.as_bytes()) != Found::Nothing);
        let values = texts.iter().map(matched).collect();
        Ok(Vector::bools(values, vector.validity.as_deref().map(<[u8]>::to_vec)))
    }

    /// The wanted part of each text.
    pub fn parts<'a>(&self, vector: &Vector<'a>, rows: usize) -> Result<Vector<'a>, ColumnError> {
        let vector = vector.spelled(rows);
        let Data::Str(texts) = &vector.data else { return no_text() };
        let parts: Vec<Option<&'a str>> = texts.iter().map(|text| self.part(text)).collect();
        let validity = match vector.validity.as_deref() {
            None if self.unmatched != Unmatched::Null => None,
            valid => {
                let valid = |row: usize| valid.is_none_or(|valid| valid[row] != 0);
                let is_there = |row: usize| u8::from(parts[row].is_some() && valid(row));
                Some((0..rows).map(is_there).collect())
            }
        };
        let values = parts.into_iter().map(Option::unwrap_or_default).collect();
        Ok(Vector::with_validity(Data::Str(values), validity))
    }

    fn part<'t>(&self, text: &'t str) -> Option<&'t str> {
        match (self.find(text.as_bytes()), self.unmatched) {
            (Found::Part(begin, end), _) => Some(&text[begin..end]),
            (Found::NoPart, _) | (Found::Nothing, Unmatched::Empty) => Some(""),
            (Found::Nothing, Unmatched::Whole) => Some(text),
            (Found::Nothing, Unmatched::Null) => None,
        }
    }

    fn find(&self, text: &[u8]) -> Found {
        let mut registers = [UNSET; REGISTERS_MAX];
        registers[usize::from(BEGIN)] = 0;
        registers[usize::from(END)] = text.len() as u32;
        let mut step = self.start;
        for (at, byte) in text.iter().enumerate() {
            self.apply(&mut registers, step, at);
            if step.state == DEAD {
                return found(&registers);
            }
            let class = usize::from(self.classes[usize::from(*byte)]);
            step = self.steps[usize::from(step.state) * self.width + class];
        }
        self.apply(&mut registers, step, text.len());
        let end = self.steps[(usize::from(step.state) + 1) * self.width - 1];
        self.apply(&mut registers, end, text.len());
        found(&registers)
    }

    /// The moves of a step that has led to `at`.
    #[inline(always)]
    fn apply(&self, registers: &mut [u32; REGISTERS_MAX], step: Step, at: usize) {
        if step.moves == 0 {
            return;
        }
        for one in &self.lists[usize::from(step.moves)] {
            registers[usize::from(one.to)] = match one.from {
                HERE => at as u32,
                NOWHERE => UNSET,
                register => registers[usize::from(register)],
            };
        }
    }

    /// As a kernel reads it: eight words, the classes, the steps, where each list of moves begins and the
    /// last one ends, the moves.
    pub fn bytes(&self) -> Vec<u8> {
        let word = |step: &Step| u32::from(step.state) | u32::from(step.moves) << 16;
        let unmatched = match self.unmatched {
            Unmatched::Null => 0,
            Unmatched::Empty => 1,
            Unmatched::Whole => 2,
        };
        let (steps, lists) = (self.steps.len() as u32, self.lists.len() as u32);
        let mut words =
            vec![self.width as u32, steps, lists, word(&self.start), unmatched, 0, 0, 0];
        words.extend(self.classes.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four)));
        words.extend(self.steps.iter().map(word));
        let mut begin = 0;
        for list in &self.lists {
            words.push(begin);
            begin += list.len() as u32;
        }
        words.push(begin);
        let moves = self.lists.iter().flatten().flat_map(|one| [one.to, one.from]);
        words.iter().flat_map(|word| word.to_le_bytes()).chain(moves).collect()
    }
}

fn found(registers: &[u32; REGISTERS_MAX]) -> Found {
    match [BEGIN, END, MATCHED].map(|register| registers[usize::from(register)]) {
        [_, _, UNSET] => Found::Nothing,
        [UNSET, ..] | [_, UNSET, _] => Found::NoPart,
        [begin, end, _] => Found::Part(begin as usize, end as usize),
    }
}

fn no_text<T>() -> Result<T, ColumnError> {
    Err(ColumnError::Internal("a regular expression over something that is no text".into()))
}
