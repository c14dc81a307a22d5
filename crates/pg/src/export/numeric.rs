//! Digits of numerics without a declaration.

use std::sync::atomic::AtomicBool;

use super::columns::{Column, Values, quoted};
use super::source::Source;
use crate::error::{PgError, Result};
use crate::session::Session;

impl Source {
    /// Sets the digits of undeclared numerics by their values; returns these columns.
    pub fn measure_numerics(
        &mut self,
        session: &Session,
        cancel: &AtomicBool,
    ) -> Result<Vec<String>> {
        let measured: Vec<&mut Column> =
            self.columns.iter_mut().filter(|column| column.values == Values::Numeric).collect();
        if measured.is_empty() {
            return Ok(Vec::new());
        }
        // NaN and infinities have no scale.
        let digits = measured.iter().map(|column| {
            let name = quoted(&column.name);
            format!(
                "pg_catalog.max(pg_catalog.scale({name})), pg_catalog.max(case when pg_catalog.abs({name}) < 1 then 0
                 else pg_catalog.length(pg_catalog.trunc(pg_catalog.abs({name}))::text) end)
                 filter (where pg_catalog.scale({name}) is not null)"
            )
        });
        let sql = format!("select {} from {}", digits.collect::<Vec<_>>().join(", "), self.from);
        let found = session.query(cancel, &sql, &[])?;
        let mut names = Vec::new();
        for (index, column) in measured.into_iter().enumerate() {
            let get = |at: usize| {
                found.first().and_then(|row| row.get::<_, Option<i32>>(at)).unwrap_or(0)
            };
            let (scale, whole) = (get(2 * index), get(2 * index + 1));
            column.values = match (u8::try_from((scale + whole).max(1)), i8::try_from(scale)) {
                (Ok(precision @ 1..=38), Ok(scale)) => Values::Decimal { precision, scale },
                _ => {
                    let cause = format!(
                        "column {}: its values have {whole} digits before the point and {scale} behind it, \
                         a decimal has 38 in all",
                        column.name
                    );
                    return Err(PgError::new(cause)
                        .remedy("--numeric text keeps them exact, --numeric float8 rounds them"));
                }
            };
            names.push(column.name.clone());
        }
        Ok(names)
    }
}
