//! The kernels that are the same for all pipelines.

use headrace_gpu::Source;

use crate::device::CudaDevice;
use crate::execution::rehash_source;
use crate::first_groups::first_groups_source;
use crate::gather::gather_source;
use crate::group_columns::group_column_source;
use crate::hash_tables::hash_table_source;
use crate::narrow::narrow_source;
use crate::upload::upload_source;

/// Those that most queries want; tables of pages have one of their own.
fn sources() -> [Source<'static>; 7] {
    [
        upload_source(),
        narrow_source(),
        hash_table_source(),
        gather_source(),
        group_column_source(),
        first_groups_source(),
        rehash_source(),
    ]
}

/// Has them compiled, if they never were, while the first query begins.
pub fn compile_fixed(device: &CudaDevice) {
    device.compile_ahead(sources());
}
