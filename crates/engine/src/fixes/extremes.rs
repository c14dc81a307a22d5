//! `min` and `max` of floats by groups, where NaN is the greatest.
//!
//! ```sql
//! SELECT k, max(x) FROM t GROUP BY k  -- x: NaN, then 2
//! ```
//!
//! - DataFusion: 2, whichever comes last, and of minus infinity alone the smallest number; right is NaN, and minus infinity.
//! - Upstream: apache/datafusion#24432.
//! - This can go when its canary finds the fault mended.
//!
//! DataFusion's own take whatever comes after a NaN, and begin at the smallest and the greatest finite number, so that the
//! greatest of groups that are all minus infinity is a number. Without groups they are as ours.

use std::hash::Hash;

use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, FieldRef, Float32Type, Float64Type,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use super::nested_extremes;

/// `min` and `max` as the session registers them.
pub fn of_floats() -> [AggregateUDF; 2] {
    [
        AggregateUDF::from(Extreme { built_in: Min::new() }),
        AggregateUDF::from(Extreme { built_in: Max::new() }),
    ]
}

/// One of DataFusion's two functions; other types than floats are its business.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme<F> {
    built_in: F,
}

impl<F: AggregateUDFImpl + Eq + Hash> AggregateUDFImpl for Extreme<F> {
    fn name(&self) -> &str {
        self.built_in.name()
    }

    fn signature(&self) -> &Signature {
        self.built_in.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.built_in.return_type(arg_types)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.built_in.coerce_types(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type();
        if nested_extremes::is_nested(data_type) {
            return Ok(nested_extremes::extreme(
                data_type,
                self.built_in.is_descending() == Some(true),
            ));
        }
        self.built_in.accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.built_in.create_sliding_accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.built_in.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.built_in.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let is_max = self.built_in.is_descending() == Some(true);
        match args.return_field.data_type() {
            DataType::Float32 if is_max => Ok(greatest::<Float32Type>(f32::NEG_INFINITY)),
            DataType::Float64 if is_max => Ok(greatest::<Float64Type>(f64::NEG_INFINITY)),
            DataType::Float32 => Ok(least::<Float32Type>(f32::NAN)),
            DataType::Float64 => Ok(least::<Float64Type>(f64::NAN)),
            _ => self.built_in.create_groups_accumulator(args),
        }
    }

    fn is_descending(&self) -> Option<bool> {
        self.built_in.is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.built_in.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.built_in.reverse_expr()
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        self.built_in.value_from_stats(statistics)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.built_in.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.built_in.set_monotonicity(data_type)
    }
}

fn greatest<T>(least: T::Native) -> Box<dyn GroupsAccumulator>
where
    T: ArrowPrimitiveType + Send,
    T::Native: Float,
{
    let keep = |kept: &mut T::Native, value: T::Native| {
        if value > *kept || value.is_nan() {
            *kept = value;
        }
    };
    let groups = PrimitiveGroupsAccumulator::<T, _>::new(&T::DATA_TYPE, keep);
    Box::new(groups.with_starting_value(least))
}

fn least<T>(greatest: T::Native) -> Box<dyn GroupsAccumulator>
where
    T: ArrowPrimitiveType + Send,
    T::Native: Float,
{
    let keep = |kept: &mut T::Native, value: T::Native| {
        if value < *kept || (kept.is_nan() && !value.is_nan()) {
            *kept = value;
        }
    };
    let groups = PrimitiveGroupsAccumulator::<T, _>::new(&T::DATA_TYPE, keep);
    Box::new(groups.with_starting_value(greatest))
}

trait Float: PartialOrd {
    fn is_nan(&self) -> bool;
}

impl Float for f32 {
    fn is_nan(&self) -> bool {
        f32::is_nan(*self)
    }
}

impl Float for f64 {
    fn is_nan(&self) -> bool {
        f64::is_nan(*self)
    }
}
