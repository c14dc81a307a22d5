//! Columns of Arrow as Python objects.

use arrow_array::cast::AsArray;
use arrow_array::temporal_conversions::{
    date32_to_datetime, date64_to_datetime, time32ms_to_time, time32s_to_time, time64ns_to_time,
    time64us_to_time,
};
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, IntervalUnit, TimeUnit};
use datafusion::common::DataFusionError;
use headrace_engine::failure::Class;
use headrace_engine::sql::type_name;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyOverflowError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::failures;

type Object<'py> = Bound<'py, PyAny>;
type Objects<'py> = Vec<Object<'py>>;

/// Appends the rows of a batch as tuples.
pub fn append_rows(rows: &Bound<'_, PyList>, batch: &RecordBatch) -> PyResult<()> {
    let py = rows.py();
    let columns = batch.columns().iter().map(|column| self::column(py, column));
    let mut columns: Vec<_> =
        columns.map(|column| column.map(Vec::into_iter)).collect::<PyResult<_>>()?;
    for _ in 0..batch.num_rows() {
        let row: Objects<'_> = columns.iter_mut().filter_map(Iterator::next).collect();
        rows.append(PyTuple::new(py, row)?)?;
    }
    Ok(())
}

/// The values of a column.
pub fn column<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Objects<'py>> {
    use DataType::*;
    Ok(match array.data_type() {
        Null => none(py, array.len()),
        Boolean => {
            let values = array.as_boolean();
            each(py, values, |nth| Ok(values.value(nth).into_pyobject(py)?.to_owned().into_any()))?
        }
        Int8 => numbers::<Int8Type>(py, array)?,
        Int16 => numbers::<Int16Type>(py, array)?,
        Int32 => numbers::<Int32Type>(py, array)?,
        Int64 => numbers::<Int64Type>(py, array)?,
        UInt8 => numbers::<UInt8Type>(py, array)?,
        UInt16 => numbers::<UInt16Type>(py, array)?,
        UInt32 => numbers::<UInt32Type>(py, array)?,
        UInt64 => numbers::<UInt64Type>(py, array)?,
        Float16 => {
            let values = array.as_primitive::<Float16Type>();
            each(py, values, |nth| object(py, values.value(nth).to_f32()))?
        }
        // The shortest number that is the same one, as it would be written.
        Float32 => {
            let values = array.as_primitive::<Float32Type>();
            each(py, values, |nth| object(py, f64::from(values.value(nth))))?
        }
        Float64 => numbers::<Float64Type>(py, array)?,
        Utf8 => texts(py, array, |nth| array.as_string::<i32>().value(nth))?,
        LargeUtf8 => texts(py, array, |nth| array.as_string::<i64>().value(nth))?,
        Utf8View => texts(py, array, |nth| array.as_string_view().value(nth))?,
        Binary => bytes(py, array, |nth| array.as_binary::<i32>().value(nth))?,
        LargeBinary => bytes(py, array, |nth| array.as_binary::<i64>().value(nth))?,
        BinaryView => bytes(py, array, |nth| array.as_binary_view().value(nth))?,
        FixedSizeBinary(_) => bytes(py, array, |nth| array.as_fixed_size_binary().value(nth))?,
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => decimals(py, array)?,
        Date32 | Date64 | Timestamp(..) | Time32(_) | Time64(_) | Duration(_) => {
            moments(py, array)?
        }
        Interval(_) => intervals(py, array)?,
        Dictionary(..) => coded(py, array)?,
        RunEndEncoded(..) => column(py, &plain(py, array)?)?,
        List(_) => {
            let lists = array.as_list::<i32>();
            each(py, lists, |nth| list(py, &lists.value(nth)))?
        }
        LargeList(_) => {
            let lists = array.as_list::<i64>();
            each(py, lists, |nth| list(py, &lists.value(nth)))?
        }
        FixedSizeList(..) => {
            let lists = array.as_fixed_size_list();
            each(py, lists, |nth| list(py, &lists.value(nth)))?
        }
        ListView(_) => {
            let lists = array.as_list_view::<i32>();
            each(py, lists, |nth| list(py, &lists.value(nth)))?
        }
        LargeListView(_) => {
            let lists = array.as_list_view::<i64>();
            each(py, lists, |nth| list(py, &lists.value(nth)))?
        }
        Struct(_) => structs(py, array)?,
        Map(..) => maps(py, array)?,
        Union(..) => shown(py, array)?,
    })
}

/// Values where there are some, None elsewhere.
fn each<'py>(
    py: Python<'py>,
    array: &dyn Array,
    value: impl Fn(usize) -> PyResult<Object<'py>>,
) -> PyResult<Objects<'py>> {
    let of = |nth| if array.is_valid(nth) { value(nth) } else { Ok(py.None().into_bound(py)) };
    (0..array.len()).map(of).collect()
}

fn object<'py>(py: Python<'py>, value: impl IntoPyObject<'py>) -> PyResult<Object<'py>> {
    value.into_bound_py_any(py)
}

fn none(py: Python<'_>, count: usize) -> Objects<'_> {
    vec![py.None().into_bound(py); count]
}

fn numbers<'py, T>(py: Python<'py>, array: &ArrayRef) -> PyResult<Objects<'py>>
where
    T: ArrowPrimitiveType,
    T::Native: IntoPyObject<'py>,
{
    let values = array.as_primitive::<T>();
    each(py, values, |nth| object(py, values.value(nth)))
}

fn texts<'py, 'a>(
    py: Python<'py>,
    array: &'a ArrayRef,
    text: impl Fn(usize) -> &'a str,
) -> PyResult<Objects<'py>> {
    each(py, array, |nth| object(py, text(nth)))
}

fn bytes<'py, 'a>(
    py: Python<'py>,
    array: &'a ArrayRef,
    value: impl Fn(usize) -> &'a [u8],
) -> PyResult<Objects<'py>> {
    each(py, array, |nth| Ok(PyBytes::new(py, value(nth)).into_any()))
}

/// Exact numbers, made of their digits.
fn decimals<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Objects<'py>> {
    let decimal = py.import(intern!(py, "decimal"))?.getattr(intern!(py, "Decimal"))?;
    let digits = formatted(py, array)?;
    each(py, array, |nth| decimal.call1((digits.value(nth).to_string(),)))
}

/// The text of each value.
fn shown<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Objects<'py>> {
    let texts = formatted(py, array)?;
    each(py, array, |nth| object(py, texts.value(nth).to_string()))
}

fn formatted<'a>(py: Python<'_>, array: &'a ArrayRef) -> PyResult<ArrayFormatter<'a>> {
    const OPTIONS: &FormatOptions<'static> = &FormatOptions::new();
    ArrayFormatter::try_new(array, OPTIONS).map_err(|error| failed(py, error))
}

/// Dates, times, moments and durations. Years that Python does not have, and nanoseconds, which it cuts off, are texts.
fn moments<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Objects<'py>> {
    use TimeUnit::*;
    let zoned = match array.data_type() {
        DataType::Timestamp(_, Some(zone)) => Some(self::zone(py, zone)?),
        _ => None,
    };
    let texts = formatted(py, array)?;
    let made = Moments::new(py)?;
    macro_rules! value {
        ($type:ty, $nth:expr) => {
            array.as_primitive::<$type>().value($nth)
        };
    }
    each(py, array, |nth| {
        let object = match array.data_type() {
            DataType::Date32 => date32_to_datetime(value!(Date32Type, nth)).map(|d| made.date(&d)),
            DataType::Date64 => date64_to_datetime(value!(Date64Type, nth)).map(|d| made.date(&d)),
            DataType::Time32(Second) => {
                time32s_to_time(value!(Time32SecondType, nth)).map(|t| made.time(t))
            }
            DataType::Time32(_) => {
                time32ms_to_time(value!(Time32MillisecondType, nth)).map(|t| made.time(t))
            }
            DataType::Time64(Nanosecond) => {
                time64ns_to_time(value!(Time64NanosecondType, nth)).map(|t| made.time(t))
            }
            DataType::Time64(_) => {
                time64us_to_time(value!(Time64MicrosecondType, nth)).map(|t| made.time(t))
            }
            DataType::Duration(unit) => Some(made.duration(match unit {
                Second => value!(DurationSecondType, nth).checked_mul(1_000_000),
                Millisecond => value!(DurationMillisecondType, nth).checked_mul(1_000),
                Microsecond => Some(value!(DurationMicrosecondType, nth)),
                Nanosecond => Some(value!(DurationNanosecondType, nth).div_euclid(1_000)),
            })),
            DataType::Timestamp(unit, _) => Some(made.moment(
                match unit {
                    Second => value!(TimestampSecondType, nth).checked_mul(1_000_000),
                    Millisecond => value!(TimestampMillisecondType, nth).checked_mul(1_000),
                    Microsecond => Some(value!(TimestampMicrosecondType, nth)),
                    Nanosecond => Some(value!(TimestampNanosecondType, nth).div_euclid(1_000)),
                },
                zoned.as_ref(),
            )),
            _ => None,
        };
        match object.transpose()?.flatten() {
            Some(object) => Ok(object),
            None => beyond(py, array, &texts, nth),
        }
    })
}

/// A value that Python's class has not: its text.
fn beyond<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    texts: &ArrayFormatter<'_>,
    nth: usize,
) -> PyResult<Object<'py>> {
    match texts.value(nth).try_to_string() {
        Ok(text) => object(py, text),
        Err(_) => {
            let cause =
                format!("a value of {} is beyond what has a date", type_name(array.data_type()));
            Err(failures::of_value(py, Class::Value, cause))
        }
    }
}

/// The time zone of a name, or of a distance such as +01:00.
fn zone<'py>(py: Python<'py>, name: &str) -> PyResult<Object<'py>> {
    let datetime = py.import(intern!(py, "datetime"))?;
    if matches!(name, "UTC" | "+00:00" | "Z") {
        return datetime.getattr(intern!(py, "timezone"))?.getattr(intern!(py, "utc"));
    }
    let digits = |at: usize| name.get(at..at + 2).and_then(|two| two.parse::<i32>().ok());
    if let (Some(sign @ ('+' | '-')), Some(hours), Some(minutes)) =
        (name.chars().next(), digits(1), digits(4))
    {
        let minutes = (hours * 60 + minutes) * if sign == '-' { -1 } else { 1 };
        let distance = datetime.getattr(intern!(py, "timedelta"))?.call1((0, 0, 0, 0, minutes))?;
        return datetime.getattr(intern!(py, "timezone"))?.call1((distance,));
    }
    py.import(intern!(py, "zoneinfo"))?.getattr(intern!(py, "ZoneInfo"))?.call1((name,))
}

/// What makes Python's moments.
struct Moments<'py> {
    date: Object<'py>,
    time: Object<'py>,
    duration: Object<'py>,
    epoch: Object<'py>,
    utc_epoch: Object<'py>,
}

/// Days in either direction that Python's moments reach, and more.
const MICROSECONDS_A_DAY: i64 = 86_400_000_000;

impl<'py> Moments<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let module = py.import(intern!(py, "datetime"))?;
        let utc = module.getattr(intern!(py, "timezone"))?.getattr(intern!(py, "utc"))?;
        let moment = module.getattr(intern!(py, "datetime"))?;
        Ok(Self {
            date: module.getattr(intern!(py, "date"))?,
            time: module.getattr(intern!(py, "time"))?,
            duration: module.getattr(intern!(py, "timedelta"))?,
            epoch: moment.call1((1970, 1, 1))?,
            utc_epoch: moment.call1((1970, 1, 1, 0, 0, 0, 0, utc))?,
        })
    }

    fn date(&self, date: &impl chrono::Datelike) -> PyResult<Option<Object<'py>>> {
        match date.year() {
            1..=9999 => self.date.call1((date.year(), date.month(), date.day())).map(Some),
            _ => Ok(None),
        }
    }

    fn time(&self, time: impl chrono::Timelike) -> PyResult<Option<Object<'py>>> {
        let parts = (time.hour(), time.minute(), time.second(), time.nanosecond() / 1_000);
        self.time.call1(parts).map(Some)
    }

    fn duration(&self, microseconds: Option<i64>) -> PyResult<Option<Object<'py>>> {
        let Some(microseconds) = microseconds else { return Ok(None) };
        let days = microseconds.div_euclid(MICROSECONDS_A_DAY);
        let rest = microseconds.rem_euclid(MICROSECONDS_A_DAY);
        within_range(self.duration.call1((days, 0, rest)), self.duration.py())
    }

    /// So long after 1970, in a zone if there is one.
    fn moment(
        &self,
        microseconds: Option<i64>,
        zone: Option<&Object<'py>>,
    ) -> PyResult<Option<Object<'py>>> {
        let Some(after) = self.duration(microseconds)? else { return Ok(None) };
        let epoch = if zone.is_some() { &self.utc_epoch } else { &self.epoch };
        let Some(moment) = within_range(epoch.add(after), epoch.py())? else { return Ok(None) };
        match zone {
            None => Ok(Some(moment)),
            Some(zone) => {
                let there = moment.call_method1(intern!(epoch.py(), "astimezone"), (zone,));
                within_range(there, epoch.py())
            }
        }
    }
}

/// A moment, unless it is before the year 1, or behind 9999.
fn within_range<'py>(
    made: PyResult<Object<'py>>,
    py: Python<'py>,
) -> PyResult<Option<Object<'py>>> {
    match made {
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => Ok(None),
        made => made.map(Some),
    }
}

/// Durations where an interval has no months, whose length nobody knows; texts elsewhere.
fn intervals<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Objects<'py>> {
    let (texts, made) = (formatted(py, array)?, Moments::new(py)?);
    each(py, array, |nth| {
        let (months, days, nanoseconds) = match array.data_type() {
            DataType::Interval(IntervalUnit::DayTime) => {
                let value = array.as_primitive::<IntervalDayTimeType>().value(nth);
                (0, i64::from(value.days), i64::from(value.milliseconds) * 1_000_000)
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                let value = array.as_primitive::<IntervalMonthDayNanoType>().value(nth);
                (value.months, i64::from(value.days), value.nanoseconds)
            }
            _ => (array.as_primitive::<IntervalYearMonthType>().value(nth), 0, 0),
        };
        let duration = match months {
            0 => {
                let made = made.duration.call1((days, 0, nanoseconds.div_euclid(1_000)));
                within_range(made, py)?
            }
            _ => None,
        };
        duration.map_or_else(|| beyond(py, array, &texts, nth), Ok)
    })
}

/// Values by codes: each is made once.
fn coded<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Objects<'py>> {
    let codes = array.as_any_dictionary();
    // Larger than the rows that use it, as a table's is; or of none, which no code can have.
    if codes.values().len() > codes.len() || codes.values().is_empty() {
        return column(py, &plain(py, array)?);
    }
    let values = column(py, codes.values())?;
    let numbers = codes.normalized_keys();
    each(py, array, |nth| Ok(values[numbers[nth]].clone()))
}

fn plain(py: Python<'_>, array: &ArrayRef) -> PyResult<ArrayRef> {
    let values = match array.data_type() {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        DataType::RunEndEncoded(_, values) => values.data_type().clone(),
        _ => return Ok(array.clone()),
    };
    arrow_cast::cast(array, &values).map_err(|error| failed(py, error))
}

fn list<'py>(py: Python<'py>, values: &ArrayRef) -> PyResult<Object<'py>> {
    Ok(PyList::new(py, column(py, values)?)?.into_any())
}

fn structs<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Objects<'py>> {
    let rows = array.as_struct();
    let columns = rows.columns().iter().map(|values| column(py, values));
    let columns: Vec<_> = columns.collect::<PyResult<_>>()?;
    each(py, rows, |nth| {
        let dict = PyDict::new(py);
        for (name, values) in rows.column_names().iter().zip(&columns) {
            dict.set_item(name, &values[nth])?;
        }
        Ok(dict.into_any())
    })
}

/// Dictionaries; keys that Python has no hash of are a list of pairs.
fn maps<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Objects<'py>> {
    let maps = array.as_map();
    each(py, maps, |nth| {
        let entries = maps.value(nth);
        let (keys, values) = (column(py, entries.column(0))?, column(py, entries.column(1))?);
        let dict = PyDict::new(py);
        let mut pairs = keys.iter().zip(&values);
        match pairs.try_for_each(|(key, value)| dict.set_item(key, value)) {
            Ok(()) => Ok(dict.into_any()),
            Err(_) => Ok(PyList::new(py, keys.iter().zip(&values))?.into_any()),
        }
    })
}

fn failed(py: Python<'_>, error: ArrowError) -> PyErr {
    failures::of(py, &DataFusionError::from(error))
}
