//! Aggregates, by OID.

use headrace_ir::{AggregateCall, AggregateFunction, DataType, Expr, Scalar};
use pgrx::pg_sys;

use super::expr::Translator;
use crate::nodes::{WhyNot, items, why_not};
use crate::plan::Output;
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
        filter: &Option<Expr>,
        result: DataType,
    ) -> usize {
        let name = format!("a{}", self.calls.len());
        let mut call = AggregateCall::new(name, function, argument, result);
        call.filter.clone_from(filter);
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
}

/// What an aggregate asks for, one by one.
struct Asked<'a> {
    aggregates: &'a mut Aggregates,
    argument: Option<Expr>,
    filter: Option<Expr>,
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
    if !aggref.aggdistinct.is_null() {
        return why_not(format!("{}(DISTINCT ...)", name()));
    }
    if !aggref.aggorder.is_null() || !aggref.aggdirectargs.is_null() || aggref.aggvariadic {
        return why_not(format!("{} of ordered or variadic arguments", name()));
    }
    let mut arguments = items::<pg_sys::TargetEntry>(aggref.args);
    let argument = match arguments.next() {
        None => None,
        Some(entry) => Some(translator.expr((*entry).expr.cast())?),
    };
    let filter = match aggref.aggfilter.is_null() {
        true => None,
        false => Some(translator.expr(aggref.aggfilter.cast())?),
    };
    if arguments.next().is_some() {
        return why_not(format!("{} of several arguments", name()));
    }
    let type_oid = aggref.aggtype.to_u32();
    let mut asked = Asked { aggregates, argument, filter, type_oid };
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
                self.decimal()?;
                let result = self.sum_type();
                self.plain(Sum, result)
            }
            pg_sys::F_SUM_FLOAT8 => self.plain(Sum, DataType::Float64),
            pg_sys::F_AVG_INT2 | pg_sys::F_AVG_INT4 => self.numeric_mean(DataType::Int64),
            pg_sys::F_AVG_INT8 | pg_sys::F_AVG_NUMERIC => {
                self.decimal()?;
                let result = self.sum_type();
                self.numeric_mean(result)
            }
            pg_sys::F_AVG_FLOAT4 | pg_sys::F_AVG_FLOAT8 => {
                self.argument = self.argument.take().map(|value| match value.data_type() {
                    DataType::Float64 => value,
                    _ => value.cast(DataType::Float64),
                });
                let (sum, count) =
                    (self.call(Sum, DataType::Float64), self.call(Count, DataType::Int64));
                Output::FloatMean { sum, count }
            }
            pg_sys::F_MIN_INT2
            | pg_sys::F_MIN_INT4
            | pg_sys::F_MIN_INT8
            | pg_sys::F_MIN_NUMERIC
            | pg_sys::F_MIN_DATE
            | pg_sys::F_MIN_TIME
            | pg_sys::F_MIN_TIMESTAMP
            | pg_sys::F_MIN_TIMESTAMPTZ => self.extreme(Min),
            pg_sys::F_MAX_INT2
            | pg_sys::F_MAX_INT4
            | pg_sys::F_MAX_INT8
            | pg_sys::F_MAX_NUMERIC
            | pg_sys::F_MAX_DATE
            | pg_sys::F_MAX_TIME
            | pg_sys::F_MAX_TIMESTAMP
            | pg_sys::F_MAX_TIMESTAMPTZ => self.extreme(Max),
            // Which of -0 and 0 comes out depends on the order of rows.
            pg_sys::F_MIN_FLOAT4 | pg_sys::F_MIN_FLOAT8 => self.extreme(Min),
            pg_sys::F_MAX_FLOAT4 | pg_sys::F_MAX_FLOAT8 => self.extreme(Max),
            pg_sys::F_MIN_TEXT | pg_sys::F_MAX_TEXT => {
                if !version::is_c_collation(aggref.inputcollid) {
                    return why_not("an order of texts under a collation other than C");
                }
                let is_min = aggref.aggfnoid.to_u32() == pg_sys::F_MIN_TEXT;
                self.extreme(if is_min { Min } else { Max })
            }
            pg_sys::F_BOOL_AND | pg_sys::F_EVERY => self.truth(Min),
            pg_sys::F_BOOL_OR => self.truth(Max),
            _ => return Ok(None),
        }))
    }

    fn call(&mut self, function: AggregateFunction, result: DataType) -> usize {
        let argument = self.argument.clone();
        self.aggregates.column(function, argument, &self.filter, result)
    }

    fn plain(&mut self, function: AggregateFunction, result: DataType) -> Output {
        Output::Aggregate { column: self.call(function, result), type_oid: self.type_oid }
    }

    fn extreme(&mut self, function: AggregateFunction) -> Output {
        let result = self.argument.as_ref().map_or(DataType::Int64, Expr::data_type);
        self.plain(function, result)
    }

    fn numeric_mean(&mut self, result: DataType) -> Output {
        let sum = self.call(AggregateFunction::Sum, result);
        Output::NumericMean { sum, count: self.call(AggregateFunction::Count, DataType::Int64) }
    }

    /// A condition as a number, whose extremes say whether all or any are true.
    fn truth(&mut self, function: AggregateFunction) -> Output {
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

    /// The argument as a decimal.
    fn decimal(&mut self) -> Result<(), WhyNot> {
        self.argument = match self.argument.take() {
            Some(value) if value.data_type() == DataType::Int64 => {
                Some(value.cast(DataType::Decimal128 { precision: 19, scale: 0 }))
            }
            Some(value) if matches!(value.data_type(), DataType::Decimal128 { .. }) => Some(value),
            _ => return why_not("an exact sum of what is no number"),
        };
        Ok(())
    }

    fn sum_type(&self) -> DataType {
        match self.argument.as_ref().map(Expr::data_type) {
            Some(DataType::Decimal128 { scale, .. }) => {
                DataType::Decimal128 { precision: 38, scale }
            }
            _ => DataType::Decimal128 { precision: 38, scale: 0 },
        }
    }
}
