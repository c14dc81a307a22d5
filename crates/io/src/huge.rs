//! Vectors in huge pages, where the system offers them.
//!
//! Filling a large vector once costs more for its faults on 4 KiB pages than for its values.
//!
//! Extents of the host cache, builds and the rows that become builds lie in huge pages too
//! ([`Regions`](crate::Regions)): a read past the page cache looks up every page of its buffer.

use crate::memory::HUGE_PAGE_BYTES;
use crate::parallel::for_each;

/// Values that one thread fills at a time.
const FILLED_AT_ONCE: usize = 1 << 20;

/// An empty vector with room for this many values.
pub fn reserved<T>(values: usize) -> Vec<T> {
    let mut vector: Vec<T> = Vec::with_capacity(values);
    advise(&mut vector);
    vector
}

/// Zeros, which are numbers' default, so many. The system finds pages for them when they are first written: by several
/// threads at a time, if those write.
pub fn zeroed<T: Default + Clone>(values: usize) -> Vec<T> {
    let mut vector = vec![T::default(); values];
    advise(&mut vector);
    vector
}

/// Asks for huge pages for what a vector has room for. Whole ones alone: no more memory is taken than the vector has.
fn advise<T>(vector: &mut Vec<T>) {
    let bytes = vector.capacity() * size_of::<T>();
    let start: *mut u8 = vector.as_mut_ptr().cast();
    let first = start.align_offset(HUGE_PAGE_BYTES);
    let whole = bytes.saturating_sub(first) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if whole > 0 {
        // SAFETY: advice about memory of the vector's own, which changes no contents; failure is harmless.
        unsafe { libc::madvise(start.add(first).cast(), whole, libc::MADV_HUGEPAGE) };
    }
}

/// Reserves room for more values in a vector that grows.
pub fn reserve<T: Copy>(vector: &mut Vec<T>, more: usize) {
    let needed = vector.len() + more;
    let capacity = needed.max(2 * vector.capacity());
    // A smaller one grows where it lies, or is copied soon enough.
    if needed <= vector.capacity() || capacity * size_of::<T>() < 2 * HUGE_PAGE_BYTES {
        return;
    }
    let mut larger = reserved(capacity);
    larger.extend_from_slice(vector);
    *vector = larger;
}

/// Reserves room for more bytes of a text that grows.
pub fn reserve_text(text: &mut String, more: usize) {
    // SAFETY: the bytes stay what they are.
    reserve(unsafe { text.as_mut_vec() }, more);
}

/// This many equal values, written by up to `threads` threads.
pub fn filled<T: Copy + Default + PartialEq + Send + Sync>(
    value: T,
    values: usize,
    threads: usize,
) -> Vec<T> {
    let mut vector = zeroed(values);
    if value != T::default() {
        for_each(vector.chunks_mut(FILLED_AT_ONCE), threads, |chunk| chunk.fill(value));
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_vectors() {
        for values in [0, 1, 1000, 3 * HUGE_PAGE_BYTES + 5] {
            assert_eq!(zeroed::<u32>(values), vec![0; values]);
            let mut vector = filled(7_u16, values, 2);
            assert!(vector.len() == values && vector.iter().all(|value| *value == 7));
            vector.push(8);
            assert_eq!(vector.last(), Some(&8));
        }
        assert_eq!(filled(7u16, 3 * FILLED_AT_ONCE + 1, 2), vec![7; 3 * FILLED_AT_ONCE + 1]);
        assert!(reserved::<()>(10).is_empty());
        let (mut growing, more) = (Vec::new(), [1, 2, 3]);
        for _ in 0..HUGE_PAGE_BYTES {
            reserve(&mut growing, more.len());
            growing.extend_from_slice(&more);
        }
        assert!(growing.chunks(3).all(|chunk| chunk == more));
        assert_eq!(growing.len(), 3 * HUGE_PAGE_BYTES);
    }
}
