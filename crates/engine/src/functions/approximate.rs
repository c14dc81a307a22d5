//! `approx_percentile_cont(x, p, centroids)`: the number of centroids is memory that each group takes at once.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, Signature,
};
use datafusion::physical_expr::expressions::Literal;

/// More centroids tell nothing more: a percentile is within 1 / centroids already.
const CENTROIDS_MAX: u64 = 100_000;

/// Bounds the centroids of an aggregate.
pub fn percentile(inner: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(Percentile { inner })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Percentile {
    inner: Arc<AggregateUDF>,
}

impl Percentile {
    /// Its last argument, where that is a whole number: percentiles are floats.
    fn check(&self, args: &AccumulatorArgs) -> Result<()> {
        let literal = args.exprs.last().and_then(|expr| expr.downcast_ref::<Literal>());
        let Some(value) = literal.map(Literal::value).filter(|v| v.data_type().is_integer()) else {
            return Ok(());
        };
        match value.to_string().parse::<u64>() {
            Ok(centroids) if centroids > CENTROIDS_MAX => plan_err!(
                "{}() with {centroids} centroids, and it has {CENTROIDS_MAX} at most\nhint: 1000 are within 0.1 %; \
                 percentile_cont() is exact",
                self.inner.name()
            ),
            _ => Ok(()),
        }
    }
}

impl AggregateUDFImpl for Percentile {
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
        self.check(&args)?;
        self.inner.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.check(&args)?;
        self.inner.create_groups_accumulator(args)
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
