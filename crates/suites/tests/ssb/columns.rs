//! Columns of whole tables as plain vectors.

use arrow_array::{RecordBatch, cast::AsArray, types::Int32Type};
use headrace_suites::ssb::{Generator, Table};

/// All rows of a table in one batch.
pub fn whole(data: &Generator, table: Table) -> RecordBatch {
    data.batch(table, 0..data.rows(table)).unwrap()
}

/// A column of 32-bit integers.
pub fn numbers<'a>(batch: &'a RecordBatch, column: &str) -> &'a [i32] {
    batch.column_by_name(column).unwrap().as_primitive::<Int32Type>().values()
}

/// A text column, decoded where it is a dictionary.
pub fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let array = batch.column_by_name(column).unwrap();
    match array.as_any_dictionary_opt() {
        Some(coded) => {
            let words = coded.values().as_string::<i32>();
            coded.normalized_keys().iter().map(|&code| words.value(code).to_string()).collect()
        }
        None => array.as_string::<i32>().iter().flatten().map(String::from).collect(),
    }
}

/// The distinct values of a text column.
pub fn distinct(batch: &RecordBatch, column: &str) -> std::collections::BTreeSet<String> {
    texts(batch, column).into_iter().collect()
}
