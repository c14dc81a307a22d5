//! `sum(DISTINCT ..)` of integers and decimals, exact as `sum` is.
//!
//! The state between aggregation phases is the list of distinct values.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, i256};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::utils::format_state_name;

use super::shape::{Shape, for_each_value, result_array};

/// The fields of the state.
pub fn state_fields(name: &str, argument: &FieldRef) -> Vec<FieldRef> {
    let item = Field::new_list_field(argument.data_type().clone(), true);
    let name = format_state_name(name, "sum distinct");
    vec![Arc::new(Field::new_list(name, item, false))]
}

/// The distinct values of one group.
#[derive(Debug)]
pub struct DistinctSum {
    shape: Shape,
    values: HashSet<i128>,
}

impl DistinctSum {
    /// No values yet.
    pub fn new(shape: Shape) -> Self {
        Self { shape, values: HashSet::new() }
    }
}

/// Distinct values as a state.
pub fn state(values: &HashSet<i128>, argument: &DataType) -> Result<ScalarValue> {
    let scalar = |&value: &i128| match argument {
        // A decimal's digits are kept as they are.
        DataType::Decimal128(precision, scale) => {
            Ok(ScalarValue::Decimal128(Some(value), *precision, *scale))
        }
        integer => ScalarValue::Decimal128(Some(value), 38, 0).cast_to(integer),
    };
    let values = values.iter().map(scalar).collect::<Result<Vec<_>>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list(&values, argument, true)))
}

/// Calls `f` with the values of each state.
pub fn for_each_list(states: &ArrayRef, f: impl FnMut(ArrayRef) -> Result<()>) -> Result<()> {
    let lists = states.as_list::<i32>();
    (0..lists.len()).filter(|&row| lists.is_valid(row)).map(|row| lists.value(row)).try_for_each(f)
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_value(&values[0], |_, value| {
            self.values.insert(value);
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for_each_list(&states[0], |values| self.update_batch(&[values]))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![state(&self.values, self.shape.argument())?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let total = self
            .values
            .iter()
            .fold(i256::ZERO, |total, &value| total.wrapping_add(i256::from_i128(value)));
        let total = (!self.values.is_empty()).then_some(total);
        ScalarValue::try_from_array(&result_array(&[total], &self.shape)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<i128>()
    }
}
