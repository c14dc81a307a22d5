//! How many groups there will be. PostgreSQL takes what is computed of a column for as many values as the column
//! has: months for moments. Here it is as many as can come out, by the column's statistics.

use pgrx::pg_sys::{self, Node, NodeTag, Oid, PlannerInfo};

use crate::nodes::{self, cast, items};
use crate::translate::{arithmetic, constant, constant_text, finest};

/// Microseconds.
const DAY: f64 = 86_400e6;
const YEAR_DAYS: f64 = 365.2425;

/// Groups by these keys, of so many rows.
pub unsafe fn estimated(root: *mut PlannerInfo, keys: &[*mut Node], rows: f64) -> f64 {
    let (mut groups, mut others) = (1.0, Vec::new());
    for key in keys {
        match values(root, *key).filter(|_| nodes::tag(*key) != NodeTag::T_Var) {
            Some(values) => groups *= values.distinct + 1.0,
            None => others.push(*key),
        }
    }
    if !others.is_empty() {
        let (list, none) = (nodes::list(others), std::ptr::null_mut());
        groups *= pg_sys::estimate_num_groups(root, list, rows, none, std::ptr::null_mut());
    }
    groups.clamp(1.0, rows.max(1.0))
}

/// What is known of an expression's values: how many there are, and, as numbers, between which they lie. Moments
/// are microseconds.
#[derive(Clone, Copy)]
struct Values {
    distinct: f64,
    range: Option<(f64, f64)>,
}

impl Values {
    /// No more than so many.
    fn at_most(self, distinct: f64) -> Self {
        Self { distinct: self.distinct.min(distinct.max(1.0)), ..self }
    }

    /// No more than there are multiples of a step.
    fn in_steps_of(self, step: f64) -> Self {
        match self.range {
            Some((low, high)) => self.at_most(((high - low) / step).floor() + 1.0),
            None => self,
        }
    }
}

unsafe fn values(root: *mut PlannerInfo, node: *mut Node) -> Option<Values> {
    let values = match nodes::tag(node) {
        NodeTag::T_Var => of_column(root, node)?,
        NodeTag::T_Const => {
            let constant = &*node.cast::<pg_sys::Const>();
            let value = (!constant.constisnull)
                .then(|| number(constant.constvalue, constant.consttype))
                .flatten();
            Values { distinct: 1.0, range: value.map(|value| (value, value)) }
        }
        NodeTag::T_RelabelType => values(root, (*node.cast::<pg_sys::RelabelType>()).arg.cast())?,
        NodeTag::T_OpExpr => {
            let operator = &*node.cast::<pg_sys::OpExpr>();
            of_call(root, operator.opfuncid, operator.args)?
        }
        NodeTag::T_FuncExpr => {
            let call = &*node.cast::<pg_sys::FuncExpr>();
            of_call(root, call.funcid, call.args)?
        }
        NodeTag::T_CoalesceExpr => {
            any_of(root, items((*node.cast::<pg_sys::CoalesceExpr>()).args))?
        }
        NodeTag::T_CaseExpr => {
            let case = &*node.cast::<pg_sys::CaseExpr>();
            let whens = items::<pg_sys::CaseWhen>(case.args).map(|when| (*when).result.cast());
            let otherwise = Some(case.defresult.cast::<Node>()).filter(|node| !node.is_null());
            any_of(root, whens.chain(otherwise))?
        }
        _ if pg_sys::exprType(node) == pg_sys::BOOLOID => Values { distinct: 2.0, range: None },
        _ => return None,
    };
    Some(match pg_sys::exprType(node) {
        pg_sys::BOOLOID => values.at_most(2.0),
        pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID => values.in_steps_of(1.0),
        pg_sys::DATEOID => values.in_steps_of(DAY),
        _ => values,
    })
}

/// One or another.
unsafe fn any_of(root: *mut PlannerInfo, nodes: impl Iterator<Item = *mut Node>) -> Option<Values> {
    let mut all: Option<Values> = None;
    for node in nodes {
        let one = values(root, node)?;
        all = Some(match all {
            None => one,
            Some(all) => Values {
                distinct: all.distinct + one.distinct,
                range: all.range.zip(one.range).map(|((a, b), (c, d))| (a.min(c), b.max(d))),
            },
        });
    }
    all
}

/// Built-in functions; others may make anything of their arguments.
unsafe fn of_call(
    root: *mut PlannerInfo,
    function: Oid,
    arguments: *mut pg_sys::List,
) -> Option<Values> {
    if function.to_u32() >= pg_sys::FirstNormalObjectId {
        return None;
    }
    let arguments: Vec<*mut Node> = items(arguments).collect();
    if let Some(op) = arithmetic(function.to_u32())
        && let [left, right] = arguments[..]
    {
        return Some(computed(op, values(root, left)?, values(root, right)?));
    }
    let name = nodes::owned(pg_sys::get_func_name(function));
    match (name.as_str(), &arguments[..]) {
        ("date_trunc", [part, moment, ..]) => {
            let values = values(root, *moment)?;
            Some(values.in_steps_of(step(&word(*part)?)?))
        }
        ("extract" | "date_part", [part, moment]) => {
            let (part, values) = (word(*part)?, values(root, *moment)?);
            Some(match cycle(&part) {
                Some(distinct) => {
                    Values { range: Some((0.0, distinct)), ..values.at_most(distinct) }
                }
                None => match step(&part) {
                    Some(step) if step >= DAY => Values { range: None, ..values.in_steps_of(step) },
                    _ => Values { range: None, ..values },
                },
            })
        }
        ("jsonb_object_field_text", [document, _]) => {
            /// As PostgreSQL guesses where it knows nothing.
            const GUESSED: f64 = 200.0;
            let distinct = values(root, *document).map_or(GUESSED, |values| values.distinct);
            Some(Values { distinct: distinct.min(GUESSED), range: None })
        }
        ("to_char", [moment, pattern]) => {
            let (_, part) = finest(&constant_text(*pattern)?)?;
            Some(values(root, *moment)?.in_steps_of(step(part)?))
        }
        ("floor" | "ceil" | "ceiling" | "round" | "trunc", [value]) => {
            Some(values(root, *value)?.in_steps_of(1.0))
        }
        ("round" | "trunc", [value, digits]) => {
            let (digits, _) = values(root, *digits)?.range?;
            Some(values(root, *value)?.in_steps_of(10_f64.powf(-digits)))
        }
        ("left", [text, length]) | ("substr" | "substring", [text, _, length]) => {
            /// Of what names and codes are written in.
            const LETTERS: f64 = 64.0;
            let (length, _) = values(root, *length)?.range?;
            Some(values(root, *text)?.at_most(LETTERS.powf(length.abs())))
        }
        // Casts keep the values or bring some together, and so does what else is made of one column.
        _ => {
            let varies = |node: &&*mut Node| pg_sys::contain_var_clause(**node);
            let mut read = arguments.iter().filter(varies);
            let (Some(value), None) = (read.next(), read.next()) else { return None };
            let values = values(root, *value)?;
            let is_cast = arguments.len() == 1 || name == "numeric" || name == "timezone";
            Some(Values { range: values.range.filter(|_| is_cast && keeps(&name)), ..values })
        }
    }
}

/// Whether a function gives the number, or moment, that it is given.
fn keeps(name: &str) -> bool {
    let names = ["int2", "int4", "int8", "float4", "float8", "numeric", "date", "timestamp"];
    names.contains(&name) || name == "timestamptz" || name == "timezone"
}

fn computed(op: headrace_ir::ArithmeticOp, left: Values, right: Values) -> Values {
    use headrace_ir::ArithmeticOp::{Add, Divide, Modulo, Multiply, Subtract};
    let range = left.range.zip(right.range).map(|((a, b), (c, d))| match op {
        Add => (a + c, b + d),
        Subtract => (a - d, b - c),
        Multiply | Divide => {
            let of = |x: f64, y: f64| if op == Multiply { x * y } else { x / y };
            let ends = [of(a, c), of(a, d), of(b, c), of(b, d)];
            ends.iter().fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(*x), high.max(*x)))
        }
        Modulo => {
            let top = (c.abs().max(d.abs()) - 1.0).max(0.0);
            (if a < 0.0 { -top } else { 0.0 }, if b > 0.0 { top } else { 0.0 })
        }
    });
    let range = range.filter(|(low, high)| low.is_finite() && high.is_finite());
    Values { distinct: left.distinct * right.distinct, range }
}

/// A constant text, in small letters.
unsafe fn word(node: *mut Node) -> Option<String> {
    let of = &*cast::<pg_sys::Const>(node, NodeTag::T_Const)?;
    let is_text = !of.constisnull && of.consttype == pg_sys::TEXTOID;
    let text = is_text.then(|| constant::text(of.constvalue).ok()).flatten()?;
    Some(text.to_ascii_lowercase())
}

/// How long a part of a moment is.
fn step(part: &str) -> Option<f64> {
    Some(match part.trim_end_matches('s') {
        "microsecond" => 1.0,
        "millisecond" => 1e3,
        "second" => 1e6,
        "minute" => 60e6,
        "hour" => 3_600e6,
        "day" | "julian" => DAY,
        "week" => 7.0 * DAY,
        "month" => YEAR_DAYS / 12.0 * DAY,
        "quarter" => YEAR_DAYS / 4.0 * DAY,
        "year" | "isoyear" => YEAR_DAYS * DAY,
        "decade" => 10.0 * YEAR_DAYS * DAY,
        "century" => 100.0 * YEAR_DAYS * DAY,
        "millennium" => 1000.0 * YEAR_DAYS * DAY,
        _ => return None,
    })
}

/// How many values a part of moments has that comes again and again.
fn cycle(part: &str) -> Option<f64> {
    Some(match part.trim_end_matches('s') {
        "quarter" => 4.0,
        "month" => 12.0,
        "week" => 53.0,
        "dow" | "isodow" => 7.0,
        "day" => 31.0,
        "doy" => 366.0,
        "hour" => 24.0,
        "minute" => 60.0,
        _ => return None,
    })
}

/// What the statistics know of a column.
unsafe fn of_column(root: *mut PlannerInfo, node: *mut Node) -> Option<Values> {
    let mut known = pg_sys::VariableStatData::default();
    pg_sys::examine_variable(root, node, 0, &raw mut known);
    let mut is_default = false;
    let distinct = pg_sys::get_variable_numdistinct(&raw mut known, &raw mut is_default);
    let tuple = known.statsTuple;
    let mut range = None;
    if !tuple.is_null() {
        for kind in [pg_sys::STATISTIC_KIND_HISTOGRAM, pg_sys::STATISTIC_KIND_MCV] {
            range = wider(range, slot_range(tuple, kind));
        }
        if let Some(free) = known.freefunc {
            free(tuple);
        }
    }
    (!is_default || range.is_some()).then_some(Values { distinct, range })
}

fn wider(a: Option<(f64, f64)>, b: Option<(f64, f64)>) -> Option<(f64, f64)> {
    match (a, b) {
        (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
        (one, other) => one.or(other),
    }
}

/// The smallest and largest of the values that statistics of a kind keep.
unsafe fn slot_range(tuple: pg_sys::HeapTuple, kind: u32) -> Option<(f64, f64)> {
    let mut slot = pg_sys::AttStatsSlot::default();
    let flags = pg_sys::ATTSTATSSLOT_VALUES as i32;
    if !pg_sys::get_attstatsslot(&raw mut slot, tuple, kind as i32, Oid::INVALID, flags) {
        return None;
    }
    let mut range = None;
    for place in 0..usize::try_from(slot.nvalues).unwrap_or(0) {
        let value = number(*slot.values.add(place), slot.valuetype);
        range = wider(range, value.map(|value| (value, value)));
    }
    pg_sys::free_attstatsslot(&raw mut slot);
    range
}

/// A finite value as a number.
unsafe fn number(datum: pg_sys::Datum, of: Oid) -> Option<f64> {
    let number = match of {
        pg_sys::INT2OID => (datum.value() as i16).into(),
        pg_sys::INT4OID => (datum.value() as i32).into(),
        pg_sys::INT8OID | pg_sys::TIMEOID => datum.value() as i64 as f64,
        pg_sys::FLOAT4OID => f32::from_bits(datum.value() as u32).into(),
        pg_sys::FLOAT8OID => f64::from_bits(datum.value() as u64),
        pg_sys::NUMERICOID => {
            let (unscaled, scale) = constant::shown_decimal(datum).ok()?;
            unscaled as f64 / 10_f64.powi(scale.into())
        }
        pg_sys::DATEOID => f64::from(constant::days(datum).ok()?) * DAY,
        pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID => constant::microseconds(datum).ok()? as f64,
        _ => return None,
    };
    Some(number).filter(|number| number.is_finite())
}
