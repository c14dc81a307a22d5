//! What travels from the planner to the executor: text in the plan node, since a plan is copied.

use headrace_format::heap::JsonbQuery;
use headrace_ir::{Field, Program};
use pgrx::pg_sys;
use serde::{Deserialize, Serialize};

use crate::nodes;

/// Everything that the executor has to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The program. Its one table is the streamed one, its builds are child plans.
    pub program: Program,
    /// The tables that the streamed rows lie in: one, the parts of a partitioned one, or those of a
    /// UNION ALL.
    pub parts: Vec<Part>,
    /// How the source's columns are read.
    pub reads: Vec<Read>,
    /// Whether it is one foreign table of files; else they are heaps.
    pub of_files: bool,
    /// The builds' rows, each from the child plan of its number, counted after PostgreSQL's own.
    pub children: Vec<Child>,
    /// Columns of the node's tuples.
    pub outputs: Vec<Output>,
    /// Types of the program's parameters, which are the node's expressions.
    pub parameters: Vec<u32>,
}

/// A table that streamed rows lie in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Which.
    pub table: u32,
    /// The source's columns by their attribute numbers there.
    pub attributes: Vec<i16>,
}

/// How a column of the source is read of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Read {
    /// As the attribute's type has it, or whether it is there.
    Value,
    /// Numbers that declare no digits, as the column's type.
    Number {
        /// Whether each shows as many digits behind the point as the type has.
        is_shown: bool,
    },
    /// How many digits behind the point the numbers show.
    DigitsShown {
        /// No more than so many.
        most: u8,
    },
    /// What is asked of documents.
    Document(JsonbQuery),
}

/// A child plan whose rows become a build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Child {
    /// What it is in EXPLAIN.
    pub name: String,
    /// The build's keys, then its payload.
    pub columns: Vec<ChildColumn>,
}

/// A column of a child plan's rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChildColumn {
    /// Its place in the rows.
    pub position: usize,
    /// Its type there.
    pub type_oid: u32,
    /// What becomes of it: the same type, or a wider one; of a number an integer is the digits behind the point
    /// that it shows.
    pub field: Field,
    /// The fewest and the most digits behind the point that each number must show.
    pub shows: Option<(u8, u8)>,
    /// What is asked of documents.
    pub query: Option<JsonbQuery>,
}

/// Where a column of the node's tuples comes from. Columns are those of the program's sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// A value of rows, one that they are grouped by, or their smallest or largest.
    Value {
        /// The column.
        column: usize,
        /// PostgreSQL's type.
        type_oid: u32,
    },
    /// A number whose digits behind the point differ from row to row.
    Shown {
        /// The column.
        column: usize,
        /// The fewest digits that one of the group's shows: equal ones must show the same.
        least: usize,
        /// The most.
        most: usize,
    },
    /// The text of a truncated moment that a group is of.
    Formatted {
        /// The column.
        column: usize,
        /// The pattern of `to_char`, that shows it as no other.
        pattern: String,
    },
    /// An aggregate as it is.
    Aggregate {
        /// The column.
        column: usize,
        /// PostgreSQL's type.
        type_oid: u32,
    },
    /// An exact sum.
    Sum(ExactSum),
    /// A sum of floats.
    FloatSum(FloatSum),
    /// The smallest or largest of numbers that show different digits behind the point.
    Extreme {
        /// Those of each number of digits.
        columns: Vec<usize>,
        /// These numbers.
        digits: Vec<i8>,
        /// Whether it is the largest.
        is_max: bool,
    },
    /// The mean of exact numbers: their sum divided by their number as PostgreSQL's `numeric`
    /// divides.
    NumericMean {
        /// Their sum.
        sum: ExactSum,
        /// Their number.
        count: usize,
    },
    /// The mean of floats.
    FloatMean {
        /// Their sum.
        sum: FloatSum,
        /// Their number.
        count: usize,
    },
    /// A variance of exact numbers, or its root, as PostgreSQL's `numeric` computes it of these.
    Deviation {
        /// Their number.
        count: usize,
        /// Their sum.
        sum: ExactSum,
        /// The sum of their squares.
        squares: ExactSum,
        /// Whether of a sample, or of all.
        is_sample: bool,
        /// Whether its root is wanted.
        is_root: bool,
    },
    /// A variance of floats, or its root, as PostgreSQL computes it of these.
    FloatDeviation {
        /// Their number.
        count: usize,
        /// Their squared deviations.
        squares: usize,
        /// Whether of a sample, or of all.
        is_sample: bool,
        /// Whether its root is wanted.
        is_root: bool,
    },
    /// A truth value from a number: whether it is not 0.
    IsNotZero {
        /// Which.
        column: usize,
    },
}

/// A sum of exact numbers, and the digits behind the point that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExactSum {
    /// The sum.
    pub column: usize,
    /// The most digits that one of the numbers shows, if its type does not say it.
    pub digits: Option<usize>,
    /// How often these are shown: twice by squares.
    pub times: i8,
}

/// A sum of floats, and what tells NaN and infinities among them from an overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloatSum {
    /// The sum.
    pub column: usize,
    /// The largest of their magnitudes.
    pub largest: usize,
}

impl Plan {
    /// As a list that can be copied, with the conditions that the names of folders decide.
    pub unsafe fn to_list(
        &self,
        clauses: *mut pg_sys::List,
    ) -> Result<*mut pg_sys::List, nodes::WhyNot> {
        let text = serde_json::to_string(self);
        let text = text.map_err(|e| nodes::WhyNot(format!("the plan cannot be written: {e}")))?;
        Ok(nodes::list([nodes::string(&text), clauses.cast()]))
    }

    /// From such a list, with the conditions.
    pub unsafe fn of_list(list: *mut pg_sys::List) -> Result<(Self, *mut pg_sys::List), String> {
        let parts: Vec<*mut pg_sys::Node> = nodes::items(list).collect();
        let [text, clauses] = parts[..] else { return Err("a node without its plan".into()) };
        let text = nodes::text_of(text).ok_or("a node without its plan")?;
        let plan = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Ok((plan, clauses.cast()))
    }
}
