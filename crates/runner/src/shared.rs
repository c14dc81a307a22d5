//! Groups, or few rows, that several stages read: they are made once, and kept until the program ends.
//!
//! ```text
//! on a GPU:       producer ─► groups in device memory ─► all that is left of the program, then the groups go
//! on the host:    producer ─► batches that are held   ─► each reader, in its turn
//! ```
//!
//! Where one reader cannot run on the GPU, the groups come to the host for all. What takes more than a part of the
//! operators' memory is not held: each reader has the stage run again.

use arrow_array::RecordBatch;
use headrace_cuda::GroupsLeft;
use headrace_io::{MemoryUse, Reservation};
use headrace_ir::{Input, Sink};
use headrace_pipeline::WhyNot;
use headrace_spill::batch_bytes;
use parking_lot::Mutex;

use crate::builds::{HELD_SHARE, Making};
use crate::error::RunError;
use crate::graph::{Beyond, Graph, HeldRows};
use crate::run::Run;
use crate::task::{Emit, OnDevice, Outlet, TakenGroups};

/// What comes of a stage whose groups are kept.
struct Keeping {
    batches: Vec<RecordBatch>,
    memory: Reservation,
    bytes_max: u64,
    is_too_much: bool,
    /// Why the groups are not on a GPU.
    why_not: Option<WhyNot>,
    /// The rest of the program, if it ran there.
    beyond: Option<Result<(Beyond, Making), RunError>>,
}

impl Keeping {
    /// Holds rows; `false`: there are too many.
    fn hold(&mut self, batch: RecordBatch) -> bool {
        let bytes = self.memory.bytes() + batch_bytes(&batch);
        self.is_too_much |= bytes > self.bytes_max || self.memory.resize(bytes).is_err();
        if !self.is_too_much {
            self.batches.push(batch);
        }
        !self.is_too_much
    }

    fn held(self) -> Option<HeldRows> {
        let Self { batches, memory, why_not, is_too_much, .. } = self;
        (!is_too_much).then_some(HeldRows { batches, why_not, memory })
    }
}

impl Run<'_> {
    /// Makes the groups of a stage and keeps them for all that read them. `Some`: they lay on a GPU, and the rest of the
    /// program ran there.
    pub(crate) fn share(
        &self,
        graph: &mut Graph<'_>,
        stage: usize,
        emit: Emit<'_>,
    ) -> Result<Option<Making>, RunError> {
        let keeping = Mutex::new(Keeping {
            batches: Vec::new(),
            memory: self.runner.budget().reserve_nothing(MemoryUse::Operators),
            bytes_max: (self.runner.memory().operator_bytes / HELD_SHARE)
                .saturating_sub(graph.held_bytes()),
            is_too_much: false,
            why_not: None,
            beyond: None,
        });
        let before = &*graph;
        let hold = |batch| keeping.lock().hold(batch);
        let take = |left: TakenGroups<'_, '_>| {
            let (beyond, why_not) = match left.map(|left| self.beyond(before, stage, left, emit)) {
                Ok(Ok(Err(why))) | Err(why) => (None, Some(why)),
                Ok(Ok(Ok(beyond))) => (Some(Ok(beyond)), None),
                Ok(Err(error)) => (Some(Err(error)), None),
            };
            let is_taken = beyond.is_some();
            let mut keeping = keeping.lock();
            (keeping.beyond, keeping.why_not) = (beyond, why_not);
            is_taken
        };
        // Rows go to the host one by one: nothing is left to be asked for then.
        let brings_groups = matches!(before.stage(stage)?.sink, Sink::Aggregate { .. });
        let outlet = Outlet { emit: &hold, take: brings_groups.then_some(&take) };
        self.stream_stage(before, stage, self.request.settings, outlet)?;
        let mut keeping = keeping.into_inner();
        if let Some(beyond) = keeping.beyond.take() {
            let (beyond, making) = beyond?;
            graph.go_beyond(stage, beyond);
            return Ok(Some(making));
        }
        graph.hold(stage, keeping.held());
        Ok(None)
    }

    /// Runs the rest of a program while the groups of a stage lie on a GPU, unless a reader of them cannot run there.
    fn beyond(
        &self,
        graph: &Graph<'_>,
        stage: usize,
        left: &GroupsLeft<'_>,
        emit: Emit<'_>,
    ) -> OnDevice<(Beyond, Making)> {
        let read = Input::Stage(stage);
        let readers = graph.program().all().filter(|reader| reader.source.input == read);
        for reader in readers {
            if let Err(why) = self.stays(reader, &[left]) {
                return Ok(Err(why));
            }
        }
        let mut graph = graph.beyond(stage, left);
        let watched = Outlet::from(emit).watched();
        match watched.through(|outlet| self.finish(&mut graph, outlet.emit)) {
            Ok(making) => Ok(Ok((graph.into_beyond(), making))),
            // A reader of the groups; what the host lacks it lacks the second time too.
            Err(RunError::WhyNot(why)) if !watched.has_left() => Ok(Err(why)),
            Err(error) => Err(error),
        }
    }
}
