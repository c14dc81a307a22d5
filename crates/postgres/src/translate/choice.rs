//! CASE and COALESCE.

use headrace_ir::{CompareOp, DataType, Expr, Scalar};
use pgrx::pg_sys;

use super::expr::{Translated, Translator, is_null, not};
use crate::nodes::{WhyNot, items, why_not};
use crate::version;

/// Conditions and values.
type Branches = Vec<(Expr, Expr)>;

impl Translator {
    pub(super) unsafe fn case(&mut self, case: &pg_sys::CaseExpr) -> Translated {
        if !case.arg.is_null() {
            let value = self.expr(case.arg.cast())?;
            self.cases.push(value);
        }
        let translated = self.branches(case);
        if !case.arg.is_null() {
            self.cases.pop();
        }
        let (branches, otherwise) = translated?;
        let values: Vec<_> = branches.iter().map(|(_, value)| value).chain(&otherwise).collect();
        let data_type = common_type(&values)?;
        let typed = |value: Expr| typed_null(value, &data_type);
        let branches = branches.into_iter().map(|(when, then)| (when, typed(then))).collect();
        let otherwise = otherwise.map(|value| Box::new(typed(value)));
        Ok(Expr::Case { branches, otherwise, data_type })
    }

    unsafe fn branches(
        &mut self,
        case: &pg_sys::CaseExpr,
    ) -> Result<(Branches, Option<Expr>), WhyNot> {
        let mut branches = Vec::new();
        for when in items::<pg_sys::CaseWhen>(case.args) {
            let condition = self.expr((*when).expr.cast())?;
            // Values are not of what is compared.
            branches.push((condition, self.expr((*when).result.cast())?));
        }
        let otherwise = match case.defresult.is_null() {
            true => None,
            false => Some(self.expr(case.defresult.cast())?),
        };
        Ok((branches, otherwise))
    }

    pub(super) unsafe fn coalesce(&mut self, expr: &pg_sys::CoalesceExpr) -> Translated {
        let values = items(expr.args).map(|arg| self.expr(arg)).collect::<Result<Vec<_>, _>>()?;
        let data_type = common_type(&values.iter().collect::<Vec<_>>())?;
        let mut values: Vec<_> = values.into_iter().map(|v| typed_null(v, &data_type)).collect();
        let Some(last) = values.pop() else { return why_not("COALESCE of nothing") };
        let branches = values.into_iter().map(|value| (not(is_null(value.clone())), value));
        Ok(Expr::Case { branches: branches.collect(), otherwise: Some(Box::new(last)), data_type })
    }
}

impl Translator {
    /// GREATEST and LEAST, of which NULLs are none: the first value that none of those after it exceeds.
    pub(super) unsafe fn extreme(&mut self, expr: &pg_sys::MinMaxExpr) -> Translated {
        /// Each value is compared with all after it.
        const VALUES_MAX: usize = 6;
        if expr.minmaxtype == pg_sys::BPCHAROID {
            return why_not("GREATEST or LEAST of texts of type bpchar");
        }
        let values = items(expr.args).map(|arg| self.expr(arg)).collect::<Result<Vec<_>, _>>()?;
        let data_type = common_type(&values.iter().collect::<Vec<_>>())?;
        let has_collation = data_type == DataType::Utf8 && expr.minmaxtype != pg_sys::UUIDOID;
        if has_collation && !version::is_c_collation(expr.inputcollid) {
            return why_not("an order of texts under a collation other than C");
        }
        if values.len() > VALUES_MAX {
            return why_not(format!("GREATEST or LEAST of more than {VALUES_MAX} values"));
        }
        let op = match expr.op {
            pg_sys::MinMaxOp::IS_GREATEST => CompareOp::Ge,
            _ => CompareOp::Le,
        };
        let mut values: Vec<_> = values.into_iter().map(|v| typed_null(v, &data_type)).collect();
        let Some(last) = values.pop() else { return why_not("GREATEST of nothing") };
        let mut otherwise = last.clone();
        let mut later = vec![last];
        while let Some(value) = values.pop() {
            let beats = later.iter().map(|other| {
                let exceeds = Expr::compare(op, value.clone(), other.clone());
                Expr::Or(vec![is_null(other.clone()), exceeds])
            });
            let is_known = not(is_null(value.clone()));
            let condition = Expr::And(std::iter::once(is_known).chain(beats).collect());
            otherwise = Expr::Case {
                branches: vec![(condition, value.clone())],
                otherwise: Some(Box::new(otherwise)),
                data_type: data_type.clone(),
            };
            later.push(value);
        }
        Ok(otherwise)
    }
}

/// A value, or another one of its type where it is NULL.
pub(super) fn or_else(value: Expr, other: Expr) -> Expr {
    let data_type = value.data_type();
    Expr::Case {
        branches: vec![(not(is_null(value.clone())), value)],
        otherwise: Some(Box::new(other)),
        data_type,
    }
}

/// NULL of whatever type as NULL of the type that is wanted.
fn typed_null(value: Expr, of: &DataType) -> Expr {
    match value {
        Expr::Literal(scalar) if scalar.is_null() => Expr::Literal(Scalar::null(of.clone())),
        value => value,
    }
}

/// The type of values that PostgreSQL holds for one type. Numbers with different digits behind the
/// point would be shown with another number of them.
fn common_type(values: &[&Expr]) -> Result<DataType, WhyNot> {
    let is_known = |value: &&&Expr| !matches!(value, Expr::Literal(scalar) if scalar.is_null());
    let mut types = values.iter().filter(is_known).map(|value| value.data_type());
    let Some(first) = types.next().or_else(|| values.first().map(|value| value.data_type())) else {
        return why_not("a choice among nothing");
    };
    types.try_fold(first, |known, next| match (&known, &next) {
        (a, b) if a == b => Ok(known),
        (
            &DataType::Decimal128 { precision, scale },
            &DataType::Decimal128 { precision: other, scale: other_scale },
        ) if scale == other_scale => {
            Ok(DataType::Decimal128 { precision: precision.max(other), scale })
        }
        (DataType::Decimal128 { .. }, DataType::Decimal128 { .. }) => {
            why_not("a choice among numbers with different digits behind the point")
        }
        (a, b) => why_not(format!("a choice between {a} and {b}")),
    })
}
