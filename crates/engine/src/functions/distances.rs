//! How alike two values are: fingerprints by their bits, vectors by their floats; and the bits of one.
//!
//! Values are computed as pipelines compute them (`headrace_columns::distance`), so that an answer does not depend on who
//! runs the query. A constant list becomes what the other argument is, a list of as many floats.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float64Array, Int64Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use headrace_columns::distance::{between, ones};
use headrace_ir::DataType as IrType;
use headrace_ir::function::Function;

/// The functions of two values, with the names that other systems have for them.
const DISTANCES: [(Function, &[&str]); 5] = [
    (Function::HammingDistance, &[]),
    (Function::Tanimoto, &[]),
    (Function::Dot, &["inner_product", "dot_product", "array_inner_product", "list_inner_product"]),
    (Function::L2Distance, &["array_distance", "list_distance"]),
    (Function::CosineDistance, &["array_cosine_distance", "list_cosine_distance"]),
];

/// The functions.
pub fn functions() -> impl Iterator<Item = ScalarUDF> {
    let distances = DISTANCES.iter().map(|(function, aliases)| (*function, *aliases));
    distances.chain([(Function::BitCount, &[][..])]).map(|(function, aliases)| {
        let aliases = aliases.iter().map(ToString::to_string).collect();
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(Distance { function, aliases, signature })
    })
}

/// The function of pipelines that one of these is; `None` for all others.
pub fn function_of(implementation: &dyn ScalarUDFImpl) -> Option<Function> {
    implementation.downcast_ref::<Distance>().map(|distance| distance.function)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Distance {
    function: Function,
    aliases: Vec<String>,
    signature: Signature,
}

impl Distance {
    fn is_of_bits(&self) -> bool {
        matches!(self.function, Function::HammingDistance | Function::Tanimoto | Function::BitCount)
    }

    fn refused<T>(&self, types: &[DataType]) -> Result<T> {
        let name = self.function.name();
        let known: Vec<_> = types.iter().map(super::types::name_of).collect();
        let usage = match self.function {
            Function::BitCount => format!("{name}(bytes), {name}(integer)"),
            _ if self.is_of_bits() => {
                format!("{name}(bytes, bytes), as in {name}(fingerprint, x'0f31')")
            }
            _ => format!("{name}(list, list), as in {name}(embedding, [0.5, 1.5])"),
        };
        plan_err!("there is no {name}({})\nhint: {usage}", known.join(", "))
    }
}

impl ScalarUDFImpl for Distance {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(match self.function {
            Function::BitCount | Function::HammingDistance => DataType::Int64,
            _ => DataType::Float64,
        })
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let wanted = match (self.function, types) {
            (Function::BitCount, [one]) if one.is_integer() || one.is_null() => {
                Some(vec![DataType::Int64])
            }
            (Function::BitCount, [one]) => bytes_of(one).map(|one| vec![one]),
            (_, [one, other]) if self.is_of_bits() => pair(bytes_of, one, other)?,
            (_, [one, other]) => pair(floats_of, one, other)?,
            _ => None,
        };
        wanted.map_or_else(|| self.refused(types), Ok)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { args.number_rows };
        let columns = args.args.iter().map(Values::of).collect::<Result<Vec<_>>>()?;
        let result: ArrayRef = match columns.as_slice() {
            [one] => Arc::new(self.bits_of(one, rows)),
            [one, other] => self.distances(one, other, rows)?,
            _ => return self.refused(&[]),
        };
        match is_one {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

impl Distance {
    fn bits_of(&self, values: &Values, rows: usize) -> Int64Array {
        (0..rows).map(|row| values.value(row).map(ones)).collect()
    }

    fn distances(&self, one: &Values, other: &Values, rows: usize) -> Result<ArrayRef> {
        let mut distances = Vec::with_capacity(rows);
        for row in 0..rows {
            let (Some(left), Some(right)) = (one.value(row), other.value(row)) else {
                distances.push(None);
                continue;
            };
            if left.len() != right.len() {
                let (unit, bytes) = match one.of {
                    IrType::FloatList { item_bytes, .. } => ("floats", usize::from(item_bytes)),
                    _ => ("bytes", 1),
                };
                return exec_err!(
                    "{}() of {} and {} {unit}: both must have as many",
                    self.function.name(),
                    left.len() / bytes,
                    right.len() / bytes
                );
            }
            distances.push(between(self.function, &one.of, left, right));
        }
        Ok(match self.function {
            Function::HammingDistance => {
                let bits = distances.iter().map(|bits| bits.map(|bits| bits as i64));
                Arc::new(bits.collect::<Int64Array>())
            }
            _ => Arc::new(Float64Array::from(distances)),
        })
    }
}

/// What an argument is taken as, by itself: its own type if all its values have one length.
type Taken = fn(&DataType) -> Option<DataType>;

/// What two arguments become: of lists the one of a known length decides, and of two such both must be equal.
fn pair(taken: Taken, one: &DataType, other: &DataType) -> Result<Option<Vec<DataType>>> {
    let fixed =
        |of: &DataType| matches!(of, DataType::FixedSizeBinary(_) | DataType::FixedSizeList(..));
    let (Some(left), Some(right)) = (taken(one), taken(other)) else {
        // NULL is of any type.
        let known =
            taken(one).or_else(|| taken(other)).filter(|_| one.is_null() || other.is_null());
        return Ok(known.map(|known| vec![known.clone(), known]));
    };
    Ok(Some(match (fixed(&left), fixed(&right)) {
        (true, true) if left.equals_datatype(&right) => vec![left, right],
        (true, true) if items(&left) != items(&right) => {
            let (left, right) = (items(&left), items(&right));
            return plan_err!("a distance of {left} and {right}: both must have as many");
        }
        // Of two widths the wider one.
        (true, true) if left.to_string().contains("Float64") => vec![left.clone(), left],
        (true, true) => vec![right.clone(), right],
        // Bytes are compared as they are; a list becomes one of as many floats.
        _ if matches!(left, DataType::FixedSizeBinary(_) | DataType::Binary) => vec![left, right],
        (true, false) => vec![left.clone(), left],
        _ => vec![right.clone(), right],
    }))
}

fn items(of: &DataType) -> i32 {
    match of {
        DataType::FixedSizeBinary(items) | DataType::FixedSizeList(_, items) => *items,
        _ => 0,
    }
}

fn bytes_of(of: &DataType) -> Option<DataType> {
    match of {
        DataType::FixedSizeBinary(_) => Some(of.clone()),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Some(DataType::Binary),
        _ => None,
    }
}

fn floats_of(of: &DataType) -> Option<DataType> {
    let (item, items) = match of {
        DataType::FixedSizeList(item, items) => (item, Some(*items)),
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) => (item, None),
        _ => return None,
    };
    let float = match item.data_type() {
        DataType::Float32 if items.is_some() => DataType::Float32,
        own if own.is_numeric() || own.is_null() => DataType::Float64,
        _ => return None,
    };
    Some(match items {
        Some(_) if *item.data_type() == float => of.clone(),
        Some(items) => DataType::FixedSizeList(Arc::new(Field::new_list_field(float, true)), items),
        None => DataType::List(Arc::new(Field::new_list_field(float, true))),
    })
}

/// The values of an argument as bytes.
struct Values {
    array: ArrayRef,
    /// The floats of lists.
    floats: Option<ArrayRef>,
    of: IrType,
    is_one: bool,
}

impl Values {
    fn of(argument: &ColumnarValue) -> Result<Self> {
        let is_one = matches!(argument, ColumnarValue::Scalar(_));
        let array = argument.to_array(1)?;
        let list = |item: &DataType| {
            let item_bytes = if *item == DataType::Float32 { 4 } else { 8 };
            IrType::FloatList { item_bytes, items: 0 }
        };
        let (floats, of) = match array.data_type() {
            DataType::FixedSizeList(item, _) => {
                (Some(Arc::clone(array.as_fixed_size_list().values())), list(item.data_type()))
            }
            DataType::List(item) => {
                (Some(Arc::clone(array.as_list::<i32>().values())), list(item.data_type()))
            }
            DataType::FixedSizeBinary(_) | DataType::Binary => (None, IrType::Binary),
            _ => {
                // Integers, of which the bits are counted.
                let numbers = cast(&array, &DataType::Int64)?;
                return Ok(Self { array: numbers, floats: None, of: IrType::Int64, is_one });
            }
        };
        Ok(Self { array, floats, of, is_one })
    }

    /// The bytes of a row; `None` for NULL, and for a list of which an item is NULL.
    fn value(&self, row: usize) -> Option<&[u8]> {
        let row = if self.is_one { 0 } else { row };
        if self.array.is_null(row) {
            return None;
        }
        let Some(floats) = &self.floats else {
            return Some(match self.array.data_type() {
                DataType::FixedSizeBinary(_) => self.array.as_fixed_size_binary().value(row),
                DataType::Binary => self.array.as_binary::<i32>().value(row),
                _ => &self.array.as_primitive::<Int64Type>().values().inner()[8 * row..][..8],
            });
        };
        let (from, to) = match self.array.as_any().downcast_ref::<FixedSizeListArray>() {
            Some(lists) => {
                let items = lists.value_length() as usize;
                (row * items, (row + 1) * items)
            }
            None => {
                let offsets = self.array.as_list::<i32>().value_offsets();
                (offsets[row] as usize, offsets[row + 1] as usize)
            }
        };
        if floats.null_count() > 0 && (from..to).any(|item| floats.is_null(item)) {
            return None;
        }
        Some(match floats.data_type() {
            DataType::Float32 => {
                &floats.as_primitive::<Float32Type>().values().inner()[4 * from..4 * to]
            }
            _ => &floats.as_primitive::<Float64Type>().values().inner()[8 * from..8 * to],
        })
    }
}
