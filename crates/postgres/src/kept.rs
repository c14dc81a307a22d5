//! The tables that are kept in the memory of a GPU, as the process that owns the GPUs tells: the view `headrace.kept`.

use std::path::Path;

use headrace_service::client::{Connection, HELLO_PATIENCE};
use headrace_service::protocol::KeptTable;
use pgrx::iter::TableIterator;
use pgrx::name;

use crate::executor::service::DATA;
use crate::executor::threads::interruptibly;

/// A process that does not run keeps nothing.
fn ask() -> Vec<KeptTable> {
    let asked = interruptibly(|token| {
        let connection = Connection::open(Path::new(DATA), HELLO_PATIENCE, token).ok()?;
        Some(connection.status(token).ok()?.kept)
    });
    asked.ok().flatten().unwrap_or_default()
}

/// A row a table.
#[pgrx::pg_extern(volatile, parallel_restricted)]
#[allow(clippy::type_complexity)]
fn kept_tables() -> TableIterator<
    'static,
    (
        name!(name, String),
        name!(columns, Vec<String>),
        name!(others, Vec<String>),
        name!(rows, i64),
        name!(bytes, i64),
        name!(readers, i64),
        name!(stale, Option<String>),
    ),
> {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let row = move |table: KeptTable| {
        let (rows, bytes, readers) =
            (number(table.rows), number(table.bytes), number(table.readers));
        (table.name, table.columns, table.others, rows, bytes, readers, table.stale)
    };
    TableIterator::new(ask().into_iter().map(row))
}
