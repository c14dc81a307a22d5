//! `CREATE FUNCTION .. LANGUAGE cuda`, as it is written, and DROP FUNCTION:
//!
//! ```text
//! CREATE [OR REPLACE] FUNCTION name(parameter type, ..) RETURNS type LANGUAGE cuda AS $$ body $$ [TWIN 'expression']
//! CREATE [OR REPLACE] FUNCTION name(rows TABLE (column type, ..), parameter type, ..) RETURNS TABLE (column type, ..)
//!     LANGUAGE cuda AS $$ body $$ [ROWS expression] [GRID expression] [BLOCK threads] [TWIN 'query']
//! DROP FUNCTION [IF EXISTS] name
//! ```
//!
//! Which parameters are columns, and what the twin calls their table, must be known when the body is compiled: so the table is
//! a parameter with a name and columns of its own, as in the SQL standard's table parameters, and not the first columns of
//! whatever a call gives.
//!
//! The clauses behind the parameters may stand in any order. The planner's parser knows no TWIN.

use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{DataType, ObjectName, ObjectNamePart, Value};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use headrace_ir::cuda_table::BLOCK_THREADS;

use super::dialect;

/// What is said of a CREATE FUNCTION that is none of these.
const USAGE: &str = "CREATE [OR REPLACE] FUNCTION name(parameter type, ..) RETURNS type LANGUAGE cuda \
                     AS $$ statements in CUDA C++ $$ [TWIN 'expression in SQL']; of a table: FUNCTION name(rows TABLE \
                     (column type, ..), parameter type, ..) RETURNS TABLE (column type, ..) .. [ROWS most that are emitted] \
                     [GRID blocks] [BLOCK threads of a block] [TWIN 'query over rows']";

/// Columns, or parameters.
pub type Named = Vec<(String, DataType)>;

/// What a function returns.
pub enum Returns {
    /// A value for each row.
    Value(DataType),
    /// A table, of a table.
    Table(TableDefinition),
}

/// What a function of a table has beside others.
pub struct TableDefinition {
    /// What the table is called in its code and in its twin.
    pub table: String,
    /// The columns of that.
    pub columns: Named,
    /// The columns that it returns.
    pub outputs: Named,
    /// Most rows that it emits, an expression; without one, it writes one for each row of its table.
    pub rows: Option<String>,
    /// Blocks of its grid, an expression.
    pub blocks: Option<String>,
    /// Threads of a block.
    pub block_threads: u32,
}

/// A statement about functions.
pub enum FunctionStatement {
    /// Makes one.
    Create(Box<Definition>),
    /// Drops one.
    Drop {
        /// Its name.
        name: String,
        /// Whether none is no error.
        if_exists: bool,
    },
}

/// Where lines of a body in a statement are counted from.
const BEHIND_DOLLARS: &str = "where the body begins, behind $$";

/// A function for a door that makes no statement of it (`Session::create_cuda_function`): what would have to be quoted is not
/// part of a text.
#[derive(Clone, Debug)]
pub struct NewCudaFunction {
    /// Its name.
    pub name: String,
    /// Names of its parameters, and their types in SQL.
    pub parameters: Vec<(String, String)>,
    /// The type in SQL of what it returns.
    pub result: String,
    /// The statements in CUDA.
    pub body: String,
    /// Where the compiler's lines are counted from, for whoever wrote the body.
    pub first_line: String,
    /// An expression over its parameters.
    pub twin: Option<String>,
}

/// A function as it is written.
pub struct Definition {
    /// Its name.
    pub name: String,
    /// Whether it takes the place of another.
    pub or_replace: bool,
    /// Names and types of its parameters that are values.
    pub parameters: Named,
    /// What it returns.
    pub returns: Returns,
    /// The statements in CUDA.
    pub body: String,
    /// Where its lines are counted from.
    pub first_line: String,
    /// An expression over its parameters, or a query over its table.
    pub twin: Option<String>,
}

impl FunctionStatement {
    /// That of a text; `None` for any other statement.
    ///
    /// # Errors
    /// One that is not written as it has to be.
    pub fn of(text: &str, state: &SessionState) -> Result<Option<Self>> {
        if !begins_like_one(text) {
            return Ok(None);
        }
        let dialect = dialect::of(state);
        let Ok(mut parser) = Parser::new(dialect.as_ref()).try_with_sql(text) else {
            return Ok(None);
        };
        let parser = &mut parser;
        let statement = if parser.parse_keywords(&[Keyword::DROP, Keyword::FUNCTION]) {
            let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
            Self::Drop { name: name(&parser.parse_object_name(false)?)?, if_exists }
        } else {
            if !parser.parse_keyword(Keyword::CREATE) {
                return Ok(None);
            }
            let or_replace = parser.parse_keywords(&[Keyword::OR, Keyword::REPLACE]);
            if !parser.parse_keyword(Keyword::FUNCTION) {
                return Ok(None);
            }
            Self::Create(Box::new(Definition::parse(parser, or_replace)?))
        };
        let _ = parser.consume_token(&Token::SemiColon);
        match parser.peek_token().token {
            Token::EOF => Ok(Some(statement)),
            other => plan_err!("{other} behind the end of the statement\nhint: {USAGE}"),
        }
    }
}

/// Whether it is worth a look.
fn begins_like_one(text: &str) -> bool {
    let mut words = text.split_whitespace().map(str::to_ascii_lowercase);
    matches!(words.next().as_deref(), Some("create" | "drop"))
        && words.take(4).any(|word| word.starts_with("function"))
        || text.trim_start().starts_with(['-', '/'])
            && text.to_ascii_lowercase().contains("function")
}

impl Definition {
    /// One that takes the place of another of its name.
    ///
    /// # Errors
    /// A text that is not one type.
    pub fn of(new: NewCudaFunction, state: &SessionState) -> Result<Self> {
        let NewCudaFunction { name, parameters, result, body, first_line, twin } = new;
        let written = |(parameter, written): (String, String)| {
            let data_type = data_type(&written, &format!("parameter {parameter}"), state)?;
            Ok((parameter, data_type))
        };
        let parameters = parameters.into_iter().map(written).collect::<Result<_>>()?;
        let result = data_type(&result, &format!("what {name}() returns"), state)?;
        let returns = Returns::Value(result);
        Ok(Self { name, or_replace: true, parameters, returns, body, first_line, twin })
    }

    fn parse(parser: &mut Parser<'_>, or_replace: bool) -> Result<Self> {
        let name = name(&parser.parse_object_name(false)?)?;
        parser.expect_token(&Token::LParen)?;
        let (mut table, mut parameters) = (None, Vec::new());
        while !parser.consume_token(&Token::RParen) {
            if table.is_some() || !parameters.is_empty() {
                parser.expect_token(&Token::Comma)?;
            }
            let parameter = parameter_name(parser)?;
            if !parser.parse_keyword(Keyword::TABLE) {
                parameters.push((parameter, parser.parse_data_type()?));
            } else if table.is_none() && parameters.is_empty() {
                table = Some((parameter, columns(parser)?));
            } else {
                return plan_err!(
                    "{name}() has a TABLE that is not its first parameter\nhint: {USAGE}"
                );
            }
        }
        let (mut value, mut outputs, mut language, mut body, mut twin) =
            (None, None, None, None, None);
        let (mut rows, mut blocks, mut block_threads) = (None, None, None);
        loop {
            if parser.parse_keyword(Keyword::RETURNS) {
                match parser.parse_keyword(Keyword::TABLE) {
                    true => once("RETURNS", outputs.replace(columns(parser)?))?,
                    false => once("RETURNS", value.replace(parser.parse_data_type()?))?,
                }
            } else if parser.parse_keyword(Keyword::LANGUAGE) {
                once("LANGUAGE", language.replace(parser.parse_identifier()?.value))?;
            } else if parser.parse_keyword(Keyword::AS) {
                once("AS", body.replace(text(parser)?))?;
            } else if is_word(parser, "twin") {
                once("TWIN", twin.replace(text(parser)?))?;
            } else if is_word(parser, "rows") {
                once("ROWS", rows.replace(parser.parse_expr()?.to_string()))?;
            } else if is_word(parser, "grid") {
                once("GRID", blocks.replace(parser.parse_expr()?.to_string()))?;
            } else if is_word(parser, "block") {
                once("BLOCK", block_threads.replace(parser.parse_literal_uint()?))?;
            } else {
                break;
            }
        }
        let missing =
            |clause: &str| plan_datafusion_err!("{name}() has no {clause}\nhint: {USAGE}");
        let language = language.ok_or_else(|| missing("LANGUAGE"))?;
        if !language.eq_ignore_ascii_case("cuda") {
            return plan_err!(
                "functions are written in CUDA, and not in {language}\nhint: {USAGE}; \
                 functions in Python are those of Connection.create_function"
            );
        }
        let body = body.ok_or_else(|| missing("AS"))?;
        let has_launch = rows.is_some() || blocks.is_some() || block_threads.is_some();
        let returns = match (table, value, outputs) {
            (_, None, None) => return Err(missing("RETURNS")),
            (_, Some(_), Some(_)) => return plan_err!("RETURNS stands twice\nhint: {USAGE}"),
            (None, Some(value), None) if !has_launch => Returns::Value(value),
            (Some((table, columns)), None, Some(outputs)) => {
                let threads = block_threads.map_or(Ok(BLOCK_THREADS), u32::try_from);
                let block_threads = threads.unwrap_or(u32::MAX);
                Returns::Table(TableDefinition {
                    table,
                    columns,
                    outputs,
                    rows,
                    blocks,
                    block_threads,
                })
            }
            _ => {
                return plan_err!(
                    "{name}() is half a function of a table: such a one has a TABLE as its first parameter, and RETURNS \
                     TABLE; ROWS, GRID and BLOCK are its own\nhint: {USAGE}"
                );
            }
        };
        let first_line = BEHIND_DOLLARS.to_string();
        Ok(Self { name, or_replace, parameters, returns, body, first_line, twin })
    }
}

/// Names and types in parentheses.
fn columns(parser: &mut Parser<'_>) -> Result<Named> {
    parser.expect_token(&Token::LParen)?;
    let mut columns = Vec::new();
    loop {
        columns.push((parameter_name(parser)?, parser.parse_data_type()?));
        if parser.consume_token(&Token::RParen) {
            return Ok(columns);
        }
        parser.expect_token(&Token::Comma)?;
    }
}

fn parameter_name(parser: &mut Parser<'_>) -> Result<String> {
    let name = parser.parse_identifier()?;
    Ok(match name.quote_style {
        None => name.value.to_ascii_lowercase(),
        Some(_) => name.value,
    })
}

/// The one type that a text is.
fn data_type(text: &str, of: &str, state: &SessionState) -> Result<DataType> {
    let dialect = dialect::of(state);
    let one = || -> Result<DataType, ParserError> {
        let mut parser = Parser::new(dialect.as_ref()).try_with_sql(text)?;
        let data_type = parser.parse_data_type()?;
        parser.expect_token(&Token::EOF)?;
        Ok(data_type)
    };
    one().map_err(|error| {
        plan_datafusion_err!("{text:?}, the type of {of}, is no type of SQL: {error}")
    })
}

/// A clause that may stand once.
fn once<T>(clause: &str, before: Option<T>) -> Result<()> {
    match before {
        None => Ok(()),
        Some(_) => plan_err!("{clause} stands twice\nhint: {USAGE}"),
    }
}

/// Takes a word that is no keyword.
fn is_word(parser: &mut Parser<'_>, wanted: &str) -> bool {
    let is = matches!(&parser.peek_token().token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted));
    if is {
        parser.next_token();
    }
    is
}

/// A text in quotes or between dollars.
fn text(parser: &mut Parser<'_>) -> Result<String> {
    match parser.parse_value()?.value {
        Value::SingleQuotedString(text) => Ok(text),
        Value::DollarQuotedString(text) => Ok(text.value),
        other => plan_err!("{other} is no text between $$ or in quotes\nhint: {USAGE}"),
    }
}

/// A name of one part, as the planner has it.
fn name(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(one)] if one.quote_style.is_none() => {
            Ok(one.value.to_ascii_lowercase())
        }
        [ObjectNamePart::Identifier(one)] => Ok(one.value.clone()),
        _ => plan_err!("a function has a name of one part, unlike {name}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    fn of(text: &str) -> Result<Option<FunctionStatement>> {
        FunctionStatement::of(text, &SessionContext::new().state())
    }

    #[test]
    fn functions_are_read_with_their_clauses_in_any_order() {
        let text = "create or replace function F(a int, \"B\" float[64]) language CUDA returns double \
                    twin 'a + 1' as $$ return a; // it's ; $1 \n $$;";
        let Some(FunctionStatement::Create(made)) = of(text).unwrap() else { panic!("{text}") };
        assert_eq!((made.name.as_str(), made.or_replace), ("f", true));
        let names: Vec<_> = made.parameters.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "B"]);
        assert_eq!(made.body, " return a; // it's ; $1 \n ");
        assert_eq!(made.twin.as_deref(), Some("a + 1"));
        let dropped = of("DROP FUNCTION IF EXISTS g").unwrap();
        assert!(matches!(dropped, Some(FunctionStatement::Drop { if_exists: true, .. })));
        for other in ["select 1", "create table function(a int)", "drop table function", "create"] {
            assert!(of(other).unwrap().is_none(), "{other}");
        }
    }

    #[test]
    fn functions_of_tables_are_read_with_columns_and_grid() {
        let text = "create function near(P table (x double, \"Y\" float[3]), k bigint) returns table (a bigint) \
                    language cuda block 64 as $$ emit(1); $$ rows 2 * rows + k grid 132 twin 'select 1'";
        let Some(FunctionStatement::Create(made)) = of(text).unwrap() else { panic!("{text}") };
        let Returns::Table(table) = made.returns else { panic!("{text}") };
        assert_eq!((table.table.as_str(), table.columns.len(), table.block_threads), ("p", 2, 64));
        assert_eq!(table.columns[1].0, "Y");
        assert_eq!(
            (table.rows.as_deref(), table.blocks.as_deref()),
            (Some("2 * rows + k"), Some("132"))
        );
        assert_eq!((made.parameters.len(), table.outputs.len()), (1, 1));
        for (text, cause) in [
            (
                "create function f(t table (x int)) returns int language cuda as ''",
                "half a function",
            ),
            (
                "create function f(x int) returns table (x int) language cuda as ''",
                "half a function",
            ),
            ("create function f(x int) returns int language cuda as '' rows 3", "half a function"),
            (
                "create function f(x int, t table (x int)) returns table (x int) language cuda as ''",
                "not its first",
            ),
            (
                "create function f(t table (x int), u table (x int)) returns table (x int) language cuda as ''",
                "not its first",
            ),
            ("create function f(t table ()) returns table (x int) language cuda as ''", "Expected"),
            (
                "create function f(t table (x int)) returns table (x int) returns int language cuda as ''",
                "twice",
            ),
            (
                "create function f(t table (x int)) returns table (x int) language cuda as '' rows 1 rows 2",
                "twice",
            ),
            ("create function f(t table (x int)) language cuda as ''", "no RETURNS"),
        ] {
            let Err(error) = of(text) else { panic!("{text}") };
            assert!(error.to_string().contains(cause), "{text}: {error}");
        }
    }

    #[test]
    fn a_type_without_a_statement_is_one_type() {
        let new = |written: &str, result: &str| NewCudaFunction {
            name: "f".into(),
            parameters: vec![("a".into(), written.into())],
            result: result.into(),
            body: "return a; $$ twin 'x'".into(),
            first_line: "the first".into(),
            twin: None,
        };
        let state = SessionContext::new().state();
        let made = Definition::of(new(" float[64] ", "decimal(9, 2)"), &state).unwrap();
        assert!(made.or_replace && made.twin.is_none() && made.body.ends_with("twin 'x'"));
        for text in ["", "int, b int", "int) returns int", "int twin 'a'", "int /*", "1", "int;"] {
            for (new, of) in [(new(text, "int"), "parameter a"), (new("int", text), "f() returns")]
            {
                let Err(error) = Definition::of(new, &state) else { panic!("{text}") };
                let error = error.to_string();
                assert!(error.contains("is no type of SQL") && error.contains(of), "{error}");
            }
        }
    }

    #[test]
    fn what_is_not_written_so_is_told() {
        for (text, cause) in [
            ("create function f(a int) returns int as 'x'", "no LANGUAGE"),
            ("create function f(a int) language cuda as 'x'", "no RETURNS"),
            ("create function f(a int) returns int language cuda", "no AS"),
            ("create function f(a int) returns int language sql as 'x'", "written in CUDA"),
            ("create function f(a int) returns int returns int language cuda as ''", "twice"),
            ("create function f(a int) returns int language cuda as '' volatile", "behind the end"),
            ("create function a.f(a int) returns int language cuda as ''", "one part"),
        ] {
            let Err(error) = of(text) else { panic!("{text}") };
            assert!(error.to_string().contains(cause), "{text}: {error}");
        }
    }
}
