//! `ALTER TABLE t RENAME TO u` and `ALTER TABLE t RENAME a TO b`: names of a session. `SET (residence = ..)` is in
//! [`crate::residence`].
//!
//! A table of files gets another name, and its files stay what they are called. Columns are renamed where a session has made the
//! table itself; those of files are the files'.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, plan_err};
use datafusion::datasource::MemTable;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::TableType;

use crate::held_tables::HeldTable;
use crate::session::Session;
use crate::sql::altered::{Alteration, What};

impl Session {
    /// Renames a table or a column of one, or says where it is kept.
    ///
    /// # Errors
    /// What is not there, or has such a name already, or is named by files.
    pub(crate) async fn alter(&self, alteration: &Alteration, state: &SessionState) -> Result<()> {
        let name = alteration.table.table();
        let own = &state.config_options().catalog.default_schema;
        let is_own = alteration.table.schema().is_none_or(|schema| schema == own);
        // Files have one, too.
        let is_file =
            matches!(alteration.what, What::Residence(_)) && is_own && self.has_table(name);
        if !is_file && (!is_own || !self.tables.is_named(name)) {
            return match alteration.is_there {
                false => Ok(()),
                true if is_own && self.has_table(name) => {
                    plan_err!("'{name}' is a file\nhint: rename the file: \\! mv")
                }
                true => {
                    plan_err!(
                        "there is no table {}\nhint: SHOW TABLES lists them",
                        alteration.table
                    )
                }
            };
        }
        match &alteration.what {
            What::Residence(residence) => self.set_residence(name, *residence).await,
            What::Table { to } => self.tables.rename(name, to),
            What::Column { from, to } => {
                let table = self.tables.open(name).await?;
                let renamed = table.as_ref().map(|table| renamed(name, table, from, to));
                match renamed.transpose()? {
                    Some(renamed) => self.tables.replace(name, renamed),
                    None => plan_err!("there is no table {name}"),
                }
            }
        }
    }
}

/// A made table with another name for a column.
fn renamed(
    name: &str,
    table: &Arc<dyn TableProvider>,
    from: &str,
    to: &str,
) -> Result<Arc<dyn TableProvider>> {
    let schema = table.schema();
    let Ok(column) = schema.index_of(from) else {
        return plan_err!("there is no column {from} in {name}\nhint: DESCRIBE {name} lists them");
    };
    if schema.index_of(to).is_ok() {
        return plan_err!("there is a column {to} in {name} already");
    }
    let held: Option<&HeldTable> = table.downcast_ref();
    let made = held.map(HeldTable::rows).or_else(|| table.downcast_ref::<MemTable>());
    let (Some(made), TableType::Base) = (made, table.table_type()) else {
        return plan_err!(
            "the columns of {name} are called as its files, or its query, call them\n\
             hint: CREATE VIEW other AS SELECT {from} AS {to}, .. FROM {name}"
        );
    };
    let called = |at: usize, own: &str| if at == column { to.to_string() } else { own.to_string() };
    let fields = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(at, field)| field.as_ref().clone().with_name(called(at, field.name())));
    let fields: Vec<_> = fields.collect();
    let defaults = schema.fields().iter().enumerate().filter_map(|(at, field)| {
        let default = made.get_column_default(field.name())?.clone();
        Some((called(at, field.name()), default))
    });
    let defaults = defaults.collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    let mut partitions = Vec::new();
    for partition in &made.batches {
        let Ok(batches) = partition.try_read() else {
            return plan_err!("{name} is being written\nhint: rename it when that is done");
        };
        let batch = |batch: &RecordBatch| {
            let columns = batch.columns().to_vec();
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)
        };
        partitions.push(batches.iter().map(batch).collect::<std::result::Result<Vec<_>, _>>()?);
    }
    let mut renamed = MemTable::try_new(schema, partitions)?.with_column_defaults(defaults);
    if let Some(constraints) = made.constraints() {
        renamed = renamed.with_constraints(constraints.clone());
    }
    Ok(match held {
        Some(held) => Arc::new(held.with_rows(renamed)),
        None => Arc::new(renamed),
    })
}
