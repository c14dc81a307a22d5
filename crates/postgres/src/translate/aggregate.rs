//! Aggregates, by OID.

use headrace_ir::{
    AggregateCall, AggregateFunction, ArithmeticOp, CompareOp, DataType, Expr, Function, Scalar,
};
use pgrx::pg_sys;

use super::call::{call, decimal_operation};
use super::compare::check_equality;
use super::expr::{Translator, widened};
use super::shown::{Digits, Shown};
use crate::nodes::{WhyNot, items, why_not};
use crate::plan::{ExactSum, FloatSum, Output};
use crate::version;

/// The calls of a sink, each once.
#[derive(Default)]
pub struct Aggregates {
    /// The calls. Their columns come after those of `keys` keys.
    pub calls: Vec<AggregateCall>,
    /// Keys of the sink.
    pub keys: usize,
}

impl Aggregates {
    /// The column of a call.
    fn column(
        &mut self,
        function: AggregateFunction,
        argument: Option<Expr>,
        of: &Rows,
        result: DataType,
    ) -> usize {
        let name = format!("a{}", self.calls.len());
        let call = AggregateCall::new(name, function, argument, result);
        let call = AggregateCall { filter: of.filter.clone(), distinct: of.distinct, ..call };
        let same = |known: &AggregateCall| {
            AggregateCall { name: call.name.clone(), ..known.clone() } == call
        };
        let known = self.calls.iter().position(same);
        let index = known.unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() - 1
        });
        self.keys + index
    }

    /// The columns of the smallest and largest of a group's numbers of digits.
    pub fn extremes_of(&mut self, digits: &Expr) -> (usize, usize) {
        let all = Rows { filter: None, distinct: false };
        let mut column =
            |function| self.column(function, Some(digits.clone()), &all, DataType::Int32);
        (column(AggregateFunction::Min), column(AggregateFunction::Max))
    }

    /// Whether they go together.
    pub fn check(&self) -> Result<(), WhyNot> {
        let is_of_all = |call: &AggregateCall| {
            call.function == AggregateFunction::SquaredDeviations && !call.distinct
        };
        match self.calls.iter().any(is_of_all) && self.calls.iter().any(AggregateCall::is_distinct)
        {
            true => why_not("a variance or deviation of floats beside distinct values"),
            false => Ok(()),
        }
    }
}

/// Which rows of a group an aggregate is of.
struct Rows {
    filter: Option<Expr>,
    distinct: bool,
}

/// What an aggregate asks for, one by one.
struct Asked<'a> {
    aggregates: &'a mut Aggregates,
    argument: Option<Expr>,
    /// Of the argument, where they differ from row to row.
    digits: Option<Digits>,
    rows: Rows,
    type_oid: u32,
}

/// An aggregate, and how its value comes from the calls.
pub unsafe fn aggregate(
    translator: &mut Translator,
    aggregates: &mut Aggregates,
    aggref: &pg_sys::Aggref,
) -> Result<Output, WhyNot> {
    let name = || function_name(aggref);
    if aggref.agglevelsup != 0 {
        return why_not(format!("{} of an outer query", name()));
    }
    if !aggref.aggorder.is_null() || !aggref.aggdirectargs.is_null() || aggref.aggvariadic {
        return why_not(format!("{} of ordered or variadic arguments", name()));
    }
    let distinct = !aggref.aggdistinct.is_null();
    let mut arguments = items::<pg_sys::TargetEntry>(aggref.args);
    let (argument, digits) = match arguments.next() {
        None => (None, None),
        Some(entry) => {
            let node = (*entry).expr.cast();
            let is_count = aggref.aggfnoid.to_u32() == pg_sys::F_COUNT_ANY;
            let Shown { value, digits } = match (is_count, distinct) {
                (true, false) => translator.presence(node)?.into(),
                (true, true) => translator.value(node)?.into(),
                (false, false) => translator.shown(node)?,
                // Which of several spellings of a value is kept is a matter of the rows' order.
                (false, true) => translator.expr(node)?.into(),
            };
            if distinct {
                check_equality(node)?;
            }
            (Some(value), digits)
        }
    };
    let filter = match aggref.aggfilter.is_null() {
        true => None,
        false => Some(translator.expr(aggref.aggfilter.cast())?),
    };
    if arguments.next().is_some() {
        return why_not(format!("{} of several arguments", name()));
    }
    let type_oid = aggref.aggtype.to_u32();
    let rows = Rows { filter, distinct };
    let mut asked = Asked { aggregates, argument, digits, rows, type_oid };
    match asked.output(aggref)? {
        Some(output) => Ok(output),
        None => why_not(format!("aggregate {}", name())),
    }
}

unsafe fn function_name(aggref: &pg_sys::Aggref) -> String {
    crate::nodes::owned(pg_sys::get_func_name(aggref.aggfnoid))
}

impl Asked<'_> {
    unsafe fn output(&mut self, aggref: &pg_sys::Aggref) -> Result<Option<Output>, WhyNot> {
        use AggregateFunction::{Count, Max, Min, Sum};
        Ok(Some(match aggref.aggfnoid.to_u32() {
            pg_sys::F_COUNT_ | pg_sys::F_COUNT_ANY => self.plain(Count, DataType::Int64),
            pg_sys::F_SUM_INT2 | pg_sys::F_SUM_INT4 => self.plain(Sum, DataType::Int64),
            pg_sys::F_SUM_INT8 | pg_sys::F_SUM_NUMERIC => {
                let result = self.sum_type()?;
                Output::Sum(self.exact_sum(result, 1))
            }
            // The server keeps six digits of each sum on the way, so that its third one may be another.
            pg_sys::F_SUM_FLOAT4 => {
                return why_not("a sum of reals, whose digits hang on the order of rows");
            }
            pg_sys::F_SUM_FLOAT8 => Output::FloatSum(self.float_sum()?),
            pg_sys::F_AVG_INT2 | pg_sys::F_AVG_INT4 => self.numeric_mean(DataType::Int64),
            pg_sys::F_AVG_INT8 | pg_sys::F_AVG_NUMERIC => {
                let result = self.sum_type()?;
                self.numeric_mean(result)
            }
            pg_sys::F_AVG_FLOAT4 | pg_sys::F_AVG_FLOAT8 => {
                let count = self.call(Count, DataType::Int64);
                Output::FloatMean { sum: self.float_sum()?, count }
            }
            pg_sys::F_MIN_INT2
            | pg_sys::F_MIN_INT4
            | pg_sys::F_MIN_INT8
            | pg_sys::F_MIN_NUMERIC
            | pg_sys::F_MIN_DATE
            | pg_sys::F_MIN_TIME
            | pg_sys::F_MIN_TIMESTAMP
            | pg_sys::F_MIN_TIMESTAMPTZ => self.extreme(Min)?,
            pg_sys::F_MAX_INT2
            | pg_sys::F_MAX_INT4
            | pg_sys::F_MAX_INT8
            | pg_sys::F_MAX_NUMERIC
            | pg_sys::F_MAX_DATE
            | pg_sys::F_MAX_TIME
            | pg_sys::F_MAX_TIMESTAMP
            | pg_sys::F_MAX_TIMESTAMPTZ => self.extreme(Max)?,
            // Which of -0 and 0 comes out depends on the order of rows.
            pg_sys::F_MIN_FLOAT4 | pg_sys::F_MIN_FLOAT8 => self.extreme(Min)?,
            pg_sys::F_MAX_FLOAT4 | pg_sys::F_MAX_FLOAT8 => self.extreme(Max)?,
            pg_sys::F_MIN_TEXT | pg_sys::F_MAX_TEXT => {
                if !version::is_c_collation(aggref.inputcollid) {
                    return why_not("an order of texts under a collation other than C");
                }
                let is_min = aggref.aggfnoid.to_u32() == pg_sys::F_MIN_TEXT;
                self.extreme(if is_min { Min } else { Max })?
            }
            pg_sys::F_BOOL_AND | pg_sys::F_EVERY => self.truth(Min),
            pg_sys::F_BOOL_OR => self.truth(Max),
            other => match deviation(other) {
                Some(wanted) => self.deviation(wanted)?,
                None => return Ok(None),
            },
        }))
    }

    fn call(&mut self, function: AggregateFunction, result: DataType) -> usize {
        let argument = self.argument.clone();
        self.aggregates.column(function, argument, &self.rows, result)
    }

    fn plain(&mut self, function: AggregateFunction, result: DataType) -> Output {
        Output::Aggregate { column: self.call(function, result), type_oid: self.type_oid }
    }

    /// Of distinct values it is the same one.
    fn extreme(&mut self, function: AggregateFunction) -> Result<Output, WhyNot> {
        self.rows.distinct = false;
        let result = self.argument.as_ref().map_or(DataType::Int64, Expr::data_type);
        match self.digits.clone() {
            Some(digits) => self.extreme_by_digits(function, &result, &digits),
            None => {
                Ok(Output::Value { column: self.call(function, result), type_oid: self.type_oid })
            }
        }
    }

    /// One of each number of digits, since equal ones may show different digits.
    fn extreme_by_digits(
        &mut self,
        function: AggregateFunction,
        result: &DataType,
        Digits { count, possible }: &Digits,
    ) -> Result<Output, WhyNot> {
        /// Each is an aggregate of its own.
        const POSSIBLE_MAX: usize = 24;
        if possible.len() > POSSIBLE_MAX {
            return why_not("extremes of numbers with very different digits behind the point");
        }
        let all_rows = self.rows.filter.take();
        let digits: Vec<i8> = possible.iter().copied().collect();
        let columns = digits.iter().map(|digits| {
            let number = Expr::Literal(Scalar::int(DataType::Int32, (*digits).into()));
            let of_these = Expr::compare(CompareOp::Eq, count.clone(), number);
            let conditions = all_rows.iter().cloned().chain([of_these]);
            self.rows.filter = Some(Expr::And(conditions.collect()));
            self.call(function, result.clone())
        });
        let columns = columns.collect();
        Ok(Output::Extreme { columns, digits, is_max: function == AggregateFunction::Max })
    }

    /// The sum of the argument, whose digits are shown so many times as those of the numbers asked for.
    fn exact_sum(&mut self, result: DataType, times: i8) -> ExactSum {
        let column = self.call(AggregateFunction::Sum, result);
        let digits = self.digits.as_ref().map(|digits| {
            let (count, max) = (Some(digits.count.clone()), AggregateFunction::Max);
            self.aggregates.column(max, count, &self.rows, DataType::Int32)
        });
        ExactSum { column, digits, times }
    }

    fn float_sum(&mut self) -> Result<FloatSum, WhyNot> {
        let column = self.call(AggregateFunction::Sum, DataType::Float64);
        let Some(value) = &self.argument else { return why_not("a sum of nothing") };
        let magnitude = Some(call(Function::Abs, widened(value.clone(), &DataType::Float64))?);
        let rows = Rows { filter: self.rows.filter.clone(), distinct: false };
        let (max, float) = (AggregateFunction::Max, DataType::Float64);
        let largest = self.aggregates.column(max, magnitude, &rows, float);
        Ok(FloatSum { column, largest })
    }

    fn numeric_mean(&mut self, result: DataType) -> Output {
        let sum = self.exact_sum(result, 1);
        Output::NumericMean { sum, count: self.call(AggregateFunction::Count, DataType::Int64) }
    }

    /// A condition as a number, whose extremes say whether all or any are true.
    fn truth(&mut self, function: AggregateFunction) -> Output {
        self.rows.distinct = false;
        let number = |n| Expr::Literal(Scalar::int(DataType::Int32, n));
        self.argument = self.argument.take().map(|condition| Expr::Case {
            branches: vec![
                (condition.clone(), number(1)),
                (Expr::Not(Box::new(condition)), number(0)),
            ],
            otherwise: None,
            data_type: DataType::Int32,
        });
        Output::IsNotZero { column: self.call(function, DataType::Int32) }
    }

    /// What PostgreSQL keeps, too: what it makes of exact sums is its own.
    fn deviation(&mut self, (is_sample, is_root): (bool, bool)) -> Result<Output, WhyNot> {
        let Some(value) = self.argument.clone() else { return why_not("a variance of nothing") };
        if value.data_type().is_float() {
            let count = self.call(AggregateFunction::Count, DataType::Int64);
            let squares = self.call(AggregateFunction::SquaredDeviations, DataType::Float64);
            return Ok(Output::FloatDeviation { count, squares, is_sample, is_root });
        }
        if self.rows.distinct {
            return why_not("a variance or deviation of distinct exact numbers");
        }
        let result = match value.data_type() {
            DataType::Int16 | DataType::Int32 => DataType::Int64,
            _ => self.sum_type()?,
        };
        let squared = squared(value)?;
        let sum = self.exact_sum(result, 1);
        let count = self.call(AggregateFunction::Count, DataType::Int64);
        self.argument = Some(squared);
        let result = self.sum_type()?;
        let squares = self.exact_sum(result, 2);
        Ok(Output::Deviation { count, sum, squares, is_sample, is_root })
    }

    /// The type of an exact sum that `numeric` has.
    fn sum_type(&self) -> Result<DataType, WhyNot> {
        match self.argument.as_ref().map(Expr::data_type) {
            Some(DataType::Decimal128 { scale, .. }) => {
                Ok(DataType::Decimal128 { precision: 38, scale })
            }
            Some(DataType::Int64) => Ok(DataType::Decimal128 { precision: 38, scale: 0 }),
            _ => why_not("an exact sum of what is no number"),
        }
    }
}

fn squared(value: Expr) -> Result<Expr, WhyNot> {
    let value = match value.data_type() {
        DataType::Int16 | DataType::Int32 => value.cast(DataType::Int64),
        DataType::Int64 => value.cast(DataType::Decimal128 { precision: 19, scale: 0 }),
        _ => value,
    };
    match value.data_type() {
        DataType::Int64 => Ok(Expr::arithmetic(ArithmeticOp::Multiply, value.clone(), value)),
        _ => decimal_operation(ArithmeticOp::Multiply, value.clone(), value),
    }
}

/// Whether a variance, or the deviation that is its root, is of a sample, and whether it is the root.
fn deviation(function: u32) -> Option<(bool, bool)> {
    use pg_sys::{
        F_STDDEV_FLOAT4, F_STDDEV_FLOAT8, F_STDDEV_INT2, F_STDDEV_INT4, F_STDDEV_INT8,
        F_STDDEV_NUMERIC, F_STDDEV_POP_FLOAT4, F_STDDEV_POP_FLOAT8, F_STDDEV_POP_INT2,
        F_STDDEV_POP_INT4, F_STDDEV_POP_INT8, F_STDDEV_POP_NUMERIC, F_STDDEV_SAMP_FLOAT4,
        F_STDDEV_SAMP_FLOAT8, F_STDDEV_SAMP_INT2, F_STDDEV_SAMP_INT4, F_STDDEV_SAMP_INT8,
        F_STDDEV_SAMP_NUMERIC, F_VAR_POP_FLOAT4, F_VAR_POP_FLOAT8, F_VAR_POP_INT2, F_VAR_POP_INT4,
        F_VAR_POP_INT8, F_VAR_POP_NUMERIC, F_VAR_SAMP_FLOAT4, F_VAR_SAMP_FLOAT8, F_VAR_SAMP_INT2,
        F_VAR_SAMP_INT4, F_VAR_SAMP_INT8, F_VAR_SAMP_NUMERIC, F_VARIANCE_FLOAT4, F_VARIANCE_FLOAT8,
        F_VARIANCE_INT2, F_VARIANCE_INT4, F_VARIANCE_INT8, F_VARIANCE_NUMERIC,
    };
    Some(match function {
        F_STDDEV_INT2 | F_STDDEV_INT4 | F_STDDEV_INT8 | F_STDDEV_NUMERIC => (true, true),
        F_STDDEV_SAMP_INT2 | F_STDDEV_SAMP_INT4 | F_STDDEV_SAMP_INT8 => (true, true),
        F_STDDEV_SAMP_NUMERIC | F_STDDEV_SAMP_FLOAT4 | F_STDDEV_SAMP_FLOAT8 => (true, true),
        F_STDDEV_FLOAT4 | F_STDDEV_FLOAT8 => (true, true),
        F_STDDEV_POP_INT2 | F_STDDEV_POP_INT4 | F_STDDEV_POP_INT8 => (false, true),
        F_STDDEV_POP_NUMERIC | F_STDDEV_POP_FLOAT4 | F_STDDEV_POP_FLOAT8 => (false, true),
        F_VARIANCE_INT2 | F_VARIANCE_INT4 | F_VARIANCE_INT8 | F_VARIANCE_NUMERIC => (true, false),
        F_VAR_SAMP_INT2 | F_VAR_SAMP_INT4 | F_VAR_SAMP_INT8 | F_VAR_SAMP_NUMERIC => (true, false),
        F_VARIANCE_FLOAT4 | F_VARIANCE_FLOAT8 => (true, false),
        F_VAR_SAMP_FLOAT4 | F_VAR_SAMP_FLOAT8 => (true, false),
        F_VAR_POP_INT2 | F_VAR_POP_INT4 | F_VAR_POP_INT8 | F_VAR_POP_NUMERIC => (false, false),
        F_VAR_POP_FLOAT4 | F_VAR_POP_FLOAT8 => (false, false),
        _ => return None,
    })
}
