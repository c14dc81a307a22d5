//! Types, by OID.

use headrace_format::heap::{Align, HeapType, Length};
use headrace_ir::{DataType, TimeUnit};
use pgrx::pg_sys::{self, Oid};

use crate::nodes::{self, WhyNot, why_not};

/// Bytes of the header that a type modifier counts.
pub const VARHDRSZ: i32 = 4;

/// The type of pipelines that has the values of two integers' types.
pub fn wider_integer(a: &DataType, b: &DataType) -> Option<DataType> {
    let is_wider = a.plain_width_bytes() > b.plain_width_bytes();
    let are_integers = a.is_signed_integer() && b.is_signed_integer();
    are_integers.then(|| if is_wider { a.clone() } else { b.clone() })
}

/// The type of decimals with all digits of two others', or as many as there are.
pub fn wider_decimal(a: &DataType, b: &DataType) -> Option<DataType> {
    let (
        &DataType::Decimal128 { precision: p, scale: s },
        &DataType::Decimal128 { precision: q, scale: t },
    ) = (a, b)
    else {
        return None;
    };
    let (whole, scale) = ((p as i8 - s).max(q as i8 - t), s.max(t));
    let precision = (whole + scale).clamp(1, 38) as u8;
    Some(DataType::Decimal128 { precision, scale })
}

/// The type as SQL names it.
pub unsafe fn name_of(oid: Oid, typmod: i32) -> String {
    nodes::owned(pg_sys::format_type_with_typemod(oid, typmod))
}

/// The type that values are stored as: of a domain the one that it is over, of an enum its number of a label, which
/// `anyenum` stands for.
pub unsafe fn stored(oid: Oid, mut typmod: i32) -> (Oid, i32) {
    if oid.to_u32() < pg_sys::FirstNormalObjectId {
        return (oid, typmod);
    }
    let base = pg_sys::getBaseTypeAndTypmod(oid, &raw mut typmod);
    match base {
        // Blanks at its ends would have to be known of a domain, too.
        pg_sys::BPCHAROID => (oid, typmod),
        _ if pg_sys::get_typtype(base) as u8 == pg_sys::TYPTYPE_ENUM => (pg_sys::ANYENUMOID, -1),
        _ => (base, typmod),
    }
}

/// How a stored value of a type is read; `None` for types that cannot be.
pub unsafe fn heap_type(oid: Oid, typmod: i32) -> Option<HeapType> {
    let (oid, typmod) = stored(oid, typmod);
    Some(match oid {
        pg_sys::BOOLOID => HeapType::Bool,
        pg_sys::INT2OID => HeapType::Int2,
        // Numbers of labels are equal where they are; their order is no one's.
        pg_sys::INT4OID | pg_sys::ANYENUMOID => HeapType::Int4,
        pg_sys::INT8OID => HeapType::Int8,
        pg_sys::FLOAT4OID => HeapType::Float4,
        pg_sys::FLOAT8OID => HeapType::Float8,
        pg_sys::NUMERICOID => {
            let (precision, scale) = declared_digits(typmod)?;
            HeapType::Numeric { precision, scale }
        }
        pg_sys::DATEOID => HeapType::Date,
        pg_sys::TIMEOID => HeapType::Time,
        pg_sys::TIMESTAMPOID => HeapType::Timestamp,
        pg_sys::TIMESTAMPTZOID => HeapType::TimestampTz,
        pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID => HeapType::Text,
        pg_sys::UUIDOID => HeapType::Uuid,
        _ => return None,
    })
}

/// Digits in all and behind the point of a declared `numeric` of which every value is a decimal of
/// 128 bits and shows all digits behind the point.
pub fn declared_digits(typmod: i32) -> Option<(u8, i8)> {
    let modifier = typmod.checked_sub(VARHDRSZ).filter(|modifier| *modifier >= 0)?;
    let precision = u8::try_from(modifier >> 16).ok().filter(|p| (1..=38).contains(p))?;
    // The scale's 11 bits have a sign.
    let scale = ((modifier & 0x7ff) ^ 1024) - 1024;
    let scale = i8::try_from(scale).ok().filter(|s| (0..=precision as i8).contains(s))?;
    Some((precision, scale))
}

/// The type of pipelines that has exactly a type's values.
///
/// # Errors
/// There is none, or not in this database.
pub unsafe fn ir_type(oid: Oid, typmod: i32) -> Result<DataType, WhyNot> {
    let unit = TimeUnit::Microsecond;
    Ok(match heap_type(oid, typmod) {
        Some(HeapType::Bool) => DataType::Bool,
        Some(HeapType::Int2) => DataType::Int16,
        Some(HeapType::Int4) => DataType::Int32,
        Some(HeapType::Int8) => DataType::Int64,
        Some(HeapType::Float4) => DataType::Float32,
        Some(HeapType::Float8) => DataType::Float64,
        Some(HeapType::Numeric { precision, scale }) => DataType::Decimal128 { precision, scale },
        Some(HeapType::Date) => DataType::Date32,
        Some(HeapType::Time) => DataType::Time64(unit),
        Some(HeapType::Timestamp) => DataType::Timestamp { unit, timezone: None },
        Some(HeapType::TimestampTz) => DataType::Timestamp { unit, timezone: Some("UTC".into()) },
        Some(HeapType::Text) if is_utf8() => DataType::Utf8,
        Some(HeapType::Text) => return why_not("text of a database whose encoding is not UTF8"),
        // Its text, whose order is its own, of ASCII in whatever encoding.
        Some(HeapType::Uuid) => DataType::Utf8,
        // What a column's statistics, or what is asked of it, make of it.
        Some(HeapType::NumericShowing { .. } | HeapType::DigitsShown { .. })
        | Some(HeapType::JsonbField(_) | HeapType::JsonbContains)
        | Some(HeapType::Bytea | HeapType::Presence)
        | None => {
            let without_scale = stored(oid, typmod) == (pg_sys::NUMERICOID, -1);
            let name = name_of(oid, typmod);
            return why_not(match without_scale {
                true => "numeric without a declared scale".into(),
                false => format!("type {name}"),
            });
        }
    })
}

unsafe fn is_utf8() -> bool {
    pg_sys::GetDatabaseEncoding() == pg_sys::pg_enc::PG_UTF8 as i32
}

/// Whether equal texts of a collation are equal bytes.
pub unsafe fn is_deterministic(collation: Oid) -> bool {
    collation == Oid::INVALID || pg_sys::get_collation_isdeterministic(collation)
}

/// Whether equal values of a type are equal bytes, as far as blanks at the ends of `bpchar` matter: they are padded
/// to the declared length, if there is one.
pub fn is_of_one_length(oid: Oid, typmod: i32) -> bool {
    oid != pg_sys::BPCHAROID || typmod >= VARHDRSZ
}

/// A column of a stored tuple, as its table's descriptor has it.
pub struct HeapColumn {
    /// How its values are read; of those that cannot be, whether they are there.
    pub kind: Option<HeapType>,
    /// Their length.
    pub length: Length,
    /// Their alignment.
    pub align: Align,
}

impl HeapColumn {
    /// Of a column's type; the reason for lengths and alignments that PostgreSQL does not have.
    pub unsafe fn of(attribute: &pg_sys::FormData_pg_attribute) -> Result<Self, WhyNot> {
        let length = match attribute.attlen {
            -1 => Length::Varlena,
            -2 => Length::CString,
            bytes => match u16::try_from(bytes) {
                Ok(bytes) => Length::Fixed(bytes),
                Err(_) => return why_not(format!("an attribute of length {bytes}")),
            },
        };
        let align = match attribute.attalign as u8 {
            b'c' => Align::Char,
            b's' => Align::Short,
            b'i' => Align::Int,
            b'd' => Align::Double,
            other => return why_not(format!("an attribute of alignment {other}")),
        };
        let kind = match attribute.attisdropped {
            true => None,
            false => {
                let kind = heap_type(attribute.atttypid, attribute.atttypmod);
                let kind = kind.filter(|kind| *kind != HeapType::Text || is_utf8());
                Some(kind.unwrap_or(HeapType::Presence))
            }
        };
        Ok(Self { kind, length, align })
    }
}
