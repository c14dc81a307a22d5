//! The account of host memory that the states of running pipelines share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headrace_io::{self as io, MemoryBudget, MemoryUse};
use parking_lot::Mutex;

use crate::ExecError;

/// Host bytes that groups, rows and builds may take together. Workers, merges and whole
/// executions may share one; what they hold they hold as [`Reservation`]s.
#[derive(Debug)]
pub struct MemoryAccount {
    share_bytes: u64,
    limit_bytes: u64,
    /// What all of them hold of the budget.
    held: Mutex<io::Reservation>,
    peak_bytes: AtomicU64,
}

impl MemoryAccount {
    /// An account of `limit_bytes` of its own.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Self::within(&MemoryBudget::new(limit_bytes), limit_bytes)
    }

    /// An account that takes at most `share_bytes` of a budget. Errors name the budget's limit,
    /// because that is the one that somebody chose.
    pub fn within(budget: &Arc<MemoryBudget>, share_bytes: u64) -> Arc<Self> {
        let held = Mutex::new(budget.reserve_nothing(MemoryUse::Pipelines));
        let limit_bytes = budget.limit_bytes();
        Arc::new(Self { share_bytes, limit_bytes, held, peak_bytes: AtomicU64::new(0) })
    }

    /// Bytes that may be held at a time.
    pub fn share_bytes(&self) -> u64 {
        self.share_bytes
    }

    /// Bytes held now.
    pub fn used_bytes(&self) -> u64 {
        self.held.lock().bytes()
    }

    /// Most bytes that were ever held at a time.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Nothing yet, to be resized.
    pub fn reserve(self: &Arc<Self>) -> Reservation {
        Reservation { account: Arc::clone(self), bytes: 0 }
    }

    fn take(&self, bytes: u64, what: &str) -> Result<(), ExecError> {
        let mut held = self.held.lock();
        let wanted_bytes = held.bytes().saturating_add(bytes);
        if wanted_bytes > self.share_bytes {
            return Err(self.exceeded(what, wanted_bytes));
        }
        held.resize(wanted_bytes).map_err(|refused| {
            let what = format!("{what} while others hold {}", refused.uses);
            let needed_bytes = refused.uses.total_bytes().saturating_add(bytes);
            let limit_bytes = self.limit_bytes;
            ExecError::Memory { tier: "host memory", what, needed_bytes, limit_bytes }
        })?;
        self.peak_bytes.fetch_max(wanted_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        let mut held = self.held.lock();
        let left = held.bytes().checked_sub(bytes).expect("what was taken is given back once");
        held.resize(left).expect("a smaller reservation is never refused");
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
            self.account.take(bytes - self.bytes, what)?;
        } else if bytes < self.bytes {
            self.account.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn reservations_share_one_account_and_give_back() {
        let account = MemoryAccount::within(&MemoryBudget::new(400), 100);
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

    #[test]
    fn accounts_of_one_budget_share_it() {
        let budget = MemoryBudget::new(100);
        let accounts = [MemoryAccount::within(&budget, 80), MemoryAccount::within(&budget, 80)];
        let [mut a, mut b] = accounts.each_ref().map(|account| account.reserve());
        a.try_resize(70, "a").unwrap();
        let error = b.try_resize(31, "rows of b").unwrap_err().to_string();
        assert!(error.contains("101 bytes are needed for rows of b while others"), "{error}");
        b.try_resize(30, "b").unwrap();
        drop(a);
        b.try_resize(80, "b").unwrap();
        assert_eq!(budget.uses().of(MemoryUse::Pipelines), 80);
    }
}
