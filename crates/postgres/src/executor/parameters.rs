//! The expressions of parameters, as they were planned.

use std::ffi::c_void;

use pgrx::pg_sys::{self, CustomScan, List, Node, NodeTag};

use crate::nodes::{self, cast, items};
use crate::version;

/// A node's expressions. Where one of them, or a part of it, is a column of the node too (a key that no row
/// changes), the server has put that column in its place, of which there is no value before the run.
pub unsafe fn planned(scan: *mut CustomScan) -> *mut List {
    unsafe extern "C-unwind" fn replace(node: *mut Node, columns: *mut c_void) -> *mut Node {
        if node.is_null() {
            return node;
        }
        match cast::<pg_sys::Var>(node, NodeTag::T_Var) {
            Some(var) if (*var).varno == pg_sys::INDEX_VAR => {
                let column = usize::try_from((*var).varattno - 1).unwrap_or(usize::MAX);
                match items::<pg_sys::TargetEntry>(columns.cast()).nth(column) {
                    Some(entry) => (*entry).expr.cast(),
                    None => node,
                }
            }
            _ => version::mutated(node, replace, columns),
        }
    }

    let columns = (*scan).custom_scan_tlist;
    let exprs = items::<Node>((*scan).custom_exprs).map(|expr| replace(expr, columns.cast()));
    nodes::list(exprs.collect::<Vec<_>>())
}
