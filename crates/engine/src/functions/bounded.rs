//! Functions whose result may be huge are bounded before they make it.
//!
//! A small statement can ask for any amount of memory: `repeat('x', 2000000000)`. An allocation that fails ends the
//! process, and the planner calls functions of constants while it plans, where no operator counts. So the function itself is
//! wrapped: what its result takes follows from its arguments ([`super::sizes`]), and is taken from the session's memory
//! budget for as long as the call lasts.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_datafusion_err, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, StructFieldMapping,
};
use headrace_io::{MemoryBudget, MemoryUse};

/// Bytes of the values of one column of a batch: its offsets are 32 bits wide.
const COLUMN_BYTES_MAX: u64 = i32::MAX as u64;

/// Results of less are not worth a look at the budget.
const SMALL_BYTES: u64 = 1 << 20;

/// Bytes of a function's result, or a bound of them.
pub type Size = fn(&ScalarFunctionArgs) -> u64;

/// A function, with what its results take.
#[derive(Debug)]
pub struct Bounded {
    inner: Arc<ScalarUDF>,
    size: Size,
    budget: Arc<MemoryBudget>,
}

impl Bounded {
    /// Bounds a function by a budget.
    pub fn around(inner: Arc<ScalarUDF>, size: Size, budget: Arc<MemoryBudget>) -> ScalarUDF {
        ScalarUDF::from(Self { inner, size, budget })
    }

    /// The function itself.
    pub fn of(function: &ScalarUDF) -> &ScalarUDF {
        match function.inner().downcast_ref::<Self>() {
            Some(bounded) => Self::of(&bounded.inner),
            None => function,
        }
    }
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

/// That a result is too large for a column.
fn too_large(name: &str, bytes: u64) -> DataFusionError {
    exec_datafusion_err!(
        "{name}() would make {} of values for one batch, and a column of a batch holds {}\nhint: ask for shorter \
         results, or for fewer rows at once",
        in_words(bytes),
        in_words(COLUMN_BYTES_MAX)
    )
}

fn in_words(bytes: u64) -> String {
    match bytes {
        u64::MAX => "more than 18,000 PB".to_string(),
        10_000_000_000.. => format!("{} GB", bytes / 1_000_000_000),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = Arc::new(self.inner.inner().with_updated_config(config)?);
        Some(Self::around(inner, self.size, Arc::clone(&self.budget)))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let bytes = (self.size)(&args);
        if bytes > COLUMN_BYTES_MAX {
            return Err(too_large(self.name(), bytes));
        }
        if bytes <= SMALL_BYTES {
            return self.inner.invoke_with_args(args);
        }
        let Ok(_held) = self.budget.reserve(MemoryUse::Operators, bytes) else {
            return exec_err!(
                "{}() would make {} of values for one batch, and the memory limit leaves {}\nhint: raise --memory-limit, ask \
                 for shorter results, or for fewer rows at once",
                self.name(),
                in_words(bytes),
                in_words(
                    self.budget.limit_bytes().saturating_sub(self.budget.uses().total_bytes())
                )
            );
        };
        self.inner.invoke_with_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let simplified = self.inner.simplify(args, info)?;
        let ExprSimplifyResult::Simplified(Expr::ScalarFunction(mut call)) = simplified else {
            return Ok(simplified);
        };
        // A shorter call of the function is no call of another.
        if call.func == self.inner {
            let budget = Arc::clone(&self.budget);
            call.func = Arc::new(Self::around(Arc::clone(&self.inner), self.size, budget));
        }
        Ok(ExprSimplifyResult::Simplified(Expr::ScalarFunction(call)))
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        self.inner.preimage(args, literal, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn evaluate_bounds(&self, input: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(input)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.inner().strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn struct_field_mapping(&self, literals: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.inner.inner().struct_field_mapping(literals)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.inner().placement(args)
    }
}
