//! Columns of whole tables as plain bytes, for code that knows no Arrow, and back.
//!
//! Values of one width lie one after the other, booleans as bytes. Texts are bytes and 64-bit offsets: a whole table's may be
//! more than 2 GiB. Validity is a byte a row.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType as ArrowType;
use headrace_ir::DataType;

use crate::ColumnError;
use crate::column::arrow_type;

/// A column of a batch.
#[derive(Debug)]
pub struct WholePart {
    /// Values one after the other, or the bytes of texts.
    pub values: Buffer,
    /// Of texts, where each ends, from the first byte of this part.
    pub ends: Option<Vec<u64>>,
    /// A byte a row, 1 for a value; `None`: no NULLs.
    pub valid: Option<Vec<u8>>,
}

/// Bytes of a value of a type in these columns; `None` for texts.
pub fn whole_width_bytes(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Bool => Some(1),
        other => other.plain_width_bytes(),
    }
}

/// A column of a batch, of the Arrow type that the type has.
///
/// # Errors
/// An array of another type; a list with a NULL in it.
pub fn whole_part(array: &ArrayRef, data_type: &DataType) -> Result<WholePart, ColumnError> {
    // The name and nullability of a list's item are its maker's.
    let is_list = matches!(data_type, DataType::FloatList { .. });
    if !is_list && *array.data_type() != arrow_type(data_type) {
        let given = array.data_type();
        return Err(ColumnError::Internal(format!(
            "a column of {given}, where {data_type} is wanted"
        )));
    }
    let rows = array.len();
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let valid = nulls.map(|nulls| nulls.iter().map(u8::from).collect());
    let (mut ends, internal) = (None, |cause: &str| ColumnError::Internal(cause.into()));
    let values = match data_type {
        DataType::Bool => {
            Buffer::from_vec(array.as_boolean().values().iter().map(u8::from).collect::<Vec<_>>())
        }
        DataType::Utf8 => {
            let texts = array.as_string::<i32>();
            let offsets = texts.value_offsets();
            let (first, last) = (offsets[0] as usize, offsets[rows] as usize);
            ends = Some(offsets[1..].iter().map(|end| (*end as usize - first) as u64).collect());
            texts.values().slice_with_length(first, last - first)
        }
        DataType::FloatList { item_bytes, items } => {
            let lists = array
                .as_fixed_size_list_opt()
                .filter(|lists| lists.value_length() as u32 == *items)
                .ok_or_else(|| internal("a column of other lists than are wanted"))?;
            let first = lists.value_offset(0) as usize;
            let floats = lists.values().slice(first, rows * *items as usize);
            let item = if *item_bytes == 4 { ArrowType::Float32 } else { ArrowType::Float64 };
            if *floats.data_type() != item {
                return Err(internal("a column of lists of other values than are wanted"));
            }
            let is_missing = |at: usize| floats.is_null(at) && lists.is_valid(at / *items as usize);
            if floats.null_count() > 0 && (0..floats.len()).any(is_missing) {
                return Err(ColumnError::Cast { place: "a list with a NULL in it".into() });
            }
            plain_bytes(&floats, (*item_bytes).into())?
        }
        other => {
            let width =
                whole_width_bytes(other).ok_or_else(|| internal("a type without a width"))?;
            plain_bytes(array, width)?
        }
    };
    Ok(WholePart { values, ends, valid })
}

/// The values of an array whose values have one width.
fn plain_bytes(array: &ArrayRef, width_bytes: usize) -> Result<Buffer, ColumnError> {
    let data = array.to_data();
    let first = data.offset() * width_bytes;
    let bytes = array.len() * width_bytes;
    match data.buffers() {
        [values] if values.len() >= first + bytes => Ok(values.slice_with_length(first, bytes)),
        _ => Err(ColumnError::Internal("an array of other buffers than one of values".into())),
    }
}

/// Values one after the other as an array of the type, which has a width. `valid`: a byte a row.
///
/// # Errors
/// Fewer bytes than the rows need.
pub fn whole_array(
    data_type: &DataType,
    rows: usize,
    values: Vec<u8>,
    valid: &[u8],
) -> Result<ArrayRef, ColumnError> {
    let internal = |cause: String| ColumnError::Internal(format!("a column as an array: {cause}"));
    let width = whole_width_bytes(data_type).ok_or_else(|| internal("no width".into()))?;
    if values.len() < rows * width || valid.len() < rows {
        return Err(internal(format!("too few bytes for {rows} rows")));
    }
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(rows, |row| valid[row] != 0));
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let target = arrow_type(data_type);
    let builder = ArrayData::builder(target.clone()).len(rows).nulls(nulls);
    let builder = match target {
        ArrowType::Boolean => {
            let bits = BooleanBuffer::collect_bool(rows, |row| values[row] != 0);
            builder.add_buffer(bits.into_inner())
        }
        ArrowType::FixedSizeList(item, items) => {
            let floats = ArrayData::builder(item.data_type().clone())
                .len(rows * items as usize)
                .add_buffer(Buffer::from_vec(values))
                .align_buffers(true);
            builder.add_child_data(floats.build().map_err(|e| internal(e.to_string()))?)
        }
        _ => builder.add_buffer(Buffer::from_vec(values)),
    };
    // A buffer of bytes may lie where wider values do not.
    let data = builder.align_buffers(true).build().map_err(|e| internal(e.to_string()))?;
    Ok(make_array(data))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, Int64Array, StringArray,
    };

    use super::*;

    #[test]
    fn what_goes_to_bytes_and_back_is_what_it_was() {
        let list = FixedSizeListArray::from_iter_primitive::<arrow_array::types::Float32Type, _, _>(
            [Some([Some(1.5), Some(2.0)]), None, Some([Some(0.0), Some(-1.0)]), None],
            2,
        );
        let bytes = [Some(b"ab".as_slice()), None, Some(b"cd"), Some(b"ef")];
        let bytes = FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes.into_iter(), 2);
        let columns: [(DataType, ArrayRef); 4] = [
            (DataType::Int64, Arc::new(Int64Array::from(vec![Some(1), None, Some(-3), Some(4)]))),
            (DataType::Bool, Arc::new(BooleanArray::from(vec![true, false, true, true]))),
            (DataType::FixedBinary(2), Arc::new(bytes.unwrap())),
            (DataType::FloatList { item_bytes: 4, items: 2 }, Arc::new(list)),
        ];
        for (data_type, array) in columns {
            for (first, rows) in [(0, 4), (1, 3), (2, 0)] {
                let array = array.slice(first, rows);
                let part = whole_part(&array, &data_type).unwrap();
                let valid = part.valid.unwrap_or_else(|| vec![1; rows]);
                let again = whole_array(&data_type, rows, part.values.to_vec(), &valid).unwrap();
                assert_eq!(&again, &array, "{data_type} from {first} on");
            }
        }
    }

    #[test]
    fn texts_have_ends_from_their_own_first_byte() {
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("ab"), None, Some("cde"), Some("")]));
        let texts = texts.slice(1, 3);
        let part = whole_part(&texts, &DataType::Utf8).unwrap();
        assert_eq!(part.values.as_slice(), b"cde");
        assert_eq!(part.ends, Some(vec![0, 3, 3]));
        assert_eq!(part.valid, Some(vec![0, 1, 1]));
    }

    #[test]
    fn other_types_and_short_columns_are_refused() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert!(whole_part(&numbers, &DataType::Int32).is_err());
        assert!(whole_part(&numbers, &DataType::FloatList { item_bytes: 4, items: 2 }).is_err());
        assert!(whole_array(&DataType::Int64, 2, vec![0; 15], &[1, 1]).is_err());
        let list = FixedSizeListArray::from_iter_primitive::<arrow_array::types::Float64Type, _, _>(
            [Some([Some(1.5), None])],
            2,
        );
        let list: ArrayRef = Arc::new(list);
        let refused = whole_part(&list, &DataType::FloatList { item_bytes: 8, items: 2 });
        assert!(matches!(refused, Err(ColumnError::Cast { .. })), "{refused:?}");
    }
}
