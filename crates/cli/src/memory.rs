//! The memory use of this process, and how it is kept low.
//!
//! glibc keeps freed pieces of up to the largest that was ever freed, in a heap for each of up to eight threads a
//! core. Under a limit the command bounds both: a sort of texts took up to 70 MB less.

/// Larger pieces return to the system when they are freed.
#[cfg(target_env = "gnu")]
const OWN_MAPPING_BYTES: libc::c_int = 128 << 10;

/// Makes the C library return freed memory to the system: under a memory limit, unused memory counts like used memory.
/// By default the library raises its threshold for returning pieces to the largest it has seen, and keeps them in heaps
/// for each of up to eight threads per core.
#[cfg(target_env = "gnu")]
pub fn give_back_what_is_free() {
    let cores = headrace_io::system::cores();
    let heaps = libc::c_int::try_from(cores).unwrap_or(libc::c_int::MAX);
    let options = [
        (libc::M_MMAP_THRESHOLD, OWN_MAPPING_BYTES),
        (libc::M_TRIM_THRESHOLD, OWN_MAPPING_BYTES),
        (libc::M_ARENA_MAX, heaps),
    ];
    for (option, value) in options {
        // SAFETY: it takes two numbers and may be called at any time, from any thread; an option that it does not know is
        // left as it is.
        unsafe { libc::mallopt(option, value) };
    }
}

/// Other C libraries do so by default.
#[cfg(not(target_env = "gnu"))]
pub fn give_back_what_is_free() {}
