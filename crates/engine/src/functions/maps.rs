//! `map_from_entries([{'k': 'a', 'v': 1}])`: a list of pairs as a map.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, StructArray, UInt32Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{cast, take_arrays};
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const NAME: &str = "map_from_entries";

/// The function.
pub fn function() -> ScalarUDF {
    ScalarUDF::from(FromEntries { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FromEntries {
    signature: Signature,
}

/// The types of the keys and values of pairs.
fn pair(list: &DataType) -> Result<(&DataType, &DataType)> {
    let element = match list {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => element.data_type(),
        other => other,
    };
    match element {
        DataType::Struct(fields) if fields.len() == 2 => {
            Ok((fields[0].data_type(), fields[1].data_type()))
        }
        _ => plan_err!(
            "{NAME}() takes a list of pairs, not {list}\nhint: {NAME}([('a', 1), ('b', 2)]), or map(keys, values)"
        ),
    }
}

/// The columns of a map.
pub fn entries(key: &DataType, value: &DataType) -> Fields {
    vec![Field::new("key", key.clone(), false), Field::new("value", value.clone(), true)].into()
}

/// The type of a map.
pub fn map_of(key: &DataType, value: &DataType) -> DataType {
    let entries = Field::new("entries", DataType::Struct(entries(key, value)), false);
    DataType::Map(Arc::new(entries), false)
}

impl ScalarUDFImpl for FromEntries {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [list] = types else { return plan_err!("{NAME}() takes a list of pairs") };
        let (key, value) = pair(list)?;
        Ok(map_of(key, value))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [list] = args.args.as_slice() else {
            return plan_err!("{NAME}() takes a list of pairs");
        };
        let list = list.to_array(rows)?;
        let (key, value) = pair(list.data_type())?;
        let pairs = Field::new_list_field(DataType::Struct(entries_as_given(&list)?), true);
        let lists = cast(&list, &DataType::List(Arc::new(pairs)))?;
        let map = map_from(lists.as_list(), entries(key, value))?;
        Ok(ColumnarValue::Array(map))
    }
}

fn entries_as_given(list: &ArrayRef) -> Result<Fields> {
    match list.data_type() {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => match element.data_type() {
            DataType::Struct(fields) => Ok(fields.clone()),
            other => exec_err!("{NAME}() of a list of {other}"),
        },
        other => exec_err!("{NAME}() of {other}"),
    }
}

fn map_from(lists: &ListArray, fields: Fields) -> Result<ArrayRef> {
    let offsets = lists.offsets();
    let (begin, end) = (offsets[0] as usize, offsets[lists.len()] as usize);
    let pairs = lists.values().slice(begin, end - begin);
    let pairs = pairs.as_struct();
    let keys = pairs.column(0);
    let converter = RowConverter::new(vec![SortField::new(keys.data_type().clone())])?;
    let compared = converter.convert_columns(std::slice::from_ref(keys))?;
    let (mut kept, mut lengths) = (Vec::with_capacity(end - begin), Vec::new());
    for row in 0..lists.len() {
        if lists.is_null(row) {
            lengths.push(0);
            continue;
        }
        let range = offsets[row] as usize - begin..offsets[row + 1] as usize - begin;
        let mut seen = HashSet::with_capacity(range.len());
        for at in range.clone() {
            if pairs.is_null(at) {
                return exec_err!(
                    "{NAME}() of a list in which a pair is NULL\nhint: leave it out by list_filter"
                );
            }
            if keys.is_null(at) {
                return exec_err!(
                    "{NAME}() of a pair whose key is NULL\nhint: leave it out by list_filter"
                );
            }
            if !seen.insert(compared.row(at)) {
                return exec_err!(
                    "{NAME}() of two pairs of one key\nhint: leave one out by list_filter"
                );
            }
        }
        lengths.push(range.len());
        kept.extend(range.map(|at| at as u32));
    }
    let kept = UInt32Array::from(kept);
    let columns = take_arrays(pairs.columns(), &kept, None)?;
    let entries = StructArray::try_new(fields.clone(), columns, None)?;
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(MapArray::try_new(field, offsets, entries, lists.nulls().cloned(), false)?))
}
