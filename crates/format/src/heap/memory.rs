//! The memory of batches: a dropped batch leaves it to the next one, which is then processed in the same
//! place, in the core's cache, and need not grow.

use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};

/// The memory of values for an array, and a second handle for [`reuse`].
pub(super) fn give<T: ArrowNativeType>(values: Vec<T>, given: &mut Vec<Buffer>) -> ScalarBuffer<T> {
    let buffer = Buffer::from_vec(values);
    given.push(buffer.clone());
    buffer.into()
}

/// Memory to grow into, if it has no other owner.
pub(super) fn reuse<T: ArrowNativeType>(values: &mut Vec<T>, given: Option<Buffer>) {
    if let Some(Ok(mut given)) = given.map(Buffer::into_vec) {
        given.clear();
        *values = given;
    }
}
