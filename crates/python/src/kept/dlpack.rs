//! DLPack's structs (dlpack.h, versions 0.8 and 1.0) over a part of a column.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::part::{CUDA, Element, Inner};

/// Until somebody has taken the tensor out of its capsule.
const NAME: &CStr = c"dltensor";
const VERSIONED_NAME: &CStr = c"dltensor_versioned";

/// The version of the struct that has one.
const VERSION: (u32, u32) = (1, 0);

/// Nobody may write.
const READ_ONLY: u64 = 1;

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    /// NULL: rows one behind the other.
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    version: (u32, u32),
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// What a tensor's memory is, as long as it lives.
struct Context {
    _part: Arc<Inner>,
    shape: Box<[i64]>,
}

/// A tensor in a capsule.
pub fn capsule<'py>(
    py: Python<'py>,
    part: Arc<Inner>,
    element: &Element,
    shape: Box<[i64]>,
    is_versioned: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let (address, device) = (part.memory.ptr(), part.memory.device().ordinal());
    let mut context = Box::new(Context { _part: part, shape });
    let tensor = DlTensor {
        data: address as *mut c_void,
        device_type: CUDA,
        device_id: device as i32,
        dimensions: context.shape.len() as i32,
        code: element.code,
        bits: element.bits,
        lanes: 1,
        shape: context.shape.as_mut_ptr(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let context = Box::into_raw(context).cast();
    let (pointer, name): (*mut c_void, _) = match is_versioned {
        false => {
            let managed = Managed { tensor, context, deleter: Some(delete) };
            (Box::into_raw(Box::new(managed)).cast(), NAME)
        }
        true => {
            let deleter = Some(delete_versioned as _);
            let managed =
                ManagedVersioned { version: VERSION, context, deleter, flags: READ_ONLY, tensor };
            (Box::into_raw(Box::new(managed)).cast(), VERSIONED_NAME)
        }
    };
    let pointer =
        NonNull::new(pointer).ok_or_else(|| PyBufferError::new_err("a tensor of nothing"))?;
    // SAFETY: the pointer is to a struct on the heap, which lives until its deleter is called: by whoever takes it out
    // of the capsule, which then has another name, or by the capsule's destructor.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destroy)) }
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: both were boxed by `capsule`, and whoever owns the struct calls this once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Context>()));
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: as above.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Context>()));
    }
}

/// Deletes a tensor that nobody has taken out.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule, which is about to go; of a name that it has, it has the pointer that it
    // was made with.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED_NAME.as_ptr()) != 0 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED_NAME.as_ptr()).cast());
        }
    }
}
