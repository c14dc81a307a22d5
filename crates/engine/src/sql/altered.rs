//! What an `ALTER TABLE` changes: names, and where a table is kept; and `WITH (residence = ..)` of a CREATE TABLE.

use datafusion::common::{Result, TableReference, plan_err};
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, CreateTable, CreateTableOptions, Expr, ObjectName,
    ObjectNamePart, RenameTableNameKind, SqlOption, Statement, Value,
};

use super::nodes::plain_name;

/// What is to be changed.
#[derive(Debug)]
pub struct Alteration {
    pub table: TableReference,
    /// Whether it is an error that there is no such table.
    pub is_there: bool,
    pub what: What,
}

/// The name of a table, or of a column of it, or where it is kept.
#[derive(Debug)]
pub enum What {
    Table { to: String },
    Column { from: String, to: String },
    Residence(Residence),
}

/// Where the columns of a table are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// In the memory of a GPU of the GPU service.
    Gpu,
    /// In its files alone.
    Files,
}

/// The option that says so.
const RESIDENCE: &str = "residence";

impl Residence {
    /// That of options, if they are nothing else.
    fn of(options: &[SqlOption]) -> Result<Option<Self>> {
        let [SqlOption::KeyValue { key, value }] = options else { return Ok(None) };
        if !key.value.eq_ignore_ascii_case(RESIDENCE) {
            return Ok(None);
        }
        let text = match value {
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) => text.to_ascii_lowercase(),
                _ => String::new(),
            },
            _ => String::new(),
        };
        match text.as_str() {
            "gpu" => Ok(Some(Self::Gpu)),
            "files" => Ok(Some(Self::Files)),
            _ => plan_err!("{RESIDENCE} = {value}: it is 'gpu' or 'files'"),
        }
    }

    /// Takes that of a CREATE TABLE out of its options.
    ///
    /// # Errors
    /// One that is none.
    pub fn take(statement: &mut Statement) -> Result<Option<Self>> {
        let Statement::CreateTable(CreateTable { table_options, .. }) = statement else {
            return Ok(None);
        };
        let CreateTableOptions::With(options) = table_options else { return Ok(None) };
        let residence = Self::of(options)?;
        if residence.is_some() {
            *table_options = CreateTableOptions::None;
        }
        Ok(residence)
    }
}

/// What is written in the place of another change of a table.
pub const INSTEAD: &str = "hint: make it anew: CREATE OR REPLACE TABLE t AS SELECT a AS b, c::bigint AS c FROM t; RENAME is offered";

impl Alteration {
    /// What an ALTER TABLE changes.
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
            [AlterTableOperation::SetOptionsParens { options }]
                if let Some(residence) = Residence::of(options)? =>
            {
                What::Residence(residence)
            }
            _ => return plan_err!("ALTER TABLE renames, and sets {RESIDENCE}\n{INSTEAD}"),
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
