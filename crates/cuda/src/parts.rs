//! Parts of the processor that tests and measurements drive by themselves.

pub use crate::accumulator::DeviceAccumulator;
pub use crate::codegen::{TABLE_HEADER, TABLE_KERNEL_NAME, TableKernel};
pub use crate::decode::accumulator_state;
pub use crate::execution::{CudaExecution, rehash_params, rehash_source};
pub use crate::fields::Param;
pub use crate::first_groups::{FirstStep, first_groups_source, last_wanted, listing};
pub use crate::gather::gather_source;
pub use crate::group_columns::{
    ColumnTarget, GroupAddresses, GroupColumn, NumberOrder, group_column_source,
};
pub use crate::groups::{DeviceGroups, GroupRoom};
pub use crate::hash_tables::{HashedKeys, hash_table_source};
pub use crate::headers::{COMPILE_OPTIONS, HEADERS};
pub use crate::layout::{ColumnForm, ColumnLayout, base_of};
pub use crate::narrow::{Narrowing, narrow_source};
pub use crate::pages::{
    NOT_TAKEN, PAGE_ENTRY_BYTES, PAGE_VERDICT_BYTES, PAGES_KERNEL_NAME, PageDecoding, PagePass,
    page_entry, page_verdict, pages_source,
};
pub use crate::program::{DeviceColumn, DeviceSegment, KERNEL_NAME};
pub use crate::room::RowRoom;
pub use crate::rows::Downloaded;
pub use crate::tables::{BuildPiece, piece_bytes};
pub use crate::text_values::{TEXT_VALUE_BYTES, text_lengths};
