//! One wanted column: its values so far, in Arrow's layout.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder};
use arrow_schema::ArrowError;

use super::Reroute;
use super::bytes::{array, gather};
use super::fields::{FieldColumn, Refused};
use super::jsonb::{self, JsonbQuery};
use super::memory::{give, reuse};
use super::numeric;
use super::pieces::Pieces;
use super::relation::{HeapType, Length};
use super::stored::{boolean, date, time, timestamp};
use super::uuid;
use super::varlena::{Content, content};
use super::walk::{MISSING, NULL};

type Flaw = &'static str;

const NOT_ASKED: Flaw = "nothing is asked of a jsonb";

const OTHER_DIGITS: Flaw = "a numeric shows other digits behind the point than it should";

/// The values of one wanted attribute.
#[derive(Debug)]
pub(super) struct Column {
    attribute: usize,
    /// The slot of the attribute's positions.
    slot: usize,
    values: Values,
    valid: NullBufferBuilder,
    /// The memory of the previous batch, reused as soon as it has no other owner: so a batch is
    /// processed where the previous one was, in the core's cache, and memory grows only once.
    given: Vec<Buffer>,
    /// The default of tuples that are older than the column.
    missing: Vec<u8>,
    /// The query on documents.
    query: Option<JsonbQuery>,
}

#[derive(Debug)]
enum Values {
    Bool(Vec<bool>),
    Presence(Vec<bool>),
    Int2(Vec<i16>),
    Int4(Vec<i32>),
    Int8(Vec<i64>),
    Float4(Vec<f32>),
    Float8(Vec<f64>),
    Numeric {
        values: Vec<i128>,
        precision: u8,
        scale: i8,
        /// Whether each value must have this display scale.
        is_shown: bool,
    },
    DigitsShown {
        counts: Vec<i32>,
        most: u8,
    },
    Date(Vec<i32>),
    Time(Vec<i64>),
    Timestamp(Vec<i64>),
    TimestampTz(Vec<i64>),
    Text(Pieces),
    /// Their texts.
    Uuid(Pieces),
    Bytea(Pieces),
    JsonbField(FieldColumn),
    JsonbContains {
        answers: Vec<bool>,
        /// A number's text.
        text: Vec<u8>,
    },
}

/// The rows of a page for a column: their positions and other inputs.
#[derive(Clone, Copy)]
struct Rows<'a> {
    page: &'a [u8],
    places: &'a [u16],
    gaps: bool,
    missing: &'a [u8],
    query: Option<&'a JsonbQuery>,
}

impl Column {
    pub(super) fn new(
        (attribute, slot): (usize, usize),
        kind: HeapType,
        missing: Option<&[u8]>,
        query: Option<JsonbQuery>,
    ) -> Self {
        Self {
            attribute,
            slot,
            values: Values::new(kind),
            given: Vec::new(),
            valid: NullBufferBuilder::new(0),
            missing: missing.unwrap_or_default().to_vec(),
            query,
        }
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Appends the values at `places` of the page. After an error some may have been appended.
    pub(super) fn append(
        &mut self,
        page: &[u8],
        (places, gaps): (&[u16], bool),
        expanded: &mut Vec<u8>,
    ) -> Result<(), Reroute> {
        let attribute = self.attribute;
        if !self.given.is_empty() {
            self.values.grow_into(std::mem::take(&mut self.given));
        }
        let (missing, query) = (&self.missing[..], self.query.as_ref());
        let rows = Rows { page, places, gaps, missing, query };
        self.values.append(rows, expanded, attribute)?;
        if gaps {
            places.iter().for_each(|place| self.valid.append(*place != NULL));
        } else {
            self.valid.append_n_non_nulls(places.len());
        }
        Ok(())
    }

    /// Bytes of its `rows` values here.
    pub(super) fn values_bytes(&self, rows: usize) -> usize {
        match (&self.values, self.values.kind().stored().0) {
            (Values::JsonbField(fields), _) => fields.values_bytes(rows),
            (Values::Text(pieces) | Values::Uuid(pieces) | Values::Bytea(pieces), _) => {
                rows * size_of::<i32>() + pieces.bytes_len()
            }
            (_, Length::Fixed(bytes)) => rows * usize::from(bytes),
            _ => rows * size_of::<i128>(),
        }
    }

    /// Drops all rows from `rows` on.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        self.valid.truncate(rows);
    }

    /// The array of all rows; empties the column.
    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let valid = self.valid.finish();
        let kind = self.values.kind();
        std::mem::replace(&mut self.values, Values::new(kind)).into_array(valid, &mut self.given)
    }
}

impl Values {
    fn new(kind: HeapType) -> Self {
        match kind {
            HeapType::Bool => Self::Bool(Vec::new()),
            HeapType::Presence => Self::Presence(Vec::new()),
            HeapType::Int2 => Self::Int2(Vec::new()),
            HeapType::Int4 => Self::Int4(Vec::new()),
            HeapType::Int8 => Self::Int8(Vec::new()),
            HeapType::Float4 => Self::Float4(Vec::new()),
            HeapType::Float8 => Self::Float8(Vec::new()),
            HeapType::Numeric { precision, scale } => {
                Self::Numeric { values: Vec::new(), precision, scale, is_shown: false }
            }
            HeapType::NumericShowing { precision, scale } => {
                Self::Numeric { values: Vec::new(), precision, scale, is_shown: true }
            }
            HeapType::DigitsShown { most } => Self::DigitsShown { counts: Vec::new(), most },
            HeapType::Date => Self::Date(Vec::new()),
            HeapType::Time => Self::Time(Vec::new()),
            HeapType::Timestamp => Self::Timestamp(Vec::new()),
            HeapType::TimestampTz => Self::TimestampTz(Vec::new()),
            HeapType::Text => Self::Text(Pieces::new()),
            HeapType::Uuid => Self::Uuid(Pieces::new()),
            HeapType::Bytea => Self::Bytea(Pieces::new()),
            HeapType::JsonbField(of) => Self::JsonbField(FieldColumn::new(of)),
            HeapType::JsonbContains => {
                Self::JsonbContains { answers: Vec::new(), text: Vec::new() }
            }
        }
    }

    fn kind(&self) -> HeapType {
        match self {
            Self::Bool(_) => HeapType::Bool,
            Self::Presence(_) => HeapType::Presence,
            Self::Int2(_) => HeapType::Int2,
            Self::Int4(_) => HeapType::Int4,
            Self::Int8(_) => HeapType::Int8,
            Self::Float4(_) => HeapType::Float4,
            Self::Float8(_) => HeapType::Float8,
            &Self::Numeric { precision, scale, is_shown: false, .. } => {
                HeapType::Numeric { precision, scale }
            }
            &Self::Numeric { precision, scale, is_shown: true, .. } => {
                HeapType::NumericShowing { precision, scale }
            }
            &Self::DigitsShown { most, .. } => HeapType::DigitsShown { most },
            Self::Date(_) => HeapType::Date,
            Self::Time(_) => HeapType::Time,
            Self::Timestamp(_) => HeapType::Timestamp,
            Self::TimestampTz(_) => HeapType::TimestampTz,
            Self::Text(_) => HeapType::Text,
            Self::Uuid(_) => HeapType::Uuid,
            Self::Bytea(_) => HeapType::Bytea,
            Self::JsonbField(fields) => HeapType::JsonbField(fields.of),
            Self::JsonbContains { .. } => HeapType::JsonbContains,
        }
    }

    fn append(
        &mut self,
        rows: Rows<'_>,
        expanded: &mut Vec<u8>,
        attribute: usize,
    ) -> Result<(), Reroute> {
        let value = |flaw| Reroute::Value { attribute, flaw };
        match self {
            Self::Bool(values) => rows.fixed(values, boolean).map_err(value),
            Self::Presence(values) => {
                values.resize(values.len() + rows.places.len(), true);
                Ok(())
            }
            Self::Int2(values) => {
                rows.fixed(values, |bytes| Ok(i16::from_le_bytes(bytes))).map_err(value)
            }
            Self::Int4(values) => {
                rows.fixed(values, |bytes| Ok(i32::from_le_bytes(bytes))).map_err(value)
            }
            Self::Int8(values) => {
                rows.fixed(values, |bytes| Ok(i64::from_le_bytes(bytes))).map_err(value)
            }
            Self::Float4(values) => {
                rows.fixed(values, |bytes| Ok(f32::from_le_bytes(bytes))).map_err(value)
            }
            Self::Float8(values) => {
                rows.fixed(values, |bytes| Ok(f64::from_le_bytes(bytes))).map_err(value)
            }
            Self::Date(values) => rows.fixed(values, date).map_err(value),
            Self::Time(values) => rows.fixed(values, time).map_err(value),
            Self::Timestamp(values) | Self::TimestampTz(values) => {
                rows.fixed(values, timestamp).map_err(value)
            }
            Self::Numeric { values, precision, scale, is_shown } => {
                rows.variable(expanded, attribute, |content| {
                    let read = |content: &[u8]| {
                        if *is_shown && numeric::digits_shown(content)? != i32::from(*scale) {
                            return Err(OTHER_DIGITS);
                        }
                        numeric::decimal(content, *precision, *scale)
                    };
                    values.push(content.map_or(Ok(0), read).map_err(value)?);
                    Ok(())
                })
            }
            Self::DigitsShown { counts, most } => rows.variable(expanded, attribute, |content| {
                let count = content.map_or(Ok(0), numeric::digits_shown).map_err(value)?;
                if count > i32::from(*most) {
                    return Err(value(OTHER_DIGITS));
                }
                counts.push(count);
                Ok(())
            }),
            Self::Text(pieces) => rows.variable(expanded, attribute, |content| {
                let content = content.unwrap_or_default();
                std::str::from_utf8(content).map_err(|_| value("a text is not UTF-8"))?;
                pieces.push(content).ok_or(Reroute::BatchFull { attribute })
            }),
            Self::Uuid(pieces) => rows.places.iter().try_for_each(|place| {
                let text = rows.stored(*place).map_err(value)?.map(uuid::text);
                let content = text.as_ref().map_or(&[][..], |text| text);
                pieces.push(content).ok_or(Reroute::BatchFull { attribute })
            }),
            Self::Bytea(pieces) => rows.variable(expanded, attribute, |content| {
                let content = content.unwrap_or_default();
                pieces.push(content).ok_or(Reroute::BatchFull { attribute })
            }),
            Self::JsonbField(fields) => {
                let Some(JsonbQuery::Field { path, .. }) = rows.query else {
                    return Err(value(NOT_ASKED));
                };
                rows.variable(expanded, attribute, |document| {
                    fields.push(document, path).map_err(|refused| match refused {
                        Refused::Flaw(flaw) => value(flaw),
                        Refused::Full => Reroute::BatchFull { attribute },
                    })
                })
            }
            Self::JsonbContains { answers, text } => {
                let Some(JsonbQuery::Contains(wanted)) = rows.query else {
                    return Err(value(NOT_ASKED));
                };
                rows.variable(expanded, attribute, |document| {
                    let read = |document| jsonb::contains(document, wanted, text);
                    answers.push(document.map_or(Ok(false), read).map_err(value)?);
                    Ok(())
                })
            }
        }
    }

    fn truncate(&mut self, rows: usize) {
        match self {
            Self::Bool(values) | Self::Presence(values) => values.truncate(rows),
            Self::Int2(values) => values.truncate(rows),
            Self::Int4(values) | Self::Date(values) | Self::DigitsShown { counts: values, .. } => {
                values.truncate(rows);
            }
            Self::Int8(values)
            | Self::Time(values)
            | Self::Timestamp(values)
            | Self::TimestampTz(values) => values.truncate(rows),
            Self::Float4(values) => values.truncate(rows),
            Self::Float8(values) => values.truncate(rows),
            Self::Numeric { values, .. } => values.truncate(rows),
            Self::Text(pieces) | Self::Uuid(pieces) | Self::Bytea(pieces) => pieces.truncate(rows),
            Self::JsonbField(fields) => fields.truncate(rows),
            Self::JsonbContains { answers, .. } => answers.truncate(rows),
        }
    }

    /// Reuses the memory of former values, while there are none.
    fn grow_into(&mut self, given: Vec<Buffer>) {
        let mut given = given.into_iter();
        match self {
            // Become bits.
            Self::Bool(_) | Self::Presence(_) | Self::JsonbContains { .. } => {}
            Self::Int2(values) => reuse(values, given.next()),
            Self::Int4(values) | Self::Date(values) | Self::DigitsShown { counts: values, .. } => {
                reuse(values, given.next());
            }
            Self::Int8(values)
            | Self::Time(values)
            | Self::Timestamp(values)
            | Self::TimestampTz(values) => reuse(values, given.next()),
            Self::Float4(values) => reuse(values, given.next()),
            Self::Float8(values) => reuse(values, given.next()),
            Self::Numeric { values, .. } => reuse(values, given.next()),
            Self::JsonbField(_) => {}
            Self::Text(pieces) | Self::Uuid(pieces) | Self::Bytea(pieces) => {
                pieces.grow_into(given.next(), given.next());
            }
        }
    }

    /// The array, and its memory for reuse.
    fn into_array(
        self,
        valid: Option<NullBuffer>,
        given: &mut Vec<Buffer>,
    ) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Bool(values)
            | Self::Presence(values)
            | Self::JsonbContains { answers: values, .. } => {
                Arc::new(BooleanArray::new(values.into(), valid))
            }
            Self::Int2(values) => Arc::new(Int16Array::try_new(give(values, given), valid)?),
            Self::Int4(values) | Self::DigitsShown { counts: values, .. } => {
                Arc::new(Int32Array::try_new(give(values, given), valid)?)
            }
            Self::Int8(values) => Arc::new(Int64Array::try_new(give(values, given), valid)?),
            Self::Float4(values) => Arc::new(Float32Array::try_new(give(values, given), valid)?),
            Self::Float8(values) => Arc::new(Float64Array::try_new(give(values, given), valid)?),
            Self::Numeric { values, precision, scale, .. } => Arc::new(
                Decimal128Array::try_new(give(values, given), valid)?
                    .with_precision_and_scale(precision, scale)?,
            ),
            Self::Date(values) => Arc::new(Date32Array::try_new(give(values, given), valid)?),
            Self::Time(values) => {
                Arc::new(Time64MicrosecondArray::try_new(give(values, given), valid)?)
            }
            Self::Timestamp(values) => {
                Arc::new(TimestampMicrosecondArray::try_new(give(values, given), valid)?)
            }
            Self::TimestampTz(values) => Arc::new(
                TimestampMicrosecondArray::try_new(give(values, given), valid)?
                    .with_timezone("UTC"),
            ),
            Self::Text(pieces) | Self::Uuid(pieces) => {
                let (offsets, bytes) = pieces.into_buffers(given);
                Arc::new(StringArray::try_new(offsets, bytes, valid)?)
            }
            Self::JsonbField(fields) => fields.into_array()?,
            Self::Bytea(pieces) => {
                let (offsets, bytes) = pieces.into_buffers(given);
                Arc::new(BinaryArray::try_new(offsets, bytes, valid)?)
            }
        })
    }
}

impl Rows<'_> {
    const CUT: Flaw = "a value is longer than its page";

    /// Appends values of `N` bytes; a default where a value is NULL.
    #[inline]
    fn fixed<const N: usize, T: Copy + Default>(
        self,
        values: &mut Vec<T>,
        convert: impl Fn([u8; N]) -> Result<T, Flaw>,
    ) -> Result<(), Flaw> {
        if !self.gaps {
            let mut outcome = Ok(());
            let stored = gather(self.page, self.places, 0).ok_or(Self::CUT)?;
            values.extend(stored.map(|bytes| {
                convert(bytes).unwrap_or_else(|flaw| {
                    outcome = Err(flaw);
                    T::default()
                })
            }));
            return outcome;
        }
        for place in self.places {
            values.push(match self.stored(*place)? {
                None => T::default(),
                Some(bytes) => convert(bytes)?,
            });
        }
        Ok(())
    }

    /// The value of `N` bytes at a position; None for NULL.
    #[inline]
    fn stored<const N: usize>(self, place: u16) -> Result<Option<[u8; N]>, Flaw> {
        let bytes = match place {
            NULL => return Ok(None),
            MISSING => array(self.missing, 0),
            place => array(self.page, usize::from(place)),
        };
        bytes.map(Some).ok_or(Self::CUT)
    }

    /// Delivers each value's content, None for NULL.
    #[inline]
    fn variable(
        self,
        expanded: &mut Vec<u8>,
        attribute: usize,
        mut take: impl FnMut(Option<&[u8]>) -> Result<(), Reroute>,
    ) -> Result<(), Reroute> {
        let value = |flaw| Reroute::Value { attribute, flaw };
        for place in self.places {
            match *place {
                NULL => take(None)?,
                MISSING => take(Some(self.missing))?,
                place => match content(self.page, usize::from(place)).map_err(value)? {
                    Content::Plain(content) => take(Some(content))?,
                    Content::Compressed(compressed) => {
                        expanded.clear();
                        expanded.resize(compressed.raw_bytes, 0);
                        compressed.expand(expanded).map_err(value)?;
                        take(Some(expanded))?;
                    }
                    Content::External => return Err(Reroute::External { attribute }),
                },
            }
        }
        Ok(())
    }
}
