//! The plan by which a device decodes pages.

use headrace_ir::pages::{MissingValue, PagePlan, PageStep, StoredValue};

use super::parts::HeapBlocks;
use super::relation::{Attribute, HeapType};
use super::stored::column_value;
use crate::Result;

impl HeapBlocks {
    /// The plan for attributes `wanted`, by position, as columns in this order. Attributes that a
    /// device does not decode (bytes) are skipped.
    ///
    /// # Errors
    /// As [`Decoder::new`](super::Decoder::new).
    pub fn page_plan(&self, wanted: &[usize]) -> Result<PagePlan> {
        let relation = &self.relation;
        relation.check(wanted)?;
        // What is derived is no attribute: it is not decoded.
        let column_of = |attribute: usize| wanted.iter().position(|wanted| *wanted == attribute);
        let step = |(index, attribute): (usize, &Attribute)| {
            let kind = column_of(index).and(attribute.kind);
            let stored = kind.and_then(stored_value);
            let value = |missing: &Vec<u8>| match stored.and(kind) {
                Some(HeapType::Text) if std::str::from_utf8(missing).is_ok() => {
                    MissingValue::Text(missing.clone())
                }
                kind => kind
                    .and_then(|kind| column_value(kind, missing))
                    .map_or(MissingValue::Opaque, MissingValue::Value),
            };
            PageStep {
                length: attribute.length,
                align: attribute.align,
                not_null: attribute.not_null && !attribute.dropped,
                missing: attribute.missing.as_ref().map_or(MissingValue::Null, value),
                wanted: column_of(index).zip(stored),
            }
        };
        let needed = wanted.iter().map(|index| relation.attribute_of(*index) + 1).max();
        let needed = needed.unwrap_or(0);
        Ok(PagePlan {
            // Checked: at most 32 kB, and 1600 attributes.
            block_bytes: relation.block_bytes as u32,
            checksums: relation.checksums,
            attributes: relation.attributes.len() as u32,
            steps: relation.attributes.iter().enumerate().take(needed).map(step).collect(),
        })
    }
}

fn stored_value(kind: HeapType) -> Option<StoredValue> {
    Some(match kind {
        HeapType::Bool => StoredValue::Bool,
        HeapType::Int2 => StoredValue::Plain(2),
        HeapType::Int4 | HeapType::Float4 => StoredValue::Plain(4),
        HeapType::Int8 | HeapType::Float8 => StoredValue::Plain(8),
        HeapType::Numeric { precision, scale } => StoredValue::Numeric { precision, scale },
        HeapType::Date => StoredValue::Date,
        HeapType::Time => StoredValue::Time,
        HeapType::Timestamp | HeapType::TimestampTz => StoredValue::Timestamp,
        HeapType::Text => StoredValue::Text,
        HeapType::NumericShowing { .. } | HeapType::DigitsShown { .. } => return None,
        HeapType::JsonbField(_) | HeapType::JsonbContains => return None,
        HeapType::Uuid | HeapType::Bytea | HeapType::Presence => return None,
    })
}
