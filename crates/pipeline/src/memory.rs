//! The account of host memory that the states of running pipelines share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ExecError;

/// Host bytes that groups, rows and builds may take together. Workers, merges and whole
/// executions may share one; what they hold they hold as [`Reservation`]s.
#[derive(Debug)]
pub struct MemoryAccount {
    share_bytes: u64,
    limit_bytes: u64,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

impl MemoryAccount {
    /// An account of `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Self::share_of(limit_bytes, limit_bytes)
    }

    /// An account of `share_bytes`, which were set aside from a limit of `limit_bytes`: the one
    /// that errors name, because it is the one that somebody chose.
    pub fn share_of(share_bytes: u64, limit_bytes: u64) -> Arc<Self> {
        let (used_bytes, peak_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { share_bytes, limit_bytes, used_bytes, peak_bytes })
    }

    /// Bytes that may be held at a time.
    pub fn share_bytes(&self) -> u64 {
        self.share_bytes
    }

    /// Bytes held now.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Most bytes that were ever held at a time.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Nothing yet, to be resized.
    pub fn reserve(self: &Arc<Self>) -> Reservation {
        Reservation { account: Arc::clone(self), bytes: 0 }
    }

    /// Takes bytes; answers what would be held if they are not to be had.
    fn take(&self, bytes: u64) -> Result<(), u64> {
        let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.share_bytes);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(before) => {
                self.peak_bytes.fetch_max(before + bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(used) => Err(used.saturating_add(bytes)),
        }
    }

    fn exceeded(&self, what: &str, needed_bytes: u64) -> ExecError {
        let share = self.share_bytes;
        let what = match share == self.limit_bytes {
            true => what.to_string(),
            false => format!("{what}, {share} bytes are set aside for groups, rows and builds"),
        };
        let limit_bytes = self.limit_bytes;
        ExecError::Memory { tier: "host memory", what, needed_bytes, limit_bytes }
    }
}

/// Bytes held of an account; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    account: Arc<MemoryAccount>,
    bytes: u64,
}

impl Reservation {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` from now on. `what` they are for is what the error says.
    ///
    /// # Errors
    /// [`ExecError::Memory`] if the account has not as many; then what was held is still held.
    pub fn try_resize(&mut self, bytes: u64, what: &str) -> Result<(), ExecError> {
        if bytes > self.bytes {
            let taken = self.account.take(bytes - self.bytes);
            taken.map_err(|needed| self.account.exceeded(what, needed))?;
        } else {
            self.account.used_bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_share_one_account_and_give_back() {
        let account = MemoryAccount::share_of(100, 400);
        let (mut a, mut b) = (account.reserve(), account.reserve());
        a.try_resize(60, "a").unwrap();
        b.try_resize(40, "b").unwrap();
        let error = b.try_resize(41, "rows of b").unwrap_err().to_string();
        assert!(error.contains("rows of b") && error.contains("the limit is 400"), "{error}");
        assert!(error.contains("101 bytes are needed"), "{error}");
        assert_eq!((account.used_bytes(), b.bytes()), (100, 40));
        a.try_resize(10, "a").unwrap();
        b.try_resize(90, "b").unwrap();
        drop((a, b));
        assert_eq!((account.used_bytes(), account.peak_bytes()), (0, 100));
    }
}
