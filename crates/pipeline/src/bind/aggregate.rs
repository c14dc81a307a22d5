//! Lowers aggregation: how groups are numbered, and which running values calls share.

use headrace_columns::repr::Repr;
use headrace_ir::{
    AggregateCall, AggregateFunction, AggregateOutput, DataType, Expr, Field, NamedExpr, ValueRange,
};

use crate::WhyNot;
use crate::bind::{BindOptions, Binder, no_bytes, ordered, proof};
use crate::bound::{
    Accumulator, AccumulatorKind, BoundCall, BoundExpr, BoundKey, BoundSink, DenseKey, Grouping,
};

/// Group numbers are 32 bits wide.
const DENSE_GROUPS_LIMIT: u64 = 1 << 31;

impl Binder {
    pub(crate) fn aggregate(
        &self,
        keys: &[NamedExpr],
        calls: &[AggregateCall],
        output: AggregateOutput,
        options: &BindOptions,
    ) -> Result<BoundSink, WhyNot> {
        let mut keys = keys
            .iter()
            .map(|key| {
                let expr = self.expr(&key.expr)?;
                ordered(&expr)?;
                let nullable = expr.nullable || key.expr.nullable();
                let field = Field::new(key.name.clone(), expr.data_type.clone(), nullable);
                Ok(BoundKey { field, expr, dense: None })
            })
            .collect::<Result<Vec<_>, WhyNot>>()?;
        let limit = options.dense_groups_max.min(DENSE_GROUPS_LIMIT);
        let grouping = number_groups(&mut keys, limit);
        let mut lowering = Lowering::new(self);
        let calls = calls.iter().map(|call| lowering.call(call)).collect::<Result<Vec<_>, _>>()?;
        let accumulators = lowering.accumulators;
        Ok(BoundSink::Aggregate { keys, grouping, accumulators, calls, output })
    }
}

/// Gives every key its digits if the product of all is at most `limit`.
fn number_groups(keys: &mut [BoundKey], limit: u64) -> Grouping {
    let mut groups = 1u64;
    let mut digits = vec![None; keys.len()];
    for (key, digit) in keys.iter().zip(&mut digits).rev() {
        let values = match key.expr.range {
            Some(range) if key.expr.repr.is_integer_like() => values_between(range),
            _ => None,
        };
        let cardinality = values.and_then(|v| v.checked_add(u64::from(key.expr.nullable)));
        let product = cardinality.and_then(|c| groups.checked_mul(c)).filter(|&g| g <= limit);
        let (Some(range), Some(cardinality), Some(product)) =
            (key.expr.range, cardinality, product)
        else {
            return Grouping::Hash;
        };
        let has_null = key.expr.nullable;
        *digit = Some(DenseKey { min: range.min, cardinality, has_null, stride: groups });
        groups = product;
    }
    for (key, digit) in keys.iter_mut().zip(digits) {
        key.dense = digit;
    }
    Grouping::Dense { groups }
}

fn values_between(range: ValueRange) -> Option<u64> {
    u64::try_from(i128::from(range.max) - i128::from(range.min) + 1).ok()
}

struct Lowering<'b> {
    binder: &'b Binder,
    accumulators: Vec<Accumulator>,
    /// What each accumulator was made for.
    made_for: Vec<(AccumulatorKind, Option<Expr>, Option<Expr>)>,
}

impl<'b> Lowering<'b> {
    fn new(binder: &'b Binder) -> Self {
        let made_for = vec![(AccumulatorKind::Count, None, None)];
        Self { binder, accumulators: vec![Accumulator::rows()], made_for }
    }

    fn accumulator(
        &mut self,
        kind: AccumulatorKind,
        argument: Option<&Expr>,
        filter: Option<&Expr>,
    ) -> Result<usize, WhyNot> {
        let wanted = (kind, argument.cloned(), filter.cloned());
        if let Some(found) = self.made_for.iter().position(|made| *made == wanted) {
            return Ok(found);
        }
        let bound = |e: Option<&Expr>| e.map(|e| self.binder.expr(e)).transpose();
        let same_argument = |made: &(AccumulatorKind, _, _)| {
            made.0.is_extreme() == kind.is_extreme() && (&made.1, &made.2) == (&wanted.1, &wanted.2)
        };
        self.accumulators.push(Accumulator {
            kind,
            argument: bound(argument)?,
            filter: bound(filter)?,
            same_as: self.made_for.iter().rposition(same_argument),
        });
        self.made_for.push(wanted);
        Ok(self.accumulators.len() - 1)
    }

    fn call(&mut self, call: &AggregateCall) -> Result<BoundCall, WhyNot> {
        let function = call.function;
        let extreme = matches!(function, AggregateFunction::Min | AggregateFunction::Max);
        if call.distinct && !extreme {
            return Err(WhyNot::new(format!("{call}: distinct aggregates are not built yet")));
        }
        let filter = call.filter.as_ref();
        let argument = call.argument.as_ref().map(|e| self.binder.expr(e)).transpose()?;
        if let (Some(argument), true) = (&argument, extreme) {
            no_bytes("extremes of", argument)?;
        }
        let count = self.count(call, argument.as_ref())?;
        let value = match &argument {
            None => count,
            Some(_) if function == AggregateFunction::Count => count,
            Some(bound) => {
                let kind = self.value_kind(call, bound)?;
                self.accumulator(kind, call.argument.as_ref(), filter)?
            }
        };
        // `count` is never NULL; other calls are for no values at all.
        let nullable = function != AggregateFunction::Count;
        Ok(BoundCall {
            field: Field::new(call.name.clone(), call.result.clone(), nullable),
            function,
            value,
            count,
            on_overflow: call.on_overflow,
            argument_type: argument.map(|argument| argument.data_type),
            text: call.to_string().into(),
        })
    }

    /// The accumulator that counts a call's values.
    fn count(
        &mut self,
        call: &AggregateCall,
        argument: Option<&BoundExpr>,
    ) -> Result<usize, WhyNot> {
        let filter = call.filter.as_ref();
        match argument {
            None => self.accumulator(AccumulatorKind::Count, None, filter),
            // The argument is evaluated for its failures even if only rows are counted.
            Some(argument)
                if argument.nullable
                    || (call.function == AggregateFunction::Count && argument.can_fail()) =>
            {
                self.accumulator(AccumulatorKind::Count, call.argument.as_ref(), filter)
            }
            Some(_) => self.accumulator(AccumulatorKind::Count, None, filter),
        }
    }

    fn value_kind(
        &self,
        call: &AggregateCall,
        argument: &BoundExpr,
    ) -> Result<AccumulatorKind, WhyNot> {
        match (call.function, &argument.data_type) {
            (AggregateFunction::Min, _) => Ok(AccumulatorKind::Min),
            (AggregateFunction::Max, _) => Ok(AccumulatorKind::Max),
            (AggregateFunction::Count, _) => Ok(AccumulatorKind::Count),
            (AggregateFunction::SquaredDeviations, _) => Ok(AccumulatorKind::SquaredDeviations),
            (_, data_type) if data_type.is_float() => Ok(AccumulatorKind::SumF64),
            (_, DataType::Decimal128 { precision, .. }) => {
                let largest = 10f64.powi(i32::from(*precision)) * self.binder.rows_max as f64;
                // 2^127 is 1.7e38.
                let fits = largest < 1.0e38;
                Ok(if fits { AccumulatorKind::SumI128 } else { AccumulatorKind::SumWide })
            }
            (_, data_type) if data_type.is_integer() => {
                let fits = argument.repr.is_integer_like()
                    && !matches!(argument.repr, Repr::Code(_))
                    && proof::proven(argument, &self.binder.proven)
                        .is_some_and(|range| self.total_fits(range));
                Ok(if fits { AccumulatorKind::SumI64 } else { AccumulatorKind::SumI128 })
            }
            (function, data_type) => {
                Err(WhyNot::new(format!("{} of {data_type} is not built yet", function.name())))
            }
        }
    }

    /// Whether `rows_max` values of a range sum up to 64 bits at any time.
    fn total_fits(&self, range: ValueRange) -> bool {
        let largest = u128::from(range.min.unsigned_abs().max(range.max.unsigned_abs()));
        largest.checked_mul(self.binder.rows_max).is_some_and(|total| total <= i64::MAX as u128)
    }
}
