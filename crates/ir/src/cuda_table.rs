//! Functions of whole tables whose body is CUDA C++, written by users.
//!
//! A call has the rows of one table, all of them, and a value for each parameter. Its code is one kernel, launched once, in
//! a grid that the function chooses; the rows that it writes are the answer. They are as many as the table has, each written
//! to its place, or are emitted in any number up to a bound and in any order.

use serde::{Deserialize, Serialize};

use crate::cuda_function::{BODY_BYTES_MAX, PASSED, is_identifier, is_passed, is_returned};
use crate::types::DataType;

/// Most threads of a block.
pub const BLOCK_THREADS_MAX: u32 = 1024;

/// Threads of a block where the function does not say.
pub const BLOCK_THREADS: u32 = 256;

/// What the code has beside its table and parameters.
const GIVEN: [&str; 5] = ["emit", "put", "null", "thread", "threads"];

/// What the code has of its table beside the columns.
const GIVEN_OF_TABLE: &str = "rows";

const WRITTEN: &str =
    "numbers but decimals, booleans, dates, times, fixed_binary(n) and lists float[n] are written";

/// A function in CUDA C++ from a table to a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CudaTableFunction {
    /// Its name in SQL.
    pub name: String,
    /// What its code calls the table.
    pub table: String,
    /// The columns of that.
    pub columns: Vec<(String, DataType)>,
    /// Names and types of the other parameters, which are one value each.
    pub parameters: Vec<(String, DataType)>,
    /// The columns that it writes.
    pub outputs: Vec<(String, DataType)>,
    /// Whether rows are emitted, in any number up to a bound; else there is one for each row of the table.
    pub emits: bool,
    /// Threads of a block.
    pub block_threads: u32,
    /// The statements of the kernel.
    pub body: String,
}

/// How often the code runs, and what it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableLaunch {
    /// Most rows that it may emit. What is not emitted has as many as the table.
    pub rows_max: u64,
    /// Blocks of the grid; `None`: as many as give each row a thread.
    pub blocks: Option<u32>,
}

impl CudaTableFunction {
    /// Why it cannot be a function; `None` if it can, as far as that can be told without a compiler.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        let own = [&self.name, &self.table];
        let of_lists = [&self.columns, &self.parameters, &self.outputs];
        let listed = || of_lists.into_iter().flatten().map(|(name, _)| name);
        if let Some(name) = own.into_iter().chain(listed()).find(|name| !is_identifier(name)) {
            return Some(format!("{name:?} is no name of C++: letters of ASCII, digits and _"));
        }
        let mut names: Vec<&str> = GIVEN.to_vec();
        let parameters = self.parameters.iter().map(|(name, _)| name.as_str());
        for name in [self.table.as_str()].into_iter().chain(parameters) {
            if names.contains(&name) {
                return Some(format!("two things in its code would be called {name}"));
            }
            names.push(name);
        }
        if self.columns.is_empty() || self.outputs.is_empty() {
            return Some("a table of it has no columns".into());
        }
        twice(&self.columns, &[GIVEN_OF_TABLE]).or_else(|| twice(&self.outputs, &[])).or_else(
            || {
                let passed = self.columns.iter().chain(&self.parameters);
                let refused = passed.clone().find(|(_, data_type)| !is_passed(data_type));
                if let Some((name, data_type)) = refused {
                    return Some(format!("{name} cannot be {data_type}: {PASSED}"));
                }
                let refused = self.outputs.iter().find(|(_, data_type)| !is_written(data_type));
                if let Some((name, data_type)) = refused {
                    return Some(format!("column {name} cannot be {data_type}: {WRITTEN}"));
                }
                if !(1..=BLOCK_THREADS_MAX).contains(&self.block_threads) {
                    let threads = self.block_threads;
                    return Some(format!(
                        "a block has 1 to {BLOCK_THREADS_MAX} threads, not {threads}"
                    ));
                }
                let bytes = self.body.len();
                (bytes > BODY_BYTES_MAX)
                    .then(|| format!("its body has {bytes} bytes, of at most {BODY_BYTES_MAX}"))
            },
        )
    }

    /// What is said of a call that is to run where the code cannot, and that has no twin. `why`: the words of a GPU service
    /// that runs.
    #[must_use]
    pub fn without_twin(&self, why: Option<&str>) -> String {
        let Self { name, table, .. } = self;
        let twin = format!("CREATE OR REPLACE FUNCTION {name} .. TWIN 'a query over {table}'");
        match why {
            Some(why) => format!(
                "{name}() is CUDA code without a TWIN, and the GPU service does not run it: {why}\nhint: {twin}"
            ),
            None => format!(
                "{name}() is CUDA code without a TWIN, and can only run on a GPU of the GPU service\n\
                 hint: headrace gpu-service start, and SET headrace.gpu_service = 'auto'; or {twin}"
            ),
        }
    }

    /// The blocks of a launch over so many rows; `None` for more than a grid may have.
    #[must_use]
    pub fn blocks(&self, launch: TableLaunch, rows: u64) -> Option<u32> {
        let blocks = launch
            .blocks
            .map_or_else(|| rows.div_ceil(u64::from(self.block_threads.max(1))).max(1), u64::from);
        (1..=i32::MAX as u64).contains(&blocks).then_some(blocks as u32)
    }
}

/// A name that two columns have.
fn twice(columns: &[(String, DataType)], given: &[&str]) -> Option<String> {
    let mut names: Vec<&str> = given.to_vec();
    for (name, _) in columns {
        if names.contains(&name.as_str()) {
            return Some(format!("two columns of a table would be called {name}"));
        }
        names.push(name);
    }
    None
}

/// Whether code can write values of this type.
fn is_written(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedBinary(_) | DataType::FloatList { .. })
        || is_returned(data_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near() -> CudaTableFunction {
        CudaTableFunction {
            name: "near".into(),
            table: "points".into(),
            columns: vec![("x".into(), DataType::Float64), ("t".into(), DataType::Utf8)],
            parameters: vec![("k".into(), DataType::Int64)],
            outputs: vec![("a".into(), DataType::FixedBinary(4)), ("x".into(), DataType::Int64)],
            emits: true,
            block_threads: BLOCK_THREADS,
            body: String::new(),
        }
    }

    #[test]
    fn what_no_code_could_name_or_write_is_refused() {
        assert_eq!(near().error(), None);
        let column = |name: &str, data_type| vec![(name.to_string(), data_type)];
        for (function, cause) in [
            (CudaTableFunction { table: "two words".into(), ..near() }, "no name of C++"),
            (CudaTableFunction { table: "emit".into(), ..near() }, "called emit"),
            (CudaTableFunction { table: "k".into(), ..near() }, "called k"),
            (
                CudaTableFunction { parameters: column("thread", DataType::Bool), ..near() },
                "called thread",
            ),
            (
                CudaTableFunction { columns: column("rows", DataType::Bool), ..near() },
                "called rows",
            ),
            (CudaTableFunction { columns: vec![], ..near() }, "no columns"),
            (CudaTableFunction { outputs: vec![], ..near() }, "no columns"),
            (CudaTableFunction { columns: column("x", DataType::Binary), ..near() }, "cannot be"),
            (CudaTableFunction { outputs: column("x", DataType::Utf8), ..near() }, "are written"),
            (CudaTableFunction { block_threads: 0, ..near() }, "1 to 1024 threads"),
            (CudaTableFunction { block_threads: 1025, ..near() }, "1 to 1024 threads"),
            (CudaTableFunction { body: "x".repeat(BODY_BYTES_MAX + 1), ..near() }, "of at most"),
            (
                CudaTableFunction {
                    outputs: [column("x", DataType::Bool), column("x", DataType::Bool)].concat(),
                    ..near()
                },
                "called x",
            ),
        ] {
            let error = function.error().unwrap_or_default();
            assert!(error.contains(cause), "{cause}: {error}");
        }
    }

    #[test]
    fn a_grid_has_a_thread_for_each_row_unless_it_says_more() {
        let blocks = |blocks, rows| near().blocks(TableLaunch { rows_max: 0, blocks }, rows);
        assert_eq!(blocks(None, 0), Some(1));
        assert_eq!(blocks(None, 256), Some(1));
        assert_eq!(blocks(None, 257), Some(2));
        assert_eq!(blocks(None, u64::MAX), None);
        assert_eq!(blocks(Some(7), 1), Some(7));
        assert_eq!(blocks(Some(0), 1), None);
    }
}
