//! Functions of the language `cuda`, as the catalog has them, and as pipelines call them.

use headrace_ir::{CudaFunction, DataType};
use pgrx::pg_sys::{self, Datum, Oid};

use crate::nodes::{self, WhyNot, why_not};
use crate::translate::ir_type;

/// What the language is called.
const LANGUAGE: &str = "cuda";

/// A function of the language.
pub struct Function {
    pub cuda: CudaFunction,
    pub is_strict: bool,
    pub returns_set: bool,
    pub parameters: Vec<Oid>,
    pub result: Oid,
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
pub unsafe fn function(oid: Oid) -> Result<Function, WhyNot> {
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

/// What a pipeline calls.
///
/// # Errors
/// It cannot.
pub unsafe fn called(oid: Oid) -> Option<Result<CudaFunction, WhyNot>> {
    is_ours(oid).then(|| Ok(function(oid)?.cuda))
}

/// Whether a call's arguments are of the types that the function takes.
pub fn takes(function: &CudaFunction, arguments: &[DataType]) -> bool {
    function.parameters.iter().map(|(_, of)| of).eq(arguments)
}
