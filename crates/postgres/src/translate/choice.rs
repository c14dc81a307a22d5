//! CASE, COALESCE, GREATEST and LEAST.

use headrace_ir::{CompareOp, DataType, Expr};
use pgrx::pg_sys;

use super::expr::{Translated, Translator, is_null, not};
use super::shown::{Choices, Shown};
use super::types::stored;
use crate::nodes::{WhyNot, items, why_not};
use crate::version;

impl Translator {
    pub(super) unsafe fn case(&mut self, case: &pg_sys::CaseExpr) -> Result<Shown, WhyNot> {
        if !case.arg.is_null() {
            let value = self.value(case.arg.cast())?;
            self.cases.push(value);
        }
        let translated = self.branches(case);
        if !case.arg.is_null() {
            self.cases.pop();
        }
        let (conditions, values) = translated?;
        Choices::of(values)?.chosen(|mut values, data_type| {
            let otherwise = values.split_off(conditions.len()).pop().map(Box::new);
            let branches = conditions.iter().cloned().zip(values).collect();
            Ok(Expr::Case { branches, otherwise, data_type: data_type.clone() })
        })
    }

    /// Conditions and their values, then the one of ELSE.
    unsafe fn branches(
        &mut self,
        case: &pg_sys::CaseExpr,
    ) -> Result<(Vec<Expr>, Vec<Shown>), WhyNot> {
        let (mut conditions, mut values) = (Vec::new(), Vec::new());
        for when in items::<pg_sys::CaseWhen>(case.args) {
            conditions.push(self.expr((*when).expr.cast())?);
            // Values are not of what is compared.
            values.push(self.shown((*when).result.cast())?);
        }
        if !case.defresult.is_null() {
            values.push(self.shown(case.defresult.cast())?);
        }
        Ok((conditions, values))
    }

    pub(super) unsafe fn coalesce(&mut self, expr: &pg_sys::CoalesceExpr) -> Result<Shown, WhyNot> {
        let choices = Choices::of(self.shown_all(expr.args)?)?;
        let known = |value: &Expr| not(is_null(value.clone()));
        let conditions: Vec<Expr> = choices.values.iter().map(known).collect();
        choices.known_but_last().chosen(|mut values, data_type| {
            let Some(last) = values.pop() else { return why_not("COALESCE of nothing") };
            let branches = conditions.iter().cloned().zip(values).collect();
            let otherwise = Some(Box::new(last));
            Ok(Expr::Case { branches, otherwise, data_type: data_type.clone() })
        })
    }

    unsafe fn shown_all(&mut self, list: *mut pg_sys::List) -> Result<Vec<Shown>, WhyNot> {
        items(list).map(|arg| self.shown(arg)).collect()
    }
}

impl Translator {
    /// GREATEST and LEAST, of which NULLs are none: the first value that none of those after it exceeds.
    pub(super) unsafe fn extreme(&mut self, expr: &pg_sys::MinMaxExpr) -> Result<Shown, WhyNot> {
        /// Each value is compared with all after it.
        const VALUES_MAX: usize = 6;
        if expr.minmaxtype == pg_sys::BPCHAROID {
            return why_not("GREATEST or LEAST of texts of type bpchar");
        }
        if stored(expr.minmaxtype, -1).0 == pg_sys::ANYENUMOID {
            return why_not("an order of labels of an enum");
        }
        let choices = Choices::of(self.shown_all(expr.args)?)?;
        let has_collation =
            choices.data_type == DataType::Utf8 && expr.minmaxtype != pg_sys::UUIDOID;
        if has_collation && !version::is_c_collation(expr.inputcollid) {
            return why_not("an order of texts under a collation other than C");
        }
        if choices.values.len() > VALUES_MAX {
            return why_not(format!("GREATEST or LEAST of more than {VALUES_MAX} values"));
        }
        let op = match expr.op {
            pg_sys::MinMaxOp::IS_GREATEST => CompareOp::Ge,
            _ => CompareOp::Le,
        };
        let compared = choices.values.clone();
        choices.chosen(|values, data_type| first_beating(op, &compared, values, data_type))
    }
}

/// Of `values` the one whose counterpart in `compared` is the first that none of those after it exceeds.
fn first_beating(
    op: CompareOp,
    compared: &[Expr],
    mut values: Vec<Expr>,
    data_type: &DataType,
) -> Translated {
    let Some(mut otherwise) = values.pop() else { return why_not("GREATEST of nothing") };
    for (place, value) in values.into_iter().enumerate().rev() {
        let (own, later) = (&compared[place], &compared[place + 1..]);
        let beats = later.iter().map(|other| {
            let exceeds = Expr::compare(op, own.clone(), other.clone());
            Expr::Or(vec![is_null(other.clone()), exceeds])
        });
        let is_known = not(is_null(own.clone()));
        let condition = Expr::And(std::iter::once(is_known).chain(beats).collect());
        otherwise = Expr::Case {
            branches: vec![(condition, value)],
            otherwise: Some(Box::new(otherwise)),
            data_type: data_type.clone(),
        };
    }
    Ok(otherwise)
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
