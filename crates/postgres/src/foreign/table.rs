//! A foreign table: its columns as declared, and where their values come from.

use std::sync::Arc;

use arrow_schema::DataType;
use headrace_format::arrow::ArrowTable;
use pgrx::pg_sys::{self, Oid};

use super::files::{self, Found};
use super::options::Options;
use super::{options, types};
use crate::nodes::{self, WhyNot, why_not};
use crate::version;

/// A foreign table.
#[derive(Debug)]
pub struct ForeignTable {
    pub name: String,
    /// Whose files they are.
    pub owner: Oid,
    /// What its options say.
    pub options: Options,
    /// Those that are not dropped.
    pub columns: Vec<Column>,
}

/// A column as it is declared.
#[derive(Clone, Debug)]
pub struct Column {
    pub number: i16,
    pub name: String,
    pub type_oid: Oid,
    pub typmod: i32,
}

/// Where a column's values come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A column of the files, and the type that it is read as.
    File { ordinal: usize, read_as: DataType },
    /// The names of folders.
    Folder,
}

impl ForeignTable {
    /// A table that the query has locked. Ends the query if its owner may not read files.
    pub unsafe fn of(relation: Oid) -> Result<Self, WhyNot> {
        let options = Options::of(relation)?;
        let relation = pg_sys::table_open(relation, pg_sys::NoLock as i32);
        let name = nodes::owned((*(*relation).rd_rel).relname.data.as_ptr());
        let owner = (*(*relation).rd_rel).relowner;
        let attributes = version::attributes((*relation).rd_att).into_iter();
        let declared = attributes.filter(|attribute| !attribute.attisdropped);
        let columns = declared.map(|attribute| Column {
            number: attribute.attnum,
            name: nodes::owned(attribute.attname.data.as_ptr()),
            type_oid: attribute.atttypid,
            typmod: attribute.atttypmod,
        });
        let columns = columns.collect();
        pg_sys::table_close(relation, pg_sys::NoLock as i32);
        // Whoever may select from the table need not have the right.
        options::check_rights(owner, &format!("own foreign table \"{name}\" of files"));
        Ok(Self { name, owner, options, columns })
    }

    /// Its files as they are now.
    pub fn find(&self) -> Result<Vec<Found>, WhyNot> {
        files::find(&self.options.paths)
    }

    /// A column by its number.
    pub fn column(&self, number: i16) -> Result<&Column, WhyNot> {
        let found = self.columns.iter().find(|column| column.number == number);
        found.ok_or_else(|| WhyNot(format!("{} has no column {number}", self.name)))
    }

    /// Numbers of the columns that all files' folders name and the files do not have.
    pub fn of_folders(&self, arrow: &ArrowTable, found: &[Found]) -> Vec<i16> {
        let is_of_folders = |column: &&Column| {
            arrow.schema().index_of(&column.name).is_err()
                && found.iter().all(|file| file.value(&column.name).is_some())
        };
        self.columns.iter().filter(is_of_folders).map(|column| column.number).collect()
    }

    /// Where a column's values come from.
    ///
    /// # Errors
    /// It is not there, or of another type than declared.
    pub unsafe fn origin(
        &self,
        column: &Column,
        arrow: &ArrowTable,
        found: &[Found],
    ) -> Result<Origin, WhyNot> {
        let Column { name, type_oid, typmod, .. } = column;
        let Ok(ordinal) = arrow.schema().index_of(name) else {
            if found.iter().all(|file| file.value(name).is_some()) {
                return Ok(Origin::Folder);
            }
            let fields = arrow.schema().fields().iter();
            let names: Vec<_> = fields.map(|field| format!("\"{}\"", field.name())).collect();
            return why_not(format!(
                "foreign table \"{}\": column \"{name}\" is not in its files, which have {}",
                self.name,
                names.join(", ")
            ));
        };
        let field = arrow.schema().field(ordinal);
        let misfit = types::mismatch(name, field, *type_oid, *typmod);
        let misfit = format!("foreign table \"{}\": {misfit}", self.name);
        match types::read_as(*type_oid, *typmod) {
            Ok(read_as) if types::converts(field.data_type(), &read_as) => {
                Ok(Origin::File { ordinal, read_as })
            }
            Ok(_) => why_not(misfit),
            Err(WhyNot(reason)) => why_not(format!("{misfit} ({reason})")),
        }
    }
}

/// Files opened as one table; `None` if there are none.
pub fn open(found: &[Found]) -> Result<Option<Arc<ArrowTable>>, WhyNot> {
    match found.is_empty() {
        true => Ok(None),
        false => files::open(found).map(Some),
    }
}

/// How the service of all databases knows a table.
pub unsafe fn service_name(relation: Oid) -> Result<String, WhyNot> {
    let name = nodes::owned(pg_sys::get_rel_name(relation));
    if name.is_empty() {
        return why_not("a table that is dropped");
    }
    let database = nodes::owned(pg_sys::get_database_name(pg_sys::MyDatabaseId));
    let schema = nodes::owned(pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation)));
    Ok(format!("{database}.{schema}.{name}"))
}
