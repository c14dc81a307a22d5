//! Programs as processors take them.

use std::borrow::Cow;

use crate::program::Program;
use crate::validate::IrError;

impl Program {
    /// The same program without distinct calls ([`crate::distinct`]), with parts of groups in place of the rows of unions
    /// ([`crate::union`]), and without grouping sets ([`crate::grouping`]): all of them become stages. Sets that have all
    /// keys among them are made of groups by these.
    ///
    /// # Errors
    /// Those of [`Program::without_distinct`], [`Program::with_parts_of_unions`] and [`Program::without_grouping_sets`].
    pub fn lowered(&self) -> Result<Cow<'_, Self>, IrError> {
        let program = in_stages(self)?;
        let Some(with_parts) = changed(program.with_parts_of_unions()?) else {
            return without_sets(program);
        };
        // Rows that are passed on alone are left.
        let passed_on = changed(with_parts.without_stages_of_rows()?);
        without_sets(Cow::Owned(passed_on.unwrap_or(with_parts)))
    }

    /// The same with unions whose rows are read as they are: what a stage over one probes, no other stage probes then, so
    /// that a build which does not fit memory can be divided.
    ///
    /// # Errors
    /// As [`lowered`](Self::lowered)'s.
    pub fn lowered_in_one(&self) -> Result<Cow<'_, Self>, IrError> {
        without_sets(in_stages(self)?)
    }
}

/// Without distinct calls, and without stages of rows that one other reads.
fn in_stages(program: &Program) -> Result<Cow<'_, Program>, IrError> {
    let program = program.without_distinct()?;
    let without_rows = changed(program.without_stages_of_rows()?);
    Ok(without_rows.map_or(program, Cow::Owned))
}

fn without_sets(program: Cow<'_, Program>) -> Result<Cow<'_, Program>, IrError> {
    let finest = changed(program.with_finest_groups());
    let program = finest.map_or(program, Cow::Owned);
    let joined = changed(program.without_grouping_sets()?);
    Ok(joined.map_or(program, Cow::Owned))
}

fn changed(program: Cow<'_, Program>) -> Option<Program> {
    match program {
        Cow::Owned(program) => Some(program),
        Cow::Borrowed(_) => None,
    }
}
