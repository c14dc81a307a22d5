//! How the columns of a segment lie, as far as a kernel depends on it: segments of equal
//! layout run through one kernel.

use headrace_ir::{Encoding, Segment};

/// One column of a [`SegmentLayout`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnLayout {
    /// How the values lie.
    pub encoding: Encoding,
    /// Whether there is a validity bitmap.
    pub validity: bool,
    /// Whether codes are translated.
    pub remap: bool,
}

impl ColumnLayout {
    /// Plain values without NULLs.
    pub fn plain() -> Self {
        Self { encoding: Encoding::Plain, validity: false, remap: false }
    }
}

/// The columns in register order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentLayout {
    /// One per source register.
    pub columns: Vec<ColumnLayout>,
}

impl SegmentLayout {
    /// The fewest layouts that segments can be run with: a kernel for columns with validity and
    /// code translation also takes segments that lack them, so only encodings divide.
    pub fn merged<'s>(segments: impl IntoIterator<Item = &'s Segment>) -> Vec<Self> {
        let mut merged: Vec<Self> = Vec::new();
        for segment in segments {
            let layout = Self::of(segment);
            match merged.iter_mut().find(|known| known.has_encodings_of(&layout)) {
                Some(known) => {
                    for (into, from) in known.columns.iter_mut().zip(&layout.columns) {
                        into.validity |= from.validity;
                        into.remap |= from.remap;
                    }
                }
                None => merged.push(layout),
            }
        }
        merged
    }

    /// Whether every column is encoded alike.
    pub fn has_encodings_of(&self, other: &Self) -> bool {
        self.columns.len() == other.columns.len()
            && self.columns.iter().zip(&other.columns).all(|(a, b)| a.encoding == b.encoding)
    }

    /// The layout of a segment.
    pub fn of(segment: &Segment) -> Self {
        let columns = segment
            .columns
            .iter()
            .map(|c| ColumnLayout {
                encoding: c.encoding.clone(),
                validity: c.validity.is_some(),
                remap: c.remap.is_some(),
            })
            .collect();
        Self { columns }
    }
}
