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

use headrace_ir::{CudaFunction, DataType};
use headrace_service::client::{Connection, HELLO_PATIENCE};
use headrace_service::devices;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid};
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::executor::service::{self, DATA};
use crate::executor::threads::interruptibly;
use crate::nodes::{self, WhyNot, why_not};
use crate::translate::ir_type;

/// What the language is called, and how the first line of a body begins that has a twin.
const LANGUAGE: &str = "cuda";
const TWIN: &str = "// twin:";

/// A function of the language.
struct Function {
    cuda: CudaFunction,
    is_strict: bool,
    returns_set: bool,
    parameters: Vec<Oid>,
    result: Oid,
}

/// Whether a function is written in CUDA; of a built-in one that is not asked.
unsafe fn is_ours(function: Oid) -> bool {
    function.to_u32() >= pg_sys::FirstNormalObjectId
        && with_row(function, |row, _| {
            nodes::owned(pg_sys::get_language_name(row.prolang, true)) == LANGUAGE
        })
        .unwrap_or(false)
}

/// Looks at a function's row in the catalog, if it is there.
unsafe fn with_row<T>(
    function: Oid,
    look: impl FnOnce(&pg_sys::FormData_pg_proc, pg_sys::HeapTuple) -> T,
) -> Option<T> {
    let cache = pg_sys::SysCacheIdentifier::PROCOID as i32;
    let tuple = pg_sys::SearchSysCache1(cache, Datum::from(function));
    if tuple.is_null() {
        return None;
    }
    let found = look(&*pg_sys::GETSTRUCT(tuple).cast(), tuple);
    pg_sys::ReleaseSysCache(tuple);
    Some(found)
}

/// A function, as far as pipelines have its types.
unsafe fn function(oid: Oid) -> Result<Function, WhyNot> {
    with_row(oid, |row, tuple| {
        let (mut types, mut names) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut modes = std::ptr::null_mut();
        let count = pg_sys::get_func_arg_info(tuple, &mut types, &mut names, &mut modes) as usize;
        if !modes.is_null() || row.provariadic != Oid::INVALID {
            return why_not("its parameters can only be values: no OUT, INOUT or VARIADIC");
        }
        let parameters = (0..count).map(|place| *types.add(place)).collect::<Vec<Oid>>();
        let mut typed = Vec::new();
        for (place, oid) in parameters.iter().enumerate() {
            let name = match names.is_null() {
                true => String::new(),
                false => nodes::owned(*names.add(place)),
            };
            if name.is_empty() {
                return why_not(format!("its parameter {} has no name", place + 1));
            }
            let data_type = ir_type(*oid, -1);
            let data_type = data_type
                .map_err(|WhyNot(cause)| WhyNot(format!("its parameter {name}: {cause}")))?;
            typed.push((name, data_type));
        }
        let cuda = CudaFunction {
            name: nodes::owned(row.proname.data.as_ptr()),
            parameters: typed,
            result: ir_type(row.prorettype, -1)
                .map_err(|WhyNot(cause)| WhyNot(format!("its result: {cause}")))?,
            body: body(tuple),
        };
        let (is_strict, returns_set, result) = (row.proisstrict, row.proretset, row.prorettype);
        Ok(Function { cuda, is_strict, returns_set, parameters, result })
    })
    .unwrap_or_else(|| why_not("a function that is dropped"))
}

unsafe fn body(tuple: pg_sys::HeapTuple) -> String {
    let mut is_null = false;
    let cache = pg_sys::SysCacheIdentifier::PROCOID as i32;
    let source = pg_sys::Anum_pg_proc_prosrc as pg_sys::AttrNumber;
    let text = pg_sys::SysCacheGetAttr(cache, tuple, source, &mut is_null);
    match is_null {
        true => String::new(),
        false => nodes::owned(pg_sys::text_to_cstring(text.cast_mut_ptr())),
    }
}

/// The expression that means the same in SQL.
fn twin(body: &str) -> Option<&str> {
    let first = body.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(first.strip_prefix(TWIN)?.trim()).filter(|twin| !twin.is_empty())
}

/// What a pipeline calls.
///
/// # Errors
/// It cannot.
pub unsafe fn called(oid: Oid) -> Option<Result<CudaFunction, WhyNot>> {
    is_ours(oid).then(|| Ok(function(oid)?.cuda))
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

/// Whether a call's arguments are of the types that the function takes.
pub fn takes(function: &CudaFunction, arguments: &[DataType]) -> bool {
    function.parameters.iter().map(|(_, of)| of).eq(arguments)
}
