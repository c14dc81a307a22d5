//! The aggregates and keys of a long list of outputs: the planner would look for each output among all of them.

use std::collections::HashMap;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, TableReference};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan};

type Field = (Option<TableReference>, FieldRef);

/// What an aggregation of rows makes.
#[derive(Default)]
pub struct Groups {
    keys: Vec<Expr>,
    aggregates: Vec<Expr>,
    made: HashMap<Expr, Field>,
    has_aggregates_of_aggregates: bool,
}

impl Groups {
    /// Groups by a key.
    ///
    /// # Errors
    /// What the planner says of its type.
    pub fn add_key(&mut self, key: Expr, rows: &DFSchema) -> Result<()> {
        if !self.made.contains_key(&key) {
            self.made.insert(key.clone(), key.to_field(rows)?);
            self.keys.push(key);
        }
        Ok(())
    }

    /// Computes the aggregates of an output.
    ///
    /// # Errors
    /// What the planner says of their types.
    pub fn add_aggregates(&mut self, output: &Expr, rows: &DFSchema) -> Result<()> {
        output.apply(|expr| {
            if !is_aggregate(expr) {
                return Ok(TreeNodeRecursion::Continue);
            }
            self.has_aggregates_of_aggregates |= aggregates_in(expr)? > 1;
            if !self.made.contains_key(expr) {
                self.made.insert(expr.clone(), expr.to_field(rows)?);
                self.aggregates.push(expr.clone());
            }
            Ok(TreeNodeRecursion::Jump)
        })?;
        Ok(())
    }

    /// Whether rows are the rows of the answer.
    pub fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    /// An output above the aggregation, and what it names there; `None` if it names what the aggregation does not make.
    ///
    /// # Errors
    /// None.
    pub fn above(&self, output: Expr) -> Result<Option<(Expr, DFSchema)>> {
        let (mut named, mut is_made) = (HashMap::new(), true);
        let above = output.transform_down(|expr| match self.made.get(&expr) {
            Some((table, field)) => {
                let column = Column::from((table.as_ref(), field));
                named.insert(column.clone(), (table.clone(), FieldRef::clone(field)));
                Ok(Transformed::new(Expr::Column(column), true, TreeNodeRecursion::Jump))
            }
            None => {
                is_made &= !matches!(expr, Expr::Column(_));
                Ok(Transformed::no(expr))
            }
        })?;
        let named = named.into_values().collect();
        let schema = DFSchema::new_with_metadata(named, HashMap::new());
        Ok(schema.ok().filter(|_| is_made).map(|schema| (above.data, schema)))
    }

    /// The aggregation of rows; `None` if that is more than it seems.
    ///
    /// # Errors
    /// What the planner says of it.
    pub fn of_rows(self, rows: LogicalPlan) -> Result<Option<LogicalPlan>> {
        if self.has_aggregates_of_aggregates {
            return Ok(None);
        }
        let made = self.keys.iter().chain(&self.aggregates);
        let fields = made.filter_map(|expr| self.made.get(expr).cloned()).collect();
        let Ok(schema) = DFSchema::new_with_metadata(fields, rows.schema().metadata().clone())
        else {
            return Ok(None);
        };
        let (keys, aggregates) = (self.keys, self.aggregates);
        let made = Aggregate::try_new_with_schema(rows.into(), keys, aggregates, schema.into())?;
        Ok(Some(LogicalPlan::Aggregate(made)))
    }
}

fn is_aggregate(expr: &Expr) -> bool {
    matches!(expr, Expr::AggregateFunction(_))
}

fn aggregates_in(expr: &Expr) -> Result<usize> {
    let mut found = 0;
    expr.apply(|expr| {
        found += usize::from(is_aggregate(expr));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
