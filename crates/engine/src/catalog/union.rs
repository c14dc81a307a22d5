//! One set of columns for the files of a table.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::common::Result;

use super::format::Format;
use super::refusal::refused;

/// The columns of all files, by name, in the order in which they appear. A column that a file does not have
/// is NULL there. Types may differ as far as the values of both fit one type.
///
/// # Errors
/// Two files and a column whose types do not fit.
pub fn unite(format: Format, files: &[(&Path, &Schema)]) -> Result<Schema> {
    let mut fields: Vec<(Field, &Path)> = Vec::new();
    // Of each name: its place in them, and how many files have it.
    let mut names: HashMap<&str, (usize, usize)> = HashMap::new();
    for (path, schema) in files {
        for named in schema.fields() {
            let field = named.as_ref().clone().with_metadata(Default::default());
            let (place, files) = names.entry(named.name()).or_insert((fields.len(), 0));
            *files += 1;
            let Some((known, first)) = fields.get_mut(*place) else {
                fields.push((field, path));
                continue;
            };
            let Some(data_type) = wider(format, known.data_type(), field.data_type()) else {
                let cause = format!(
                    "column {}: its type is {}, and {} in {}",
                    field.name(),
                    field.data_type(),
                    known.data_type(),
                    first.display()
                );
                return Err(refused(
                    path,
                    cause,
                    "give the column one type in all files of a table",
                ));
            };
            *known =
                Field::new(field.name(), data_type, known.is_nullable() || field.is_nullable());
        }
    }
    let is_everywhere = |name: &str| names.get(name).is_some_and(|(_, has)| *has == files.len());
    let fields = fields.into_iter().map(|(field, _)| {
        let nullable = field.is_nullable() || !is_everywhere(field.name());
        let data_type = match field.data_type() {
            DataType::Null => format.type_of_nothing(),
            known => known.clone(),
        };
        Arc::new(Field::new(field.name(), data_type, nullable))
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

/// A type that has all values of both.
fn wider(format: Format, a: &DataType, b: &DataType) -> Option<DataType> {
    if a == b { Some(a.clone()) } else { wider_always(a, b).or_else(|| format.wider(a, b)) }
}

/// Of types that meet in every format.
fn wider_always(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::*;
    let is_text = |t: &DataType| matches!(t, Utf8 | LargeUtf8 | Utf8View);
    let is_bytes = |t: &DataType| matches!(t, Binary | LargeBinary | BinaryView);
    let is_float = |t: &DataType| matches!(t, Float16 | Float32 | Float64);
    let bits = |t: &DataType| t.primitive_width().unwrap_or(16) * 8;
    let (small, large) = if bits(a) <= bits(b) { (a, b) } else { (b, a) };
    let both = |is: &dyn Fn(&DataType) -> bool| is(a) && is(b);
    Some(match (small, large) {
        (Null, other) | (other, Null) => other.clone(),
        _ if both(&DataType::is_signed_integer) || both(&DataType::is_unsigned_integer) => {
            large.clone()
        }
        _ if both(&is_float) => large.clone(),
        _ if both(&is_text) => Utf8,
        _ if both(&is_bytes) => Binary,
        (unsigned, signed)
            if unsigned.is_unsigned_integer()
                && signed.is_signed_integer()
                && bits(unsigned) < bits(signed) =>
        {
            signed.clone()
        }
        (unsigned, UInt8 | UInt16 | UInt32) if unsigned.is_signed_integer() => Int64,
        (UInt8 | UInt16 | UInt32, signed) if signed.is_signed_integer() => Int64,
        (Timestamp(one, zone), Timestamp(other, same)) if zone == same => {
            Timestamp(finer(one, other), zone.clone())
        }
        _ => return None,
    })
}

fn finer(a: &TimeUnit, b: &TimeUnit) -> TimeUnit {
    let rank = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    if rank(a) >= rank(b) { *a } else { *b }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::catalog::read_by;

    #[test]
    fn the_order_of_files_does_not_matter() {
        let schema = |fields: &[(&str, DataType)]| {
            let fields = fields.iter().map(|(name, t)| Field::new(*name, t.clone(), false));
            Schema::new(fields.collect::<Vec<_>>())
        };
        let one = schema(&[("a", DataType::Int32), ("b", DataType::Utf8)]);
        let other = schema(&[("a", DataType::Float32)]);
        for files in [[&one, &other], [&other, &one]] {
            let files = files.map(|schema| (Path::new("f"), schema));
            let united = unite(read_by("read_parquet").unwrap(), &files).unwrap();
            let found: Vec<_> = united.fields().iter().map(|f| f.to_string()).collect();
            let a = Field::new("a", DataType::Float64, false);
            let b = Field::new("b", DataType::Utf8, true);
            assert_eq!(found, [a.to_string(), b.to_string()]);
        }
    }
}
