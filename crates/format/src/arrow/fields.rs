//! Columns as a file's schema describes them, from untrusted flatbuffers.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_ipc as ipc;
use arrow_schema::{DataType, Field, Fields, IntervalUnit, TimeUnit, UnionFields, UnionMode};
use flatbuffers::{ForwardsUOffset, Vector};
use headrace_ir::Encoding;

use super::packed::Packed;
use super::types::{encoding, table_type};

/// A column of a file, or a child of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileField {
    /// Name, type, nullability and metadata. A dictionary-encoded field has type `Dictionary`.
    pub field: Field,
    /// Number of the dictionary, for dictionary-encoded fields.
    pub dictionary: Option<i64>,
    /// Children of the type, or of the dictionary's value type.
    pub children: Vec<FileField>,
    /// Whether its values refer to others: codes of a dictionary, ends of runs.
    pub is_positions: bool,
}

/// The number of metadata entries of a field in a record batch, with its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Field nodes.
    pub nodes: usize,
    /// Buffers, without those of variadic types.
    pub buffers: usize,
    /// Entries in the list of variadic buffer counts.
    pub variadics: usize,
}

impl Footprint {
    pub fn plus(self, other: Footprint) -> Footprint {
        Footprint {
            nodes: self.nodes + other.nodes,
            buffers: self.buffers + other.buffers,
            variadics: self.variadics + other.variadics,
        }
    }
}

impl FileField {
    pub fn name(&self) -> &str {
        self.field.name()
    }

    pub fn data_type(&self) -> &DataType {
        self.field.data_type()
    }

    /// Whether a batch states its number of NULLs: a type without its own validity says 0, whatever it contains.
    pub fn counts_nulls(&self) -> bool {
        use DataType::{Null, RunEndEncoded, Union};
        !matches!(self.data_type(), Null | RunEndEncoded(..) | Union(..))
    }

    /// Whether it is a union or contains one.
    pub fn has_union(&self) -> bool {
        let is_union = matches!(self.data_type(), DataType::Union(..));
        is_union || self.children.iter().any(FileField::has_union)
    }

    /// The type of the table's column.
    pub fn table_type(&self) -> DataType {
        table_type(&self.field)
    }

    /// How it is packed, if it is.
    pub fn packed(&self) -> Option<Packed> {
        Packed::of(&self.field)
    }

    /// Its encoding in the pipeline IR; `None` where [`encoding`] is.
    pub fn encoding(&self) -> Option<Encoding> {
        let own = self.data_type();
        if let Some(packed) = self.packed() {
            return Some(packed.encoding());
        }
        match own.primitive_width() {
            Some(bytes @ (1 | 2 | 4)) if own.is_signed_integer() && self.table_type() != *own => {
                Some(Encoding::Narrow { value_bytes: bytes as u8 })
            }
            _ => encoding(own),
        }
    }

    /// The values of this field's dictionary, as a field.
    pub fn dictionary_values(&self) -> Option<FileField> {
        let DataType::Dictionary(_, value) = self.data_type() else { return None };
        Some(FileField {
            field: Field::new(self.name(), value.as_ref().clone(), true),
            dictionary: None,
            children: self.children.clone(),
            is_positions: false,
        })
    }

    /// The codes of this field, as a field.
    pub fn dictionary_codes(&self) -> Option<FileField> {
        let DataType::Dictionary(key, _) = self.data_type() else { return None };
        Some(FileField {
            field: Field::new(self.name(), key.as_ref().clone(), true),
            dictionary: None,
            children: Vec::new(),
            is_positions: true,
        })
    }

    /// Entries in the metadata of a record batch. `unions_have_validity`: metadata version 4.
    pub fn footprint(&self, unions_have_validity: bool) -> Footprint {
        use DataType::*;
        let own = |buffers, variadics| Footprint { nodes: 1, buffers, variadics };
        let own = match self.data_type() {
            Dictionary(_, _) => return own(2, 0),
            Null | RunEndEncoded(_, _) => own(0, 0),
            Utf8 | LargeUtf8 | Binary | LargeBinary | ListView(_) | LargeListView(_) => own(3, 0),
            Utf8View | BinaryView => own(2, 1),
            Struct(_) | FixedSizeList(_, _) => own(1, 0),
            Union(_, mode) => {
                let offsets = usize::from(*mode == UnionMode::Dense);
                own(1 + offsets + usize::from(unions_have_validity), 0)
            }
            _ => own(2, 0),
        };
        self.children.iter().fold(own, |sum, c| sum.plus(c.footprint(unions_have_validity)))
    }

    /// Number and field of every dictionary in this field, including itself.
    pub fn dictionaries(&self) -> Vec<(i64, &FileField)> {
        let own = self.dictionary.map(|id| (id, self));
        own.into_iter().chain(self.children.iter().flat_map(FileField::dictionaries)).collect()
    }
}

type KeyValues<'a> = Option<Vector<'a, ForwardsUOffset<ipc::KeyValue<'a>>>>;

/// Metadata entries as a map; entries without key or value are omitted.
pub(crate) fn metadata(list: KeyValues<'_>) -> HashMap<String, String> {
    let entry = |kv: ipc::KeyValue<'_>| Some((kv.key()?.to_string(), kv.value()?.to_string()));
    list.into_iter().flatten().filter_map(entry).collect()
}

/// All columns of a schema.
///
/// # Errors
/// The inconsistency of the schema, with the column.
pub(crate) fn fields(schema: ipc::Schema<'_>) -> Result<Vec<FileField>, String> {
    if schema.endianness() != ipc::Endianness::Little {
        return Err("values are big-endian; convert the file on a little-endian machine".into());
    }
    schema.fields().into_iter().flatten().map(field).collect()
}

fn field(field: ipc::Field<'_>) -> Result<FileField, String> {
    let name = field.name().unwrap_or_default().to_string();
    let mut children = field
        .children()
        .into_iter()
        .flatten()
        .map(self::field)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|cause| format!("{name}.{cause}"))?;
    if let (ipc::Type::RunEndEncoded, [ends, ..]) = (field.type_type(), children.as_mut_slice()) {
        ends.is_positions = true;
    }
    let values = data_type(field, &children).map_err(|cause| format!("{name}: {cause}"))?;
    let parts = parts_of_a_value(&values);
    if parts > PARTS_MAX {
        return Err(format!(
            "{name}: a value of {parts} parts, of which at most {PARTS_MAX} are read"
        ));
    }
    let (data_type, dictionary) = match field.dictionary() {
        None => (values, None),
        Some(encoding) => {
            let key = match encoding.indexType() {
                None => DataType::Int32,
                Some(int) => integer(int).map_err(|cause| format!("{name}: {cause}"))?,
            };
            (DataType::Dictionary(Box::new(key), Box::new(values)), Some(encoding.id()))
        }
    };
    let field = Field::new(name, data_type, field.nullable())
        .with_metadata(metadata(field.custom_metadata()));
    Ok(FileField { field, dictionary, children, is_positions: false })
}

/// A NULL takes as much space as any other value of a type: more than this indicates a damaged
/// file.
const PARTS_MAX: u64 = 1 << 24;

/// Bytes or values per value of a type, including NULLs.
fn parts_of_a_value(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeBinary(bytes) => u64::try_from(*bytes).unwrap_or(0),
        DataType::FixedSizeList(item, count) => {
            let count = u64::try_from(*count).unwrap_or(0);
            count.saturating_mul(parts_of_a_value(item.data_type()))
        }
        DataType::Struct(fields) => {
            let parts = fields.iter().map(|field| parts_of_a_value(field.data_type()));
            parts.fold(0, u64::saturating_add)
        }
        DataType::Union(fields, _) => {
            let parts = fields.iter().map(|(_, field)| parts_of_a_value(field.data_type()));
            parts.fold(1, u64::saturating_add)
        }
        DataType::RunEndEncoded(_, values) => parts_of_a_value(values.data_type()),
        _ => 1,
    }
}

fn integer(int: ipc::Int<'_>) -> Result<DataType, String> {
    Ok(match (int.bitWidth(), int.is_signed()) {
        (8, true) => DataType::Int8,
        (16, true) => DataType::Int16,
        (32, true) => DataType::Int32,
        (64, true) => DataType::Int64,
        (8, false) => DataType::UInt8,
        (16, false) => DataType::UInt16,
        (32, false) => DataType::UInt32,
        (64, false) => DataType::UInt64,
        (bits, _) => return Err(format!("integer of {bits} bits")),
    })
}

fn data_type(field: ipc::Field<'_>, children: &[FileField]) -> Result<DataType, String> {
    let missing = || "type without description".to_string();
    Ok(match field.type_type() {
        ipc::Type::Null => DataType::Null,
        ipc::Type::Bool => DataType::Boolean,
        ipc::Type::Utf8 => DataType::Utf8,
        ipc::Type::LargeUtf8 => DataType::LargeUtf8,
        ipc::Type::Utf8View => DataType::Utf8View,
        ipc::Type::Binary => DataType::Binary,
        ipc::Type::LargeBinary => DataType::LargeBinary,
        ipc::Type::BinaryView => DataType::BinaryView,
        ipc::Type::Int => integer(field.type_as_int().ok_or_else(missing)?)?,
        ipc::Type::FloatingPoint => {
            match field.type_as_floating_point().ok_or_else(missing)?.precision() {
                ipc::Precision::HALF => DataType::Float16,
                ipc::Precision::SINGLE => DataType::Float32,
                ipc::Precision::DOUBLE => DataType::Float64,
                other => return Err(format!("float of precision {other:?}")),
            }
        }
        ipc::Type::FixedSizeBinary => {
            let bytes = field.type_as_fixed_size_binary().ok_or_else(missing)?.byteWidth();
            DataType::FixedSizeBinary(not_negative("byte width", bytes)?)
        }
        ipc::Type::Decimal => decimal(field.type_as_decimal().ok_or_else(missing)?)?,
        ipc::Type::Date
        | ipc::Type::Time
        | ipc::Type::Timestamp
        | ipc::Type::Interval
        | ipc::Type::Duration => temporal(field)?,
        _ => nested(field, children)?,
    })
}

fn not_negative(what: &str, value: i32) -> Result<i32, String> {
    if value < 0 { Err(format!("{what} {value}")) } else { Ok(value) }
}

fn decimal(decimal: ipc::Decimal<'_>) -> Result<DataType, String> {
    let (bits, precision, scale) = (decimal.bitWidth(), decimal.precision(), decimal.scale());
    let wrong = || format!("decimal({precision},{scale}) of {bits} bits");
    let digits_max = match bits {
        32 => 9,
        64 => 18,
        128 => 38,
        256 => 76,
        _ => return Err(wrong()),
    };
    let scale = i8::try_from(scale).map_err(|_| wrong())?;
    if !(1..=digits_max).contains(&precision) || i32::from(scale) > precision {
        return Err(wrong());
    }
    let precision = precision as u8;
    Ok(match bits {
        32 => DataType::Decimal32(precision, scale),
        64 => DataType::Decimal64(precision, scale),
        128 => DataType::Decimal128(precision, scale),
        _ => DataType::Decimal256(precision, scale),
    })
}

fn time_unit(unit: ipc::TimeUnit) -> Result<TimeUnit, String> {
    Ok(match unit {
        ipc::TimeUnit::SECOND => TimeUnit::Second,
        ipc::TimeUnit::MILLISECOND => TimeUnit::Millisecond,
        ipc::TimeUnit::MICROSECOND => TimeUnit::Microsecond,
        ipc::TimeUnit::NANOSECOND => TimeUnit::Nanosecond,
        other => return Err(format!("time unit {other:?}")),
    })
}

fn temporal(field: ipc::Field<'_>) -> Result<DataType, String> {
    if let Some(date) = field.type_as_date() {
        return Ok(match date.unit() {
            ipc::DateUnit::DAY => DataType::Date32,
            ipc::DateUnit::MILLISECOND => DataType::Date64,
            other => return Err(format!("date unit {other:?}")),
        });
    }
    if let Some(time) = field.type_as_time() {
        let unit = time_unit(time.unit())?;
        return Ok(match (time.bitWidth(), unit) {
            (32, TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
            (64, TimeUnit::Microsecond | TimeUnit::Nanosecond) => DataType::Time64(unit),
            (bits, unit) => return Err(format!("time of {bits} bits in {unit:?}")),
        });
    }
    if let Some(timestamp) = field.type_as_timestamp() {
        let unit = time_unit(timestamp.unit())?;
        // An empty name means what no name means.
        let zone = timestamp.timezone().filter(|name| !name.is_empty()).map(Arc::from);
        return Ok(DataType::Timestamp(unit, zone));
    }
    if let Some(interval) = field.type_as_interval() {
        return Ok(DataType::Interval(match interval.unit() {
            ipc::IntervalUnit::YEAR_MONTH => IntervalUnit::YearMonth,
            ipc::IntervalUnit::DAY_TIME => IntervalUnit::DayTime,
            ipc::IntervalUnit::MONTH_DAY_NANO => IntervalUnit::MonthDayNano,
            other => return Err(format!("interval unit {other:?}")),
        }));
    }
    match field.type_as_duration() {
        Some(duration) => Ok(DataType::Duration(time_unit(duration.unit())?)),
        None => Err("type without description".into()),
    }
}

fn nested(field: ipc::Field<'_>, children: &[FileField]) -> Result<DataType, String> {
    let missing = || "type without description".to_string();
    let child = |i: usize| Arc::new(children[i].field.clone());
    let exactly = |count: usize| match children.len() {
        found if found == count => Ok(()),
        found => Err(format!("{found} children where {count} belong")),
    };
    Ok(match field.type_type() {
        ipc::Type::List => exactly(1).map(|()| DataType::List(child(0)))?,
        ipc::Type::LargeList => exactly(1).map(|()| DataType::LargeList(child(0)))?,
        ipc::Type::ListView => exactly(1).map(|()| DataType::ListView(child(0)))?,
        ipc::Type::LargeListView => exactly(1).map(|()| DataType::LargeListView(child(0)))?,
        ipc::Type::FixedSizeList => {
            exactly(1)?;
            let size = field.type_as_fixed_size_list().ok_or_else(missing)?.listSize();
            DataType::FixedSizeList(child(0), not_negative("list size", size)?)
        }
        ipc::Type::Struct_ => {
            DataType::Struct(children.iter().map(|c| c.field.clone()).collect::<Fields>())
        }
        ipc::Type::Map => {
            exactly(1)?;
            let entries = children[0].data_type();
            if !matches!(entries, DataType::Struct(entries) if entries.len() == 2) {
                return Err(format!("map of {entries}"));
            }
            DataType::Map(child(0), field.type_as_map().ok_or_else(missing)?.keysSorted())
        }
        ipc::Type::RunEndEncoded => {
            exactly(2)?;
            let ends = children[0].data_type();
            if !matches!(ends, DataType::Int16 | DataType::Int32 | DataType::Int64) {
                return Err(format!("run ends of type {ends}"));
            }
            DataType::RunEndEncoded(child(0), child(1))
        }
        ipc::Type::Union => union_type(field.type_as_union().ok_or_else(missing)?, children)?,
        other => return Err(format!("type {other:?} is not known")),
    })
}

fn union_type(union: ipc::Union<'_>, children: &[FileField]) -> Result<DataType, String> {
    let mode = match union.mode() {
        ipc::UnionMode::Sparse => UnionMode::Sparse,
        ipc::UnionMode::Dense => UnionMode::Dense,
        other => return Err(format!("union mode {other:?}")),
    };
    if children.is_empty() {
        return Err("a union of no types".into());
    }
    let ids: Vec<i32> = match union.typeIds() {
        Some(ids) => ids.iter().collect(),
        None => (0..children.len() as i32).collect(),
    };
    if ids.len() != children.len() {
        return Err(format!("{} union type ids for {} children", ids.len(), children.len()));
    }
    let ids = ids
        .into_iter()
        .map(|id| i8::try_from(id).map_err(|_| format!("union type id {id}")))
        .collect::<Result<Vec<i8>, _>>()?;
    let fields = UnionFields::try_new(ids, children.iter().map(|c| c.field.clone()))
        .map_err(|e| e.to_string())?;
    Ok(DataType::Union(fields, mode))
}
