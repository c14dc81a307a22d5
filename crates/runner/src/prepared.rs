//! Pipelines that ran over resident columns, kept ready for the next time.
//!
//! What is left to do then is one launch and one copy back: nothing is planned, bound, compiled or
//! described. A pipeline is known by its steps, the table, the builds it probes and the GPUs; one
//! whose columns have left the GPUs since is made anew.

use headrace_cuda::ResidentRuns;
use headrace_io::system::GpuFor;
use headrace_pipeline::build::BuildId;
use parking_lot::Mutex;

use crate::placement::Subject;
use crate::task::{Scope, Task};

/// Pipelines that are kept; the one used longest ago leaves.
const ENTRIES_MAX: usize = 64;

/// What makes two tasks the same.
struct Key {
    subject: Subject,
    builds: Vec<BuildId>,
    ordinals: Vec<usize>,
    /// Which GPUs take which files: with another setting the columns are wanted elsewhere.
    gpu_for: GpuFor,
}

/// A pipeline ready to run over resident columns.
pub(crate) struct Prepared {
    pub(crate) runs: ResidentRuns,
    pub(crate) scope: Scope,
    /// Why not all GPUs take part.
    pub(crate) notes: Vec<String>,
}

/// The pipelines that no query runs at the moment.
#[derive(Default)]
pub(crate) struct PreparedRuns {
    /// The one used last is the last.
    entries: Mutex<Vec<(Key, Prepared)>>,
}

impl std::fmt::Debug for PreparedRuns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PreparedRuns({})", self.entries.lock().len())
    }
}

impl PreparedRuns {
    /// Takes out what is ready for a task: no other query has it meanwhile.
    pub(crate) fn take(&self, task: &Task<'_>, ordinals: &[usize]) -> Option<Prepared> {
        let mut entries = self.entries.lock();
        let at = entries.iter().position(|(key, _)| key.is_of(task, ordinals))?;
        Some(entries.remove(at).1)
    }

    /// Keeps what is ready for a task, after a run.
    pub(crate) fn put(&self, task: &Task<'_>, ordinals: &[usize], prepared: Prepared) {
        let key = Key {
            subject: Subject::new(task.pipeline, task.table.source()),
            builds: build_ids(task).collect(),
            ordinals: ordinals.to_vec(),
            gpu_for: task.settings.gpu_for.clone(),
        };
        let mut entries = self.entries.lock();
        entries.retain(|(key, _)| key.subject.is_alive());
        if entries.len() == ENTRIES_MAX {
            entries.remove(0);
        }
        entries.push((key, prepared));
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }
}

impl Key {
    fn is_of(&self, task: &Task<'_>, ordinals: &[usize]) -> bool {
        self.ordinals == ordinals
            && self.gpu_for == task.settings.gpu_for
            && build_ids(task).eq(self.builds.iter().copied())
            && self.subject.is(task.pipeline, task.table.source())
    }
}

/// The builds that the pipeline probes; other stages' results do not matter.
fn build_ids<'a>(task: &'a Task<'_>) -> impl Iterator<Item = BuildId> + 'a {
    task.pipeline.probes().filter_map(|probe| Some(task.builds.get(probe.build)?.id))
}
