//! The metadata of a Parquet file as its reader is to see them: without what proves nothing, and with names of its own
//! for every column.
//!
//! Statistics are claims: they rule out row groups and pages, and never are values. So what cannot rule anything out is
//! removed here, before any reader sees it: bounds of floats (they leave NaN out, and do not say which zero they mean),
//! of types without an order, or of an order that the writer did not know; and counts of NULLs that are not there, which
//! the reader takes for none.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef, Fields, Schema, TimeUnit};
use datafusion::parquet::arrow::{
    ARROW_SCHEMA_META_KEY, encode_arrow_schema, parquet_to_arrow_schema,
};
use datafusion::parquet::basic::{ConvertedType, LogicalType, SortOrder, Type as Physical};
use datafusion::parquet::errors::Result;
use datafusion::parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaData, RowGroupMetaData,
};
use datafusion::parquet::file::statistics::Statistics;
use datafusion::parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use datafusion_datasource_parquet::{Int96Coercer, transform_schema_to_view};
use headrace_format::arrow::unique_names;

/// The unit of timestamps of 96 bits: in nanoseconds they would not reach the year 2263.
pub const INT96_UNIT: (TimeUnit, &str) = (TimeUnit::Microsecond, "us");

/// What is to be read of a file, and the columns that its reader makes of it.
///
/// # Errors
/// Columns that no reader could make.
pub fn believed(metadata: ParquetMetaData) -> Result<(ParquetMetaData, Schema)> {
    let info = metadata.file_metadata();
    let schema = parquet_to_arrow_schema(info.schema_descr(), info.key_value_metadata())?;
    let mut builder = metadata.into_builder();
    let groups = builder.take_row_groups().into_iter().map(group);
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let metadata = builder.set_row_groups(groups).build();
    let (metadata, schema) = match unique(&schema) {
        None => (metadata, schema),
        Some(schema) => (renamed(&metadata, &schema)?, schema),
    };
    let descriptor = metadata.file_metadata().schema_descr();
    let coerced = Int96Coercer::new(descriptor, &schema, &INT96_UNIT.0).coerce();
    Ok((metadata, with_wide_decimals(&transform_schema_to_view(&coerced.unwrap_or(schema)))))
}

/// Decimals of 128 bits, however narrow they lie: the planner's arithmetic of narrower ones overflows without a word.
fn with_wide_decimals(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(with_wide_decimal);
    Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone())
}

fn with_wide_decimal(field: &FieldRef) -> FieldRef {
    let wide = match field.data_type() {
        DataType::Decimal32(digits, scale) | DataType::Decimal64(digits, scale) => {
            DataType::Decimal128(*digits, *scale)
        }
        DataType::List(item) => DataType::List(with_wide_decimal(item)),
        DataType::LargeList(item) => DataType::LargeList(with_wide_decimal(item)),
        DataType::FixedSizeList(item, count) => {
            DataType::FixedSizeList(with_wide_decimal(item), *count)
        }
        DataType::Map(entry, is_sorted) => DataType::Map(with_wide_decimal(entry), *is_sorted),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(with_wide_decimal).collect())
        }
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(wide))
}

fn group(group: RowGroupMetaData) -> Result<RowGroupMetaData> {
    let mut builder = group.into_builder();
    let columns = builder.take_columns().into_iter().map(chunk);
    let columns = columns.collect::<Result<Vec<_>>>()?;
    builder.set_column_metadata(columns).build()
}

fn chunk(chunk: ColumnChunkMetaData) -> Result<ColumnChunkMetaData> {
    // Some writers leave a number where there is no dictionary.
    let pages_at = chunk.data_page_offset();
    let dictionary_at = chunk.dictionary_page_offset().filter(|at| (1..pages_at).contains(at));
    let may_have_nulls = chunk.column_descr().max_def_level() > 0;
    let is_ordered = is_ordered(&chunk);
    let bounds_hold =
        is_ordered && chunk.statistics().is_none_or(|known| bounds_hold(&chunk, known));
    let kept =
        chunk.statistics().filter(|known| !may_have_nulls || known.null_count_opt().is_some());
    let kept = kept.map(|known| if bounds_hold { known.clone() } else { without_bounds(known) });
    let mut builder = chunk.into_builder().set_dictionary_page_offset(dictionary_at);
    builder = match kept {
        Some(kept) => builder.set_statistics(kept),
        None => builder.clear_statistics(),
    };
    if !is_ordered {
        // Indexes of pages are bounds as well, and a filter of hashes does not know that zeros are equal.
        builder = builder.set_column_index_offset(None).set_column_index_length(None);
        builder = builder.set_bloom_filter_offset(None).set_bloom_filter_length(None);
    }
    builder.build()
}

/// Whether smallest and largest value of a column say where all others are.
fn is_ordered(chunk: &ColumnChunkMetaData) -> bool {
    let column = chunk.column_descr();
    let is_float = matches!(column.physical_type(), Physical::FLOAT | Physical::DOUBLE)
        || matches!(column.logical_type_ref(), Some(LogicalType::Float16));
    !is_float
        && column.physical_type() != Physical::INT96
        && column.sort_order() != SortOrder::UNDEFINED
}

fn bounds_hold(chunk: &ColumnChunkMetaData, known: &Statistics) -> bool {
    let column = chunk.column_descr();
    // Old writers compared all bytes as signed ones.
    if known.is_min_max_deprecated() && column.sort_order() != SortOrder::SIGNED {
        return false;
    }
    let is_decimal = column.converted_type() == ConvertedType::DECIMAL
        || matches!(column.logical_type_ref(), Some(LogicalType::Decimal { .. }));
    if !is_decimal || column.physical_type() != Physical::FIXED_LEN_BYTE_ARRAY {
        return true;
    }
    // A number of which the last bytes are missing is another one.
    let is_whole = |bytes: Option<&[u8]>| {
        bytes.is_none_or(|bytes| i32::try_from(bytes.len()) == Ok(column.type_length()))
    };
    is_whole(known.min_bytes_opt()) && is_whole(known.max_bytes_opt())
}

fn without_bounds(known: &Statistics) -> Statistics {
    let nulls = known.null_count_opt();
    match known {
        Statistics::Boolean(_) => Statistics::boolean(None, None, None, nulls, false),
        Statistics::Int32(_) => Statistics::int32(None, None, None, nulls, false),
        Statistics::Int64(_) => Statistics::int64(None, None, None, nulls, false),
        Statistics::Int96(_) => Statistics::int96(None, None, None, nulls, false),
        Statistics::Float(_) => Statistics::float(None, None, None, nulls, false),
        Statistics::Double(_) => Statistics::double(None, None, None, nulls, false),
        Statistics::ByteArray(_) => Statistics::byte_array(None, None, None, nulls, false),
        Statistics::FixedLenByteArray(_) => {
            Statistics::fixed_len_byte_array(None, None, None, nulls, false)
        }
    }
}

/// The columns by names of which none comes twice; `None`: none does.
fn unique(schema: &Schema) -> Option<Schema> {
    let names = unique_names(schema.fields().iter().map(|field| field.name().as_str()))?;
    let fields = schema.fields().iter().zip(names);
    let fields = fields.map(|(field, name)| field.as_ref().clone().with_name(name));
    let fields: Vec<_> = fields.collect();
    Some(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The same file with the names of a schema: readers find columns by them.
fn renamed(metadata: &ParquetMetaData, schema: &Schema) -> Result<ParquetMetaData> {
    let info = metadata.file_metadata();
    let root = info.schema_descr().root_schema();
    let fields = root.get_fields().iter().zip(schema.fields());
    let fields = fields.map(|(field, named)| with_name(field, named.name()));
    let fields = fields.collect::<Result<Vec<TypePtr>>>()?;
    let root = Type::group_type_builder(root.name()).with_fields(fields).build()?;
    let others = info.key_value_metadata().into_iter().flatten();
    let others = others.filter(|entry| entry.key != ARROW_SCHEMA_META_KEY).cloned();
    let own = KeyValue::new(ARROW_SCHEMA_META_KEY.to_string(), encode_arrow_schema(schema));
    let info = FileMetaData::new(
        info.version(),
        info.num_rows(),
        info.created_by().map(str::to_string),
        Some(others.chain([own]).collect()),
        Arc::new(SchemaDescriptor::new(Arc::new(root))),
        info.column_orders().cloned(),
    );
    Ok(ParquetMetaData::new(info, metadata.row_groups().to_vec()))
}

fn with_name(column: &TypePtr, name: &str) -> Result<TypePtr> {
    if column.name() == name {
        return Ok(Arc::clone(column));
    }
    let info = column.get_basic_info();
    let id = info.has_id().then(|| info.id());
    let renamed = match column.as_ref() {
        Type::GroupType { fields, .. } => Type::group_type_builder(name)
            .with_repetition(info.repetition())
            .with_converted_type(info.converted_type())
            .with_logical_type(info.logical_type_ref().cloned())
            .with_fields(fields.clone())
            .with_id(id)
            .build()?,
        Type::PrimitiveType { physical_type, type_length, scale, precision, .. } => {
            Type::primitive_type_builder(name, *physical_type)
                .with_repetition(info.repetition())
                .with_converted_type(info.converted_type())
                .with_logical_type(info.logical_type_ref().cloned())
                .with_length(*type_length)
                .with_precision(*precision)
                .with_scale(*scale)
                .with_id(id)
                .build()?
        }
    };
    Ok(Arc::new(renamed))
}
