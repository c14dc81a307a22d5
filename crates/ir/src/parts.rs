//! Results of a stage that are made of results of parts of its rows: groups of groups by the same keys, first rows of first
//! rows, a build or windows of rows.

use crate::aggregate::{AggregateCall, AggregateFunction, AggregateOutput, TOTAL_DIGITS_MAX};
use crate::expr::{Expr, NamedExpr};
use crate::pipeline::{Pipeline, Sink, Source};
use crate::types::DataType;
use crate::windows::Windows;

/// What a result is made of, and how.
pub(crate) struct Parts {
    /// What makes a part.
    part: Sink,
    /// What the whole was to be made by.
    whole: Sink,
    /// Of groups, the whole's calls, whose arguments are the parts.
    calls: Vec<AggregateCall>,
}

impl Parts {
    /// Those of a stage; `None`: it ends in something else, or in groups that cannot be made of parts.
    pub fn of(stage: &Pipeline) -> Option<Self> {
        let (whole, mut calls) = (stage.sink.clone(), Vec::new());
        let part = match &stage.sink {
            Sink::Aggregate { keys, calls: of, output, .. } => {
                if *output == AggregateOutput::Partial || of.iter().any(AggregateCall::is_distinct)
                {
                    return None;
                }
                let mut parts = Vec::with_capacity(of.len());
                for call in of {
                    let (part, function) = exact_part(call, parts.len())?;
                    parts.push(part);
                    let whole =
                        AggregateCall { function, filter: None, distinct: false, ..call.clone() };
                    calls.push(whole);
                }
                Sink::aggregate(keys.clone(), parts)
            }
            Sink::Build { keys, payload } => {
                let columns = keys.iter().chain(payload).cloned().collect();
                Sink::Rows { columns, limit: None }
            }
            Sink::Windows(windows) => Sink::Rows { columns: windows.columns.clone(), limit: None },
            Sink::Sorted { .. } | Sink::Rows { limit: None, .. } => stage.sink.clone(),
            Sink::Rows { .. } | Sink::Partition { .. } => return None,
        };
        Some(Self { part, whole, calls })
    }

    /// The stage with a part in place of its result.
    pub fn part(&self, stage: &Pipeline) -> Pipeline {
        Pipeline { sink: self.part.clone(), ..stage.clone() }
    }

    /// The stage over parts that a source puts out.
    pub fn whole(&self, source: Source) -> Pipeline {
        let named = |columns: &[NamedExpr], first: usize| {
            let columns = columns.iter().enumerate();
            let named = columns.map(|(index, column)| NamedExpr {
                name: column.name.clone(),
                expr: source.register(first + index),
            });
            named.collect::<Vec<_>>()
        };
        let sink = match self.whole.clone() {
            Sink::Aggregate { keys, sets, output, .. } => {
                let of_part = |(place, call): (usize, &AggregateCall)| AggregateCall {
                    argument: Some(source.register(keys.len() + place)),
                    ..call.clone()
                };
                let calls = self.calls.iter().enumerate().map(of_part).collect();
                Sink::Aggregate { keys: named(&keys, 0), sets, calls, output }
            }
            Sink::Sorted { columns, order, limit } => {
                Sink::Sorted { columns: named(&columns, 0), order, limit }
            }
            Sink::Rows { columns, limit } => Sink::Rows { columns: named(&columns, 0), limit },
            Sink::Windows(windows) => {
                Sink::Windows(Windows { columns: named(&windows.columns, 0), ..windows })
            }
            Sink::Build { keys, payload } => {
                Sink::Build { payload: named(&payload, keys.len()), keys: named(&keys, 0) }
            }
            other => other,
        };
        Pipeline { source, steps: Vec::new(), sink }
    }
}

/// The call of a part, and the function that puts parts together. The total of a part never has more digits than there is
/// room for: the whole one may have fewer.
fn exact_part(call: &AggregateCall, number: usize) -> Option<(AggregateCall, AggregateFunction)> {
    let of = call.argument.as_ref().map(Expr::data_type);
    let is_wide =
        matches!(of, Some(DataType::Decimal128 { precision, .. }) if precision > TOTAL_DIGITS_MAX);
    match call.function {
        AggregateFunction::Sum if is_wide => None,
        _ => call.part(format!("part {number}")),
    }
}

impl Pipeline {
    /// Whether its result can be made of those of parts of its rows, once it has no distinct calls.
    pub fn has_parts(&self) -> bool {
        match &self.sink {
            Sink::Aggregate { calls, output, .. } => {
                let has_part =
                    |call: &AggregateCall| call.is_distinct() || exact_part(call, 0).is_some();
                *output != AggregateOutput::Partial && calls.iter().all(has_part)
            }
            Sink::Build { .. }
            | Sink::Sorted { .. }
            | Sink::Windows(_)
            | Sink::Rows { limit: None, .. } => true,
            Sink::Rows { .. } | Sink::Partition { .. } => false,
        }
    }
}
