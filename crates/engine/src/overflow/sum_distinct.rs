//! `sum(DISTINCT ..)` of integers and decimals, exact as `sum` is.
//!
//! The state between aggregation phases is the list of distinct values.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{Field, FieldRef, i256};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::utils::format_state_name;

use super::sum::{Shape, for_each_value, result_array};

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

    fn scalar(&self, value: i128) -> Result<ScalarValue> {
        let wide = ScalarValue::Decimal128(Some(value), 38, self.shape.scale());
        match self.shape.argument() {
            // A decimal's digits are kept as they are.
            datafusion::arrow::datatypes::DataType::Decimal128(precision, scale) => {
                Ok(ScalarValue::Decimal128(Some(value), *precision, *scale))
            }
            integer => wide.cast_to(integer),
        }
    }
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_value(&values[0], |_, value| {
            self.values.insert(value);
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list::<i32>();
        (0..lists.len())
            .filter(|&row| lists.is_valid(row))
            .try_for_each(|row| self.update_batch(&[lists.value(row)]))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = self.values.iter().map(|&v| self.scalar(v)).collect::<Result<Vec<_>>>()?;
        let list = ScalarValue::new_list(&values, self.shape.argument(), true);
        Ok(vec![ScalarValue::List(list)])
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
