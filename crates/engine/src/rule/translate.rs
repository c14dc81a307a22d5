//! DataFusion's physical expressions as expressions of the IR.
//!
//! DataFusion compares a dictionary column with a constant of dictionary type, or casts the
//! column to plain text; the IR knows only text, so both wrappers disappear here.
//!
//! An uncorrelated subquery of one value is a parameter (`Subqueries`): the plan around the pipeline has already
//! run it, so its value is known at binding, prunes batches and costs nothing per row.

use std::cell::RefCell;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, IntervalMonthDayNano, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use headrace_columns::cast::is_supported as is_cast_supported;
use headrace_format::arrow::ir_type;
use headrace_ir::{
    ArithmeticOp, CastFailure, CompareOp, DataType, Expr, Field, Function, OnOverflow, Scalar,
    Value,
};
use headrace_pipeline::WhyNot;

use super::types::scalar;
use crate::fixes::cast_names::Named;
use crate::fixes::computed_nans::OneNan;
use crate::functions::cuda::CudaCall;
use crate::overflow::arith::{CheckedArithmetic, CheckedNegate};
use crate::semantics::Comparable;

/// By how many days a constant interval moves what it is added to, or taken from, if it is of whole days.
fn moved_by_days(op: ArithmeticOp, interval: &Arc<dyn PhysicalExpr>) -> Option<i32> {
    let days = match interval.downcast_ref::<Literal>()?.value() {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => {
            let IntervalMonthDayNano { months, days, nanoseconds } = *interval;
            (months == 0 && nanoseconds == 0).then_some(days)?
        }
        ScalarValue::IntervalDayTime(Some(interval)) => {
            (interval.milliseconds == 0).then_some(interval.days)?
        }
        _ => return None,
    };
    match op {
        ArithmeticOp::Add => Some(days),
        ArithmeticOp::Subtract => days.checked_neg(),
        _ => None,
    }
}

/// What an input column is in terms of the fragment's registers, or why it cannot be read.
pub type InputColumn = Result<Expr, WhyNot>;

/// Translates expressions over one input.
pub struct Translator<'a> {
    /// The input's columns.
    pub columns: &'a [InputColumn],
    /// The input's schema.
    pub schema: &'a Schema,
    /// Where subqueries are gathered.
    pub subqueries: &'a Subqueries,
}

/// Subqueries of one value that a fragment reads: parameters of its program, whose values are known when it
/// is run.
#[derive(Clone, Debug, Default)]
pub struct Subqueries(RefCell<Vec<Arc<dyn PhysicalExpr>>>);

impl Subqueries {
    /// The number of a subquery's parameter.
    fn number(&self, subquery: &Arc<dyn PhysicalExpr>) -> usize {
        let mut known = self.0.borrow_mut();
        known.iter().position(|one| one == subquery).unwrap_or_else(|| {
            known.push(Arc::clone(subquery));
            known.len() - 1
        })
    }

    /// The parameters that they are. Each may be NULL though its column never is: where it has no row.
    pub fn parameters(&self) -> Result<Vec<Field>, WhyNot> {
        let schema = Schema::empty();
        let field = |subquery: &Arc<dyn PhysicalExpr>| {
            Ok(Field::new(subquery.to_string(), type_of(subquery, &schema)?, true))
        };
        self.0.borrow().iter().map(field).collect()
    }

    /// All of them, by the numbers of their parameters.
    pub fn into_exprs(self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.0.into_inner()
    }
}

fn type_of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<DataType, WhyNot> {
    let field =
        expr.return_field(schema).map_err(|e| WhyNot::new(format!("{expr} has no type: {e}")))?;
    let arrow = field.data_type();
    ir_type(arrow).ok_or_else(|| WhyNot::new(format!("{expr} has type {arrow}")))
}

fn why<T>(reason: impl Into<String>) -> Result<T, WhyNot> {
    Err(WhyNot::new(reason))
}

impl Translator<'_> {
    /// Translates one expression.
    pub fn translate(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Expr, WhyNot> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            return self.column(column);
        }
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            return scalar(literal.value()).map(Expr::Literal);
        }
        if expr.is::<ScalarSubqueryExpr>() {
            let data_type = type_of(expr, self.schema)?;
            let index = self.subqueries.number(expr);
            return Ok(Expr::Parameter { index, data_type, nullable: true });
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            return self.binary(expr, binary);
        }
        if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
            return self.function(expr, function);
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            return Ok(Expr::Not(Box::new(self.boolean(not.arg())?)));
        }
        if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
            return Ok(Expr::IsNull(Box::new(self.translate(is_null.arg())?)));
        }
        if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
            let is_null = Expr::IsNull(Box::new(self.translate(is_not_null.arg())?));
            return Ok(Expr::Not(Box::new(is_null)));
        }
        if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
            return self.negate(negative.arg(), OnOverflow::Wrap);
        }
        if let Some(in_list) = expr.downcast_ref::<InListExpr>() {
            return self.in_list(in_list);
        }
        if let Some(like) = expr.downcast_ref::<LikeExpr>() {
            return self.like(like);
        }
        if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            return self.case(expr, case);
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let on_failure =
                if cast.cast_options().safe { CastFailure::Null } else { CastFailure::Error };
            return self.cast(cast.expr(), cast.cast_type(), on_failure);
        }
        if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
            return self.cast(cast.expr(), cast.cast_type(), CastFailure::Null);
        }
        why(format!("expression {expr} is not supported"))
    }

    fn column(&self, column: &Column) -> Result<Expr, WhyNot> {
        match self.columns.get(column.index()) {
            Some(found) => found.clone(),
            None => why(format!("column {column} is not there")),
        }
    }

    pub(super) fn result_type(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<DataType, WhyNot> {
        type_of(expr, self.schema)
    }

    fn boolean(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Expr, WhyNot> {
        if let Some(literal) = expr.downcast_ref::<Literal>()
            && literal.value().is_null()
        {
            return Ok(Expr::Literal(Scalar::null(DataType::Bool)));
        }
        let translated = self.translate(expr)?;
        match translated.data_type() {
            DataType::Bool => Ok(translated),
            other => why(format!("condition {expr} is {other}")),
        }
    }

    fn binary(&self, expr: &Arc<dyn PhysicalExpr>, binary: &BinaryExpr) -> Result<Expr, WhyNot> {
        let (left, right) = (binary.left(), binary.right());
        match binary.op() {
            Operator::And => {
                let mut operands = self.boolean(left)?.conjuncts();
                operands.extend(self.boolean(right)?.conjuncts());
                Ok(Expr::And(operands))
            }
            Operator::Or => {
                let mut operands = Vec::new();
                for side in [self.boolean(left)?, self.boolean(right)?] {
                    match side {
                        Expr::Or(more) => operands.extend(more),
                        other => operands.push(other),
                    }
                }
                Ok(Expr::Or(operands))
            }
            Operator::IsNotDistinctFrom => self.same(left, right),
            Operator::IsDistinctFrom => Ok(Expr::Not(Box::new(self.same(left, right)?))),
            Operator::StringConcat => self.concatenation(expr, left, right),
            Operator::RegexMatch => self.regex(left, right, false, false),
            Operator::RegexIMatch => self.regex(left, right, true, false),
            Operator::RegexNotMatch => self.regex(left, right, false, true),
            Operator::RegexNotIMatch => self.regex(left, right, true, true),
            op => {
                if let Some(op) = compare_op(*op) {
                    return self.compare(op, left, right);
                }
                let Some(op) = arithmetic_op(*op) else {
                    return why(format!("operator {op} is not supported"));
                };
                // The integer operators that wrap in DataFusion were replaced by checked
                // functions before; division and modulo fail by themselves.
                let on_overflow = match op {
                    ArithmeticOp::Divide | ArithmeticOp::Modulo => OnOverflow::Error,
                    _ => OnOverflow::Wrap,
                };
                self.arithmetic(expr, op, left, right, on_overflow)
            }
        }
    }

    fn compare(
        &self,
        op: CompareOp,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Result<Expr, WhyNot> {
        let (left, right) = (self.translate(left)?, self.translate(right)?);
        compare(op, left, right)
    }

    /// Whether both are NULL, or neither is and they are equal; never NULL.
    fn same(
        &self,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Result<Expr, WhyNot> {
        let is_null = |expr: &Arc<dyn PhysicalExpr>| {
            expr.downcast_ref::<Literal>().is_some_and(|literal| literal.value().is_null())
        };
        match (is_null(left), is_null(right)) {
            (_, true) => return Ok(Expr::IsNull(Box::new(self.translate(left)?))),
            (true, _) => return Ok(Expr::IsNull(Box::new(self.translate(right)?))),
            _ => {}
        }
        let (left, right) = (self.translate(left)?, self.translate(right)?);
        let equal = compare(CompareOp::Eq, left.clone(), right.clone())?;
        let nullable: Vec<Expr> = [left, right].into_iter().filter(Expr::nullable).collect();
        if nullable.is_empty() {
            return Ok(equal);
        }
        let null = |expr: &Expr| Expr::IsNull(Box::new(expr.clone()));
        let mut known: Vec<Expr> =
            nullable.iter().map(|expr| Expr::Not(Box::new(null(expr)))).collect();
        known.push(equal);
        let both_known = Expr::And(known);
        Ok(match nullable.as_slice() {
            [left, right] => Expr::Or(vec![Expr::And(vec![null(left), null(right)]), both_known]),
            _ => both_known,
        })
    }

    fn arithmetic(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        op: ArithmeticOp,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
        on_overflow: OnOverflow,
    ) -> Result<Expr, WhyNot> {
        let data_type = self.result_type(expr)?;
        if let (DataType::Date32, Some(days)) = (&data_type, moved_by_days(op, right)) {
            let date = self.translate(left)?;
            if date.data_type() == data_type {
                let days = Expr::Literal(Scalar::int(DataType::Int32, days.into()));
                let (function, arguments) = (Function::AddDays, vec![date, days]);
                return Ok(Expr::Call { function, arguments, data_type });
            }
        }
        let (left, right) = (self.translate(left)?, self.translate(right)?);
        let (l, r) = (left.data_type(), right.data_type());
        let decimal = |t: &DataType| matches!(t, DataType::Decimal128 { .. });
        let decimals = decimal(&l) && decimal(&r) && decimal(&data_type);
        if !decimals && (l != r || l != data_type || !l.is_numeric()) {
            return why(format!("{l} {op} {r} in {expr} is not supported"));
        }
        Ok(Expr::Arithmetic {
            op,
            left: Box::new(left),
            right: Box::new(right),
            data_type,
            on_overflow,
        })
    }

    fn negate(
        &self,
        value: &Arc<dyn PhysicalExpr>,
        on_overflow: OnOverflow,
    ) -> Result<Expr, WhyNot> {
        let value = self.translate(value)?;
        if !value.data_type().is_numeric() {
            return why(format!("-{value} of {} is not supported", value.data_type()));
        }
        Ok(Expr::Negate { value: Box::new(value), on_overflow })
    }

    fn function(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        function: &ScalarFunctionExpr,
    ) -> Result<Expr, WhyNot> {
        let implementation = function.fun().inner();
        if let Some(checked) = implementation.downcast_ref::<CheckedArithmetic>()
            && let [left, right] = function.args()
            && let Some(op) = arithmetic_op(checked.operator())
        {
            return self.arithmetic(expr, op, left, right, OnOverflow::Error);
        }
        if let Some(call) = implementation.downcast_ref::<CudaCall>() {
            return self.cuda_call(call, function.args());
        }
        if implementation.is::<CheckedNegate>()
            && let [value] = function.args()
        {
            return self.negate(value, OnOverflow::Error);
        }
        // Processors have one NaN and one zero, and no names.
        let is_value = implementation.is::<OneNan>()
            || implementation.is::<Named>()
            || (implementation.is::<Comparable>() && function.return_type().is_floating());
        if is_value && let [value] = function.args() {
            return self.translate(value);
        }
        match self.call(expr, function)? {
            Some(call) => Ok(call),
            None => why(format!("function {} is not supported", function.name())),
        }
    }

    fn in_list(&self, in_list: &InListExpr) -> Result<Expr, WhyNot> {
        let value = self.translate(in_list.expr())?;
        let data_type = value.data_type();
        let list = in_list
            .list()
            .iter()
            .map(|item| match item.downcast_ref::<Literal>() {
                Some(literal) if literal.value().is_null() => Ok(Scalar::null(data_type.clone())),
                Some(literal) => scalar(literal.value()),
                None => why(format!("{item} in an IN list is not a constant")),
            })
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(other) = list.iter().find(|s| s.data_type != data_type) {
            return why(format!("{other} in an IN list is {}, not {data_type}", other.data_type));
        }
        Ok(Expr::InList { value: Box::new(value), list, negated: in_list.negated() })
    }

    fn like(&self, like: &LikeExpr) -> Result<Expr, WhyNot> {
        let value = self.translate(like.expr())?;
        if value.data_type() != DataType::Utf8 {
            return why(format!("LIKE of {} is not supported", value.data_type()));
        }
        match self.translate(like.pattern())? {
            Expr::Literal(Scalar { value: Value::Utf8(pattern), .. }) => Ok(Expr::Like {
                value: Box::new(value),
                pattern,
                escape: None,
                negated: like.negated(),
                case_insensitive: like.case_insensitive(),
            }),
            other => why(format!("LIKE pattern {other} is not a constant")),
        }
    }

    fn case(&self, expr: &Arc<dyn PhysicalExpr>, case: &CaseExpr) -> Result<Expr, WhyNot> {
        let data_type = self.result_type(expr)?;
        let base = case.expr().map(|base| self.translate(base)).transpose()?;
        let branches = case
            .when_then_expr()
            .iter()
            .map(|(when, then)| {
                let condition = match &base {
                    Some(base) => compare(CompareOp::Eq, base.clone(), self.translate(when)?)?,
                    None => self.boolean(when)?,
                };
                Ok((condition, self.branch(then, &data_type)?))
            })
            .collect::<Result<Vec<_>, WhyNot>>()?;
        let otherwise = case
            .else_expr()
            .map(|otherwise| self.branch(otherwise, &data_type))
            .transpose()?
            .map(Box::new);
        Ok(Expr::Case { branches, otherwise, data_type })
    }

    fn branch(&self, expr: &Arc<dyn PhysicalExpr>, wanted: &DataType) -> Result<Expr, WhyNot> {
        if let Some(literal) = expr.downcast_ref::<Literal>()
            && literal.value().is_null()
        {
            return Ok(Expr::Literal(Scalar::null(wanted.clone())));
        }
        let value = self.translate(expr)?;
        match value.data_type() {
            found if found == *wanted => Ok(value),
            found => why(format!("CASE branch {expr} is {found}, not {wanted}")),
        }
    }

    fn cast(
        &self,
        value: &Arc<dyn PhysicalExpr>,
        to: &ArrowType,
        on_failure: CastFailure,
    ) -> Result<Expr, WhyNot> {
        let target =
            ir_type(to).ok_or_else(|| WhyNot::new(format!("casts to {to} are not supported")))?;
        if let Some(literal) = value.downcast_ref::<Literal>()
            && literal.value().is_null()
        {
            return Ok(Expr::Literal(Scalar::null(target)));
        }
        let value = self.translate(value)?;
        let from = value.data_type();
        if from == target {
            return Ok(value);
        }
        if !is_cast_supported(&from, &target) {
            return why(format!("a cast from {from} to {target} is not supported"));
        }
        Ok(Expr::Cast { value: Box::new(value), to: target, on_failure })
    }
}

/// A comparison, if the types of its operands allow one.
pub fn compare(op: CompareOp, left: Expr, right: Expr) -> Result<Expr, WhyNot> {
    let (l, r) = (left.data_type(), right.data_type());
    let decimal = |t: &DataType| matches!(t, DataType::Decimal128 { .. });
    if l != r && !(decimal(&l) && decimal(&r)) {
        return why(format!("comparing {l} with {r} is not supported"));
    }
    Ok(Expr::Compare { op, left: Box::new(left), right: Box::new(right) })
}

fn compare_op(op: Operator) -> Option<CompareOp> {
    Some(match op {
        Operator::Eq => CompareOp::Eq,
        Operator::NotEq => CompareOp::Ne,
        Operator::Lt => CompareOp::Lt,
        Operator::LtEq => CompareOp::Le,
        Operator::Gt => CompareOp::Gt,
        Operator::GtEq => CompareOp::Ge,
        _ => return None,
    })
}

fn arithmetic_op(op: Operator) -> Option<ArithmeticOp> {
    Some(match op {
        Operator::Plus => ArithmeticOp::Add,
        Operator::Minus => ArithmeticOp::Subtract,
        Operator::Multiply => ArithmeticOp::Multiply,
        Operator::Divide => ArithmeticOp::Divide,
        Operator::Modulo => ArithmeticOp::Modulo,
        _ => return None,
    })
}
