//! UNION ALL below groups, builds and first rows: each member becomes a stage of the program that makes these.
//!
//! ```text
//! PipelineExec: joins, groups               PipelineExec
//!   Projection, Filter                        stage 0: batches 0 ─► rows
//!     Union                         ───►      stage 1: batches 1 ─► rows
//!       plan of a member                      last stage: stages 0 and 1 ─► joins, groups
//!       plan of another                       children: Projection, Filter over the plan of each member
//! ```
//!
//! A full join is a union of two ([`super::full`]). [`super::fuse`] makes stages of the members' plans; a run makes parts of
//! the groups of each ([`headrace_ir::union`]).

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use headrace_ir::{Input, Pipeline, Sink, Source};

use super::full::{self, Halves};
use super::nodes::{passes_rows, with_children};
use super::program::Planned;

/// Members of a union at most: each is a pipeline of its own.
const MEMBERS_MAX: usize = 64;

/// Has a program read the members of unions in place of these, where it makes groups, builds or first rows of them. Tells of
/// each child plan whether it is a member now.
///
/// `is_stage`: the program becomes a stage of another one, so that rows which it puts out are no answer. `are_stages`: whether
/// both halves of a full join become stages, of which those that make the same groups are one.
pub fn split(
    planned: &mut Planned,
    is_stage: bool,
    are_stages: &dyn Fn(&Halves) -> bool,
) -> Vec<bool> {
    let mut are_members = vec![false; planned.children.len()];
    for child in 0..are_members.len() {
        let Some(members) = members(&planned.children[child], are_stages) else { continue };
        if read_members(planned, child, members, is_stage) {
            are_members.resize(planned.children.len(), true);
            are_members[child] = true;
        }
    }
    are_members
}

/// Whether the rows of a plan are those of several, one after the other.
pub fn is_union(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_full = |join: &HashJoinExec| *join.join_type() == JoinType::Full;
    plan.is::<UnionExec>()
        || plan.downcast_ref().is_some_and(is_full)
        || (passes(plan) && plan.children().into_iter().all(is_union))
}

fn passes(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_row_by_row = plan.is::<ProjectionExec>() || plan.is::<FilterExec>();
    passes_rows(plan) || (is_row_by_row && plan.fetch().is_none())
}

/// Plans whose rows, one after the other, are those of a plan; `None`: it is no union.
fn members(
    plan: &Arc<dyn ExecutionPlan>,
    are_stages: &dyn Fn(&Halves) -> bool,
) -> Option<Vec<Arc<dyn ExecutionPlan>>> {
    if plan.is::<UnionExec>() {
        let inputs = plan.children().into_iter();
        let all: Vec<_> = inputs
            .flat_map(|it| members(it, are_stages).unwrap_or_else(|| vec![Arc::clone(it)]))
            .collect();
        return (all.len() <= MEMBERS_MAX).then_some(all);
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let halves = full::halves(join, true).ok()?.filter(|halves| are_stages(halves))?;
        return halves.members().ok().map(Vec::from);
    }
    match plan.children().as_slice() {
        [input] if passes(plan) => {
            let over = |member| with_children(Arc::clone(plan), vec![member]).ok();
            members(input, are_stages)?.into_iter().map(over).collect()
        }
        _ => None,
    }
}

/// Puts the members of a union in place of a child plan; `false`: what is made of its rows cannot be made of parts.
fn read_members(
    planned: &mut Planned,
    child: usize,
    members: Vec<Arc<dyn ExecutionPlan>>,
    is_stage: bool,
) -> bool {
    let tables = planned.tables.len();
    let read = Input::Batches(tables + child);
    let reader = planned.program.all().enumerate().find(|(_, it)| it.source.input == read);
    let is_answer = |at: usize| at == planned.program.stages.len() && !is_stage;
    let reader = reader.filter(|(at, reader)| {
        reader.has_parts() && !(is_answer(*at) && matches!(reader.sink, Sink::Rows { .. }))
    });
    let Some((at, reader)) = reader else { return false };
    let source = reader.source.clone();
    let mut stages = Vec::with_capacity(members.len());
    for (number, plan) in members.into_iter().enumerate() {
        let place = if number == 0 { child } else { planned.children.len() };
        match planned.children.get_mut(place) {
            Some(first) => *first = plan,
            None => planned.children.push(plan),
        }
        let source = Source { input: Input::Batches(tables + place), ..source.clone() };
        let sink = Sink::Rows { columns: source.all_columns(), limit: None };
        planned.program.insert(at + number, Pipeline { source, steps: Vec::new(), sink });
        stages.push(at + number);
    }
    let behind = at + stages.len();
    let union = Source::of_stage(Input::Union(stages), &source.table, source.columns);
    if let Some(reader) = planned.program.all_mut().nth(behind) {
        reader.source = union;
    }
    true
}
