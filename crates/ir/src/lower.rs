//! Programs as processors take them.

use std::borrow::Cow;

use crate::program::Program;
use crate::validate::IrError;

impl Program {
    /// The same program without distinct calls ([`crate::distinct`]) and without grouping sets
    /// ([`crate::grouping`]): both become stages.
    ///
    /// # Errors
    /// Those of [`Program::without_distinct`] and [`Program::without_grouping_sets`].
    pub fn lowered(&self) -> Result<Cow<'_, Self>, IrError> {
        let program = self.without_distinct()?;
        let joined = match program.without_grouping_sets()? {
            Cow::Owned(joined) => Some(joined),
            Cow::Borrowed(_) => None,
        };
        Ok(joined.map_or(program, Cow::Owned))
    }
}
