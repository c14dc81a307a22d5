//! Frames: which rows of a batch are alive, and the registers that were computed for them.
//!
//! A filter or probe does not copy columns. It pushes a frame that says which row of the
//! frame below each of its rows is; a register that is needed later is then taken through
//! that mapping, a source column that nobody has read yet is gathered from the segment. The
//! same mechanism evaluates a CASE branch for the rows that took it.
//!
//! ```text
//! frame 0: rows 0..4096 of the batch           lo_custkey (a view of the segment)
//! frame 1: [3, 8, 9, 17, ...]   after a probe   c_nation
//! frame 2: [0, 2, 3, ...]       after a filter
//! ```

use std::rc::Rc;

use headrace_columns::load::SourceColumns;
use headrace_columns::narrow::Narrow;
use headrace_columns::text::Texts;
use headrace_columns::vector::{Vector, take_values};

use crate::ExecError;
use crate::bound::RegisterInfo;
use crate::build::BuildTable;
use crate::build::fetch::fetch;

#[derive(Clone)]
enum Slot<'a> {
    Empty,
    Vector(Rc<Vector<'a>>),
    /// Payload column of a build that nobody has read yet.
    Payload {
        build: &'a BuildTable,
        column: usize,
        entries: Rc<Vec<u32>>,
    },
}

struct Frame<'a> {
    rows: usize,
    /// Row of the frame below, for each row; `None`: the same rows.
    from_parent: Option<Rc<Vec<u32>>>,
    /// Row of frame 0, for each row; `None`: the same rows.
    origin: Option<Rc<Vec<u32>>>,
    slots: Vec<Slot<'a>>,
    /// Registers that were wanted in 64 bits; `None`: they do not fit.
    narrow: Vec<(usize, Option<Narrow<'a>>)>,
}

/// The rows of one batch while steps run over them.
pub struct Context<'a> {
    registers: &'a [RegisterInfo],
    source: Option<&'a SourceColumns<'a>>,
    start: usize,
    frames: Vec<Frame<'a>>,
    /// Keeps the texts that functions make.
    pub texts: &'a Texts,
}

impl<'a> Context<'a> {
    /// Rows `start .. start + rows` of a segment.
    pub fn new(
        registers: &'a [RegisterInfo],
        source: &'a SourceColumns<'a>,
        start: usize,
        rows: usize,
        texts: &'a Texts,
    ) -> Self {
        let mut context =
            Self { registers, source: Some(source), start, frames: Vec::new(), texts };
        context.push_frame(rows, None, None);
        context
    }

    /// These rows of a segment, ascending.
    pub fn picked(
        registers: &'a [RegisterInfo],
        source: &'a SourceColumns<'a>,
        rows: Vec<u32>,
        texts: &'a Texts,
    ) -> Self {
        let mut context = Self::new(registers, source, 0, rows.len(), texts);
        context.push(rows);
        context
    }

    /// Rows whose registers are given.
    pub fn from_vectors(
        registers: &'a [RegisterInfo],
        rows: usize,
        vectors: Vec<Vector<'a>>,
        texts: &'a Texts,
    ) -> Self {
        let mut context = Self { registers, source: None, start: 0, frames: Vec::new(), texts };
        context.push_frame(rows, None, None);
        for (register, vector) in vectors.into_iter().enumerate() {
            context.set(register, Rc::new(vector));
        }
        context
    }

    /// Rows that are alive.
    pub fn rows(&self) -> usize {
        self.frames.last().map_or(0, |frame| frame.rows)
    }

    /// Whether all rows of the batch are alive in their order.
    pub fn is_whole_batch(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.origin.is_none())
    }

    fn push_frame(
        &mut self,
        rows: usize,
        from_parent: Option<Rc<Vec<u32>>>,
        origin: Option<Rc<Vec<u32>>>,
    ) {
        let slots = vec![Slot::Empty; self.registers.len()];
        self.frames.push(Frame { rows, from_parent, origin, slots, narrow: Vec::new() });
    }

    /// Goes on with the rows at `indices` of the current frame.
    pub fn push(&mut self, indices: Vec<u32>) {
        let indices = Rc::new(indices);
        let origin = match self.frames.last().and_then(|frame| frame.origin.as_ref()) {
            None => Rc::clone(&indices),
            Some(below) => Rc::new(take_values(below, &indices)),
        };
        self.push_frame(indices.len(), Some(indices), Some(origin));
    }

    /// A frame of the same rows, so that registers set in it can be dropped.
    pub fn push_same(&mut self) {
        let (rows, origin) =
            self.frames.last().map_or((0, None), |frame| (frame.rows, frame.origin.clone()));
        self.push_frame(rows, None, origin);
    }

    /// Number of frames, to come back to with [`Self::truncate`].
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Drops the frames above `depth`.
    pub fn truncate(&mut self, depth: usize) {
        self.frames.truncate(depth);
    }

    /// Sets a register for the current rows.
    pub fn set(&mut self, register: usize, vector: Rc<Vector<'a>>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.slots[register] = Slot::Vector(vector);
            frame.narrow.retain(|(known, _)| *known != register);
        }
    }

    /// Sets a register to a payload column that is read when somebody asks. `entries` holds
    /// the build's entry for each current row, or [`NO_MATCH`](crate::build::fetch::NO_MATCH).
    pub fn set_payload(
        &mut self,
        register: usize,
        build: &'a BuildTable,
        column: usize,
        entries: Rc<Vec<u32>>,
    ) {
        if let Some(frame) = self.frames.last_mut() {
            frame.slots[register] = Slot::Payload { build, column, entries };
            frame.narrow.retain(|(known, _)| *known != register);
        }
    }

    /// The value of a register for the current rows.
    pub fn register(&mut self, register: usize) -> Result<Rc<Vector<'a>>, ExecError> {
        let top = self.frames.len() - 1;
        let found = (0..=top)
            .rev()
            .find(|&depth| !matches!(self.frames[depth].slots[register], Slot::Empty));
        let vector = match found {
            Some(depth) => match self.frames[depth].slots[register].clone() {
                Slot::Vector(vector) if depth == top => return Ok(vector),
                Slot::Vector(vector) => match self.mapping(depth) {
                    None => vector,
                    Some(mapping) => Rc::new(vector.take(&mapping)),
                },
                Slot::Payload { build, column, entries } => {
                    let entries = match self.mapping(depth) {
                        None => entries,
                        Some(mapping) => Rc::new(take_values(&entries, &mapping)),
                    };
                    Rc::new(fetch(build, column, &entries)?)
                }
                Slot::Empty => return Err(missing(register)),
            },
            None => Rc::new(self.load(register)?),
        };
        let kept = self.first_of_same(found.map_or(0, |depth| depth + 1).min(top));
        self.frames[kept].slots[register] = Slot::Vector(Rc::clone(&vector));
        Ok(vector)
    }

    /// The lowest frame from `depth` on that has the same rows as the top one: what is kept there outlives the frames above.
    fn first_of_same(&self, depth: usize) -> usize {
        let mut lowest = self.frames.len() - 1;
        while lowest > depth && self.frames[lowest].from_parent.is_none() {
            lowest -= 1;
        }
        lowest
    }

    /// The value of a decimal register in 64 bits; `None`: it does not fit.
    pub fn narrow(&mut self, register: usize) -> Result<Option<Narrow<'a>>, ExecError> {
        let top = self.frames.len() - 1;
        let known = &self.frames[top].narrow;
        if let Some((_, narrow)) = known.iter().find(|(known, _)| *known == register) {
            return Ok(narrow.clone());
        }
        let is_set = |frame: &Frame<'_>| !matches!(frame.slots[register], Slot::Empty);
        let narrow = match self.source {
            Some(source) if !self.frames.iter().any(is_set) => {
                let frame = &self.frames[top];
                source.narrow(register, self.start, frame.rows, frame.origin.as_deref())?
            }
            _ => Narrow::of_vector(&*self.register(register)?),
        };
        self.frames[top].narrow.push((register, narrow.clone()));
        Ok(narrow)
    }

    fn load(&self, register: usize) -> Result<Vector<'a>, ExecError> {
        let source = self.source.ok_or_else(|| missing(register))?;
        let frame = self.frames.last().ok_or_else(|| missing(register))?;
        Ok(match &frame.origin {
            None => source.load(register, self.start, frame.rows)?,
            Some(origin) => source.gather(register, self.start, origin)?,
        })
    }

    /// Row of frame `depth` for each row of the top frame; `None`: the same rows.
    fn mapping(&self, depth: usize) -> Option<Rc<Vec<u32>>> {
        if depth == 0 {
            return self.frames.last().and_then(|frame| frame.origin.clone());
        }
        let mut mapping: Option<Rc<Vec<u32>>> = None;
        for frame in self.frames[depth + 1..].iter().rev() {
            let Some(step) = &frame.from_parent else { continue };
            mapping = Some(match mapping {
                None => Rc::clone(step),
                Some(above) => Rc::new(take_values(step, &above)),
            });
        }
        mapping
    }
}

fn missing(register: usize) -> ExecError {
    ExecError::Internal(format!("register {register} is read before it is set"))
}
