//! Foreign tables that a GPU keeps: `OPTIONS (residence 'gpu')`.
//!
//! The process that owns the GPUs brings their columns when a query runs there the next time, and keeps them beside the files'
//! versions: other files are brought anew. It lets go what is dropped, renamed or has lost the option, when the transaction has
//! committed.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;

use headrace_flow::CancelToken;
use headrace_service::client::Connection;
use pgrx::pg_sys::{self, ObjectAccessType, Oid, XactEvent};

use crate::executor::service::DATA;
use crate::executor::without_signals;
use crate::foreign::{is_on_gpu, service_name};

/// How long a service may take that is told to let tables go: the transaction has committed, and its session waits.
const PATIENCE: Duration = Duration::from_millis(500);

/// A table that may no longer be what the service keeps under this name.
struct Touched {
    relation: Oid,
    name: String,
}

thread_local! {
    static TOUCHED: RefCell<Vec<Touched>> = const { RefCell::new(Vec::new()) };
    /// What the service lets go if the transaction commits.
    static RELEASED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

static mut PREVIOUS: pg_sys::object_access_hook_type = None;

/// From now on tables that are dropped or altered are noticed.
///
/// # Safety
/// The backend's thread, once a process.
pub unsafe fn install() {
    PREVIOUS = pg_sys::object_access_hook;
    pg_sys::object_access_hook = Some(on_access);
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_access(
    access: ObjectAccessType::Type,
    class: Oid,
    object: Oid,
    part: i32,
    argument: *mut c_void,
) {
    if let Some(previous) = PREVIOUS {
        previous(access, class, object, part, argument);
    }
    let is_table = class == pg_sys::RelationRelationId || class == pg_sys::ForeignTableRelationId;
    let changes = matches!(access, ObjectAccessType::OAT_DROP | ObjectAccessType::OAT_POST_ALTER);
    // Columns are parts.
    if is_table && changes && part == 0 && is_on_gpu(object) {
        touched(object);
    }
}

unsafe fn touched(relation: Oid) {
    let Ok(name) = service_name(relation) else { return };
    if !IS_REGISTERED.replace(true) {
        pg_sys::RegisterXactCallback(Some(on_transaction), null_mut());
    }
    TOUCHED.with_borrow_mut(|all| all.push(Touched { relation, name }));
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_transaction(event: XactEvent::Type, _argument: *mut c_void) {
    match event {
        // The catalog can still be asked.
        XactEvent::XACT_EVENT_PRE_COMMIT => {
            let mut released = Vec::new();
            for Touched { relation, name } in TOUCHED.take() {
                if !(is_on_gpu(relation) && service_name(relation).is_ok_and(|now| now == name)) {
                    released.push(name);
                }
            }
            RELEASED.set(released);
        }
        XactEvent::XACT_EVENT_COMMIT => release(RELEASED.take()),
        XactEvent::XACT_EVENT_ABORT | XactEvent::XACT_EVENT_PREPARE => {
            TOUCHED.take();
            RELEASED.take();
        }
        _ => {}
    }
}

/// One that is not kept, or whose service does not run, needs no more.
fn release(names: Vec<String>) {
    for name in names {
        without_signals(|| {
            let token = CancelToken::new();
            if let Ok(service) = Connection::open(Path::new(DATA), PATIENCE, &token) {
                let _ = service.release(&name, &token);
            }
        });
    }
}
