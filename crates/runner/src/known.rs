//! What the runs of one program have in common: that it fits its tables, how it is lowered, and what its builds are known by.
//!
//! A query that is asked again takes longer to be made ready than to be run, where its table lies in device memory.

use std::sync::{Arc, OnceLock};

use headrace_ir::Program;

/// Found out by the first run of a program, for later ones over the same tables. Parameters differ between runs: where there
/// are some, nothing is kept.
#[derive(Debug, Default)]
pub struct KnownProgram(OnceLock<Lowered>);

/// A program as the processors take it.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub program: Program,
    /// By stage, of those that were asked for: what tells its build from others.
    texts: Vec<OnceLock<Arc<str>>>,
}

impl KnownProgram {
    /// The program as it was lowered, or as it is lowered now.
    pub(crate) fn lowered<E>(
        &self,
        lower: impl FnOnce() -> Result<Program, E>,
    ) -> Result<&Lowered, E> {
        if let Some(known) = self.0.get() {
            return Ok(known);
        }
        let program = lower()?;
        let texts = (0..program.stages.len()).map(|_| OnceLock::new()).collect();
        // Of two first runs one keeps its own.
        Ok(self.0.get_or_init(|| Lowered { program, texts }))
    }
}

impl Lowered {
    /// What tells a stage's build from others, as `program` has it: that may be another by now.
    pub fn text(&self, program: &Program, stage: usize, make: impl FnOnce() -> String) -> Arc<str> {
        match self.texts.get(stage).filter(|_| std::ptr::eq(program, &self.program)) {
            Some(text) => Arc::clone(text.get_or_init(|| make().into())),
            None => make().into(),
        }
    }
}
