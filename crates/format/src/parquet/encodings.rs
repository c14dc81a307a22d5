//! Encodings of values and levels, by their numbers.

pub const PLAIN: i32 = 0;
pub const PLAIN_DICTIONARY: i32 = 2;
pub const RLE: i32 = 3;
pub const BIT_PACKED: i32 = 4;
pub const DELTA_BINARY_PACKED: i32 = 5;
pub const DELTA_LENGTH_BYTE_ARRAY: i32 = 6;
pub const DELTA_BYTE_ARRAY: i32 = 7;
pub const RLE_DICTIONARY: i32 = 8;
pub const BYTE_STREAM_SPLIT: i32 = 9;
