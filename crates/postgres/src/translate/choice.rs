//! CASE and COALESCE.

use headrace_ir::{DataType, Expr, Scalar};
use pgrx::pg_sys;

use super::expr::{Translated, Translator, is_null, not};
use crate::nodes::{WhyNot, items, why_not};

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
