//! `coalesce(t, '9999-12-31')`: a text that is written beside a moment is a moment, as in CASE. The planner finds no type for both.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

/// The function.
pub const NAME: &str = "coalesce";

/// The planner's function, with texts beside moments.
pub fn beside_texts(inner: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Choice { inner })
}

/// The planner's function.
pub fn inner(function: &ScalarUDF) -> &ScalarUDF {
    match function.inner().downcast_ref::<Choice>() {
        Some(choice) => &choice.inner,
        None => function,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Choice {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Choice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let (texts, others): (Vec<DataType>, Vec<DataType>) =
            types.iter().cloned().partition(DataType::is_string);
        let are_moments = !texts.is_empty()
            && others.iter().any(DataType::is_temporal)
            && others.iter().all(|other| other.is_temporal() || other.is_null());
        if !are_moments {
            return self.inner.coerce_types(types);
        }
        let met = self.inner.coerce_types(&others)?;
        let moment = met.into_iter().find(|met| !met.is_null()).unwrap_or(DataType::Null);
        Ok(vec![moment; types.len()])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
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

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
