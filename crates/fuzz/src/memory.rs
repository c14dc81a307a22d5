//! No memory for whoever asks for too much at once: inputs are small, so a large request is a number that was believed.
//!
//! Whoever can do without (`try_reserve`) goes on, as on a machine that has no more; else the process ends and says so.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;

/// Far above what any input can want, far below what hurts.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// The system's, with a limit of what is given at once.
struct Limited;

#[global_allocator]
static LIMITED: Limited = Limited;

// SAFETY: all memory is the system allocator's, which gets the same layouts back; a null pointer says that there was none.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > REQUEST_BYTES_MAX {
            return null_mut();
        }
        // SAFETY: what the caller promises of the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > REQUEST_BYTES_MAX {
            return null_mut();
        }
        // SAFETY: what the caller promises of the layout.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, from: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if bytes > REQUEST_BYTES_MAX {
            return null_mut();
        }
        // SAFETY: the pointer came from the system allocator with this layout, as the caller promises.
        unsafe { System.realloc(from, layout, bytes) }
    }

    unsafe fn dealloc(&self, from: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from the system allocator with this layout, as the caller promises.
        unsafe { System.dealloc(from, layout) }
    }
}
