//! Python objects as literals of SQL.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// The literal of a value, which has its type in SQL whatever stands around it.
///
/// # Errors
/// An object that is no value of SQL.
pub fn literal(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = value.py();
    if value.is_none() {
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
        return list(values.iter());
    }
    if let Ok(values) = value.cast::<PyTuple>() {
        return list(values.iter());
    }
    if let Ok(fields) = value.cast::<PyDict>() {
        return structure(fields);
    }
    if let Some(text) = of_library(value)? {
        return Ok(text);
    }
    // Numbers of NumPy and the like.
    if let Ok(item) = value.getattr(intern!(py, "item"))
        && let Ok(plain) = item.call0()
        && !plain.is(value)
    {
        return literal(&plain);
    }
    let name = value.get_type().fully_qualified_name()?;
    Err(PyTypeError::new_err(format!("a value of {name} is no value of SQL")))
}

fn integer(value: &Bound<'_, PyInt>) -> PyResult<String> {
    let digits = value.str()?.to_string();
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

fn list<'py>(values: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<String> {
    let values: Vec<_> = values.map(|value| literal(&value)).collect::<PyResult<_>>()?;
    Ok(format!("[{}]", values.join(", ")))
}

fn structure(fields: &Bound<'_, PyDict>) -> PyResult<String> {
    let field = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name = name
            .cast_into::<PyString>()
            .map_err(|_| PyTypeError::new_err("the names of a struct's fields are texts"))?;
        Ok(format!("{}: {}", quoted(&name.to_cow()?), literal(&value)?))
    };
    let fields: Vec<_> = fields.iter().map(field).collect::<PyResult<_>>()?;
    Ok(format!("{{{}}}", fields.join(", ")))
}

/// Values of the standard library: moments, exact numbers, UUIDs.
fn of_library(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = value.py();
    let is_of = |module: &str, name: &str| -> PyResult<bool> {
        value.is_instance(&py.import(module)?.getattr(name)?)
    };
    if is_of("decimal", "Decimal")? {
        return decimal(value).map(Some);
    }
    if is_of("datetime", "datetime")? {
        let has_zone = !value.call_method0(intern!(py, "utcoffset"))?.is_none();
        let text: String = value.call_method0(intern!(py, "isoformat"))?.extract()?;
        let name = if has_zone { "TIMESTAMPTZ" } else { "TIMESTAMP" };
        return Ok(Some(format!("CAST('{text}' AS {name})")));
    }
    if is_of("datetime", "date")? {
        let text: String = value.call_method0(intern!(py, "isoformat"))?.extract()?;
        return Ok(Some(format!("CAST('{text}' AS DATE)")));
    }
    if is_of("datetime", "time")? {
        let text: String = value.call_method0(intern!(py, "isoformat"))?.extract()?;
        return Ok(Some(format!("CAST('{text}' AS TIME)")));
    }
    if is_of("datetime", "timedelta")? {
        let part = |name: &str| -> PyResult<i64> { value.getattr(name)?.extract() };
        let (days, seconds, rest) = (part("days")?, part("seconds")?, part("microseconds")?);
        return Ok(Some(format!("INTERVAL '{days} days {seconds} seconds {rest} microseconds'")));
    }
    match is_of("uuid", "UUID")? {
        true => Ok(Some(quoted(&value.str()?.to_cow()?))),
        false => Ok(None),
    }
}

fn decimal(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = value.py();
    if !value.call_method0(intern!(py, "is_finite"))?.is_truthy()? {
        return Ok(float(value.extract()?));
    }
    let text: String = value.call_method1(intern!(py, "__format__"), ("f",))?.extract()?;
    let digits = text.trim_start_matches('-');
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let precision = (whole.trim_start_matches('0').len() + fraction.len()).max(1);
    let (precision, scale) = (precision.max(fraction.len()), fraction.len());
    Ok(format!("CAST('{text}' AS DECIMAL({precision}, {scale}))"))
}
