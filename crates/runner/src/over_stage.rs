//! A stage that reads another one while that runs.
//!
//! ```text
//! on the host:    producer ─► batches, a few at a time ─► reader
//! on a GPU:       producer ─► groups in device memory ─► reader, when the producer is done
//! ```
//!
//! The producer decides by what becomes of it: if a GPU is left with all of its groups, the reader is asked to run
//! over them there. Otherwise, or if the GPU does not take the reader, batches come, and the reader runs on the cores.
//! A reader on the cores begins with the first batch: until then the groups may still stay on the GPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use arrow_schema::Schema;
use headrace_columns::column::arrow_field;
use headrace_cuda::{GroupsLeft, TakeGroups};
use headrace_format::batches::{BatchTable, batch_channel};
use headrace_ir::{Pipeline, Sink};
use headrace_pipeline::build::BuildOptions;
use headrace_pipeline::{BuildTable, WhyNot};
use parking_lot::Mutex;

use crate::cuda;
use crate::error::RunError;
use crate::graph::Graph;
use crate::run::{Run, Streamed, gpu_refusal};
use crate::settings::Processor;
use crate::table::StreamTable;
use crate::task::{OnDevice, Outlet, Task};

/// Batches that wait between a stage and the one that reads it.
const WAITING_BATCHES: usize = 8;

/// Of fewer groups the cores have made an answer before a kernel is compiled; a rehearsal compiles it.
const AUTO_GROUPS_MIN: u64 = 1 << 20;

impl Run<'_> {
    /// Does something with the output of a stage, which runs meanwhile: `on_host` with its rows, after what `on_device`
    /// said why it cannot have its groups, or `on_device` with these.
    pub(crate) fn over_stage<T: Send>(
        &self,
        graph: &Graph<'_>,
        number: usize,
        on_host: impl FnOnce(&StreamTable, Option<WhyNot>) -> Result<T, RunError>,
        on_device: impl Fn(&GroupsLeft<'_>) -> OnDevice<T> + Sync,
    ) -> Result<T, RunError> {
        let (stage, settings) = (graph.stage(number)?, self.request.settings);
        let columns = stage.sink.output().unwrap_or_default();
        let schema = Schema::new(columns.iter().map(arrow_field).collect::<Vec<_>>());
        let (sender, receiver) = batch_channel(WAITING_BATCHES);
        let name = &stage.source.table;
        let table = StreamTable::new(name, Arc::new(BatchTable::new(name, &schema, receiver)));
        // Rows go to the host one by one while the reader already runs: nothing is left to be asked for then.
        let brings_groups = matches!(stage.sink, Sink::Aggregate { .. });
        let rows = || WhyNot::new(format!("the rows of {name} come to the host"));
        let (taken, why_not) = (Mutex::new(None), Mutex::new((!brings_groups).then(rows)));
        let take = |left: Result<&GroupsLeft<'_>, WhyNot>| {
            let refused = match left.map(&on_device) {
                Ok(Ok(Err(why))) | Err(why) => why,
                Ok(Ok(Ok(done))) => {
                    *taken.lock() = Some(Ok(done));
                    return true;
                }
                Ok(Err(error)) => {
                    *taken.lock() = Some(Err(error));
                    return true;
                }
            };
            *why_not.lock() = Some(refused);
            false
        };
        let (begins, begun) = mpsc::channel();
        std::thread::scope(|scope| {
            // Moved here: a producer must see that its reader is gone, by a panic too.
            let table = table;
            let take: TakeGroups<'_> = &take;
            let produced = scope.spawn(move || {
                headrace_io::block_signals();
                let has_begun = AtomicBool::new(false);
                let emit = |batch| {
                    if !has_begun.swap(true, Ordering::Relaxed) {
                        // Nobody waits where the reader is gone.
                        let _ = begins.send(());
                    }
                    sender.send(batch)
                };
                let outlet = Outlet { emit: &emit, take: brings_groups.then_some(take) };
                let produced = self.stream_stage(graph, number, settings, outlet);
                match &produced {
                    Ok(()) => sender.finish(),
                    Err(error) => sender.fail(error.to_string()),
                }
                produced
            });
            // An error: the producer is done, and has sent nothing.
            let _ = begun.recv();
            // Nothing is locked while the reader runs: the producer goes on meanwhile.
            let (taken, why_not) = (taken.lock().take(), why_not.lock().take());
            let consumed = taken.unwrap_or_else(|| on_host(&table, why_not));
            drop(table);
            let panicked = |_| Err(RunError::Thread(format!("the stage over {name} panicked")));
            // A failed producer fails its reader too: the producer's error is the cause.
            produced.join().unwrap_or_else(panicked)?;
            consumed
        })
    }

    /// Whether a pipeline over groups on a GPU runs there sooner, or why not.
    pub(crate) fn stays(&self, pipeline: &Pipeline, left: &GroupsLeft<'_>) -> Result<(), WhyNot> {
        let settings = self.request.settings;
        let may_compile = settings.processor != Processor::Auto || settings.behind;
        let are_many = left.rows() >= AUTO_GROUPS_MIN;
        let has_run = || self.runner.placements().has_run_over_groups(pipeline);
        if may_compile || are_many || has_run() {
            return Ok(());
        }
        Err(WhyNot::new(format!("auto: the cores read {} groups sooner", left.rows())))
    }

    /// Runs a pipeline over the groups that another stage left on a GPU.
    pub(crate) fn over_groups(
        &self,
        pipeline: &Pipeline,
        builds: &[Arc<BuildTable>],
        left: &GroupsLeft<'_>,
        outlet: Outlet<'_>,
    ) -> OnDevice<Streamed> {
        let (settings, placements) = (self.request.settings, self.runner.placements());
        if let Err(why) = self.stays(pipeline, left) {
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
            cuda::run_over(&task, left)
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
