//! Part of a column in the memory of a GPU, and how its elements are called.

use std::sync::Arc;

use headrace_gpu::Mapped;
use headrace_ir::{DataType, Field};
use headrace_service::client::Lease;

/// A device's memory, in DLPack and in Arrow.
pub const CUDA: i32 = 2;

/// Part of a column. Fields are dropped in this order: the memory is unmapped before the lease ends.
pub struct Inner {
    pub memory: Mapped,
    pub field: Field,
    pub rows: u64,
    /// Where the validity bitmap lies, if there is one.
    pub validity: Option<u64>,
    pub _lease: Arc<Lease>,
}

/// How an element is called: `<f8`, and its code and bits in DLPack; and how many a row has.
pub struct Element {
    pub typestr: &'static str,
    pub code: u8,
    pub bits: u8,
    pub items: Option<i64>,
}

/// DLPack's codes of types.
const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;

/// That of a type; `None`: other libraries know none.
pub fn element(data_type: &DataType) -> Option<Element> {
    let (typestr, code, bits, items) = match data_type {
        DataType::Int8 => ("|i1", INT, 8, None),
        DataType::Int16 => ("<i2", INT, 16, None),
        DataType::Int32 | DataType::Date32 => ("<i4", INT, 32, None),
        DataType::Int64 | DataType::Time64(_) | DataType::Timestamp { .. } => {
            ("<i8", INT, 64, None)
        }
        DataType::UInt8 => ("|u1", UINT, 8, None),
        DataType::UInt16 => ("<u2", UINT, 16, None),
        DataType::UInt32 => ("<u4", UINT, 32, None),
        DataType::UInt64 => ("<u8", UINT, 64, None),
        DataType::Float32 => ("<f4", FLOAT, 32, None),
        DataType::Float64 => ("<f8", FLOAT, 64, None),
        DataType::FixedBinary(bytes) => ("|u1", UINT, 8, Some(i64::from(*bytes))),
        DataType::FloatList { item_bytes: 4, items } => ("<f4", FLOAT, 32, Some((*items).into())),
        DataType::FloatList { items, .. } => ("<f8", FLOAT, 64, Some((*items).into())),
        _ => return None,
    };
    Some(Element { typestr, code, bits, items })
}
