//! How the columns of a stream lie, as far as its kernel depends on it. All segments of a stream
//! run through one kernel: what differs between them is a fact of each segment's descriptor.

use headrace_ir::{Encoding, Segment};

/// How the values of one column lie on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ColumnForm {
    /// Fixed-width values.
    #[default]
    Plain,
    /// Booleans, one bit each.
    Bits,
    /// Signed dictionary codes of this many bytes.
    Codes(u8),
    /// Decimals as signed integers of 4 or 8 bytes, integers as those of fewer bytes than they have.
    Narrow(u8),
    /// Unsigned differences of 1, 2, 3 or 4 bytes from a base that the segment tells. Those of
    /// three bytes lie in two planes: the low 16 bits of all rows, then, from a multiple of 16
    /// bytes on, the high 8 bits.
    Deltas(u8),
    /// Such differences as a file has them: one behind the other, from any address on.
    Packed(u8),
    /// Differently in different segments, each of which tells how.
    Varying,
    /// Texts: as offsets of 4 bytes into bytes, or as views of 16, a 64-bit address and a 64-bit
    /// length; each segment tells which.
    Text,
    /// As no kernel reads it: pages of rows, offsets of 8 bytes.
    Unread,
    /// One value a segment, which lies nowhere: not read by kernels yet.
    Constant,
}

impl ColumnForm {
    /// The form of a column as it lies in a file.
    pub fn of(encoding: &Encoding) -> Self {
        match encoding {
            Encoding::Plain => Self::Plain,
            Encoding::Bits => Self::Bits,
            Encoding::Dictionary { code_bytes } => Self::Codes(*code_bytes),
            Encoding::Narrow { value_bytes } => Self::Narrow(*value_bytes),
            Encoding::Deltas { delta_bytes, .. } => Self::Packed(*delta_bytes),
            Encoding::Offsets { offset_bytes: 4 } => Self::Text,
            Encoding::Offsets { .. } | Encoding::Pages { .. } | Encoding::ColumnPages => {
                Self::Unread
            }
            Encoding::Constant { .. } => Self::Constant,
        }
    }

    /// As a descriptor tells a kernel for varying forms (`load_varying` in `load.cuh`).
    pub fn word(self) -> u64 {
        match self {
            Self::Codes(bytes) | Self::Narrow(bytes) => 16 + u64::from(bytes),
            Self::Packed(bytes) => 32 + u64::from(bytes),
            Self::Deltas(bytes) => u64::from(bytes),
            _ => 0,
        }
    }

    /// One form for segments of both.
    fn merged(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Text | Self::Unread, _) | (_, Self::Text | Self::Unread) => Self::Unread,
            _ => Self::Varying,
        }
    }
}

/// What the values that lie in a segment count from: differences from their base, offsets from
/// what they call their first byte.
pub fn base_of(encoding: &Encoding, offsets_base: u64) -> i64 {
    match encoding {
        Encoding::Deltas { base, .. } => *base,
        _ => offsets_base as i64,
    }
}

/// One column of a [`SegmentLayout`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnLayout {
    /// How the values lie.
    pub form: ColumnForm,
    /// Whether any segment has a validity bitmap. It matters for columns that the table declares
    /// without NULLs, whose bitmaps are checked; others may have a bitmap in any segment.
    pub validity: bool,
}

impl ColumnLayout {
    /// Plain values without NULLs.
    pub fn plain() -> Self {
        Self { form: ColumnForm::Plain, validity: false }
    }
}

/// The columns in register order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentLayout {
    /// One per source register.
    pub columns: Vec<ColumnLayout>,
}

impl SegmentLayout {
    /// The layout of a segment as it lies in its file.
    pub fn of(segment: &Segment) -> Self {
        let columns = segment
            .columns
            .iter()
            .map(|c| ColumnLayout {
                form: ColumnForm::of(&c.encoding),
                validity: c.validity.is_some(),
            })
            .collect();
        Self { columns }
    }

    /// The layout of columns that lie so, as far as is known before any segment is: whether there
    /// are bitmaps, each segment says.
    pub fn of_encodings(encodings: &[Encoding]) -> Self {
        let column = |e: &Encoding| ColumnLayout { form: ColumnForm::of(e), validity: false };
        Self { columns: encodings.iter().map(column).collect() }
    }

    /// What a kernel that reads these columns alone knows of the layout.
    pub(crate) fn only(&self, read: &[usize]) -> Self {
        let column = |(i, column): (usize, &ColumnLayout)| match read.contains(&i) {
            true => column.clone(),
            false => ColumnLayout::plain(),
        };
        Self { columns: self.columns.iter().enumerate().map(column).collect() }
    }

    /// The one layout that segments of all of `layouts` run with; `None` without any.
    pub fn merged(layouts: impl IntoIterator<Item = Self>) -> Option<Self> {
        layouts.into_iter().reduce(|mut merged, layout| {
            for (into, from) in merged.columns.iter_mut().zip(&layout.columns) {
                into.form = into.form.merged(from.form);
                into.validity |= from.validity;
            }
            merged
        })
    }
}
