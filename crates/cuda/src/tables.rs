//! Builds as the device holds them.

use std::borrow::Cow;

use arrow_buffer::ToByteSlice;
use headrace_pipeline::ExecError;
use headrace_pipeline::build::{BuildIndex, BuildTable, PayloadData, Presence};

/// A part of a build as the device holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BuildPiece {
    /// Bitmap of present keys of a direct build.
    Present,
    /// Values of a payload column.
    Payload(usize),
    /// Validity bits of a payload column.
    Validity(usize),
    /// Slots of a hash build: build rows.
    HashRows,
    /// Keys of a hash build: of the slots, or wide ones of the rows.
    HashKeys,
    /// Bytes in which the long texts of a hash build's keys lie.
    HashTexts,
    /// For each row of a hash build the next row of the same key.
    HashNext,
}

/// Slots of the device's hash table for a number of rows: at most half are taken.
pub(crate) fn slots_of(rows: u64) -> u64 {
    (rows * 2).next_power_of_two().max(16)
}

/// The bytes of a part of a build that lies on the device as on the host, one piece after the other. The device pads them
/// to 16 bytes with any values. A hash table's are made there ([`HashedKeys`](crate::hash_tables::HashedKeys)).
///
/// # Errors
/// [`ExecError::Internal`] for a part that the build does not have.
pub fn piece_bytes(build: &BuildTable, piece: BuildPiece) -> Result<Vec<Cow<'_, [u8]>>, ExecError> {
    let missing = || ExecError::Internal(format!("build {} has no {piece:?}", build.name));
    let too_short = |domain: u64| {
        let name = &build.name;
        ExecError::Internal(format!("{piece:?} of build {name} is shorter than its {domain} keys"))
    };
    Ok(match (piece, &build.index) {
        // Behind the last key stands an absent one, for keys outside.
        (BuildPiece::Present, BuildIndex::Direct(Presence { domain, words, .. })) => {
            let (whole, bits) = ((domain / 64) as usize, domain % 64);
            let words = words.get(..whole + usize::from(bits > 0));
            let words = words.ok_or_else(|| too_short(*domain))?;
            let last = words.get(whole).map_or(0, |last| last & ((1 << bits) - 1));
            vec![Cow::Borrowed(words[..whole].to_byte_slice()), last.to_le_bytes().to_vec().into()]
        }
        (BuildPiece::Payload(column), index) => {
            let data = &build.payload.get(column).ok_or_else(missing)?.data;
            let bytes = data.bytes();
            match index {
                BuildIndex::Direct(Presence { domain, .. }) => {
                    let width = payload_shape(data).width_bytes as usize;
                    let entries = bytes.get(..*domain as usize * width);
                    let entries = entries.ok_or_else(|| too_short(*domain))?;
                    vec![Cow::Borrowed(entries), vec![u8::MAX; width].into()]
                }
                BuildIndex::Chains(_) => vec![Cow::Borrowed(bytes)],
            }
        }
        (BuildPiece::Validity(column), index) => {
            let payload = build.payload.get(column).ok_or_else(missing)?;
            let bytes = payload.validity.as_deref().ok_or_else(missing)?.to_byte_slice();
            match index {
                BuildIndex::Direct(Presence { domain, .. })
                    if (bytes.len() as u64) * 8 < *domain =>
                {
                    return Err(too_short(*domain));
                }
                _ => vec![Cow::Borrowed(bytes)],
            }
        }
        (BuildPiece::HashNext, BuildIndex::Chains(chains)) => {
            vec![Cow::Borrowed(chains.next.to_byte_slice())]
        }
        _ => return Err(missing()),
    })
}

/// The entries of a payload column.
pub(crate) struct PayloadShape {
    /// C++ type of the entries.
    pub(crate) c_type: &'static str,
    pub(crate) width_bytes: u64,
    /// Base of narrow raw values.
    pub(crate) base: Option<i64>,
    /// The entry that marks an absent key of a direct build.
    pub(crate) absent: Option<u32>,
}

/// How the values of a payload column lie.
pub(crate) fn payload_shape(data: &PayloadData) -> PayloadShape {
    let shape =
        |c_type, width_bytes, base, absent| PayloadShape { c_type, width_bytes, base, absent };
    match data {
        PayloadData::U8 { base, .. } => shape("u8", 1, Some(*base), Some(u32::from(u8::MAX))),
        PayloadData::U16 { base, .. } => shape("u16", 2, Some(*base), Some(u32::from(u16::MAX))),
        PayloadData::U32 { base, .. } => shape("u32", 4, Some(*base), Some(u32::MAX)),
        PayloadData::I64(_) => shape("i64", 8, None, None),
        PayloadData::U64(_) => shape("u64", 8, None, None),
        PayloadData::F64(_) => shape("f64", 8, None, None),
        PayloadData::I128(_) => shape("i128", 16, None, None),
        PayloadData::Bool(_) => shape("u8", 1, None, Some(u32::from(u8::MAX))),
        PayloadData::Bytes { width, .. } => shape("u8", *width as u64, None, None),
    }
}
