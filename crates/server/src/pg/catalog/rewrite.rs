//! A statement that asks the catalog, in words that the engine has.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, GroupByExpr, Ident, Join, JoinOperator, ObjectName, ObjectNamePart, Query,
    Select, SelectItem, SetExpr, Statement, TableAlias, TableFactor, TableWithJoins, Value, Visit,
    VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use headrace_engine::Session;

use super::about::About;
use super::calls;
use super::oids::{oid_of_name, oid_of_type};
use super::tables::{FUNCTION_COLUMNS, is_empty, known};

/// What tells the name of a given table from a user's.
const MARK: char = '~';

const SCHEMAS: [&str; 2] = ["pg_catalog", "information_schema"];

/// Changes a statement, and tells which tables it then names.
pub struct Rewrite<'a> {
    session: &'a Session,
    about: &'a About,
    names: Vec<&'static str>,
    is_changed: bool,
}

impl<'a> Rewrite<'a> {
    pub fn new(session: &'a Session, about: &'a About) -> Self {
        Self { session, about, names: Vec::new(), is_changed: false }
    }

    pub fn change(&mut self, statement: &mut Statement) {
        let _ = statement.visit(self);
    }

    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    pub fn names(self) -> Vec<&'static str> {
        self.names
    }

    /// The system's table of a name, which a user's table of that name hides.
    fn table(&self, name: &ObjectName) -> Option<&'static str> {
        let parts: Vec<String> = parts(name);
        let of = match parts.as_slice() {
            [schema, table] if schema == "pg_catalog" => table.clone(),
            [schema, table] if schema == "information_schema" => format!("{schema}.{table}"),
            [table] if !self.session.has_table(table) => table.clone(),
            _ => return None,
        };
        known(&of)
    }

    fn name(&mut self, table: &'static str) -> ObjectName {
        if !self.names.contains(&table) {
            self.names.push(table);
        }
        self.is_changed = true;
        ObjectName::from(vec![Ident::with_quote('"', format!("{MARK}{table}"))])
    }

    fn put(&mut self, expr: &mut Expr, text: &str) {
        if let Some(parsed) = parsed(text) {
            *expr = parsed;
            self.is_changed = true;
        }
    }

    fn function(&mut self, expr: &mut Expr) {
        let Expr::Function(call) = &*expr else { return };
        let names = parts(&call.name);
        let (name, is_catalogs) = match names.as_slice() {
            [name] => (name.clone(), false),
            [schema, name] if schema == "pg_catalog" => (name.clone(), true),
            _ => return,
        };
        if let Some(text) = calls::expression(&name, &arguments(call), self.about, self.session) {
            return self.put(expr, &text);
        }
        if is_catalogs && let Expr::Function(call) = expr {
            call.name = ObjectName::from(vec![Ident::new(name)]);
            self.is_changed = true;
        }
    }

    /// A cast to a type of the catalog's.
    fn cast(&mut self, expr: &mut Expr) {
        let Expr::Cast { expr: inner, data_type, .. } = &mut *expr else { return };
        let written = data_type.to_string().to_lowercase();
        let is_catalogs = written.starts_with("pg_catalog.");
        let to = written.strip_prefix("pg_catalog.").unwrap_or(&written);
        let literal = literal(inner);
        match to {
            "regclass" => {
                // Its text is a name, and it is a number elsewhere.
                let text = match literal {
                    Some(name) => oid_of_name(&name, self.session).to_string(),
                    None => format!("{inner}"),
                };
                self.put(expr, &format!("CAST({text} AS BIGINT)"));
            }
            "regtype" => {
                let text = match literal {
                    Some(name) => oid_of_type(&name).to_string(),
                    None => format!("{inner}"),
                };
                self.put(expr, &format!("CAST({text} AS BIGINT)"));
            }
            "regproc" | "regprocedure" | "name" | "\"char\"" | "regnamespace" | "regrole" => {
                *data_type = DataType::Text;
                self.is_changed = true;
            }
            "text" | "char" if is_catalogs => {
                *data_type = DataType::Text;
                self.is_changed = true;
            }
            "oid[]" => {
                let elements =
                    ArrayElemTypeDef::SquareBracket(Box::new(DataType::BigInt(None)), None);
                *data_type = DataType::Array(elements);
                self.is_changed = true;
            }
            "oid" | "xid" | "cid" => {
                *data_type = DataType::BigInt(None);
                self.is_changed = true;
            }
            _ => {}
        }
    }

    /// The text of a number that is a table's or a type's: `x::regclass::text`.
    fn name_of_number(&mut self, expr: &mut Expr) {
        let Expr::Cast { expr: inner, data_type, .. } = &*expr else { return };
        if !matches!(data_type, DataType::Text | DataType::Varchar(_)) {
            return;
        }
        let Expr::Cast { expr: number, data_type, .. } = inner.as_ref() else { return };
        let to = data_type.to_string().to_lowercase();
        if to.ends_with("regclass")
            && let Some(name) = literal(number)
        {
            return self.put(expr, &format!("'{}'", name.replace('\'', "''")));
        }
        let number = number.to_string();
        match to.strip_prefix("pg_catalog.").unwrap_or(&to) {
            "regclass" => {
                let table = self.name("pg_class");
                self.put(
                    expr,
                    &format!("(SELECT max(c.relname) FROM {table} c WHERE c.oid = {number})"),
                );
            }
            "regtype" => {
                let arguments = [number, "NULL".to_string()];
                if let Some(text) =
                    calls::expression("format_type", &arguments, self.about, self.session)
                {
                    self.put(expr, &text);
                }
            }
            _ => {}
        }
    }

    fn binary(&mut self, expr: &mut Expr) {
        let Expr::BinaryOp { left, op, right } = expr else { return };
        // Functions of types are names here; as a number, one that there is not is 0.
        if names_function(left)
            && let Expr::Value(value) = right.as_mut()
            && let Value::Number(number, _) = &value.value
        {
            value.value = Value::SingleQuotedString(number.to_string());
            self.is_changed = true;
        }
        // So a function is looked for by its name.
        let is_changed = match (names_function(left), names_function(right)) {
            (true, false) => name_for_number(right),
            (false, true) => name_for_number(left),
            _ => false,
        };
        self.is_changed |= is_changed;
        let BinaryOperator::PGCustomBinaryOperator(names) = op else { return };
        let known = match names.last().map(String::as_str) {
            Some("~") => BinaryOperator::PGRegexMatch,
            Some("~*") => BinaryOperator::PGRegexIMatch,
            Some("!~") => BinaryOperator::PGRegexNotMatch,
            Some("!~*") => BinaryOperator::PGRegexNotIMatch,
            Some("=") => BinaryOperator::Eq,
            Some("<>" | "!=") => BinaryOperator::NotEq,
            Some("<") => BinaryOperator::Lt,
            Some(">") => BinaryOperator::Gt,
            _ => return,
        };
        *op = known;
        self.is_changed = true;
    }

    /// A SELECT that needs rows of an empty table has no rows: its columns become NULL.
    fn of_nothing(&mut self, select: &mut Select) {
        let is_grouped =
            !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
        if !joins_nothing(select) || (!is_grouped && select.projection.iter().any(is_aggregate)) {
            return;
        }
        let nulls = select.projection.iter().map(|item| {
            let name = match item {
                SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => name.clone(),
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last()?.clone(),
                _ => return None,
            };
            Some(SelectItem::ExprWithAlias { expr: parsed("CAST(NULL AS TEXT)")?, alias: name })
        });
        let (Some(nulls), Some(no)) = (nulls.collect::<Option<Vec<_>>>(), parsed("FALSE")) else {
            return;
        };
        select.projection = nulls;
        select.from.clear();
        select.selection = Some(no);
        select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
        select.having = None;
        self.is_changed = true;
    }

    /// Branches for kinds of types that there are not: domains, composites, ranges, enums.
    fn case(&mut self, expr: &mut Expr) {
        let Expr::Case { operand: None, conditions, else_result, .. } = expr else { return };
        let gone = conditions.iter().find(|branch| asks_for_no_type(&branch.condition));
        let Some(null) = gone.map(|branch| null_like(&branch.result)) else { return };
        conditions.retain(|branch| !asks_for_no_type(&branch.condition));
        self.is_changed = true;
        if conditions.is_empty() {
            let rest = else_result.take().map(|rest| *rest).filter(|rest| !is_null(rest));
            *expr = rest.or_else(|| parsed(null)).unwrap_or_else(|| Expr::value(Value::Null));
        }
    }

    /// Whether something is among the schemas of the search path, which Grafana takes apart in a subquery: `x IN (SELECT s[i]
    /// FROM generate_series(1, ..) AS i, string_to_array(current_setting('search_path'), ',') AS s)`.
    fn search_path(&mut self, expr: &mut Expr) {
        let Expr::InSubquery { expr: schema, subquery, negated } = &*expr else { return };
        if !takes_search_path_apart(subquery) {
            return;
        }
        let path = self.about.settings.get("search_path").unwrap_or_default();
        let schemas = path.split(',').map(|name| name.trim().replace('"', "").replace('\'', "''"));
        let schemas: Vec<_> = schemas.map(|name| format!("'{name}'")).collect();
        let not = if *negated { "NOT " } else { "" };
        self.put(expr, &format!("{schema} {not}IN ({})", schemas.join(", ")));
    }

    /// Replaces a subquery over an empty table by its result.
    fn subquery(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Subquery(query) if is_of_nothing(query) => self.put(expr, "CAST(NULL AS TEXT)"),
            Expr::Exists { subquery, negated } if is_of_nothing(subquery) => {
                let text = if *negated { "TRUE" } else { "FALSE" };
                self.put(expr, text);
            }
            Expr::InSubquery { subquery, negated, .. } if is_of_nothing(subquery) => {
                let text = if *negated { "TRUE" } else { "FALSE" };
                self.put(expr, text);
            }
            Expr::Function(call) => {
                // ARRAY(SELECT ..)
                let FunctionArguments::Subquery(query) = &call.args else { return };
                if is_of_nothing(query) {
                    return self.put(expr, "CAST(NULL AS TEXT[])");
                }
                if let Some(list) = list_of(query) {
                    self.put(expr, &list);
                }
            }
            _ => {}
        }
    }
}

impl VisitorMut for Rewrite<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && let Some(name) = column_name(expr)
            {
                let expr = expr.clone();
                *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
            }
        }
        ControlFlow::Continue(())
    }

    // What is within is in other words by then.
    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.of_nothing(select);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::Select(select) = query.body.as_ref()
            && has_no_rows(select)
        {
            query.order_by = None;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(_), .. } = factor
            && let [schema, function] = parts(name).as_slice()
            && schema == "pg_catalog"
        {
            *name = ObjectName::from(vec![Ident::new(function)]);
            self.is_changed = true;
        }
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let Some(table) = self.table(name)
        {
            if alias.is_none() {
                let last = parts(name).pop().unwrap_or_default();
                *alias = Some(TableAlias {
                    explicit: true,
                    name: Ident::new(last),
                    columns: Vec::new(),
                    at: None,
                });
            }
            *name = self.name(table);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.case(expr);
        self.search_path(expr);
        self.name_of_number(expr);
        if let Expr::CompoundIdentifier(parts) = expr
            && parts.len() == 3
            && parts.first().is_some_and(|first| SCHEMAS.contains(&first.value.as_str()))
        {
            parts.remove(0);
            self.is_changed = true;
        }
        if let Expr::Collate { expr: inner, collation } = expr
            && matches!(parts(collation).as_slice(), [schema, _] if schema == "pg_catalog")
        {
            let inner = inner.as_ref().clone();
            *expr = inner;
            self.is_changed = true;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.subquery(expr);
        self.function(expr);
        self.cast(expr);
        self.binary(expr);
        if let Expr::Identifier(name) = expr
            && name.quote_style.is_none()
            && matches!(
                name.value.to_lowercase().as_str(),
                "current_schema" | "current_catalog" | "session_user"
            )
            && let Some(text) =
                calls::expression(&name.value.to_lowercase(), &[], self.about, self.session)
        {
            self.put(expr, &text);
        }
        ControlFlow::Continue(())
    }
}

/// The parts of a name, those without quotes in small letters.
fn parts(name: &ObjectName) -> Vec<String> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(name) if name.quote_style.is_some() => name.value.clone(),
        other => other.to_string().to_lowercase(),
    };
    name.0.iter().map(part).collect()
}

fn parsed(text: &str) -> Option<Expr> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(text).ok()?.parse_expr().ok()
}

fn arguments(call: &Function) -> Vec<String> {
    let FunctionArguments::List(list) = &call.args else { return Vec::new() };
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => uncast(expr).to_string(),
        other => other.to_string(),
    };
    list.args.iter().map(argument).collect()
}

/// A literal without its casts.
fn uncast(expr: &Expr) -> &Expr {
    let mut inner = expr;
    while let Expr::Cast { expr, .. } = inner {
        inner = expr;
    }
    if matches!(inner, Expr::Value(_)) { inner } else { expr }
}

fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            // As `keep_texts` has it.
            Value::Placeholder(quoted) => {
                let text = quoted.strip_prefix('\'')?.strip_suffix('\'')?;
                Some(text.replace("''", "'"))
            }
            _ => None,
        },
        _ => None,
    }
}

/// What PostgreSQL calls a column that has no name, where the engine will see another expression.
fn column_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Function(call) => parts(&call.name).pop(),
        Expr::Cast { expr: inner, data_type, .. } => {
            column_name(inner).or_else(|| match inner.as_ref() {
                Expr::Identifier(name) => Some(name.value.clone()),
                Expr::CompoundIdentifier(names) => names.last().map(|name| name.value.clone()),
                _ => {
                    let to = data_type.to_string().to_lowercase();
                    Some(to.rsplit('.').next().unwrap_or(&to).to_string())
                }
            })
        }
        Expr::Nested(inner) => column_name(inner),
        Expr::Collate { expr: inner, .. } => match inner.as_ref() {
            Expr::CompoundIdentifier(names) => names.last().map(|name| name.value.clone()),
            _ => None,
        },
        Expr::CompoundIdentifier(names) if names.len() == 3 => {
            names.last().map(|name| name.value.clone())
        }
        Expr::Identifier(name) if calls::is_known(&name.value.to_lowercase()) => {
            Some(name.value.to_lowercase())
        }
        Expr::Case { .. } => Some("case".to_string()),
        Expr::Exists { .. } => Some("exists".to_string()),
        _ => None,
    }
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value == Value::Null)
}

/// NULL as a subquery over the catalog is it: a number, or a list. That is one of texts: of the lists, asyncpg knows these without
/// asking the catalog again.
fn null_like(expr: &Expr) -> &'static str {
    match expr.to_string().to_lowercase().contains("array_agg") {
        true => "CAST(NULL AS TEXT[])",
        false => "CAST(NULL AS BIGINT)",
    }
}

/// Whether a condition asks for a kind of type that the catalog never lists.
fn asks_for_no_type(condition: &Expr) -> bool {
    let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = condition else { return false };
    let is_kind = match left.as_ref() {
        Expr::CompoundIdentifier(names) => names.last().is_some_and(|name| name.value == "typtype"),
        _ => false,
    };
    is_kind
        && literal(right).is_some_and(|kind| matches!(kind.as_str(), "d" | "c" | "r" | "m" | "e"))
}

/// Whether a subquery reads the parts of the search path, and nothing else.
fn takes_search_path_apart(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let is_part = |factor: &TableFactor| {
        let text = factor.to_string().to_lowercase();
        text.starts_with("generate_series(") || text.starts_with("string_to_array(current_setting(")
    };
    let joins = |from: &TableWithJoins| from.joins.iter().all(|join| is_part(&join.relation));
    !select.from.is_empty()
        && select.from.iter().all(|from| is_part(&from.relation) && joins(from))
        && query.to_string().to_lowercase().contains("current_setting('search_path')")
}

/// Has the number of a function, `p.oid`, become its name; whether it was one.
fn name_for_number(expr: &mut Expr) -> bool {
    match expr {
        Expr::CompoundIdentifier(names) => match names.last_mut() {
            Some(last) if last.value == "oid" => {
                *last = Ident::new("proname");
                true
            }
            _ => false,
        },
        _ => false,
    }
}

/// A column of the catalog that names a function.
fn names_function(expr: &Expr) -> bool {
    let name = match expr {
        Expr::Identifier(name) => &name.value,
        Expr::CompoundIdentifier(names) => match names.last() {
            Some(name) => &name.value,
            None => return false,
        },
        _ => return false,
    };
    FUNCTION_COLUMNS.contains(&name.as_str()) || name == "amhandler"
}

/// Whether a selection is what `of_nothing` makes of one.
fn has_no_rows(select: &Select) -> bool {
    let is_false =
        |expr: &Expr| matches!(expr, Expr::Value(value) if value.value == Value::Boolean(false));
    select.from.is_empty() && select.selection.as_ref().is_some_and(is_false)
}

/// The rows of a query as a list, in no order.
fn list_of(query: &Query) -> Option<String> {
    let mut query = query.clone();
    query.order_by = None;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    select.projection = vec![SelectItem::UnnamedExpr(parsed(&format!("array_agg({expr})"))?)];
    Some(format!("({query})"))
}

/// Whether a selection needs a row of a given table that has none.
fn joins_nothing(select: &Select) -> bool {
    let is_nothing = |factor: &TableFactor| match factor {
        TableFactor::Table { name, .. } => {
            let name = parts(name).pop().unwrap_or_default();
            name.strip_prefix(MARK).is_some_and(is_empty)
        }
        TableFactor::Derived { subquery, .. } => {
            matches!(subquery.body.as_ref(), SetExpr::Select(select) if has_no_rows(select))
        }
        _ => false,
    };
    select.from.iter().any(|from| {
        let is_inner = |join: &Join| {
            matches!(
                join.join_operator,
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
            )
        };
        let all_inner = from.joins.iter().all(|join| {
            is_inner(join)
                || matches!(join.join_operator, JoinOperator::Left(_) | JoinOperator::LeftOuter(_))
        });
        all_inner
            && (is_nothing(&from.relation)
                || from.joins.iter().any(|join| is_inner(join) && is_nothing(&join.relation)))
    })
}

/// Aggregates of the queries over the catalog.
const AGGREGATES: [&str; 10] = [
    "count", "sum", "min", "max", "avg", "array_agg", "string_agg", "bool_and", "bool_or",
    "json_agg",
];

/// Whether a column may be an aggregate, which is something of no rows.
fn is_aggregate(item: &SelectItem) -> bool {
    let expr = match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
        _ => return false,
    };
    let mut aggregates = Aggregates { depth: 0, is_found: false };
    let _ = expr.visit(&mut aggregates);
    aggregates.is_found
}

/// Looks for aggregates, but not within subqueries, whose they are.
struct Aggregates {
    depth: usize,
    is_found: bool,
}

impl Visitor for Aggregates {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let (0, Expr::Function(call)) = (self.depth, expr) {
            self.is_found |=
                parts(&call.name).last().is_some_and(|name| AGGREGATES.contains(&name.as_str()));
        }
        ControlFlow::Continue(())
    }
}

/// Whether a query is of a given table that has no rows.
fn is_of_nothing(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    if has_no_rows(select) {
        return true;
    }
    let grouped = select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => is_count(expr),
        _ => false,
    });
    !grouped
        && select.from.iter().any(|from| match &from.relation {
            TableFactor::Table { name, .. } => {
                let name = parts(name).pop().unwrap_or_default();
                name.strip_prefix(MARK).is_some_and(is_empty)
            }
            _ => false,
        })
}

/// An aggregate that is something of no rows.
fn is_count(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if parts(&call.name).last().is_some_and(|name| name == "count"))
}
