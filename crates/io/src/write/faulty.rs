//! The fault-injecting twin of a file being written.
//!
//! Bytes that it reports as not written *are* not there: they are corrupted in the file, so a
//! writer that does not write them again leaves a visibly wrong file.

use std::io;
use std::sync::Arc;

use super::{SinkFile, WriteAt};
use crate::faulty::{FaultPlan, Faults};
use crate::{ReadMode, Result};

/// A file with faults. Replaces a [`SinkFile`] under every writer.
#[derive(Debug)]
pub struct FaultySink {
    inner: Arc<SinkFile>,
    faults: Faults,
}

impl FaultySink {
    /// The twin of `inner`.
    pub fn new(inner: Arc<SinkFile>, plan: FaultPlan) -> Arc<FaultySink> {
        Arc::new(FaultySink { inner, faults: Faults::new(plan) })
    }

    /// Writes attempted so far, with any outcome.
    pub fn writes(&self) -> u64 {
        self.faults.attempts()
    }

    /// How many of `count` written bytes at `offset` count as written.
    fn taken(&self, offset: u64, count: usize) -> io::Result<usize> {
        let room = self.faults.plan.full_at.map_or(u64::MAX, |end| end.saturating_sub(offset));
        if room == 0 && count > 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(self.faults.shortened(offset, count.min(usize::try_from(room).unwrap_or(usize::MAX))))
    }

    /// Corrupts bytes that were written.
    fn spoil(&self, offset: u64, content: &[u8]) -> io::Result<()> {
        let spoilt: Vec<u8> = content.iter().map(|byte| !byte).collect();
        let mut done = 0;
        while done < spoilt.len() {
            let at = offset + done as u64;
            done += self.inner.write_once(ReadMode::Buffered, at, &spoilt[done..])?;
        }
        Ok(())
    }
}

impl WriteAt for FaultySink {
    fn sink(&self) -> &SinkFile {
        &self.inner
    }

    fn intercept(
        &self,
        mode: ReadMode,
        offset: u64,
        from: &[u8],
        outcome: io::Result<usize>,
    ) -> io::Result<usize> {
        let struck = self.faults.strike(mode, offset, from.len());
        let written = outcome?;
        let verdict = struck.and_then(|()| self.taken(offset, written));
        let kept = *verdict.as_ref().unwrap_or(&0);
        self.spoil(offset + kept as u64, &from[kept..written])?;
        verdict
    }

    fn commit(&self, sync: bool) -> Result<()> {
        if self.faults.plan.commit_fails {
            let cause = io::Error::from_raw_os_error(libc::EIO);
            return Err(self.inner.abandon("sync the file", cause));
        }
        self.inner.commit(sync)
    }
}
