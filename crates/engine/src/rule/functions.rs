//! DataFusion's functions as those of the IR.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::functions::datetime::{date_part::DatePartFunc, date_trunc::DateTruncFunc};
use datafusion::functions::math::{
    abs::AbsFunc, ceil::CeilFunc, floor::FloorFunc, round::RoundFunc,
};
use datafusion::functions::string::octet_length::OctetLengthFunc;
use datafusion::functions::unicode::character_length::CharacterLengthFunc;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use headrace_format::arrow::ir_type;
use headrace_ir::function::{DatePart, Function};
use headrace_ir::{DataType, Expr, Value};
use headrace_pipeline::WhyNot;

use super::translate::Translator;
use super::types::scalar;

impl Translator<'_> {
    /// A call of a function that the IR has; `None` for others.
    pub(super) fn call(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        function: &ScalarFunctionExpr,
    ) -> Result<Option<Expr>, WhyNot> {
        let Some((called, argument)) = ir_function(function) else { return Ok(None) };
        let argument = self.translate(argument)?;
        let data_type = self.plain_result_type(expr)?;
        let whole = argument.data_type().is_integer() && argument.data_type() == data_type;
        if matches!(called, Function::Round(_)) && whole {
            return Ok(Some(argument));
        }
        match called.signature(&[argument.data_type()]) {
            Some(signature) if signature.result == data_type => {
                Ok(Some(Expr::Call { function: called, arguments: vec![argument], data_type }))
            }
            _ => Err(WhyNot::new(format!(
                "{} of {} as {data_type} is not supported",
                called.name(),
                argument.data_type()
            ))),
        }
    }

    /// The type of the values, where the planner keeps them as a dictionary because the argument
    /// was one.
    fn plain_result_type(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<DataType, WhyNot> {
        match expr.data_type(self.schema) {
            Ok(ArrowType::Dictionary(_, values)) => {
                ir_type(&values).ok_or_else(|| WhyNot::new(format!("{expr} has type {values}")))
            }
            _ => self.result_type(expr),
        }
    }
}

/// The function and the argument that is no part of it.
fn ir_function(function: &ScalarFunctionExpr) -> Option<(Function, &Arc<dyn PhysicalExpr>)> {
    let implementation = function.fun().inner();
    match function.args() {
        [part, moment] if implementation.is::<DatePartFunc>() => {
            Some((Function::DatePart(date_part(part)?), moment))
        }
        [part, moment] if implementation.is::<DateTruncFunc>() => {
            Some((Function::DateTrunc(date_part(part)?), moment))
        }
        [number, digits] if implementation.is::<RoundFunc>() => {
            Some((Function::Round(digits_of(digits)?), number))
        }
        [argument] => {
            let called = if implementation.is::<AbsFunc>() {
                Function::Abs
            } else if implementation.is::<FloorFunc>() {
                Function::Floor
            } else if implementation.is::<CeilFunc>() {
                Function::Ceil
            } else if implementation.is::<RoundFunc>() {
                Function::Round(0)
            } else if implementation.is::<CharacterLengthFunc>() {
                Function::CharacterLength
            } else if implementation.is::<OctetLengthFunc>() {
                Function::OctetLength
            } else {
                return None;
            };
            Some((called, argument))
        }
        _ => None,
    }
}

fn date_part(name: &Arc<dyn PhysicalExpr>) -> Option<DatePart> {
    let literal = name.downcast_ref::<Literal>()?;
    DatePart::of_name(literal.value().try_as_str().flatten()?)
}

/// Digits after the point; fewer than none are the planner's business.
fn digits_of(digits: &Arc<dyn PhysicalExpr>) -> Option<u8> {
    match scalar(digits.downcast_ref::<Literal>()?.value()).ok()?.value {
        Value::Int(digits) => u8::try_from(digits).ok(),
        _ => None,
    }
}
