//! Functions that are computed row by row, of arguments of few types: each is a row of a table.
//!
//! A function's arguments are made what it says ([`Kind`]); NULL of any of them is NULL, unless the function says that it
//! looks at NULLs itself.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Date32Builder, Float64Builder, Int64Builder,
    IntervalMonthDayNanoBuilder, ListBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// What an argument or a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Text,
    Int,
    Float,
    Bool,
    Date,
    /// Microseconds without a time zone.
    Moment,
    Interval,
    /// A list of texts, as a result only.
    Texts,
    /// Whatever it is, as its text.
    Any,
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Self::Text | Self::Any => DataType::Utf8,
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::Date => DataType::Date32,
            Self::Moment => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Texts => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
        }
    }

    /// Whether values of a type can be taken for it without losing anything that was meant.
    fn takes(self, from: &DataType) -> bool {
        if let DataType::Dictionary(_, values) = from {
            return self.takes(values);
        }
        let is_moment =
            matches!(from, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64);
        match (self, from) {
            (_, DataType::Null) | (Self::Any, _) => true,
            (Self::Text, from) => from.is_string(),
            (Self::Int, from) => from.is_integer(),
            (Self::Float, from) => from.is_numeric(),
            (Self::Bool, from) => matches!(from, DataType::Boolean),
            (Self::Date, from) => {
                matches!(from, DataType::Date32 | DataType::Date64) || from.is_string()
            }
            (Self::Moment, from) => is_moment || from.is_string(),
            (Self::Interval, from) => matches!(from, DataType::Interval(_)) || from.is_string(),
            (Self::Texts, _) => false,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Int => "integer",
            Self::Float => "number",
            Self::Bool => "boolean",
            Self::Date => "date",
            Self::Moment => "timestamp",
            Self::Interval => "interval",
            Self::Texts => "text[]",
            Self::Any => "any",
        }
    }
}

/// A value of a result.
pub enum Value {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Date(i32),
    Moment(i64),
    Interval(IntervalMonthDayNano),
    Texts(Vec<Option<String>>),
}

/// A row's arguments; where a function is strict none of them is NULL.
pub struct Row<'a> {
    arguments: &'a [(ArrayRef, bool)],
    row: usize,
}

impl<'a> Row<'a> {
    /// How many arguments there are.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Whether an argument is a timestamp.
    pub fn is_moment(&self, nth: usize) -> bool {
        matches!(self.at(nth).0.data_type(), DataType::Timestamp(..))
    }

    /// Whether an argument is a whole number.
    pub fn is_int(&self, nth: usize) -> bool {
        *self.at(nth).0.data_type() == DataType::Int64
    }

    /// A value of any type as its text.
    ///
    /// # Errors
    /// A value that has none.
    pub fn shown(&self, nth: usize) -> Result<String> {
        let (values, row) = self.at(nth);
        Ok(array_value_to_string(values, row)?)
    }

    fn at(&self, nth: usize) -> (&'a ArrayRef, usize) {
        let (values, is_one) = &self.arguments[nth];
        (values, if *is_one { 0 } else { self.row })
    }

    /// Whether an argument is NULL.
    pub fn is_null(&self, nth: usize) -> bool {
        let (values, row) = self.at(nth);
        values.is_null(row)
    }

    /// A text, or nothing where there is no such argument.
    pub fn text(&self, nth: usize) -> &'a str {
        if nth >= self.len() {
            return "";
        }
        let (values, row) = self.at(nth);
        values.as_string::<i32>().value(row)
    }

    pub fn int(&self, nth: usize) -> i64 {
        let (values, row) = self.at(nth);
        values.as_primitive::<Int64Type>().value(row)
    }

    /// An integer that may be left out.
    pub fn int_or(&self, nth: usize, otherwise: i64) -> i64 {
        if nth < self.len() { self.int(nth) } else { otherwise }
    }

    pub fn float(&self, nth: usize) -> f64 {
        let (values, row) = self.at(nth);
        values.as_primitive::<Float64Type>().value(row)
    }

    pub fn moment(&self, nth: usize) -> i64 {
        let (values, row) = self.at(nth);
        values.as_primitive::<TimestampMicrosecondType>().value(row)
    }

    pub fn interval(&self, nth: usize) -> IntervalMonthDayNano {
        let (values, row) = self.at(nth);
        values.as_primitive::<IntervalMonthDayNanoType>().value(row)
    }
}

/// What a function does with a row.
pub type Compute = fn(&Row) -> Result<Option<Value>>;

/// A function of rows.
pub struct Definition {
    pub name: &'static str,
    /// What its arguments may be: one of these lists. A list that ends in [`Kind::Any`] may go on so.
    pub arguments: &'static [&'static [Kind]],
    pub result: Kind,
    /// Whether NULL of an argument is NULL.
    pub is_strict: bool,
    pub compute: Compute,
}

/// A strict function.
pub const fn strict(
    name: &'static str,
    arguments: &'static [&'static [Kind]],
    result: Kind,
    compute: Compute,
) -> Definition {
    Definition { name, arguments, result, is_strict: true, compute }
}

impl Definition {
    /// The function as the planner calls it.
    pub fn function(&'static self) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(RowFunction { name: self.name, of: Of(self), signature })
    }

    /// The kinds of so many arguments of these types.
    fn kinds(&self, types: &[DataType]) -> Option<Vec<Kind>> {
        self.arguments.iter().find_map(|kinds| {
            let goes_on = kinds.last() == Some(&Kind::Any) && types.len() >= kinds.len();
            let kind = |nth: usize| kinds.get(nth).copied().unwrap_or(Kind::Any);
            let fits = (kinds.len() == types.len() || goes_on)
                && types.iter().enumerate().all(|(nth, from)| kind(nth).takes(from));
            fits.then(|| (0..types.len()).map(kind).collect())
        })
    }

    fn usage(&self) -> String {
        let call = |kinds: &&[Kind]| {
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.in_words()).collect();
            format!("{}({})", self.name, kinds.join(", "))
        };
        self.arguments.iter().map(call).collect::<Vec<_>>().join(", ")
    }
}

/// A definition is itself, wherever it is.
struct Of(&'static Definition);

impl std::fmt::Debug for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name)
    }
}

impl PartialEq for Of {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Of {}

impl std::hash::Hash for Of {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

/// The name of one of these functions; `None` for all others.
pub fn name_of(implementation: &dyn ScalarUDFImpl) -> Option<&'static str> {
    implementation.downcast_ref::<RowFunction>().map(|function| function.name)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RowFunction {
    name: &'static str,
    of: Of,
    signature: Signature,
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(self.of.0.result.data_type())
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let Some(kinds) = self.of.0.kinds(types) else {
            let types: Vec<_> = types.iter().map(super::types::name_of).collect();
            return plan_err!(
                "there is no {}({})\nhint: {}",
                self.name,
                types.join(", "),
                self.of.0.usage()
            );
        };
        let target = |(kind, from): (&Kind, &DataType)| match kind {
            Kind::Any => from.clone(),
            kind => kind.data_type(),
        };
        Ok(kinds.iter().zip(types).map(target).collect())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let definition = self.of.0;
        let is_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { args.number_rows };
        let arguments = args.args.iter().map(argument).collect::<Result<Vec<_>>>()?;
        let row = |row| Row { arguments: &arguments, row };
        let values = collect(definition, (0..rows).map(row))?;
        match is_one {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)),
            false => Ok(ColumnarValue::Array(values)),
        }
    }
}

/// An argument's values, and whether they are one for all rows; those of other types than a [`Kind`]'s are texts.
fn argument(argument: &ColumnarValue) -> Result<(ArrayRef, bool)> {
    let values = argument.to_array(1)?;
    let known = [Kind::Text, Kind::Int, Kind::Float, Kind::Date, Kind::Moment, Kind::Interval];
    let is_known = known.iter().any(|kind| kind.data_type() == *values.data_type());
    let values = if is_known { values } else { cast(&values, &DataType::Utf8)? };
    Ok((values, matches!(argument, ColumnarValue::Scalar(_))))
}

/// Results of all rows.
fn collect<'a>(of: &Definition, rows: impl Iterator<Item = Row<'a>>) -> Result<ArrayRef> {
    let values = rows.map(|row| {
        let is_null = of.is_strict && (0..row.len()).any(|nth| row.is_null(nth));
        if is_null { Ok(None) } else { (of.compute)(&row) }
    });
    macro_rules! build {
        ($builder:expr, $kind:ident) => {{
            let mut builder = $builder;
            for value in values {
                match value? {
                    Some(Value::$kind(value)) => builder.append_value(value),
                    None => builder.append_null(),
                    Some(_) => return Err(exec_datafusion_err!("{} gave another type", of.name)),
                }
            }
            Ok(Arc::new(builder.finish()))
        }};
    }
    match of.result {
        Kind::Text | Kind::Any => build!(StringBuilder::new(), Text),
        Kind::Int => build!(Int64Builder::new(), Int),
        Kind::Float => build!(Float64Builder::new(), Float),
        Kind::Bool => build!(BooleanBuilder::new(), Bool),
        Kind::Date => build!(Date32Builder::new(), Date),
        Kind::Moment => build!(TimestampMicrosecondBuilder::new(), Moment),
        Kind::Interval => build!(IntervalMonthDayNanoBuilder::new(), Interval),
        Kind::Texts => build!(ListBuilder::new(StringBuilder::new()), Texts),
    }
}

/// A text as a result.
pub fn text(text: impl Into<String>) -> Result<Option<Value>> {
    Ok(Some(Value::Text(text.into())))
}

/// An integer as a result.
pub fn int(number: impl TryInto<i64>) -> Result<Option<Value>> {
    match number.try_into() {
        Ok(number) => Ok(Some(Value::Int(number))),
        Err(_) => Err(exec_datafusion_err!("a number beyond 64 bits")),
    }
}
