//! Shared libraries that are opened at run time and never closed.
//!
//! Opened here and not through `cudarc`: the user chooses which file is loaded, and a missing file
//! or function must be an error, never a panic.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::driver::last_dl_error;

/// A library opened with `dlopen`. It stays open for the process's life: the libraries
/// concerned keep threads and caches of their own.
#[derive(Debug)]
pub(crate) struct SharedLibrary {
    handle: *mut c_void,
    name: String,
}

impl SharedLibrary {
    /// Opens `file`: a path, or a bare name that the system's search path is asked for.
    /// The error is the loader's text.
    pub(crate) fn open(file: &OsStr) -> Result<Self, String> {
        let name = file.to_string_lossy().into_owned();
        let file = CString::new(file.as_bytes()).map_err(|_| format!("{name}: NUL in the name"))?;
        // SAFETY: `file` is NUL-terminated. Opening runs the library's initialisers; those
        // of the libraries named by this crate or by its user may run in any process.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(last_dl_error());
        }
        Ok(Self { handle, name })
    }

    fn address(&self, symbol: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the handle is open and the name NUL-terminated.
        let address = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        if address.is_null() {
            return Err(format!("{}: {}", self.name, last_dl_error()));
        }
        Ok(address)
    }

    /// The function `symbol` as an `F`; the error names library and symbol.
    ///
    /// # Safety
    /// `F` must be the `extern "C"` function pointer type of that symbol.
    pub(crate) unsafe fn function<F: Copy>(&self, symbol: &CStr) -> Result<F, String> {
        const {
            assert!(size_of::<F>() == size_of::<*mut c_void>());
        }
        let address = self.address(symbol)?;
        // SAFETY: the sizes are equal, the address is not null, and F is the symbol's
        // function pointer type by this function's contract.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }

    /// The file that was really opened, if the system tells: the one that holds `symbol`.
    pub(crate) fn file(&self, symbol: &CStr) -> PathBuf {
        self.address(symbol).ok().and_then(file_of).unwrap_or_else(|| PathBuf::from(&self.name))
    }
}

fn file_of(address: *mut c_void) -> Option<PathBuf> {
    // SAFETY: Dl_info is plain data for which all-zero is a valid value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is inside an open library, the out-pointer is live.
    let found = unsafe { libc::dladdr(address, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr leaves a NUL-terminated name that lives as long as the library,
    // which is never closed.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The library files that `path` may mean: itself, or, for a folder, those of `sonames` in it.
pub(crate) fn candidates_at(path: &Path, sonames: &[&str]) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_path_buf()];
    }
    sonames.iter().map(|name| path.join(name)).filter(|file| file.exists()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_missing_file_and_a_missing_function_are_errors_that_name_them() {
        let error = SharedLibrary::open(OsStr::new("/absent/libnothing.so")).unwrap_err();
        assert!(error.contains("libnothing.so"), "{error}");
        let library = SharedLibrary::open(OsStr::new("libc.so.6")).unwrap();
        // SAFETY: the symbol does not exist, so nothing is ever called through the type.
        let missing = unsafe { library.function::<unsafe extern "C" fn()>(c"no_such_function") };
        let error = missing.unwrap_err();
        assert!(error.contains("libc.so.6") && error.contains("no_such_function"), "{error}");
        assert!(library.file(c"getpid").is_absolute());
    }
}
