//! Rows one by one: once few rows are left, they wait in a queue of the warp until there is one
//! for each lane (`queue.cuh`).
//!
//! ```text
//! u32 alive = ..
//! do { steps over the thread's ROWS rows } while (false);
//! queued = hr::enqueue(queue, queued, alive, tile - first);
//! while (a row for each lane waits, or any and this is the last tile) {
//!     ROWS = 1, alive, row: those of the lane
//!     ... all later steps and the sink ...
//! }
//! ```
//!
//! The later steps are generated as the others are; what they read is loaded again, row by row.

use headrace_pipeline::bound::{BoundExpr, BoundSink, BoundStep};

use crate::codegen::generator::Generator;
use crate::codegen::plan::eager::{may_load_ahead, selectivity, step_expressions};
use crate::codegen::plan::probes::walks_step;
use crate::codegen::plan::shared::SharedItem;
use crate::codegen::refusal::Result;
use crate::codegen::value::Held;

/// Columns are loaded ahead as long as at least this share of the rows gets to them.
const NEXT_RATE_MIN: f64 = 0.5;

impl Generator<'_> {
    /// Opens the steps over the thread's rows: `continue` leaves them.
    pub(super) fn open_tile(&mut self) {
        self.body.open("do");
        self.body.line("if (alive == 0) continue;");
    }

    /// From here on rows are taken one by one.
    pub(super) fn take_one_by_one(&mut self) -> Result<()> {
        self.body.close_with(" while (false);");
        self.body.line("");
        self.body.comment("rows that are left, one by one");
        self.body.line("queued = hr::enqueue(queue, queued, alive, tile - first);");
        self.body.open("while (queued >= HR_LANES || (tile + 1 == end && queued != 0))");
        self.body.line("constexpr u32 ROWS = 1;");
        self.body.line("const u32 taken = hr::least(queued, HR_LANES);");
        self.body.line("queued -= taken;");
        self.body.line("const u32 row = hr::queued_row(queue[queued + hr::least(hr::lane(), taken - 1u)], first_row);");
        self.body.line("u32 alive = hr::lane() < taken;");
        self.body.line("__syncwarp();");
        self.body.line("if (alive == 0) continue;");
        self.check_pending = false;
        self.one_by_one = true;
        let bound = self.bound;
        for register in 0..bound.source_registers {
            self.held[register] = Held::NotLoaded;
        }
        let before = self.queue_step.unwrap_or(0);
        for (step, kind) in bound.steps.iter().enumerate().take(before) {
            if let BoundStep::Probe(probe) = kind {
                let own = probe.first_register..probe.first_register + probe.payload.len();
                own.for_each(|register| self.held[register] = Held::Late { step });
            }
        }
        self.load_next_ahead(before)
    }

    /// Where a row waits for memory, it waits for all that most such rows will need: for the
    /// columns of the steps from `from` on and of the sink, as far as most rows get there.
    pub(super) fn load_next_ahead(&mut self, from: usize) -> Result<()> {
        let bound = self.bound;
        let mut wanted = Vec::new();
        let mut rate = 1.0;
        for step in bound.steps.iter().skip(from) {
            if rate < NEXT_RATE_MIN || walks_step(step) {
                break;
            }
            wanted.extend(step_expressions(step).into_iter().flat_map(BoundExpr::registers));
            rate *= selectivity(step);
            if wanted.iter().all(|&column| !self.is_missing(column)) {
                // The row does not wait here.
                return Ok(());
            }
        }
        if rate >= NEXT_RATE_MIN && !self.walks {
            wanted.extend(self.sink_columns());
        }
        for column in wanted {
            if self.is_missing(column) && may_load_ahead(bound, self.layout, column) {
                self.require_register(column)?;
            }
        }
        Ok(())
    }

    fn is_missing(&self, register: usize) -> bool {
        register < self.bound.source_registers && matches!(self.held[register], Held::NotLoaded)
    }

    /// Source columns that an aggregation reads, keys of late payloads included.
    fn sink_columns(&self) -> Vec<usize> {
        let BoundSink::Aggregate { keys, accumulators, .. } = &self.bound.sink else {
            return Vec::new();
        };
        let arguments = accumulators.iter().filter_map(|a| a.argument.as_ref());
        let own = keys.iter().map(|key| &key.expr).chain(arguments).flat_map(BoundExpr::registers);
        own.flat_map(|register| match self.held[register] {
            Held::Late { step } => match &self.bound.steps[step] {
                BoundStep::Probe(probe) => {
                    probe.keys.iter().flat_map(BoundExpr::registers).collect()
                }
                _ => Vec::new(),
            },
            _ => vec![register],
        })
        .collect()
    }

    /// Closes the loop over the rows that wait.
    pub(super) fn close_queue(&mut self) {
        self.body.close();
    }

    /// What stands before the tile loop.
    pub(super) fn queue_lines(&mut self, offset: u64) -> [String; 2] {
        let at = self.constant(offset, "u32", "queue_at");
        [
            format!(
                "u16* queue = reinterpret_cast<u16*>(shared_memory + {at}) + threadIdx.x / HR_LANES * HR_QUEUE;"
            ),
            "u32 queued = 0;".to_string(),
        ]
    }

    /// Whether the queue takes part in the plan of the shared memory.
    pub(super) fn name_queue(&mut self) {
        if self.queue_step.is_some() {
            let entries = &mut self.shared.entries;
            if let Some(entry) = entries.iter_mut().find(|e| e.item == SharedItem::Queue) {
                entry.name = Some("queue".into());
            }
        }
    }
}
