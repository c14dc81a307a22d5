//! Small reads, many at a time: what they wait for is the device.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Result;

/// Items that a thread takes at a time.
const TAKEN: usize = 16;

/// The results for 0 to `count`, made by up to `threads` threads; the error of the smallest that has one.
pub(super) fn try_map<T: Send>(
    threads: usize,
    count: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = threads.min(count.div_ceil(TAKEN)).max(1);
    let next = AtomicUsize::new(0);
    let work = || -> Vec<(usize, Result<Vec<T>>)> {
        let mut made = Vec::new();
        loop {
            let start = next.fetch_add(TAKEN, Ordering::Relaxed);
            if start >= count {
                return made;
            }
            let items = (start..(start + TAKEN).min(count)).map(&make).collect::<Result<_>>();
            let failed = items.is_err();
            made.push((start, items));
            if failed {
                // What comes behind it does not matter; what is before it was taken already.
                next.store(count, Ordering::Relaxed);
            }
        }
    };
    let mut parts = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut parts = work();
        for other in others {
            match other.join() {
                Ok(more) => parts.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        parts
    });
    parts.sort_by_key(|(start, _)| *start);
    let mut all = Vec::with_capacity(count);
    for (_, items) in parts {
        all.extend(items?);
    }
    Ok(all)
}
