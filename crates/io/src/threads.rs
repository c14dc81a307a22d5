//! Threads that wait for work, because starting one takes longer than a small query over a warm table.
//!
//! ```text
//! on_thread(work) ──► a thread that waits, else a new one ──► work ──► waits a while for more, then ends
//! ```
//!
//! Work never waits for a thread: where none waits, one is started. So what waits for each other may run here. The threads
//! block signals. They must never know what the work is.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use parking_lot::Mutex;

use crate::signals::block_signals;

/// How long a thread waits for work before it ends.
const WAIT: Duration = Duration::from_secs(10);

/// How much of a stack work needs. What is not reached takes no memory, but may count as if it did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stack {
    /// As threads have it.
    Usual,
    /// Of statements and stages: expressions have many levels, and stages run within one another.
    Deep,
}

const DEEP_STACK_BYTES: usize = 16 << 20;

/// What a thread is given.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Threads that wait, each with its number; the one that began to wait last is the last.
type Waiting = Mutex<Vec<(u64, Sender<Work>)>>;

impl Stack {
    /// The threads with such a stack.
    fn waiting(self) -> &'static Waiting {
        static WAITING: [Waiting; 2] = [Mutex::new(Vec::new()), Mutex::new(Vec::new())];
        &WAITING[self as usize]
    }
}

/// Has a thread with a deep stack do `work`.
///
/// # Errors
/// No thread can be had; the work is dropped.
pub fn on_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    hand_over(Box::new(work), Stack::Deep)
}

/// Has a thread with such a stack do `work`, which is dropped where none can be had.
pub(crate) fn hand_over(mut work: Work, stack: Stack) -> io::Result<()> {
    // The lock is not held while the work is handed over: it wakes the thread.
    loop {
        let waiting = stack.waiting().lock().pop();
        let Some((_, thread)) = waiting else { break };
        match thread.send(work) {
            Ok(()) => return Ok(()),
            Err(returned) => work = returned.0,
        }
    }
    let thread = Builder::new().name("headrace-work".into());
    let thread = match stack {
        Stack::Usual => thread,
        Stack::Deep => thread.stack_size(DEEP_STACK_BYTES),
    };
    thread.spawn(move || serve(work, stack.waiting())).map(drop)
}

/// Works until nothing comes. Work that panics ends the thread with itself.
fn serve(first: Work, waiting: &Waiting) {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    block_signals();
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let (sender, receiver) = channel();
    let mut work = Some(first);
    while let Some(now) = work.take() {
        now();
        waiting.lock().push((number, sender.clone()));
        work = next(waiting, number, &receiver, WAIT);
    }
}

/// The next work, if any comes in time.
fn next(waiting: &Waiting, number: u64, receiver: &Receiver<Work>, wait: Duration) -> Option<Work> {
    if let Ok(work) = receiver.recv_timeout(wait) {
        return Some(work);
    }
    let mut waiting = waiting.lock();
    if let Some(own) = waiting.iter().position(|(waits, _)| *waits == number) {
        waiting.remove(own);
        return None;
    }
    drop(waiting);
    // Somebody has just taken it out, and is about to send.
    receiver.recv().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::thread::{ThreadId, current};

    use super::*;

    /// A thread that is busy until the sender goes.
    fn busy_thread() -> (ThreadId, Sender<()>) {
        let (done, wait) = channel::<()>();
        let (tell, told) = channel();
        on_thread(move || {
            tell.send(current().id()).unwrap();
            let _ = wait.recv();
        })
        .unwrap();
        (told.recv().unwrap(), done)
    }

    #[test]
    fn work_finds_a_thread_that_waits_or_a_new_one() {
        let (busy, done) = busy_thread();
        // While one is busy, no work waits for it.
        assert_ne!(busy_thread().0, busy);
        drop(done);
        // Others may wait above it, and other tests may take it: those that were found stay busy.
        let mut others = Vec::new();
        let found = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            let (thread, done) = busy_thread();
            others.push(done);
            thread == busy
        });
        assert!(found, "a thread that was done was never asked again");
    }

    #[test]
    fn work_that_comes_as_a_thread_ends_is_not_lost() {
        let (sender, receiver) = channel::<Work>();
        let waiting = Waiting::new(vec![(7, sender.clone())]);
        assert!(next(&waiting, 7, &receiver, Duration::ZERO).is_none());
        assert!(waiting.lock().is_empty());
        // Nobody can find it any more, or somebody has just done so, and sends.
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            sender.send(Box::new(|| ())).unwrap();
        });
        assert!(next(&waiting, 7, &receiver, Duration::ZERO).is_some());
        late.join().unwrap();
    }

    #[test]
    fn who_waits_for_work_that_panics_is_told() {
        let (tell, told) = channel::<()>();
        on_thread(move || {
            let _tell = tell;
            panic!("as a test wants it");
        })
        .unwrap();
        assert!(told.recv().is_err());
        drop(busy_thread());
    }
}
