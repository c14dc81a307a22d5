//! NVRTC's library, opened by path, and the dozen functions of it that are used.
//!
//! See [`crate::library`] for why it is not opened through `cudarc`.

use std::env;
use std::ffi::{c_char, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::api::text_of;
use crate::error::{GpuError, Result};
use crate::library::{SharedLibrary, candidates_at};

/// Names the library file, or the folder it is in. When set, nothing else is tried.
pub(crate) const LIBRARY_VARIABLE: &str = "HEADRACE_NVRTC";

const SONAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so", "libnvrtc.so.12"];
const TOOLKIT_FOLDERS: [&str; 2] = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib"];

/// `nvrtcResult` values that are told apart here.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const COMPILATION_ERROR: c_int = 6;

/// An `nvrtcProgram` handle.
pub(crate) type RawProgram = *mut c_void;

type CreateProgram = unsafe extern "C" fn(
    *mut RawProgram,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type CompileProgram = unsafe extern "C" fn(RawProgram, c_int, *const *const c_char) -> c_int;
type GetSize = unsafe extern "C" fn(RawProgram, *mut usize) -> c_int;
type GetBytes = unsafe extern "C" fn(RawProgram, *mut c_char) -> c_int;

/// The open library. It is never closed: NVRTC keeps threads and caches of its own.
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    pub(crate) version: (u32, u32),
    pub(crate) create_program: CreateProgram,
    pub(crate) destroy_program: unsafe extern "C" fn(*mut RawProgram) -> c_int,
    pub(crate) compile_program: CompileProgram,
    pub(crate) log_size: GetSize,
    pub(crate) log: GetBytes,
    pub(crate) cubin_size: GetSize,
    pub(crate) cubin: GetBytes,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Library {
    /// Opens the library at `path` (a file, or a folder with it inside). Without a path:
    /// what [`LIBRARY_VARIABLE`] names; without that, the usual names through the
    /// system's search path and the toolkit's folders.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self> {
        let named = match path {
            Some(path) => Some(path.to_path_buf()),
            None => {
                env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
            }
        };
        let candidates = match &named {
            Some(path) => candidates_at(path, &SONAMES),
            None => usual_candidates(),
        };
        let mut failures = Vec::new();
        for candidate in &candidates {
            match Self::open_file(candidate) {
                Ok(library) => return Ok(library),
                Err(reason) => failures.push(reason),
            }
        }
        Err(not_present(named.as_deref(), &failures))
    }

    fn open_file(file: &Path) -> Result<Self, String> {
        preload_builtins(file);
        let handle = SharedLibrary::open(file.as_os_str())?;
        let version = read_version(&handle)?;
        // SAFETY: each symbol is a function of NVRTC's C interface, and the type it is
        // given is that function's type in nvrtc.h.
        unsafe {
            Ok(Self {
                path: handle.file(c"nvrtcVersion"),
                version,
                create_program: handle.function(c"nvrtcCreateProgram")?,
                destroy_program: handle.function(c"nvrtcDestroyProgram")?,
                compile_program: handle.function(c"nvrtcCompileProgram")?,
                log_size: handle.function(c"nvrtcGetProgramLogSize")?,
                log: handle.function(c"nvrtcGetProgramLog")?,
                cubin_size: handle.function(c"nvrtcGetCUBINSize")?,
                cubin: handle.function(c"nvrtcGetCUBIN")?,
                error_string: handle.function(c"nvrtcGetErrorString")?,
            })
        }
    }

    /// NVRTC's text for a result code.
    pub(crate) fn text(&self, code: c_int) -> String {
        // SAFETY: takes any code, returns a static NUL-terminated string.
        unsafe { text_of((self.error_string)(code)) }.unwrap_or_else(|| format!("code {code}"))
    }
}

fn not_present(named: Option<&Path>, failures: &[String]) -> GpuError {
    let place = match named {
        Some(path) => format!("`{}` holds no usable libnvrtc: ", path.display()),
        None => String::new(),
    };
    let failures =
        if failures.is_empty() { "no file of that name".to_string() } else { failures.join("; ") };
    GpuError::NvrtcNotPresent {
        reason: format!("{place}{failures}"),
        remedy: format!(
            "install the CUDA toolkit's NVRTC (the nvidia-cuda-nvrtc wheel is enough) and set \
             {LIBRARY_VARIABLE} to libnvrtc.so.13 or its folder"
        ),
    }
}

fn usual_candidates() -> Vec<PathBuf> {
    let by_search_path = SONAMES.iter().map(PathBuf::from);
    let by_folder = TOOLKIT_FOLDERS
        .iter()
        .flat_map(|folder| candidates_at(Path::new(folder), &SONAMES))
        .filter(|file| file.is_file());
    by_search_path.chain(by_folder).collect()
}

/// NVRTC opens `libnvrtc-builtins` by its bare name when it first compiles. A library
/// that is already open is found by that name wherever it lies, so the one beside
/// libnvrtc is opened first.
fn preload_builtins(file: &Path) {
    let Some(folder) = file.parent().filter(|folder| folder.is_absolute()) else {
        return;
    };
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.as_bytes().starts_with(b"libnvrtc-builtins.so")
            && let Err(reason) = SharedLibrary::open(entry.path().as_os_str())
        {
            tracing::debug!(reason, "NVRTC's built-ins were not opened ahead");
        }
    }
}

/// The major and minor version of the library, from the library.
fn read_version(handle: &SharedLibrary) -> Result<(u32, u32), String> {
    type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    // SAFETY: that is nvrtcVersion's type in nvrtc.h.
    let get_version: GetVersion = unsafe { handle.function(c"nvrtcVersion") }?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both out-pointers are live.
    let code = unsafe { get_version(&mut major, &mut minor) };
    match (code, u32::try_from(major), u32::try_from(minor)) {
        (SUCCESS, Ok(major), Ok(minor)) => Ok((major, minor)),
        _ => Err(format!("nvrtcVersion failed with code {code}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_path_that_holds_no_library_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = Library::open(Some(folder.path())).err().unwrap().to_string();
        assert!(error.contains(&*folder.path().to_string_lossy()), "{error}");
        assert!(error.contains(LIBRARY_VARIABLE), "{error}");

        let file = folder.path().join("libnvrtc.so.13");
        fs::write(&file, b"not a library").unwrap();
        let error = Library::open(Some(&file)).err().unwrap().to_string();
        assert!(error.contains("libnvrtc.so.13"), "{error}");
        assert!(Library::open(Some(folder.path())).is_err());
    }

    #[test]
    fn a_library_that_is_not_nvrtc_is_refused() {
        let error = Library::open(Some(Path::new("libc.so.6"))).err().unwrap();
        assert!(error.to_string().contains("nvrtcVersion"), "{error}");
    }
}
