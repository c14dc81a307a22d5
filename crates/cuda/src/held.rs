//! Plain columns that stay on a device for others than queries: for processes that map them.
//!
//! A query keeps a column as narrow as its values allow. Who maps one wants values of its type. So a plain one takes the
//! narrow one's place in the cache, and queries read it as well. As long as somebody holds it, it does not leave.

use std::sync::Arc;

use headrace_gpu::GpuError;
use headrace_io::{IoError, Kept};
use headrace_ir::Encoding;
use headrace_pipeline::ExecError;

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::layout::ColumnForm;
use crate::resident::ResidentColumn;
use crate::stream_chunks::SegmentSource;
use crate::stream_plan::key_of;

/// Validity begins at a multiple of this.
const VALIDITY_ALIGN_BYTES: usize = 256;

/// Why a column cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// It does not lie in its file as others could use it.
    #[error("{0}")]
    Form(String),
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] IoError),
    /// The device, or its memory.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl From<GpuError> for HoldError {
    fn from(error: GpuError) -> Self {
        Self::Cuda(error.into())
    }
}

impl CudaDevice {
    /// A source register's column of a segment, with values of `width_bytes` one behind the other: the one that is here, or
    /// one that is read now, and stays.
    ///
    /// # Errors
    /// [`HoldError`]: it is packed in its file, cannot be read, or has no room beside what others hold.
    pub fn hold_plain(
        &self,
        source: &SegmentSource,
        register: usize,
        width_bytes: usize,
    ) -> Result<Arc<Kept<ResidentColumn>>, HoldError> {
        let segment = &source.segment;
        let internal = |cause: &str| CudaError::from(ExecError::Internal(cause.into()));
        let (Some(file), Some(&column)) = (&source.file, source.columns.get(register)) else {
            return Err(HoldError::Form("nothing of its file stays on a GPU".into()));
        };
        let extents = segment.columns.get(register).ok_or_else(|| internal("no such register"))?;
        let (resident, rows) = (self.resident(), segment.rows as usize);
        let key = key_of(source, resident.file_id(file), column);
        let query = resident.begin_query();
        let known = resident.get(&key, query);
        if let Some(known) = known.filter(|known| known.form == ColumnForm::Plain) {
            return Ok(known);
        }
        let is_plain = extents.encoding == Encoding::Plain && extents.offsets.is_none();
        let Some(from) = source.from.as_ref().filter(|_| is_plain) else {
            return Err(HoldError::Form(
                "its values are packed in its file; headrace convert writes them plain".into(),
            ));
        };
        let values_bytes = rows * width_bytes;
        let validity = extents.validity.map(|extent| (extent, rows.div_ceil(8)));
        let is_whole = extents.values.bytes as usize >= values_bytes
            && validity.is_none_or(|(extent, bytes)| extent.bytes as usize >= bytes);
        if !is_whole {
            return Err(HoldError::Form(format!("its file has too few bytes for {rows} rows")));
        }
        let validity_at = values_bytes.next_multiple_of(VALIDITY_ALIGN_BYTES);
        let bytes = validity_at + validity.map_or(0, |(_, bytes)| bytes);
        let mut host = vec![0; bytes];
        let (values, rest) = host.split_at_mut(values_bytes);
        from.read_exact_at(extents.values.offset, values)?;
        if let Some((extent, bytes)) = validity {
            let at = validity_at - values_bytes;
            from.read_exact_at(extent.offset, &mut rest[at..at + bytes])?;
        }
        let buffer = self.alloc(bytes)?;
        if !resident.make_room(buffer.capacity_bytes(), query) {
            return Err(HoldError::Form(format!(
                "{bytes} bytes have no room among the columns that the GPU keeps ({} bytes)",
                resident.stats().budget_bytes
            )));
        }
        self.upload_into(&buffer, &host)?;
        let column = ResidentColumn {
            rows: segment.rows,
            buffer,
            form: ColumnForm::Plain,
            base: 0,
            texts: None,
            validity: validity.map(|(_, bytes)| (validity_at as u64, bytes as u64)),
        };
        Ok(resident.put(key, column, query))
    }
}
