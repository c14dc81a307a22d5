//! The description of a relation for a decoder.

use arrow_schema::{DataType, Field, TimeUnit};
use serde::{Deserialize, Serialize};

pub use headrace_ir::pages::{Align, Length};

use super::jsonb::JsonbQuery;
use super::jsonb::JsonbType;
use crate::{FormatError, Result};

/// A table's properties that affect its blocks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Relation {
    /// Bytes of a block: a power of two from 1024 to 32768 (`block_size`, usually 8192).
    pub block_bytes: usize,
    /// Whether the cluster has data checksums (`data_checksums`).
    pub checksums: bool,
    /// All attributes in order of `attnum`, dropped ones too.
    pub attributes: Vec<Attribute>,
    /// Additional columns derived from attributes. Their positions continue those of the
    /// attributes.
    pub derived: Vec<Derived>,
}

/// A column that is derived from an attribute.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Derived {
    /// The attribute's position.
    pub attribute: usize,
    /// The name of the Arrow field.
    pub name: String,
    /// The derived type, with the attribute's length and alignment.
    pub kind: HeapType,
    /// The query on documents.
    pub query: Option<JsonbQuery>,
}

/// A column as `pg_attribute` has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attribute {
    /// `attname`, the name of the Arrow field.
    pub name: String,
    /// The type of a value; None: a type that can only be skipped.
    pub kind: Option<HeapType>,
    /// `attlen`.
    pub length: Length,
    /// `attalign`.
    pub align: Align,
    /// `attisdropped`: tuples still have values of it, which cannot be wanted.
    pub dropped: bool,
    /// `attnotnull`, and the constraint is validated (PostgreSQL 18 has others).
    pub not_null: bool,
    /// `attmissingval`: the value in tuples that were written before the column was added with a
    /// constant default. As stored, without a varlena header, neither compressed nor external.
    /// None: NULL.
    pub missing: Option<Vec<u8>>,
}

/// The decodable types and their Arrow types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeapType {
    /// `bool` → Boolean.
    Bool,
    /// `int2` → Int16.
    Int2,
    /// `int4` → Int32.
    Int4,
    /// `int8` → Int64.
    Int8,
    /// `float4` → Float32, bit for bit.
    Float4,
    /// `float8` → Float64, bit for bit.
    Float8,
    /// `numeric(precision, scale)` → Decimal128. NaN, infinities and values that the type cannot
    /// hold exactly are rerouted. A value's display scale is not kept: for a column without a
    /// declared scale the caller must not need it. Precision 1 to 38, scale at most the precision
    /// and possibly negative.
    Numeric {
        /// Precision.
        precision: u8,
        /// Scale.
        scale: i8,
    },
    /// `numeric` → Decimal128, as above; values with another display scale are rerouted too.
    NumericShowing {
        /// Precision.
        precision: u8,
        /// Scale, which is also each value's display scale.
        scale: i8,
    },
    /// `numeric` → Int32: the display scale of a value. NaN, infinities, and values with a larger scale are
    /// rerouted.
    DigitsShown {
        /// The maximum.
        most: u8,
    },
    /// `date` → Date32, days from 1970. Infinities are rerouted.
    Date,
    /// `time` → Time64, microseconds. 24:00:00, which Arrow does not have, is rerouted.
    Time,
    /// `timestamp` → Timestamp, microseconds from 1970. Infinities, and values beyond 64 bits, are
    /// rerouted.
    Timestamp,
    /// `timestamptz` → Timestamp in UTC, as above.
    TimestampTz,
    /// `text`, `varchar`, `bpchar` (with its blanks) → Utf8. The database's encoding must be UTF8;
    /// invalid UTF-8 is rerouted.
    Text,
    /// `uuid` → Utf8: its text ([`uuid`](super::uuid)), which sorts the same way.
    Uuid,
    /// `bytea` → Binary.
    Bytea,
    /// A field of a `jsonb`, NULL if it is missing; derived by [`JsonbQuery::Field`]. Fields that are objects or
    /// arrays, or cannot be cast, are rerouted. The database's encoding must be UTF8.
    JsonbField(JsonbType),
    /// `jsonb` → Boolean: whether it has fields with certain values; derived by [`JsonbQuery::Contains`].
    JsonbContains,
    /// Any type → Boolean: true for a non-NULL value.
    Presence,
}

impl HeapType {
    /// The Arrow type of a column of this type.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Bool | Self::Presence | Self::JsonbContains => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 | Self::DigitsShown { .. } => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Numeric { precision, scale } | Self::NumericShowing { precision, scale } => {
                DataType::Decimal128(precision, scale)
            }
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Text | Self::Uuid => DataType::Utf8,
            Self::JsonbField(of) => of.arrow(),
            Self::Bytea => DataType::Binary,
        }
    }

    /// Length and alignment, `typlen` and `typalign`. `Presence` is virtual and uses bool's layout.
    pub fn stored(self) -> (Length, Align) {
        match self {
            Self::Bool | Self::Presence => (Length::Fixed(1), Align::Char),
            Self::Int2 => (Length::Fixed(2), Align::Short),
            Self::Int4 | Self::Float4 | Self::Date => (Length::Fixed(4), Align::Int),
            Self::Int8 | Self::Float8 | Self::Time | Self::Timestamp | Self::TimestampTz => {
                (Length::Fixed(8), Align::Double)
            }
            Self::Uuid => (Length::Fixed(16), Align::Char),
            Self::Numeric { .. } | Self::NumericShowing { .. } | Self::DigitsShown { .. } => {
                (Length::Varlena, Align::Int)
            }
            Self::Text | Self::Bytea | Self::JsonbField(_) | Self::JsonbContains => {
                (Length::Varlena, Align::Int)
            }
        }
    }
}

/// The limit of `MaxHeapAttributeNumber`.
const MAX_ATTRIBUTES: usize = 1600;

impl Relation {
    /// A table's columns in order, with their names: the decodable attributes that were not dropped,
    /// then the derived columns.
    pub fn columns(&self) -> impl Iterator<Item = (&str, HeapType)> {
        let present = self.attributes.iter().filter(|attribute| !attribute.dropped);
        let values =
            present.filter_map(|attribute| Some((attribute.name.as_str(), attribute.kind?)));
        values.chain(self.derived.iter().map(|derived| (derived.name.as_str(), derived.kind)))
    }

    /// The position of a column.
    pub(super) fn position(&self, name: &str, kind: HeapType) -> Option<usize> {
        let is_wanted = |own: &str, of: Option<HeapType>| own == name && of == Some(kind);
        let is_value = |own: &Attribute| !own.dropped && is_wanted(&own.name, own.kind);
        let value = self.attributes.iter().position(is_value);
        value.or_else(|| {
            let is_derived = |own: &Derived| is_wanted(&own.name, Some(own.kind));
            Some(self.attributes.len() + self.derived.iter().position(is_derived)?)
        })
    }

    /// The position of the attribute that a column is decoded from, which is itself unless it is
    /// derived.
    pub fn attribute_of(&self, column: usize) -> usize {
        let derived = column.checked_sub(self.attributes.len()).and_then(|at| self.derived.get(at));
        derived.map_or(column, |derived| derived.attribute)
    }

    /// The type that a column is decoded to, if possible.
    pub fn kind_of(&self, column: usize) -> Option<HeapType> {
        match column.checked_sub(self.attributes.len()) {
            Some(at) => self.derived.get(at).map(|derived| derived.kind),
            None => self.attributes[column].kind,
        }
    }

    /// The query on a column's documents.
    pub fn query_of(&self, column: usize) -> Option<&JsonbQuery> {
        let at = column.checked_sub(self.attributes.len())?;
        self.derived.get(at)?.query.as_ref()
    }

    /// The name of a column's field.
    pub(super) fn name_of(&self, column: usize) -> &str {
        let derived = column.checked_sub(self.attributes.len()).and_then(|at| self.derived.get(at));
        derived.map_or_else(|| &self.attributes[column].name, |derived| &derived.name).as_str()
    }

    /// The attributes' types, or why columns `wanted` of such a relation cannot be decoded.
    pub(super) fn check(&self, wanted: &[usize]) -> Result<Vec<HeapType>> {
        if !self.block_bytes.is_power_of_two() || !(1024..=32768).contains(&self.block_bytes) {
            let found = self.block_bytes;
            return Err(argument(format!("blocks of {found} bytes: PostgreSQL has 1024 to 32768")));
        }
        if self.attributes.len() > MAX_ATTRIBUTES {
            let found = self.attributes.len();
            return Err(argument(format!("{found} attributes: a table has at most 1600")));
        }
        let kinds = wanted.iter().enumerate().map(|(i, &index)| {
            if wanted[..i].contains(&index) {
                return Err(argument(format!("attribute {index} is wanted twice")));
            }
            let missing = || argument(format!("no attribute {index} in the relation"));
            let attribute = self.attributes.get(self.attribute_of(index)).ok_or_else(missing)?;
            match index.checked_sub(self.attributes.len()) {
                Some(at) => {
                    let Derived { kind, query, .. } = &self.derived[at];
                    let is_asked = match kind {
                        HeapType::JsonbField(own) => {
                            matches!(query, Some(JsonbQuery::Field { of, .. }) if of == own)
                        }
                        HeapType::JsonbContains => matches!(query, Some(JsonbQuery::Contains(_))),
                        _ => query.is_none(),
                    };
                    if !is_asked {
                        return Err(argument(format!("column {index} is not what is asked for")));
                    }
                    attribute.check(Some(*kind))
                }
                None => attribute.check(attribute.kind),
            }
        });
        kinds.collect()
    }
}

impl Attribute {
    fn check(&self, kind: Option<HeapType>) -> Result<HeapType> {
        let refuse = |cause: &str| Err(FormatError::column(&self.name, cause));
        let Some(kind) = kind else {
            return refuse("its type cannot be decoded: do not ask for it");
        };
        if self.dropped {
            return refuse("the column was dropped");
        }
        if kind != HeapType::Presence && kind.stored() != (self.length, self.align) {
            return refuse("its length or alignment is not that of its type");
        }
        match kind {
            HeapType::JsonbField(_) | HeapType::JsonbContains if self.kind == Some(kind) => {
                refuse("of a jsonb only parts are decoded")
            }
            HeapType::Numeric { precision, scale }
            | HeapType::NumericShowing { precision, scale }
                if !(1..=38).contains(&precision)
                    || scale < -38
                    || i16::from(scale) > i16::from(precision) =>
            {
                refuse("its precision and scale are not those of a Decimal128")
            }
            _ => Ok(kind),
        }
    }

    pub(super) fn field(&self, name: &str, kind: HeapType) -> Field {
        Field::new(name, kind.arrow(), !self.not_null || matches!(kind, HeapType::JsonbField(_)))
    }
}

fn argument(cause: String) -> FormatError {
    FormatError::Argument(format!("heap relation: {cause}"))
}
