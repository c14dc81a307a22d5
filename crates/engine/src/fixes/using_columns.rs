//! The columns of `a JOIN b USING (k)`.
//!
//! ```sql
//! SELECT k FROM a RIGHT JOIN b USING (k)
//! ```
//!
//! - DataFusion: NULL in rows that `b` alone has, and of three tables `k` is ambiguous; right is `b`'s, of a full join that
//!   of either.
//! - Upstream: apache/datafusion#22881.
//! - This can go when its canary finds the fault mended.
//!
//! `k` is the side's that has a row: `b.k` of a right join, `coalesce(a.k, b.k)` of a full one. The planner takes `a.k`, which
//! is NULL where only `b` has a row. In `*` it comes first, as SQL has it; the planner leaves it where `a` has it. It knows no
//! `k` of three tables, nor `k` beside `* EXCLUDE (k)`. So USING becomes ON, and `k` without a
//! table, and in `*`, what it stands for. A `k` in a subquery, which may be the subquery's own, is left to the planner,
//! which knows two and refuses it. Of `a ASOF JOIN b USING (k, t)` the last column is the time, which is `a`'s.

use datafusion::common::{Result, not_impl_err};
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart,
    OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement,
    TableFactor, TableWithJoins, VisitorMut, WildcardAdditionalOptions,
};

use crate::sql::asof;
use crate::sql::nodes::is_same;
use crate::sql::own::parse_expr;
use crate::sql::walk::{self, Flow, ON, Stop};

const HINT: &str = "hint: write ON a.k = b.k, and coalesce(a.k, b.k) for the column of both";

/// Spells out the columns of USING where the planner takes the wrong side's, or puts them elsewhere.
///
/// # Errors
/// Right and full joins whose columns cannot be told from the statement alone.
pub fn merge(statement: &mut Statement) -> Result<()> {
    walk::change(statement, &mut Merge { last: None })
}

struct Merge {
    /// The columns of the last SELECT, for the ORDER BY of its query.
    last: Option<Columns>,
}

impl VisitorMut for Merge {
    type Break = Stop;

    fn post_visit_select(&mut self, select: &mut Select) -> Flow {
        self.last = None;
        for index in 0..select.from.len() {
            let is_needed = select.from[index].joins.iter().any(is_other_side);
            if !is_needed && !has_using(&select.from[index]) {
                continue;
            }
            let before = select.clone();
            match in_select(select, index) {
                Ok(columns) => self.last = Some(columns),
                Err(error) if is_needed => return walk::stop(error),
                // The planner has its own way.
                Err(_) => *select = before,
            }
        }
        ON
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        let (Some(columns), SetExpr::Select(select)) = (self.last.take(), query.body.as_ref())
        else {
            return ON;
        };
        let outputs: Vec<Ident> = select.projection.iter().filter_map(name_of_output).collect();
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(order) = &mut order.kind
        {
            for by in order {
                let is_output = matches!(
                    &by.expr,
                    Expr::Identifier(name) if outputs.iter().any(|output| is_same(output, name))
                );
                if !is_output {
                    walk::change_all(&mut by.expr, &mut Replace { columns: &columns, queries: 0 });
                }
            }
        }
        ON
    }
}

fn name_of_output(item: &SelectItem) -> Option<Ident> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last().cloned(),
        _ => None,
    }
}

/// Whether a chain of joins has USING: to the planner its columns stand elsewhere in `*`, and are two in WHERE.
fn has_using(chain: &TableWithJoins) -> bool {
    chain.joins.iter().any(|join| matches!(constraint_of(join), Some(JoinConstraint::Using(_))))
}

/// The condition of a join.
pub fn constraint_of(join: &Join) -> Option<&JoinConstraint> {
    match &join.join_operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::AsOf { constraint, .. } => Some(constraint),
        _ => None,
    }
}

/// The condition of a join, to be changed.
pub fn constraint(join: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match join {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::AsOf { constraint, .. } => Some(constraint),
        _ => None,
    }
}

/// Whether a column of a join may be the right side's alone.
fn is_other_side(join: &Join) -> bool {
    use JoinConstraint::{Natural, Using};
    use JoinOperator::{FullOuter, Right, RightOuter};
    matches!(
        &join.join_operator,
        Right(Using(_) | Natural) | RightOuter(Using(_) | Natural) | FullOuter(Using(_) | Natural)
    )
}

fn in_select(select: &mut Select, index: usize) -> Result<Columns> {
    let columns = Columns::of(&mut select.from[index])?;
    let stars = std::mem::take(&mut select.projection);
    for item in stars {
        match item {
            SelectItem::Wildcard(options) if select.from.len() == 1 => {
                select.projection.extend(columns.all(&options)?);
            }
            SelectItem::Wildcard(_) => {
                return not_impl_err!("* of several tables beside a join with USING\n{HINT}");
            }
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                select.projection.push(match columns.find(&name) {
                    Some(expr) => SelectItem::ExprWithAlias { expr: expr.clone(), alias: name },
                    None => SelectItem::UnnamedExpr(Expr::Identifier(name)),
                });
            }
            other => select.projection.push(other),
        }
    }
    let mut replace = Replace { columns: &columns, queries: 0 };
    // What stands in FROM sees its own tables alone.
    let from = std::mem::take(&mut select.from);
    walk::change_all(select, &mut replace);
    select.from = from;
    Ok(columns)
}

/// The columns of USING in a chain of joins.
struct Columns {
    /// The tables of the chain.
    tables: Vec<Ident>,
    merged: Vec<Merged>,
}

struct Merged {
    name: Ident,
    /// What it stands for.
    expr: Expr,
    /// The tables that have it.
    of: Vec<usize>,
}

impl Columns {
    /// The columns of a chain, whose USING becomes ON.
    fn of(chain: &mut TableWithJoins) -> Result<Self> {
        let mut columns = Self { tables: vec![name_of(&chain.relation)?], merged: Vec::new() };
        for join in &mut chain.joins {
            let right = columns.tables.len();
            columns.tables.push(name_of(&join.relation)?);
            let operator = join.join_operator.clone();
            let Some(constraint) = constraint(&mut join.join_operator) else {
                return not_impl_err!(
                    "a right or full join with USING beside this kind of join\n{HINT}"
                );
            };
            match constraint {
                JoinConstraint::Using(names) => {
                    let mut equal = Vec::new();
                    for name in names.iter() {
                        equal.push(columns.merge(name, right, &operator)?);
                    }
                    if asof::is_marked(&operator)
                        && let Some(time) = equal.last_mut()
                    {
                        *time = time.replacen(" = ", " >= ", 1);
                    }
                    *constraint = JoinConstraint::On(parse_expr(&equal.join(" and "))?);
                }
                JoinConstraint::Natural => {
                    return not_impl_err!("a right or full join that is NATURAL\n{HINT}");
                }
                JoinConstraint::On(_) | JoinConstraint::None => {}
            }
        }
        Ok(columns)
    }

    /// Adds a column of USING; answers the condition.
    fn merge(
        &mut self,
        name: &ObjectName,
        right: usize,
        operator: &JoinOperator,
    ) -> Result<String> {
        let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
            return not_impl_err!("USING ({name})\n{HINT}");
        };
        let known = self.merged.iter().position(|merged| is_same(&merged.name, name));
        let mut merged = match known {
            Some(known) => self.merged.remove(known),
            None if right == 1 => Merged {
                name: name.clone(),
                expr: parse_expr(&format!("{}.{name}", self.tables[0]))?,
                of: vec![0],
            },
            None => {
                return not_impl_err!(
                    "USING ({name}) after several tables, beside a right or full join\n{HINT}"
                );
            }
        };
        let (left, own) = (merged.expr.to_string(), format!("{}.{name}", self.tables[right]));
        merged.of.push(right);
        merged.expr = match operator {
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => parse_expr(&own)?,
            JoinOperator::FullOuter(_) => parse_expr(&format!("coalesce({left}, {own})"))?,
            _ => merged.expr,
        };
        // The columns of the last join come first.
        let last = self.merged.iter().take_while(|merged| merged.of.contains(&right)).count();
        self.merged.insert(last, merged);
        Ok(format!("{left} = {own}"))
    }

    fn find(&self, name: &Ident) -> Option<&Expr> {
        self.merged.iter().find(|merged| is_same(&merged.name, name)).map(|merged| &merged.expr)
    }

    /// What `*` stands for: the columns of both sides once, then those of each table.
    fn all(&self, options: &WildcardAdditionalOptions) -> Result<Vec<SelectItem>> {
        let plain = WildcardAdditionalOptions {
            wildcard_token: options.wildcard_token.clone(),
            ..WildcardAdditionalOptions::default()
        };
        let excluded = match &options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => vec![name.clone()],
            Some(ExcludeSelectItem::Multiple(names)) => names.clone(),
            None => Vec::new(),
        };
        let excluded: Vec<Ident> = excluded.iter().filter_map(of_one_part).collect();
        let others = WildcardAdditionalOptions { opt_exclude: None, ..options.clone() };
        if others != plain || excluded.iter().any(|name| self.find(name).is_none()) {
            return not_impl_err!(
                "* with REPLACE, or EXCLUDE of other columns, over a join with USING\n{HINT}"
            );
        }
        let is_shown = |merged: &&Merged| !excluded.iter().any(|name| is_same(name, &merged.name));
        let merged = self.merged.iter().filter(is_shown);
        let merged = merged.map(|merged| SelectItem::ExprWithAlias {
            expr: merged.expr.clone(),
            alias: merged.name.clone(),
        });
        let tables = self.tables.iter().enumerate().map(|(index, table)| {
            let has = self.merged.iter().filter(|merged| merged.of.contains(&index));
            let names: Vec<ObjectName> =
                has.map(|merged| ObjectName::from(vec![merged.name.clone()])).collect();
            let opt_exclude = (!names.is_empty()).then_some(ExcludeSelectItem::Multiple(names));
            SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![table.clone()])),
                WildcardAdditionalOptions { opt_exclude, ..plain.clone() },
            )
        });
        Ok(merged.chain(tables).collect())
    }
}

fn of_one_part(name: &ObjectName) -> Option<Ident> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(name.clone()),
        _ => None,
    }
}

/// What a table is called in its statement.
fn name_of(table: &TableFactor) -> Result<Ident> {
    match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Ok(alias.name.clone()),
        TableFactor::Table { name, .. } => match name.0.last() {
            Some(ObjectNamePart::Identifier(name)) => Ok(name.clone()),
            _ => not_impl_err!("a right or full join of {name} with USING\n{HINT}"),
        },
        _ => not_impl_err!("a right or full join with USING of what has no name\n{HINT}"),
    }
}

/// Puts what columns stand for in their place.
struct Replace<'a> {
    columns: &'a Columns,
    /// Subqueries around the expression.
    queries: usize,
}

impl VisitorMut for Replace<'_> {
    type Break = Stop;

    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries += 1;
        ON
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries -= 1;
        ON
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Identifier(name) = expr
            && self.queries == 0
            && let Some(stands_for) = self.columns.find(name)
        {
            *expr = stands_for.clone();
        }
        ON
    }
}
