//! Window functions: rows beside which stand values of other rows of their partition.
//!
//! ```text
//! rows ─► sorted by the columns of their partition, then by an order ─► each row with the results of the calls
//! ```
//!
//! Calls name columns of the sink rather than expressions: what they read stands in the rows that are sorted.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::aggregate::{AggregateCall, AggregateFunction};
use crate::expr::{Expr, NamedExpr, OnOverflow};
use crate::order::OrderKey;
use crate::types::{DataType, Field};

/// What a stage of window functions makes: the columns, then the calls. The rows come in no order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// Output columns.
    pub columns: Vec<NamedExpr>,
    /// The columns that tell partitions apart, by their places; NULLs are one value. None: all rows are one partition.
    pub partition: Vec<usize>,
    /// The order of the rows of a partition. Rows that tie are peers, whose order nobody knows.
    pub order: Vec<OrderKey>,
    /// What stands beside the columns.
    pub calls: Vec<WindowCall>,
    /// Rows of a larger rank than this may be left out: whoever reads the stage does not want them. `None`: all are wanted.
    pub first: Option<u64>,
}

/// A window function under a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowCall {
    /// The output column's name.
    pub name: String,
    /// What it is.
    pub function: WindowFunction,
}

/// What stands beside a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WindowFunction {
    /// Its number in the partition, from 1: UInt64.
    RowNumber,
    /// The number of the first of its peers: UInt64.
    Rank,
    /// The number of its peers among groups of peers: UInt64.
    DenseRank,
    /// A column of another row of the partition; NULL if there is none.
    Value {
        /// The column.
        column: usize,
        /// Which row.
        of: RowOf,
    },
    /// An aggregate of the rows from the partition's first one to the frame's end.
    Aggregate {
        /// Function, result and overflow, with the argument and filter as columns.
        call: ColumnCall,
        /// Where they end.
        until: FrameEnd,
    },
}

/// An aggregate of columns of the sink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnCall {
    /// Function.
    pub function: AggregateFunction,
    /// The argument; `None`: rows are counted.
    pub argument: Option<usize>,
    /// FILTER, a Bool column.
    pub filter: Option<usize>,
    /// Result type, as [`AggregateCall::result`].
    pub result: DataType,
    /// What happens if the result does not fit.
    pub on_overflow: OnOverflow,
}

/// Another row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowOf {
    /// So many rows before.
    Before(u64),
    /// So many rows after.
    After(u64),
    /// The first of the partition.
    First,
    /// The last of the frame.
    Last(FrameEnd),
}

/// Where the frame of a row ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FrameEnd {
    /// At the row.
    Row,
    /// At the last of its peers.
    Peers,
    /// At the last row of the partition.
    Partition,
}

impl Windows {
    /// All columns of the output.
    pub fn output(&self) -> Vec<Field> {
        let columns = self.columns.iter().map(NamedExpr::field);
        columns.chain(self.calls.iter().map(|call| call.field(&self.columns))).collect()
    }

    /// What rows are sorted by: partitions one after the other, each in its order.
    pub fn sort_order(&self) -> Vec<OrderKey> {
        let key = |&column: &usize| OrderKey { column, descending: false, nulls_first: false };
        self.partition.iter().map(key).chain(self.order.iter().copied()).collect()
    }

    /// What has to be known of all that follows a row before it can be put out.
    pub fn looks_until(&self) -> FrameEnd {
        let ends = self.calls.iter().map(|call| call.function.looks_until());
        ends.max().unwrap_or(FrameEnd::Row)
    }

    /// The same where columns have other places.
    pub(crate) fn over(&self, places: &[usize]) -> Self {
        let mut moved = self.clone();
        let columns = moved.partition.iter_mut();
        let columns = columns.chain(moved.order.iter_mut().map(|key| &mut key.column));
        let read = moved.calls.iter_mut().flat_map(|call| call.function.columns_mut());
        columns.chain(read).for_each(|column| *column = places[*column]);
        moved
    }

    /// The columns that anything compares or computes with.
    pub(crate) fn read(&self) -> impl Iterator<Item = usize> {
        let calls = self.calls.iter().flat_map(|call| call.function.columns());
        self.sort_order().into_iter().map(|key| key.column).chain(calls)
    }
}

impl WindowCall {
    /// The column that it makes beside others.
    pub fn field(&self, columns: &[NamedExpr]) -> Field {
        let of = |column: usize| columns.get(column).map(|column| column.expr.data_type());
        let (data_type, nullable) = match &self.function {
            WindowFunction::Value { column, .. } => (of(*column), true),
            WindowFunction::Aggregate { call, .. } => {
                (Some(call.result.clone()), call.function != AggregateFunction::Count)
            }
            _ => (None, false),
        };
        Field::new(&self.name, data_type.unwrap_or(DataType::UInt64), nullable)
    }
}

impl WindowFunction {
    /// How far it looks beyond the row: what has to be known before the row can be put out.
    pub fn looks_until(&self) -> FrameEnd {
        match self {
            Self::RowNumber | Self::Rank | Self::DenseRank => FrameEnd::Row,
            // Rows that were put out are not kept, and some may stand in the next portion.
            Self::Value { .. } => FrameEnd::Partition,
            Self::Aggregate { until, .. } => *until,
        }
    }

    /// The columns that it reads.
    pub(crate) fn columns(&self) -> Vec<usize> {
        self.clone().columns_mut().into_iter().map(|column| *column).collect()
    }

    fn columns_mut(&mut self) -> Vec<&mut usize> {
        match self {
            Self::RowNumber | Self::Rank | Self::DenseRank => vec![],
            Self::Value { column, .. } => vec![column],
            Self::Aggregate { call, .. } => {
                call.argument.iter_mut().chain(&mut call.filter).collect()
            }
        }
    }
}

impl ColumnCall {
    /// The same of registers that are the columns.
    pub fn over(&self, name: &str, register: impl Fn(usize) -> Expr) -> AggregateCall {
        AggregateCall {
            filter: self.filter.map(&register),
            on_overflow: self.on_overflow,
            ..AggregateCall::new(
                name,
                self.function,
                self.argument.map(&register),
                self.result.clone(),
            )
        }
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.calls.iter().map(|call| call.function.text(&self.columns));
        f.write_str(&calls.collect::<Vec<_>>().join(", "))
    }
}

impl WindowFunction {
    /// Over columns, as SQL; the frame in words.
    fn text(&self, columns: &[NamedExpr]) -> String {
        let name = |column: usize| columns.get(column).map_or("?", |column| column.name.as_str());
        match self {
            Self::RowNumber => "row_number()".into(),
            Self::Rank => "rank()".into(),
            Self::DenseRank => "dense_rank()".into(),
            Self::Value { column, of } => match of {
                RowOf::Before(rows) => format!("lag({}, {rows})", name(*column)),
                RowOf::After(rows) => format!("lead({}, {rows})", name(*column)),
                RowOf::First => format!("first_value({})", name(*column)),
                RowOf::Last(until) => format!("last_value({}){until}", name(*column)),
            },
            Self::Aggregate { call, until } => {
                let argument = call.argument.map_or("*", name);
                let filter = call.filter.map(|filter| format!(" filter (where {})", name(filter)));
                let filter = filter.unwrap_or_default();
                format!("{}({argument}){filter}{until}", call.function.name())
            }
        }
    }
}

impl fmt::Display for FrameEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Row => " up to the row",
            Self::Peers => " up to the row's peers",
            Self::Partition => "",
        })
    }
}
