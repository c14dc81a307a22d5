//! Small reads that lie close together become one request.
//!
//! Threads that want a few bytes each of one file queue up while requests are under way. Whoever finds room for
//! another takes with it what lies beside its own: the more wait, the more go together, and nobody waits for company.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::refusal::Refusal;

/// Requests for small reads that a file has under way.
const UNDER_WAY_MAX: usize = 4;

/// Bytes between two reads that are rather fetched than asked around.
pub const GAP_BYTES: u64 = 64 << 10;

/// Bytes of a request for several reads.
pub const TOGETHER_BYTES_MAX: u64 = 1 << 20;

/// How often those who wait look around.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A queue of small reads.
#[derive(Debug, Default)]
pub struct Gather {
    queue: Mutex<Queue>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Arc<Wanted>>,
    under_way: usize,
}

#[derive(Debug)]
struct Wanted {
    range: Range<u64>,
    answer: Mutex<Option<Result<Bytes, Refusal>>>,
}

impl Gather {
    /// The bytes of a range, which `fetch` brings, maybe for others too.
    ///
    /// # Errors
    /// Those of `fetch`; `None` if nobody wants them any more.
    pub fn read(
        &self,
        range: Range<u64>,
        fetch: impl Fn(Range<u64>) -> Result<Bytes, Refusal>,
        is_abandoned: impl Fn() -> bool,
    ) -> Option<Result<Bytes, Refusal>> {
        let own = Arc::new(Wanted { range, answer: Mutex::new(None) });
        let mut queue = self.queue.lock();
        queue.waiting.push(Arc::clone(&own));
        loop {
            if let Some(answer) = own.answer.lock().take() {
                return Some(answer);
            }
            let is_waiting = queue.waiting.iter().any(|wanted| Arc::ptr_eq(wanted, &own));
            if is_waiting && is_abandoned() {
                queue.waiting.retain(|wanted| !Arc::ptr_eq(wanted, &own));
                return None;
            }
            if is_waiting && queue.under_way < UNDER_WAY_MAX {
                break;
            }
            self.news.wait_for(&mut queue, LOOK_INTERVAL);
        }
        let together = queue.take_with(&own);
        queue.under_way += 1;
        drop(queue);
        let start = together.iter().map(|wanted| wanted.range.start).min().unwrap_or_default();
        let end = together.iter().map(|wanted| wanted.range.end).max().unwrap_or_default();
        let fetched = fetch(start..end);
        for wanted in &together {
            let inside = |at: u64| (at - start) as usize;
            let part =
                |bytes: &Bytes| bytes.slice(inside(wanted.range.start)..inside(wanted.range.end));
            *wanted.answer.lock() = Some(fetched.as_ref().map(part).map_err(Refusal::clone));
        }
        self.queue.lock().under_way -= 1;
        self.news.notify_all();
        own.answer.lock().take()
    }
}

impl Queue {
    /// A read, and those of the others that lie beside it, or beside these.
    fn take_with(&mut self, own: &Arc<Wanted>) -> Vec<Arc<Wanted>> {
        self.waiting.sort_by_key(|wanted| wanted.range.start);
        let Some(at) = self.waiting.iter().position(|wanted| Arc::ptr_eq(wanted, own)) else {
            return Vec::new();
        };
        let (mut first, mut last, mut span) = (at, at, own.range.clone());
        let joined = |span: &Range<u64>, other: &Range<u64>| {
            let both = span.start.min(other.start)..span.end.max(other.end);
            let is_close = other.start <= span.end.saturating_add(GAP_BYTES)
                && span.start <= other.end.saturating_add(GAP_BYTES);
            (is_close && both.end - both.start <= TOGETHER_BYTES_MAX).then_some(both)
        };
        while let Some(wider) = self.waiting.get(last + 1).and_then(|w| joined(&span, &w.range)) {
            (last, span) = (last + 1, wider);
        }
        while first > 0
            && let Some(wider) = joined(&span, &self.waiting[first - 1].range)
        {
            (first, span) = (first - 1, wider);
        }
        self.waiting.drain(first..=last).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn bytes_of(range: Range<u64>) -> Bytes {
        range.map(|at| at as u8).collect()
    }

    #[test]
    fn what_waits_beside_another_goes_with_it() {
        let gather = Gather::default();
        let requests = AtomicUsize::new(0);
        let fetch = |range: Range<u64>| {
            requests.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(30));
            Ok(bytes_of(range))
        };
        std::thread::scope(|scope| {
            for reader in 0..64u64 {
                let (gather, fetch) = (&gather, &fetch);
                scope.spawn(move || {
                    let range = reader * 1000..reader * 1000 + 100;
                    let read = gather.read(range.clone(), fetch, || false).unwrap().unwrap();
                    assert_eq!(read, bytes_of(range));
                });
            }
        });
        let requests = requests.into_inner();
        assert!((1..32).contains(&requests), "{requests} requests for 64 reads");
    }

    #[test]
    fn far_reads_and_large_ones_stay_alone() {
        let wanted = |range: Range<u64>| Arc::new(Wanted { range, answer: Mutex::new(None) });
        let own = wanted(1_000_000..1_000_010);
        let mut queue = Queue::default();
        let others = [
            0..10,
            1_000_000 - GAP_BYTES - 5..1_000_000 - GAP_BYTES,
            1_000_010 + GAP_BYTES..1_000_020 + GAP_BYTES,
            1_000_020 + GAP_BYTES..1_000_020 + GAP_BYTES + TOGETHER_BYTES_MAX,
        ];
        queue.waiting = others.into_iter().map(wanted).collect();
        queue.waiting.push(Arc::clone(&own));
        let together = queue.take_with(&own);
        assert_eq!(together.len(), 3);
        assert_eq!(queue.waiting.len(), 2);
    }

    #[test]
    fn one_error_is_everybodys_and_nobody_waits_for_ever() {
        let gather = Gather::default();
        let answer = gather.read(0..4, |_| Err(Refusal::cut_short(4, 2)), || false);
        assert_eq!(answer, Some(Err(Refusal::cut_short(4, 2))));
        gather.queue.lock().under_way = UNDER_WAY_MAX;
        assert_eq!(gather.read(0..4, |range| Ok(bytes_of(range)), || true), None);
        assert!(gather.queue.lock().waiting.is_empty());
    }
}
