//! Paths that were offered while a statement was planned, and whether one was taken. Where none was, it was the price:
//! of that EXPLAIN tells.

use std::cell::Cell;

use pgrx::pg_sys::{self, Path, RelOptInfo};

/// What a path is for.
#[derive(Clone, Copy)]
pub enum Of {
    Rows,
    JoinedRows,
    Groups,
}

const NAMES: [&str; 3] = ["the rows", "the joined rows", "the groups"];

/// Prices.
#[derive(Clone, Copy)]
struct Offer {
    ours: f64,
    /// Of PostgreSQL's path for the same.
    own: f64,
}

/// Nothing to drop: an error of the server does not come by here.
#[derive(Clone, Copy)]
pub struct Offers {
    /// The last one for each: of a join that is the one for all pairs that were tried.
    last: [Option<Offer>; 3],
    is_taken: bool,
}

const NONE: Offers = Offers { last: [None; 3], is_taken: false };

thread_local! {
    static OFFERS: Cell<Offers> = const { Cell::new(NONE) };
}

/// Adds a path to a relation's.
pub unsafe fn add(output: *mut RelOptInfo, of: Of, path: *mut Path, own: *mut Path) {
    let mut offers = OFFERS.get();
    offers.last[of as usize] = Some(Offer { ours: (*path).total_cost, own: (*own).total_cost });
    OFFERS.set(offers);
    pg_sys::add_path(output, path);
}

/// A path became a part of the plan.
pub fn take() {
    OFFERS.set(Offers { is_taken: true, ..OFFERS.get() });
}

/// A statement is planned from here on, perhaps within the planning of another, whose offers these are.
pub fn begin() -> Offers {
    OFFERS.replace(NONE)
}

/// The statement is planned.
pub fn end(outer: Offers) {
    let Offers { last, is_taken } = OFFERS.replace(outer);
    if is_taken {
        return;
    }
    // Where there is a grouping, of that it is told.
    let told = if last[Of::Groups as usize].is_some() { Of::Groups as usize } else { 0 };
    for (offer, of) in last.iter().zip(NAMES).skip(told) {
        let Some(Offer { ours, own }) = offer else { continue };
        let what = if ours > own { "cost more" } else { "do not make the whole plan cost less" };
        crate::explain::note(format!("{of} {what}: {ours:.2}, PostgreSQL's own {own:.2}"));
    }
}
