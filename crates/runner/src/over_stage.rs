//! A stage that reads others while they run, one after the other.
//!
//! ```text
//! on the host:    producers ─► batches, a few at a time ─► reader
//! on a GPU:       producers ─► groups in device memory ─► reader, when the last producer is done
//! ```
//!
//! The producers decide by what becomes of them: if a GPU is left with all of their groups, the reader is asked to run
//! over them there. Otherwise, or if the GPU does not take the reader, batches come, and the reader runs on the cores.
//! A reader on the cores begins with the first batch: until then the groups may still stay on the GPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use headrace_columns::column::arrow_field;
use headrace_cuda::{GroupsLeft, TakeGroups};
use headrace_format::batches::{BatchTable, batch_channel};
use headrace_ir::union::columns_of;
use headrace_ir::{Pipeline, Sink};
use headrace_pipeline::build::BuildOptions;
use headrace_pipeline::{BuildTable, ExecError, WhyNot};
use parking_lot::Mutex;

use crate::cuda;
use crate::error::RunError;
use crate::graph::Graph;
use crate::run::{Run, Streamed, gpu_refusal};
use crate::settings::Processor;
use crate::table::StreamTable;
use crate::task::{Emit, OnDevice, Outlet, TakenGroups, Task, groups_of};

/// Batches that wait between a stage and the one that reads it.
const WAITING_BATCHES: usize = 8;

/// Of fewer groups the cores have made an answer before a kernel is compiled; a rehearsal compiles it.
const AUTO_GROUPS_MIN: u64 = 1 << 20;

impl Run<'_> {
    /// Does something with the output of stages, which run meanwhile: `on_host` with their rows, after what `on_device`
    /// said why it cannot have their groups, or `on_device` with these.
    pub(crate) fn over_stages<T: Send>(
        &self,
        graph: &Graph<'_>,
        numbers: &[usize],
        on_host: impl FnOnce(&StreamTable, Option<WhyNot>) -> Result<T, RunError>,
        on_device: impl Fn(&[&GroupsLeft<'_>]) -> OnDevice<T> + Sync,
    ) -> Result<T, RunError> {
        let stages = numbers.iter().map(|&number| graph.stage(number));
        let stages = stages.collect::<Result<Vec<_>, _>>()?;
        let none = || ExecError::Internal("a union of no stages".into());
        let stage = *stages.first().ok_or_else(none)?;
        let columns = columns_of(stages);
        let schema = Arc::new(Schema::new(columns.iter().map(arrow_field).collect::<Vec<_>>()));
        let (sender, receiver) = batch_channel(WAITING_BATCHES);
        let name = &stage.source.table;
        let table = StreamTable::new(name, Arc::new(BatchTable::new(name, &schema, receiver)));
        let (begins, begun) = mpsc::channel();
        let outcome = Outcome::default();
        headrace_io::scope(|scope| {
            // Moved here: a producer must see that its reader is gone, by a panic too.
            let table = table;
            let (outcome, on_device) = (&outcome, &on_device);
            let produced = move || {
                let has_begun = AtomicBool::new(false);
                let emit = |batch: RecordBatch| {
                    if !has_begun.swap(true, Ordering::Relaxed) {
                        // Nobody waits where the reader is gone.
                        let _ = begins.send(());
                    }
                    let is_wanted = match under(&schema, batch) {
                        Ok(batch) => sender.send(batch),
                        Err(error) => outcome.fail(error),
                    };
                    outcome.is_enough.fetch_or(!is_wanted, Ordering::Relaxed);
                    is_wanted
                };
                let producing = Producing { run: self, graph, emit: &emit, on_device, outcome };
                let produced = producing.produce(numbers, Some(&[])).and_then(|()| outcome.check());
                match &produced {
                    Ok(()) => sender.finish(),
                    Err(error) => sender.fail(error.to_string()),
                }
                produced
            };
            let produced =
                scope.spawn_deep(produced).map_err(|error| RunError::Thread(error.to_string()))?;
            // An error: the producer is done, and has sent nothing.
            let _ = begun.recv();
            // Nothing is locked while the reader runs: the producer goes on meanwhile.
            let (taken, why_not) = (outcome.taken.lock().take(), outcome.why_not.lock().take());
            let consumed = taken.unwrap_or_else(|| on_host(&table, why_not));
            drop(table);
            let panicked = |_| Err(RunError::Thread(format!("the stage over {name} panicked")));
            // A failed producer fails its reader too: the producer's error is the cause.
            produced.join().unwrap_or_else(panicked)?;
            consumed
        })
    }

    /// Whether a pipeline over groups on a GPU runs there sooner, or why not.
    pub(crate) fn stays(
        &self,
        pipeline: &Pipeline,
        lefts: &[&GroupsLeft<'_>],
    ) -> Result<(), WhyNot> {
        let (settings, groups) = (self.request.settings, groups_of(lefts));
        let may_compile = settings.processor != Processor::Auto || settings.behind;
        let are_many = groups >= AUTO_GROUPS_MIN;
        let has_run = || self.runner.placements().has_run_over_groups(pipeline);
        if may_compile || are_many || has_run() {
            return Ok(());
        }
        Err(WhyNot::new(format!("auto: the cores read {groups} groups sooner")))
    }

    /// Runs a pipeline over the groups that other stages left on a GPU.
    pub(crate) fn over_groups(
        &self,
        pipeline: &Pipeline,
        builds: &[Arc<BuildTable>],
        lefts: &[&GroupsLeft<'_>],
        outlet: Outlet<'_>,
    ) -> OnDevice<Streamed> {
        let (settings, placements) = (self.request.settings, self.runner.placements());
        if let Err(why) = self.stays(pipeline, lefts) {
            return Ok(Err(why));
        }
        let watched = outlet.watched();
        let table = &StreamTable::of_source(&pipeline.source, std::iter::empty());
        let done = watched.through(|outlet| {
            let task = Task {
                pipeline,
                table,
                builds,
                build_options: BuildOptions::default(),
                settings,
                runner: self.runner,
                groups: &self.runner.groups_above(),
                threads: settings.threads,
                limit: self.limit.as_ref(),
                token: self.request.token,
                outlet,
            };
            cuda::run_over(&task, lefts)
                .map_err(|error| self.runner.functions().with_gpus_lost(error, pipeline))
        });
        match done {
            Ok(done) => {
                placements.ran_over_groups(pipeline);
                Ok(Ok(Streamed { done, processor: "cuda", why_not: None }))
            }
            Err(error) => match gpu_refusal(&error) {
                Some(reason) if !watched.has_left() => Ok(Err(reason)),
                _ => Err(error),
            },
        }
    }
}

/// A batch under the schema of a union, whose members may differ in the names of columns, and in which of them may be NULL.
fn under(schema: &SchemaRef, batch: RecordBatch) -> Result<RecordBatch, RunError> {
    if batch.schema_ref() == schema {
        return Ok(batch);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let (_, columns, _) = batch.into_parts();
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
    batch.map_err(|error| ExecError::Internal(format!("rows of another stage: {error}")).into())
}

/// What became of the output of all stages that are read.
struct Outcome<T> {
    /// Whether no more rows are wanted.
    is_enough: AtomicBool,
    /// Why rows could not be passed on.
    failed: Mutex<Option<RunError>>,
    /// What was made of them on the GPU.
    taken: Mutex<Option<Result<T, RunError>>>,
    /// Why nothing was.
    why_not: Mutex<Option<WhyNot>>,
}

impl<T> Default for Outcome<T> {
    fn default() -> Self {
        Self {
            is_enough: AtomicBool::new(false),
            failed: Mutex::new(None),
            taken: Mutex::new(None),
            why_not: Mutex::new(None),
        }
    }
}

impl<T> Outcome<T> {
    /// Keeps an error; no more rows are wanted.
    fn fail(&self, error: RunError) -> bool {
        self.failed.lock().get_or_insert(error);
        false
    }

    fn check(&self) -> Result<(), RunError> {
        self.failed.lock().take().map_or(Ok(()), Err)
    }
}

/// Stages that are read one after the other.
struct Producing<'p, 'a, T, F> {
    run: &'p Run<'a>,
    graph: &'p Graph<'p>,
    emit: Emit<'p>,
    on_device: &'p F,
    outcome: &'p Outcome<T>,
}

impl<T: Send, F: Fn(&[&GroupsLeft<'_>]) -> OnDevice<T> + Sync> Producing<'_, '_, T, F> {
    /// Runs stages. `lefts`: the groups of all stages before them, which lie on a GPU; `None`: some came to the host, and
    /// so do the others.
    fn produce(
        &self,
        numbers: &[usize],
        lefts: Option<&[&GroupsLeft<'_>]>,
    ) -> Result<(), RunError> {
        let Some((&number, others)) = numbers.split_first() else { return Ok(()) };
        if self.outcome.is_enough.load(Ordering::Relaxed) {
            return Ok(());
        }
        let stage = self.graph.stage(number)?;
        // Rows go to the host one by one while the reader already runs: nothing is left to be asked for then.
        let brings_groups = matches!(stage.sink, Sink::Aggregate { .. });
        if !brings_groups {
            self.note(WhyNot::new(format!("the rows of {} come to the host", stage.source.table)));
        }
        // What became of the other stages, if they ran while the groups of this one lay on the GPU.
        let beyond = Mutex::new(None);
        let take = |left: TakenGroups<'_, '_>| {
            let (left, lefts) = match (left, lefts) {
                (Ok(left), Some(lefts)) => (left, lefts),
                (Err(why), _) => return self.note(why),
                (Ok(_), None) => return false,
            };
            let lefts: Vec<&GroupsLeft<'_>> = lefts.iter().copied().chain([left]).collect();
            if others.is_empty() {
                return self.taken((self.on_device)(&lefts));
            }
            let ran = self.produce(others, Some(&lefts));
            let is_taken = ran.is_err() || self.outcome.taken.lock().is_some();
            *beyond.lock() = Some(ran);
            is_taken
        };
        let take = (brings_groups && lefts.is_some()).then_some(&take as TakeGroups<'_>);
        let outlet = Outlet { emit: self.emit, take };
        self.run.stream_stage(self.graph, number, self.run.request.settings, outlet)?;
        if let Some(ran) = beyond.into_inner() {
            return ran;
        }
        if lefts.is_some_and(|lefts| !lefts.is_empty()) && self.outcome.taken.lock().is_none() {
            // Unless the GPU has told why itself.
            let table = &stage.source.table;
            self.note(WhyNot::new(format!("the groups of {table} do not lie beside the others")));
        }
        self.produce(others, None)
    }

    /// Keeps why groups come to the host; they are not taken.
    fn note(&self, why: WhyNot) -> bool {
        self.outcome.why_not.lock().get_or_insert(why);
        false
    }

    /// Keeps what was made of all groups on the GPU; whether it was.
    fn taken(&self, made: OnDevice<T>) -> bool {
        let made = match made {
            Ok(Err(why)) => return self.note(why),
            Ok(Ok(made)) => Ok(made),
            Err(error) => Err(error),
        };
        *self.outcome.taken.lock() = Some(made);
        true
    }
}
