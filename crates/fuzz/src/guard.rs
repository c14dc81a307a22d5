//! Panics that nobody may see.
//!
//! One of our own code is a fault, also on a thread that tells nobody and where it is caught and becomes an error. One of
//! a library is a fault unless we caught it.

use std::panic::{Location, resume_unwind, set_hook, take_hook};
use std::sync::{Mutex, Once, PoisonError};

/// Panics of our own code since the last look.
static OURS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Runs `work`; panics if our code did, wherever.
pub fn watch<T>(work: impl FnOnce() -> T) -> T {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(install);
    let outcome = work();
    let panics = std::mem::take(&mut *OURS.lock().unwrap_or_else(PoisonError::into_inner));
    if !panics.is_empty() {
        // Told already, where it happened.
        resume_unwind(Box::new(format!("a panic was hidden: {}", panics.join("; "))));
    }
    outcome
}

fn install() {
    let tell = take_hook();
    set_hook(Box::new(move |panic| {
        if panic.location().map(Location::file).is_some_and(is_ours) {
            OURS.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
        }
        tell(panic);
    }));
}

/// Libraries are compiled by absolute paths, members of the workspace by relative ones. What this crate finds goes to the
/// caller by itself.
fn is_ours(file: &str) -> bool {
    file.starts_with("crates/") && !file.starts_with("crates/fuzz/")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_of_ours_is_told_though_it_was_caught() {
        assert!(is_ours("crates/engine/src/session.rs"));
        assert!(!is_ours(file!()) && !is_ours("/registry/datafusion/src/lib.rs"));
        let hidden = || watch(|| OURS.lock().unwrap().push("on another thread".to_string()));
        assert!(catch_unwind(AssertUnwindSafe(hidden)).is_err());
        assert_eq!(watch(|| 1), 1);
    }
}
