//! Schemas: folders of tables side by side, where a table is `sales.orders`.
//!
//! A name without a schema is looked for in all of them, as if they were one folder: two of that name are an error of
//! whoever names them. Tables and views that statements make are in the schema that has always been there.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use datafusion::catalog::SchemaProvider;
use datafusion::common::{Result, plan_err};

use crate::catalog::{Found, Tables, find_tables};
use crate::error::blocking;
use crate::session::Session;

/// The schema of what has no other.
pub const PUBLIC: &str = "public";

/// Names that are the system's.
const TAKEN: [&str; 3] = [PUBLIC, "information_schema", "pg_catalog"];

impl Session {
    /// Makes the files of a folder the tables of a schema, which are known without its name, too.
    ///
    /// # Errors
    /// A name that is taken, and a path that cannot be read.
    pub async fn register_schema(&self, schema: &str, path: &Path) -> Result<Found> {
        if TAKEN.contains(&schema) || self.schemas.read().contains_key(schema) {
            return plan_err!("there is a schema {schema} already");
        }
        let place = path.to_path_buf();
        let mut found = blocking(move || find_tables(&place)).await?;
        let own = Arc::new(self.tables.schema(schema));
        own.add(&found.tables);
        self.tables.share(&own);
        let names = self.context().state_ref().read().config_options().catalog.clone();
        if let Some(catalog) = self.context().catalog(&names.default_catalog) {
            catalog.register_schema(schema, Arc::clone(&own) as _)?;
        }
        self.schemas.write().insert(schema.to_string(), own);
        self.take_views(&mut found).await;
        Ok(found)
    }

    /// All tables with their schemas, in order.
    pub fn tables_by_schema(&self) -> Vec<(String, String)> {
        let schemas = self.schemas.read();
        let named = schemas.iter().flat_map(|(schema, tables)| {
            tables.table_names().into_iter().map(|name| (schema.clone(), name))
        });
        let mut all: BTreeSet<_> = named.collect();
        let elsewhere: BTreeSet<_> = all.iter().map(|(_, name)| name.clone()).collect();
        let others = self.tables.table_names().into_iter();
        let others = others.filter(|name| !elsewhere.contains(name));
        all.extend(others.map(|name| (PUBLIC.to_string(), name)));
        all.into_iter().collect()
    }

    /// The tables of a schema.
    pub(crate) fn tables_of(&self, schema: &str) -> Option<Arc<Tables>> {
        self.schemas.read().get(schema).cloned()
    }
}
