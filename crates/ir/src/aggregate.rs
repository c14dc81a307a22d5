//! Aggregate calls and the partial states that processors exchange.

use serde::{Deserialize, Serialize};

use crate::expr::{Expr, OnOverflow};
use crate::order::OrderKey;
use crate::types::DataType;

/// Digits of decimals whose totals have at most 38, of however many rows there are.
pub const TOTAL_DIGITS_MAX: u8 = 28;

/// An aggregate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AggregateFunction {
    /// Rows (no argument) or non-NULL values.
    Count,
    /// Total of non-NULL values; NULL for none.
    Sum,
    /// Mean of non-NULL values; NULL for none.
    Avg,
    /// Sum of the squared differences of non-NULL floats from their mean, of which variances and deviations
    /// are made; NULL for none. Of one value it is 0; with a NaN or an infinity among the values it is NaN;
    /// it is infinite where finite values, or their squares, overflow; of both, either.
    ///
    /// It is computed within the digits of its input, not as a difference of sums: parts of the rows, each
    /// with its number, sum and squared deviations, are put together by the formula of Chan, Golub and LeVeque
    /// ("Updating formulae and a pairwise algorithm for computing sample variances", 1979), which for a part of
    /// one row is the recurrence of Youngs and Cramer ("Some results relevant to choice of sum and
    /// sum-of-product algorithms", 1971).
    SquaredDeviations,
    /// Smallest; NULL for none.
    Min,
    /// Largest; NULL for none.
    Max,
}

/// What an aggregation brings back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AggregateOutput {
    /// The keys and results of its groups.
    Final,
    /// The keys and partial states of its groups, for whoever merges those of several runs, of
    /// several parts of a table, or of several machines. A group may come more than once.
    Partial,
    /// As `Final`, but of the groups at least that come first by output columns. Whether a total fits its type is
    /// asked of all groups.
    First(FirstGroups),
    /// As `Final`; of no rows there are groups all the same.
    OfNone(GroupsOfNone),
}

/// The groups of no rows at all: those of grouping sets without keys. All keys are NULL in them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupsOfNone {
    /// The numbers of the sets.
    pub sets: Vec<usize>,
    /// The calls that are 0 then; others are NULL.
    pub counts: Vec<usize>,
}

impl AggregateOutput {
    /// All groups, with those of no rows that SQL asks for: of each grouping set without keys.
    pub fn of_sets(sets: &[Vec<usize>], calls: &[AggregateCall]) -> Self {
        let numbered = sets.iter().enumerate();
        let sets: Vec<usize> =
            numbered.filter(|(_, set)| set.is_empty()).map(|(number, _)| number).collect();
        if sets.is_empty() {
            return Self::Final;
        }
        let is_count = |call: &AggregateCall| call.function == AggregateFunction::Count;
        let counts = (0..calls.len()).filter(|&call| is_count(&calls[call])).collect();
        Self::OfNone(GroupsOfNone { sets, counts })
    }
}

/// Which groups come first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FirstGroups {
    /// Output columns, of which each decides where those before it tie.
    pub by: Vec<OrderKey>,
    /// How many groups.
    pub groups: u64,
    /// Whether those are wanted, too, that tie with the last of them.
    pub with_ties: bool,
}

impl FirstGroups {
    /// The same by what `column` says that the columns are, as far as it knows them: those after the first that it
    /// does not know decide no ties. `None` if that is the first of all.
    pub fn by_others(mut self, column: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        let renamed = |key: &OrderKey| Some(OrderKey { column: column(key.column)?, ..*key });
        let by: Vec<OrderKey> = self.by.iter().map_while(renamed).collect();
        self.with_ties |= by.len() < self.by.len();
        (!by.is_empty()).then_some(Self { by, ..self })
    }
}

/// One aggregate of an [`crate::Sink::Aggregate`].
///
/// Partial states, which any number of workers may produce and merge in any order:
/// `Count`: one `u64`. `Sum` of integers and decimals: an exact total of 192 bits and how many
/// values were seen; of floats: an `f64` total and how many. `Avg`: the state of `Sum`.
/// `SquaredDeviations`: how many, their sum and the result so far. `Min`, `Max`: the value and how many were seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AggregateCall {
    /// Name of the result column.
    pub name: String,
    /// Function.
    pub function: AggregateFunction,
    /// Argument; `None` only for `count(*)`.
    pub argument: Option<Expr>,
    /// `FILTER (WHERE ..)`: rows for which this is not true are left out, and the argument is
    /// not evaluated for them.
    pub filter: Option<Expr>,
    /// `DISTINCT`: of the different values of the argument, which differ as group keys do. There is none
    /// beside grouping sets, nor as a partial state.
    pub distinct: bool,
    /// Result type. Sums of integers, and of decimals with no digits behind the point, are Int64,
    /// UInt64 or a decimal without such digits; sums of other decimals one of their scale; `Avg`
    /// is Float64, or a decimal whose scale may be larger than the argument's; `SquaredDeviations` is Float64.
    pub result: DataType,
    /// What happens if the exact result does not fit `result`.
    pub on_overflow: OnOverflow,
}

impl AggregateCall {
    /// An aggregate of every row's value, whose result must fit `result`.
    pub fn new(
        name: impl Into<String>,
        function: AggregateFunction,
        argument: Option<Expr>,
        result: DataType,
    ) -> Self {
        let (name, on_overflow) = (name.into(), OnOverflow::Error);
        Self { name, function, argument, filter: None, distinct: false, result, on_overflow }
    }

    /// The call for parts of a group, under a name, and the function that puts them together; `None`: there is none.
    pub(crate) fn part(&self, name: String) -> Option<(Self, AggregateFunction)> {
        use AggregateFunction::{Avg, Count, Max, Min, SquaredDeviations, Sum};
        let of = self.argument.as_ref().map(Expr::data_type);
        let (result, function) = match (self.function, of) {
            (Avg | SquaredDeviations, _) => return None,
            (Count, _) => (self.result.clone(), Sum),
            // Totals of parts may be what the whole one is not: too large for its type.
            (Sum, Some(integer)) if integer.is_integer() => {
                (DataType::Decimal128 { precision: 38, scale: 0 }, Sum)
            }
            (Sum, Some(DataType::Decimal128 { scale, .. })) => {
                (DataType::Decimal128 { precision: 38, scale }, Sum)
            }
            (Sum, _) => (DataType::Float64, Sum),
            (Min | Max, _) => (self.result.clone(), self.function),
        };
        Some((Self { name, result, distinct: false, ..self.clone() }, function))
    }
}

impl AggregateFunction {
    /// The SQL name, where SQL has one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::SquaredDeviations => "squared_deviations",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}
