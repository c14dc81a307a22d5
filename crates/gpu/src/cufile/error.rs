//! cuFile's errors, with name, meaning and remedy.

/// Why cuFile cannot be used in this process at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cuFile cannot be used: {reason}\nhint: {remedy}")]
pub struct CuFileUnavailable {
    /// What is missing or was refused, and the evidence.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
    /// cuFile's own code, where it gave one.
    pub code: Option<i64>,
}

/// A call of cuFile that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cuFile call {operation} failed for {place}: {name} (code {code}): {text}{}", hint(.remedy))]
pub struct CuFileError {
    /// The function that failed.
    pub operation: &'static str,
    /// cuFile's code (5001 and above), or an `errno` below it.
    pub code: i64,
    /// The code's symbolic name, for instance `CU_FILE_HANDLE_NOT_REGISTERED`.
    pub name: String,
    /// The meaning of the code; with the CUDA driver's code where that was the cause.
    pub text: String,
    /// What was being done: the file or the range concerned.
    pub place: String,
    /// The remedy, if one is known.
    pub remedy: Option<&'static str>,
}

fn hint(remedy: &Option<&'static str>) -> String {
    remedy.map_or_else(String::new, |remedy| format!("\nhint: {remedy}"))
}

/// The first of cuFile's own codes; below it are `errno` values.
pub(crate) const FIRST_CODE: i64 = 5001;

/// A `CUfileError_t`: cuFile's code, and the CUDA driver's where that was the cause. The
/// bindings declare both as enums of one version; a newer library may have other codes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: u32,
    pub(crate) driver_code: u32,
}

const _: () = {
    assert!(size_of::<Status>() == size_of::<cudarc::cufile::sys::CUfileError_t>());
    assert!(align_of::<Status>() == align_of::<cudarc::cufile::sys::CUfileError_t>());
};

impl Status {
    /// A result of `operation`; `place` is only called on failure.
    pub(crate) fn check(
        self,
        operation: &'static str,
        place: impl FnOnce() -> String,
    ) -> Result<(), CuFileError> {
        if self.code == 0 {
            return Ok(());
        }
        let mut error = CuFileError::of_code(operation, i64::from(self.code), place());
        if self.driver_code != 0 {
            let (name, _) = crate::api::describe(self.driver_code);
            let name = name.unwrap_or_else(|| "unknown".into());
            error.text.push_str(&format!("; CUDA: {name} (code {})", self.driver_code));
        }
        Err(error)
    }
}

impl CuFileError {
    /// The error of a code of cuFile, or of an `errno`.
    pub(crate) fn of_code(operation: &'static str, code: i64, place: String) -> Self {
        if code < FIRST_CODE {
            let errno = i32::try_from(code).unwrap_or(0);
            let text = std::io::Error::from_raw_os_error(errno).to_string();
            let (name, remedy) = (format!("errno {errno}"), None);
            return Self { operation, code, name, text, place, remedy };
        }
        let (name, text) = meaning_of(code);
        Self {
            operation,
            code,
            name: name.to_string(),
            text: text.to_string(),
            place,
            remedy: remedy_of(code),
        }
    }
}

/// Name and meaning of a code (cufile.h of CUDA 13.0).
fn meaning_of(code: i64) -> (&'static str, &'static str) {
    match code {
        5001 => ("CU_FILE_DRIVER_NOT_INITIALIZED", "the nvidia-fs driver is not loaded"),
        5002 => ("CU_FILE_DRIVER_INVALID_PROPS", "a property is invalid"),
        5003 => ("CU_FILE_DRIVER_UNSUPPORTED_LIMIT", "a property is outside its range"),
        5004 => ("CU_FILE_DRIVER_VERSION_MISMATCH", "nvidia-fs and libcufile do not fit"),
        5005 => ("CU_FILE_DRIVER_VERSION_READ_ERROR", "nvidia-fs did not tell its version"),
        5006 => ("CU_FILE_DRIVER_CLOSING", "the driver is being closed"),
        5007 => ("CU_FILE_PLATFORM_NOT_SUPPORTED", "the platform is not supported"),
        5008 => ("CU_FILE_IO_NOT_SUPPORTED", "the file cannot be read this way"),
        5009 => ("CU_FILE_DEVICE_NOT_SUPPORTED", "the GPU is not supported"),
        5010 => ("CU_FILE_NVFS_DRIVER_ERROR", "an ioctl of nvidia-fs failed"),
        5011 => ("CU_FILE_CUDA_DRIVER_ERROR", "a call of the CUDA driver failed"),
        5012 => ("CU_FILE_CUDA_POINTER_INVALID", "the address is not device memory"),
        5013 => ("CU_FILE_CUDA_MEMORY_TYPE_INVALID", "the kind of memory is not supported"),
        5014 => ("CU_FILE_CUDA_POINTER_RANGE_ERROR", "the range passes the end of its allocation"),
        5015 => ("CU_FILE_CUDA_CONTEXT_MISMATCH", "the memory belongs to another context"),
        5016 => ("CU_FILE_INVALID_MAPPING_SIZE", "more was accessed than can be pinned"),
        5017 => ("CU_FILE_INVALID_MAPPING_RANGE", "the range is outside the mapping"),
        5018 => ("CU_FILE_INVALID_FILE_TYPE", "the file is of an unsupported kind"),
        5019 => ("CU_FILE_INVALID_FILE_OPEN_FLAG", "the file was opened with unsupported flags"),
        5020 => ("CU_FILE_DIO_NOT_SET", "the file was not opened with O_DIRECT"),
        5022 => ("CU_FILE_INVALID_VALUE", "an argument is invalid"),
        5023 => ("CU_FILE_MEMORY_ALREADY_REGISTERED", "the buffer is registered already"),
        5024 => ("CU_FILE_MEMORY_NOT_REGISTERED", "the buffer is not registered"),
        5025 => ("CU_FILE_PERMISSION_DENIED", "access to the driver or the file was denied"),
        5026 => ("CU_FILE_DRIVER_ALREADY_OPEN", "the driver is open already"),
        5027 => ("CU_FILE_HANDLE_NOT_REGISTERED", "the file is not registered"),
        5028 => ("CU_FILE_HANDLE_ALREADY_REGISTERED", "the file is registered already"),
        5029 => ("CU_FILE_DEVICE_NOT_FOUND", "the GPU was not found"),
        5030 => ("CU_FILE_INTERNAL_ERROR", "an internal error"),
        5031 => ("CU_FILE_GETNEWFD_FAILED", "no new file descriptor could be had"),
        5033 => ("CU_FILE_NVFS_SETUP_ERROR", "nvidia-fs could not be set up"),
        5034 => {
            ("CU_FILE_IO_DISABLED", "cuFile is switched off for this file by its configuration")
        }
        5035 => ("CU_FILE_BATCH_SUBMIT_FAILED", "a batch could not be submitted"),
        5036 => ("CU_FILE_GPU_MEMORY_PINNING_FAILED", "the GPU memory could not be pinned"),
        5037 => ("CU_FILE_BATCH_FULL", "the batch queue is full"),
        5038 => ("CU_FILE_ASYNC_NOT_SUPPORTED", "asynchronous I/O is not supported"),
        5043 => ("CU_FILE_NOMEM_ERROR", "cuFile has no memory left"),
        5044 => ("CU_FILE_IO_ERROR", "the read or write failed"),
        _ => ("an unknown code", "this version of Headrace does not know it"),
    }
}

/// Known remedies.
///
/// 5027 and 5030 from `cuFileHandleRegister`: the library asks libudev for the properties
/// of the block device that holds the file, compatibility mode included, and refuses the
/// file when `ID_FS_USAGE` or `ID_FS_TYPE` is not among them ("udev property not found" in its log).
/// Containers and small virtual machines have no `/run/udev`; others met the same with
/// both codes.
fn remedy_of(code: i64) -> Option<&'static str> {
    Some(match code {
        5001 | 5010 | 5033 => {
            "load the nvidia-fs module (modprobe nvidia-fs), or allow compatibility mode: \
             \"properties\": {\"allow_compat_mode\": true} in cufile.json"
        }
        5004 | 5005 => "install nvidia-fs and libcufile of one CUDA release",
        5007 | 5009 => "cuFile needs a data-centre or professional GPU; read through host memory",
        5008 | 5020 => {
            "the file system or its mount cannot do this: allow compatibility mode in \
             cufile.json, or read through host memory"
        }
        5018 => "only regular files and block devices can be registered",
        5025 => "see the owner and mode of the file and of /dev/nvidia-fs*",
        5027 | 5030 => {
            "cuFile asks udev what holds the file, and refuses it without ID_FS_USAGE and \
             ID_FS_TYPE: in a container mount the host's /run/udev (read-only is enough); without \
             udev write E:ID_FS_USAGE=filesystem and E:ID_FS_TYPE=<type> to \
             /run/udev/data/b<major>:<minor> of the block device; for tmpfs, which has none, set \
             CUFILE_EXPERIMENTAL_FS=true. cufile.log tells more"
        }
        5034 => "see the deny list in cufile.json",
        5036 | 5016 => "raise max_device_pinned_mem_size_kb in cufile.json, or register less",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_refused_registration_says_what_helps() {
        let status = Status { code: 5027, driver_code: 0 };
        let error = status.check("cuFileHandleRegister", || "`/data/x`".into()).unwrap_err();
        let shown = error.to_string();
        for part in ["`/data/x`", "CU_FILE_HANDLE_NOT_REGISTERED", "5027", "hint: ", "/run/udev"] {
            assert!(shown.contains(part), "`{part}` is not in: {shown}");
        }
    }

    #[test]
    fn codes_below_cufiles_own_are_the_systems() {
        let error = CuFileError::of_code("cuFileRead", i64::from(libc::EIO), "x".into());
        assert_eq!((error.code, error.name.as_str()), (5, "errno 5"));
        assert!(error.text.contains("Input/output error"), "{error}");
    }

    #[test]
    fn the_drivers_code_is_told_and_success_is_none() {
        assert_eq!(Status { code: 0, driver_code: 0 }.check("x", || unreachable!()), Ok(()));
        let status = Status { code: 5011, driver_code: 700 };
        let error = status.check("cuFileBufRegister", String::new).unwrap_err();
        assert!(error.text.contains("code 700"), "{error}");
        assert_eq!(error.remedy, None);
    }

    #[test]
    fn names_are_those_of_the_bindings() {
        use cudarc::cufile::sys::CUfileOpError as Code;
        for code in [
            Code::CU_FILE_DRIVER_NOT_INITIALIZED,
            Code::CU_FILE_IO_NOT_SUPPORTED,
            Code::CU_FILE_INVALID_FILE_TYPE,
            Code::CU_FILE_DIO_NOT_SET,
            Code::CU_FILE_HANDLE_NOT_REGISTERED,
            Code::CU_FILE_INTERNAL_ERROR,
            Code::CU_FILE_GPU_MEMORY_PINNING_FAILED,
        ] {
            assert_eq!(meaning_of(code as i64).0, format!("{code:?}"));
        }
    }
}
