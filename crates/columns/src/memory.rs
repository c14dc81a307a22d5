//! Host memory of running pipelines: shares of a [`MemoryBudget`] that pay for groups, rows and unfinished
//! builds.

use std::sync::Arc;

use headrace_io::{MemoryBudget, MemoryUse, OutOfBudget, Reservation};

use crate::ColumnError;

/// A share of a budget for the states of pipelines. Workers, merges and whole executions may have one together.
pub fn share(budget: &Arc<MemoryBudget>, share_bytes: u64) -> Arc<MemoryBudget> {
    MemoryBudget::within(budget, MemoryUse::Pipelines, share_bytes)
}

/// A reservation of nothing yet.
pub fn reserve(share: &Arc<MemoryBudget>) -> Reservation {
    share.reserve_nothing(MemoryUse::Pipelines)
}

/// Free bytes of a share.
pub fn free_bytes(share: &MemoryBudget) -> u64 {
    share.limit_bytes().saturating_sub(share.uses().total_bytes())
}

/// A reservation whose refusal says what the bytes are for.
pub trait Hold {
    /// Holds `bytes` from now on.
    ///
    /// # Errors
    /// [`ColumnError::Memory`] if there are not as many; the reservation keeps its old size then.
    fn hold(&mut self, bytes: u64, what: &str) -> Result<(), ColumnError>;
}

impl Hold for Reservation {
    fn hold(&mut self, bytes: u64, what: &str) -> Result<(), ColumnError> {
        self.resize(bytes).map_err(|refused| ColumnError::out_of_memory(&refused, what))
    }
}

impl ColumnError {
    /// A refusal of host memory, and what it was for.
    pub fn out_of_memory(refused: &OutOfBudget, what: &str) -> Self {
        let OutOfBudget { wanted_bytes, limit_bytes, share_bytes, uses, .. } = refused;
        let held_bytes = uses.total_bytes();
        let what = match share_bytes {
            Some(share) => {
                format!("{what}, {share} bytes are set aside for groups, rows and builds")
            }
            None if held_bytes > 0 => format!("{what} while others hold {uses}"),
            None => what.to_string(),
        };
        let needed_bytes = held_bytes.saturating_add(*wanted_bytes);
        Self::Memory { tier: "host memory", what, needed_bytes, limit_bytes: *limit_bytes }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_was_exceeded_and_what_it_was_for() {
        let budget = MemoryBudget::new(100);
        let shares = [share(&budget, 80), share(&budget, 80)];
        let [mut a, mut b] = shares.each_ref().map(reserve);
        let error = a.hold(81, "rows of a").unwrap_err().to_string();
        assert!(error.contains("81 bytes are needed for rows of a, 80 bytes are set"), "{error}");
        assert!(error.contains("the limit is 100"), "{error}");
        a.hold(70, "rows of a").unwrap();
        let error = b.hold(31, "rows of b").unwrap_err().to_string();
        assert!(error.contains("101 bytes are needed for rows of b while others"), "{error}");
        b.hold(30, "rows of b").unwrap();
        assert_eq!((free_bytes(&shares[1]), budget.uses().of(MemoryUse::Pipelines)), (50, 100));
        drop(a);
        b.hold(80, "rows of b").unwrap();
    }
}
