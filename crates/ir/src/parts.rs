//! Groups that are made of groups of parts of the rows, by the same keys.

use crate::aggregate::{AggregateCall, AggregateOutput};
use crate::pipeline::{NamedExpr, Pipeline, Sink, Source};

/// What groups are made of, and how.
pub(crate) struct Parts {
    keys: Vec<NamedExpr>,
    calls: Vec<AggregateCall>,
    /// The whole stage's calls, whose arguments are the parts.
    whole: Vec<AggregateCall>,
    sets: Vec<Vec<usize>>,
    output: AggregateOutput,
}

impl Parts {
    /// Those of a stage; `None`: it makes no groups, or some that cannot be made of parts.
    pub fn of(stage: &Pipeline) -> Option<Self> {
        let Sink::Aggregate { keys, sets, calls, output } = &stage.sink else { return None };
        if calls.iter().any(AggregateCall::is_distinct) || !stage.has_parts() {
            return None;
        }
        let mut parts = Self {
            keys: keys.clone(),
            calls: Vec::with_capacity(calls.len()),
            whole: Vec::with_capacity(calls.len()),
            sets: sets.clone(),
            output: output.clone(),
        };
        for call in calls {
            let (part, function) = call.part(format!("part {}", parts.calls.len()))?;
            let whole = AggregateCall { function, filter: None, distinct: false, ..call.clone() };
            parts.calls.push(part);
            parts.whole.push(whole);
        }
        Some(parts)
    }

    /// The stage with parts in place of its groups.
    pub fn part(&self, stage: &Pipeline) -> Pipeline {
        let sink = Sink::aggregate(self.keys.clone(), self.calls.clone());
        Pipeline { sink, ..stage.clone() }
    }

    /// The stage over parts that a source puts out.
    pub fn whole(&self, source: Source) -> Pipeline {
        let register = |index: usize| source.register(index);
        let key = |(index, key): (usize, &NamedExpr)| NamedExpr {
            name: key.name.clone(),
            expr: register(index),
        };
        let keys: Vec<_> = self.keys.iter().enumerate().map(key).collect();
        let of_part = |(place, call): (usize, &AggregateCall)| {
            let argument = Some(register(self.keys.len() + place));
            AggregateCall { argument, ..call.clone() }
        };
        let calls = self.whole.iter().enumerate().map(of_part).collect();
        let (sets, output) = (self.sets.clone(), self.output.clone());
        let sink = Sink::Aggregate { keys, sets, calls, output };
        Pipeline { source, steps: Vec::new(), sink }
    }
}

impl Pipeline {
    /// Whether its groups can be made of those of parts of its rows, once it has no distinct calls.
    pub fn has_parts(&self) -> bool {
        let Sink::Aggregate { calls, output, .. } = &self.sink else { return false };
        let has_part =
            |call: &AggregateCall| call.is_distinct() || call.part(String::new()).is_some();
        *output != AggregateOutput::Partial && calls.iter().all(has_part)
    }
}
