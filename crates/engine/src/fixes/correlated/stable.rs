//! Where the values of outer rows are taken from, so that they are the same when the rows are read again.
//!
//! What outer rows are asked for may be known below what makes them others at each reading: a window, a LIMIT, a sum of floats. There
//! they have all the values that they have above, and more, of which nobody is asked:
//!
//! ```text
//! SELECT sum(o.x) OVER (ORDER BY o.at), (SELECT .. WHERE t.at < o.at) FROM o    the values are o's, below the window
//! ```

use std::sync::Arc;

use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};

use super::outer::may_differ;
use crate::plans::{columns_of, through};

/// Rows, and what the values are made of there.
pub struct Stable {
    pub rows: LogicalPlan,
    pub values: Vec<Expr>,
}

impl Stable {
    /// Of columns of outer rows: the rows themselves, where they are the same at each reading, or where nothing below them has the
    /// values.
    pub fn of(outer: &LogicalPlan, columns: &[Column]) -> Result<Self> {
        let values: Vec<Expr> = columns.iter().cloned().map(Expr::Column).collect();
        let mut below = Self { rows: outer.clone(), values: values.clone() };
        while may_differ(&below.rows)? {
            match below.down()? {
                Some(next) => below = next,
                None => return Ok(Self { rows: outer.clone(), values }),
            }
        }
        Ok(below)
    }

    /// The same of the rows that these come of, each of whose values is among those.
    fn down(&self) -> Result<Option<Self>> {
        let has_all = |rows: &LogicalPlan| {
            let mut columns = self.values.iter().flat_map(Expr::column_refs);
            columns.all(|column| rows.schema().has_column(column))
        };
        let of =
            |rows: &Arc<LogicalPlan>, values| Some(Self { rows: rows.as_ref().clone(), values });
        let made =
            |columns: &[Column], made_of: &[Expr]| through(self.values.clone(), columns, made_of);
        Ok(match &self.rows {
            LogicalPlan::Filter(filter) => of(&filter.input, self.values.clone()),
            LogicalPlan::Limit(limit) => of(&limit.input, self.values.clone()),
            LogicalPlan::Sort(sort) => of(&sort.input, self.values.clone()),
            LogicalPlan::Distinct(Distinct::All(rows)) => of(rows, self.values.clone()),
            LogicalPlan::Join(join) => {
                use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi, Right};
                let keeps_left =
                    matches!(join.join_type, Inner | Left | LeftSemi | LeftAnti | LeftMark);
                let keeps_right = matches!(join.join_type, Inner | Right);
                if keeps_left && has_all(&join.left) {
                    of(&join.left, self.values.clone())
                } else if keeps_right && has_all(&join.right) {
                    of(&join.right, self.values.clone())
                } else {
                    None
                }
            }
            LogicalPlan::Window(window) if has_all(&window.input) => {
                of(&window.input, self.values.clone())
            }
            LogicalPlan::SubqueryAlias(alias) => {
                of(&alias.input, made(&alias.schema.columns(), &columns_of(&alias.input))?)
            }
            LogicalPlan::Projection(projection) => {
                let values = made(&projection.schema.columns(), &projection.expr)?;
                let is_same = !values.iter().any(Expr::is_volatile);
                is_same.then(|| of(&projection.input, values)).flatten()
            }
            LogicalPlan::Aggregate(aggregate) => {
                let groups = &aggregate.group_expr;
                let is_plain = !groups.iter().any(|key| matches!(key, Expr::GroupingSet(_)));
                let keys = aggregate.schema.columns();
                let keys = &keys[..groups.len().min(keys.len())];
                let mut asked = self.values.iter().flat_map(Expr::column_refs);
                match is_plain && !groups.is_empty() && asked.all(|column| keys.contains(column)) {
                    true => of(&aggregate.input, made(keys, groups)?),
                    false => None,
                }
            }
            _ => None,
        })
    }
}
