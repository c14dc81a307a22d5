//! What this session's pipelines did: the view `headrace.stat`.

use std::cell::{Cell, RefCell};

use pgrx::iter::TableIterator;
use pgrx::name;

use crate::executor::{Ran, Read};

#[derive(Clone, Copy, Default)]
struct Counts {
    queries: i64,
    fallbacks: i64,
    direct_blocks: i64,
    server_blocks: i64,
    rerouted_blocks: i64,
    milliseconds: f64,
    service_queries: i64,
    service_failures: i64,
}

thread_local! {
    static COUNTS: Cell<Counts> = Cell::default();
    /// Why the service failed last.
    static FAILURE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A run is over.
pub fn count(is_answered: bool, ran: Option<&Ran>) {
    let mut counts = COUNTS.get();
    counts.queries += 1;
    counts.fallbacks += i64::from(!is_answered);
    if let Some(ran) = ran {
        if let Read::Blocks(blocks) = &ran.read {
            // Of blocks there are fewer than 2^63.
            counts.direct_blocks += blocks.direct() as i64;
            counts.server_blocks += blocks.server() as i64;
            counts.rerouted_blocks += blocks.rerouted as i64;
        }
        counts.milliseconds += ran.wall.as_secs_f64() * 1e3;
        counts.service_queries += i64::from(ran.served.is_some());
        counts.service_failures += i64::from(ran.service_failed);
        if ran.service_failed {
            FAILURE.replace(ran.why_not_service.clone());
        }
    }
    COUNTS.set(counts);
}

/// The counts of this session.
#[pgrx::pg_extern(volatile, parallel_restricted)]
#[allow(clippy::type_complexity)]
fn session_stat() -> TableIterator<
    'static,
    (
        name!(queries, i64),
        name!(fallbacks, i64),
        name!(direct_blocks, i64),
        name!(server_blocks, i64),
        name!(rerouted_blocks, i64),
        name!(milliseconds, f64),
        name!(service_queries, i64),
        name!(service_failures, i64),
        name!(service_failure, Option<String>),
    ),
> {
    let c = COUNTS.get();
    TableIterator::once((
        c.queries,
        c.fallbacks,
        c.direct_blocks,
        c.server_blocks,
        c.rerouted_blocks,
        c.milliseconds,
        c.service_queries,
        c.service_failures,
        FAILURE.with_borrow(Clone::clone),
    ))
}
