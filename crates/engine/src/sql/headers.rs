//! Columns of an answer are called what the user wrote, and two may be called the same.
//!
//! The planner names a column by its own rendering of the expression (`count(Int64(1))`, and for
//! `fare::int` just `fare`) and refuses two of one name. So what the user wrote is put on the
//! answer's schema afterwards; the plan stays as it is.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableAlias,
    TableFactor, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use super::columns_calls::has_columns;
use super::nodes::plain_name;
use super::own::sql_statement;
use super::text::Places;
use super::walk::{self, Flow, ON, Stop};

/// Names for the columns of an answer; those that have none keep the planner's.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    /// Up to the first wildcard.
    front: Vec<Option<String>>,
    /// Behind the last wildcard, if there is one.
    back: Option<Vec<Option<String>>>,
}

impl Headers {
    /// What the columns of a query's answer are called; those of an EXPLAIN are the planner's.
    pub(super) fn of(statement: &mut DFStatement, text: &str, state: &SessionState) -> Self {
        if !matches!(statement, DFStatement::Statement(_)) {
            return Self::default();
        }
        let dialect = super::dialect::of(state);
        let Some(query) = query(statement) else { return Self::default() };
        match selects(query).into_iter().next() {
            Some(select) => Self::of_select(select, text, dialect.as_ref()),
            None => Self::default(),
        }
    }

    fn of_select(select: &Select, text: &str, dialect: &dyn Dialect) -> Self {
        let mut items = select.projection.iter();
        // One item may become any number of columns.
        if items.any(|item| item.to_string().to_lowercase().contains("unnest")) {
            return Self::default();
        }
        let plain = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) => column_name(expr).is_some(),
            _ => true,
        };
        if select.projection.iter().all(plain) {
            return Self::of_names(select, |_, _| None);
        }
        let written = written(select, text, dialect).unwrap_or_default();
        Self::of_names(select, |i, expr| {
            if column_name(expr).is_some() {
                return None;
            }
            let text = written.get(i).filter(|text| says(text, expr, dialect));
            Some(text.map_or_else(|| expr.to_string(), |text| in_one_line(text)))
        })
    }

    fn of_names(select: &Select, name: impl Fn(usize, &Expr) -> Option<String>) -> Self {
        let mut headers = Self::default();
        for (i, item) in select.projection.iter().enumerate() {
            if is_wildcard(item) {
                headers.back = Some(Vec::new());
                continue;
            }
            let name = match item {
                SelectItem::UnnamedExpr(expr) => name(i, expr),
                _ => None,
            };
            headers.back.as_mut().unwrap_or(&mut headers.front).push(name);
        }
        headers
    }

    /// Those of the same items where some are written out under the names that a function gives them.
    pub(super) fn written_out(
        &self,
        items: &[SelectItem],
        names: impl Fn(&SelectItem) -> Result<Option<Vec<String>>>,
    ) -> Result<Self> {
        let mut written = Self::default();
        for (item, place) in items.iter().zip(places(items)) {
            let own = match names(item)? {
                Some(names) => names.into_iter().map(Some).collect(),
                None if is_wildcard(item) => {
                    written.back = Some(Vec::new());
                    continue;
                }
                None => vec![self.get(place).cloned()],
            };
            written.back.as_mut().unwrap_or(&mut written.front).extend(own);
        }
        Ok(written)
    }

    fn get(&self, place: Place) -> Option<&String> {
        match place {
            Place::Front(i) => self.front.get(i)?.as_ref(),
            Place::Back(i) => self.back.as_ref()?.get(i)?.as_ref(),
            Place::Between => None,
        }
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut Option<String>> {
        match place {
            Place::Front(i) => self.front.get_mut(i),
            Place::Back(i) => self.back.as_mut()?.get_mut(i),
            Place::Between => None,
        }
    }

    /// The schema of an answer with its names.
    pub fn apply(&self, schema: &SchemaRef) -> SchemaRef {
        let columns = schema.fields().len();
        let back = self.back.as_deref().unwrap_or_default();
        let fits = match self.back {
            Some(_) => self.front.len() + back.len() <= columns,
            None => self.front.len() == columns,
        };
        if !fits || self.front.iter().chain(back).all(Option::is_none) {
            return Arc::clone(schema);
        }
        let between = columns - self.front.len() - back.len();
        let names = self.front.iter().chain(std::iter::repeat_n(&None, between)).chain(back);
        let named = |(field, name): (&Arc<Field>, &Option<String>)| match name {
            Some(name) => Arc::new(field.as_ref().clone().with_name(name)),
            None => Arc::clone(field),
        };
        let fields: Vec<_> = schema.fields().iter().zip(names).map(named).collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }
}

/// Where a column's name is kept.
#[derive(Clone, Copy)]
enum Place {
    Front(usize),
    /// Between two wildcards: the number of columns before it is not known.
    Between,
    Back(usize),
}

/// Whether an item may be any number of columns.
fn is_wildcard(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)) || has_columns(item)
}

fn places(projection: &[SelectItem]) -> Vec<Place> {
    let first = projection.iter().position(is_wildcard);
    let last = projection.iter().rposition(is_wildcard);
    let place = |item: usize| match (first, last) {
        (Some(first), Some(last)) if item > first && item < last => Place::Between,
        (_, Some(last)) if item > last => Place::Back(item - last - 1),
        _ => Place::Front(item),
    };
    (0..projection.len()).map(place).collect()
}

/// Gives every column that may share its name an alias of its own; the answer's schema keeps the
/// names. False if there is nothing that it could change.
pub fn make_unique(statement: &mut DFStatement, headers: &mut Headers) -> bool {
    let Some(query) = query(statement) else { return false };
    let mut changed = false;
    for (nth, select) in selects(query).into_iter().enumerate() {
        let wildcard = select.projection.iter().any(is_wildcard);
        let places = places(&select.projection);
        let mut seen = std::collections::HashSet::new();
        for (i, item) in select.projection.iter_mut().enumerate() {
            let (expr, name) = match &*item {
                SelectItem::UnnamedExpr(expr) => (expr.clone(), column_name(expr)),
                SelectItem::ExprWithAlias { expr, alias } => {
                    (expr.clone(), Some(plain_name(alias)))
                }
                _ => continue,
            };
            // The first of a name keeps it: ORDER BY means that one.
            if !wildcard && name.as_ref().is_some_and(|name| seen.insert(name.clone())) {
                continue;
            }
            let alias = Ident::with_quote('"', format!("column {}", i + 1));
            *item = SelectItem::ExprWithAlias { expr, alias };
            changed = true;
            // A union is called what its first query calls it.
            if let (0, Some(name), Some(header)) = (nth, name, headers.get_mut(places[i])) {
                *header = Some(name);
            }
        }
    }
    changed
}

/// Gives outputs that are subqueries aliases of their own; whether there are any.
pub fn name_subqueries(statement: &mut DFStatement) -> bool {
    let Some(query) = query(statement) else { return false };
    let mut changed = false;
    for select in selects(query) {
        for (i, item) in select.projection.iter_mut().enumerate() {
            if let SelectItem::UnnamedExpr(expr @ Expr::Subquery(_)) = &*item {
                let alias = Ident::with_quote('"', format!("column {}", i + 1));
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                changed = true;
            }
        }
    }
    changed
}

/// Gives the columns of subqueries and WITHs the names that a list behind their alias gives them; whether there is such a list.
pub fn name_by_lists(statement: &mut DFStatement) -> bool {
    let mut lists = Lists(false);
    if let Some(inner) = sql_statement(statement) {
        walk::change_all(inner, &mut lists);
    }
    lists.0
}

struct Lists(bool);

impl Lists {
    fn name(&mut self, query: &mut Query, alias: &TableAlias) {
        if query.order_by.is_some() || alias.columns.is_empty() {
            return;
        }
        let Some(select) = selects(query).into_iter().next() else { return };
        if select.projection.iter().any(is_wildcard) {
            return;
        }
        for (item, column) in select.projection.iter_mut().zip(&alias.columns) {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = &*item {
                let (expr, alias) = (expr.clone(), column.name.clone());
                *item = SelectItem::ExprWithAlias { expr, alias };
                self.0 = true;
            }
        }
    }
}

impl VisitorMut for Lists {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            self.name(&mut table.query, &table.alias);
        }
        ON
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> Flow {
        if let TableFactor::Derived { subquery, alias: Some(alias), .. } = table {
            self.name(subquery, alias);
        }
        ON
    }
}

/// Gives aliases that are called as a column of ORDER BY others: `SELECT -id AS id FROM t ORDER BY t.id`. Whether there are any.
pub fn make_way(statement: &mut DFStatement, headers: &mut Headers) -> bool {
    let Some(query) = query(statement) else { return false };
    let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &mut query.order_by else {
        return false;
    };
    let SetExpr::Select(select) = query.body.as_mut() else { return false };
    let mut qualified = Qualified::default();
    order.iter().for_each(|by| walk::look_at_all(&by.expr, &mut qualified));
    let (places, mut changed) = (places(&select.projection), false);
    for (i, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::ExprWithAlias { expr, alias } = &*item else { continue };
        let (expr, name) = (expr.clone(), plain_name(alias));
        let Some(header) = headers.get_mut(places[i]).filter(|_| qualified.0.contains(&name))
        else {
            continue;
        };
        let other = Ident::with_quote('"', format!("column {}", i + 1));
        for by in order.iter_mut() {
            if matches!(&by.expr, Expr::Identifier(by) if plain_name(by) == name) {
                by.expr = Expr::Identifier(other.clone());
            }
        }
        *header = Some(alias.value.clone());
        *item = SelectItem::ExprWithAlias { expr, alias: other };
        changed = true;
    }
    changed
}

/// Columns that are named with their table.
#[derive(Default)]
struct Qualified(std::collections::HashSet<String>);

impl Visitor for Qualified {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        if let Expr::CompoundIdentifier(names) = expr {
            self.0.extend(names.last().map(plain_name));
        }
        ON
    }
}

/// The name of an expression that is nothing but a column.
fn column_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(plain_name(name)),
        Expr::CompoundIdentifier(names) => names.last().map(plain_name),
        _ => None,
    }
}

fn query(statement: &mut DFStatement) -> Option<&mut Query> {
    match sql_statement(statement)? {
        Statement::Query(query) => Some(query),
        _ => None,
    }
}

/// The SELECTs whose columns are the answer's, the one that names them first.
fn selects(query: &mut Query) -> Vec<&mut Select> {
    fn collect<'a>(body: &'a mut SetExpr, found: &mut Vec<&'a mut Select>) {
        match body {
            SetExpr::Select(select) => found.push(select),
            SetExpr::Query(query) => collect(&mut query.body, found),
            SetExpr::SetOperation { left, right, .. } => {
                collect(left, found);
                collect(right, found);
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(&mut query.body, &mut found);
    found
}

/// Whether a text is that expression.
fn says(text: &str, expr: &Expr, dialect: &dyn Dialect) -> bool {
    let Ok(mut parser) = Parser::new(dialect).try_with_sql(text) else { return false };
    let Ok(found) = parser.parse_expr() else { return false };
    parser.peek_token().token == Token::EOF && found.to_string() == expr.to_string()
}

fn in_one_line(text: &str) -> String {
    if !text.contains(['\n', '\t']) {
        return text.to_string();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The texts of the items of a SELECT; `None` where tokens alone do not tell them apart.
fn written<'a>(select: &Select, text: &'a str, dialect: &dyn Dialect) -> Option<Vec<&'a str>> {
    let tokens = Tokenizer::new(dialect, text).tokenize_with_location().ok()?;
    let begin = select.select_token.0.span.start;
    let tokens: Vec<TokenWithSpan> = tokens
        .into_iter()
        .skip_while(|token| token.span.start < begin)
        .filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF))
        .collect();
    let places = Places::of(text);
    let items = items(tokens.get(1..)?);
    let slice = |(from, to): (Location, Location)| text.get(places.offset(from)..places.offset(to));
    let items: Option<Vec<&str>> = items.into_iter().map(slice).collect();
    items.filter(|items| items.len() == select.projection.len())
}

/// Begin and end of the items behind a SELECT.
fn items(tokens: &[TokenWithSpan]) -> Vec<(Location, Location)> {
    let mut items: Vec<(Location, Location)> = Vec::new();
    let mut depth = 0;
    let mut new = true;
    for (i, token) in tokens[modifiers(tokens)..].iter().enumerate() {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace if depth > 0 => depth -= 1,
            Token::RParen | Token::SemiColon => break,
            Token::Comma if depth == 0 => {
                new = true;
                continue;
            }
            // As in `a IS DISTINCT FROM b`.
            Token::Word(word) if word.keyword == Keyword::FROM && depth == 0 => {
                let before = i.checked_sub(1).map(|i| &tokens[modifiers(tokens) + i].token);
                let distinct =
                    matches!(before, Some(Token::Word(w)) if w.keyword == Keyword::DISTINCT);
                if !distinct {
                    break;
                }
            }
            Token::Word(word) if depth == 0 && ENDS.contains(&word.keyword) => break,
            _ => {}
        }
        match items.last_mut() {
            Some(item) if !new => item.1 = token.span.end,
            _ => items.push((token.span.start, token.span.end)),
        }
        new = false;
    }
    items
}

/// Keywords behind the items.
const ENDS: [Keyword; 12] = [
    Keyword::INTO,
    Keyword::WHERE,
    Keyword::GROUP,
    Keyword::HAVING,
    Keyword::WINDOW,
    Keyword::QUALIFY,
    Keyword::ORDER,
    Keyword::LIMIT,
    Keyword::OFFSET,
    Keyword::FETCH,
    Keyword::UNION,
    Keyword::INTERSECT,
];

/// Tokens of ALL, DISTINCT or DISTINCT ON (..).
fn modifiers(tokens: &[TokenWithSpan]) -> usize {
    let keyword = |i: usize| match tokens.get(i).map(|token| &token.token) {
        Some(Token::Word(word)) => Some(word.keyword),
        _ => None,
    };
    match (keyword(0), keyword(1)) {
        (Some(Keyword::DISTINCT), Some(Keyword::ON)) => {
            let mut depth = 0;
            for (i, token) in tokens.iter().enumerate().skip(2) {
                match token.token {
                    Token::LParen => depth += 1,
                    Token::RParen => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    return i + 1;
                }
            }
            tokens.len()
        }
        (Some(Keyword::DISTINCT | Keyword::ALL), _) => 1,
        _ => 0,
    }
}
