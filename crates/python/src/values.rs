//! Python objects as literals of SQL.

use headrace_engine::failure::Class;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::failures;

/// The literal of a value, which has its type in SQL whatever stands around it.
///
/// # Errors
/// An object that is no value of SQL.
pub fn literal(value: &Bound<'_, PyAny>) -> PyResult<String> {
    literal_within(value, 0)
}

/// Lists within lists at most: SQL has none so deep, and one that contains itself has no end.
const DEPTH_MAX: usize = 64;

fn literal_within(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<String> {
    let py = value.py();
    if depth > DEPTH_MAX {
        let cause = format!("a value has more than {DEPTH_MAX} lists within lists");
        return Err(failures::of_value(py, Class::Value, cause));
    }
    if value.is_none() || is_missing(value)? {
        return Ok("NULL".to_string());
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(if value.is_true() { "TRUE" } else { "FALSE" }.to_string());
    }
    if let Ok(value) = value.cast::<PyInt>() {
        return integer(value);
    }
    if let Ok(value) = value.cast::<PyFloat>() {
        return Ok(float(value.extract()?));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(quoted(&text.to_cow()?));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(binary(bytes.as_bytes()));
    }
    if let Ok(values) = value.cast::<PyList>() {
        return list(values.iter(), depth);
    }
    if let Ok(values) = value.cast::<PyTuple>() {
        return list(values.iter(), depth);
    }
    if let Ok(fields) = value.cast::<PyDict>() {
        return structure(fields, depth);
    }
    if let Some(text) = of_library(value)? {
        return Ok(text);
    }
    if let Some(text) = of_numpy(value)? {
        return Ok(text);
    }
    // Numbers of NumPy and the like.
    if let Ok(item) = value.getattr(intern!(py, "item"))
        && let Ok(plain) = item.call0()
        && !plain.is(value)
    {
        return literal_within(&plain, depth + 1);
    }
    let name = value.get_type().fully_qualified_name()?;
    Err(PyTypeError::new_err(format!("a value of {name} is no value of SQL")))
}

fn integer(value: &Bound<'_, PyInt>) -> PyResult<String> {
    // Those of the number, whatever a class of its own calls it.
    let base = value.py().get_type::<PyInt>();
    let digits = base.call_method1(intern!(value.py(), "__repr__"), (value,))?.to_string();
    match value.extract::<i64>() {
        // The parser reads a minus and a number, which is one too large here.
        Ok(i64::MIN) => Ok(format!("CAST('{digits}' AS BIGINT)")),
        Ok(0..) => Ok(digits),
        Ok(_) => Ok(format!("({digits})")),
        Err(_) => match digits.trim_start_matches('-').len() {
            ..=38 => Ok(format!("CAST('{digits}' AS DECIMAL(38, 0))")),
            length => Ok(format!("CAST('{digits}' AS DECIMAL({length}, 0))")),
        },
    }
}

fn float(value: f64) -> String {
    let text = match value {
        value if value.is_nan() => "NaN".to_string(),
        value if value.is_infinite() => if value > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        value => format!("{value:e}"),
    };
    format!("CAST('{text}' AS DOUBLE)")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn binary(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("X'{digits}'")
}

fn list<'py>(values: impl Iterator<Item = Bound<'py, PyAny>>, depth: usize) -> PyResult<String> {
    let values = values.map(|value| literal_within(&value, depth + 1));
    let values: Vec<_> = values.collect::<PyResult<_>>()?;
    Ok(format!("[{}]", values.join(", ")))
}

fn structure(fields: &Bound<'_, PyDict>, depth: usize) -> PyResult<String> {
    let field = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name = name
            .cast_into::<PyString>()
            .map_err(|_| PyTypeError::new_err("the names of a struct's fields are texts"))?;
        Ok(format!("{}: {}", quoted(&name.to_cow()?), literal_within(&value, depth + 1)?))
    };
    let fields: Vec<_> = fields.iter().map(field).collect::<PyResult<_>>()?;
    Ok(format!("{{{}}}", fields.join(", ")))
}

/// Values of pandas and NumPy that stand for none.
fn is_missing(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let kind = value.get_type();
    let name = kind.name()?;
    let is_pandas = || -> PyResult<bool> { Ok(kind.module()?.to_cow()?.starts_with("pandas")) };
    Ok((name == "NAType" || name == "NaTType") && is_pandas()?)
}

/// A method of the class itself: one of a subclass may say something else, and is nobody's SQL.
fn said_by<'py>(
    class: &Bound<'py, PyAny>,
    method: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<String> {
    class.call_method1(method, (value,))?.extract()
}

/// Values of the standard library: moments, exact numbers, UUIDs.
fn of_library(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = value.py();
    let class = |module: &str, name: &str| py.import(module)?.getattr(name);
    let decimals = class("decimal", "Decimal")?;
    if value.is_instance(&decimals)? {
        return decimal(value, &decimals).map(Some);
    }
    let moments = class("datetime", "datetime")?;
    if value.is_instance(&moments)? {
        return moment(value, &moments).map(Some);
    }
    for (name, sql) in [("date", "DATE"), ("time", "TIME")] {
        let class = class("datetime", name)?;
        if value.is_instance(&class)? {
            let text = said_by(&class, "isoformat", value)?;
            return Ok(Some(format!("CAST({} AS {sql})", quoted(&text))));
        }
    }
    if value.is_instance(&class("datetime", "timedelta")?)? {
        let part = |name: &str| -> PyResult<i64> { value.getattr(name)?.extract() };
        let (days, seconds, rest) = (part("days")?, part("seconds")?, part("microseconds")?);
        return Ok(Some(format!("INTERVAL '{days} days {seconds} seconds {rest} microseconds'")));
    }
    match value.is_instance(&class("uuid", "UUID")?)? {
        true => Ok(Some(quoted(&value.str()?.to_cow()?))),
        false => Ok(None),
    }
}

fn moment(value: &Bound<'_, PyAny>, class: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = value.py();
    let mut text = said_by(class, "isoformat", value)?;
    let distance = class.call_method1(intern!(py, "utcoffset"), (value,))?;
    // Those of pandas have more digits.
    let nanoseconds = value.getattr(intern!(py, "nanosecond")).and_then(|n| n.extract::<u32>());
    let nanoseconds = nanoseconds.unwrap_or(0);
    if nanoseconds > 0 && distance.is_none() {
        if !text.contains('.') {
            text += ".000000";
        }
        text += &format!("{nanoseconds:03}");
        return Ok(format!("CAST({} AS TIMESTAMP(9))", quoted(&text)));
    }
    let name = if distance.is_none() { "TIMESTAMP" } else { "TIMESTAMPTZ" };
    Ok(format!("CAST({} AS {name})", quoted(&text)))
}

/// Moments of NumPy, which are numbers to whoever asks for the item.
fn of_numpy(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let kind = value.get_type();
    if !kind.module()?.to_cow()?.starts_with("numpy") {
        return Ok(None);
    }
    let text = || -> PyResult<String> { Ok(value.str()?.to_cow()?.into_owned()) };
    Ok(match kind.name()?.to_cow()?.as_ref() {
        "datetime64" | "timedelta64" if text()? == "NaT" => Some("NULL".to_string()),
        "datetime64" => Some(format!("CAST({} AS TIMESTAMP(9))", quoted(&text()?))),
        "timedelta64" => {
            let microseconds = value.call_method1("astype", ("timedelta64[us]",))?;
            let count: i64 = microseconds.call_method1("astype", ("int64",))?.extract()?;
            Some(format!("INTERVAL '{count} microseconds'"))
        }
        _ => None,
    })
}

fn decimal(value: &Bound<'_, PyAny>, class: &Bound<'_, PyAny>) -> PyResult<String> {
    if !class.call_method1("is_finite", (value,))?.is_truthy()? {
        return Ok(float(value.extract()?));
    }
    let text: String = class.call_method1("__format__", (value, "f"))?.extract()?;
    let digits = text.trim_start_matches('-');
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let precision = (whole.trim_start_matches('0').len() + fraction.len()).max(1);
    let (precision, scale) = (precision.max(fraction.len()), fraction.len());
    Ok(format!("CAST({} AS DECIMAL({precision}, {scale}))", quoted(&text)))
}
