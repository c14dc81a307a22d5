//! Whether the statement that is planned is a cursor's: it may be read backwards, and rows at it changed.

use std::cell::Cell;
use std::ffi::{c_char, c_int};

use pgrx::pg_sys::{self, ParamListInfo, PlannedStmt, Query};

use super::offers;

static mut PREVIOUS: pg_sys::planner_hook_type = None;

thread_local! {
    static IS_CURSOR: Cell<bool> = const { Cell::new(false) };
}

/// From now on it is known of every statement.
///
/// # Safety
/// The backend's thread, once a process.
pub unsafe fn install() {
    PREVIOUS = pg_sys::planner_hook;
    pg_sys::planner_hook = Some(plan);
}

/// Whether it is.
pub fn is_planned() -> bool {
    IS_CURSOR.get()
}

unsafe extern "C-unwind" {
    // Not as pgrx binds it: errors of planning would lose their context on the way through it.
    #[link_name = "standard_planner"]
    fn server_plan(
        query: *mut Query,
        text: *const c_char,
        options: c_int,
        parameters: ParamListInfo,
    ) -> *mut PlannedStmt;
}

/// Planning may plan another statement. An error of the server leaves this function without a word: it has
/// nothing to drop, and the next statement's planning begins with its own.
unsafe extern "C-unwind" fn plan(
    query: *mut Query,
    text: *const c_char,
    options: c_int,
    parameters: ParamListInfo,
) -> *mut PlannedStmt {
    // Those of DECLARE CURSOR, and of a language's cursors, ask for a plan that is fast at first.
    let of_cursors = (pg_sys::CURSOR_OPT_FAST_PLAN | pg_sys::CURSOR_OPT_SCROLL) as c_int;
    let outer = IS_CURSOR.replace(options & of_cursors != 0);
    let outer_offers = offers::begin();
    let planned = match PREVIOUS {
        Some(previous) => previous(query, text, options, parameters),
        None => server_plan(query, text, options, parameters),
    };
    IS_CURSOR.set(outer);
    offers::end(outer_offers);
    planned
}
