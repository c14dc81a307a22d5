//! Functions of texts, and of several arguments.
//!
//! What is a part of its argument is a view of it; other texts are made in [`Texts`], which live as long
//! as the portion of rows that they belong to.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use headrace_ir::function::{Function, TrimSide};
use headrace_ir::moment::DAYS;

use headrace_io::{MemoryBudget, Reservation};

use crate::ColumnError;
use crate::fault::Fault;
use crate::memory::{Hold, reserve};
use crate::vector::Shared;
use crate::vector::{Data, Operand};

/// Texts are made in pieces of about so many bytes, after each of which the account is asked.
const PIECE_BYTES: usize = 1 << 20;

/// Texts that functions have made.
pub struct Texts {
    kept: RefCell<Vec<String>>,
    bytes: Cell<u64>,
    /// What pays for them, from the first one on.
    memory: Option<Arc<MemoryBudget>>,
    reserved: RefCell<Option<Reservation>>,
}

impl Texts {
    /// None yet; `memory` pays for them.
    pub fn new(memory: Option<&Arc<MemoryBudget>>) -> Self {
        let (kept, bytes) = (RefCell::default(), Cell::default());
        Self { kept, bytes, memory: memory.cloned(), reserved: RefCell::default() }
    }

    /// Keeps a text as long as all of them.
    fn keep(&self, text: String) -> Result<&str, ColumnError> {
        self.bytes.set(self.bytes.get() + text.capacity() as u64);
        if let Some(memory) = &self.memory {
            let mut reserved = self.reserved.borrow_mut();
            let reserved = reserved.get_or_insert_with(|| reserve(memory));
            reserved.hold(self.bytes.get(), "texts of a batch")?;
        }
        let bytes = std::ptr::from_ref(text.as_str());
        self.kept.borrow_mut().push(text);
        // SAFETY: the bytes lie on the heap, where they stay unchanged while `self` lives: a text that is
        // kept is never touched again, and moving a `String` does not move its bytes.
        Ok(unsafe { &*bytes })
    }
}

/// A call over some rows.
pub struct Call<'c, 'a> {
    /// The arguments.
    pub vectors: &'c [Shared<'a>],
    /// Number of rows.
    pub rows: usize,
    /// Which of them have no NULL among the arguments; `None`: all.
    pub valid: Option<&'c [u8]>,
    /// Keeps what is made.
    pub made: &'a Texts,
}

/// The values of a call. `None`: no function of such arguments.
type Computed<'a> = Result<Option<Result<Data<'a>, Fault>>, ColumnError>;

/// Computes a function.
pub(crate) fn compute<'a>(function: Function, call: &Call<'_, 'a>) -> Computed<'a> {
    match values(function, call) {
        Some(values) => values.map(Some),
        None => Ok(None),
    }
}

type Values<'a> = Result<Result<Data<'a>, Fault>, ColumnError>;

fn values<'a>(function: Function, call: &Call<'_, 'a>) -> Option<Values<'a>> {
    if let (Function::AddDays, [days, more]) = (function, call.vectors) {
        return Some(Ok(add_days(call, days.operand()?, more.operand()?)));
    }
    let text = |index: usize| call.text(index);
    let number = |index: usize| call.vectors.get(index)?.operand::<i32>();
    Some(match function {
        Function::Lower => call.changed(text(0)?, |c| c.to_ascii_lowercase()),
        Function::Upper => call.changed(text(0)?, |c| c.to_ascii_uppercase()),
        Function::UnicodeLower => {
            call.folded(text(0)?, |c| c.to_ascii_lowercase(), str::to_lowercase)
        }
        Function::UnicodeUpper => {
            call.folded(text(0)?, |c| c.to_ascii_uppercase(), str::to_uppercase)
        }
        Function::Ascii => {
            let texts = text(0)?;
            call.views(|row| Some(texts.get(row)).filter(|text| text.is_ascii()))
        }
        Function::Substring => {
            let (texts, from, count) = (text(0)?, number(1)?, number(2));
            call.views(|row| {
                substring(texts.get(row), from.get(row), count.as_ref().map(|c| c.get(row)))
            })
        }
        Function::Left => {
            let (texts, count) = (text(0)?, number(1)?);
            call.views(|row| Some(first(texts.get(row), count.get(row))))
        }
        Function::Right => {
            let (texts, count) = (text(0)?, number(1)?);
            // The smallest number has no counterpart to leave out.
            let count = |row| Some(count.get(row)).filter(|count| *count != i32::MIN);
            call.views(|row| Some(last(texts.get(row), count(row)?)))
        }
        Function::Trim(side) => {
            let (texts, set) = (text(0)?, text(1)?);
            call.views(|row| Some(trimmed(side, texts.get(row), set.get(row))))
        }
        Function::Position => {
            let (texts, wanted) = (text(0)?, text(1)?);
            let position = |row| match texts.get(row).find(wanted.get(row)) {
                Some(at) => texts.get(row)[..at].chars().count() as i32 + 1,
                None => 0,
            };
            Ok(Ok(Data::I32((0..call.rows).map(position).collect())))
        }
        Function::StartsWith => {
            let (texts, wanted) = (text(0)?, text(1)?);
            let begins = |row| u8::from(texts.get(row).starts_with(wanted.get(row)));
            Ok(Ok(Data::Bool((0..call.rows).map(begins).collect())))
        }
        Function::Replace => {
            let (texts, from, to) = (text(0)?, text(1)?, text(2)?);
            call.made(|row, made| {
                let (text, from) = (texts.get(row), from.get(row));
                if from.is_empty() || !text.contains(from) {
                    return Some(text);
                }
                let mut parts = text.split(from);
                made.extend(parts.next());
                parts.for_each(|part| made.extend([to.get(row), part]));
                None
            })
        }
        Function::Reverse => {
            let texts = text(0)?;
            call.made(|row, made| {
                made.extend(texts.get(row).chars().rev());
                None
            })
        }
        Function::Concat => {
            let texts = (0..call.vectors.len()).map(text).collect::<Option<Vec<_>>>()?;
            call.made(|row, made| {
                texts.iter().for_each(|text| made.push_str(text.get(row)));
                None
            })
        }
        _ => return None,
    })
}

impl<'a> Call<'_, 'a> {
    fn text(&self, index: usize) -> Option<Operand<'_, &'a str>> {
        let vector = self.vectors.get(index)?;
        let Data::Str(texts) = &vector.data else { return None };
        Some(if vector.constant { Operand::One(texts[0]) } else { Operand::Rows(texts) })
    }

    fn is_valid(&self, row: usize) -> bool {
        self.valid.is_none_or(|valid| valid[row] != 0)
    }

    /// A view a row; none for a row that cannot be converted.
    fn views(&self, view: impl Fn(usize) -> Option<&'a str>) -> Values<'a> {
        let mut failed = false;
        let texts = (0..self.rows).map(|row| {
            let view = view(row);
            failed |= view.is_none() && self.is_valid(row);
            view.unwrap_or_default()
        });
        let texts = texts.collect();
        Ok(if failed { Err(Fault::Cast) } else { Ok(Data::Str(texts)) })
    }

    /// A text a row: what `make` answers, or what it has appended if it answers none.
    fn made(&self, make: impl Fn(usize, &mut String) -> Option<&'a str>) -> Values<'a> {
        let mut texts = vec![""; self.rows];
        let (mut piece, mut ends) = (String::new(), Vec::<(usize, Range<usize>)>::new());
        for row in (0..self.rows).filter(|&row| self.is_valid(row)) {
            let start = piece.len();
            match make(row, &mut piece) {
                Some(view) => texts[row] = view,
                None => ends.push((row, start..piece.len())),
            }
            if piece.len() >= PIECE_BYTES || row + 1 == self.rows {
                self.put(&mut texts, std::mem::take(&mut piece), &mut ends)?;
            }
        }
        self.put(&mut texts, piece, &mut ends)?;
        Ok(Ok(Data::Str(texts)))
    }

    fn put(
        &self,
        texts: &mut [&'a str],
        piece: String,
        parts: &mut Vec<(usize, Range<usize>)>,
    ) -> Result<(), ColumnError> {
        if !piece.is_empty() {
            let kept = self.made.keep(piece)?;
            parts.iter().for_each(|(row, part)| texts[*row] = &kept[part.clone()]);
        }
        parts.clear();
        Ok(())
    }

    /// Texts with letters changed: one by one where all are ASCII, else as a whole.
    fn folded(
        &self,
        texts: Operand<'_, &'a str>,
        change: fn(&char) -> char,
        fold: fn(&str) -> String,
    ) -> Values<'a> {
        self.made(|row, made| {
            let text = texts.get(row);
            if !text.is_ascii() {
                made.push_str(&fold(text));
                return None;
            }
            if text.chars().all(|c| change(&c) == c) {
                return Some(text);
            }
            made.extend(text.chars().map(|c| change(&c)));
            None
        })
    }

    /// Texts with letters changed one by one.
    fn changed(&self, texts: Operand<'_, &'a str>, change: fn(&char) -> char) -> Values<'a> {
        self.made(|row, made| {
            let text = texts.get(row);
            if text.chars().all(|c| change(&c) == c) {
                return Some(text);
            }
            made.extend(text.chars().map(|c| change(&c)));
            None
        })
    }
}

fn add_days<'a>(
    call: &Call<'_, 'a>,
    days: Operand<'_, i32>,
    more: Operand<'_, i32>,
) -> Result<Data<'a>, Fault> {
    let mut failed = false;
    let later = (0..call.rows).map(|row| {
        let later = days.get(row).checked_add(more.get(row)).filter(|day| DAYS.contains(day));
        failed |= later.is_none() && call.is_valid(row);
        later.unwrap_or_default()
    });
    let later = Data::I32(later.collect());
    if failed { Err(Fault::Overflow) } else { Ok(later) }
}

/// Bytes of so many characters at the beginning.
fn bytes_of(text: &str, characters: usize) -> usize {
    let bytes = text.as_bytes();
    let as_bytes = characters.min(bytes.len());
    if bytes[..as_bytes].is_ascii() {
        return as_bytes;
    }
    text.char_indices().nth(characters).map_or(bytes.len(), |(at, _)| at)
}

/// So many characters; all but so many of the end, if the number is negative.
fn first(text: &str, characters: i32) -> &str {
    let number = characters.unsigned_abs() as usize;
    let kept = match characters {
        0.. => number,
        _ => text.chars().count().saturating_sub(number),
    };
    &text[..bytes_of(text, kept)]
}

/// So many characters of the end; all but so many of the beginning, if the number is negative.
fn last(text: &str, characters: i32) -> &str {
    let number = characters.unsigned_abs() as usize;
    let gone = match characters {
        0.. => text.chars().count().saturating_sub(number),
        _ => number,
    };
    &text[bytes_of(text, gone)..]
}

fn substring(text: &str, from: i32, count: Option<i32>) -> Option<&str> {
    let first = from.max(1) as usize - 1;
    // One beyond the last; where 32 bits cannot say it there is no end.
    let end = match count {
        None => None,
        Some(..0) => return None,
        Some(count) => from.checked_add(count),
    };
    let rest = &text[bytes_of(text, first)..];
    match end {
        None => Some(rest),
        Some(end) => Some(&rest[..bytes_of(rest, (end.max(1) as usize - 1).saturating_sub(first))]),
    }
}

fn trimmed<'a>(side: TrimSide, text: &'a str, set: &str) -> &'a str {
    let is_in = |c: char| set.contains(c);
    let text = if side == TrimSide::End { text } else { text.trim_start_matches(is_in) };
    if side == TrimSide::Start { text } else { text.trim_end_matches(is_in) }
}
