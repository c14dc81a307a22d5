//! The shared state of a sort of records.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use headrace_flow::{HostConsumer, HostProducer, Race, RaceError, RaceOptions, RaceReport};
use headrace_io::ReadAt;
use headrace_io::write::WriteAt;

use super::layout::{Order, RecordLayout};
use super::records::Records;
use crate::files::temporary_folder;
use crate::{OocError, Options, Result, Room};

/// The sort to run.
#[derive(Debug, Clone)]
pub struct SortJob {
    /// File of contiguous records.
    pub input: PathBuf,
    /// The sorted output file. It may be the input, which is replaced at the end.
    pub output: PathBuf,
    /// How the records lie in both.
    pub layout: RecordLayout,
    /// The direction. Equal keys keep the order of the input.
    pub order: Order,
    /// Folder of temporary files, if memory is too small; `None`: beside the output.
    pub temporary_folder: Option<PathBuf>,
    /// Their limit in bytes; `None`: the free space. They take as much as the input, and more only if buckets must be
    /// partitioned again: keys that the sample missed, or memory of a few MB.
    pub temporary_limit_bytes: Option<u64>,
}

/// One call and its progress.
#[derive(Debug)]
pub(super) struct Work<'a> {
    pub job: &'a SortJob,
    pub options: &'a Options,
    pub room: &'a Room,
    pub records: &'a dyn Records,
    pub input: Arc<dyn ReadAt>,
    pub output: Arc<dyn WriteAt>,
    pub started: Instant,
    pub planned_ns: Option<u64>,
    pub passes: Vec<(&'static str, RaceReport)>,
    pub temporary_bytes: u64,
    /// Whether a temporary file is read.
    pub reads_temporary: bool,
    pub notes: Vec<String>,
}

impl Work<'_> {
    /// Options of a race whose slots come from the budget.
    pub fn race(&self) -> RaceOptions {
        RaceOptions { memory: Some(self.room.memory.clone()), ..self.options.race() }
    }

    /// Records the end of planning, if it was not recorded before.
    pub fn planned(&mut self) {
        let ns = self.started.elapsed().as_nanos() as u64;
        self.planned_ns.get_or_insert(ns);
    }

    /// Records a finished race.
    pub fn ran(
        &mut self,
        name: &'static str,
        outcome: std::result::Result<RaceReport, RaceError>,
    ) -> Result<()> {
        let report = outcome.map_err(|error| self.ended(error))?;
        self.passes.push((name, report));
        self.check_cancelled()
    }

    /// Error if the sort was cancelled.
    pub fn check_cancelled(&self) -> Result<()> {
        if self.options.token.is_cancelled() { Err(OocError::Cancelled) } else { Ok(()) }
    }

    /// The folder of temporary files.
    pub fn temporary_folder(&self) -> PathBuf {
        temporary_folder(self.job.temporary_folder.as_deref(), &self.job.output)
    }

    /// A temporary file of this many bytes.
    pub fn temporary(&mut self, bytes: u64) -> Result<Arc<dyn WriteAt>> {
        let wanted_bytes = self.temporary_bytes + bytes;
        let limit_bytes = self.job.temporary_limit_bytes.unwrap_or(u64::MAX);
        if wanted_bytes > limit_bytes {
            return Err(OocError::Memory {
                what: format!("sorting {}", self.input.path().display()),
                memory: "temporary files",
                wanted_bytes,
                limit_bytes,
                remedy: "raise the limit of temporary files, or that of memory".to_string(),
            });
        }
        let file = self.options.files.unnamed(&self.temporary_folder(), bytes)?;
        self.temporary_bytes = wanted_bytes;
        Ok(file)
    }

    /// The error of a race: an unnamed file is identified by its folder.
    fn ended(&self, error: RaceError) -> OocError {
        match error {
            RaceError::Read { source, .. } | RaceError::Changed(source) if self.reads_temporary => {
                let what = format!("a temporary file in this folder: {source}");
                OocError::input(self.temporary_folder(), what, "name another folder for them")
            }
            error => error.into(),
        }
    }

    /// Runs a race that is not a pass of its own with these consumers.
    pub fn look<C: HostConsumer>(&self, race: &Race, consumers: Vec<C>) -> Result<Vec<C>> {
        let outcome = race.run_host(consumers);
        Ok(outcome.map_err(|error| self.ended(error))?.0)
    }

    /// Runs a race with this many producers of a kind.
    pub fn run<P: HostProducer>(
        &mut self,
        name: &'static str,
        race: &Race,
        producers: Vec<P>,
    ) -> Result<Vec<P>> {
        match race.run_host_writing(producers) {
            Ok((producers, report)) => self.ran(name, Ok(report)).map(|()| producers),
            Err(error) => Err(self.ended(error)),
        }
    }
}
