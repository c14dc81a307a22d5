//! Who consumes chunks on the host.

use headrace_io::{BoxError, FedChunk};

use crate::{Outbox, Verdict};

/// Consumes chunks on a thread of its own.
pub trait HostConsumer<P = ()>: Send {
    /// Consumes one chunk: one slice per [`ReadSpec`](crate::ReadSpec), in that order. The slices are valid only
    /// during the call; each has the alignment that its offset has in the file, up to a page.
    ///
    /// Chunks come in any order. Results are valid only if the race ends without error: a file may
    /// turn out to have changed.
    fn consume(&mut self, chunk: &FedChunk<P>, buffers: &[&[u8]]) -> Result<Verdict, BoxError>;
}

/// Consumes chunks on a thread of its own, and produces output for them.
pub trait HostProducer<P = ()>: Send {
    /// Like [`HostConsumer::consume`]. Output is written while the next chunks are processed; the
    /// race ends when all of it is written.
    fn produce(
        &mut self,
        chunk: &FedChunk<P>,
        buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError>;
}

/// A consumer as a producer without output.
pub(super) struct Silent<C>(pub C);

impl<P, C: HostConsumer<P>> HostProducer<P> for Silent<C> {
    fn produce(
        &mut self,
        chunk: &FedChunk<P>,
        buffers: &[&[u8]],
        _outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError> {
        self.0.consume(chunk, buffers)
    }
}
