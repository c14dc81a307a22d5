//! Panics that nobody may see.
//!
//! One of our own code is a fault, also on a thread that tells nobody and where it is caught and becomes an error. One of
//! a library is a fault unless we caught it.

use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::{Mutex, Once, PoisonError};

/// Panics of our own code since the last look.
static OURS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Runs `work`; panics if our code did, wherever.
pub fn watch<T>(work: impl FnOnce() -> T) -> T {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(install);
    let outcome = work();
    let panics = std::mem::take(&mut *OURS.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(panics.is_empty(), "a panic was hidden: {}", panics.join("; "));
    outcome
}

fn install() {
    let tell = take_hook();
    set_hook(Box::new(move |panic| {
        if is_ours(panic) {
            OURS.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
        }
        tell(panic);
    }));
}

/// Libraries are compiled by absolute paths, members of the workspace by relative ones.
fn is_ours(panic: &PanicHookInfo<'_>) -> bool {
    panic.location().is_some_and(|place| place.file().starts_with("crates/"))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_that_was_caught_is_told() {
        let hidden = || {
            let thread = std::thread::spawn(|| panic!("on another thread"));
            assert!(thread.join().is_err());
        };
        assert!(catch_unwind(AssertUnwindSafe(|| watch(hidden))).is_err());
        assert_eq!(watch(|| 1), 1);
    }
}
