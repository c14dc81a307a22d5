//! What a foreign table's options say, and who may say it.

use std::ffi::CStr;
use std::path::PathBuf;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, DefElem, List, Oid};
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::nodes::{self, WhyNot, items, why_not};

/// The one option of a foreign table.
pub const PATH: &CStr = c"path";

/// Checks the options of a foreign table, and that nothing else has any.
#[pgrx::pg_extern(volatile)]
fn fdw_validator(options: pgrx::Array<&str>, catalog: Oid) {
    let of_table = catalog == pg_sys::ForeignTableRelationId;
    let mut path = None;
    for option in options.iter().flatten() {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if !of_table || name.as_bytes() != PATH.to_bytes() {
            let valid = if of_table { "The only option is \"path\"." } else { "There are none." };
            let code = PgSqlErrorCode::ERRCODE_FDW_INVALID_OPTION_NAME;
            refuse(code, format!("invalid option \"{name}\""), valid);
        }
        path = Some(value.to_string());
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

fn refuse(code: PgSqlErrorCode, cause: String, hint: &str) {
    ErrorReport::new(code, cause, "headrace").set_hint(hint).report(PgLogLevel::ERROR);
}

/// An error for roles that may not read files of the server.
pub unsafe fn check_rights(role: Oid, to: &str) {
    let reader = Oid::from(pg_sys::ROLE_PG_READ_SERVER_FILES);
    if !pg_sys::has_privs_of_role(role, reader) {
        let name = nodes::owned(pg_sys::GetUserNameFromId(role, true));
        refuse(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("permission denied for role \"{name}\" to {to}"),
            "Files of the server are read by superusers and members of pg_read_server_files.",
        );
    }
}

/// The paths of the option's value.
fn split(value: &str) -> Vec<PathBuf> {
    value.split(',').map(str::trim).filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// The paths that a foreign table's options name.
pub unsafe fn paths(options: *mut List) -> Result<Vec<PathBuf>, WhyNot> {
    for option in items::<DefElem>(options) {
        if CStr::from_ptr((*option).defname) == PATH {
            return Ok(split(&nodes::owned(pg_sys::defGetString(option))));
        }
    }
    why_not("a foreign table without the option \"path\"")
}
