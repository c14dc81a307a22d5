//! `IMPORT FOREIGN SCHEMA`: a folder's files and folders as foreign tables.

use std::path::{Path, PathBuf};

use headrace_format::arrow::is_table_file;
use pgrx::pg_sys::{self, ImportForeignSchemaStmt, List, Oid};

use super::failure::or_fail;
use super::{files, options, types};
use crate::nodes::{self, WhyNot, why_not};

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn import(
    statement: *mut ImportForeignSchemaStmt,
    server: Oid,
) -> *mut List {
    options::check_rights(pg_sys::GetUserId(), "import a folder of files");
    let folder = PathBuf::from(nodes::owned((*statement).remote_schema));
    let server = nodes::owned((*pg_sys::GetForeignServer(server)).servername);
    let mut commands = Vec::new();
    let tables = or_fail(tables(&folder));
    if tables.is_empty() {
        pgrx::notice!(
            "no tables in {}: files ending in .arrow, .feather or .ipc, and folders of them, are",
            folder.display()
        );
    }
    for (name, path) in tables {
        if pg_sys::IsImportableForeignTable(nodes::c_string(&name).as_ptr(), statement) {
            match command(&name, &path, &server) {
                Ok(text) => commands.push(pg_sys::pstrdup(nodes::c_string(&text).as_ptr())),
                Err(WhyNot(cause)) => pgrx::notice!("table \"{name}\" is left out: {cause}"),
            }
        }
    }
    nodes::list(commands)
}

/// Names and paths: each Arrow file, and each folder that has such files, or folders `key=value`.
fn tables(folder: &Path) -> Result<Vec<(String, PathBuf)>, WhyNot> {
    let mut tables = Vec::new();
    for path in files::entries(folder)? {
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        let Some(name) = name.and_then(|name| name.to_str()).map(str::to_string) else { continue };
        let is_table = match path.is_dir() {
            true => {
                files::key_and_value(&path).is_none()
                    && files::find(std::slice::from_ref(&path)).is_ok_and(|it| !it.is_empty())
            }
            false => is_table_file(&path),
        };
        if is_table {
            tables.push((name, path));
        }
    }
    Ok(tables)
}

/// The command that makes a table.
unsafe fn command(name: &str, path: &Path, server: &str) -> Result<String, WhyNot> {
    if path.to_string_lossy().contains(',') {
        return why_not(format!("a comma in the path {} separates paths", path.display()));
    }
    let found = files::find(&[path.to_path_buf()])?;
    let arrow = files::open(&found)?;
    let mut columns = Vec::new();
    for field in arrow.schema().fields() {
        match types::sql_type(field) {
            Ok(sql_type) => columns.push(format!("{} {sql_type}", quoted(field.name()))),
            Err(WhyNot(reason)) => pgrx::notice!(
                "column \"{}\" of table \"{name}\" is left out: {reason}",
                field.name()
            ),
        }
    }
    let first = found.first().map(|file| file.values.as_slice()).unwrap_or_default();
    for (key, _) in first {
        let values: Option<Vec<_>> = found.iter().map(|file| file.value(key)).collect();
        if let Some(values) = values.filter(|_| arrow.schema().index_of(key).is_err()) {
            let sql_type = type_of_values(values.into_iter().flatten());
            columns.push(format!("{} {sql_type}", quoted(key)));
        }
    }
    let path = path.to_string_lossy();
    Ok(format!(
        "CREATE FOREIGN TABLE {} ({}) SERVER {} OPTIONS (path {})",
        quoted(name),
        columns.join(", "),
        quoted(server),
        literal(&path)
    ))
}

/// The type of a column whose values are names of folders.
fn type_of_values<'a>(values: impl Iterator<Item = &'a str> + Clone) -> &'static str {
    let is_number =
        |value: &str| value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    let is_date = |value: &str| {
        let form = value.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
        form.eq(*b"0000-00-00")
    };
    let mut some = values.clone().peekable();
    match some.peek() {
        Some(_) if values.clone().all(is_number) => "bigint",
        Some(_) if values.clone().all(is_date) => "date",
        _ => "text",
    }
}

unsafe fn quoted(name: &str) -> String {
    nodes::owned(pg_sys::quote_identifier(nodes::c_string(name).as_ptr()))
}

/// A text as SQL writes it, whatever `standard_conforming_strings` says.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
