//! The memory of batches: one that is gone leaves it to the next, which then is computed with where that
//! one was, in the core's cache, and need not grow.

use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};

/// The memory of values for an array, and once more for [`reuse`].
pub(super) fn give<T: ArrowNativeType>(values: Vec<T>, given: &mut Vec<Buffer>) -> ScalarBuffer<T> {
    let buffer = Buffer::from_vec(values);
    given.push(buffer.clone());
    buffer.into()
}

/// Memory to grow into, if nobody else has it any more.
pub(super) fn reuse<T: ArrowNativeType>(values: &mut Vec<T>, given: Option<Buffer>) {
    if let Some(Ok(mut given)) = given.map(Buffer::into_vec) {
        given.clear();
        *values = given;
    }
}
