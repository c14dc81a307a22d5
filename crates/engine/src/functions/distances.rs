//! How alike two values are: fingerprints by their bits, vectors by their floats; and the bits of one.
//!
//! Values are computed as pipelines compute them (`headrace_columns::distance`), so that an answer does not depend on who
//! runs the query. A constant list becomes what the other argument is, a list of as many floats.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float64Array, Int64Array,
};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float32Type, Float64Type, Int64Type, UInt64Type,
};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
            // A larger number than signed ones has its bits, too.
            (Function::BitCount, [DataType::UInt64]) => Some(vec![DataType::UInt64]),
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

    fn simplify(&self, mut args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let [one, other] = args.as_slice() else { return Ok(ExprSimplifyResult::Original(args)) };
        let (left, right) = (info.get_data_type(one)?, info.get_data_type(other)?);
        if let Some(fixed) = as_fixed(other, &left) {
            args[1] = fixed;
        } else if let Some(fixed) = as_fixed(one, &right) {
            args[0] = fixed;
        } else {
            return Ok(ExprSimplifyResult::Original(args));
        }
        let call = ScalarUDF::from(self.clone()).call(args);
        Ok(ExprSimplifyResult::Simplified(call))
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

/// What an argument is taken as, by itself: its own type where its values are read as they are.
type Taken = fn(&DataType) -> Option<DataType>;

/// What two arguments become. NULL is of any type.
fn pair(taken: Taken, one: &DataType, other: &DataType) -> Result<Option<Vec<DataType>>> {
    Ok(match (taken(one), taken(other)) {
        (Some(left), Some(right)) => {
            let is_wide =
                is_wide(&left) || is_wide(&right) || !(is_fixed(&left) || is_fixed(&right));
            Some(vec![as_wide(left, is_wide), as_wide(right, is_wide)])
        }
        (Some(known), None) if other.is_null() => Some(vec![known.clone(), nothing_of(&known)]),
        (None, Some(known)) if one.is_null() => Some(vec![nothing_of(&known), known]),
        _ => None,
    })
}

/// A type of NULL beside another argument.
fn nothing_of(known: &DataType) -> DataType {
    match known {
        DataType::FixedSizeList(item, _) | DataType::List(item) => {
            DataType::List(Arc::new(Field::new_list_field(item.data_type().clone(), true)))
        }
        other => other.clone(),
    }
}

fn is_fixed(of: &DataType) -> bool {
    matches!(of, DataType::FixedSizeBinary(_) | DataType::FixedSizeList(..))
}

fn item_of(of: &DataType) -> Option<&FieldRef> {
    match of {
        DataType::FixedSizeList(item, _) | DataType::List(item) => Some(item),
        _ => None,
    }
}

/// Whether it is a list of a known length, of doubles: what its partner becomes then, if that has a known length, too.
fn is_wide(of: &DataType) -> bool {
    let is_double = item_of(of).is_some_and(|item| *item.data_type() == DataType::Float64);
    is_double && is_fixed(of)
}

/// Lists of both widths are compared as doubles, but a list of no known length becomes what the other one has.
fn as_wide(of: DataType, is_wide: bool) -> DataType {
    let float = if is_wide { DataType::Float64 } else { DataType::Float32 };
    match &of {
        DataType::FixedSizeList(item, items) if is_wide && *item.data_type() != float => {
            DataType::FixedSizeList(Arc::new(Field::new_list_field(float, true)), *items)
        }
        DataType::List(_) => DataType::List(Arc::new(Field::new_list_field(float, true))),
        _ => of,
    }
}

fn bytes_of(of: &DataType) -> Option<DataType> {
    match of {
        DataType::Dictionary(_, values) => bytes_of(values),
        DataType::FixedSizeBinary(_) => Some(of.clone()),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Some(DataType::Binary),
        _ => None,
    }
}

fn floats_of(of: &DataType) -> Option<DataType> {
    use DataType::{FixedSizeList, Float32, Float64, LargeList, LargeListView, List, ListView};
    let list = |float| Arc::new(Field::new_list_field(float, true));
    match of {
        FixedSizeList(item, _) if matches!(item.data_type(), Float32 | Float64) => Some(of.clone()),
        FixedSizeList(item, items) if item.data_type().is_numeric() => {
            Some(FixedSizeList(list(Float64), *items))
        }
        List(item) | LargeList(item) | ListView(item) | LargeListView(item) => {
            let is_number = item.data_type().is_numeric() || item.data_type().is_null();
            is_number.then(|| List(list(Float64)))
        }
        _ => None,
    }
}

/// A constant list as one of as many floats as the other argument has, which pipelines take.
fn as_fixed(constant: &Expr, of: &DataType) -> Option<Expr> {
    let (Expr::Literal(ScalarValue::List(list), _), DataType::FixedSizeList(item, items)) =
        (constant, of)
    else {
        return None;
    };
    let is_alike = list.values().data_type() == item.data_type() && list.values().null_count() == 0;
    let is_one = list.len() == 1 && list.is_valid(0);
    let floats = is_one
        .then(|| list.value(0))
        .filter(|floats| is_alike && floats.len() == *items as usize)?;
    let item = Arc::new(Field::new_list_field(item.data_type().clone(), true));
    let fixed = FixedSizeListArray::try_new(item, *items, floats, None).ok()?;
    Some(lit(ScalarValue::FixedSizeList(Arc::new(fixed))))
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
            // Integers: `bit_count` counts their bits.
            _ => (None, IrType::Int64),
        };
        Ok(Self { array, floats, of, is_one })
    }

    /// The bytes of a row; `None` for NULL, and for a list with a NULL item.
    fn value(&self, row: usize) -> Option<&[u8]> {
        let row = if self.is_one { 0 } else { row };
        if self.array.is_null(row) {
            return None;
        }
        let Some(floats) = &self.floats else {
            return Some(match self.array.data_type() {
                DataType::FixedSizeBinary(_) => self.array.as_fixed_size_binary().value(row),
                DataType::Binary => self.array.as_binary::<i32>().value(row),
                DataType::UInt64 => {
                    &self.array.as_primitive::<UInt64Type>().values().inner()[8 * row..][..8]
                }
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
