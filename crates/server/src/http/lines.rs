//! Lines of JSON for the page: columns, rows as they come, and at the end a report or a failure.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;
use futures::Stream;
use futures::stream::unfold;
use headrace_engine::failure::{Class, Failure};
use headrace_engine::sql::type_name;
use serde_json::{Value, json};

use super::begun::{Begun, boxed};

/// Rows of a line.
const LINE_ROWS: usize = 1000;

/// Larger numbers are not exact in JavaScript.
const EXACT_MAX: i128 = (1 << 53) - 1;

enum State {
    Columns(Begun),
    Rows(Begun),
    End,
}

/// The lines of an answer.
pub fn of(
    begun: Begun,
) -> impl Stream<Item = Result<Bytes, std::sync::Arc<std::io::Error>>> + Send + 'static {
    boxed(unfold(State::Columns(begun), |state| async {
        match state {
            State::Columns(begun) => {
                let schema = begun.running.schema();
                let columns: Vec<_> = schema
                    .fields()
                    .iter()
                    .map(|field| json!({ "name": field.name(), "type": type_name(field.data_type()) }))
                    .collect();
                Some((line(&json!({ "columns": columns })), State::Rows(begun)))
            }
            State::Rows(mut begun) => Some(match begun.next().await {
                Some(Ok(batch)) => match rows(&batch) {
                    Ok(text) => (Bytes::from(text), State::Rows(begun)),
                    Err(error) => {
                        let broken = Failure::new(Class::Internal, error.to_string());
                        (line(&failure(&broken)), State::End)
                    }
                },
                Some(Err(told)) => (line(&failure(&told)), State::End),
                None => (line(&json!({ "report": begun.running.report() })), State::End),
            }),
            State::End => None,
        }
    }))
}

/// A failure as JSON.
pub fn failure(failure: &Failure) -> Value {
    let mut told = serde_json::to_value(failure).unwrap_or_default();
    told["sqlstate"] = json!(failure.sqlstate());
    json!({ "error": told })
}

fn line(value: &Value) -> Bytes {
    Bytes::from(value.to_string() + "\n")
}

fn rows(batch: &RecordBatch) -> Result<String, ArrowError> {
    let mut text = String::new();
    for begin in (0..batch.num_rows()).step_by(LINE_ROWS) {
        let some = batch.slice(begin, LINE_ROWS.min(batch.num_rows() - begin));
        let columns: Vec<Vec<Value>> =
            some.columns().iter().map(values).collect::<Result<_, _>>()?;
        let row =
            |nth: usize| Value::from(columns.iter().map(|c| c[nth].clone()).collect::<Vec<_>>());
        let rows: Vec<Value> = (0..some.num_rows()).map(row).collect();
        text += &json!({ "rows": rows }).to_string();
        text.push('\n');
    }
    Ok(text)
}

/// The values of a column: numbers where they are exact, texts of everything else.
fn values(array: &ArrayRef) -> Result<Vec<Value>, ArrowError> {
    let of = |value: &dyn Fn(usize) -> Value| {
        (0..array.len())
            .map(|nth| if array.is_valid(nth) { value(nth) } else { Value::Null })
            .collect()
    };
    Ok(match array.data_type() {
        DataType::Null => vec![Value::Null; array.len()],
        DataType::Boolean => of(&|nth| json!(array.as_boolean().value(nth))),
        data_type if data_type.is_signed_integer() => {
            let wide = cast(array, &DataType::Int64)?;
            let wide = wide.as_primitive::<Int64Type>();
            of(&|nth| integer(wide.value(nth).into()))
        }
        data_type if data_type.is_unsigned_integer() => {
            let wide = cast(array, &DataType::UInt64)?;
            let wide = wide.as_primitive::<UInt64Type>();
            of(&|nth| integer(wide.value(nth).into()))
        }
        data_type if data_type.is_floating() => {
            let wide = cast(array, &DataType::Float64)?;
            let wide = wide.as_primitive::<Float64Type>();
            // JSON has no number for those that are infinite or none.
            of(&|nth| match serde_json::Number::from_f64(wide.value(nth)) {
                Some(number) => Value::Number(number),
                None => json!(wide.value(nth).to_string()),
            })
        }
        _ => {
            let options = FormatOptions::new()
                .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
                .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));
            let texts = ArrayFormatter::try_new(array, &options)?;
            let mut values = Vec::with_capacity(array.len());
            for nth in 0..array.len() {
                values.push(match array.is_valid(nth) {
                    true => Value::String(texts.value(nth).try_to_string()?),
                    false => Value::Null,
                });
            }
            values
        }
    })
}

fn integer(value: i128) -> Value {
    match i64::try_from(value) {
        Ok(exact) if value.abs() <= EXACT_MAX => json!(exact),
        _ => json!(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, StringArray, UInt64Array};

    use super::*;

    #[test]
    fn values_are_exact_or_texts() {
        let of = |array: ArrayRef| Value::from(values(&array).unwrap()).to_string();
        let exact = 9_007_199_254_740_991;
        let numbers =
            Int64Array::from(vec![Some(1), None, Some(exact), Some(exact + 1), Some(i64::MIN)]);
        assert_eq!(
            of(Arc::new(numbers)),
            r#"[1,null,9007199254740991,"9007199254740992","-9223372036854775808"]"#
        );
        assert_eq!(of(Arc::new(UInt64Array::from(vec![u64::MAX]))), r#"["18446744073709551615"]"#);
        assert_eq!(of(Arc::new(Float64Array::from(vec![0.5, f64::NAN]))), r#"[0.5,"NaN"]"#);
        assert_eq!(of(Arc::new(StringArray::from(vec!["a\"\n"]))), r#"["a\"\n"]"#);
    }
}
