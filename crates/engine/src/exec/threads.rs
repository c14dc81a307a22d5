//! Threads on which pipelines and sorts run: an async worker never waits for a race.
//!
//! A thread that is done waits a while for the next work, because starting one takes longer than a small query over a warm
//! table. As many are there as have worked at the same time.
//!
//! It must never know what the work is.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use parking_lot::Mutex;

/// Of a thread: expressions have many levels. Pages that it does not reach take no memory.
const STACK_BYTES: usize = 16 << 20;

/// How long a thread waits for work before it ends.
const WAIT: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// The threads that wait, each with its number; the one that began to wait last is the last.
static WAITING: Mutex<Vec<(u64, Sender<Work>)>> = Mutex::new(Vec::new());

/// Has a thread do `work`.
///
/// # Errors
/// No thread can be had.
pub fn on_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut work: Work = Box::new(work);
    // The lock is not held while the work is handed over: it wakes the thread.
    loop {
        let waiting = WAITING.lock().pop();
        let Some((_, thread)) = waiting else { break };
        match thread.send(work) {
            Ok(()) => return Ok(()),
            Err(returned) => work = returned.0,
        }
    }
    let thread = Builder::new().name("headrace-work".into()).stack_size(STACK_BYTES);
    thread.spawn(|| serve(work)).map(drop)
}

/// Works until nothing comes. Work that panics ends the thread with itself.
fn serve(first: Work) {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    headrace_io::block_signals();
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let (sender, receiver) = channel();
    let mut work = Some(first);
    while let Some(now) = work.take() {
        now();
        WAITING.lock().push((number, sender.clone()));
        work = next(number, &receiver);
    }
}

/// The next work, if any comes in time.
fn next(number: u64, receiver: &Receiver<Work>) -> Option<Work> {
    if let Ok(work) = receiver.recv_timeout(WAIT) {
        return Some(work);
    }
    let mut waiting = WAITING.lock();
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

    fn thread_of_next() -> ThreadId {
        let (tell, told) = channel();
        on_thread(move || tell.send(current().id()).unwrap()).unwrap();
        told.recv().unwrap()
    }

    #[test]
    fn work_finds_a_thread_that_waits_or_a_new_one() {
        let (go, wait) = channel::<()>();
        let (tell, told) = channel();
        on_thread(move || {
            tell.send(current().id()).unwrap();
            wait.recv().unwrap();
        })
        .unwrap();
        let busy = told.recv().unwrap();
        // While one is busy, no work waits for it.
        assert_ne!(thread_of_next(), busy);
        go.send(()).unwrap();
        // Other tests may take it, but not each time.
        let found = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            thread_of_next() == busy
        });
        assert!(found, "a thread that was done was never asked again");
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
        thread_of_next();
    }
}
