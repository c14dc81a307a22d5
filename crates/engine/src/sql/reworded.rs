//! Words of other databases for what the planner has under another name, in the parsed statement:
//!
//! ```text
//! a SEMI JOIN b, a ANTI JOIN b      LEFT SEMI, LEFT ANTI
//! x LIKE 'a#%' ESCAPE '#'           x LIKE 'a\%'
//! ROLLUP ((a, b), c)                GROUPING SETS ((a, b, c), (a, b), ()); CUBE alike
//! lag(x, n, d) OVER w               d where there is no such row, if it is no constant
//! x IN (VALUES (1), (2))            x IN (SELECT * FROM (VALUES ..))
//! COPY .. TO 'x.tsv', 'x.json.gz'   as CSV, with tabs; as JSON, compressed
//! CREATE TEMP TABLE                 CREATE TABLE
//! ```

use std::path::Path;

use datafusion::common::{Result, plan_err};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, JoinOperator, ObjectNamePart,
    Select, SetExpr, Statement, Value, VisitorMut,
};

use super::own::{parse_expr, put_into_from};
use super::walk::{self, Flow, ON, Stop};
use super::{grouped, values};
use crate::catalog::{Packing, packing_of};
use crate::packed;

/// Spells them out.
///
/// # Errors
/// An escape character of a pattern that is no constant.
pub fn spell_out(statement: &mut Statement) -> Result<()> {
    walk::change(statement, &mut Words)
}

/// Endings of names of compressed files that are read, and not written.
const ONLY_READ: [&str; 2] = [".bz2", ".xz"];

/// A COPY to a file whose name says that tabs part its values, or how it is compressed.
///
/// # Errors
/// One whose name says that it is compressed as nothing here writes it.
pub fn copies(statement: &mut DFStatement) -> Result<()> {
    let DFStatement::CopyTo(copy) = statement else { return Ok(()) };
    let lower = copy.target.to_ascii_lowercase();
    if let Some(ending) = ONLY_READ.iter().find(|ending| lower.ends_with(**ending)) {
        let plain = &copy.target[..lower.len() - ending.len()];
        return plan_err!(
            "COPY writes no files that are compressed as a whole by {}, such as {}\nhint: write {plain}.gz or {plain}.zst",
            &ending[1..],
            copy.target
        );
    }
    let is_said = copy.options.iter().any(|(name, _)| name == packed::OPTION);
    let text = |text: &str| Value::SingleQuotedString(text.to_string());
    let mut name = lower.as_str();
    let packing = packing_of(Path::new(&lower));
    if packing != Packing::Plain
        && !lower.ends_with('/')
        && let Some((plain, _)) = lower.rsplit_once('.')
    {
        name = plain;
        let format = match &copy.stored_as {
            Some(format) => format.to_lowercase(),
            None => plain.rsplit_once('.').map_or("", |(_, format)| format).to_string(),
        };
        let format = match format.as_str() {
            "csv" | "tsv" => "CSV",
            "json" | "ndjson" | "jsonl" => "JSON",
            _ => {
                return plan_err!(
                    "COPY compresses text as a whole, and {} is none\nhint: write x.csv.gz or x.json.gz; Parquet compresses its columns itself",
                    copy.target
                );
            }
        };
        copy.stored_as = copy.stored_as.take().or_else(|| Some(format.to_string()));
        if !is_said {
            copy.options.push((packed::OPTION.to_string(), text(packing.word())));
        }
    }
    let has_tabs = name.ends_with(".tsv")
        && copy.stored_as.as_ref().is_none_or(|format| format.eq_ignore_ascii_case("csv"))
        && !copy.options.iter().any(|(name, _)| name == "format.delimiter");
    if has_tabs {
        copy.stored_as = Some("CSV".to_string());
        copy.options.push(("format.delimiter".to_string(), text("\t")));
    }
    Ok(())
}

struct Words;

impl VisitorMut for Words {
    type Break = Stop;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> Flow {
        // Made tables are those of a session anyway.
        if let Statement::CreateTable(table) = statement {
            table.temporary = false;
        }
        ON
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        grouped::spell_out(select);
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            match &join.join_operator {
                JoinOperator::Semi(on) => join.join_operator = JoinOperator::LeftSemi(on.clone()),
                JoinOperator::Anti(on) => join.join_operator = JoinOperator::LeftAnti(on.clone()),
                _ => {}
            }
        }
        ON
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let done = match expr {
            Expr::Like { .. } | Expr::ILike { .. } => escaped(expr),
            Expr::Rollup(parts) if parts.iter().any(|part| part.len() != 1) => {
                *expr = Expr::GroupingSets(grouped::rollup(parts));
                Ok(())
            }
            Expr::Cube(parts)
                if parts.iter().any(|part| part.len() != 1) && parts.len() <= grouped::CUBE_MAX =>
            {
                *expr = Expr::GroupingSets(grouped::cube(parts));
                Ok(())
            }
            Expr::InSubquery { subquery, .. } if matches!(*subquery.body, SetExpr::Values(_)) => {
                put_into_from(subquery, "listed");
                Ok(())
            }
            Expr::Function(call) => match with_default(call) {
                Ok(Some(meant)) => {
                    *expr = meant;
                    Ok(())
                }
                Ok(None) => {
                    values::spell_out(expr);
                    Ok(())
                }
                Err(error) => Err(error),
            },
            _ => {
                values::spell_out(expr);
                Ok(())
            }
        };
        match done {
            Ok(()) => ON,
            Err(error) => walk::stop(error),
        }
    }
}

/// A pattern with backslashes in the place of its escape character.
fn escaped(expr: &mut Expr) -> Result<()> {
    let (Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. }) = expr
    else {
        return Ok(());
    };
    let escape = match escape_char.as_ref().map(|value| &value.value) {
        Some(Value::SingleQuotedString(text)) if text != "\\" => text.clone(),
        _ => return Ok(()),
    };
    if escape.chars().count() > 1 {
        return plan_err!("the escape character '{escape}' is more than one character");
    }
    let Expr::Value(value) = pattern.as_mut() else {
        return plan_err!(
            "ESCAPE of a pattern that is no constant is not offered\nhint: a backslash escapes in any pattern"
        );
    };
    let Value::SingleQuotedString(text) = &mut value.value else { return Ok(()) };
    let mut with_backslashes = String::with_capacity(text.len() + 8);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if escape.chars().eq([character]) {
            let Some(plain) = characters.next() else {
                return plan_err!("the pattern '{text}' ends with its escape character");
            };
            with_backslashes.push('\\');
            with_backslashes.push(plain);
            continue;
        }
        // Without its own meaning it is a character like any other.
        if character == '\\' {
            with_backslashes.push('\\');
        }
        with_backslashes.push(character);
    }
    *text = with_backslashes;
    *escape_char = None;
    Ok(())
}

/// `lag` and `lead` with a default that is no constant.
fn with_default(call: &mut Function) -> Result<Option<Expr>> {
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else { return Ok(None) };
    let is_meant = ["lag", "lead"].iter().any(|known| name.value.eq_ignore_ascii_case(known));
    let FunctionArguments::List(list) = &call.args else { return Ok(None) };
    let (true, [_, _, FunctionArg::Unnamed(FunctionArgExpr::Expr(default))]) =
        (is_meant && call.over.is_some(), list.args.as_slice())
    else {
        return Ok(None);
    };
    if matches!(default, Expr::Value(_) | Expr::UnaryOp { .. }) {
        return Ok(None);
    }
    let default = default.clone();
    let mut value = call.clone();
    if let FunctionArguments::List(list) = &mut value.args {
        list.args.truncate(2);
    }
    // Of a constant it is NULL where there is no such row, and nowhere else.
    let mut there = value.clone();
    there.null_treatment = None;
    if let FunctionArguments::List(list) = &mut there.args {
        list.args[0] = FunctionArg::Unnamed(FunctionArgExpr::Expr(parse_expr("1")?));
    }
    let mut meant = parse_expr("case when x is null then x else x end")?;
    if let Expr::Case { conditions, else_result, .. } = &mut meant
        && let [when] = conditions.as_mut_slice()
    {
        when.condition = Expr::IsNull(Box::new(Expr::Function(there)));
        when.result = default;
        *else_result = Some(Box::new(Expr::Function(value)));
    }
    Ok(Some(Expr::Nested(Box::new(meant))))
}
