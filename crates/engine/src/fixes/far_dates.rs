//! Values that are one column, or compared: those of CASE, coalesce, IN and UNION.
//!
//! ```sql
//! SELECT DATE '9999-12-31' > t FROM x  -- t: TIMESTAMP(6)
//! ```
//!
//! - DataFusion: An error: a date and a timestamp meet in nanoseconds, which end in 2262; right is true.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! A date and a timestamp meet in timestamps of microseconds. The planner makes both nanoseconds, which end in 2262: dates such as
//! 9999-12-31 have none.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, Case, InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::{
    Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Union, cast as cast_to, lit,
};

use crate::plans::{columns_of, renamed};

/// Functions whose value is one of their arguments.
pub const CHOICES: [&str; 6] = ["coalesce", "nullif", "greatest", "least", "nvl", "nvl2"];

/// An expression whose values have met.
pub fn meet(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut met = Met { schema, changed: false };
    let part = match part {
        Expr::InList(InList { mut expr, mut list, negated }) => {
            met.all(std::iter::once(expr.as_mut()).chain(&mut list));
            Expr::InList(InList { expr, list, negated })
        }
        Expr::Between(Between { mut expr, negated, mut low, mut high }) => {
            met.all([expr.as_mut(), low.as_mut(), high.as_mut()].into_iter());
            Expr::Between(Between { expr, negated, low, high })
        }
        Expr::Case(Case { mut expr, mut when_then_expr, mut else_expr }) => {
            let results = when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            met.all(results.chain(else_expr.as_deref_mut()));
            if let Some(expr) = &mut expr {
                let whens = when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
                met.all(std::iter::once(expr.as_mut()).chain(whens));
            }
            Expr::Case(Case { expr, when_then_expr, else_expr })
        }
        Expr::ScalarFunction(mut call) => {
            match call.func.name() {
                "nvl2" => met.all(call.args.iter_mut().skip(1)),
                name if CHOICES.contains(&name) => met.all(call.args.iter_mut()),
                "date_trunc" => {
                    let dates = call.args.iter_mut().skip(1);
                    dates.for_each(|date| {
                        met.cast_if(date, |t| *t == DataType::Date32, &MICROSECONDS)
                    });
                }
                "to_timestamp" if call.args.len() == 1 => return Ok(of_seconds(call, schema)),
                _ => {}
            }
            Expr::ScalarFunction(call)
        }
        Expr::InSubquery(is_in) => met.subquery(is_in)?,
        other => other,
    };
    Ok(if met.changed { Transformed::yes(part) } else { Transformed::no(part) })
}

/// `to_timestamp(n)`: whole seconds.
fn of_seconds(call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    match call.args.as_slice() {
        [seconds] if seconds.get_type(schema).is_ok_and(|own| own.is_integer()) => {
            let moment = cast_to(seconds.clone(), DataType::Timestamp(TimeUnit::Second, None));
            Transformed::yes(cast_to(moment, MICROSECONDS))
        }
        _ => Transformed::no(Expr::ScalarFunction(call)),
    }
}

/// A union whose columns have met.
pub fn united(union: &Union) -> Result<Option<LogicalPlan>> {
    let types = |plan: &LogicalPlan| {
        let fields = plan.schema().fields().iter();
        fields.map(|field| field.data_type().clone()).collect::<Vec<_>>()
    };
    let types: Vec<Vec<DataType>> = union.inputs.iter().map(|input| types(input)).collect();
    let columns = union.schema.fields().len();
    if types.iter().any(|types| types.len() != columns) {
        return Ok(None);
    }
    let targets: Vec<Option<DataType>> = (0..columns)
        .map(|nth| moment_of(types.iter().map(|types| &types[nth]), false, false))
        .collect();
    if targets.iter().all(Option::is_none) {
        return Ok(None);
    }
    let inputs = union.inputs.iter().map(|input| {
        let cast =
            columns_of(input).into_iter().zip(&targets).map(|(column, target)| match target {
                Some(target) => cast_to(column, target.clone()),
                None => column,
            });
        let named = renamed(cast, input.schema().columns());
        LogicalPlanBuilder::from(Arc::clone(input)).project(named)?.build().map(Arc::new)
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    Ok(Some(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
}

const MICROSECONDS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The timestamps in which timestamps meet dates, or texts that are written; `None` where there are not both, or other things, too.
/// Those of nanoseconds stay, unless they meet a constant that nanoseconds have not.
fn moment_of<'a>(
    types: impl Iterator<Item = &'a DataType>,
    mut has_date: bool,
    has_far: bool,
) -> Option<DataType> {
    let mut zone = None;
    for data_type in types {
        match data_type {
            DataType::Timestamp(TimeUnit::Nanosecond, _) if !has_far => return None,
            DataType::Timestamp(_, own) => match &zone {
                Some(other) if other != own => return None,
                _ => zone = Some(own.clone()),
            },
            DataType::Date32 => has_date = true,
            DataType::Null => {}
            _ => return None,
        }
    }
    let zone = zone.filter(|_| has_date)?;
    Some(DataType::Timestamp(TimeUnit::Microsecond, zone))
}

struct Met<'a> {
    schema: &'a DFSchema,
    changed: bool,
}

impl Met<'_> {
    /// Casts those that are no timestamps of the type in which all meet.
    fn all<'e>(&mut self, exprs: impl Iterator<Item = &'e mut Expr>) {
        let exprs: Vec<&mut Expr> = exprs.collect();
        let types =
            exprs.iter().filter(|expr| !is_text(expr)).map(|expr| expr.get_type(self.schema));
        let Ok(types) = types.collect::<Result<Vec<_>>>() else { return };
        let has_text = types.len() < exprs.len();
        let has_far = exprs.iter().any(|expr| far_constant(expr, &MICROSECONDS).is_some());
        let Some(moment) = moment_of(types.iter(), has_text || has_far, has_far) else { return };
        for expr in exprs {
            let is_written = is_text(expr);
            self.cast_if(expr, |own| is_written || *own != moment, &moment);
        }
    }

    fn cast_if(&mut self, expr: &mut Expr, is_other: impl Fn(&DataType) -> bool, to: &DataType) {
        if expr.get_type(self.schema).is_ok_and(|own| is_other(&own)) {
            *expr = cast_to(std::mem::take(expr), to.clone());
            self.changed = true;
        }
    }

    /// IN of the rows of a subquery.
    fn subquery(&mut self, mut is_in: InSubquery) -> Result<Expr> {
        let rows = &is_in.subquery.subquery;
        let column = Column::from(rows.schema().qualified_field(0));
        let own = rows.schema().field(0).data_type().clone();
        if let Ok(expr) = is_in.expr.get_type(self.schema)
            && let Some(moment) = moment_of([&own, &expr].into_iter(), false, false)
        {
            if own != moment {
                let cast = cast_to(Expr::Column(column.clone()), moment.clone());
                let named = renamed([cast], vec![column]);
                let rows = LogicalPlanBuilder::from(Arc::clone(rows)).project(named)?.build()?;
                is_in.subquery.subquery = Arc::new(rows);
                self.changed = true;
            }
            self.cast_if(&mut is_in.expr, |own| *own != moment, &moment);
        }
        Ok(Expr::InSubquery(is_in))
    }
}

fn is_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.try_as_str().flatten().is_some())
}

/// A constant that is no timestamp of nanoseconds, as one of microseconds.
pub fn far_constant(expr: &Expr, moment: &DataType) -> Option<Expr> {
    let value = match expr {
        Expr::Literal(value, _) => value.clone(),
        Expr::Cast(Cast { expr, field }) => match expr.as_ref() {
            Expr::Literal(value, _) => value.cast_to(field.data_type()).ok()?,
            _ => return None,
        },
        _ => return None,
    };
    let is_meant = value.try_as_str().is_some() || is_moment(&value.data_type());
    let moment_of_it = value.cast_to(moment).ok().filter(|_| is_meant)?;
    let us = match &moment_of_it {
        ScalarValue::TimestampMicrosecond(Some(us), _) => *us,
        _ => return None,
    };
    us.checked_mul(1000).is_none().then(|| lit(moment_of_it))
}

/// Whether values of a type are dates or timestamps.
pub fn is_moment(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Timestamp(..))
}
