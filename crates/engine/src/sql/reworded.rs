//! Words of other databases for what the planner has under another name, in the parsed statement:
//!
//! ```text
//! a SEMI JOIN b, a ANTI JOIN b      LEFT SEMI, LEFT ANTI
//! COPY .. TO 'x.tsv', 'x.json.gz'   as CSV, with tabs; as JSON, compressed
//! CREATE TEMP TABLE                 CREATE TABLE
//! ```

use std::path::Path;

use datafusion::common::{Result, plan_err};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{Expr, JoinOperator, Select, Statement, Value, VisitorMut};

use super::values;
use super::walk::{self, Flow, ON, Stop};
use crate::catalog::{Packing, packing_of};
use crate::fixes::{groupings, lag_defaults, like_escapes, values_in};
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

/// A name as it is meant: the parser leaves the quotes at those that files are divided by.
fn unquote(name: &mut String) {
    let inner = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    if let Some(inner) = inner.map(|inner| inner.replace("\"\"", "\"")) {
        *name = inner;
    }
}

/// A COPY to a file whose name says that tabs part its values, or how it is compressed.
///
/// # Errors
/// One whose name says that it is compressed as nothing here writes it.
pub fn copies(statement: &mut DFStatement) -> Result<()> {
    if let DFStatement::CreateExternalTable(create) = statement {
        create.table_partition_cols.iter_mut().for_each(unquote);
    }
    let DFStatement::CopyTo(copy) = statement else { return Ok(()) };
    copy.partitioned_by.iter_mut().for_each(unquote);
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
        groupings::spell_out(select);
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
            Expr::Like { .. } | Expr::ILike { .. } => like_escapes::escaped(expr),
            Expr::Rollup(_) | Expr::Cube(_) => {
                groupings::in_sets(expr);
                Ok(())
            }
            Expr::InSubquery { subquery, .. } => {
                values_in::select(subquery);
                Ok(())
            }
            Expr::Function(call) => match lag_defaults::with_default(call) {
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
