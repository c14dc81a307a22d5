//! A file written from beginning to end.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::sink::{SinkFile, WriteAt};
use crate::{ReadMode, Result};

/// A [growing](SinkFile::growing) file as a [`Write`]; dropped without a [commit](Appended::commit), it
/// leaves nothing.
pub struct Appended {
    sink: Arc<SinkFile>,
    offset: u64,
}

impl Appended {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of [`SinkFile::growing`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self { sink: SinkFile::growing(path)?, offset: 0 })
    }

    /// Ends the file at its last byte, makes it durable and puts it in place.
    ///
    /// # Errors
    /// Those of [`SinkFile::commit`].
    pub fn commit(self) -> Result<()> {
        self.sink.end_at(self.offset);
        self.sink.commit(true)
    }
}

impl Write for Appended {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write_at(ReadMode::Buffered, self.offset, bytes)?;
        self.offset += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
