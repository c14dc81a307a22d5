//! A statement of a text.

use datafusion::common::{Result, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::{DFParserBuilder, Statement as DFStatement};

use super::{dialect, respelled};
use crate::fixes::rollup_elements;
use crate::wording::message;

/// One statement of a text in the session's dialect.
pub fn parse(text: &str, state: &SessionState) -> Result<DFStatement> {
    let dialect = dialect::of(state);
    let depth = state.config().options().sql_parser.recursion_limit.get();
    let parse = |text: &str| {
        let parser = DFParserBuilder::new(text).with_dialect(dialect.as_ref());
        let mut statements = parser.with_recursion_limit(depth).build()?.parse_statements()?;
        match (statements.pop_front(), statements.is_empty()) {
            (Some(statement), true) => Ok(statement),
            (Some(_), false) => plan_err!("a text of two statements is not one statement"),
            (None, _) => plan_err!("there is no statement"),
        }
    };
    let Err(error) = parse(text) else { return parse(text) };
    let respelled = respelled::spelled(text)?;
    let text = respelled.as_deref().unwrap_or(text);
    if respelled.is_some()
        && let Ok(statement) = parse(text)
    {
        return Ok(statement);
    }
    if let Some(spelled) = rollup_elements::spelled(text)
        && let Ok(statement) = parse(&spelled)
    {
        return Ok(statement);
    }
    // Its places are those of the text that was written.
    match respelled::instead(text) {
        Some(instead) => plan_err!("{}\nhint: {instead}", message(&error)),
        None => Err(error),
    }
}
