//! Makes the [`Automaton`] of a regular expression from the Thompson automaton that the library compiles.
//!
//! A state is a list of threads of a backtracking search, the preferred ones first. Each thread has a row of
//! registers, one a tag; a tag is a place of the wanted part. From one state to the next no two rows change their
//! order, so that the moves between them can be made one after the other.

use std::collections::HashMap;

use headrace_columns::automaton::{
    Automaton, BEGIN, DEAD, END, FIRST_FREE, HERE, MATCHED, Move, NOWHERE, REGISTERS_MAX,
    STEPS_MAX, Step,
};
use headrace_ir::{Function, MatchPart, Unmatched};
use regex_automata::nfa::thompson::{NFA, State, WhichCaptures};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;

use crate::WhyNot;

#[cfg(test)]
mod tests;

/// Bytes of the Thompson automaton at most.
const NFA_BYTES_MAX: usize = 1 << 20;

/// Transitions without a byte that are followed at most to make an automaton: about ten milliseconds.
const WAYS_MAX: usize = 1 << 21;

/// Whether processors can search texts for a pattern as a function does.
pub fn check_pattern(pattern: &str, function: Function) -> Result<(), WhyNot> {
    automaton(pattern, part_of(function)).map(|_| ())
}

/// The part of a text that a function wants; `None`: whether there is a match.
pub fn part_of(function: Function) -> Option<(MatchPart, Unmatched)> {
    match function {
        Function::MatchedPart(part, unmatched) => Some((part, unmatched)),
        _ => None,
    }
}

/// The automaton of a pattern, which finds a part, or whether there is a match.
pub fn automaton(pattern: &str, part: Option<(MatchPart, Unmatched)>) -> Result<Automaton, WhyNot> {
    let captures = if part.is_none() { WhichCaptures::None } else { WhichCaptures::All };
    let config = NFA::config().nfa_size_limit(Some(NFA_BYTES_MAX)).which_captures(captures);
    let nfa = NFA::compiler().configure(config).build(pattern);
    let nfa = nfa.map_err(|cause| WhyNot::new(format!("'{pattern}': {cause}")))?;
    let tags = match part.map(|(part, _)| part) {
        None => vec![],
        Some(MatchPart::Group(group)) => {
            let slot = 2 * usize::from(group);
            vec![(slot, BEGIN), (slot + 1, END)]
        }
        Some(MatchPart::Before) => vec![(0, END)],
        Some(MatchPart::Behind) => vec![(1, BEGIN)],
    };
    let unmatched = part.map_or(Unmatched::Null, |(_, unmatched)| unmatched);
    let maker = Maker {
        nfa: &nfa,
        pattern,
        is_earliest: part.is_none(),
        tags,
        seen: vec![0; nfa.states().len()],
        closures: 0,
        ways: 0,
        numbers: HashMap::new(),
        states: Vec::new(),
        lists: HashMap::from([(vec![], 0)]),
        registers: FIRST_FREE,
    };
    maker.run(unmatched)
}

/// A thread of the search: where it stands, and which tags it has set, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Thread {
    state: StateID,
    set: u8,
}

/// A thread that has come from one of the state before.
struct Arrival {
    thread: Thread,
    /// Its number there.
    from: usize,
    /// Tags set on the way.
    new: u8,
}

/// Where in the text transitions without a byte are followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Start,
    Middle,
    End,
}

struct Maker<'n> {
    nfa: &'n NFA,
    pattern: &'n str,
    /// Whether the first match found ends the search.
    is_earliest: bool,
    /// Slots of places, and what they are of the wanted part.
    tags: Vec<(usize, u8)>,
    /// By state of the Thompson automaton the last closure that has seen it.
    seen: Vec<usize>,
    closures: usize,
    /// Transitions without a byte that were followed.
    ways: usize,
    numbers: HashMap<Vec<Thread>, u16>,
    states: Vec<Vec<Thread>>,
    lists: HashMap<Vec<Move>, u16>,
    registers: u8,
}

impl Maker<'_> {
    fn run(mut self, unmatched: Unmatched) -> Result<Automaton, WhyNot> {
        let classes: Vec<u8> = self
            .nfa
            .byte_classes()
            .representatives(0..=255)
            .filter_map(|unit| unit.as_u8())
            .collect();
        let width = classes.len() + 1;
        assert_eq!(self.number(vec![])?, DEAD);
        let begin = Thread { state: self.nfa.start_unanchored(), set: 0 };
        let arrivals = self.closure(&[(begin, 0)], At::Start)?;
        let start = self.step(&[], arrivals)?;
        let mut steps = Vec::new();
        let mut number = 0;
        while let Some(threads) = self.states.get(number).cloned() {
            number += 1;
            if number * width > STEPS_MAX {
                return self.refuse("needs too many states");
            }
            for &byte in &classes {
                let on = |(from, thread): (usize, &Thread)| {
                    let state = self.on_byte(thread.state, byte)?;
                    Some((Thread { state, set: thread.set }, from))
                };
                let moved: Vec<_> = threads.iter().enumerate().filter_map(on).collect();
                let arrivals = self.closure(&moved, At::Middle)?;
                steps.push(self.step(&threads, arrivals)?);
            }
            steps.push(self.end(&threads)?);
        }
        let mut lists: Vec<_> = self.lists.into_iter().collect();
        lists.sort_unstable_by_key(|(_, number)| *number);
        let lists = lists.into_iter().map(|(moves, _)| moves).collect();
        let classes = std::array::from_fn(|byte| self.nfa.byte_classes().get(byte as u8));
        let registers = self.registers;
        Ok(Automaton { classes, width, steps, start, lists, registers, unmatched })
    }

    fn refuse<T>(&self, why: &str) -> Result<T, WhyNot> {
        Err(WhyNot::new(format!("'{}' {why}", self.pattern)))
    }

    fn on_byte(&self, state: StateID, byte: u8) -> Option<StateID> {
        match self.nfa.state(state) {
            State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
            State::Sparse(transitions) => transitions.matches_byte(byte),
            State::Dense(transitions) => transitions.matches_byte(byte),
            _ => None,
        }
    }

    fn is_match(&self, state: StateID) -> bool {
        matches!(self.nfa.state(state), State::Match { .. })
    }

    /// The threads that transitions without a byte lead to, in order of preference, up to the first that matches.
    fn closure(&mut self, begins: &[(Thread, usize)], at: At) -> Result<Vec<Arrival>, WhyNot> {
        self.closures += 1;
        let mut arrivals = Vec::new();
        for &(begin, from) in begins {
            let mut open = vec![(begin.state, 0)];
            while let Some((state, new)) = open.pop() {
                let seen = std::mem::replace(&mut self.seen[state.as_usize()], self.closures);
                if seen == self.closures {
                    continue;
                }
                self.ways += 1;
                match self.nfa.state(state) {
                    State::Union { alternates } => {
                        open.extend(alternates.iter().rev().map(|state| (*state, new)));
                    }
                    State::BinaryUnion { alt1, alt2 } => open.extend([(*alt2, new), (*alt1, new)]),
                    State::Capture { next, slot, .. } => {
                        let tag = self.tags.iter().position(|(known, _)| *known == slot.as_usize());
                        open.push((*next, new | tag.map_or(0, |tag| 1 << tag)));
                    }
                    State::Look { look: Look::Start, next } => match at {
                        At::Start => open.push((*next, new)),
                        At::Middle => {}
                        At::End => return self.refuse("asks for the beginning behind an end"),
                    },
                    State::Look { look: Look::End, next } if at == At::End => {
                        open.push((*next, new));
                    }
                    // Whether the text ends here is not known before.
                    State::Look { look: Look::End, .. }
                    | State::ByteRange { .. }
                    | State::Sparse(_)
                    | State::Dense(_)
                    | State::Match { .. } => {
                        let thread = Thread { state, set: begin.set | new };
                        arrivals.push(Arrival { thread, from, new });
                        if self.is_match(state) {
                            return Ok(arrivals);
                        }
                    }
                    State::Look { .. } => return self.refuse("looks at lines or words"),
                    State::Fail => {}
                }
            }
        }
        if self.ways > WAYS_MAX {
            return self.refuse("needs too many states");
        }
        Ok(arrivals)
    }

    /// The step from some threads to those that have arrived.
    fn step(&mut self, before: &[Thread], arrivals: Vec<Arrival>) -> Result<Step, WhyNot> {
        let matches = arrivals.last().is_some_and(|last| self.is_match(last.thread.state));
        if matches && self.is_earliest {
            let moves = self.list(vec![Move { to: MATCHED, from: HERE }])?;
            return Ok(Step { state: DEAD, moves });
        }
        let mut moves = match before.iter().rposition(|thread| self.is_match(thread.state)) {
            // No later match has been preferred yet, and there may be none.
            Some(matched) if !matches => self.found(before, matched, 0)?,
            _ => vec![],
        };
        let threads: Vec<Thread> = arrivals.iter().map(|arrival| arrival.thread).collect();
        let (mut down, mut up, mut set) = (Vec::new(), Vec::new(), Vec::new());
        for (number, arrival) in arrivals.iter().enumerate() {
            for tag in (0..self.tags.len()).filter(|tag| arrival.thread.set >> tag & 1 == 1) {
                let to = self.register(&threads, number, tag)?;
                if arrival.new >> tag & 1 == 1 {
                    set.push(Move { to, from: HERE });
                    continue;
                }
                let from = self.register(before, arrival.from, tag)?;
                if to < from {
                    down.push(Move { to, from });
                } else if to > from {
                    up.push(Move { to, from });
                }
            }
        }
        moves.extend(down);
        moves.extend(up.into_iter().rev());
        moves.extend(set);
        Ok(Step { moves: self.list(moves)?, state: self.number(threads)? })
    }

    /// The step at the end of the text.
    fn end(&mut self, threads: &[Thread]) -> Result<Step, WhyNot> {
        for (number, thread) in threads.iter().enumerate() {
            let arrivals = self.closure(&[(*thread, number)], At::End)?;
            if let Some(last) = arrivals.last()
                && self.is_match(last.thread.state)
            {
                // A search would not go around a loop again where it has been at this place.
                if last.new & thread.set != 0 {
                    return self.refuse("sets a group again at the end");
                }
                let moves = self.found(threads, number, last.new)?;
                return Ok(Step { state: DEAD, moves: self.list(moves)? });
            }
        }
        Ok(Step::default())
    }

    /// The moves that keep what a thread has found; the `new` tags are set at this place.
    fn found(&mut self, threads: &[Thread], number: usize, new: u8) -> Result<Vec<Move>, WhyNot> {
        let mut moves = vec![Move { to: MATCHED, from: HERE }];
        for tag in 0..self.tags.len() {
            let from = match () {
                () if new >> tag & 1 == 1 => HERE,
                () if threads[number].set >> tag & 1 == 1 => self.register(threads, number, tag)?,
                () => NOWHERE,
            };
            moves.push(Move { to: self.tags[tag].1, from });
        }
        Ok(moves)
    }

    /// The register of a thread's tag; threads without tags have none.
    fn register(&mut self, threads: &[Thread], number: usize, tag: usize) -> Result<u8, WhyNot> {
        let row = threads[..number].iter().filter(|thread| thread.set != 0).count();
        let register = usize::from(FIRST_FREE) + row * self.tags.len() + tag;
        if register >= REGISTERS_MAX {
            return self.refuse("needs too many registers");
        }
        self.registers = self.registers.max(register as u8 + 1);
        Ok(register as u8)
    }

    fn number(&mut self, threads: Vec<Thread>) -> Result<u16, WhyNot> {
        if let Some(number) = self.numbers.get(&threads) {
            return Ok(*number);
        }
        let Ok(number) = u16::try_from(self.states.len()) else {
            return self.refuse("needs too many states");
        };
        self.states.push(threads.clone());
        self.numbers.insert(threads, number);
        Ok(number)
    }

    fn list(&mut self, moves: Vec<Move>) -> Result<u16, WhyNot> {
        let Ok(number) = u16::try_from(self.lists.len()) else {
            return self.refuse("needs too many moves");
        };
        Ok(*self.lists.entry(moves).or_insert(number))
    }
}
