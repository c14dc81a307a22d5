//! Values as they are shown. A `numeric` shows as many digits behind the point as it was made with, and a choice
//! among 0 and 1.50 is not of one number of them: such a value has the digits of the widest for a pipeline, and
//! beside it the number that it shows. What is compared needs the value alone; what is shown of it needs both.

use std::collections::BTreeSet;

use headrace_ir::{ArithmeticOp, CompareOp, DataType, Expr, Scalar, Value};

use super::expr::{Translated, is_null, not};
use super::types::wider_decimal;
use crate::nodes::{WhyNot, why_not};

/// A value of rows.
pub struct Shown {
    /// The value.
    pub value: Expr,
    /// How many digits behind the point it shows, if that is not its type's.
    pub digits: Option<Digits>,
}

/// A number of digits that differs from row to row.
#[derive(Clone)]
pub struct Digits {
    /// The number; NULL where the value is.
    pub count: Expr,
    /// All that there may be.
    pub possible: BTreeSet<i8>,
}

impl From<Expr> for Shown {
    fn from(value: Expr) -> Self {
        Self { value, digits: None }
    }
}

impl Shown {
    /// The value, where its type says what is shown.
    pub fn plain(self) -> Translated {
        match self.digits {
            None => Ok(self.value),
            Some(_) => why_not("numbers with different digits behind the point, as they are shown"),
        }
    }

    /// What the number of digits is, whether it differs or not.
    fn digits(&self) -> Digits {
        match (&self.digits, self.value.data_type()) {
            (Some(digits), _) => digits.clone(),
            (None, DataType::Decimal128 { scale, .. }) => Digits::of(&self.value, scale),
            (None, _) => Digits::of(&self.value, 0),
        }
    }

    /// Another value that is NULL where this one is, and shows what this one does.
    pub fn shows(self, make: impl FnOnce(Expr) -> Translated) -> Result<Self, WhyNot> {
        Ok(Self { value: make(self.value)?, digits: self.digits })
    }

    /// What an operation makes of two numbers, given what it makes of their values.
    pub fn combined(
        op: ArithmeticOp,
        left: Self,
        right: Self,
        make: impl FnOnce(Expr, Expr) -> Translated,
    ) -> Result<Self, WhyNot> {
        let digits = match (&left.digits, &right.digits) {
            (None, None) => None,
            _ => Some(Digits::combined(op, &left.digits(), &right.digits())),
        };
        Ok(Self { value: make(left.value, right.value)?, digits })
    }
}

fn number(count: i8) -> Expr {
    Expr::Literal(Scalar::int(DataType::Int32, count.into()))
}

impl Digits {
    fn of(value: &Expr, scale: i8) -> Self {
        let (count, possible) = match value {
            Expr::Literal(scalar) if scalar.is_null() => {
                (Expr::Literal(Scalar::null(DataType::Int32)), BTreeSet::new())
            }
            Expr::Literal(_) => (number(scale), BTreeSet::from([scale])),
            value => {
                let branches = vec![(not(is_null(value.clone())), number(scale))];
                let count = Expr::Case { branches, otherwise: None, data_type: DataType::Int32 };
                (count, BTreeSet::from([scale]))
            }
        };
        Self { count, possible }
    }

    /// Products show the digits of both, all else the more digits of the two.
    fn combined(op: ArithmeticOp, left: &Self, right: &Self) -> Self {
        let is_product = op == ArithmeticOp::Multiply;
        let pairs = left.possible.iter().flat_map(|a| right.possible.iter().map(move |b| (*a, *b)));
        let possible = pairs.map(|(a, b)| if is_product { a + b } else { a.max(b) }).collect();
        let (l, r) = (left.count.clone(), right.count.clone());
        let count = match is_product {
            true => Expr::arithmetic(ArithmeticOp::Add, l, r),
            false => Expr::Case {
                branches: vec![
                    (Expr::compare(CompareOp::Ge, l.clone(), r.clone()), l.clone()),
                    (Expr::compare(CompareOp::Lt, l, r.clone()), r),
                ],
                otherwise: None,
                data_type: DataType::Int32,
            },
        };
        Self { count, possible }
    }
}

/// Values among which one is chosen, as one type.
pub struct Choices {
    /// The type.
    pub data_type: DataType,
    /// The values.
    pub values: Vec<Expr>,
    /// The digits of each, if they differ.
    pub digits: Option<Vec<Digits>>,
}

impl Choices {
    /// Of values that PostgreSQL holds for one type.
    pub fn of(values: Vec<Shown>) -> Result<Self, WhyNot> {
        let data_type = common_type(values.iter().map(|shown| &shown.value))?;
        let are_alike = values.iter().all(|shown| {
            shown.digits.is_none()
                && (is_unknown(&shown.value) || scale_of(&shown.value) == scale(&data_type))
        });
        let digits = match are_alike {
            true => None,
            false => Some(values.iter().map(Shown::digits).collect()),
        };
        let values = values.into_iter().map(|shown| as_type(shown.value, &data_type)).collect();
        Ok(Self { data_type, values, digits })
    }

    /// A value that is chosen is not NULL, unless it is the last: its digits need not be asked for that again.
    pub fn known_but_last(mut self) -> Self {
        let known = self.digits.iter_mut().flat_map(|all| all.iter_mut().rev().skip(1));
        for digits in known.filter(|digits| digits.possible.len() == 1) {
            digits.possible.iter().for_each(|scale| digits.count = number(*scale));
        }
        self
    }

    /// The one that `choose` makes of them, which makes of the numbers of digits the one of that one.
    pub fn chosen(
        self,
        choose: impl Fn(Vec<Expr>, &DataType) -> Translated,
    ) -> Result<Shown, WhyNot> {
        let value = choose(self.values, &self.data_type)?;
        let Some(digits) = self.digits else { return Ok(value.into()) };
        let possible = digits.iter().flat_map(|digits| digits.possible.clone()).collect();
        let counts = digits.into_iter().map(|digits| digits.count).collect();
        let count = choose(counts, &DataType::Int32)?;
        Ok(Shown { value, digits: Some(Digits { count, possible }) })
    }
}

fn is_unknown(value: &Expr) -> bool {
    matches!(value, Expr::Literal(scalar) if scalar.is_null())
}

fn scale(of: &DataType) -> Option<i8> {
    match of {
        DataType::Decimal128 { scale, .. } => Some(*scale),
        _ => None,
    }
}

fn scale_of(value: &Expr) -> Option<i8> {
    scale(&value.data_type())
}

/// The type that has all values: of numbers one with all of their digits, or as many as there are.
fn common_type<'a>(values: impl Iterator<Item = &'a Expr> + Clone) -> Result<DataType, WhyNot> {
    let mut types = values.clone().filter(|value| !is_unknown(value)).map(Expr::data_type);
    let Some(first) = types.next().or_else(|| values.clone().next().map(Expr::data_type)) else {
        return why_not("a choice among nothing");
    };
    types.try_fold(first, |known, next| match (&known, &next) {
        (a, b) if a == b => Ok(known),
        (a, b) if let Some(both) = wider_decimal(a, b) => Ok(both),
        (a, b) => why_not(format!("a choice between {a} and {b}")),
    })
}

/// A value of the common type of several.
fn as_type(value: Expr, to: &DataType) -> Expr {
    match value {
        Expr::Literal(scalar) if scalar.is_null() => Expr::Literal(Scalar::null(to.clone())),
        value if value.data_type() == *to => value,
        Expr::Literal(scalar) if let Some(scaled) = scaled(&scalar, to) => Expr::Literal(scaled),
        value => value.cast(to.clone()),
    }
}

/// A constant with more digits behind the point.
fn scaled(scalar: &Scalar, to: &DataType) -> Option<Scalar> {
    let (Value::Int(unscaled), Some(own), Some(wanted)) =
        (&scalar.value, scale(&scalar.data_type), scale(to))
    else {
        return None;
    };
    let factor = 10_i128.checked_pow(u32::try_from(wanted - own).ok()?)?;
    let scaled = Scalar::new(to.clone(), Value::Int(unscaled.checked_mul(factor)?));
    scaled.is_of_its_type().then_some(scaled)
}
