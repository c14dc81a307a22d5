//! `min` and `max` of lists whose elements have elements themselves: the planner compares none of them.
//!
//! ```sql
//! SELECT max(x) FROM t  -- x: [[1, 2]] and [[1], [3]]
//! ```
//!
//! - DataFusion: An error: such lists are not compared; right is the greater one.
//! - Upstream: apache/datafusion#24948 names apache/datafusion#24938.
//! - This can go when its canary finds the fault mended.

use std::cmp::Ordering;
use std::mem::size_of_val;

use datafusion::arrow::array::{Array, ArrayRef, UInt64Array, make_comparator};
use datafusion::arrow::compute::{SortOptions, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

/// An order in which NULL is the greatest element, as in PostgreSQL.
const ORDER: SortOptions = SortOptions { descending: false, nulls_first: false };

/// Whether the planner cannot compare values of a type.
pub fn is_nested(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type().is_nested()
        }
        _ => false,
    }
}

/// The least or the greatest of such values.
pub fn extreme(data_type: &DataType, is_max: bool) -> Box<dyn Accumulator> {
    let wanted = if is_max { Ordering::Greater } else { Ordering::Less };
    Box::new(Extreme { best: None, data_type: data_type.clone(), wanted })
}

#[derive(Debug)]
struct Extreme {
    /// A column of one value.
    best: Option<ArrayRef>,
    data_type: DataType,
    wanted: Ordering,
}

impl Accumulator for Extreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else { return Ok(()) };
        let compare = make_comparator(values, values, ORDER)?;
        let rows = (0..values.len()).filter(|row| values.is_valid(*row));
        let better = |best: usize, row: usize| {
            if compare(row, best) == self.wanted { row } else { best }
        };
        let Some(row) = rows.reduce(better) else { return Ok(()) };
        if let Some(best) = &self.best
            && make_comparator(values, best, ORDER)?(row, 0) != self.wanted
        {
            return Ok(());
        }
        // A copy: a slice would keep the whole batch.
        self.best = Some(take(values, &UInt64Array::from(vec![row as u64]), None)?);
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match &self.best {
            Some(best) => ScalarValue::try_from_array(best, 0),
            None => ScalarValue::try_from(&self.data_type),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.best.as_ref().map_or(0, |best| best.get_array_memory_size())
    }
}
