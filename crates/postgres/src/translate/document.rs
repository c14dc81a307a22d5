//! What is asked of documents, values of `jsonb`: fields by constant keys, and whether they contain a constant. It is
//! decoded with the documents, as a column of its own.

use std::collections::BTreeSet;

use headrace_format::heap::{JsonbQuery, JsonbScalar, JsonbType, fields, flat_fields};
use headrace_ir::DataType;
use pgrx::pg_sys::{self, Datum, Node, NodeTag, Oid};

use super::constant::{numeric, text as text_of};
use super::expr::operands;
use super::format::constant_text;
use super::types::ir_type;
use crate::nodes::{self, WhyNot, cast, why_not};

/// Digits behind the point that casts to `numeric` have room for.
const SCALE: i8 = 10;

/// A column of documents, and what is asked of them.
pub unsafe fn asked<'a>(node: *mut Node) -> Option<(&'a pg_sys::Var, JsonbQuery)> {
    if let Some(cast) = cast::<pg_sys::CoerceViaIO>(node, NodeTag::T_CoerceViaIO) {
        let of = match (*cast).resulttype {
            pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID => JsonbType::Integer,
            pg_sys::FLOAT8OID => JsonbType::Float,
            pg_sys::BOOLOID => JsonbType::Bool,
            pg_sys::NUMERICOID => JsonbType::Number { precision: 38, scale: SCALE },
            _ => return None,
        };
        return match plainly_asked((*cast).arg.cast())? {
            (var, JsonbQuery::Field { path, of: JsonbType::Text }) => {
                Some((var, JsonbQuery::Field { path, of }))
            }
            _ => None,
        };
    }
    plainly_asked(node)
}

/// What else must be known of an answer: how many digits a number shows, and all that there may be.
pub fn digits_of(query: &JsonbQuery) -> Option<(JsonbQuery, BTreeSet<i8>)> {
    match query {
        JsonbQuery::Field { path, of: JsonbType::Number { scale, .. } } => {
            let of = JsonbType::DigitsShown { most: scale.unsigned_abs() };
            Some((JsonbQuery::Field { path: path.clone(), of }, (0..=*scale).collect()))
        }
        _ => None,
    }
}

unsafe fn plainly_asked<'a>(node: *mut Node) -> Option<(&'a pg_sys::Var, JsonbQuery)> {
    let (function, arguments) = called(node)?;
    let [left, right] = arguments[..] else { return None };
    match function {
        pg_sys::F_JSONB_OBJECT_FIELD_TEXT => {
            let (var, mut path) = at(left)?;
            path.push(constant_text(right)?);
            Some((var, JsonbQuery::Field { path, of: JsonbType::Text }))
        }
        pg_sys::F_JSONB_CONTAINS => Some((column(left)?, contained(right)?)),
        pg_sys::F_JSONB_CONTAINED => Some((column(right)?, contained(left)?)),
        _ => None,
    }
}

unsafe fn called(node: *mut Node) -> Option<(u32, Vec<*mut Node>)> {
    if let Some(operator) = cast::<pg_sys::OpExpr>(node, NodeTag::T_OpExpr) {
        return Some(((*operator).opfuncid.to_u32(), operands((*operator).args)));
    }
    let call = cast::<pg_sys::FuncExpr>(node, NodeTag::T_FuncExpr)?;
    Some(((*call).funcid.to_u32(), operands((*call).args)))
}

unsafe fn column<'a>(node: *mut Node) -> Option<&'a pg_sys::Var> {
    let var = &*cast::<pg_sys::Var>(node, NodeTag::T_Var)?;
    (var.vartype == pg_sys::JSONBOID && var.varattno > 0 && var.varlevelsup == 0).then_some(var)
}

/// A column, and the keys of objects in one another that lead from its documents to a value.
unsafe fn at<'a>(node: *mut Node) -> Option<(&'a pg_sys::Var, Vec<String>)> {
    if let Some(var) = column(node) {
        return Some((var, Vec::new()));
    }
    let (function, arguments) = called(node)?;
    let [of, name] = arguments[..] else { return None };
    if function != pg_sys::F_JSONB_OBJECT_FIELD {
        return None;
    }
    let (var, mut path) = at(of)?;
    path.push(constant_text(name)?);
    Some((var, path))
}

unsafe fn contained(node: *mut Node) -> Option<JsonbQuery> {
    let constant = &*cast::<pg_sys::Const>(node, NodeTag::T_Const)?;
    if constant.consttype != pg_sys::JSONBOID || constant.constisnull {
        return None;
    }
    let whole = pg_sys::pg_detoast_datum(constant.constvalue.cast_mut_ptr());
    let bytes = pgrx::varlena::vardata_any(whole).cast::<u8>();
    // Detoasted: so many bytes stand there.
    let document = std::slice::from_raw_parts(bytes, pgrx::varlena::varsize_any_exhdr(whole));
    flat_fields(document).map(JsonbQuery::Contains)
}

/// The type of an answer.
///
/// # Errors
/// Texts of this database are none of pipelines.
pub unsafe fn answer_type(query: &JsonbQuery) -> Result<DataType, WhyNot> {
    let text = ir_type(pg_sys::TEXTOID, -1)?;
    Ok(match query {
        JsonbQuery::Contains(_) => DataType::Bool,
        JsonbQuery::Field { of, .. } => match *of {
            JsonbType::Text => text,
            JsonbType::Integer => DataType::Int64,
            JsonbType::Float => DataType::Float64,
            JsonbType::Bool => DataType::Bool,
            JsonbType::Number { precision, scale } => DataType::Decimal128 { precision, scale },
            JsonbType::DigitsShown { .. } => DataType::Int32,
        },
    })
}

/// What is asked, as SQL.
pub fn shown(column: &str, query: &JsonbQuery) -> String {
    match query {
        JsonbQuery::Field { path, of } => {
            let keys: Vec<String> =
                path.iter().map(|key| format!("'{}'", key.replace('\'', "''"))).collect();
            let (last, way) = keys.split_last().map_or(("''", &[][..]), |(last, way)| (last, way));
            let way: String = way.iter().map(|key| format!("->{key}")).collect();
            let text = format!("{column}{way}->>{last}");
            match of {
                JsonbType::Text => text,
                JsonbType::Integer => format!("({text})::int8"),
                JsonbType::Float => format!("({text})::float8"),
                JsonbType::Bool => format!("({text})::bool"),
                JsonbType::Number { .. } => format!("({text})::numeric"),
                JsonbType::DigitsShown { .. } => format!("digits of ({text})::numeric"),
            }
        }
        JsonbQuery::Contains(_) => {
            format!("{column} @> '{}'", document(query).replace('\'', "''"))
        }
    }
}

/// The constant that documents are to contain.
fn document(query: &JsonbQuery) -> String {
    let JsonbQuery::Contains(fields) = query else { return String::new() };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let fields = fields.iter().map(|(key, scalar)| {
        let value = match scalar {
            JsonbScalar::String(text) => quoted(text),
            JsonbScalar::Number(number) => number.clone(),
            JsonbScalar::Bool(truth) => truth.to_string(),
            JsonbScalar::Null => "null".into(),
        };
        format!("{}: {value}", quoted(key))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
}

/// The server's own answer of a document, and its type.
pub unsafe fn answer(document: Datum, query: &JsonbQuery) -> Result<(Option<Datum>, Oid), WhyNot> {
    let call = |function, of: Datum, with: Datum| {
        pgrx::direct_function_call_as_datum(function, &[Some(of), Some(with)])
    };
    let (path, of) = match query {
        JsonbQuery::Field { path, of } => (path, *of),
        JsonbQuery::Contains(_) => {
            let wanted = nodes::c_string(&self::document(query));
            let wanted = pgrx::direct_function_call_as_datum(
                pg_sys::jsonb_in,
                &[Some(Datum::from(wanted.as_ptr()))],
            );
            let Some(wanted) = wanted else { return why_not("a jsonb that cannot be written") };
            return Ok((call(pg_sys::jsonb_contains, document, wanted), pg_sys::BOOLOID));
        }
    };
    let key = |key: &String| {
        Datum::from(pg_sys::cstring_to_text_with_len(key.as_ptr().cast(), key.len() as i32))
    };
    let Some((last, way)) = path.split_last() else { return why_not("a jsonb without a path") };
    let mut at = Some(document);
    for step in way {
        at = at.and_then(|at| call(pg_sys::jsonb_object_field, at, key(step)));
    }
    let text = at.and_then(|at| call(pg_sys::jsonb_object_field_text, at, key(last)));
    match (text, of) {
        (Some(shown), of) if of != JsonbType::Text => as_cast(&text_of(shown)?, of),
        (text, _) => Ok((text, pg_sys::TEXTOID)),
    }
}

/// What a cast makes of a field's text.
unsafe fn as_cast(text: &str, of: JsonbType) -> Result<(Option<Datum>, Oid), WhyNot> {
    let (value, oid) = match of {
        JsonbType::Text => (None, pg_sys::TEXTOID),
        JsonbType::Integer => (fields::integer(text).map(Datum::from), pg_sys::INT8OID),
        JsonbType::Float => {
            let value = fields::float(text);
            (value.map(|value| Datum::from(value.to_bits())), pg_sys::FLOAT8OID)
        }
        JsonbType::Bool => (fields::truth(text).map(Datum::from), pg_sys::BOOLOID),
        JsonbType::Number { precision, scale } => {
            let value = fields::decimal(text, precision, scale);
            (value.and_then(|(value, _)| numeric(value, scale)), pg_sys::NUMERICOID)
        }
        JsonbType::DigitsShown { most } => {
            let value = fields::decimal(text, 38, most as i8);
            (value.map(|(_, shown)| Datum::from(i32::from(shown))), pg_sys::INT4OID)
        }
    };
    match value {
        Some(value) => Ok((Some(value), oid)),
        None => why_not("a field of a document that is not what it is cast to"),
    }
}
