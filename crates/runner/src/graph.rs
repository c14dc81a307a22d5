//! The stages of a run: their results, and which can run next.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use headrace_columns::column::arrow_field;
use headrace_cuda::GroupsLeft;
use headrace_format::batches::{BatchTable, Ready};
use headrace_io::{Kept, Reservation, decimal_bytes};
use headrace_ir::{Pipeline, Program, Sink};
use headrace_pipeline::build::{BuildIndex, BuildOptions, Chains, Heads};
use headrace_pipeline::{BuildTable, ExecError, WhyNot};
use headrace_spill::Part;
use parking_lot::Mutex;

use crate::build_cache::{BuildKey, HeldBuild};
use crate::error::RunError;
use crate::parts::file_bytes;
use crate::report::{Place, StageReport};
use crate::table::StreamTable;

/// The result that a stage keeps for those that probe it. A stage that ends in rows or groups has none: its output
/// goes to the stage that reads it, or out. Groups that several read are held beside ([`Graph::hold`], [`Graph::beyond`]).
#[derive(Clone)]
pub enum StageResult {
    /// Rows by key, in host memory.
    Build(Arc<BuildTable>),
    /// Rows by partition, in host memory and temporary files.
    Partitions(Arc<Vec<Part>>),
    /// Nothing: the build does not fit memory, and all probes of it are optional.
    LeftOut,
}

/// Groups of a stage that several read, in host memory.
pub struct HeldRows {
    /// The groups.
    pub batches: Vec<RecordBatch>,
    /// Why they are not on a GPU.
    pub why_not: Option<WhyNot>,
    /// The memory that they take.
    pub memory: Reservation,
}

impl HeldRows {
    /// As a table for one reader of the stage.
    pub fn table(&self, stage: &Pipeline) -> StreamTable {
        let columns = stage.sink.output().unwrap_or_default();
        let schema = Schema::new(columns.iter().map(arrow_field).collect::<Vec<_>>());
        let batches = self.batches.clone().into_iter().map(Ok);
        let name = &stage.source.table;
        StreamTable::new(name, Arc::new(BatchTable::new(name, &schema, Ready(batches))))
    }
}

/// A stage that is done.
#[derive(Clone)]
pub struct Made {
    /// Its result.
    pub result: StageResult,
    /// Its report.
    pub report: StageReport,
    /// The memory of a build, which later runs may find.
    pub held: Option<Arc<Kept<HeldBuild>>>,
}

impl Made {
    /// A build.
    pub fn build(held: Arc<Kept<HeldBuild>>, report: StageReport) -> Self {
        let result = StageResult::Build(Arc::clone(&held.table));
        Self::new(result, Some(held), Place::Host, report)
    }

    /// Rows by partition.
    pub fn partitions(parts: Vec<Part>, report: StageReport) -> Self {
        let place = if file_bytes(&parts) > 0 { Place::Disk } else { Place::Host };
        Self::new(StageResult::Partitions(Arc::new(parts)), None, place, report)
    }

    /// A build that does not fit.
    pub fn left_out(report: StageReport) -> Self {
        Self::new(StageResult::LeftOut, None, Place::Nowhere, report)
    }

    fn new(
        result: StageResult,
        held: Option<Arc<Kept<HeldBuild>>>,
        place: Place,
        report: StageReport,
    ) -> Self {
        let (rows_out, bytes) = match &result {
            StageResult::Build(table) => (table.rows, table.bytes),
            StageResult::Partitions(parts) => (rows_of(parts), file_bytes(parts)),
            StageResult::LeftOut => (0, 0),
        };
        let report = StageReport { place, rows_out, result_bytes: bytes, ..report };
        let mut made = Self { result, report, held };
        made.report.result = made.describe();
        made
    }

    /// The result in words: rows, index, size.
    fn describe(&self) -> String {
        let bytes = decimal_bytes(self.report.result_bytes);
        let table = match &self.result {
            StageResult::Build(table) => table,
            StageResult::LeftOut => return "more than memory holds, left out".into(),
            StageResult::Partitions(parts) => {
                let rows = rows_of(parts);
                return format!("{rows} rows, more than memory holds, divided: {bytes}");
            }
        };
        let index = match &table.index {
            BuildIndex::Direct(present) => format!("direct over {} keys", present.domain),
            BuildIndex::Chains(Chains { heads: Heads::Direct { heads, .. }, .. }) => {
                format!("direct over {} keys", heads.len())
            }
            BuildIndex::Chains(_) => "hashed".to_string(),
        };
        let duplicates = if table.unique { "" } else { " with duplicates" };
        let cached = if self.report.is_cached { ", cached" } else { "" };
        format!("{} rows{duplicates}, {index}, {bytes}{cached}", table.rows)
    }
}

fn rows_of(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.blocks().rows()).sum()
}

/// A program while it runs. If a build does not fit in memory, its join becomes one by partitions.
pub struct Graph<'p> {
    program: Cow<'p, Program>,
    /// By stage.
    states: Vec<StageState>,
    /// Groups of stages that several read, where a GPU left them.
    left: Vec<(usize, &'p GroupsLeft<'p>)>,
}

/// What is known of a stage.
#[derive(Default)]
struct StageState {
    /// Its result and report, if it ends in a build or partitions.
    made: Option<Made>,
    /// Whether its output is to be kept for several readers.
    is_kept: bool,
    /// These, on the host.
    held: Option<Arc<HeldRows>>,
    /// Its report otherwise.
    report: Mutex<Option<StageReport>>,
    /// Its key in the build cache, computed when first needed; `None` inside: it has none.
    key: OnceLock<Option<Arc<BuildKey>>>,
}

impl StageState {
    fn kept(is_kept: bool) -> Self {
        Self { is_kept, ..Self::default() }
    }
}

impl Clone for StageState {
    fn clone(&self) -> Self {
        Self {
            made: self.made.clone(),
            is_kept: self.is_kept,
            held: self.held.clone(),
            report: Mutex::new(self.report.lock().clone()),
            key: self.key.clone(),
        }
    }
}

/// What became of a program beyond a stage whose groups lay on a GPU.
pub struct Beyond {
    program: Program,
    states: Vec<StageState>,
}

impl<'p> Graph<'p> {
    pub fn new(program: Cow<'p, Program>) -> Self {
        let stages = 0..=program.stages.len();
        let states = stages.map(|stage| StageState::kept(program.is_shared(stage))).collect();
        Self { program, states, left: Vec::new() }
    }

    /// The graph for what reads the groups of a stage, while these lie on a GPU.
    pub fn beyond<'g>(&'g self, stage: usize, groups: &'g GroupsLeft<'g>) -> Graph<'g> {
        let mut left: Vec<(usize, &'g GroupsLeft<'g>)> = self.left.clone();
        left.push((stage, groups));
        Graph { program: Cow::Borrowed(&self.program), states: self.states.clone(), left }
    }

    /// What it has become, without the groups.
    pub fn into_beyond(self) -> Beyond {
        Beyond { program: self.program.into_owned(), states: self.states }
    }

    /// Takes what became of the program beyond a stage. That stage, and those that it reads, have reported here.
    pub fn go_beyond(&mut self, stage: usize, beyond: Beyond) {
        self.program = Cow::Owned(beyond.program);
        let before = std::mem::replace(&mut self.states, beyond.states);
        for (own, before) in self.states.iter().zip(before).take(stage + 1) {
            let mut report = own.report.lock();
            *report = before.report.into_inner().or_else(|| report.take());
        }
    }

    /// Keeps the groups of a stage for all that read it; `None`: they take too much memory, and each reader makes them
    /// again.
    pub fn hold(&mut self, stage: usize, rows: Option<HeldRows>) {
        let state = &mut self.states[stage];
        state.is_kept = rows.is_some();
        if let (Some(report), true) = (state.report.get_mut(), state.is_kept) {
            report.place = Place::Host;
        }
        state.held = rows.map(Arc::new);
    }

    /// Bytes of all that is kept so.
    pub fn held_bytes(&self) -> u64 {
        self.states
            .iter()
            .filter_map(|state| state.held.as_ref())
            .map(|held| held.memory.bytes())
            .sum()
    }

    /// The groups of a stage in host memory, if they are kept there.
    pub fn held(&self, stage: usize) -> Option<&Arc<HeldRows>> {
        self.states[stage].held.as_ref()
    }

    /// The groups of a stage on a GPU, if they are kept there.
    pub fn left(&self, stage: usize) -> Option<&'p GroupsLeft<'p>> {
        self.left.iter().find_map(|&(number, groups)| (number == stage).then_some(groups))
    }

    /// The program as it is by now.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// A stage by its number.
    pub fn stage(&self, number: usize) -> Result<&Pipeline, RunError> {
        let missing = || ExecError::Internal(format!("stage {number} is not there"));
        Ok(self.program.stage(number).ok_or_else(missing)?)
    }

    /// The number of the last stage.
    pub fn answer(&self) -> usize {
        self.program.stages.len()
    }

    /// The result of a stage, once it is made.
    pub fn result(&self, number: usize) -> Option<&StageResult> {
        self.made(number).map(|made| &made.result)
    }

    fn made(&self, number: usize) -> Option<&Made> {
        self.states.get(number)?.made.as_ref()
    }

    /// A stage's key in the build cache; `None`: it has none. `new` computes it and is called once.
    pub fn key(
        &self,
        stage: usize,
        new: impl FnOnce() -> Option<BuildKey>,
    ) -> Option<Arc<BuildKey>> {
        self.states[stage].key.get_or_init(|| new().map(Arc::new)).clone()
    }

    /// The builds by stage, as pipelines take them. An empty build stands for each stage that left none;
    /// no pipeline probes it.
    pub fn builds(&self) -> Result<Vec<Arc<BuildTable>>, ExecError> {
        let stages = (0..self.program.stages.len()).map(|stage| match self.result(stage) {
            Some(StageResult::Build(table)) => Ok(Arc::clone(table)),
            _ => {
                let empty = BuildTable::from_batches("", &[], &[], &[], BuildOptions::default());
                Ok(Arc::new(empty?))
            }
        });
        stages.collect()
    }

    /// The stages that can be made now, in order: they end in a build or partitions, and all that they need exists.
    pub fn next_group(&self) -> Vec<usize> {
        let is_ready = |stage: &usize| {
            !self.states[*stage].is_kept
                && self.needs(*stage).into_iter().all(|need| self.is_made(need))
        };
        self.unmade().take_while(is_ready).collect()
    }

    /// The stage whose groups several read, and wait for, once all else is made.
    pub fn next_shared(&self) -> Option<usize> {
        self.unmade().next()
    }

    fn unmade(&self) -> impl Iterator<Item = usize> {
        let mut is_wanted = vec![false; self.program.stages.len() + 1];
        let mut wanted = vec![self.answer()];
        while let Some(stage) = wanted.pop() {
            let is_new = !std::mem::replace(&mut is_wanted[stage], true);
            if is_new && !self.is_made(stage) {
                wanted.extend(self.program.inputs(stage));
            }
        }
        let is_unmade =
            move |stage: &usize| is_wanted[*stage] && self.is_kept(*stage) && !self.is_made(*stage);
        (0..self.program.stages.len()).filter(is_unmade)
    }

    /// The stages that end in a build.
    pub fn all_builds(&self) -> Vec<usize> {
        let is_build =
            |stage: &usize| matches!(self.program.stages[*stage].sink, Sink::Build { .. });
        (0..self.program.stages.len()).filter(is_build).collect()
    }

    fn is_made(&self, stage: usize) -> bool {
        self.made(stage).is_some() || self.held(stage).is_some() || self.left(stage).is_some()
    }

    fn is_kept(&self, stage: usize) -> bool {
        let ends_kept =
            self.program.stage(stage).is_some_and(|stage| stage.build_columns().is_some());
        ends_kept || self.states.get(stage).is_some_and(|state| state.is_kept)
    }

    /// The builds, partitions and kept groups that a stage needs, and those that the stages it reads need.
    fn needs(&self, stage: usize) -> Vec<usize> {
        let of = |input| match self.is_kept(input) {
            true => vec![input],
            false => self.needs(input),
        };
        self.program.inputs(stage).flat_map(of).collect()
    }

    /// Keeps the results of a group of stages. If a build was divided, its join is divided too.
    pub fn keep(&mut self, group: &[usize], made: Vec<Made>) -> Result<(), RunError> {
        for (&stage, made) in group.iter().zip(made) {
            self.states[stage].made = Some(made);
        }
        // Dividing inserts a stage behind the build, so stages up to the build keep their numbers.
        for &stage in group.iter().rev() {
            let is_divided = matches!(self.result(stage), Some(StageResult::Partitions(_)));
            if is_divided && matches!(self.stage(stage)?.sink, Sink::Build { .. }) {
                self.divide(stage)?;
            }
        }
        Ok(())
    }

    fn divide(&mut self, build: usize) -> Result<(), RunError> {
        let missing = || ExecError::Internal(format!("rows of stage {build} that nothing probes"));
        let head = self.program.divides_for(build).ok_or_else(missing)?;
        self.program = Cow::Owned(self.program.with_divided(build)?);
        self.states.insert(head, StageState::default());
        Ok(())
    }

    /// Keeps the report of a stage that passed its output on.
    pub fn report(&self, stage: usize, report: StageReport) {
        *self.states[stage].report.lock() = Some(report);
    }

    /// How long a stage took that passed its output on.
    pub fn wall_ms(&self, stage: usize) -> f64 {
        self.states[stage].report.lock().as_ref().map_or(0.0, |report| report.wall_ms)
    }

    /// The program as it ran, and the reports of all stages that did, by stage.
    pub fn into_reports(self) -> (Program, Vec<Option<StageReport>>) {
        let report = |state: StageState| match state.made {
            Some(made) => Some(made.report),
            None => state.report.into_inner(),
        };
        let reports = self.states.into_iter().map(report).collect();
        (self.program.into_owned(), reports)
    }
}
