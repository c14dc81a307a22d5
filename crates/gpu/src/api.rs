//! The driver functions that this crate calls, looked up once.
//!
//! `cudarc`'s own wrappers panic when a function is missing, and return an `enum` of the result
//! codes of one CUDA version, for which a code of a newer driver would be an invalid value. So the
//! functions are looked up here and return the plain number. The compiler checks that the argument
//! types are those of `cudarc`'s bindings.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUipcMemHandle, CUlimit, CUmemcpyAttributes, CUmodule, CUresult,
    CUstream, CUuuid,
};

/// A `CUresult` as the number it is.
pub(crate) type Code = u32;

pub(crate) const SUCCESS: Code = CUresult::CUDA_SUCCESS as Code;
pub(crate) const INVALID_VALUE: Code = CUresult::CUDA_ERROR_INVALID_VALUE as Code;
pub(crate) const OUT_OF_MEMORY: Code = CUresult::CUDA_ERROR_OUT_OF_MEMORY as Code;
pub(crate) const NOT_INITIALIZED: Code = CUresult::CUDA_ERROR_NOT_INITIALIZED as Code;
pub(crate) const DEINITIALIZED: Code = CUresult::CUDA_ERROR_DEINITIALIZED as Code;
pub(crate) const NO_DEVICE: Code = CUresult::CUDA_ERROR_NO_DEVICE as Code;
pub(crate) const NOT_READY: Code = CUresult::CUDA_ERROR_NOT_READY as Code;
pub(crate) const NOT_SUPPORTED: Code = CUresult::CUDA_ERROR_NOT_SUPPORTED as Code;

/// `cuMemcpyBatchAsync_v2`, which drivers have from CUDA 13.0 on.
pub(crate) type BatchCopy = unsafe extern "C" fn(
    *mut CUdeviceptr,
    *mut CUdeviceptr,
    *mut usize,
    usize,
    *mut CUmemcpyAttributes,
    *mut usize,
    usize,
    CUstream,
) -> Code;

type ErrorText = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;

/// Declares the table of functions, how it is filled, and for each function a wrapper of
/// its name.
macro_rules! driver_functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        #[allow(non_snake_case, reason = "the driver's own names")]
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> Code,)*
            batch_copy: Option<BatchCopy>,
            error_name: ErrorText,
            error_string: ErrorText,
        }

        impl Functions {
            /// Looks up every function, or names the first that is missing.
            ///
            /// # Safety
            /// The driver library must be present.
            unsafe fn look_up() -> Result<Self, &'static str> {
                // SAFETY: present by this function's contract.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($name: {
                        // The bindings' argument types are those declared here.
                        const _: unsafe fn($($type),*) -> CUresult = sys::$name;
                        // SAFETY: the symbol has these argument types; it returns a C
                        // enum, which is passed as a 32-bit integer.
                        let symbol = unsafe { library.get(stringify!($name).as_bytes()) };
                        *symbol.map_err(|_| stringify!($name))?
                    },)*
                    // SAFETY: the symbol has that type, but for the code, which the bindings
                    // declare as their enum: a C enum is passed as a 32-bit integer.
                    batch_copy: unsafe { library.get(b"cuMemcpyBatchAsync_v2") }
                        .ok()
                        .map(|symbol| *symbol),
                    // SAFETY: both have that type, but for the code, which the bindings
                    // declare as their enum: a C enum is passed as a 32-bit integer.
                    error_name: *unsafe { library.get(b"cuGetErrorName") }
                        .map_err(|_| "cuGetErrorName")?,
                    // SAFETY: as above.
                    error_string: *unsafe { library.get(b"cuGetErrorString") }
                        .map_err(|_| "cuGetErrorString")?,
                })
            }
        }

        $(
            /// The driver's function of that name; `NOT_INITIALIZED` before [`load`].
            ///
            /// # Safety
            /// As required by the driver's documentation of the function.
            #[allow(non_snake_case, reason = "the driver's own name")]
            #[allow(clippy::too_many_arguments, reason = "the driver's own list")]
            pub(crate) unsafe fn $name($($argument: $type),*) -> Code {
                match FUNCTIONS.get() {
                    // SAFETY: this function's contract is that of the driver's.
                    Some(Ok(functions)) => unsafe { (functions.$name)($($argument),*) },
                    _ => NOT_INITIALIZED,
                }
            }
        )*
    };
}

static FUNCTIONS: OnceLock<Result<Functions, &'static str>> = OnceLock::new();

/// Looks up the functions, once a process. The error is the name of one that the
/// installed driver lacks.
///
/// # Safety
/// The driver library must be present.
pub(crate) unsafe fn load() -> Result<(), &'static str> {
    // SAFETY: this function's contract.
    match FUNCTIONS.get_or_init(|| unsafe { Functions::look_up() }) {
        Ok(_) => Ok(()),
        Err(name) => Err(name),
    }
}

/// The driver's batch copies, if it has them.
pub(crate) fn batch_copy() -> Option<BatchCopy> {
    FUNCTIONS.get()?.as_ref().ok()?.batch_copy
}

/// The symbolic name and the text of a result code, where the driver knows them.
pub(crate) fn describe(code: Code) -> (Option<String>, Option<String>) {
    let Some(Ok(functions)) = FUNCTIONS.get() else {
        return (None, None);
    };
    let ask = |function: ErrorText| {
        let mut text = ptr::null();
        // SAFETY: any number may be asked for; the out-pointer is live.
        unsafe { function(code, &mut text) };
        // SAFETY: the driver leaves null or a static NUL-terminated string.
        unsafe { text_of(text) }
    };
    (ask(functions.error_name), ask(functions.error_string))
}

/// Copies a C string.
///
/// # Safety
/// `text` must be null or point to a NUL-terminated string that lives through the call.
pub(crate) unsafe fn text_of(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and NUL-terminated by this function's contract.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

driver_functions! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);

    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, bytes: c_int, device: CUdevice);
    cuDeviceGetPCIBusId(id: *mut c_char, bytes: c_int, device: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxSetLimit(limit: CUlimit, value: usize);

    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventElapsedTime_v2(elapsed_ms: *mut f32, start: CUevent, end: CUevent);
    cuEventQuery(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventSynchronize(event: CUevent);

    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);

    cuIpcCloseMemHandle(address: CUdeviceptr);
    cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr);
    cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint);

    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, host: *mut c_void, flags: c_uint);
    cuMemHostRegister_v2(host: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(host: *mut c_void);
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);
    cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream);

    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleUnload(module: CUmodule);
    cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction);
    cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, bytes: *mut usize);
    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: CUfunction,
        threads: c_int,
        dynamic_shared_bytes: usize
    );
    cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void
    );
}
