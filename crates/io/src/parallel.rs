//! Many small tasks at once, since each read of a cold file costs a latency.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::scope::scope;

/// Applies `f` to every index below `count` and returns the results in index order, or the error of the
/// lowest failing index. Each of up to `threads_max` threads gets at least `items_per_thread_min` items.
///
/// # Errors
/// Those of `f`.
pub fn try_map<T: Send, E: Send>(
    count: usize,
    (items_per_thread_min, threads_max): (usize, usize),
    f: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let threads = (count / items_per_thread_min.max(1)).clamp(1, threads_max.max(1));
    if threads == 1 {
        return (0..count).map(f).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return done;
            }
            let result = f(i);
            let failed = result.is_err();
            done.push((i, result));
            if failed {
                // Lower indices are taken already; higher ones need not be.
                next.store(count, Ordering::Relaxed);
            }
        }
    };
    let mut done: Vec<_> =
        on_threads(threads, work).into_iter().flat_map(unless_panicked).collect();
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Does something with every item, which may be a part of memory that is written, on up to `threads_max` threads. After
/// an error no other item is begun.
///
/// # Errors
/// One of those of `f`.
pub fn try_for_each<I: Send, E: Send>(
    mut items: impl ExactSizeIterator<Item = I> + Send,
    threads_max: usize,
    f: impl Fn(I) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let threads = items.len().clamp(1, threads_max.max(1));
    if threads == 1 {
        return items.try_for_each(f);
    }
    let (items, has_failed) = (Mutex::new(items), AtomicBool::new(false));
    let next = || if has_failed.load(Ordering::Relaxed) { None } else { items.lock().next() };
    let work = || {
        while let Some(item) = next() {
            f(item).inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    on_threads(threads, work).into_iter().try_for_each(unless_panicked)
}

/// As [`try_for_each`], for what cannot fail.
pub fn for_each<I: Send>(
    items: impl ExactSizeIterator<Item = I> + Send,
    threads_max: usize,
    f: impl Fn(I) + Sync,
) {
    let Ok(()) = try_for_each(items, threads_max, |item| {
        f(item);
        Ok::<_, Infallible>(())
    });
}

/// The start of a slice in parts of these lengths, which several threads may write.
///
/// # Panics
/// If the slice is shorter.
pub fn parts_mut<T>(mut slice: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    let part = |length| {
        let (part, rest) = std::mem::take(&mut slice).split_at_mut(length);
        slice = rest;
        part
    };
    lengths.map(part).collect()
}

/// What a thread returned; its panic goes on here.
fn unless_panicked<T>(done: std::thread::Result<T>) -> T {
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `work` on this thread and, concurrently, on up to `threads` - 1 others; returns the result
/// of this thread, then those of the others, or their panic. Threads that cannot be started are
/// omitted.
pub fn on_threads<T: Send>(
    threads: usize,
    work: impl Fn() -> T + Sync,
) -> Vec<std::thread::Result<T>> {
    scope(|scope| {
        let helpers: Vec<_> = (1..threads).filter_map(|_| scope.spawn(&work).ok()).collect();
        let own = Ok(work());
        std::iter::once(own).chain(helpers.into_iter().map(|helper| helper.join())).collect()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn results_keep_their_order() {
        for count in [0, 1, 7, 1000] {
            let squares = try_map(count, (4, 8), |i| Ok::<_, ()>(i * i)).unwrap();
            assert_eq!(squares, (0..count).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_item_is_done_once_until_one_fails() {
        for threads in [1, 3] {
            let mut values = vec![0; 1000];
            let chunks = values.chunks_mut(7).enumerate();
            try_for_each(chunks, threads, |(number, chunk)| {
                chunk.fill(number);
                Ok::<_, ()>(())
            })
            .unwrap();
            assert!(values.iter().enumerate().all(|(at, value)| at / 7 == *value));
            let failed = |item| if item == 500 { Err(item) } else { Ok(()) };
            assert_eq!(try_for_each(0..1000, threads, failed), Err(500));
        }
    }

    #[test]
    fn parts_follow_each_other() {
        let mut values = [0; 10];
        let parts = parts_mut(&mut values, [3, 0, 5].into_iter());
        for_each(parts.into_iter().enumerate(), 2, |(number, part)| part.fill(number + 1));
        assert_eq!(values, [1, 1, 1, 3, 3, 3, 3, 3, 0, 0]);
    }

    #[test]
    fn the_first_error_is_returned() {
        for _ in 0..50 {
            let outcome = try_map(1000, (1, 8), |i| if i % 300 == 299 { Err(i) } else { Ok(i) });
            assert_eq!(outcome, Err(299));
        }
    }
}
