//! The destination of a chunk's output.

use std::sync::Arc;

use headrace_io::Placement;
use headrace_io::write::WriteAt;

use crate::RaceError;

/// A chunk's output: its size and position.
///
/// Outputs of a race must not overlap and must lie inside the sink's size; they may come in any
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OutputSpec {
    /// Index into the race's sinks.
    pub sink: usize,
    /// First byte in the sink. A multiple of [`headrace_io::EXTENT_ALIGN_BYTES`] if the output
    /// is to be written by O_DIRECT; others go through the page cache.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

impl OutputSpec {
    /// Error unless the race has the sink, the range lies inside it and the window can hold it.
    pub(crate) fn check(
        &self,
        chunk: usize,
        sinks: &[Arc<dyn WriteAt>],
        window_bytes: usize,
    ) -> Result<(), RaceError> {
        let bad = |what| RaceError::BadOutput { chunk, what };
        let Some(sink) = sinks.get(self.sink) else {
            return Err(bad(format!("sink {} of {}", self.sink, sinks.len())));
        };
        let (path, size_bytes) = (sink.sink().path().display(), sink.sink().size_bytes());
        let inside = self.offset.checked_add(self.bytes).is_some_and(|end| end <= size_bytes);
        if !inside {
            return Err(bad(format!(
                "{} bytes at offset {} do not lie inside {path} of {size_bytes} bytes",
                self.bytes, self.offset
            )));
        }
        if Placement::of(self.offset, self.bytes).window_bytes > window_bytes {
            return Err(bad(format!(
                "{} bytes for {path} do not fit an output window of {window_bytes} bytes; choose \
                 smaller chunks or larger slots",
                self.bytes
            )));
        }
        Ok(())
    }
}
