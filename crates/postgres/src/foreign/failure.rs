//! The end of a query whose files are not what they should be.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::nodes::WhyNot;

/// Ends the query with what is wrong with a table's files.
pub fn fail(WhyNot(cause): WhyNot) -> ! {
    let code = PgSqlErrorCode::ERRCODE_FDW_ERROR;
    ErrorReport::new(code, cause, "headrace").report(PgLogLevel::ERROR);
    unreachable!("an error unwinds")
}

/// A value, or the end of the query.
pub fn or_fail<T>(result: Result<T, WhyNot>) -> T {
    result.unwrap_or_else(|why| fail(why))
}
