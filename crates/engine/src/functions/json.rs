//! JSON in texts: parts of it, as they stand there.
//!
//! A text is read once for each call, as far as the part that is asked for; what is behind that is not checked.

use std::borrow::Cow;

use datafusion::common::{Result, exec_datafusion_err, exec_err};

use super::rows::Kind::{Any, Bool, Int, Text, Texts};
use super::rows::{Compute, Definition, Kind, Row, Value, int, strict, text};

const PATHS: &[&[Kind]] = &[&[Text, Text], &[Text, Int]];

/// The functions.
pub const FUNCTIONS: &[Definition] = &[
    strict("json_extract", PATHS, Text, PART),
    strict("json_extract_string", PATHS, Text, STRING),
    strict("json_get", PATHS, Text, PART),
    strict("json_get_str", PATHS, Text, STRING),
    strict("json_value", PATHS, Text, |row| {
        let part = part(row)?.filter(|part| !part.starts_with(['{', '[']));
        as_string(part)
    }),
    strict("json_exists", PATHS, Bool, |row| Ok(Some(Value::Bool(part(row)?.is_some())))),
    strict("json_extract_path", &[&[Text, Any]], Text, |row| Ok(path(row)?.map(own))),
    strict("json_extract_path_text", &[&[Text, Any]], Text, |row| as_string(path(row)?)),
    strict("json_array_length", &[&[Text], &[Text, Text]], Int, |row| {
        let Some(json) = optional_part(row)? else { return Ok(None) };
        if !json.starts_with('[') {
            return exec_err!("json_array_length() of what is no array: {}", short(json));
        }
        int(members(json)?.len())
    }),
    strict("json_keys", &[&[Text], &[Text, Text]], Texts, |row| {
        let Some(json) = optional_part(row)? else { return Ok(None) };
        let members = if json.starts_with('{') { members(json)? } else { Vec::new() };
        let keys = members.into_iter().filter_map(|(key, _)| key).map(|key| Some(key.into_owned()));
        Ok(Some(Value::Texts(keys.collect())))
    }),
    strict("json_valid", &[&[Text]], Bool, |row| {
        Ok(Some(Value::Bool(serde_json::from_str::<serde::de::IgnoredAny>(row.text(0)).is_ok())))
    }),
    strict("json_type", &[&[Text], &[Text, Text]], Text, |row| {
        optional_part(row)?.map(|json| Ok(Value::Text(type_of(json).to_string()))).transpose()
    }),
    strict("json_typeof", &[&[Text]], Text, |row| {
        optional_part(row)?.map(|json| Ok(Value::Text(type_of(json).to_string()))).transpose()
    }),
    strict("json_quote", &[&[Any]], Text, |row| text(quoted(&row.shown(0)?))),
];

/// `->`: a part as it stands there.
pub const PART: Compute = |row| Ok(part(row)?.map(own));
/// `->>`: a part, without quotes where it is a text.
pub const STRING: Compute = |row| as_string(part(row)?);

fn own(part: &str) -> Value {
    Value::Text(part.to_string())
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

fn as_string(part: Option<&str>) -> Result<Option<Value>> {
    match part {
        None | Some("null") => Ok(None),
        Some(part) if part.starts_with('"') => text(string(part)?),
        Some(part) => text(part),
    }
}

fn string(json: &str) -> Result<Cow<'_, str>> {
    let inner = &json[1..json.len().saturating_sub(1).max(1)];
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    serde_json::from_str(json).map(Cow::Owned).map_err(|cause| wrong(json, &cause))
}

fn wrong(json: &str, cause: &dyn std::fmt::Display) -> datafusion::common::DataFusionError {
    exec_datafusion_err!(
        "no JSON: {}: {cause}\nhint: json_valid() tells which texts are",
        short(json)
    )
}

fn short(json: &str) -> String {
    match json.char_indices().nth(60) {
        Some((end, _)) => format!("{}..", &json[..end]),
        None => json.to_string(),
    }
}

fn type_of(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}

/// The part that the second argument asks for: a key, a place, `$.a[0].b` or `/a/0/b`.
fn part<'a>(row: &Row<'a>) -> Result<Option<&'a str>> {
    let json = whole(row.text(0))?;
    if row.is_int(1) {
        return at(json, row.int(1));
    }
    follow(json, row.text(1))
}

fn optional_part<'a>(row: &Row<'a>) -> Result<Option<&'a str>> {
    if row.len() > 1 { part(row) } else { whole(row.text(0)).map(Some) }
}

/// Each argument is a key or a place.
fn path<'a>(row: &Row<'a>) -> Result<Option<&'a str>> {
    let mut json = whole(row.text(0))?;
    for nth in 1..row.len() {
        let step = row.shown(nth)?;
        let next = match (json.starts_with('['), step.parse::<i64>()) {
            (true, Ok(place)) => at(json, place)?,
            _ => key(json, &step)?,
        };
        let Some(next) = next else { return Ok(None) };
        json = next;
    }
    Ok(Some(json))
}

fn whole(text: &str) -> Result<&str> {
    let text = text.trim();
    let end = end_of(text)?;
    match text[end..].trim().is_empty() {
        true => Ok(text),
        false => Err(wrong(text, &format!("more behind it at byte {end}"))),
    }
}

fn follow<'a>(json: &'a str, path: &str) -> Result<Option<&'a str>> {
    if let Some(pointer) = path.strip_prefix('/') {
        let mut json = json;
        for step in pointer.split('/') {
            let step = step.replace("~1", "/").replace("~0", "~");
            let next = match (json.starts_with('['), step.parse()) {
                (true, Ok(place)) => at(json, place)?,
                _ => key(json, &step)?,
            };
            let Some(next) = next else { return Ok(None) };
            json = next;
        }
        return Ok(Some(json));
    }
    let Some(mut rest) = path.strip_prefix('$') else { return key(json, path) };
    let mut json = json;
    let bad = || {
        exec_datafusion_err!("'{path}' is no path\nhint: such as '$.a[0].\"b c\"', or a key alone")
    };
    while !rest.is_empty() {
        let next = if let Some(behind) = rest.strip_prefix('[') {
            let (place, behind) = behind.split_once(']').ok_or_else(bad)?;
            rest = behind;
            match place.trim_matches('\'') {
                quoted if quoted.len() < place.len() => key(json, quoted)?,
                place => at(json, place.trim_start_matches('#').parse().map_err(|_| bad())?)?,
            }
        } else {
            let behind = rest.strip_prefix('.').ok_or_else(bad)?;
            let (step, behind) = match behind.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').ok_or_else(bad)?,
                None => behind.split_at(behind.find(['.', '[']).unwrap_or(behind.len())),
            };
            if step.contains('*') || step.is_empty() {
                return Err(bad());
            }
            rest = behind;
            key(json, step)?
        };
        let Some(next) = next else { return Ok(None) };
        json = next;
    }
    Ok(Some(json))
}

/// The value of a key; of equal ones the last.
fn key<'a>(json: &'a str, wanted: &str) -> Result<Option<&'a str>> {
    if !json.starts_with('{') {
        return Ok(None);
    }
    let found = members(json)?.into_iter().rev().find(|(key, _)| key.as_deref() == Some(wanted));
    Ok(found.map(|(_, value)| value))
}

/// An element; those below 0 count from the end.
fn at(json: &str, place: i64) -> Result<Option<&str>> {
    if !json.starts_with('[') {
        return Ok(None);
    }
    let members = members(json)?;
    let place = if place < 0 { place + members.len() as i64 } else { place };
    Ok(usize::try_from(place).ok().and_then(|place| members.get(place)).map(|(_, value)| *value))
}

/// A value of an object with its key, or of an array.
type Member<'a> = (Option<Cow<'a, str>>, &'a str);

fn members(json: &str) -> Result<Vec<Member<'_>>> {
    let (is_object, close) = if json.starts_with('{') { (true, '}') } else { (false, ']') };
    let broken = || wrong(json, &"it breaks off");
    let (mut members, mut rest) = (Vec::new(), json[1..].trim_start());
    if rest.starts_with(close) {
        return Ok(members);
    }
    loop {
        let mut name = None;
        if is_object {
            if !rest.starts_with('"') {
                return Err(wrong(json, &"a key is no text"));
            }
            let end = end_of(rest)?;
            name = Some(string(&rest[..end])?);
            rest = rest[end..].trim_start().strip_prefix(':').ok_or_else(broken)?.trim_start();
        }
        let end = end_of(rest)?;
        members.push((name, &rest[..end]));
        rest = rest[end..].trim_start();
        match rest.strip_prefix(',') {
            Some(behind) => rest = behind.trim_start(),
            None if rest.starts_with(close) => return Ok(members),
            None => return Err(broken()),
        }
    }
}

/// Where the value at the front of a text ends.
fn end_of(text: &str) -> Result<usize> {
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        if in_text {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' if depth == 0 => return Ok(at + 1),
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 1 => return Ok(at + 1),
            b'}' | b']' if depth > 1 => depth -= 1,
            b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => {
                return scalar(text, at);
            }
            _ => {}
        }
    }
    if depth > 0 || in_text {
        return Err(wrong(text, &"it breaks off"));
    }
    scalar(text, text.len())
}

/// A number, true, false or null.
fn scalar(text: &str, end: usize) -> Result<usize> {
    match serde_json::from_str::<serde::de::IgnoredAny>(&text[..end]) {
        Ok(_) => Ok(end),
        Err(cause) => Err(wrong(text, &cause)),
    }
}
