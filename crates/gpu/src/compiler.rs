//! CUDA C++ in memory to a cubin in memory. Needs NVRTC and no GPU.

use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::ptr;

use crate::compile_log;
use crate::error::{GpuError, Result};
use crate::nvrtc::{COMPILATION_ERROR, Library, RawProgram, SUCCESS};

/// Options of every compilation. `__int128` needs its own option; without `-default-device` NVRTC
/// takes unannotated functions for host functions.
const FIXED_OPTIONS: [&str; 3] = ["-std=c++17", "--device-int128", "-default-device"];

/// A translation unit and the headers it includes, all in memory.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// What the compiler calls the source in its messages, for instance `q1.cu`.
    pub name: &'a str,
    /// CUDA C++. Kernels that are looked up by name are `extern "C"`.
    pub text: &'a str,
    /// Header (name, text) pairs; `#include "name"` finds them.
    pub headers: &'a [(&'a str, &'a str)],
}

/// Machine code for one architecture, as [`Module::load`](crate::Module::load) takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin {
    /// The source's name.
    pub name: String,
    /// The architecture compiled for, for instance `sm_90`.
    pub arch: String,
    /// An ELF image.
    pub image: Vec<u8>,
    /// The compiler's warnings, rendered; empty when there are none.
    pub warnings: String,
}

/// NVRTC, the CUDA run-time compiler. Compilations may run in several threads at once.
pub struct Compiler {
    library: Library,
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiler")
            .field("path", &self.library.path)
            .field("version", &self.library.version)
            .finish()
    }
}

impl Compiler {
    /// Opens NVRTC. With `path` (the library file, or its folder) only that one is tried; otherwise
    /// the one that the environment variable `HEADRACE_NVRTC` names; if that is not set,
    /// `libnvrtc.so.13`, `libnvrtc.so` or `libnvrtc.so.12` from the system's search path, then from
    /// `/usr/local/cuda`.
    ///
    /// # Errors
    /// [`GpuError::NvrtcNotPresent`] with each attempt's failure. A named library that
    /// cannot be opened is an error: no other one is used in its place.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let library = Library::open(path)?;
        tracing::debug!(path = %library.path.display(), version = ?library.version, "NVRTC");
        Ok(Self { library })
    }

    /// NVRTC's version, (major, minor).
    pub fn version(&self) -> (u32, u32) {
        self.library.version
    }

    /// The library file in use.
    pub fn path(&self) -> &Path {
        &self.library.path
    }

    /// Compiles `source` for `arch` (`sm_90`). `options` follow the fixed ones: C++17,
    /// `__int128`, functions without annotation are device functions.
    ///
    /// # Errors
    /// [`GpuError::Compile`] when the source is wrong, [`GpuError::InvalidArgument`] for
    /// an architecture that is not `sm_…` or text with a NUL byte, [`GpuError::Nvrtc`]
    /// for options that NVRTC refuses and its other faults.
    pub fn compile(&self, source: &Source<'_>, arch: &str, options: &[&str]) -> Result<Cubin> {
        let program = Program::create(&self.library, source)?;
        program.compile(source, arch, &all_options(arch, options)?)?;
        let image = program.cubin(source)?;
        Ok(Cubin {
            name: source.name.to_string(),
            arch: arch.to_string(),
            image,
            warnings: rendered(source, &program.log()),
        })
    }
}

/// The full list of options for NVRTC.
///
/// # Errors
/// [`GpuError::InvalidArgument`] when `arch` names no real architecture: for a virtual
/// one (`compute_…`) NVRTC makes no cubin.
pub(crate) fn all_options(arch: &str, options: &[&str]) -> Result<Vec<String>> {
    let number = arch.strip_prefix("sm_").unwrap_or("");
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(GpuError::invalid(
            "Compiler::compile",
            format!("`{arch}` is no architecture such as sm_90"),
        ));
    }
    let fixed = FIXED_OPTIONS.iter().map(ToString::to_string);
    let asked = options.iter().map(ToString::to_string);
    Ok(std::iter::once(format!("--gpu-architecture={arch}")).chain(fixed).chain(asked).collect())
}

fn rendered(source: &Source<'_>, log: &str) -> String {
    let mut texts = vec![(source.name, source.text)];
    texts.extend_from_slice(source.headers);
    compile_log::render(log, &texts)
}

fn c_string(text: &str, what: &str) -> Result<CString> {
    CString::new(text).map_err(|error| {
        GpuError::invalid(
            "Compiler::compile",
            format!("{what} has a NUL byte at {}", error.nul_position()),
        )
    })
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

/// An NVRTC program, destroyed on drop. NVRTC copies the source and headers.
struct Program<'a> {
    library: &'a Library,
    raw: RawProgram,
}

impl<'a> Program<'a> {
    fn create(library: &'a Library, source: &Source<'_>) -> Result<Self> {
        let text = c_string(source.text, source.name)?;
        let name = c_string(source.name, "the source's name")?;
        let (mut header_names, mut header_texts) = (Vec::new(), Vec::new());
        for (name, text) in source.headers {
            header_names.push(c_string(name, "a header's name")?);
            header_texts.push(c_string(text, name)?);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: every pointer is to a NUL-terminated string that lives through the
        // call; both arrays have as many entries as the count says.
        let code = unsafe {
            (library.create_program)(
                &mut raw,
                text.as_ptr(),
                name.as_ptr(),
                header_names.len() as c_int,
                pointers(&header_texts).as_ptr(),
                pointers(&header_names).as_ptr(),
            )
        };
        let program = Self { library, raw };
        program.check("nvrtcCreateProgram", code, source.name)?;
        Ok(program)
    }

    fn compile(&self, source: &Source<'_>, arch: &str, options: &[String]) -> Result<()> {
        let place = format!("{} with {}", source.name, options.join(" "));
        let options = options
            .iter()
            .map(|option| c_string(option, "an option"))
            .collect::<Result<Vec<_>>>()?;
        // SAFETY: the program is alive; the array holds `options.len()` live strings.
        let code = unsafe {
            (self.library.compile_program)(
                self.raw,
                options.len() as c_int,
                pointers(&options).as_ptr(),
            )
        };
        if code == COMPILATION_ERROR {
            return Err(GpuError::Compile {
                name: source.name.to_string(),
                arch: arch.to_string(),
                log: rendered(source, &self.log()),
            });
        }
        self.check("nvrtcCompileProgram", code, &place)
    }

    fn cubin(&self, source: &Source<'_>) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is alive and the out-pointer live.
        let code = unsafe { (self.library.cubin_size)(self.raw, &mut bytes) };
        self.check("nvrtcGetCUBINSize", code, source.name)?;
        let mut image = vec![0u8; bytes];
        // SAFETY: the buffer has the size that NVRTC just asked for.
        let code = unsafe { (self.library.cubin)(self.raw, image.as_mut_ptr().cast()) };
        self.check("nvrtcGetCUBIN", code, source.name)?;
        Ok(image)
    }

    /// The compiler's messages so far; empty if there are none.
    fn log(&self) -> String {
        let mut bytes = 0;
        // SAFETY: the program is alive and the out-pointer live.
        let code = unsafe { (self.library.log_size)(self.raw, &mut bytes) };
        if code != SUCCESS || bytes == 0 {
            return String::new();
        }
        let mut log = vec![0u8; bytes];
        // SAFETY: the buffer has the size that NVRTC just asked for.
        let code = unsafe { (self.library.log)(self.raw, log.as_mut_ptr().cast()) };
        if code != SUCCESS {
            return String::new();
        }
        let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
        String::from_utf8_lossy(&log[..end]).trim().to_string()
    }

    fn check(&self, call: &'static str, code: c_int, place: &str) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        let mut text = self.library.text(code);
        let log = if self.raw.is_null() { String::new() } else { self.log() };
        if !log.is_empty() {
            text = format!("{text}: {log}");
        }
        Err(GpuError::Nvrtc { call, code, text, place: place.to_string() })
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: created by this library, destroyed once.
            let code = unsafe { (self.library.destroy_program)(&mut self.raw) };
            if code != SUCCESS {
                tracing::warn!(code, "nvrtcDestroyProgram failed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn options_begin_with_the_architecture_and_end_with_the_callers() {
        let options = all_options("sm_90", &["-lineinfo"]).unwrap();
        assert_eq!(options.first().unwrap(), "--gpu-architecture=sm_90");
        assert_eq!(options.last().unwrap(), "-lineinfo");
        for fixed in FIXED_OPTIONS {
            assert!(options.iter().any(|option| option == fixed));
        }
    }

    #[test]
    fn only_real_architectures_are_taken() {
        for arch in ["compute_90", "", "sm_", "sm_x", "90"] {
            assert!(all_options(arch, &[]).is_err(), "{arch}");
        }
        assert!(all_options("sm_90a", &[]).is_ok());
    }
}
