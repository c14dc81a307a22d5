//! Files with a transaction's new rows: hidden until its commit, gone with its end by any other way.
//!
//! They take their places just before the server writes the commit. So an error there still ends the transaction, and no row is
//! lost. A server that crashes between the two keeps rows of a transaction that did not commit.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use headrace_io::write::hidden::Hidden;
use pgrx::pg_sys::{self, SubXactEvent, XactEvent};

use super::failure::fail;
use crate::nodes::WhyNot;

/// A whole file that waits for the commit.
struct Pending {
    /// Of the savepoint that it belongs to.
    subtransaction: pg_sys::SubTransactionId,
    hidden: Hidden,
    /// Other writers take the hidden file for abandoned without its lock.
    _lock: File,
    target: PathBuf,
    is_in_place: bool,
}

thread_local! {
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Puts a file in its place when the transaction commits. It is whole, and on the disk.
pub unsafe fn at_commit(hidden: Hidden, lock: File, target: PathBuf) {
    if !IS_REGISTERED.replace(true) {
        pg_sys::RegisterXactCallback(Some(on_transaction), null_mut());
        pg_sys::RegisterSubXactCallback(Some(on_savepoint), null_mut());
    }
    let subtransaction = pg_sys::GetCurrentSubTransactionId();
    let pending = Pending { subtransaction, hidden, _lock: lock, target, is_in_place: false };
    PENDING.with_borrow_mut(|all| all.push(pending));
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_transaction(event: XactEvent::Type, _argument: *mut c_void) {
    match event {
        XactEvent::XACT_EVENT_PRE_COMMIT => {
            if let Err(cause) = put_in_place() {
                fail(cause);
            }
        }
        XactEvent::XACT_EVENT_COMMIT => {
            PENDING.take().into_iter().for_each(|pending| pending.hidden.keep());
        }
        XactEvent::XACT_EVENT_ABORT => PENDING.take().into_iter().for_each(Pending::undo),
        XactEvent::XACT_EVENT_PRE_PREPARE if PENDING.with_borrow(|all| !all.is_empty()) => {
            fail(WhyNot(
                "a transaction that inserted into foreign tables of headrace cannot be prepared"
                    .into(),
            ));
        }
        _ => {}
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_savepoint(
    event: SubXactEvent::Type,
    own: pg_sys::SubTransactionId,
    parent: pg_sys::SubTransactionId,
    _argument: *mut c_void,
) {
    PENDING.with_borrow_mut(|all| match event {
        SubXactEvent::SUBXACT_EVENT_ABORT_SUB => {
            all.retain(|pending| pending.subtransaction != own);
        }
        SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => {
            for pending in all.iter_mut().filter(|pending| pending.subtransaction == own) {
                pending.subtransaction = parent;
            }
        }
        _ => {}
    });
}

fn put_in_place() -> Result<(), WhyNot> {
    PENDING.with_borrow_mut(|all| {
        for Pending { hidden, target, is_in_place, .. } in all {
            let put = std::fs::rename(hidden.path(), &*target).and_then(|()| {
                *is_in_place = true;
                sync_folder(target)
            });
            put.map_err(|cause| WhyNot(format!("{}: {cause}", target.display())))?;
        }
        Ok(())
    })
}

/// Without it a crash of the machine could lose the name of a file that the commit relies on.
fn sync_folder(target: &Path) -> io::Result<()> {
    target.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

impl Pending {
    /// The hidden file goes by itself.
    fn undo(self) {
        if self.is_in_place
            && let Err(cause) = std::fs::remove_file(&self.target)
        {
            pgrx::warning!(
                "{}: rows of a transaction that did not commit stay there: {cause}",
                self.target.display()
            );
        }
    }
}
