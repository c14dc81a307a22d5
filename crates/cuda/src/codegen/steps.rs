//! Filters and computed columns.

use headrace_pipeline::bound::{BoundExpr, BoundStep};

use crate::codegen::describe;
use crate::codegen::generator::Generator;
use crate::codegen::refusal::Result;
use crate::codegen::text::{c_type, operand};
use crate::codegen::value::Held;

/// Whether two filters may be evaluated at once.
fn filters_together(first: &BoundExpr, next: &BoundExpr) -> bool {
    let (mut a, mut b) = (first.registers(), next.registers());
    a.sort_unstable();
    b.sort_unstable();
    a == b && !first.can_fail() && !next.can_fail() && !first.nullable && !next.nullable
}

impl Generator<'_> {
    /// The step at an index, and filters of the same columns that follow it; the answer is the
    /// step after them.
    pub(super) fn steps_at(&mut self, index: usize) -> Result<usize> {
        let bound = self.bound;
        let step = &bound.steps[index];
        self.headline(&describe::step(bound, step));
        match self.one_by_one {
            true => self.load_next_ahead(index)?,
            false => self.load_ahead(index, step)?,
        }
        match step {
            BoundStep::Filter { expr, .. } => {
                let mut together = vec![expr];
                while let Some(BoundStep::Filter { expr: next, .. }) =
                    bound.steps.get(index + together.len())
                    && self.queue_step != Some(index + together.len())
                    && filters_together(expr, next)
                {
                    let step = &bound.steps[index + together.len()];
                    self.body.comment(&describe::step(bound, step));
                    together.push(next);
                }
                self.filters(&together)?;
                return Ok(index + together.len());
            }
            BoundStep::Compute { register, expr } => self.compute(*register, expr)?,
            BoundStep::Probe(probe) => self.probe(index, probe)?,
        }
        Ok(index + 1)
    }

    /// Counts the rows that a step left, unless it keeps all.
    pub(super) fn count_left(&mut self, step: usize) {
        if matches!(self.bound.steps[step], BoundStep::Compute { .. }) {
            return;
        }
        let name = self.names.unique(&format!("left_{step}"));
        self.body.line(format!("{name} += __popc(alive);"));
        self.left.push((step, name));
    }

    /// Filters of the same columns none of which can fail, or a single one.
    fn filters(&mut self, filters: &[&BoundExpr]) -> Result<()> {
        let [first, _, ..] = filters else {
            return filters.first().map_or(Ok(()), |only| self.filter(only));
        };
        self.require(first)?;
        self.body.open("EACH_ROW(r)");
        let mut all = Vec::with_capacity(filters.len());
        for filter in filters {
            all.push(format!("bool({})", self.truth(filter)?));
        }
        self.body.line(format!("if (!({})) alive &= ~(1u << r);", all.join(" & ")));
        self.body.close();
        self.check_pending = true;
        Ok(())
    }

    pub(super) fn filter(&mut self, expr: &BoundExpr) -> Result<()> {
        self.require(expr)?;
        self.body.open("EACH_ROW(r)");
        if expr.can_fail() {
            self.body.open("if (alive >> r & 1u)");
            let keep = self.truth(expr)?;
            self.body.line(format!("if (!{}) alive &= ~(1u << r);", operand(&keep)));
            self.body.close();
        } else {
            let keep = self.truth(expr)?;
            self.body.line(format!("if (!{}) alive &= ~(1u << r);", operand(&keep)));
        }
        self.body.close();
        self.check_pending = true;
        Ok(())
    }

    fn compute(&mut self, register: usize, expr: &BoundExpr) -> Result<()> {
        self.require(expr)?;
        self.leave_if_dead();
        let info = &self.bound.registers[register];
        let kind = c_type(&info.repr)?;
        let name = self.names.unique(&describe::register_name(self.bound, register));
        let may_be_null = self.may_be_null(expr);
        self.body.line(format!("{kind} {name}[ROWS];"));
        let valid = may_be_null.then(|| self.names.unique(&format!("{name}_valid")));
        if let Some(valid) = &valid {
            self.body.line(format!("u32 {valid} = 0;"));
        }
        self.body.open("EACH_ROW(r)");
        self.body.line(format!("{name}[r] = {kind}(0);"));
        self.body.open("if (alive >> r & 1u)");
        let value = self.value(expr)?;
        match (&valid, &value.null) {
            (Some(valid), Some(null)) => {
                self.body.open(format!("if (!({null}))"));
                self.body.line(format!("{name}[r] = {};", value.code));
                self.body.line(format!("{valid} |= 1u << r;"));
                self.body.close();
            }
            (Some(valid), None) => {
                self.body.line(format!("{name}[r] = {};", value.code));
                self.body.line(format!("{valid} |= 1u << r;"));
            }
            (None, _) => self.body.line(format!("{name}[r] = {};", value.code)),
        }
        self.body.close();
        self.body.close();
        self.held[register] = Held::Array { name, valid };
        Ok(())
    }
}
