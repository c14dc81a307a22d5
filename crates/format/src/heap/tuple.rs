//! The header of a tuple, and its requirements on an all-visible page.
//!
//! ```text
//! byte 0 t_xmin 4, t_xmax 4, t_field3 4, t_ctid 6
//! byte 18 t_infomask2 2   byte 20 t_infomask 2   byte 22 t_hoff 1   byte 23.. bitmap: 1 = not null
//! ```
//!
//! A page becomes all-visible when its tuples' inserters are known to have committed and nobody has
//! deleted them, and PostgreSQL records both in hint bits at that moment. Tuples without these
//! hints are rerouted: they may have been lost in a crash, or the bytes may be older than the page
//! header.

use super::bytes::{align_up, u16_at};
use super::page::MIN_TUPLE_BYTES;

const CUT: &str = "its header is cut off";
const MASK_AT: usize = 20;
const BITMAP_AT: usize = 23;
const HAS_NULL: u16 = 0x0001;
const HAS_VARLENA: u16 = 0x0002;
const HAS_OID: u16 = 0x0008;
const XMAX_EXCLUSIVE_LOCK: u16 = 0x0040;
const XMAX_LOCK_ONLY: u16 = 0x0080;
/// HEAP_XMAX_SHR_LOCK, both lock bits.
const XMAX_LOCKS: u16 = 0x0050;
const XMIN_COMMITTED: u16 = 0x0100;
const XMAX_COMMITTED: u16 = 0x0400;
const XMAX_INVALID: u16 = 0x0800;
const XMAX_IS_MULTI: u16 = 0x1000;
/// HEAP_MOVED_OFF and HEAP_MOVED_IN, of a VACUUM FULL before 9.0.
const MOVED: u16 = 0xC000;
const ATTRIBUTES: u16 = 0x07FF;
/// Bits of t_infomask2 that have no meaning.
const UNKNOWN: u16 = 0x1800;
/// Irrelevant bits of t_infomask: HEAP_HASEXTERNAL, HEAP_COMBOCID, HEAP_XMIN_INVALID (with
/// HEAP_XMIN_COMMITTED: frozen) and HEAP_UPDATED.
const MASK_IGNORED: u16 = 0x2224;
/// Bits of t_infomask2 about chains of row versions.
const MASK2_IGNORED: u16 = 0xE000;

/// Eight bytes of the header from here on, little-endian. If tuples without a bitmap agree in these
/// bits, they agree in everything that is examined.
pub(super) const HEADER_AT: usize = 16;
pub(super) const HEADER_SAME: u64 =
    (!MASK2_IGNORED as u64) << 16 | (!MASK_IGNORED as u64) << 32 | 0xFF << 48;

/// Like [`HEADER_SAME`], for tuples that are known to be visible.
pub(super) const VOUCHED_SAME: u64 = HEADER_SAME & !((VISIBILITY as u64) << 32);
const VISIBILITY: u16 = XMIN_COMMITTED
    | XMAX_COMMITTED
    | XMAX_INVALID
    | XMAX_IS_MULTI
    | XMAX_LOCK_ONLY
    | XMAX_EXCLUSIVE_LOCK
    | XMAX_LOCKS;

/// The positions of a tuple's parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tuple<'a> {
    /// Its number of attributes; those added to the table later are missing.
    pub(super) attributes: usize,
    /// Bits of the attributes, 1 = not null; None: no attribute is null.
    pub(super) bitmap: Option<&'a [u8]>,
    /// Whether an attribute of variable length is not null.
    pub(super) has_varlena: bool,
    /// First byte of the attributes in the page, a multiple of 8.
    pub(super) start: usize,
    /// First byte in the page after them.
    pub(super) end: usize,
}

impl<'a> Tuple<'a> {
    /// Checks the header of a tuple on an all-visible page, at `start`, whose bytes lie within the
    /// page.
    #[inline]
    pub(super) fn all_visible(
        page: &'a [u8],
        start: usize,
        tuple_bytes: usize,
        relation_attributes: usize,
    ) -> Result<Self, &'static str> {
        check_visible(page.get(start..).and_then(|bytes| u16_at(bytes, MASK_AT)).ok_or(CUT)?)?;
        Self::open(page, start, tuple_bytes, relation_attributes)
    }

    /// Like [`all_visible`](Self::all_visible), for a tuple that is known to be visible.
    #[inline]
    pub(super) fn open(
        page: &'a [u8],
        start: usize,
        tuple_bytes: usize,
        relation_attributes: usize,
    ) -> Result<Self, &'static str> {
        let bytes = page.get(start..start + tuple_bytes).ok_or(CUT)?;
        let header: &[u8; MIN_TUPLE_BYTES] = bytes.first_chunk().ok_or(CUT)?;
        let mask2 = u16::from_le_bytes([header[18], header[19]]);
        let mask = u16::from_le_bytes([header[MASK_AT], header[MASK_AT + 1]]);
        let header_bytes = usize::from(header[22]);
        if mask & (HAS_OID | MOVED) != 0 || mask2 & UNKNOWN != 0 {
            return Err("it has flags that PostgreSQL 15 does not write");
        }
        let attributes = usize::from(mask2 & ATTRIBUTES);
        if attributes > relation_attributes {
            return Err("it has more attributes than its table");
        }
        let bitmap_bytes = if mask & HAS_NULL != 0 { attributes.div_ceil(8) } else { 0 };
        if header_bytes != align_up(BITMAP_AT + bitmap_bytes, 7) || header_bytes > tuple_bytes {
            return Err("its header's length is wrong");
        }
        Ok(Self {
            attributes,
            bitmap: (mask & HAS_NULL != 0).then(|| &bytes[BITMAP_AT..BITMAP_AT + bitmap_bytes]),
            has_varlena: mask & HAS_VARLENA != 0,
            start: start + header_bytes,
            end: start + tuple_bytes,
        })
    }

    /// Whether the tuple has the first `attributes` and none of them is null.
    #[inline]
    pub(super) fn has_all(&self, attributes: usize) -> bool {
        let (whole, rest) = (attributes / 8, (1_u8 << (attributes % 8)) - 1);
        self.attributes >= attributes
            && self.bitmap.is_none_or(|bits| {
                bits.iter().take(whole).all(|byte| *byte == 0xFF)
                    && (rest == 0 || bits.get(whole).is_some_and(|byte| byte & rest == rest))
            })
    }

    /// Whether an attribute that the tuple has is null.
    #[inline]
    pub(super) fn is_null(&self, attribute: usize) -> bool {
        self.bitmap.is_some_and(|bits| {
            bits.get(attribute / 8).is_none_or(|byte| byte >> (attribute % 8) & 1 == 0)
        })
    }
}

#[inline]
fn check_visible(mask: u16) -> Result<(), &'static str> {
    if mask & XMIN_COMMITTED == 0 {
        return Err("nothing says that its inserter committed");
    }
    // As HEAP_XMAX_IS_LOCKED_ONLY has it.
    let locked_only =
        mask & XMAX_LOCK_ONLY != 0 || mask & (XMAX_IS_MULTI | XMAX_LOCKS) == XMAX_EXCLUSIVE_LOCK;
    if mask & XMAX_COMMITTED != 0 || (mask & XMAX_INVALID == 0 && !locked_only) {
        return Err("it may have been deleted");
    }
    Ok(())
}
