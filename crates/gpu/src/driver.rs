//! The entry to the CUDA driver library: present or not, initialised once, with driver return codes
//! turned into errors.
//!
//! Nothing else in this crate can call a driver function before [`initialise`] opened the
//! library and looked up the functions; see [`crate::api`].

use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::api::{self, Code, text_of};
use crate::error::{GpuError, Result, remedy_of};

/// Opens the driver library and initialises it, once a process.
///
/// # Errors
/// [`GpuError::NotPresent`] when there is no driver library or it is too old,
/// [`GpuError::Driver`] when `cuInit` refuses (no device, broken module, stub library).
pub(crate) fn initialise() -> Result<()> {
    static OUTCOME: OnceLock<Result<()>> = OnceLock::new();
    OUTCOME
        .get_or_init(|| {
            require_library()?;
            // SAFETY: the library is open and has cuInit; 0 is the only allowed flag value.
            check("cuInit", unsafe { api::cuInit(0) }, || {
                "the start of the CUDA driver".to_string()
            })
            .map_err(with_general_remedy)
        })
        .clone()
}

/// The remedy if the driver does not start and the reason has none of its own.
fn with_general_remedy(mut error: GpuError) -> GpuError {
    if let GpuError::Driver { remedy: remedy @ None, .. } = &mut error {
        *remedy = Some("see whether nvidia-smi works, and dmesg for the driver's messages");
    }
    error
}

/// The CUDA version that the installed driver supports, as (major, minor). Needs no
/// device.
pub(crate) fn version() -> Result<(u32, u32)> {
    require_library()?;
    let mut version = 0;
    // SAFETY: the library is open; the out-pointer is a live i32. This call is allowed
    // before cuInit.
    let code = unsafe { api::cuDriverGetVersion(&mut version) };
    check("cuDriverGetVersion", code, || "the CUDA driver".to_string())?;
    let version = u32::try_from(version).unwrap_or(0);
    Ok((version / 1000, version % 1000 / 10))
}

fn require_library() -> Result<()> {
    static OUTCOME: OnceLock<Result<()>> = OnceLock::new();
    OUTCOME
        .get_or_init(|| {
            open_driver()?;
            // SAFETY: the library was just opened.
            unsafe { api::load() }.map_err(|name| GpuError::NotPresent {
                reason: format!("the installed CUDA driver lacks {name}: it is too old"),
                remedy: "update the NVIDIA driver to 570 or later (CUDA 12.8)".into(),
            })
        })
        .clone()
}

/// Looks for the library first with `dlopen`, for its error text, then through `cudarc`, whose own
/// search list decides what is used.
fn open_driver() -> Result<()> {
    // SAFETY: opening a shared library runs its initialisers; the driver's are meant to
    // be run by any process at any time.
    if unsafe { sys::is_culib_present() } {
        return Ok(());
    }
    // SAFETY: as above; the name is a NUL-terminated literal. A handle that is got after
    // all is kept for the process's life.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    let reason = if handle.is_null() {
        last_dl_error()
    } else {
        "libcuda.so.1 opened only on the second try".to_string()
    };
    Err(GpuError::NotPresent {
        reason: format!("the CUDA driver library could not be opened: {reason}"),
        remedy: "install the NVIDIA driver; in a container, start it with GPU access \
                 (for Docker: --gpus all)"
            .into(),
    })
}

/// The text of the last `dlopen`/`dlsym` failure of this thread.
pub(crate) fn last_dl_error() -> String {
    // SAFETY: dlerror returns null or a NUL-terminated string valid until the next dl*
    // call of this thread; it is copied at once.
    unsafe { text_of(libc::dlerror()) }.unwrap_or_else(|| "unknown dlopen error".to_string())
}

/// Turns a driver return code into a result. `place` is only called on failure.
pub(crate) fn check(call: &'static str, code: Code, place: impl FnOnce() -> String) -> Result<()> {
    if code == api::SUCCESS {
        return Ok(());
    }
    let (name, text) = api::describe(code);
    Err(GpuError::Driver {
        call,
        code,
        name: name.unwrap_or_else(|| "an unknown error".to_string()),
        text: text.unwrap_or_else(|| "the driver has no text for it".to_string()),
        place: place(),
        remedy: remedy_of(code),
    })
}

/// For destructors, which cannot return an error: a failure is logged, except that of a
/// driver that is already shutting down with the process.
pub(crate) fn check_in_drop(call: &'static str, code: Code) {
    if !matches!(code, api::SUCCESS | api::DEINITIALIZED) {
        let (name, _) = api::describe(code);
        tracing::warn!(call, code, name, "CUDA clean-up failed");
    }
}
