//! Runs the steps over one batch.

use std::rc::Rc;

use headrace_columns::load::SourceColumns;
use headrace_columns::select::and_truth;
use headrace_columns::simd::positions;
use headrace_columns::text::Texts;
use headrace_flow::Verdict;
use headrace_ir::ProbeKind;

use crate::ExecError;
use crate::bound::{Bound, BoundStep};
use crate::cpu::WorkerOptions;
use crate::cpu::context::Context;
use crate::cpu::eval::eval;
use crate::cpu::pairs::{PairStream, push_unmatched};
use crate::cpu::probe::{Probed, probe};
use crate::cpu::scan::{Portion, Scan};
use crate::cpu::sink::{Between, SinkState};

/// While more than this share of a batch is expected to be alive, filters read whole columns:
/// a cache line holds 16 values of 4 bytes, so gathering would touch nearly all of them.
const WHOLE_COLUMN_SHARE: f64 = 1.0 / 16.0;

/// The steps and the sink of one worker.
pub struct Runner<'a, 's> {
    pub bound: &'a Bound,
    pub sink: &'s mut SinkState,
    pub options: &'s WorkerOptions,
    /// Rows that each step left.
    pub left: &'s mut [u64],
    pub between: Between<'s>,
    /// Whether nobody wants more rows.
    pub is_over: bool,
}

impl<'a> Runner<'a, '_> {
    /// Runs the steps that a scan has left over rows of its segment.
    pub fn portion<'b>(
        &mut self,
        source: &'b SourceColumns<'b>,
        scan: &Scan<'b>,
        portion: Portion,
    ) -> Result<(), ExecError>
    where
        'a: 'b,
    {
        let registers = &self.bound.registers;
        let texts = Texts::new(Some(&self.options.memory));
        let mut context = match portion {
            Portion::Range { start, rows } => Context::new(registers, source, start, rows, &texts),
            Portion::Picked(rows) => Context::picked(registers, source, rows, &texts),
        };
        scan.set_registers(&mut context)?;
        self.sink.drop_early(&self.bound.sink, &mut context)?;
        self.steps(&mut context, scan.steps())
    }

    /// Steps from `first` on, then the sink. The context is left as it was.
    fn steps<'b>(&mut self, context: &mut Context<'b>, first: usize) -> Result<(), ExecError>
    where
        'a: 'b,
    {
        let depth = context.depth();
        let result = self.steps_on_top(context, first);
        context.truncate(depth);
        result
    }

    fn steps_on_top<'b>(&mut self, context: &mut Context<'b>, first: usize) -> Result<(), ExecError>
    where
        'a: 'b,
    {
        let bound: &'b Bound = self.bound;
        let mut index = first;
        while context.rows() > 0 {
            match bound.steps.get(index) {
                None => {
                    let (sink, between) = (&mut *self.sink, &mut *self.between);
                    let verdict = sink.consume(&bound.sink, context, self.options, between)?;
                    self.is_over |= verdict == Verdict::Enough;
                    return Ok(());
                }
                Some(BoundStep::Filter { .. }) => {
                    index += filters(context, &bound.steps[index..], &mut self.left[index..])?;
                }
                Some(BoundStep::Compute { register, expr }) => {
                    let vector = eval(context, expr)?;
                    context.set(*register, vector);
                    self.left[index] += context.rows() as u64;
                    index += 1;
                }
                Some(BoundStep::Probe(bound_probe)) => match probe(context, bound_probe)? {
                    Probed::Framed => {
                        self.left[index] += context.rows() as u64;
                        index += 1;
                    }
                    Probed::Pairs(pairs) => return self.pairs(context, pairs, index + 1),
                },
            }
        }
        Ok(())
    }

    /// Runs the rest of the steps for each portion of matched pairs.
    fn pairs<'b>(
        &mut self,
        context: &mut Context<'b>,
        pairs: PairStream<'b>,
        next: usize,
    ) -> Result<(), ExecError>
    where
        'a: 'b,
    {
        let depth = context.depth();
        let mut pairs = if self.sink.copies_texts() { pairs.with_texts() } else { pairs };
        let bound_probe = pairs.probe();
        let mut matched = vec![0u8; pairs.rows()];
        while let Some(rows) = pairs.push_next(context)? {
            rows.iter().for_each(|&row| matched[row as usize] = 1);
            self.left[next - 1] += context.rows() as u64;
            self.steps(context, next)?;
            context.truncate(depth);
            self.is_over |= (self.between)(self.sink)? == Verdict::Enough;
            if self.is_over {
                return Ok(());
            }
        }
        if bound_probe.kind == ProbeKind::Left && matched.contains(&0) {
            push_unmatched(context, bound_probe, &matched);
            self.left[next - 1] += context.rows() as u64;
            self.steps(context, next)?;
        }
        Ok(())
    }
}

/// Runs one or more of the filters that `steps` begins with; answers how many.
fn filters<'b>(
    context: &mut Context<'b>,
    steps: &'b [BoundStep],
    left: &mut [u64],
) -> Result<usize, ExecError> {
    let rows = context.rows();
    let mut mask: Option<Vec<u8>> = None;
    let mut share = 1.0;
    let mut done = 0;
    for step in steps {
        let BoundStep::Filter { expr, selectivity } = step else { break };
        let goes_on = context.is_whole_batch() && share > WHOLE_COLUMN_SHARE && !expr.can_fail();
        if done > 0 && !goes_on {
            break;
        }
        let vector = eval(context, expr)?;
        let mask = mask.get_or_insert_with(|| vec![1; rows]);
        and_truth(mask, &Rc::clone(&vector));
        left[done] += mask.iter().map(|&kept| u64::from(kept)).sum::<u64>();
        share *= selectivity;
        done += 1;
    }
    let kept = positions(&mask.unwrap_or_default());
    if kept.len() < rows {
        context.push(kept);
    }
    Ok(done)
}
