//! What an `ALTER TABLE` renames.

use datafusion::common::{Result, TableReference, plan_err};
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, ObjectName, ObjectNamePart, RenameTableNameKind,
};

use super::nodes::plain_name;

/// What is to be called otherwise.
#[derive(Debug)]
pub struct Renaming {
    pub table: TableReference,
    /// Whether it is an error that there is no such table.
    pub is_there: bool,
    pub what: What,
}

/// A table, or a column of it.
#[derive(Debug)]
pub enum What {
    Table { to: String },
    Column { from: String, to: String },
}

/// What is written in the place of another change of a table.
pub const INSTEAD: &str = "hint: make it anew: CREATE OR REPLACE TABLE t AS SELECT a AS b, c::bigint AS c FROM t; RENAME is offered";

impl Renaming {
    /// What an ALTER TABLE renames.
    ///
    /// # Errors
    /// Whatever else it would change.
    pub fn of(alter: &AlterTable) -> Result<Self> {
        let what = match alter.operations.as_slice() {
            [AlterTableOperation::RenameTable { table_name }] => {
                let (RenameTableNameKind::As(to) | RenameTableNameKind::To(to)) = table_name;
                What::Table { to: one_name(to)? }
            }
            [AlterTableOperation::RenameColumn { old_column_name, new_column_name }] => {
                What::Column { from: plain_name(old_column_name), to: plain_name(new_column_name) }
            }
            _ => return plan_err!("ALTER TABLE renames, and nothing else\n{INSTEAD}"),
        };
        let names: Vec<String> =
            alter.name.0.iter().filter_map(ObjectNamePart::as_ident).map(plain_name).collect();
        let table = match names.as_slice() {
            [table] => TableReference::bare(table.as_str()),
            [schema, table] => TableReference::partial(schema.as_str(), table.as_str()),
            _ => return plan_err!("ALTER TABLE of {}, which is no name of a table", alter.name),
        };
        Ok(Self { table, is_there: !alter.if_exists, what })
    }
}

fn one_name(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Ok(plain_name(name)),
        _ => plan_err!("a table stays where it is: {name} is to be a name without a schema"),
    }
}
