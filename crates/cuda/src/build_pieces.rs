//! Parts of builds on their way to a device.

use std::sync::Arc;

use headrace_gpu::DeviceBuffer;
use headrace_io::Kept;
use headrace_pipeline::ExecError;
use headrace_pipeline::build::{BuildIndex, BuildTable};

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::hash_tables::{HashLayout, HashedKeys};
use crate::tables::{BuildPiece, piece_bytes};

/// A part of a build, which comes to the device when it is not there yet: what holds it, and where it begins in that.
///
/// # Errors
/// [`CudaError`] when memory or the device fails.
pub(crate) fn build_piece(
    device: &CudaDevice,
    build: &BuildTable,
    piece: BuildPiece,
) -> Result<(Arc<Kept<DeviceBuffer>>, u64), CudaError> {
    let hashed = match (piece, &build.index) {
        (
            BuildPiece::HashRows | BuildPiece::HashKeys | BuildPiece::HashTexts,
            BuildIndex::Chains(chains),
        ) => Some((chains, HashLayout::of(build).map_err(|why| ExecError::Internal(why.0))?)),
        _ => None,
    };
    // They are one table.
    let (piece, offset) = match (&hashed, piece) {
        (Some((_, layout)), BuildPiece::HashKeys) => (BuildPiece::HashRows, layout.keys_at()),
        (Some((_, layout)), BuildPiece::HashTexts) => (BuildPiece::HashRows, layout.texts_at()),
        _ => (piece, 0),
    };
    let key = (build.id, piece);
    if let Some(buffer) = device.builds().lock().get(key) {
        return Ok((buffer, offset));
    }
    let buffer = match hashed {
        Some((chains, _)) => {
            HashedKeys::of(build, chains)?.table(device, &device.device().stream()?)?
        }
        None => device.upload_parts(&piece_bytes(build, piece)?)?,
    };
    Ok((device.builds().lock().put(key, Kept::new(buffer)), offset))
}
