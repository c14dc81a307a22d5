//! Comparisons, and what is made of them.

use headrace_ir::{CompareOp, DataType, Expr, Scalar, Value};
use pgrx::pg_sys::{self, Node, NodeTag, Oid};

use super::constant::value;
use super::expr::{Translated, Translator, is_null, not, operands, operator_name, widened};
use super::shown::{Choices, Shown};
use super::types::{VARHDRSZ, ir_type, is_deterministic, is_of_one_length, wider_integer};
use crate::nodes::{WhyNot, cast, why_not};
use crate::version;

impl Translator {
    pub(super) unsafe fn comparison(
        &mut self,
        comparison: &Comparison,
        left: *mut Node,
        right: *mut Node,
    ) -> Translated {
        if comparison.is_padded {
            return self.padded(comparison.op, left, right);
        }
        let (left, right) = (self.comparable(left, right)?, self.comparable(right, left)?);
        let (left, right) = unified(left, right)?;
        Ok(Expr::compare(comparison.op, left, right))
    }

    /// An operand of a comparison with another one: a date or timestamp that is compared with a moment
    /// with time zone is one of the session's zone.
    unsafe fn comparable(&mut self, node: *mut Node, other: *mut Node) -> Translated {
        let function = match (pg_sys::exprType(node), pg_sys::exprType(other)) {
            (pg_sys::DATEOID, pg_sys::TIMESTAMPTZOID) => pg_sys::F_TIMESTAMPTZ_DATE,
            (pg_sys::TIMESTAMPOID, pg_sys::TIMESTAMPTZOID) => pg_sys::F_TIMESTAMPTZ_TIMESTAMP,
            _ => return self.value(node),
        };
        let moment = pg_sys::makeFuncExpr(
            function.into(),
            pg_sys::TIMESTAMPTZOID,
            crate::nodes::list([node]),
            Oid::INVALID,
            Oid::INVALID,
            pg_sys::CoercionForm::COERCE_IMPLICIT_CAST,
        );
        self.expr(moment.cast())
    }

    /// Texts of `bpchar`, whose trailing blanks do not count: a column's values are all padded to its
    /// length, and so is the constant that they are compared with.
    unsafe fn padded(&mut self, op: CompareOp, left: *mut Node, right: *mut Node) -> Translated {
        let (modifier, other) = (pg_sys::exprTypmod(left), pg_sys::exprTypmod(right));
        if modifier >= VARHDRSZ && modifier == other {
            return Ok(Expr::compare(op, self.expr(left)?, self.expr(right)?));
        }
        match (cast::<pg_sys::Const>(left, NodeTag::T_Const), self.constant(right)) {
            (None, Some(constant)) if modifier >= VARHDRSZ => {
                let text = padded(constant?, modifier);
                Ok(Expr::compare(op, self.expr(left)?, Expr::Literal(text)))
            }
            (Some(_), _) if other >= VARHDRSZ => self.padded(op.swapped(), right, left),
            _ => why_not("a comparison of texts of type bpchar with blanks at their ends"),
        }
    }

    pub(super) unsafe fn distinct(&mut self, expr: &pg_sys::DistinctExpr) -> Translated {
        let [left, right] = operands(expr.args)[..] else { return why_not("IS DISTINCT FROM") };
        let equal = self.equality(expr.opno, expr.inputcollid, left, right)?;
        let (left, right) = (is_null(self.value(left)?), is_null(self.value(right)?));
        let neither = Expr::And(vec![not(left.clone()), not(right.clone()), not(equal)]);
        let one = |a: &Expr, b: &Expr| Expr::And(vec![a.clone(), not(b.clone())]);
        Ok(Expr::Or(vec![one(&left, &right), one(&right, &left), neither]))
    }

    pub(super) unsafe fn null_if(&mut self, expr: &pg_sys::NullIfExpr) -> Result<Shown, WhyNot> {
        let [left, right] = operands(expr.args)[..] else { return why_not("NULLIF") };
        let equal = self.equality(expr.opno, expr.inputcollid, left, right)?;
        Choices::of(vec![self.shown(left)?])?.chosen(|mut values, data_type| {
            let null = Expr::Literal(Scalar::null(data_type.clone()));
            let (branches, otherwise) = (vec![(equal.clone(), null)], values.pop().map(Box::new));
            Ok(Expr::Case { branches, otherwise, data_type: data_type.clone() })
        })
    }

    unsafe fn equality(
        &mut self,
        operator: Oid,
        collation: Oid,
        left: *mut Node,
        right: *mut Node,
    ) -> Translated {
        match Comparison::of(operator, collation)? {
            Some(comparison) if comparison.op == CompareOp::Eq => {
                self.comparison(&comparison, left, right)
            }
            _ => why_not(format!("operator {}", operator_name(operator))),
        }
    }

    /// `value = ANY (array)` and `value <> ALL (array)` of constants.
    pub(super) unsafe fn in_list(&mut self, node: *mut Node) -> Translated {
        let expr = &*node.cast::<pg_sys::ScalarArrayOpExpr>();
        let [left, right] = operands(expr.args)[..] else { return why_not("ANY") };
        let comparison = Comparison::of(expr.opno, expr.inputcollid)?;
        let negated = match comparison {
            Some(Comparison { op: CompareOp::Eq, .. }) if expr.useOr => false,
            Some(Comparison { op: CompareOp::Ne, .. }) if !expr.useOr => true,
            _ => return self.parameter(node),
        };
        let Some(array) = cast::<pg_sys::Const>(right, NodeTag::T_Const) else {
            return why_not("a list that is not of constants");
        };
        let value = self.value(left)?;
        let is_padded = comparison.is_some_and(|comparison| comparison.is_padded);
        let list = self.list(&*array, &value.data_type(), is_padded, pg_sys::exprTypmod(left))?;
        Ok(Expr::InList { value: Box::new(value), list, negated })
    }

    unsafe fn list(
        &self,
        array: &pg_sys::Const,
        of: &DataType,
        is_padded: bool,
        typmod: i32,
    ) -> Result<Vec<Scalar>, WhyNot> {
        if array.constisnull || (is_padded && typmod < VARHDRSZ) {
            return why_not("a list of unknown values");
        }
        let element = pg_sys::get_element_type(array.consttype);
        let elements = version::array_elements(array.constvalue, element);
        let scalars = elements.into_iter().map(|datum| match datum {
            None => Ok(Scalar::null(of.clone())),
            Some(datum) => {
                let own = match of {
                    DataType::Decimal128 { .. } => of.clone(),
                    _ => ir_type(element, -1)?,
                };
                let scalar = value(datum, element, &own)?;
                let scalar = if is_padded { padded(scalar, typmod) } else { scalar };
                as_type(scalar, of)
            }
        });
        scalars.collect()
    }
}

/// A comparison, of which the operands are one type or can be made one.
pub(super) struct Comparison {
    op: CompareOp,
    is_padded: bool,
}

impl Comparison {
    /// What an operator of the built-in B-tree families means; `None` if it is of none.
    pub(super) unsafe fn of(operator: Oid, collation: Oid) -> Result<Option<Self>, WhyNot> {
        const BPCHAR: u32 = 426;
        const TEXT: u32 = 1994;
        const ENUM: u32 = 3522;
        // bool, date and timestamps, integers, floats, numeric, time, uuid.
        const OTHERS: [u32; 7] = [424, 434, 1976, 1970, 1988, 1996, 2968];
        for (family, strategy) in version::meanings(operator) {
            let op = match strategy {
                1 => CompareOp::Lt,
                2 => CompareOp::Le,
                3 => CompareOp::Eq,
                4 => CompareOp::Ge,
                5 => CompareOp::Gt,
                _ => CompareOp::Ne,
            };
            let is_text = matches!(family, BPCHAR | TEXT);
            let is_equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
            if family == ENUM && !is_equality {
                return why_not("an order of labels of an enum");
            }
            if !is_text && family != ENUM && !OTHERS.contains(&family) {
                continue;
            }
            if is_text && is_equality && !is_deterministic(collation) {
                return why_not("a collation that is not deterministic");
            }
            if is_text && !is_equality && (family == BPCHAR || !version::is_c_collation(collation))
            {
                return why_not("an order of texts under a collation other than C");
            }
            return Ok(Some(Self { op, is_padded: family == BPCHAR }));
        }
        Ok(None)
    }
}

/// Whether rows can be looked up by an operator: a built-in equality.
pub unsafe fn equality_key(operator: *mut pg_sys::OpExpr) -> bool {
    let comparison = Comparison::of((*operator).opno, (*operator).inputcollid);
    matches!(comparison, Ok(Some(Comparison { op: CompareOp::Eq, .. })))
}

/// Whether values that a pipeline holds for equal are those that PostgreSQL does, of an expression that is
/// grouped by or asked for the distinct values of.
pub unsafe fn check_equality(node: *mut Node) -> Result<(), WhyNot> {
    if !is_deterministic(pg_sys::exprCollation(node)) {
        return why_not("groups by texts under a collation that is not deterministic");
    }
    if !is_of_one_length(pg_sys::exprType(node), pg_sys::exprTypmod(node)) {
        return why_not("groups by texts of type bpchar of different lengths");
    }
    Ok(())
}

/// Whether an operator puts values in the order that pipelines have, and turned around.
pub unsafe fn descends(operator: Oid, collation: Oid) -> Result<bool, WhyNot> {
    match Comparison::of(operator, collation)? {
        Some(Comparison { op: CompareOp::Lt, .. }) => Ok(false),
        Some(Comparison { op: CompareOp::Gt, .. }) => Ok(true),
        _ => why_not(format!("an order by operator {}", operator_name(operator))),
    }
}

/// Two operands as one type.
fn unified(left: Expr, right: Expr) -> Result<(Expr, Expr), WhyNot> {
    let (l, r) = (left.data_type(), right.data_type());
    let timestamp = |t: &DataType| matches!(t, DataType::Timestamp { timezone: None, .. });
    let to = match (&l, &r) {
        _ if l == r => return Ok((left, right)),
        (DataType::Decimal128 { .. }, DataType::Decimal128 { .. }) => return Ok((left, right)),
        _ if let Some(wider) = wider_integer(&l, &r) => wider,
        _ if l.is_float() && r.is_float() => DataType::Float64,
        (DataType::Date32, other) | (other, DataType::Date32) if timestamp(other) => other.clone(),
        _ => return why_not(format!("a comparison of {l} with {r}")),
    };
    Ok((widened(left, &to), widened(right, &to)))
}

/// A text padded with blanks to a column's length.
fn padded(scalar: Scalar, typmod: i32) -> Scalar {
    match scalar.value {
        Value::Utf8(text) => {
            let width = usize::try_from(typmod - VARHDRSZ).unwrap_or(0);
            Scalar::utf8(format!("{:<width$}", text.trim_end_matches(' ')))
        }
        value => Scalar { value, ..scalar },
    }
}

/// A constant as one of another type that has the same value.
fn as_type(scalar: Scalar, to: &DataType) -> Result<Scalar, WhyNot> {
    if scalar.data_type == *to {
        return Ok(scalar);
    }
    let converted = Scalar::new(to.clone(), scalar.value);
    let is_integer = scalar.data_type.is_integer() && to.is_integer();
    match is_integer && converted.is_of_its_type() {
        true => Ok(converted),
        false => why_not(format!("a list of {} for {to}", scalar.data_type)),
    }
}
