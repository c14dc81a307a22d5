//! What a foreign table's options say, and who may say it.

use std::ffi::CStr;
use std::path::PathBuf;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, DefElem, List, Oid};
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::nodes::{self, WhyNot, items, why_not};

/// Where the files are.
const PATH: &CStr = c"path";

/// Whether a GPU keeps the table.
const RESIDENCE: &CStr = c"residence";

/// Where a table may be: its columns in the memory of a GPU, beside its files.
const RESIDENCES: [&str; 2] = ["files", "gpu"];

/// What a foreign table's options say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Files and folders.
    pub paths: Vec<PathBuf>,
    /// Whether a GPU keeps the table's columns.
    pub is_on_gpu: bool,
}

/// Checks the options of a foreign table, and that nothing else has any.
#[pgrx::pg_extern(volatile)]
fn fdw_validator(options: pgrx::Array<&str>, catalog: Oid) {
    let of_table = catalog == pg_sys::ForeignTableRelationId;
    let mut path = None;
    for option in options.iter().flatten() {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if of_table && name.as_bytes() == PATH.to_bytes() {
            path = Some(value.to_string());
        } else if of_table && name.as_bytes() == RESIDENCE.to_bytes() {
            check_residence(value);
        } else {
            let of_tables = "Options are \"path\" and \"residence\".";
            let valid = if of_table { of_tables } else { "There are none." };
            let code = PgSqlErrorCode::ERRCODE_FDW_INVALID_OPTION_NAME;
            refuse(code, format!("invalid option \"{name}\""), valid);
        }
    }
    if !of_table {
        return;
    }
    if path.is_none_or(|path| split(&path).is_empty()) {
        let code = PgSqlErrorCode::ERRCODE_FDW_OPTION_NAME_NOT_FOUND;
        let hint = "Add OPTIONS (path '...'): a file or a folder of Arrow files, or several, separated by commas.";
        refuse(code, "a foreign table of headrace needs the option \"path\"".into(), hint);
    }
    // SAFETY: the backend's thread.
    unsafe { check_rights(pg_sys::GetUserId(), "set the option \"path\" of a foreign table") };
}

fn check_residence(value: &str) {
    if !RESIDENCES.contains(&value) {
        let code = PgSqlErrorCode::ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE;
        let cause = format!("invalid value for option \"residence\": \"{value}\"");
        refuse(code, cause, "It is \"gpu\" or \"files\".");
    }
}

fn refuse(code: PgSqlErrorCode, cause: String, hint: &str) {
    ErrorReport::new(code, cause, "headrace").set_hint(hint).report(PgLogLevel::ERROR);
}

/// An error for roles that may not read files of the server.
pub unsafe fn check_rights(role: Oid, to: &str) {
    let hint = "Files of the server are read by superusers and members of pg_read_server_files.";
    check_member(role, pg_sys::ROLE_PG_READ_SERVER_FILES, to, hint);
}

/// An error for roles that may not write files of the server.
pub unsafe fn check_rights_to_write(role: Oid, to: &str) {
    let hint =
        "Files of the server are written by superusers and members of pg_write_server_files.";
    check_member(role, pg_sys::ROLE_PG_WRITE_SERVER_FILES, to, hint);
}

unsafe fn check_member(role: Oid, of: u32, to: &str, hint: &str) {
    if !pg_sys::has_privs_of_role(role, Oid::from(of)) {
        let name = nodes::owned(pg_sys::GetUserNameFromId(role, true));
        let cause = format!("permission denied for role \"{name}\" to {to}");
        refuse(PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE, cause, hint);
    }
}

/// The paths of the option's value.
fn split(value: &str) -> Vec<PathBuf> {
    value.split(',').map(str::trim).filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

impl Options {
    /// Those of a foreign table.
    pub unsafe fn of(table: Oid) -> Result<Self, WhyNot> {
        let list: *mut List = (*pg_sys::GetForeignTable(table)).options;
        let mut options = Self::default();
        for option in items::<DefElem>(list) {
            let value = nodes::owned(pg_sys::defGetString(option));
            match CStr::from_ptr((*option).defname) {
                name if name == PATH => options.paths = split(&value),
                name if name == RESIDENCE => options.is_on_gpu = value == "gpu",
                _ => {}
            }
        }
        match options.paths.is_empty() {
            true => why_not("a foreign table without the option \"path\""),
            false => Ok(options),
        }
    }
}
