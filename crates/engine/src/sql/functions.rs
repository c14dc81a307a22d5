//! `read_csv('x.csv', delim => ';')` and its like in FROM: tables of files, read as the call says.
//!
//! A call becomes a table whose name is the text of the call, so that it is opened, seen as its files are
//! now, and planned as any other.

use std::path::Path;

use chrono::format::StrftimeItems;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, plan_datafusion_err, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::ExprSchemable;
use datafusion::sql::parser::{CopyToSource, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, Expr, ExprWithAlias, FunctionArg, FunctionArgExpr, Ident, ObjectName,
    ObjectNamePart, TableFactor, Value, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::dialect::HeadraceDialect;
use super::walk::{self, Flow, ON, Stop};
use crate::catalog::{
    Call, Encoding, Format, Packing, ReadOptions, format_of, is_pattern, read_by,
};

/// Options that say what is always so.
const ALWAYS: [&str; 3] = ["union_by_name", "hive_partitioning", "auto_detect"];

/// The option that files of every format have, and what its column is called by itself.
const FILENAME: &str = "filename";

/// Replaces calls by names; what they call.
///
/// # Errors
/// A call of a function that reads files with options that it does not have.
pub fn name(statement: &mut DFStatement, state: &SessionState) -> Result<Vec<(String, Call)>> {
    let mut namer = Namer { state, calls: Vec::new() };
    match statement {
        DFStatement::Explain(explain) => return name(&mut explain.statement, state),
        DFStatement::Statement(statement) => walk::change(statement, &mut namer)?,
        DFStatement::CopyTo(copy) => {
            if let CopyToSource::Query(query) = &mut copy.source {
                walk::change(query, &mut namer)?;
            }
        }
        _ => {}
    }
    Ok(namer.calls)
}

struct Namer<'a> {
    state: &'a SessionState,
    calls: Vec<(String, Call)>,
}

impl VisitorMut for Namer<'_> {
    type Break = Stop;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        let TableFactor::Table { name, args, .. } = factor else { return ON };
        if args.is_none() {
            self.name_files(name);
            return ON;
        }
        let Some(format) = function_of(name) else { return ON };
        let given = args.take().map(|args| args.args).unwrap_or_default();
        let texts: Vec<String> = given.iter().map(ToString::to_string).collect();
        let function = format.functions()[0];
        let text = format!("{function}({})", texts.join(", "));
        match call(format, &given, self.state) {
            Ok(call) => self.calls.push((text.clone(), call)),
            Err(error) => {
                let cause = error.find_root().message().to_string();
                return walk::stop(plan_datafusion_err!("{function}: {cause}"));
            }
        }
        *name = ObjectName::from(vec![Ident::with_quote('"', text)]);
        ON
    }
}

impl Namer<'_> {
    /// `'x*.csv'` is a table of the files that match, `'folder'` one of the folder, though it has no slash.
    fn name_files(&mut self, name: &mut ObjectName) {
        let [ObjectNamePart::Identifier(ident)] = name.0.as_mut_slice() else { return };
        if ident.quote_style != Some('\'') {
            return;
        }
        let path = Path::new(&ident.value);
        match format_of(path) {
            Some((format, _)) if is_pattern(&ident.value) => {
                let (paths, options) = (vec![ident.value.clone()], ReadOptions::default());
                self.calls.push((ident.value.clone(), Call { format, paths, options }));
            }
            None if !ident.value.contains('/') && path.is_dir() => ident.value.push('/'),
            _ => {}
        }
    }
}

/// What a function reads.
fn function_of(name: &ObjectName) -> Option<Format> {
    let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
    read_by(&name.value.to_ascii_lowercase())
}

fn call(format: Format, args: &[FunctionArg], state: &SessionState) -> Result<Call> {
    let mut call = Call { format, paths: Vec::new(), options: ReadOptions::default() };
    for (place, arg) in args.iter().enumerate() {
        match option(arg)? {
            (None, value) if place == 0 => call.paths = texts(value)?,
            (None, value) => {
                return plan_err!(
                    "{value} has no name\nhint: options are written so: delim => ';'"
                );
            }
            (Some(name), value) => {
                let name = name.to_ascii_lowercase();
                let set = set(&mut call, word(&name), value, state);
                set.map_err(|e| plan_datafusion_err!("{name}: {}", e.find_root().message()))?;
            }
        }
    }
    match call.paths.is_empty() {
        true => plan_err!(
            "it names no file\nhint: its first argument is a path, or a list of paths: ['a', 'b']"
        ),
        false => Ok(call),
    }
}

/// The name, if it has one, and the value of an argument: `name => value`, `name := value`, `name = value`.
fn option(arg: &FunctionArg) -> Result<(Option<String>, &Expr)> {
    let (name, value) = match arg {
        FunctionArg::Named { name, arg, .. } => (Some(name.value.clone()), arg),
        FunctionArg::ExprNamed { name, arg, .. } => (Some(name.to_string()), arg),
        FunctionArg::Unnamed(arg) => (None, arg),
    };
    let FunctionArgExpr::Expr(value) = value else { return plan_err!("{value} is no value") };
    match value {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } if name.is_none() => {
            match left.as_ref() {
                Expr::Identifier(name) => Ok((Some(name.value.clone()), right)),
                _ => plan_err!("{value} is no option"),
            }
        }
        _ => Ok((name, value)),
    }
}

fn set(call: &mut Call, name: &str, value: &Expr, state: &SessionState) -> Result<()> {
    let options = &mut call.options;
    if ALWAYS.contains(&name) {
        return match flag(value)? {
            true => Ok(()),
            false => plan_err!("it cannot be turned off\nhint: leave it out"),
        };
    }
    let known = call.format.options();
    if name != FILENAME && !known.contains(&name) {
        return no_option(known);
    }
    match name {
        "delim" => options.delimiter = Some(byte(value)?),
        "quote" => {
            options.quote = (!text(value)?.is_empty()).then(|| byte(value)).transpose()?;
        }
        "escape" => {
            let escape = (!text(value)?.is_empty()).then(|| byte(value)).transpose()?;
            // Doubled quotes are read in any case.
            options.escape = escape.filter(|escape| Some(*escape) != options.quote);
        }
        "header" => options.has_header = Some(flag(value)?),
        "nullstr" => options.nulls = texts(value)?,
        "skip" => options.skip_lines = Some(number(value)?),
        "comment" => {
            let comment = (!text(value)?.is_empty()).then(|| byte(value)).transpose()?;
            options.comment = Some(comment);
        }
        "null_padding" => options.pads = flag(value)?,
        "ignore_errors" => options.ignores = flag(value)?,
        "dateformat" => options.formats.date = Some(format(value)?),
        "timestampformat" => options.formats.moment = Some(format(value)?),
        "decimal_separator" => {
            options.formats.has_comma = match text(value)? {
                "," => true,
                "." => false,
                other => return plan_err!("'{other}' is neither ',' nor '.'"),
            }
        }
        "encoding" => {
            let name = text(value)?;
            let known = Encoding::of_name(name);
            options.encoding = Some(known.ok_or_else(|| {
                plan_datafusion_err!("{name} is not known\nhint: utf-8, latin-1, utf-16, utf-16be")
            })?);
        }
        FILENAME => {
            options.file_column = match literal(value)? {
                Value::Boolean(false) => None,
                Value::Boolean(true) => Some(FILENAME.into()),
                _ => Some(text(value)?.to_string()),
            }
        }
        "names" => options.names = texts(value)?,
        "all_varchar" => options.is_all_text = flag(value)?,
        "columns" => options.columns = typed(value, state)?,
        "types" => match value {
            // Of files whose columns have an order.
            Expr::Array(_) if known.contains(&"names") => {
                let types = texts(value)?;
                let types = types.iter().map(|text| data_type(text, state));
                options.types_by_place = types.collect::<Result<_>>()?;
            }
            _ => options.types = typed(value, state)?,
        },
        "compression" => {
            options.packing = match text(value)?.to_ascii_lowercase().as_str() {
                "auto" | "auto_detect" => None,
                word => match Packing::of_word(word) {
                    None => return plan_err!("{word} is not known\nhint: none, gzip, zstd, auto"),
                    packing => packing,
                },
            }
        }
        _ => return no_option(known),
    }
    Ok(())
}

fn no_option(known: &[&str]) -> Result<()> {
    match known {
        [] => plan_err!("there is no such option\nhint: options are none but paths"),
        known => {
            let known = known.join(", ");
            plan_err!("there is no such option\nhint: options are {known}, {FILENAME}")
        }
    }
}

/// The word for an option that others call otherwise.
fn word(name: &str) -> &str {
    match name {
        "sep" | "delimiter" => "delim",
        "null" => "nullstr",
        "date_format" => "dateformat",
        "timestamp_format" => "timestampformat",
        "column_names" => "names",
        "dtypes" | "column_types" => "types",
        other => other,
    }
}

fn literal(value: &Expr) -> Result<&Value> {
    match value {
        Expr::Value(value) => Ok(&value.value),
        _ => plan_err!("{value} is no constant"),
    }
}

fn text(value: &Expr) -> Result<&str> {
    match literal(value)? {
        Value::SingleQuotedString(text)
        | Value::DollarQuotedString(datafusion::sql::sqlparser::ast::DollarQuotedString {
            value: text,
            ..
        }) => Ok(text),
        other => plan_err!("{other} is no text\nhint: texts stand between '"),
    }
}

/// A text, or a list of texts.
fn texts(value: &Expr) -> Result<Vec<String>> {
    match value {
        Expr::Array(list) => {
            list.elem.iter().map(|text_of| text(text_of).map(String::from)).collect()
        }
        one => Ok(vec![text(one)?.to_string()]),
    }
}

fn flag(value: &Expr) -> Result<bool> {
    match literal(value)? {
        Value::Boolean(flag) => Ok(*flag),
        other => plan_err!("{other} is neither true nor false"),
    }
}

/// How dates are written, in the letters of `strptime`, for those who parse them here.
fn format(value: &Expr) -> Result<String> {
    // Fractions of seconds of any length.
    let format = text(value)?.replace(".%f", "%.f").replace(".%g", "%.f").replace(".%n", "%.f");
    let is_known = |item| !matches!(item, chrono::format::Item::Error);
    match StrftimeItems::new(&format).all(is_known) && format.contains('%') {
        true => Ok(format),
        false => plan_err!(
            "'{format}' is no format of dates\nhint: such as '%d/%m/%Y' or '%Y-%m-%d %H:%M:%S'"
        ),
    }
}

fn number(value: &Expr) -> Result<u64> {
    match literal(value)? {
        Value::Number(number, _) => {
            number.parse().map_err(|_| plan_datafusion_err!("{number} is no count"))
        }
        other => plan_err!("{other} is no count"),
    }
}

/// One byte, as letters that stand between values are.
fn byte(value: &Expr) -> Result<u8> {
    let text = text(value)?;
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if !matches!(byte, b'\n' | b'\r') => Ok(*byte),
        _ => plan_err!("'{text}' is not one byte\nhint: such as ',' or '\\t'"),
    }
}

/// `{'name': 'type'}`.
fn typed(value: &Expr, state: &SessionState) -> Result<Vec<(String, DataType)>> {
    let Expr::Dictionary(fields) = value else {
        return plan_err!("{value} names no types\nhint: they are written so: {{'a': 'INTEGER'}}");
    };
    let column = |field: &datafusion::sql::sqlparser::ast::DictionaryField| {
        Ok((field.key.value.clone(), data_type(text(&field.value)?, state)?))
    };
    fields.iter().map(column).collect()
}

/// A type that values of text files can have, by its name in SQL.
fn data_type(text: &str, state: &SessionState) -> Result<DataType> {
    let unknown = || plan_datafusion_err!("{text} is no type of SQL");
    let mut parser = Parser::new(&HeadraceDialect).try_with_sql(text).map_err(|_| unknown())?;
    let named = parser.parse_data_type().map_err(|_| unknown())?;
    if parser.peek_token().token != Token::EOF {
        return Err(unknown());
    }
    let null = Box::new(Expr::Value(Value::Null.with_empty_span()));
    let cast = Expr::Cast {
        kind: CastKind::Cast,
        expr: null,
        data_type: named,
        array: false,
        format: None,
    };
    let cast = ExprWithAlias { expr: cast, alias: None };
    let empty = DFSchema::empty();
    let typed = state.create_logical_expr_from_sql_expr(cast, &empty).map_err(|_| unknown())?;
    match typed.get_type(&empty)? {
        DataType::Utf8View | DataType::LargeUtf8 => Ok(DataType::Utf8),
        known if known.is_primitive() || matches!(known, DataType::Boolean | DataType::Utf8) => {
            match known {
                DataType::Interval(_) | DataType::Duration(_) => {
                    plan_err!("values of text files cannot be {text}")
                }
                known => Ok(known),
            }
        }
        _ => plan_err!("values of text files cannot be {text}"),
    }
}
