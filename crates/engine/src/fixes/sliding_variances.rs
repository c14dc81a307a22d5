//! Variances and deviations over sliding windows.
//!
//! ```sql
//! SELECT var_pop(x) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t  -- x: 1e8 + 0.7, 0.1, 0.1
//! ```
//!
//! - DataFusion: Minus 1: what leaves the window is taken out of sums that have lost digits; right is 0.
//! - Upstream: apache/datafusion#13247.
//! - This can go when its canary finds the fault mended.
//!
//! The planner's take what leaves a window out of the sums again: what floats lose on the way stays, and equal values had a
//! deviation below zero, or none. Here a window is two stacks: what came last is added up as it comes, and what leaves first
//! has the sums of all behind it. Nothing is ever taken away, so a variance is as exact as that of the window alone.

use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, internal_err, not_impl_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, Signature,
};

/// Names of the aggregates, whether they divide by one less than the count, and whether they are roots.
pub const NAMES: [(&str, bool, bool); 4] = [
    ("var", true, false),
    ("var_pop", false, false),
    ("stddev", true, true),
    ("stddev_pop", false, true),
];

/// An aggregate with windows of its own.
pub fn exact(inner: Arc<AggregateUDF>, is_sample: bool, is_root: bool) -> AggregateUDF {
    AggregateUDF::from(Exact { inner, is_sample, is_root })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Exact {
    inner: Arc<AggregateUDF>,
    is_sample: bool,
    is_root: bool,
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return not_impl_err!("{}(DISTINCT ..) over a window that slides", self.name());
        }
        let (is_sample, is_root) = (self.is_sample, self.is_root);
        Ok(Box::new(Window { is_sample, is_root, ..Window::default() }))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Count, mean and sum of squared distances from it.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn of(value: f64) -> Self {
        // Of a value that is not finite there is no distance.
        Self { count: 1.0, mean: value, squares: value * 0.0 }
    }

    fn and(self, other: Self) -> Self {
        if self.count == 0.0 {
            return other;
        }
        if other.count == 0.0 {
            return self;
        }
        let (count, delta) = (self.count + other.count, other.mean - self.mean);
        Self {
            count,
            mean: self.mean + delta * other.count / count,
            squares: self.squares
                + other.squares
                + delta * delta * self.count * other.count / count,
        }
    }
}

#[derive(Debug, Default)]
struct Window {
    /// Values that came last, and what they are together.
    last: Vec<f64>,
    all_of_last: Moments,
    /// What each of the first values and all behind it, up to the last ones, are together; the first one is at the end.
    first: Vec<Moments>,
    is_sample: bool,
    is_root: bool,
}

impl Window {
    fn push(&mut self, value: f64) {
        self.last.push(value);
        self.all_of_last = self.all_of_last.and(Moments::of(value));
    }

    fn pop(&mut self) -> Result<()> {
        if self.first.is_empty() {
            let mut behind = Moments::default();
            for value in self.last.drain(..).rev() {
                behind = Moments::of(value).and(behind);
                self.first.push(behind);
            }
            self.all_of_last = Moments::default();
        }
        match self.first.pop() {
            Some(_) => Ok(()),
            None => internal_err!("a value left a window that was not there"),
        }
    }
}

impl Accumulator for Window {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in floats(values)?.as_primitive::<Float64Type>().iter().flatten() {
            self.push(value);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = floats(values)?;
        (0..values.len() - values.null_count()).try_for_each(|_| self.pop())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let all = self.first.last().copied().unwrap_or_default().and(self.all_of_last);
        let divisor = if self.is_sample { all.count - 1.0 } else { all.count };
        let variance = (divisor > 0.0).then(|| all.squares / divisor);
        Ok(ScalarValue::Float64(if self.is_root { variance.map(f64::sqrt) } else { variance }))
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.last.capacity() * size_of::<f64>()
            + self.first.capacity() * size_of::<Moments>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a window has no state for others")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("a window has no state of others")
    }
}

fn floats(values: &[ArrayRef]) -> Result<ArrayRef> {
    match values.first() {
        Some(values) => Ok(cast(values, &DataType::Float64)?),
        None => internal_err!("a variance of nothing"),
    }
}
