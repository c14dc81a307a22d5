//! Keys as 64-bit words: those of hashed groups, and of builds by hash.
//!
//! ```text
//! text | text | number, number, NULL?, number ..      texts first, 32 bytes each, others side by side
//! ```
//!
//! `keys.cuh` says what the words hold. Equal keys have equal words, but for where a long text lies.

use headrace_columns::repr::Repr;
use headrace_pipeline::WhyNot;

/// Bytes of a text within a key: a short text, zeros, and its length and 1, or 0 for NULL; for a long one the last
/// byte is [`LONG_TEXT`], and the first eight say where it lies.
pub(crate) const TEXT_KEY_BYTES: usize = 32;
pub(crate) const LONG_TEXT: u8 = 255;

/// Bytes of a key at most: kernels hold it in registers. A grouping by 202 bytes did not answer within a minute.
const KEY_BYTES_MAX: usize = 160;

/// One key within the words of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPart {
    /// First byte of the value.
    pub at: usize,
    /// Bytes of the value.
    pub bytes: usize,
    /// The byte that is 1 where the key is NULL, if it can be; the value is 0 then. Of texts their
    /// last byte tells.
    pub null_at: Option<usize>,
}

/// How keys lie: side by side in 64-bit words, texts first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyLayout {
    /// One per key.
    pub parts: Vec<KeyPart>,
    /// 64-bit words of all: 1 to 20.
    pub words: usize,
    /// Keys that are texts.
    pub texts: usize,
}

impl KeyLayout {
    /// That of keys held so, each with whether it may be NULL; `whose` keys they are says what is refused.
    ///
    /// # Errors
    /// Keys of too many bytes.
    pub(crate) fn of(keys: &[(&Repr, bool)], whose: &str) -> Result<Self, WhyNot> {
        let texts = keys.iter().filter(|(repr, _)| matches!(repr, Repr::Str)).count();
        if keys.iter().any(|(repr, _)| matches!(repr, Repr::Bytes(_))) {
            return Err(WhyNot::new(format!(
                "the CUDA processor takes no bytes as keys of {whose}"
            )));
        }
        let (mut text_at, mut at) = (0, texts * TEXT_KEY_BYTES);
        let mut parts = Vec::with_capacity(keys.len());
        for &(repr, nullable) in keys {
            let Some(bytes) = fixed_bytes(repr) else {
                parts.push(KeyPart { at: text_at, bytes: TEXT_KEY_BYTES, null_at: None });
                text_at += TEXT_KEY_BYTES;
                continue;
            };
            if bytes == 16 {
                at = at.next_multiple_of(8);
            }
            parts.push(KeyPart { at, bytes, null_at: nullable.then_some(at + bytes) });
            at += bytes + usize::from(nullable);
        }
        if at > KEY_BYTES_MAX {
            return Err(WhyNot::new(format!(
                "the keys of {whose} take {at} bytes, the CUDA processor has {KEY_BYTES_MAX}"
            )));
        }
        Ok(Self { parts, words: at.div_ceil(8).max(1), texts })
    }

    /// Bytes of a key.
    pub(crate) fn bytes(&self) -> usize {
        self.words * 8
    }
}

/// Bytes of a value; `None`: of a text.
pub(crate) fn fixed_bytes(repr: &Repr) -> Option<usize> {
    Some(match repr {
        Repr::Bool | Repr::I8 | Repr::U8 => 1,
        Repr::I16 | Repr::U16 => 2,
        Repr::I32 | Repr::U32 | Repr::F32 | Repr::Code(_) => 4,
        Repr::I64 | Repr::U64 | Repr::F64 => 8,
        Repr::I128 => 16,
        Repr::Str => return None,
        Repr::Bytes(width) => *width,
    })
}
