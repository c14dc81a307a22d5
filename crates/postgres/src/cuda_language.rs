//! `CREATE FUNCTION .. LANGUAGE cuda`: functions whose body is CUDA C++.
//!
//! ```text
//! CREATE FUNCTION ──validator──► types that can be passed, STRICT, a body that compiles (the GPU service is asked)
//! a call in a query ──translate──► a call in the pipeline, which the GPU service compiles into its kernel
//! a call in PostgreSQL's own plan ──handler──► the twin, an SQL expression in the body's first line, or an error
//! ```
//!
//! The language is untrusted: code can read all memory of the service. So superusers alone make functions, and GRANT EXECUTE
//! says who may call them: PostgreSQL's own plan, which stands below each node, checks that before anything runs.

use std::path::Path;

use headrace_ir::CudaFunction;
use headrace_service::client::{Connection, HELLO_PATIENCE};
use headrace_service::devices;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid};
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::cuda_function::{Function, function};
use crate::executor::service::{self, DATA};
use crate::executor::threads::interruptibly;
use crate::nodes::{self, WhyNot, why_not};

/// How the first line of a body begins that has a twin.
const TWIN: &str = "// twin:";

/// The expression that means the same in SQL.
fn twin(body: &str) -> Option<&str> {
    let first = body.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(first.strip_prefix(TWIN)?.trim()).filter(|twin| !twin.is_empty())
}

/// Checks a function that is made.
#[pgrx::pg_extern(volatile)]
unsafe fn cuda_validator(oid: Oid, call: FunctionCallInfo) {
    let own = (*(*call).flinfo).fn_oid;
    if pg_sys::CheckFunctionValidatorAccess(own, oid)
        && pg_sys::check_function_bodies
        && let Err(WhyNot(cause)) = valid(oid)
    {
        refuse(PgSqlErrorCode::ERRCODE_INVALID_FUNCTION_DEFINITION, cause, None);
    }
}

unsafe fn valid(oid: Oid) -> Result<(), WhyNot> {
    let Function { cuda, is_strict, returns_set, .. } = function(oid)?;
    if returns_set {
        return why_not("a function in CUDA returns a value, no set");
    }
    if !is_strict {
        return why_not("a function in CUDA is called with values alone: declare it STRICT");
    }
    if let Some(cause) = cuda.error() {
        return why_not(cause);
    }
    compiled(cuda)
}

/// Asks the GPU service, which has the compiler. A machine without a GPU takes the body unseen: nothing there could run it.
fn compiled(function: CudaFunction) -> Result<(), WhyNot> {
    if devices::why_none().is_some() {
        return Ok(());
    }
    let start = service::start();
    let asked = interruptibly(move |token| {
        let running = Connection::open(Path::new(DATA), HELLO_PATIENCE, token);
        let connection = running.or_else(|_| service::connect(&start, token))?;
        connection.check_function(function, token)
    });
    match asked {
        Ok(Ok(checked)) => checked.map_err(WhyNot),
        Ok(Err(failure)) => {
            pgrx::notice!("the body was not compiled: {}", failure.message);
            Ok(())
        }
        Err(cause) => why_not(cause.to_string()),
    }
}

/// How the server calls the handler.
static VERSION_1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };

/// What the server asks before it calls the handler.
// SAFETY: no other library's function has this name.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_finfo_cuda_handler_wrapper() -> *const pg_sys::Pg_finfo_record {
    &raw const VERSION_1
}

/// A call that PostgreSQL evaluates itself: by the twin. Its result is of any type, which `pg_extern` does not know.
///
/// # Safety
/// The backend's thread, from the server.
// SAFETY: no other library's function has this name.
#[unsafe(no_mangle)]
#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn cuda_handler_wrapper(call: FunctionCallInfo) -> Datum {
    let oid = (*(*call).flinfo).fn_oid;
    let function = match function(oid) {
        Ok(function) => function,
        Err(WhyNot(cause)) => {
            refuse(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, cause, None);
            unreachable!("an error unwinds")
        }
    };
    let Some(twin) = twin(&function.cuda.body) else {
        let name = &function.cuda.name;
        let cause =
            format!("{name}() is CUDA code without a twin, and only the GPU service can run it");
        let hint = format!(
            "EXPLAIN (VERBOSE) says why a query does not run there. A body whose first line is \"{TWIN} expression\" has a twin in SQL."
        );
        refuse(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, cause, Some(hint));
        unreachable!("an error unwinds")
    };
    evaluated(call, &function, twin)
}

/// The value of a twin, over the arguments by their names.
unsafe fn evaluated(call: FunctionCallInfo, function: &Function, twin: &str) -> Datum {
    let names = function.cuda.parameters.iter().zip(1..);
    let columns = names.map(|((name, _), place)| format!("${place} as \"{name}\""));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let result = nodes::owned(pg_sys::format_type_be_qualified(function.result));
    let from = if columns.is_empty() { "1".into() } else { columns };
    let query = format!("select ({twin}\n)::{result} from (select {from}) parameters");
    let query = nodes::c_string(&query);
    let mut types = function.parameters.clone();
    let arguments = (*call).args.as_slice(types.len());
    let mut values: Vec<Datum> = arguments.iter().map(|argument| argument.value).collect();
    pg_sys::SPI_connect();
    let count = types.len() as i32;
    let ran = pg_sys::SPI_execute_with_args(
        query.as_ptr(),
        count,
        types.as_mut_ptr(),
        values.as_mut_ptr(),
        std::ptr::null(),
        true,
        2,
    );
    let mut is_null = true;
    let mut value = Datum::from(0);
    if ran == pg_sys::SPI_OK_SELECT as i32 && pg_sys::SPI_processed == 1 {
        let rows = &*pg_sys::SPI_tuptable;
        // Results are passed by value, all of them.
        value = pg_sys::SPI_getbinval(*rows.vals, rows.tupdesc, 1, &mut is_null);
    }
    pg_sys::SPI_finish();
    (*call).isnull = is_null;
    value
}

fn refuse(code: PgSqlErrorCode, cause: String, hint: Option<String>) {
    let report = ErrorReport::new(code, cause, "headrace");
    let report = match hint {
        Some(hint) => report.set_hint(hint),
        None => report,
    };
    report.report(PgLogLevel::ERROR);
}
