//! DataFusion's functions as those of the IR.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::functions::core::nullif::NullIfFunc;
use datafusion::functions::datetime::{date_part::DatePartFunc, date_trunc::DateTruncFunc};
use datafusion::functions::math::{
    abs::AbsFunc, ceil::CeilFunc, floor::FloorFunc, round::RoundFunc,
};
use datafusion::functions::regex::{regexplike::RegexpLikeFunc, regexpreplace::RegexpReplaceFunc};
use datafusion::functions::string::{
    btrim::BTrimFunc, concat::ConcatFunc, lower::LowerFunc, ltrim::LtrimFunc,
    octet_length::OctetLengthFunc, replace::ReplaceFunc, rtrim::RtrimFunc,
    starts_with::StartsWithFunc, upper::UpperFunc,
};
use datafusion::functions::unicode::{
    character_length::CharacterLengthFunc, left::LeftFunc, reverse::ReverseFunc, right::RightFunc,
    strpos::StrposFunc, substr::SubstrFunc,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use headrace_format::arrow::ir_type;
use headrace_ir::function::{DatePart, Function, TrimSide};
use headrace_ir::{CompareOp, DataType, Expr, Scalar, Value};
use headrace_pipeline::WhyNot;

use super::regex;
use super::translate::{Translator, compare};
use super::types::scalar;
use crate::functions::cuda::CudaCall;
use crate::functions::{function_of, name_of, own};
use crate::semantics::Rint;

impl Translator<'_> {
    /// A call of a function that the IR has; `None` for others.
    pub(super) fn call(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        function: &ScalarFunctionExpr,
    ) -> Result<Option<Expr>, WhyNot> {
        if let Some(text) = self.text_call(expr, function)? {
            return Ok(Some(text));
        }
        if let Some(found) = self.regex_call(function)? {
            return Ok(Some(found));
        }
        let Some((called, argument)) = ir_function(function) else { return Ok(None) };
        let argument = self.translate(argument)?;
        let whole = argument.data_type().is_integer()
            && argument.data_type() == self.plain_result_type(expr)?;
        if matches!(called, Function::Round(_)) && whole {
            return Ok(Some(argument));
        }
        self.called(expr, called, vec![argument]).map(Some)
    }

    /// A call whose type must be the planner's.
    fn called(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        function: Function,
        arguments: Vec<Expr>,
    ) -> Result<Expr, WhyNot> {
        let data_type = self.plain_result_type(expr)?;
        let types: Vec<DataType> = arguments.iter().map(Expr::data_type).collect();
        match function.signature(&types) {
            Some(signature) if signature.result == data_type => {
                Ok(Expr::Call { function, arguments, data_type })
            }
            _ => {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                let (name, types) = (function.name(), types.join(", "));
                Err(WhyNot::new(format!("{name} of {types} as {data_type} is not supported")))
            }
        }
    }

    /// A call of several arguments, of a text or of any; `None` for others.
    fn text_call(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        function: &ScalarFunctionExpr,
    ) -> Result<Option<Expr>, WhyNot> {
        let (called, arguments) = (own(function.fun()).inner(), function.args());
        let trim = [
            (called.is::<BTrimFunc>(), TrimSide::Both),
            (called.is::<LtrimFunc>(), TrimSide::Start),
            (called.is::<RtrimFunc>(), TrimSide::End),
        ];
        let trim = trim.into_iter().find_map(|(is, side)| is.then_some(Function::Trim(side)));
        let (function, arguments) = match arguments {
            [left, right] if called.is::<NullIfFunc>() => {
                return self.null_if(left, right).map(Some);
            }
            [text] if called.is::<ReverseFunc>() => {
                (Function::Reverse, vec![self.translate(text)?])
            }
            [text] if called.is::<LowerFunc>() => {
                (Function::UnicodeLower, vec![self.translate(text)?])
            }
            [text] if called.is::<UpperFunc>() => {
                (Function::UnicodeUpper, vec![self.translate(text)?])
            }
            [text] if let Some(trim) = trim => (trim, vec![self.translate(text)?, text_of(" ")]),
            [text, characters] if let Some(trim) = trim => {
                (trim, vec![self.translate(text)?, self.translate(characters)?])
            }
            [text, first, rest @ ..] if called.is::<SubstrFunc>() && rest.len() < 2 => {
                let mut arguments = vec![self.translate(text)?, number(first)?];
                arguments.extend(rest.iter().map(number).collect::<Result<Vec<_>, _>>()?);
                (Function::Substring, arguments)
            }
            [text, count] if called.is::<LeftFunc>() => {
                (Function::Left, vec![self.translate(text)?, number(count)?])
            }
            [text, count] if called.is::<RightFunc>() => {
                (Function::Right, vec![self.translate(text)?, number(count)?])
            }
            [text, part] if called.is::<StrposFunc>() => {
                (Function::Position, vec![self.translate(text)?, self.translate(part)?])
            }
            [text, part] if called.is::<StartsWithFunc>() => {
                (Function::StartsWith, vec![self.translate(text)?, self.translate(part)?])
            }
            [text, from, to] if called.is::<ReplaceFunc>() && is_some_text(from) => {
                let arguments = [text, from, to].map(|argument| self.translate(argument));
                (Function::Replace, arguments.into_iter().collect::<Result<_, _>>()?)
            }
            [one, other] if let Some(function) = function_of(called.as_ref()) => {
                let (one, other) = (self.translate(one)?, self.translate(other)?);
                let (left, right) = (one.data_type(), other.data_type());
                (function, vec![as_fixed(one, &right), as_fixed(other, &left)])
            }
            [_, ..] if called.is::<ConcatFunc>() => {
                let part = |argument| self.translate(argument).map(or_nothing);
                (Function::Concat, arguments.iter().map(part).collect::<Result<_, _>>()?)
            }
            _ => return Ok(None),
        };
        self.called(expr, function, arguments).map(Some)
    }

    /// A call of a regular expression whose other arguments are constants; `None` for others.
    fn regex_call(&self, function: &ScalarFunctionExpr) -> Result<Option<Expr>, WhyNot> {
        let called = own(function.fun()).inner();
        let name = name_of(called.as_ref()).unwrap_or(called.name());
        let is_planners = called.is::<RegexpLikeFunc>() || called.is::<RegexpReplaceFunc>();
        let is_ours = name_of(called.as_ref()).is_some() && name.starts_with("regexp_");
        let [text, rest @ ..] = function.args() else { return Ok(None) };
        if !is_planners && !is_ours {
            return Ok(None);
        }
        let constants = rest.iter().map(|argument| {
            let literal = argument.downcast_ref::<Literal>()?;
            scalar(literal.value()).ok()
        });
        let Some(constants) = constants.collect::<Option<Vec<Scalar>>>() else { return Ok(None) };
        let text = self.translate(text)?;
        if text.data_type() != DataType::Utf8 {
            return Ok(None);
        }
        regex::called(name, &text, &constants)
    }

    /// `text ~ pattern` and its kin.
    pub(super) fn regex(
        &self,
        text: &Arc<dyn PhysicalExpr>,
        pattern: &Arc<dyn PhysicalExpr>,
        case_insensitive: bool,
        negated: bool,
    ) -> Result<Expr, WhyNot> {
        match (self.translate(text)?, self.translate(pattern)?) {
            (text, Expr::Literal(Scalar { value: Value::Utf8(pattern), .. }))
                if text.data_type() == DataType::Utf8 =>
            {
                regex::operator(text, &pattern, case_insensitive, negated)
            }
            (_, pattern) => {
                Err(WhyNot::new(format!("the regular expression {pattern} is not a constant")))
            }
        }
    }

    /// A call of a function that a user wrote in CUDA. NULL for NULL is the code's rule, and so its twin's.
    pub(super) fn cuda_call(
        &self,
        call: &CudaCall,
        arguments: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Expr, WhyNot> {
        let function = Box::new(call.function().clone());
        let twin = call.twin_of(arguments).map_err(|error| WhyNot::new(error.to_string()))?;
        // The planner has it, too, if pipelines do not.
        let twin = twin.and_then(|twin| self.translate(&twin).ok());
        let wanted = function.parameters.iter().map(|(_, data_type)| data_type);
        let arguments = arguments.iter().zip(wanted);
        let arguments = arguments.map(|(argument, of)| Ok(as_fixed(self.translate(argument)?, of)));
        let arguments = arguments.collect::<Result<Vec<_>, WhyNot>>()?;
        let is_there = |argument: &&Expr| argument.nullable();
        let is_there = arguments.iter().filter(is_there).cloned();
        let is_there = is_there.map(|e| Expr::Not(Box::new(Expr::IsNull(Box::new(e)))));
        let is_there: Vec<_> = is_there.collect();
        let data_type = function.result.clone();
        let twin = twin.map(|twin| match is_there.is_empty() {
            true => twin,
            false => Expr::Case {
                branches: vec![(Expr::And(is_there), twin)],
                otherwise: None,
                data_type,
            },
        });
        let expr = Expr::Cuda { function, arguments, twin: twin.map(Box::new) };
        Ok(expr)
    }

    /// The first value unless it is the second.
    fn null_if(
        &self,
        value: &Arc<dyn PhysicalExpr>,
        other: &Arc<dyn PhysicalExpr>,
    ) -> Result<Expr, WhyNot> {
        let (value, other) = (self.translate(value)?, self.translate(other)?);
        let is_null = matches!(&other, Expr::Literal(scalar) if scalar.is_null());
        if is_null && value.nullable() {
            return Ok(value);
        }
        let data_type = value.data_type();
        let null = Expr::Literal(Scalar::null(data_type.clone()));
        let is_other = compare(CompareOp::Eq, value.clone(), other)?;
        let (branches, otherwise) = (vec![(is_other, null)], Some(Box::new(value)));
        Ok(Expr::Case { branches, otherwise, data_type })
    }

    /// `left || right`.
    pub(super) fn concatenation(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Result<Expr, WhyNot> {
        let arguments = vec![self.translate(left)?, self.translate(right)?];
        self.called(expr, Function::Concat, arguments)
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

/// Constant bytes of a length that all bytes of a type have are of that type.
fn as_fixed(constant: Expr, of: &DataType) -> Expr {
    match (constant, of) {
        (
            Expr::Literal(Scalar { value: Value::Binary(bytes), .. }),
            DataType::FixedBinary(width),
        ) if bytes.len() == *width as usize => {
            Expr::Literal(Scalar::new(of.clone(), Value::Binary(bytes)))
        }
        (constant, _) => constant,
    }
}

fn text_of(text: &str) -> Expr {
    Expr::Literal(Scalar::new(DataType::Utf8, Value::Utf8(text.to_string())))
}

/// A text, and none in place of NULL, as `concat` takes it.
fn or_nothing(text: Expr) -> Expr {
    if !text.nullable() {
        return text;
    }
    let is_null = Expr::IsNull(Box::new(text.clone()));
    let data_type = text.data_type();
    let (branches, otherwise) = (vec![(is_null, text_of(""))], Some(Box::new(text)));
    Expr::Case { branches, otherwise, data_type }
}

/// Whether it is a constant text of one character at least: what nothing is replaced with differs.
fn is_some_text(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let literal = expr.downcast_ref::<Literal>();
    literal.and_then(|l| l.value().try_as_str().flatten()).is_some_and(|text| !text.is_empty())
}

/// A constant number of characters.
fn number(expr: &Arc<dyn PhysicalExpr>) -> Result<Expr, WhyNot> {
    let number = expr.downcast_ref::<Literal>().and_then(|literal| scalar(literal.value()).ok());
    match number.map(|scalar| scalar.value) {
        Some(Value::Int(number)) if i32::try_from(number).is_ok() => {
            Ok(Expr::Literal(Scalar::int(DataType::Int32, number)))
        }
        _ => Err(WhyNot::new(format!("{expr} is no constant number of characters"))),
    }
}

/// The function and the argument that is no part of it.
fn ir_function(function: &ScalarFunctionExpr) -> Option<(Function, &Arc<dyn PhysicalExpr>)> {
    let implementation = own(function.fun()).inner();
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
            } else if let Some(function) = function_of(implementation.as_ref()) {
                function
            } else if implementation.is::<FloorFunc>() {
                Function::Floor
            } else if implementation.is::<CeilFunc>() {
                Function::Ceil
            } else if implementation.is::<RoundFunc>() {
                Function::Round(0)
            } else if implementation.is::<Rint>() {
                Function::RoundEven
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
