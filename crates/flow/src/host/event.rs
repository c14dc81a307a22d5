//! What wakes the driver.

use headrace_io::Completion;

use crate::OutputSpec;

/// What wakes the driver.
pub(crate) enum Event {
    Read(Completion),
    /// A chunk was consumed or discarded and has no more output; its slot, if any, is free.
    Consumed {
        chunk: usize,
        slot: Option<usize>,
        /// Whether a consumer processed it.
        is_done: bool,
    },
    /// A consumer has filled an output window.
    Filled(FilledWindow),
    Written(Completion),
    /// An empty feed has a chunk again.
    Fed,
}

/// A window of the output ring, to be written.
pub(crate) struct FilledWindow {
    pub chunk: usize,
    pub window: usize,
    pub target: Target,
    pub bytes: usize,
}

/// The destination of output.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    At(OutputSpec),
    /// After the sink's current end.
    End {
        sink: usize,
    },
}
