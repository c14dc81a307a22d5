//! Arrow's C device interface over a part of a column.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

use headrace_ir::DataType;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::part::{CUDA, Inner};

const NAME: &CStr = c"arrow_device_array";

/// As Arrow's C data interface has it.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// As Arrow's C device interface has it.
#[repr(C)]
struct ArrowDeviceArray {
    array: ArrowArray,
    device_id: i64,
    device_type: i32,
    /// NULL: the bytes are there.
    sync_event: *mut c_void,
    reserved: [i64; 3],
}

// SAFETY: the pointers are to memory of its own, which no thread owns.
unsafe impl Send for ArrowDeviceArray {}

/// Nobody has counted.
const UNKNOWN_NULLS: i64 = -1;

/// What an array's pointers are to, as long as it lives.
struct Private {
    _part: Arc<Inner>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

/// An array in a capsule.
pub fn capsule<'py>(py: Python<'py>, part: &Arc<Inner>) -> PyResult<Bound<'py, PyCapsule>> {
    let device = ArrowDeviceArray {
        array: array(part),
        device_id: part.memory.device().ordinal() as i64,
        device_type: CUDA,
        sync_event: ptr::null_mut(),
        reserved: [0; 3],
    };
    PyCapsule::new_with_value_and_destructor(py, device, NAME, |mut device, _| {
        // Whoever moved it out left none.
        if let Some(release) = device.array.release {
            // SAFETY: the array is live, and released once.
            unsafe { release(&mut device.array) };
        }
    })
}

fn array(part: &Arc<Inner>) -> ArrowArray {
    let values = part.memory.ptr() as *const c_void;
    let validity =
        part.validity.map_or(ptr::null(), |at| (part.memory.ptr() + at) as *const c_void);
    let nulls = if part.validity.is_some() { UNKNOWN_NULLS } else { 0 };
    let rows = part.rows as i64;
    match &part.field.data_type {
        DataType::FloatList { items, .. } => {
            let child = made(part, rows * i64::from(*items), 0, vec![ptr::null(), values], vec![]);
            let children = vec![Box::into_raw(Box::new(child))];
            made(part, rows, nulls, vec![validity], children)
        }
        _ => made(part, rows, nulls, vec![validity, values], vec![]),
    }
}

fn made(
    part: &Arc<Inner>,
    length: i64,
    null_count: i64,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
) -> ArrowArray {
    let mut private = Box::new(Private { _part: Arc::clone(part), buffers, children });
    ArrowArray {
        length,
        null_count,
        offset: 0,
        n_buffers: private.buffers.len() as i64,
        n_children: private.children.len() as i64,
        buffers: private.buffers.as_mut_ptr(),
        children: private.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release),
        private_data: Box::into_raw(private).cast(),
    }
}

unsafe extern "C" fn release(array: *mut ArrowArray) {
    // SAFETY: the array was made by `made`, is live, and is released once, as the interface has it; so are its children, but
    // for those that were moved out, which are released by whoever did.
    unsafe {
        let array = &mut *array;
        array.release = None;
        let private = Box::from_raw(array.private_data.cast::<Private>());
        for &child in &private.children {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&mut *child);
            }
        }
    }
}
