//! The functions of libcufile that this crate calls, looked up once, and where the library
//! is looked for.
//!
//! As in [`crate::api`] they are looked up here and return plain numbers. The compiler checks that
//! the argument types are those of `cudarc`'s bindings.

use std::env;
use std::ffi::{CString, OsString, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};

use cudarc::cufile::sys;

use super::error::Status;
use crate::library::{SharedLibrary, candidates_at};

/// Names the library file, or its folder. When set, nothing else is tried.
pub(crate) const LIBRARY_VARIABLE: &str = "HEADRACE_CUFILE";

const SONAMES: [&str; 2] = ["libcufile.so.0", "libcufile.so"];

/// Where a CUDA toolkit keeps its libraries, below its root.
const TOOLKIT_FOLDERS: [&str; 4] =
    ["targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "targets/aarch64-linux/lib", "lib64"];

/// Where the Python wheels of CUDA 13 and 12 keep the library, below `site-packages`.
const WHEEL_FOLDERS: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cufile/lib"];

/// Declares the table of functions and how it is filled: first the required functions, then those
/// that older versions lack.
macro_rules! cufile_functions {
    (
        required { $($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)* }
        optional { $($optional:ident($($o_argument:ident: $o_type:ty),*) -> $o_result:ty;)* }
    ) => {
        #[allow(non_snake_case, reason = "the library's own names")]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> $result,)*
            $(pub(crate) $optional: Option<unsafe extern "C" fn($($o_type),*) -> $o_result>,)*
        }

        impl Functions {
            /// Looks up every function; the error names a required one that is missing.
            fn look_up(library: &SharedLibrary) -> Result<Self, String> {
                $(const _: unsafe fn($($type),*) -> Bound<$result> = sys::$name;)*
                $(const _: unsafe fn($($o_type),*) -> Bound<$o_result> = sys::$optional;)*
                // SAFETY: each symbol is a function of cuFile's C interface with the
                // argument types of the bindings, checked above; results are integers
                // where the bindings have enums, which C passes alike.
                unsafe {
                    Ok(Self {
                        $($name: library.function(&symbol(stringify!($name)))?,)*
                        $($optional: library.function(&symbol(stringify!($optional))).ok(),)*
                    })
                }
            }
        }
    };
}

/// The bindings' type of a result that is declared here as plain numbers.
trait Declared {
    type Bound;
}
impl Declared for Status {
    type Bound = sys::CUfileError_t;
}
impl Declared for isize {
    type Bound = isize;
}
impl Declared for () {
    type Bound = ();
}
type Bound<T> = <T as Declared>::Bound;

fn symbol(name: &str) -> CString {
    CString::new(name).expect("an identifier holds no NUL")
}

cufile_functions! {
    required {
        cuFileDriverOpen() -> Status;
        cuFileDriverGetProperties(properties: *mut sys::CUfileDrvProps_t) -> Status;
        cuFileHandleRegister(
            handle: *mut sys::CUfileHandle_t,
            descriptor: *mut sys::CUfileDescr_t
        ) -> Status;
        cuFileHandleDeregister(handle: sys::CUfileHandle_t) -> ();
        cuFileBufRegister(base: *const c_void, bytes: usize, flags: c_int) -> Status;
        cuFileBufDeregister(base: *const c_void) -> Status;
        cuFileRead(
            handle: sys::CUfileHandle_t,
            base: *mut c_void,
            bytes: usize,
            file_offset: i64,
            base_offset: i64
        ) -> isize;
        cuFileWrite(
            handle: sys::CUfileHandle_t,
            base: *const c_void,
            bytes: usize,
            file_offset: i64,
            base_offset: i64
        ) -> isize;
    }
    optional {
        cuFileGetVersion(version: *mut c_int) -> Status;
        cuFileGetParameterSizeT(
            parameter: sys::CUFileSizeTConfigParameter_t,
            value: *mut usize
        ) -> Status;
        cuFileGetParameterBool(parameter: sys::CUFileBoolConfigParameter_t, value: *mut bool) -> Status;
        cuFileGetParameterString(
            parameter: sys::CUFileStringConfigParameter_t,
            value: *mut std::ffi::c_char,
            bytes: c_int
        ) -> Status;
        cuFileSetParameterString(
            parameter: sys::CUFileStringConfigParameter_t,
            value: *const std::ffi::c_char
        ) -> Status;
        cuFileGetStatsL3(stats: *mut sys::CUfileStatsLevel3_t) -> Status;
    }
}

/// The open library.
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    /// (major, minor), where the library tells.
    pub(crate) version: Option<(u32, u32)>,
    pub(crate) functions: Functions,
}

impl Library {
    /// Opens the library at `path` (a file, or a folder with it inside). Without a path:
    /// what [`LIBRARY_VARIABLE`] names; without that, the usual places. The error says
    /// what was tried.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, String> {
        let named = path.map(Path::to_path_buf).or_else(|| {
            env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
        });
        let candidates = match &named {
            Some(path) => candidates_at(path, &SONAMES),
            None => usual_candidates(&|name| env::var_os(name)),
        };
        let mut failures = Vec::new();
        for candidate in &candidates {
            match Self::open_file(candidate) {
                Ok(library) => return Ok(library),
                Err(reason) => failures.push(reason),
            }
        }
        if failures.is_empty() {
            failures.push("no file of that name".into());
        }
        let place = named.map_or_else(String::new, |path| format!("`{}`: ", path.display()));
        Err(format!("{place}{}", failures.join("; ")))
    }

    fn open_file(file: &Path) -> Result<Self, String> {
        let library = SharedLibrary::open(file.as_os_str())?;
        let functions = Functions::look_up(&library)?;
        let version = functions.cuFileGetVersion.and_then(|get| {
            let mut version = 0;
            // SAFETY: the out-pointer is live; the call needs no open driver.
            let status = unsafe { get(&mut version) };
            let version = u32::try_from(version).ok().filter(|_| status.code == 0)?;
            // 1150 is 1.15.
            Some((version / 1000, version % 1000 / 10))
        });
        Ok(Self { path: library.file(c"cuFileDriverOpen"), version, functions })
    }
}

/// The loader's search path, then toolkits, then Python wheels: only files that exist,
/// after the bare name.
fn usual_candidates(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut candidates = vec![PathBuf::from(SONAMES[0])];
    let folders = toolkit_folders(variable).into_iter().chain(wheel_folders(variable));
    for folder in folders {
        let file = folder.join(SONAMES[0]);
        if file.is_file() && !candidates.contains(&file) {
            candidates.push(file);
        }
    }
    candidates
}

fn toolkit_folders(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"]
        .iter()
        .filter_map(|name| variable(name))
        .map(Into::into)
        .collect();
    roots.extend(entries_starting_with(Path::new("/usr/local"), "cuda"));
    roots
        .iter()
        .flat_map(|root| TOOLKIT_FOLDERS.iter().map(move |folder| root.join(folder)))
        .collect()
}

/// The wheels of the active virtual environment and of the first `python3` on PATH.
fn wheel_folders(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> =
        variable("VIRTUAL_ENV").map(PathBuf::from).into_iter().collect();
    let path = variable("PATH").unwrap_or_default();
    let python = env::split_paths(&path).find(|folder| folder.join("python3").is_file());
    prefixes.extend(python.and_then(|folder| folder.parent().map(Path::to_path_buf)));
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut folders = Vec::new();
    for library in prefixes.iter().map(|prefix| prefix.join("lib")) {
        for python in entries_starting_with(&library, "python3") {
            for packages in ["site-packages", "dist-packages"] {
                folders.extend(WHEEL_FOLDERS.map(|wheel| python.join(packages).join(wheel)));
            }
        }
    }
    folders
}

/// Entries of `folder` whose name starts with `prefix`, newest version first as far as
/// names tell.
fn entries_starting_with(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn toolkits_and_wheels_are_looked_through() {
        let root = tempfile::tempdir().unwrap();
        let toolkit = root.path().join("cuda/targets/x86_64-linux/lib");
        let wheel = root.path().join("venv/lib/python3.12/site-packages/nvidia/cu13/lib");
        for folder in [&toolkit, &wheel] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("libcufile.so.0"), b"").unwrap();
        }
        let found = usual_candidates(&|name| match name {
            "CUDA_HOME" => Some(root.path().join("cuda").into()),
            "VIRTUAL_ENV" => Some(root.path().join("venv").into()),
            _ => None,
        });
        assert_eq!(found[0], Path::new("libcufile.so.0"));
        let position = |folder: &Path| {
            found.iter().position(|file| file == &folder.join("libcufile.so.0")).unwrap()
        };
        assert!(position(&toolkit) < position(&wheel), "{found:?}");
    }

    #[test]
    fn a_place_without_the_library_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = Library::open(Some(folder.path())).err().unwrap();
        assert!(error.contains(&*folder.path().to_string_lossy()), "{error}");
        let error = Library::open(Some(Path::new("libc.so.6"))).err().unwrap();
        assert!(error.contains("cuFileDriverOpen"), "{error}");
    }

    #[test]
    #[ignore = "needs libcufile: set HEADRACE_CUFILE to its file or folder"]
    fn libcufile_has_the_functions_of_its_version() {
        let library = Library::open(None).unwrap_or_else(|reason| panic!("{reason}"));
        assert!(library.path.is_absolute(), "{}", library.path.display());
        let version = library.version.expect("every release of the last years tells");
        println!("{} {version:?}", library.path.display());
        if version >= (1, 15) {
            assert!(library.functions.cuFileGetStatsL3.is_some());
            assert!(library.functions.cuFileGetParameterBool.is_some());
            assert!(library.functions.cuFileSetParameterString.is_some());
        }
    }
}
