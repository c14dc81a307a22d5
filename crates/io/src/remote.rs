//! Remote files, whose bytes are fetched by ranges.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The bytes of one version of a remote file. Another version is an error at once, so there is no later
/// check for changes.
pub trait RemoteBytes: Send + Sync + Debug {
    /// Fills `into` from `offset` on; the range lies inside the file. It may wait for its timeouts, and ends
    /// early when [`is_abandoned`] is true.
    ///
    /// # Errors
    /// The cause, best as an [`IoError`](crate::IoError) inside.
    fn fill(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// All bytes from `offset` on, as a stream.
    ///
    /// # Errors
    /// As for [`fill`](Self::fill), here or from the stream.
    fn stream(&self, offset: u64) -> io::Result<Box<dyn Read + Send>>;
}

thread_local! {
    static ABANDONED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Whether the consumer of this thread's reads has given up. Reads that can take seconds check it while
/// they wait.
pub fn is_abandoned() -> bool {
    ABANDONED.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Acquire)))
}

/// From now on this thread reads for consumers who set the flag when they give up.
pub(crate) fn reads_until(flag: &Arc<AtomicBool>) {
    ABANDONED.set(Some(Arc::clone(flag)));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{
        AlignedBuffer, Engine, FileIdentity, PreadPool, ReadMode, ReadRequest, SourceFile, Window,
    };

    /// A server that never responds.
    #[derive(Debug)]
    struct Silent;

    impl RemoteBytes for Silent {
        fn fill(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            let begun = Instant::now();
            while !is_abandoned() && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(io::ErrorKind::TimedOut.into())
        }

        fn stream(&self, _: u64) -> io::Result<Box<dyn Read + Send>> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn nobody_waits_for_a_silent_server_after_giving_up() {
        let identity =
            FileIdentity { device: 1, inode: 2, size_bytes: 100, mtime_ns: 0, ctime_ns: 0 };
        let file = SourceFile::remote("https://host/x", identity, Arc::new(Silent));
        let (sender, completions) = crossbeam_channel::unbounded();
        let sink = Arc::new(move |completion| drop(sender.send(completion)));
        let mut memory = AlignedBuffer::allocate(4096).unwrap();
        let window = Window::new(memory.as_mut_slice().as_mut_ptr(), 4096);
        let pool = PreadPool::start(1, 4096, sink).unwrap();
        let mode = ReadMode::Buffered;
        let request = ReadRequest { file, mode, offset: 0, bytes: 100, window, tag: 7 };
        let begun = Instant::now();
        // SAFETY: the memory outlives the pool, which is dropped before it, and is initialised.
        unsafe { pool.submit(request) };
        std::thread::sleep(Duration::from_millis(20));
        pool.cancel_queued();
        let completion = completions.recv().unwrap();
        assert!(completion.tag == 7 && completion.result.is_err());
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        drop(pool);
        assert!(!is_abandoned(), "that was another thread");
    }
}
