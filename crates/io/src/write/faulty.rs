//! The fault-injecting twin of a file being written.
//!
//! Bytes that it reports as not written *are* not there: they are corrupted in the file, so a
//! writer that does not write them again leaves a visibly wrong file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::{SinkFile, WriteAt};
use crate::faulty::Faults;
use crate::{ReadMode, Result};

/// The faults to inject. The default is none.
#[derive(Debug, Clone, Default)]
pub struct WriteFaultPlan {
    /// Seed of everything that happens "per mille".
    pub seed: u64,
    /// Writes that take only part of the given bytes.
    pub short_writes_permille: u16,
    /// Writes that are interrupted by a signal (EINTR).
    pub interrupted_permille: u16,
    /// Every write that touches this byte fails with EIO.
    pub io_error_at: Option<u64>,
    /// How often `io_error_at` fails before the device recovers; `None`: always.
    pub io_error_times: Option<u64>,
    /// The file system is full here: a write that begins before is short, one that begins after
    /// fails with ENOSPC.
    pub full_at: Option<u64>,
    /// Every write takes at least this long.
    pub latency: Duration,
    /// O_DIRECT writes fail with EINVAL, although the file was opened with O_DIRECT.
    pub direct_refused: bool,
    /// The commit fails with EIO, as if bytes had been lost on their way to the device.
    pub commit_fails: bool,
}

/// A file with faults. Replaces a [`SinkFile`] under every writer.
#[derive(Debug)]
pub struct FaultySink {
    inner: Arc<SinkFile>,
    full_at: Option<u64>,
    commit_fails: bool,
    faults: Faults,
}

impl FaultySink {
    /// The twin of `inner`.
    pub fn new(inner: Arc<SinkFile>, plan: WriteFaultPlan) -> Arc<FaultySink> {
        let faults = Faults {
            seed: plan.seed,
            short_permille: plan.short_writes_permille,
            interrupted_permille: plan.interrupted_permille,
            io_error_at: plan.io_error_at,
            io_error_times: plan.io_error_times,
            latency: plan.latency,
            direct_refused: plan.direct_refused,
            attempts: AtomicU64::new(0),
            io_errors: AtomicU64::new(0),
        };
        Arc::new(FaultySink {
            inner,
            full_at: plan.full_at,
            commit_fails: plan.commit_fails,
            faults,
        })
    }

    /// Writes attempted so far, with any outcome.
    pub fn writes(&self) -> u64 {
        self.faults.attempts()
    }

    /// How many of `count` written bytes at `offset` count as written.
    fn taken(&self, offset: u64, count: usize) -> io::Result<usize> {
        let room = self.full_at.map_or(u64::MAX, |end| end.saturating_sub(offset));
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
        if self.commit_fails {
            let cause = io::Error::from_raw_os_error(libc::EIO);
            return Err(self.inner.abandon("sync the file", cause));
        }
        self.inner.commit(sync)
    }
}
