//! `+ - *` and unary minus of integers and decimals as functions that fail on overflow.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Datum};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, FieldRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;

use crate::error::overflow;
use crate::strict;

/// `left op right`, failing when the result does not fit its type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CheckedArithmetic {
    operator: Operator,
    signature: Signature,
}

/// `-value`, failing for the most negative integer.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CheckedNegate {
    signature: Signature,
}

static ADD: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| CheckedArithmetic::udf(Operator::Plus));
static SUBTRACT: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| CheckedArithmetic::udf(Operator::Minus));
static MULTIPLY: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| CheckedArithmetic::udf(Operator::Multiply));
static NEGATE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::from(CheckedNegate { signature: Signature::any(1, Volatility::Immutable) }))
});

/// The function for `+`, `-` or `*`.
pub fn checked_arithmetic(operator: Operator) -> Arc<ScalarUDF> {
    Arc::clone(match operator {
        Operator::Plus => &ADD,
        Operator::Minus => &SUBTRACT,
        _ => &MULTIPLY,
    })
}

/// The function for unary minus.
pub fn checked_negate() -> Arc<ScalarUDF> {
    Arc::clone(&NEGATE)
}

impl CheckedArithmetic {
    fn udf(operator: Operator) -> Arc<ScalarUDF> {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Self { operator, signature }))
    }

    /// The operator.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    fn kernel(&self) -> fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError> {
        match self.operator {
            Operator::Plus => numeric::add,
            Operator::Minus => numeric::sub,
            _ => numeric::mul,
        }
    }
}

/// An operand that is itself an operator stands in parentheses.
fn operand_text(expr: &Expr) -> String {
    match expr {
        Expr::ScalarFunction(f)
            if f.func.inner().is::<CheckedArithmetic>() || f.func.inner().is::<CheckedNegate>() =>
        {
            format!("({expr})")
        }
        Expr::BinaryExpr(_) => format!("({expr})"),
        other => other.to_string(),
    }
}

fn argument_text(args: &ScalarFunctionArgs, index: usize) -> String {
    match (&args.args[index], args.arg_fields.get(index)) {
        (ColumnarValue::Scalar(value), _) => value.to_string(),
        (_, Some(field)) => field.name().clone(),
        (_, None) => "?".to_string(),
    }
}

fn check_digits(value: &ColumnarValue) -> Result<(), ArrowError> {
    let array = match value {
        ColumnarValue::Array(array) => Arc::clone(array),
        ColumnarValue::Scalar(scalar) => {
            scalar.to_array().map_err(|e| ArrowError::ComputeError(e.to_string()))?
        }
    };
    match array.data_type() {
        DataType::Decimal128(precision, _) => {
            array.as_primitive::<Decimal128Type>().validate_decimal_precision(*precision)
        }
        DataType::Decimal256(precision, _) => {
            array.as_primitive::<Decimal256Type>().validate_decimal_precision(*precision)
        }
        _ => Ok(()),
    }
}

impl ScalarUDFImpl for CheckedArithmetic {
    fn name(&self) -> &str {
        match self.operator {
            Operator::Plus => "checked_add",
            Operator::Minus => "checked_subtract",
            _ => "checked_multiply",
        }
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [left, right] => {
                Ok(format!("{} {} {}", operand_text(left), self.operator, operand_text(right)))
            }
            _ => internal_err!("{} takes two arguments", self.name()),
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [left, right] => {
                Ok(format!("{} {} {}", left.schema_name(), self.operator, right.schema_name()))
            }
            _ => internal_err!("{} takes two arguments", self.name()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [left, right] => BinaryTypeCoercer::new(left, &self.operator, right).get_result_type(),
            _ => internal_err!("{} takes two arguments", self.name()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        strict::return_field(self, &args)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return internal_err!("{} takes two arguments", self.name());
        };
        let result = apply(left, right, self.kernel()).and_then(|value| {
            check_digits(&value)?;
            Ok(value)
        });
        result.map_err(|error| {
            if is_overflow(&error) {
                let (left, right) = (argument_text(&args, 0), argument_text(&args, 1));
                let place = format!("{left} {} {right}", self.operator);
                return overflow(&place, &args.return_type().to_string());
            }
            error
        })
    }
}

/// Arrow reports an overflow of integers as such, and one of a decimal's digits as a bad
/// argument.
fn is_overflow(error: &DataFusionError) -> bool {
    matches!(
        error.find_root(),
        DataFusionError::ArrowError(inner, _)
            if matches!(
                **inner,
                ArrowError::ArithmeticOverflow(_) | ArrowError::InvalidArgumentError(_)
            )
    )
}

impl ScalarUDFImpl for CheckedNegate {
    fn name(&self) -> &str {
        "checked_negate"
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        args.first().map_or_else(
            || internal_err!("checked_negate takes one argument"),
            |value| Ok(format!("(- {value})")),
        )
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        args.first().map_or_else(
            || internal_err!("checked_negate takes one argument"),
            |value| Ok(format!("(- {})", value.schema_name())),
        )
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        strict::return_field(self, &args)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let negated = match &args.args[0] {
            ColumnarValue::Array(array) => {
                numeric::neg(array).map(ColumnarValue::Array).map_err(DataFusionError::from)
            }
            ColumnarValue::Scalar(scalar) => {
                let negated = scalar.arithmetic_negate().map(ColumnarValue::Scalar);
                return negated.map_err(|error| match is_overflow(&error) {
                    true => overflow(&format!("-({scalar})"), &args.return_type().to_string()),
                    false => error,
                });
            }
        };
        negated.map_err(|error| {
            if is_overflow(&error) {
                let place = format!("-{}", argument_text(&args, 0));
                return overflow(&place, &args.return_type().to_string());
            }
            error
        })
    }
}
