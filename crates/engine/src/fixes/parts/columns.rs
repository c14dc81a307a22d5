//! The columns of a schema by their names.
//!
//! A schema compares a name with that of each of its columns, so to plan as many expressions as there are columns takes
//! the square of their number. An expression that is planned beside nothing but the columns that it names does not.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::Expr;

/// Places of columns.
pub struct Columns<'a> {
    schema: &'a DFSchema,
    places: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Columns<'a> {
    /// Those of a schema.
    pub fn of(schema: &'a DFSchema) -> Self {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::with_capacity(schema.fields().len());
        for (place, field) in schema.fields().iter().enumerate() {
            places.entry(field.name()).or_default().push(place);
        }
        Self { schema, places }
    }

    /// Where columns of a name are.
    pub fn named(&self, name: &str) -> &[usize] {
        self.places.get(name).map_or(&[], Vec::as_slice)
    }

    /// Where a column of a plan is; `None` if that is not certain.
    fn place(&self, column: &Column) -> Option<usize> {
        let mut found = self.named(&column.name).iter().copied().filter(|place| {
            let (table, _) = self.schema.qualified_field(*place);
            match (&column.relation, table) {
                (Some(wanted), Some(table)) => wanted.resolved_eq(table),
                (Some(_), None) => false,
                (None, _) => true,
            }
        });
        found.next().filter(|_| found.next().is_none())
    }

    /// Where the columns of expressions are, from the first on; `None` if that is not certain of one.
    pub fn places<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> Option<Vec<usize>> {
        let mut places = BTreeSet::new();
        for expr in exprs {
            for column in expr.column_refs() {
                places.insert(self.place(column)?);
            }
        }
        Some(places.into_iter().collect())
    }

    /// A schema of these columns.
    ///
    /// # Errors
    /// Two of one name.
    pub fn at(&self, places: impl IntoIterator<Item = usize>) -> Result<DFSchema> {
        let column = |place: usize| {
            let (table, field) = self.schema.qualified_field(place);
            (table.cloned(), Arc::clone(field))
        };
        DFSchema::new_with_metadata(places.into_iter().map(column).collect(), HashMap::new())
    }
}
