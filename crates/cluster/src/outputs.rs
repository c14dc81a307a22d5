//! The plan's columns, of a program's, as a message has them.

use datafusion::arrow::datatypes::DataType;
use headrace_engine::exec::Output;
use serde::{Deserialize, Serialize};

/// As [`Output`], whose types have a form of their own here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SentOutput {
    Column(usize),
    Spread { squares: usize, count: usize, is_sample: bool, is_root: bool },
    ExactSpread { total: usize, squares: usize, count: usize, is_sample: bool, is_root: bool },
    Mean { total: usize, count: usize, result: SentMean },
    Shifted { total: usize, count: usize, by: i64, name: String },
    IsTrue(usize),
    GroupingId { set: usize, ids: Vec<i64> },
}

/// The type of a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SentMean {
    Float64,
    Decimal128(u8, i8),
}

impl SentOutput {
    /// `None`: a mean of a type that has no form here.
    pub fn of(output: &Output) -> Option<Self> {
        Some(match output.clone() {
            Output::Column(column) => Self::Column(column),
            Output::Spread { squares, count, is_sample, is_root } => {
                Self::Spread { squares, count, is_sample, is_root }
            }
            Output::ExactSpread { total, squares, count, is_sample, is_root } => {
                Self::ExactSpread { total, squares, count, is_sample, is_root }
            }
            Output::Mean { total, count, result } => {
                let result = match result {
                    DataType::Float64 => SentMean::Float64,
                    DataType::Decimal128(precision, scale) => {
                        SentMean::Decimal128(precision, scale)
                    }
                    _ => return None,
                };
                Self::Mean { total, count, result }
            }
            Output::Shifted { total, count, by, name } => Self::Shifted { total, count, by, name },
            Output::IsTrue(column) => Self::IsTrue(column),
            Output::GroupingId { set, ids } => Self::GroupingId { set, ids },
        })
    }

    /// The engine's.
    pub fn output(&self) -> Output {
        match self.clone() {
            Self::Column(column) => Output::Column(column),
            Self::Spread { squares, count, is_sample, is_root } => {
                Output::Spread { squares, count, is_sample, is_root }
            }
            Self::ExactSpread { total, squares, count, is_sample, is_root } => {
                Output::ExactSpread { total, squares, count, is_sample, is_root }
            }
            Self::Mean { total, count, result } => {
                let result = match result {
                    SentMean::Float64 => DataType::Float64,
                    SentMean::Decimal128(precision, scale) => {
                        DataType::Decimal128(precision, scale)
                    }
                };
                Output::Mean { total, count, result }
            }
            Self::Shifted { total, count, by, name } => Output::Shifted { total, count, by, name },
            Self::IsTrue(column) => Output::IsTrue(column),
            Self::GroupingId { set, ids } => Output::GroupingId { set, ids },
        }
    }

    /// The program's columns that it is made of.
    pub fn columns(&self) -> Vec<usize> {
        match *self {
            Self::Column(column) | Self::IsTrue(column) => vec![column],
            Self::Spread { squares, count, .. } => vec![squares, count],
            Self::ExactSpread { total, squares, count, .. } => vec![total, squares, count],
            Self::Mean { total, count, .. } | Self::Shifted { total, count, .. } => {
                vec![total, count]
            }
            Self::GroupingId { set, .. } => vec![set],
        }
    }
}
