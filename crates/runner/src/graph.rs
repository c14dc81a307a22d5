//! The stages of a run: what each left, and which can run next.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use headrace_io::{Kept, decimal_bytes};
use headrace_ir::{Pipeline, Program, Sink};
use headrace_pipeline::BuildTable;
use headrace_pipeline::ExecError;
use headrace_pipeline::build::{BuildIndex, BuildOptions, Chains, Heads};
use headrace_spill::Part;
use parking_lot::Mutex;

use crate::build_cache::{BuildKey, HeldBuild};
use crate::error::RunError;
use crate::parts::file_bytes;
use crate::report::{Place, StageReport};

/// What a stage left for others, where it lies. Rows and groups leave nothing: they go on to the stage
/// that reads them, or out.
#[derive(Clone)]
pub enum StageResult {
    /// Rows by key, in host memory.
    Build(Arc<BuildTable>),
    /// Rows by partition, in host memory and temporary files.
    Partitions(Arc<Vec<Part>>),
    /// Nothing: the build does not fit memory, and all probes of it are optional.
    LeftOut,
}

/// A stage that is done.
pub struct Made {
    /// What it left.
    pub result: StageResult,
    /// What it did.
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

    /// In words: its rows, how keys are found, its size.
    fn describe(&self) -> String {
        let name = &self.report.table;
        let bytes = decimal_bytes(self.report.result_bytes);
        let table = match &self.result {
            StageResult::Build(table) => table,
            StageResult::LeftOut => return format!("{name}: more than memory holds, left out"),
            StageResult::Partitions(parts) => {
                let rows = rows_of(parts);
                return format!("{name}: {rows} rows, more than memory holds, divided: {bytes}");
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
        format!("{name}: {} rows{duplicates}, {index}, {bytes}{cached}", table.rows)
    }
}

fn rows_of(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.blocks().rows()).sum()
}

/// A program on its way. It changes where a build does not fit memory: its join is by partitions then.
pub struct Graph<'p> {
    program: Cow<'p, Program>,
    /// By stage: what was kept of it.
    made: Vec<Option<Made>>,
    /// Of stages of which nothing is kept.
    reports: Vec<Mutex<Option<StageReport>>>,
    /// What makes a stage's output that of an earlier run, once it was asked for.
    keys: Vec<OnceLock<Option<Arc<BuildKey>>>>,
}

impl<'p> Graph<'p> {
    pub fn new(program: Cow<'p, Program>) -> Self {
        let stages = program.stages.len() + 1;
        let made = (0..stages).map(|_| None).collect();
        let reports = (0..stages).map(|_| Mutex::default()).collect();
        let keys = (0..stages).map(|_| OnceLock::new()).collect();
        Self { program, made, reports, keys }
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

    /// What a stage left.
    pub fn result(&self, number: usize) -> Option<&StageResult> {
        self.made.get(number)?.as_ref().map(|made| &made.result)
    }

    /// What makes a stage's output the same as that of an earlier run; `None`: nothing does. `new` is called once.
    pub fn key(
        &self,
        stage: usize,
        new: impl FnOnce() -> Option<BuildKey>,
    ) -> Option<Arc<BuildKey>> {
        self.keys[stage].get_or_init(|| new().map(Arc::new)).clone()
    }

    /// The builds by stage, as pipelines take them: where a stage left none, nothing that takes these
    /// asks for it, and an empty one stands in its place.
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

    /// Stages of which something is kept and that can run now, in their order: what they probe is there.
    pub fn next_group(&self) -> Vec<usize> {
        let is_unmade = |stage: &usize| self.is_kept(*stage) && self.made[*stage].is_none();
        let is_ready =
            |stage: &usize| self.needs(*stage).iter().all(|need| self.made[*need].is_some());
        (0..self.program.stages.len()).filter(is_unmade).take_while(is_ready).collect()
    }

    fn is_kept(&self, stage: usize) -> bool {
        let stage = self.program.stage(stage);
        stage.is_some_and(|stage| stage.build_columns().is_some())
    }

    /// The kept results that a stage, and those that it reads while they run, ask for.
    fn needs(&self, stage: usize) -> Vec<usize> {
        let of = |input| match self.is_kept(input) {
            true => vec![input],
            false => self.needs(input),
        };
        self.program.inputs(stage).flat_map(of).collect()
    }

    /// Keeps what a group of stages left. Where rows of a build were divided, so is its join.
    pub fn keep(&mut self, group: &[usize], made: Vec<Made>) -> Result<(), RunError> {
        for (&stage, made) in group.iter().zip(made) {
            self.made[stage] = Some(made);
        }
        // Dividing puts a stage in after the build: those before it keep their numbers.
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
        self.made.insert(head, None);
        self.reports.insert(head, Mutex::default());
        // Keys of builds do not change: what is divided is none, and is before its probe.
        self.keys.insert(head, OnceLock::new());
        Ok(())
    }

    /// Keeps the report of a stage of which nothing else is kept.
    pub fn report(&self, stage: usize, report: StageReport) {
        *self.reports[stage].lock() = Some(report);
    }

    /// The program as it ran, and the reports of all stages that did, by stage.
    pub fn into_reports(self) -> (Program, Vec<Option<StageReport>>) {
        let kept = self.made.into_iter().map(|made| made.map(|made| made.report));
        let streamed = self.reports.into_iter().map(Mutex::into_inner);
        let reports = kept.zip(streamed).map(|(kept, streamed)| kept.or(streamed)).collect();
        (self.program.into_owned(), reports)
    }
}
