//! Programs: graphs of stages.
//!
//! ```text
//! stage 0: lineitem ─► filter ─► aggregate by l_orderkey
//! stage 1: stage 0 ─► filter sum > 300 ─► build on l_orderkey
//! stage 2: lineitem ─► probe stage 1 ─► aggregate            (the answer)
//! ```
//!
//! A stage reads a table, batches, constants or the output of an earlier stage, and probes the builds
//! of earlier stages. Planners write few kinds of stages; the rest are made of these by lowering:
//! distinct calls ([`crate::distinct`]), groups of a union ([`crate::union`]), grouping sets ([`crate::grouping`]), and joins whose build
//! does not fit memory ([`crate::divide`]). Groups that a query asks for several times are one stage ([`crate::shared`]).

use serde::{Deserialize, Serialize};

use crate::cuda_function::CudaFunction;
use crate::expr::Expr;
use crate::pipeline::{Input, Pipeline, Probe, Source, Step};
use crate::types::Field;

/// The version of programs that this crate writes and reads: changed whenever the meaning of a
/// serialised program changes.
pub const PROGRAM_VERSION: u32 = 12;

/// Stages in an order in which they can run. Together with its tables a program says everything that
/// a processor has to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// [`PROGRAM_VERSION`] of whoever made it.
    pub version: u32,
    /// What has to be known to run it: types of values that come with each run.
    #[serde(default)]
    pub parameters: Vec<Field>,
    /// The stages that others read or probe, each after those that it reads or probes itself.
    pub stages: Vec<Pipeline>,
    /// The last stage: its output is the program's.
    pub answer: Pipeline,
}

impl Program {
    /// A program of the present version without parameters.
    pub fn new(stages: Vec<Pipeline>, answer: Pipeline) -> Self {
        Self { version: PROGRAM_VERSION, parameters: Vec::new(), stages, answer }
    }

    /// All stages; the answer is the last.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Pipeline> {
        self.stages.iter().chain(std::iter::once(&self.answer))
    }

    /// The same, to be changed.
    pub fn all_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Pipeline> {
        self.stages.iter_mut().chain(std::iter::once(&mut self.answer))
    }

    /// A stage by its number. That of the answer is `stages.len()`.
    pub fn stage(&self, number: usize) -> Option<&Pipeline> {
        self.stages.get(number).or((number == self.stages.len()).then_some(&self.answer))
    }

    pub(crate) fn stage_mut(&mut self, number: usize) -> Option<&mut Pipeline> {
        let is_answer = number == self.stages.len();
        self.stages.get_mut(number).or(is_answer.then_some(&mut self.answer))
    }

    /// Every source, in the order of the stages.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.all().map(|stage| &stage.source)
    }

    /// The same, to be changed.
    pub fn sources_mut(&mut self) -> impl Iterator<Item = &mut Source> {
        self.all_mut().map(|stage| &mut stage.source)
    }

    /// The stages that a stage reads or probes.
    pub fn inputs(&self, number: usize) -> impl Iterator<Item = usize> {
        let stage = self.stage(number).into_iter();
        stage.flat_map(|stage| {
            let read = stage.source.input.stages().iter().copied();
            read.chain(stage.probes().map(|probe| probe.build))
        })
    }

    /// Whether any rows come once.
    pub fn reads_batches(&self) -> bool {
        self.sources().any(|source| matches!(source.input, Input::Batches(_)))
    }

    /// Whether several read what a stage puts out.
    pub fn is_shared(&self, number: usize) -> bool {
        let read = Input::Stage(number);
        self.sources().filter(|source| source.input == read).nth(1).is_some()
    }

    /// A stage, the stages that its rows come from, those that these read, and so on.
    pub fn chain(&self, number: usize) -> Vec<usize> {
        let (mut chain, mut at) = (vec![number], 0);
        while let Some(stage) = chain.get(at) {
            let read = self.stage(*stage).map_or(&[][..], |stage| stage.source.input.stages());
            chain.extend(read);
            at += 1;
        }
        chain
    }

    /// The stages that the rows of a stage come from in the first place: they read no other stage.
    pub fn origins(&self, number: usize) -> Vec<usize> {
        let is_origin = |stage: &Pipeline| stage.source.input.stages().is_empty();
        let mut chain = self.chain(number);
        chain.retain(|&number| self.stage(number).is_some_and(is_origin));
        chain
    }

    /// Of each stage, whether others probe it.
    pub fn probed(&self) -> Vec<bool> {
        let mut probed = vec![false; self.stages.len() + 1];
        for probe in self.all().flat_map(Pipeline::probes) {
            probed[probe.build] = true;
        }
        probed
    }

    /// The functions of users that it calls, with whether each call has a twin.
    pub fn cuda_functions(&self) -> impl Iterator<Item = (&CudaFunction, bool)> {
        self.all().flat_map(Pipeline::cuda_functions)
    }

    pub(crate) fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        self.all_mut().flat_map(Pipeline::exprs_mut)
    }

    /// Puts a stage before another, which has the next number from then on.
    pub fn insert(&mut self, number: usize, stage: Pipeline) {
        for stage in self.all_mut() {
            stage.renumber(&|read| read + usize::from(read >= number));
        }
        self.stages.insert(number, stage);
    }
}

impl Pipeline {
    /// Gives the stages that it reads and probes other numbers.
    pub fn renumber(&mut self, number: &impl Fn(usize) -> usize) {
        self.source.input.renumber(number);
        for step in &mut self.steps {
            if let Step::Probe(Probe { build, .. }) = step {
                *build = number(*build);
            }
        }
    }
}
