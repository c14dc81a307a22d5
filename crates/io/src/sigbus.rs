//! A mapped file that shrinks must not kill the process.
//!
//! Touching a mapped page without storage behind it raises SIGBUS. One process-wide handler,
//! installed with the first mapping, looks up the faulting address in a fixed table of live
//! mappings. If the address is in one, the handler marks the mapping as poisoned and replaces the
//! rest of it, from the faulting page on, with zero pages, so that the access continues; the user
//! of the mapping checks the mark afterwards. Other faults go to the previous handler.
//!
//! The handler only accesses atomics of the table and makes one `mmap` call: it takes no lock and
//! allocates nothing.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of live mappings; a static table, so that the handler needs no lock.
const MAPPINGS_MAX: usize = 16_384;

const FREE: usize = 0;
/// Reserved, with its bounds not written yet. Neither value is the address of a mapping.
const RESERVED: usize = 1;
const NOT_POISONED: usize = usize::MAX;

struct Entry {
    /// `FREE`, `RESERVED` or the address of the mapping.
    start: AtomicUsize,
    bytes: AtomicUsize,
    /// Offset in the mapping of the first page that failed, or `NOT_POISONED`.
    poisoned_at: AtomicUsize,
}

static TABLE: [Entry; MAPPINGS_MAX] = [const {
    Entry {
        start: AtomicUsize::new(FREE),
        bytes: AtomicUsize::new(0),
        poisoned_at: AtomicUsize::new(NOT_POISONED),
    }
}; MAPPINGS_MAX];

/// Where the next search for a free entry starts.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Size of a page, stored for the handler.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

/// The previous action; written once, before ours is installed.
struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);
// SAFETY: written once under the lock of `INSTALLED` before the handler can run, then only read.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::zeroed()));
static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();

/// A mapping's entry in the table; removed when dropped, which must happen before the mapping is
/// unmapped.
#[derive(Debug)]
pub(crate) struct Guarded {
    index: usize,
}

impl Guarded {
    /// Enters a mapping of `bytes` bytes (more than 0) at `start` into the table.
    ///
    /// # Errors
    /// If the handler cannot be installed or the table is full.
    ///
    /// # Safety
    /// The range must be a mapping that belongs to the caller until the guard is dropped: the
    /// handler may replace its pages.
    pub unsafe fn enter(start: *mut u8, bytes: usize) -> io::Result<Guarded> {
        install()?;
        let first = NEXT.fetch_add(1, Ordering::Relaxed);
        for step in 0..MAPPINGS_MAX {
            let index = first.wrapping_add(step) % MAPPINGS_MAX;
            let entry = &TABLE[index];
            let taken =
                entry.start.compare_exchange(FREE, RESERVED, Ordering::SeqCst, Ordering::Relaxed);
            if taken.is_ok() {
                entry.bytes.store(bytes, Ordering::SeqCst);
                entry.poisoned_at.store(NOT_POISONED, Ordering::SeqCst);
                entry.start.store(start.addr(), Ordering::SeqCst);
                return Ok(Guarded { index });
            }
        }
        Err(io::Error::other(format!(
            "{MAPPINGS_MAX} files are mapped already; read the file instead of mapping it"
        )))
    }

    /// Offset in the mapping of the first page that could not be delivered.
    pub fn poisoned_at(&self) -> Option<usize> {
        let at = TABLE[self.index].poisoned_at.load(Ordering::SeqCst);
        (at != NOT_POISONED).then_some(at)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        TABLE[self.index].start.store(FREE, Ordering::SeqCst);
    }
}

fn install() -> io::Result<()> {
    INSTALLED
        .get_or_init(|| {
            PAGE_BYTES.store(crate::residency::page_bytes() as usize, Ordering::SeqCst);
            // SAFETY: `previous` is written before the handler that reads it exists, and only
            // here; `sigaction` is plain data; the handler has the signature SA_SIGINFO asks for.
            unsafe {
                let previous = (*PREVIOUS.0.get()).as_mut_ptr();
                if libc::sigaction(libc::SIGBUS, std::ptr::null(), previous) != 0 {
                    return Err(last_errno());
                }
                let mut ours: libc::sigaction = std::mem::zeroed();
                ours.sa_sigaction = handle as *const () as usize;
                ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&mut ours.sa_mask);
                if libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut()) != 0 {
                    return Err(last_errno());
                }
            }
            Ok(())
        })
        .map_err(io::Error::from_raw_os_error)
}

fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the address of the thread's errno is valid for the thread's life.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above. Saved because the interrupted code may be about to look at it.
    let saved = unsafe { *errno };
    // SAFETY: with SA_SIGINFO the kernel passes a valid structure; for a SIGBUS that the kernel
    // raised itself (a positive code) it holds the address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if code <= 0 || !replace_pages_at(address) {
        // SAFETY: we are in the handler, with the arguments that the kernel gave us.
        unsafe { pass_on(signal, info, context, code) };
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

/// If the address lies in one of our mappings: poisons it and puts zero pages from the address's
/// page to the mapping's end. To the end, because a truncated file would otherwise fault page by
/// page and split the mapping each time.
fn replace_pages_at(address: usize) -> bool {
    for entry in &TABLE {
        let start = entry.start.load(Ordering::SeqCst);
        let bytes = entry.bytes.load(Ordering::SeqCst);
        // The second look discards an entry that was given to another mapping in between.
        if start <= RESERVED
            || address < start
            || address - start >= bytes
            || entry.start.load(Ordering::SeqCst) != start
        {
            continue;
        }
        let page = PAGE_BYTES.load(Ordering::Relaxed);
        let at = (address - start) / page * page;
        // First the mark, then the pages: whoever reads a replaced page finds the mark.
        let _ = entry.poisoned_at.compare_exchange(
            NOT_POISONED,
            at,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        // SAFETY: the range lies in a mapping that belongs to a `Guarded`, whose owner allowed
        // its pages to be replaced; it is alive, for somebody is reading from it.
        let replaced = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(start + at),
                bytes - at,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        return replaced != libc::MAP_FAILED;
    }
    false
}

/// # Safety
/// Only from the handler, with its arguments.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void, code: i32) {
    // SAFETY: written before the handler was installed and never again.
    let previous = unsafe { (*PREVIOUS.0.get()).assume_init_ref() };
    match previous.sa_sigaction {
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // The default action: a fault is repeated when we return, a sent signal is not.
            // SAFETY: plain data and plain calls, both allowed in a handler.
            unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
                if code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO the stored address is a function of this signature.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO the stored address is a function of this signature.
            let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
