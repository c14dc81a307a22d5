//! Common bits that the threads of a warp count together (`pairs.cuh`): of a column and a constant where the column is loaded, and
//! of all pairs of the rows with those of a build.
//!
//! ```text
//! hr::Pairs<ROWS, 128> pairs(..)
//! for (turn = 0; slot is a row of the build; ++turn) {
//!     pairs.take(turn, ..)                   the first of sixteen has the common bits of all of them counted
//!     alive = those that are paired, payload = that of the slot, slot = next
//!     ... all later steps and the sink ...
//! }
//! ```

use headrace_ir::Function;
use headrace_pipeline::bound::{BoundExpr, BoundProbe};

use crate::codegen::generator::Generator;
use crate::codegen::plan::pairs::{CountedPairs, CountedWith};
use crate::codegen::plan::shared::SharedItem;
use crate::codegen::refusal::Result;
use crate::fields::SegmentField;
use crate::tables::BuildPiece;

/// The variable with the counts.
const PAIRS: &str = "pairs";

/// Where warps count.
const COUNTS: &str = "shared_counts";

impl Generator<'_> {
    /// A probe whose rows are counted; `chain` has the first of them for each row.
    pub(super) fn walk_pairs(
        &mut self,
        (own, width): (usize, usize),
        (step, column): (usize, usize),
        probe: &BoundProbe,
        chain: &str,
    ) -> Result<()> {
        let shared = self.counts_place();
        let values = self.segment_field(SegmentField::Values(own), "paired_values");
        let theirs = self.piece(step, BuildPiece::Payload(column), "u8");
        let next = self.piece(step, BuildPiece::HashNext, "u32");
        self.body.line("const u32 all_alive = alive, together = __activemask();");
        self.body.line(format!("u32 paired = hr::first_of_pairs(together, {chain});"));
        self.body.line(format!(
            "hr::Pairs<ROWS, {width}> {PAIRS}({shared}, together, {values}, row, rows, {theirs});"
        ));
        self.body.open("for (u32 turn = 0; paired != hr::EMPTY; ++turn)");
        self.body.line(format!("{PAIRS}.take(turn, {next}, paired);"));
        self.body.line("alive = all_alive;");
        let appended = self.declare_payload(probe)?;
        self.body.open("EACH_ROW(r)");
        self.read_payload(step, probe, &appended, None, "paired");
        self.body.close();
        self.body.line(format!("paired = hr::entry({next}, paired);"));
        self.hold(probe, &appended);
        self.open_loops.push(Some(format!("{PAIRS}.leave();")));
        match &probe.residual {
            Some(residual) => self.filter(residual),
            None => Ok(()),
        }
    }

    /// Where warps count.
    fn counts_place(&mut self) -> &'static str {
        let entries = &mut self.shared.entries;
        if let Some(entry) = entries.iter_mut().find(|entry| entry.item == SharedItem::Pairs) {
            entry.name = Some(COUNTS.into());
        }
        COUNTS
    }

    /// Counts the bits that a column which is loaded has in common with a constant, if they are to be.
    pub(super) fn count_likeness(&mut self, own: usize, values: &str) -> Result<()> {
        let Some(CountedPairs { own: of, width, with: CountedWith::Constant(bytes) }) =
            self.shared.pairs.clone()
        else {
            return Ok(());
        };
        if of != own {
            return Ok(());
        }
        let shared = self.counts_place();
        let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
        let ones = self.constant(ones.into(), "u32", "counted_ones");
        let constant = self.bytes_literal(&bytes, "counted")?;
        self.body.line(format!(
            "const hr::Likeness<ROWS, {width}> {PAIRS}({shared}, {values}, row, rows, {constant}, {ones});"
        ));
        Ok(())
    }

    /// The value of a function of two values whose bits are counted.
    pub(super) fn counted_pair(
        &self,
        function: Function,
        arguments: &[BoundExpr],
    ) -> Option<String> {
        let is_counted = self.shared.pairs.as_ref()?.is_of(function, arguments);
        is_counted.then(|| format!("{PAIRS}.{}(r)", function.name()))
    }
}
