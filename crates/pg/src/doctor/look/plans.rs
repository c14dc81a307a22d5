//! The extension's view of a table: from EXPLAIN of queries that read all of its rows.

use super::super::facts::{ColumnFact, Planned};
use super::Look;
use crate::error::{PgError, Result};

/// Without indexes: the question is about reading the heap.
const OF_THE_HEAP: &str =
    "set enable_indexscan = off; set enable_indexonlyscan = off; set enable_bitmapscan = off";

/// Wherever possible, and with the current settings.
const FORCED: &str = "set headrace.enabled = on; set headrace.enable_scan = on; \
    set headrace.force = on; set headrace.min_table_size = 0";
const AS_SET: &str = "reset headrace.enabled; reset headrace.enable_scan; \
    reset headrace.force; reset headrace.min_table_size";
const OFF: &str = "set headrace.enabled = off";

const COLUMNS: &str =
    "select attname::text, pg_catalog.quote_ident(attname) from pg_catalog.pg_attribute
    where attrelid = $1 and attnum > 0 and not attisdropped order by attnum";

const NODE: &str = "Custom Scan (Headrace)";
const REASON: &str = "Headrace not used: ";

/// A plan as EXPLAIN's text.
struct Plan(Vec<String>);

impl Plan {
    fn is_headrace(&self) -> bool {
        self.0.iter().any(|line| line.contains(NODE))
    }

    fn reasons(&self) -> Vec<String> {
        self.0.iter().filter_map(|line| Some(line.trim().strip_prefix(REASON)?.into())).collect()
    }

    /// The total cost, in the planner's units.
    fn cost(&self) -> Option<f64> {
        let (_, costs) = self.0.first()?.split_once("(cost=")?;
        let (_, total) = costs.split_once(' ')?.0.split_once("..")?;
        total.parse().ok()
    }
}

impl Look<'_> {
    /// Of a table, by its name in a query.
    pub fn planned(&self, name: &str, oid: u32) -> Result<Planned> {
        let set = |sql: &str| self.session.execute(self.cancel, sql);
        let all_rows = format!("select pg_catalog.count(*) from {name}");
        set(OF_THE_HEAP)?;
        set(FORCED)?;
        let forced = self.explain(&all_rows)?;
        let (obstacles, columns_not_taken) = match forced.is_headrace() {
            true => (Vec::new(), self.columns_not_taken(name, oid)?),
            false => (forced.reasons(), Vec::new()),
        };
        set(AS_SET)?;
        let is_taken = self.explain(&all_rows)?.is_headrace();
        set(OFF)?;
        let own_cost = self.explain(&all_rows)?.cost();
        set(AS_SET)?;
        let own_cost =
            own_cost.ok_or_else(|| PgError::new(format!("{name}: a plan without costs")))?;
        Ok(Planned { obstacles, columns_not_taken, is_taken, own_cost })
    }

    fn explain(&self, sql: &str) -> Result<Plan> {
        let rows = self.ask(&format!("explain (verbose) {sql}"), &[])?;
        Ok(Plan(rows.iter().map(|row| row.get(0)).collect()))
    }

    fn columns_not_taken(&self, table: &str, oid: u32) -> Result<Vec<ColumnFact>> {
        let mut not_taken = Vec::new();
        for column in self.ask(COLUMNS, &[&oid])? {
            let (name, quoted): (String, String) = (column.get(0), column.get(1));
            // Values of any type can be counted; a row has the value itself, and one is in any memory.
            let plan = self.explain(&format!("select {quoted} from {table} limit 1"))?;
            if plan.is_headrace() {
                continue;
            }
            // It names the column, as it does wherever it says this.
            let place = format!("column {name}: ");
            let reasons = plan.reasons();
            let reasons = reasons.iter().map(|why| why.strip_prefix(&place).unwrap_or(why));
            let why_not = reasons.collect::<Vec<_>>().join(", ");
            not_taken.push(ColumnFact { name, why_not });
        }
        Ok(not_taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_it_costs_and_why_it_is_not_headrace() {
        let lines = [
            "Aggregate  (cost=1.02..170.01 rows=1 width=8)",
            "  Output: count(*)",
            "Headrace not used: t is a temporary table",
        ];
        let plan = Plan(lines.map(String::from).to_vec());
        assert_eq!((plan.is_headrace(), plan.cost()), (false, Some(170.01)));
        assert_eq!(plan.reasons(), ["t is a temporary table"]);
        let plan = Plan(vec!["Custom Scan (Headrace)  (cost=500.00..512.50 rows=1)".into()]);
        assert_eq!((plan.is_headrace(), plan.reasons().len()), (true, 0));
        assert_eq!(Plan(Vec::new()).cost(), None);
    }
}
