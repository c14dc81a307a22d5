//! PIVOT and UNPIVOT of a table in FROM, and UNNEST WITH ORDINALITY, as subqueries.
//!
//! ```text
//! t PIVOT (sum(v) FOR k IN ('a', 'b'))    (SELECT * EXCLUDE (k, v), sum(v) FILTER (WHERE k = 'a') AS a, .. FROM t GROUP BY ALL)
//! t UNPIVOT (v FOR n IN (a, b))           (SELECT * FROM (SELECT * EXCLUDE (a, b), unnest(['a', 'b']) AS n, unnest([a, b]) AS v
//!                                          FROM t) WHERE v IS NOT NULL)
//! unnest(l) WITH ORDINALITY               (SELECT unnest(l), unnest(range(1, cardinality(l) + 1)) AS ordinality)
//! unnest(l) AS x                          unnest(l) AS x (x)
//! o, generate_series(1, o.n) AS g         o, unnest(generate_series(1, o.n)) AS g (g)
//! ```

use std::collections::BTreeSet;

use datafusion::common::{Result, plan_err};
use datafusion::sql::sqlparser::ast::{
    Expr, ExprWithAlias, FunctionArg, FunctionArgExpr, Ident, NullInclusion, ObjectName,
    ObjectNamePart, PivotValueSource, SetExpr, Statement, TableAlias, TableAliasColumnDef,
    TableFactor, Value, Visitor, VisitorMut,
};

use super::nodes::plain_name;
use super::own::{parse_expr, parse_query};
use super::walk::{self, Flow, ON, Stop};

/// Spells them out.
///
/// # Errors
/// What is not offered of them.
pub fn spell_out(statement: &mut Statement) -> Result<()> {
    walk::change(statement, &mut Turned)
}

struct Turned;

impl VisitorMut for Turned {
    type Break = Stop;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> Flow {
        let turned = match &*table {
            TableFactor::Pivot { .. } => pivot(table),
            TableFactor::Unpivot { .. } => unpivot(table),
            TableFactor::UNNEST { with_ordinality: true, .. } => with_ordinality(table),
            TableFactor::UNNEST { .. } => {
                name_column(table);
                return ON;
            }
            TableFactor::Table { name, alias, args: Some(args), .. } => {
                match series(name, &args.args, alias) {
                    Some(series) => Ok(series),
                    None => return ON,
                }
            }
            TableFactor::Function { name, alias, args, .. } => match series(name, args, alias) {
                Some(series) => Ok(series),
                None => return ON,
            },
            _ => return ON,
        };
        match turned {
            Ok(turned) => *table = turned,
            Err(error) => return walk::stop(error),
        }
        ON
    }
}

/// A subquery whose innermost FROM is a table.
fn of_table(
    text: &str,
    table: Option<TableFactor>,
    alias: Option<TableAlias>,
) -> Result<TableFactor> {
    let mut subquery = parse_query(text)?;
    if let Some(table) = table {
        put(&mut subquery.body, table);
    }
    let subquery = Box::new(subquery);
    Ok(TableFactor::Derived { lateral: false, subquery, alias, sample: None })
}

fn put(body: &mut SetExpr, table: TableFactor) {
    let SetExpr::Select(select) = body else { return };
    let Some(from) = select.from.first_mut() else { return };
    match &mut from.relation {
        TableFactor::Derived { subquery, .. } => put(&mut subquery.body, table),
        other => *other = table,
    }
}

fn pivot(factor: &TableFactor) -> Result<TableFactor> {
    let TableFactor::Pivot {
        table,
        aggregate_functions,
        value_column,
        value_source,
        default_on_null,
        alias,
    } = factor
    else {
        return plan_err!("no PIVOT");
    };
    let (PivotValueSource::List(values), [key], None) =
        (value_source, value_column.as_slice(), default_on_null)
    else {
        return plan_err!(
            "PIVOT is of one column, and its values are listed\nhint: PIVOT (sum(v) FOR k IN ('a', 'b'))"
        );
    };
    let mut columns = Columns::default();
    walk::look_at_all(aggregate_functions, &mut columns);
    walk::look_at_all(key, &mut columns);
    let excluded = columns.0.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let is_one = aggregate_functions.len() == 1;
    let mut items = vec![format!("* EXCLUDE ({excluded})")];
    for ExprWithAlias { expr: value, alias } in values {
        let name = match (alias, value) {
            (Some(alias), _) => plain_name(alias),
            (None, Expr::Value(value)) => match &value.value {
                Value::SingleQuotedString(text) => text.clone(),
                other => other.to_string(),
            },
            (None, other) => other.to_string(),
        };
        for ExprWithAlias { expr: call, alias } in aggregate_functions {
            let name = match alias {
                Some(alias) => format!("{name}_{}", plain_name(alias)),
                None if is_one => name.clone(),
                None => format!("{name}_{call}"),
            };
            let Expr::Function(function) = call else {
                return plan_err!("{call} is no aggregate");
            };
            if function.filter.is_some() || function.over.is_some() {
                return plan_err!("PIVOT of an aggregate with FILTER or OVER is not offered");
            }
            items.push(format!("{call} FILTER (WHERE {key} = {value}) AS {}", quoted(&name)));
        }
    }
    let text = format!("SELECT {} FROM t GROUP BY ALL", items.join(", "));
    of_table(&text, Some(table.as_ref().clone()), alias.clone())
}

/// The columns that an expression names.
#[derive(Default)]
struct Columns(BTreeSet<String>);

impl Visitor for Columns {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        self.0.extend(name.map(plain_name));
        ON
    }
}

fn unpivot(factor: &TableFactor) -> Result<TableFactor> {
    let TableFactor::Unpivot { table, value, name, columns, null_inclusion, alias } = factor else {
        return plan_err!("no UNPIVOT");
    };
    let Expr::Identifier(value) = value else {
        return plan_err!("UNPIVOT is of one value\nhint: UNPIVOT (v FOR n IN (a, b))");
    };
    let mut names = Vec::new();
    let mut labels = Vec::new();
    for ExprWithAlias { expr, alias } in columns {
        let Expr::Identifier(column) = expr else {
            return plan_err!("UNPIVOT is of columns, and {expr} is none");
        };
        let label = alias.as_ref().unwrap_or(column);
        names.push(quoted(&plain_name(column)));
        labels.push(format!("'{}'", plain_name(label).replace('\'', "''")));
    }
    let (names, labels) = (names.join(", "), labels.join(", "));
    let (value, name) = (quoted(&plain_name(value)), quoted(&plain_name(name)));
    let condition = match null_inclusion {
        Some(NullInclusion::IncludeNulls) => String::new(),
        _ => format!(" WHERE {value} IS NOT NULL"),
    };
    let text = format!(
        "SELECT * FROM (SELECT * EXCLUDE ({names}), unnest(make_array({labels})) AS {name}, \
         unnest(make_array({names})) AS {value} FROM t) AS turned{condition}"
    );
    of_table(&text, Some(table.as_ref().clone()), alias.clone())
}

fn with_ordinality(factor: &TableFactor) -> Result<TableFactor> {
    match factor {
        TableFactor::UNNEST {
            array_exprs,
            alias,
            with_offset: false,
            with_offset_alias: None,
            ..
        } if array_exprs.len() == 1 => {
            let list = &array_exprs[0];
            let text = format!(
                "SELECT unnest({list}) AS \"unnest\", \
                 unnest(range(1, cast(cardinality({list}) as bigint) + 1)) AS ordinality"
            );
            let mut table = of_table(&text, None, alias.clone())?;
            if let TableFactor::Derived { lateral, .. } = &mut table {
                *lateral = names_columns(list);
            }
            Ok(table)
        }
        _ => plan_err!(
            "WITH ORDINALITY is of one list\nhint: unnest it with a list of its places: unnest(range(1, len(l) + 1))"
        ),
    }
}

/// The one column of an alias is called as the alias.
fn name_column(table: &mut TableFactor) {
    if let TableFactor::UNNEST { alias: Some(alias), array_exprs, .. } = table
        && alias.columns.is_empty()
        && array_exprs.len() == 1
    {
        let name = alias.name.clone();
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
}

/// A series between columns of the tables before it, which the planner makes of constants alone.
fn series(
    name: &ObjectName,
    args: &[FunctionArg],
    alias: &Option<TableAlias>,
) -> Option<TableFactor> {
    let [ObjectNamePart::Identifier(function)] = name.0.as_slice() else { return None };
    let function = function.value.to_ascii_lowercase();
    let is_of_columns = args.iter().any(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => names_columns(expr),
        _ => false,
    });
    if !is_of_columns || !["generate_series", "range"].contains(&function.as_str()) {
        return None;
    }
    let text: Vec<String> = args.iter().map(ToString::to_string).collect();
    let list = parse_expr(&format!("{function}({})", text.join(", "))).ok()?;
    let name = Ident::new(function);
    let alias =
        alias.clone().unwrap_or(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    let mut table = TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: vec![list],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    };
    name_column(&mut table);
    Some(table)
}

fn names_columns(expr: &Expr) -> bool {
    struct Names(bool);
    impl Visitor for Names {
        type Break = Stop;

        fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
            self.0 |= matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
            ON
        }
    }
    let mut found = Names(false);
    walk::look_at_all(expr, &mut found);
    found.0
}

fn quoted(name: &str) -> String {
    Ident::with_quote('"', name).to_string()
}
