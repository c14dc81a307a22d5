//! Probes of builds with duplicate keys: loops over the rows of a key.
//!
//! ```text
//! u32 dim_match[ROWS]                     first build row of each row's key, or EMPTY
//! while (true) {                             one pass: one more match of each row that has one
//!     alive = 0
//!     payload, alive |= .., dim_match = next
//!     if (alive == 0) break
//!     ... all later steps and the sink ...   where these say `continue`, the next pass begins
//! }
//! ```
//!
//! Rows that are all paired with the same rows of a build go through these together ([`super::pairs`]).
//!
//! A semi, anti or mark join under a residual condition closes its loop at once: it only asks whether
//! any match satisfies the condition.

use headrace_ir::ProbeKind;
use headrace_pipeline::bound::{BoundExpr, BoundProbe};

use crate::codegen::generator::Generator;
use crate::codegen::payload::Appended;
use crate::codegen::plan::pairs::{CountedPairs, CountedWith};
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::value::Held;
use crate::tables::BuildPiece;

impl Generator<'_> {
    /// A probe that loops; its keys are loaded.
    pub(super) fn walk(&mut self, step: usize, probe: &BoundProbe) -> Result<()> {
        if let Some(residual) = &probe.residual {
            self.require_before(probe, residual)?;
        }
        self.leave_if_dead();
        let chain = self.names.unique("match");
        self.body.line(format!("u32 {chain}[ROWS];"));
        self.body.open("EACH_ROW(r)");
        self.body.line(format!("{chain}[r] = hr::EMPTY;"));
        self.body.open("if (alive >> r & 1u)");
        self.find_hashed(step, probe, &[], false, Some(&chain))?;
        self.body.close();
        self.body.close();
        if let Some(CountedPairs { own, width, with: CountedWith::Rows { step: at, column, .. } }) =
            self.shared.pairs
            && at == step
        {
            return self.walk_pairs((own, width), (step, column), probe, &chain);
        }
        match probe.kind {
            ProbeKind::Inner => self.walk_inner(step, probe, &chain),
            ProbeKind::Left => self.walk_left(step, probe, &chain),
            _ => self.walk_asking(step, probe, &chain),
        }
    }

    /// Loads what a residual condition reads of the rows themselves: it must outlive the loop.
    fn require_before(&mut self, probe: &BoundProbe, residual: &BoundExpr) -> Result<()> {
        let own = probe.first_register..probe.first_register + probe.payload.len();
        for register in residual.registers() {
            if !own.contains(&register) {
                self.require_register(register)?;
            }
        }
        Ok(())
    }

    /// Opens the loop and takes the next match of each row.
    fn next_matches(&mut self, step: usize, probe: &BoundProbe, chain: &str) -> Result<()> {
        self.body.open("while (true)");
        self.body.line("alive = 0;");
        let appended: Vec<Appended> = self.declare_payload(probe)?;
        self.body.open("EACH_ROW(r)");
        for a in &appended {
            self.body.line(format!("{}[r] = {};", a.name, a.zero));
        }
        self.body.open(format!("if ({chain}[r] != hr::EMPTY)"));
        self.body.line(format!("const u32 slot = {chain}[r];"));
        self.body.line("alive |= 1u << r;");
        self.read_payload(step, probe, &appended, None, "slot");
        let next = self.piece(step, BuildPiece::HashNext, "u32");
        self.body.line(format!("{chain}[r] = hr::entry({next}, slot);"));
        self.body.close();
        self.body.close();
        self.hold(probe, &appended);
        Ok(())
    }

    fn walk_inner(&mut self, step: usize, probe: &BoundProbe, chain: &str) -> Result<()> {
        self.next_matches(step, probe, chain)?;
        self.body.line("if (alive == 0) break;");
        self.open_loops.push(None);
        match &probe.residual {
            Some(residual) => self.filter(residual),
            None => Ok(()),
        }
    }

    /// Rows without a match follow in a last pass, their payload NULL.
    fn walk_left(&mut self, step: usize, probe: &BoundProbe, chain: &str) -> Result<()> {
        let lone = self.names.unique("lone");
        self.body.line(format!("u32 {lone} = alive;"));
        self.next_matches(step, probe, chain)?;
        self.body.open("if (alive == 0)");
        self.body.line(format!("alive = {lone};"));
        self.body.line(format!("{lone} = 0;"));
        self.body.line("if (alive == 0) break;");
        self.body.otherwise();
        if let Some(residual) = &probe.residual {
            self.filter(residual)?;
        }
        self.body.line(format!("{lone} &= ~alive;"));
        self.body.close();
        self.open_loops.push(None);
        Ok(())
    }

    /// Whether any match satisfies the residual condition.
    fn walk_asking(&mut self, step: usize, probe: &BoundProbe, chain: &str) -> Result<()> {
        let Some(residual) = &probe.residual else {
            return refuse("a loop over matches that decides nothing");
        };
        let asked = self.names.unique("asked");
        let answered = self.names.unique("answered");
        self.body.line(format!("const u32 {asked} = alive;"));
        self.body.line(format!("u32 {answered} = 0;"));
        self.next_matches(step, probe, chain)?;
        self.body.line("if (alive == 0) break;");
        self.filter(residual)?;
        self.body.line(format!("{answered} |= alive;"));
        self.body.line(format!("EACH_ROW(r) if (alive >> r & 1u) {chain}[r] = hr::EMPTY;"));
        self.body.close();
        // The payload is gone with the loop.
        let end = probe.first_register + probe.payload.len();
        for register in probe.first_register..end {
            self.held[register] = Held::NotLoaded;
        }
        if probe.kind == ProbeKind::Mark {
            self.body.line(format!("alive = {asked};"));
            self.held[end] = Held::Bits { name: answered };
            return Ok(());
        }
        let not = if probe.kind == ProbeKind::Semi { "" } else { "~" };
        self.body.line(format!("alive = {asked} & {not}{answered};"));
        self.check_pending = true;
        Ok(())
    }

    /// Closes the loops that stayed open up to the sink.
    pub(super) fn close_loops(&mut self) {
        for behind in std::mem::take(&mut self.open_loops).into_iter().rev() {
            self.body.close();
            if let Some(behind) = behind {
                self.body.line(behind);
            }
        }
    }
}
