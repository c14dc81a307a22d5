//! `array_agg` of texts counts the texts.
//!
//! ```sql
//! SELECT array_agg(s) FROM t  -- s: 10 MB of views of texts, where operators have 2 MB
//! ```
//!
//! - DataFusion: The accumulator counts 16 bytes a value and not what the views point to, so that no limit stops it; right is
//!   an error, as of other texts.
//! - Upstream: no upstream issue known of `array_agg`; apache/datafusion#17315 mends the same count for sorts.
//! - This can go when its canary finds the fault mended.
//!
//! The planner's own counts the views of the values that it keeps, 16 bytes each, and not what they point to: the pages of a file that
//! it keeps with them, however large they are.

use std::hash::Hash;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::array_agg::ArrayAgg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    ReversedUDAF, Signature,
};

use crate::planner_memory::viewed_bytes;

/// `array_agg` as the session registers it.
pub fn array_agg() -> AggregateUDF {
    AggregateUDF::from(Viewing { built_in: AggregateUDF::from(ArrayAgg::default()) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Viewing {
    built_in: AggregateUDF,
}

/// An accumulator that keeps views, and the bytes that they point to.
#[derive(Debug)]
struct Viewed<A: ?Sized> {
    bytes: usize,
    inner: Box<A>,
}

impl<A: ?Sized> Viewed<A> {
    fn of(inner: Box<A>) -> Box<Self> {
        Box::new(Self { bytes: 0, inner })
    }

    fn add(&mut self, values: &[ArrayRef]) {
        self.bytes += values.iter().map(|values| viewed_bytes(&values.to_data())).sum::<usize>();
    }
}

impl AggregateUDFImpl for Viewing {
    fn name(&self) -> &str {
        self.built_in.inner().name()
    }

    fn signature(&self) -> &Signature {
        self.built_in.inner().signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.built_in.inner().return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.built_in.inner().state_fields(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.built_in.inner().order_sensitivity()
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        is_ordered: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let ordered = self.built_in.clone().with_beneficial_ordering(is_ordered)?;
        Ok(ordered.map(|built_in| Arc::new(Self { built_in }) as _))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Viewed::of(self.built_in.inner().accumulator(args)?))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Reversed(Arc::new(array_agg()))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.built_in.inner().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Viewed::of(self.built_in.inner().create_groups_accumulator(args)?))
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.built_in.inner().supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.built_in.inner().documentation()
    }
}

impl Accumulator for Viewed<dyn Accumulator> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values);
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.inner.size() + self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(states);
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

impl Viewed<dyn GroupsAccumulator> {
    /// Of groups that leave one after the other, what the others keep is not known before the last has left.
    fn emitted(&mut self, groups: &EmitTo) {
        if matches!(groups, EmitTo::All) {
            self.bytes = 0;
        }
    }
}

impl GroupsAccumulator for Viewed<dyn GroupsAccumulator> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_total: usize,
    ) -> Result<()> {
        self.add(values);
        self.inner.update_batch(values, groups, filter, groups_total)
    }

    fn evaluate(&mut self, groups: EmitTo) -> Result<ArrayRef> {
        self.emitted(&groups);
        self.inner.evaluate(groups)
    }

    fn state(&mut self, groups: EmitTo) -> Result<Vec<ArrayRef>> {
        self.emitted(&groups);
        self.inner.state(groups)
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        groups_total: usize,
    ) -> Result<()> {
        self.add(states);
        self.inner.merge_batch(states, groups, groups_total)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.inner.size() + self.bytes
    }
}
