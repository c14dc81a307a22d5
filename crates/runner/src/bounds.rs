//! What the rows that survive a pipeline can have in integer-like columns: from its filters,
//! and from the keys that are in the builds that it probes. Used to skip record batches.

use headrace_ir::{CompareOp, DataType, Expr, Pipeline, ProbeKind, Register, Step, Value};
use headrace_pipeline::BuildTable;
use headrace_pipeline::build::{BuildIndex, Presence};
use std::sync::Arc;

/// A closed interval, either end of which may be open; empty if `min > max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Smallest value.
    pub min: Option<i64>,
    /// Largest value.
    pub max: Option<i64>,
}

impl Interval {
    const EMPTY: Self = Self { min: Some(i64::MAX), max: Some(i64::MIN) };

    fn of(op: CompareOp, value: i64) -> Option<Self> {
        let only = |min, max| Some(Self { min, max });
        match op {
            CompareOp::Eq => only(Some(value), Some(value)),
            CompareOp::Le => only(None, Some(value)),
            CompareOp::Ge => only(Some(value), None),
            CompareOp::Lt => Some(
                value.checked_sub(1).map_or(Self::EMPTY, |max| Self { min: None, max: Some(max) }),
            ),
            CompareOp::Gt => Some(
                value.checked_add(1).map_or(Self::EMPTY, |min| Self { min: Some(min), max: None }),
            ),
            CompareOp::Ne => None,
        }
    }

    fn intersect(self, other: Self) -> Self {
        let tighter = |a: Option<i64>, b: Option<i64>, pick: fn(i64, i64) -> i64| match (a, b) {
            (Some(a), Some(b)) => Some(pick(a, b)),
            (a, b) => a.or(b),
        };
        Self {
            min: tighter(self.min, other.min, i64::max),
            max: tighter(self.max, other.max, i64::min),
        }
    }

    fn hull(self, other: Self) -> Self {
        let wider = |a: Option<i64>, b: Option<i64>, pick: fn(i64, i64) -> i64| Some(pick(a?, b?));
        Self {
            min: wider(self.min, other.min, i64::min),
            max: wider(self.max, other.max, i64::max),
        }
    }
}

/// Bounds by source register, each register at most once.
pub fn bounds(pipeline: &Pipeline, builds: &[Arc<BuildTable>]) -> Vec<(Register, Interval)> {
    let mut found = Vec::new();
    for step in &pipeline.steps {
        match step {
            Step::Filter(filter) => add_conjunct(filter, &mut found),
            Step::Compute(_) => {}
            Step::Probe(probe) if matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi) => {
                if let ([key], Some(build)) = (probe.keys.as_slice(), builds.get(probe.build))
                    && let Some(register) = plain_register(key)
                    && let Some(interval) = key_interval(build)
                    && !probe.null_equal
                {
                    add(register, interval, &mut found);
                }
            }
            Step::Probe(_) => {}
        }
    }
    found.retain(|(register, _)| *register < pipeline.source.columns.len());
    found
}

fn key_interval(build: &BuildTable) -> Option<Interval> {
    if build.rows == 0 {
        return Some(Interval::EMPTY);
    }
    match &build.index {
        BuildIndex::Direct(Presence { base, domain, .. })
            if build.keys[0].data_type.integer_range().is_some() =>
        {
            let last = i64::try_from(domain.saturating_sub(1)).ok()?;
            Some(Interval { min: Some(*base), max: base.checked_add(last) })
        }
        _ => None,
    }
}

fn add(register: Register, interval: Interval, found: &mut Vec<(Register, Interval)>) {
    match found.iter_mut().find(|(r, _)| *r == register) {
        Some((_, known)) => *known = known.intersect(interval),
        None => found.push((register, interval)),
    }
}

fn add_conjunct(expr: &Expr, found: &mut Vec<(Register, Interval)>) {
    if let Expr::And(operands) = expr {
        operands.iter().for_each(|operand| add_conjunct(operand, found));
    } else if let Some((register, interval)) = interval_of(expr) {
        add(register, interval, found);
    }
}

/// The one register that a condition bounds, and how.
fn interval_of(expr: &Expr) -> Option<(Register, Interval)> {
    match expr {
        // Of decimals of other scales, what is stored compares otherwise.
        Expr::Compare { left, right, .. } if scale(left) != scale(right) => None,
        Expr::Compare { op, left, right } => match (plain_register(left), plain_register(right)) {
            (Some(register), None) => Some((register, Interval::of(*op, constant(right)?)?)),
            (None, Some(register)) => {
                Some((register, Interval::of(op.swapped(), constant(left)?)?))
            }
            _ => None,
        },
        Expr::InList { value, list, negated: false } => {
            let register = plain_register(value)?;
            let mut values = Vec::new();
            for item in list.iter().filter(|item| !item.is_null()) {
                values.push(integer(&item.value)?);
            }
            let interval = match (values.iter().min(), values.iter().max()) {
                (Some(min), Some(max)) => Interval { min: Some(*min), max: Some(*max) },
                _ => Interval::EMPTY,
            };
            Some((register, interval))
        }
        Expr::Or(operands) => {
            let mut hull: Option<(Register, Interval)> = None;
            for operand in operands {
                let (register, interval) = interval_of(operand)?;
                hull = match hull {
                    None => Some((register, interval)),
                    Some((same, known)) if same == register => Some((same, known.hull(interval))),
                    Some(_) => return None,
                };
            }
            hull
        }
        _ => None,
    }
}

/// A register of integer-like values or decimals, also under casts that keep every value.
fn plain_register(expr: &Expr) -> Option<Register> {
    match expr {
        Expr::Register { index, data_type, .. } => {
            let is_decimal = matches!(data_type, DataType::Decimal128 { .. });
            (is_decimal || data_type.integer_range().is_some()).then_some(*index)
        }
        Expr::Cast { value, to, .. } if to.is_integer() && !value.data_type().cast_can_fail(to) => {
            plain_register(value)
        }
        _ => None,
    }
}

/// Digits behind the point of a decimal.
fn scale(expr: &Expr) -> Option<i8> {
    match expr.data_type() {
        DataType::Decimal128 { scale, .. } => Some(scale),
        _ => None,
    }
}

fn constant(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(scalar) => integer(&scalar.value),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(value) => i64::try_from(*value).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headrace_ir::Scalar;

    use super::*;

    fn year() -> Box<Expr> {
        Box::new(Expr::Register {
            index: 0,
            data_type: DataType::Int32,
            nullable: true,
            name: "year".into(),
        })
    }

    fn decimal(scale: i8) -> DataType {
        DataType::Decimal128 { precision: 12, scale }
    }

    #[test]
    fn decimals_bound_those_of_their_scale() {
        let (data_type, name) = (decimal(2), "price".into());
        let price = Expr::Register { index: 0, data_type, nullable: true, name };
        let below = |scale| {
            let limit = Expr::Literal(Scalar::int(decimal(scale), 600));
            Expr::compare(CompareOp::Lt, price.clone(), limit)
        };
        assert_eq!(bounds_of(&below(2)), [(0, Interval { min: None, max: Some(599) })]);
        assert_eq!(bounds_of(&below(1)), []);
    }

    fn literal(value: i128) -> Box<Expr> {
        Box::new(Expr::Literal(Scalar::int(DataType::Int32, value)))
    }

    fn compare(op: CompareOp, value: i128) -> Expr {
        Expr::Compare { op, left: year(), right: literal(value) }
    }

    fn bounds_of(expr: &Expr) -> Vec<(Register, Interval)> {
        let mut found = Vec::new();
        add_conjunct(expr, &mut found);
        found
    }

    #[test]
    fn conjunctions_intersect_and_disjunctions_span() {
        let between = Expr::And(vec![compare(CompareOp::Ge, 3), compare(CompareOp::Lt, 9)]);
        assert_eq!(bounds_of(&between), [(0, Interval { min: Some(3), max: Some(8) })]);
        let either = Expr::Or(vec![compare(CompareOp::Eq, 7), compare(CompareOp::Eq, 2)]);
        assert_eq!(bounds_of(&either), [(0, Interval { min: Some(2), max: Some(7) })]);
        let open = Expr::Or(vec![compare(CompareOp::Eq, 7), compare(CompareOp::Le, 2)]);
        assert_eq!(bounds_of(&open), [(0, Interval { min: None, max: Some(7) })]);
    }

    #[test]
    fn constants_on_the_left_turn_round() {
        let swapped = Expr::Compare { op: CompareOp::Lt, left: literal(5), right: year() };
        assert_eq!(bounds_of(&swapped), [(0, Interval { min: Some(6), max: None })]);
    }

    #[test]
    fn what_says_nothing_bounds_nothing() {
        assert!(bounds_of(&compare(CompareOp::Ne, 5)).is_empty());
        let not = Expr::InList { value: year(), list: vec![], negated: true };
        assert!(bounds_of(&not).is_empty());
        let mixed = Expr::Or(vec![compare(CompareOp::Eq, 7), Expr::Or(vec![])]);
        assert!(bounds_of(&mixed).is_empty());
    }
}
