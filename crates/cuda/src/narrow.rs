//! Columns that stay on the device, made narrow there: unsigned differences from a base instead
//! of plain values, so that memory holds more of them and kernels read fewer bytes.
//!
//! Base and width are chosen from what is claimed of the whole column, so that its segments lie
//! alike. A claim is no proof: the kernel that re-encodes checks every value that is not NULL and
//! raises a flag for one that does not fit. That segment then stays plain.
//!
//! A difference has 1, 2 or 4 bytes.

use headrace_columns::repr::Repr;
use headrace_gpu::{Function, Grid, Source, Stream};
use headrace_ir::ValueRange;
use headrace_pipeline::bound::Bound;

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::headers::HEADERS;
use crate::layout::ColumnForm;
use crate::words::queue_words;

/// Name of the kernel.
const NARROW_KERNEL_NAME: &str = "headrace_narrow";

/// Threads of a block of it, and rows a thread.
const BLOCK_THREADS: u32 = 256;
const ROWS_PER_THREAD: u64 = 8;

/// Planes begin at a multiple of this.
const PLANE_ALIGN_BYTES: u64 = 16;

/// The kernel's source.
pub fn narrow_source() -> Source<'static> {
    Source { name: "narrow.cu", text: include_str!("../kernels/narrow.cu"), headers: &HEADERS }
}

/// How a column becomes narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrowing {
    /// What differences are from.
    pub base: i64,
    /// Bytes of a difference: 1 to 4.
    pub delta_bytes: u8,
    /// Bytes of a plain value, 16 more for an unsigned one.
    values_form: u32,
}

impl Narrowing {
    /// How a source column of a pipeline that lies in `form` becomes narrower; `None` if it does
    /// not, or nothing is known of its values.
    pub fn of(bound: &Bound, column: usize, form: ColumnForm) -> Option<Self> {
        let info = &bound.registers[column];
        let (values_form, min, max) = match (form, &info.repr) {
            (ColumnForm::Codes(bytes @ (2 | 4 | 8)), Repr::Code(dictionary)) => {
                let translated = bound.remaps.iter().map(|remap| remap.len()).max();
                let codes =
                    arrow_array::Array::len(&dictionary.values).max(translated.unwrap_or(0));
                (u32::from(bytes), 0, codes.saturating_sub(1) as i64)
            }
            (ColumnForm::Narrow(bytes @ (4 | 8)), Repr::I128)
            | (ColumnForm::Narrow(bytes @ (2 | 4)), Repr::I32 | Repr::I64) => {
                let range = info.range?;
                (u32::from(bytes), range.min, range.max)
            }
            (ColumnForm::Plain, repr) => return Self::of_plain(repr, info.range?),
            _ => return None,
        };
        Self::new(values_form, min, max)
    }

    /// How plain values that are claimed to lie in a range become narrower.
    pub fn of_plain(repr: &Repr, range: ValueRange) -> Option<Self> {
        let values_form = match repr {
            Repr::I16 => 2,
            Repr::U16 => 16 + 2,
            Repr::I32 => 4,
            Repr::U32 => 16 + 4,
            Repr::I64 => 8,
            _ => return None,
        };
        Self::new(values_form, range.min, range.max)
    }

    fn new(values_form: u32, min: i64, max: i64) -> Option<Self> {
        let span = u64::try_from(i128::from(max) - i128::from(min)).ok()?;
        let delta_bytes = (1..=4u8).find(|bytes| span >> (8 * u32::from(*bytes)) == 0)?;
        let narrower = u32::from(delta_bytes) < values_form % 16;
        narrower.then_some(Self { base: min, delta_bytes, values_form })
    }

    /// The form of the result.
    pub fn form(&self) -> ColumnForm {
        ColumnForm::Deltas(self.delta_bytes)
    }

    /// Bytes of the result for a number of rows.
    pub fn bytes(&self, rows: u32) -> u64 {
        let plane = |bytes: u64| {
            (u64::from(rows).next_multiple_of(ROWS_PER_THREAD) * bytes)
                .next_multiple_of(PLANE_ALIGN_BYTES)
        };
        match self.delta_bytes {
            3 => plane(2) + plane(1),
            bytes => plane(u64::from(bytes)),
        }
    }

    /// The parameter struct of `narrow.cu`, field by field.
    pub fn params(
        &self,
        rows: u32,
        values: u64,
        validity: u64,
        deltas: u64,
        misfit: u64,
    ) -> [u64; 8] {
        let (form, bytes) = (u64::from(self.values_form), u64::from(self.delta_bytes));
        [values, validity, deltas, misfit, self.base as u64, u64::from(rows), form, bytes]
    }

    /// Queues the re-encoding of `rows` plain values at the address `values`, with validity
    /// bitmap at `validity` (0: none), to `deltas`; `misfit` is the address of a `u32` that
    /// becomes 1 if the result must not be used.
    ///
    /// # Errors
    /// [`CudaError::Gpu`] when the kernel does not load or the driver refuses.
    ///
    /// # Safety
    /// The addresses must be device memory of this device, of as many rows, of [`Self::bytes`]
    /// bytes from a multiple of 16 on, and of 4 aligned bytes, valid and ordered with the stream
    /// until it has done the kernel.
    pub unsafe fn queue(
        &self,
        device: &CudaDevice,
        stream: &Stream,
        rows: u32,
        (values, validity): (u64, u64),
        deltas: u64,
        misfit: u64,
    ) -> Result<(), CudaError> {
        if rows == 0 {
            return Ok(());
        }
        let function: Function = device.function(&narrow_source(), NARROW_KERNEL_NAME)?;
        let words = self.params(rows, values, validity, deltas, misfit);
        let tile_rows = u64::from(BLOCK_THREADS) * ROWS_PER_THREAD;
        let grid = Grid {
            blocks: u64::from(rows).div_ceil(tile_rows).min(1 << 16) as u32,
            threads: BLOCK_THREADS,
            shared_bytes: 0,
        };
        // SAFETY: the struct is filled field by field as `narrow.cu` declares it; the addresses
        // are the caller's promise.
        unsafe { queue_words(&function, stream, grid, &words) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn three_bytes_lie_in_two_planes() {
        let narrowing = Narrowing { base: 0, delta_bytes: 3, values_form: 4 };
        assert_eq!(narrowing.bytes(1), 16 + 16);
        assert_eq!(narrowing.bytes(17), 48 + 32);
        assert_eq!(Narrowing { delta_bytes: 1, ..narrowing }.bytes(17), 32);
        assert_eq!(Narrowing { delta_bytes: 4, ..narrowing }.bytes(8), 32);
    }
}
