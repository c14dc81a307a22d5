//! Columns of a chunk that stay on the device.

use std::sync::Arc;

use headrace_flow::DeviceSlice;
use headrace_gpu::Stream;

use crate::error::CudaError;
use crate::layout::ColumnForm;
use crate::narrow::Narrowing;
use crate::resident::{ColumnKey, ResidentColumn};
use crate::stream_plan::{ColumnOrigin, PlannedChunk};
use crate::stream_program::{
    Brought, CONTROL_ALIGN_BYTES, Kept, MISFITS_AT, MISFITS_MAX, StreamProgram,
};

impl StreamProgram<'_> {
    /// Copies the columns that the chunk brought to where they may stay, narrow if they can be.
    pub(super) fn keep_columns(
        &mut self,
        stream: &Stream,
        slot: usize,
        chunk: &PlannedChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), CudaError> {
        for segment in &chunk.segments {
            for (column, origin) in segment.columns.iter().enumerate() {
                let ColumnOrigin::Read { values, offsets, base, validity, form, key: Some(key) } =
                    origin
                else {
                    continue;
                };
                let (values, validity) = (buffers[*values], validity.map(|v| buffers[v]));
                let from = match offsets {
                    Some(offsets) => {
                        Brought { values: buffers[*offsets], texts: Some(values), validity }
                    }
                    None => Brought { values, texts: None, validity },
                };
                let narrowing = self.narrowing(slot, column, *form, key);
                let lie = (*form, *base);
                self.keep_column(stream, slot, from, (*key, lie, segment.rows), narrowing)?;
            }
        }
        Ok(())
    }

    /// How a column becomes narrow, if it does, and the number of its flag.
    pub(super) fn narrowing(
        &self,
        slot: usize,
        column: usize,
        form: ColumnForm,
        key: &ColumnKey,
    ) -> Option<(Narrowing, usize)> {
        let flag = self.slots[slot].kept.iter().filter(|kept| kept.misfit.is_some()).count();
        let narrowing = Narrowing::of(self.execution.bound(), column, form)?;
        let may = self.execution.device().resident().may_narrow(key);
        may.then_some((narrowing, flag.min(MISFITS_MAX - 1)))
    }

    pub(super) fn keep_column(
        &mut self,
        stream: &Stream,
        slot: usize,
        Brought { values, texts, validity }: Brought,
        (key, (form, base), rows): (ColumnKey, (ColumnForm, i64), u32),
        narrowing: Option<(Narrowing, usize)>,
    ) -> Result<(), CudaError> {
        let device = Arc::clone(self.execution.device());
        let values_bytes = match &narrowing {
            Some((narrowing, _)) => narrowing.bytes(rows) as usize,
            None => values.bytes,
        };
        let texts_at = values_bytes.next_multiple_of(CONTROL_ALIGN_BYTES);
        let texts_bytes = texts.map_or(0, |texts| texts.bytes);
        let validity_at = texts_at + texts_bytes.next_multiple_of(CONTROL_ALIGN_BYTES);
        let bytes = validity_at + validity.map_or(0, |v| v.bytes);
        if !device.resident().make_room(bytes as u64, self.plan.query) {
            return Ok(());
        }
        let Ok(buffer) = device.pool().alloc(bytes.max(16)) else { return Ok(()) };
        let flags = self.slots[slot].control_device.ptr() + MISFITS_AT as u64;
        // SAFETY: the slot keeps the new buffer, its control memory, and the race its own memory
        // unchanged, until its execution is done; copies and kernel stay inside the buffers, which
        // the plan found large enough for the rows.
        unsafe {
            match &narrowing {
                Some((narrowing, flag)) => {
                    let from = (values.address, validity.map_or(0, |v| v.address));
                    let flag = flags + 4 * *flag as u64;
                    narrowing.queue(&device, stream, rows, from, buffer.ptr(), flag)?;
                }
                None => stream.copy_d2d_from(&buffer, 0, values.address, values.bytes)?,
            }
            for (at, from) in [(texts_at, texts), (validity_at, validity)] {
                if let Some(from) = from.filter(|from| from.bytes > 0) {
                    stream.copy_d2d_from(&buffer, at, from.address, from.bytes)?;
                }
            }
        }
        self.execution.stats.admitted_bytes += bytes as u64;
        let column = ResidentColumn {
            rows,
            buffer,
            form: narrowing.map_or(form, |(narrowing, _)| narrowing.form()),
            base: narrowing.map_or(base, |(narrowing, _)| narrowing.base),
            texts: texts.map(|texts| (texts_at as u64, texts.bytes as u64)),
            validity: validity.map(|v| (validity_at as u64, v.bytes as u64)),
        };
        let misfit = narrowing.map(|(_, flag)| flag);
        self.slots[slot].kept.push(Kept { key, column, misfit });
        Ok(())
    }
}
