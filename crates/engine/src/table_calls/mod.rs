//! Calls of functions of whole tables in CUDA, in FROM.
//!
//! ```text
//! FROM near((SELECT id, x FROM points), 10)     near(points, 10)
//!        │  `sql::table_calls`: a name becomes a subquery
//!        ▼  OfTableCalls (relation planner)
//! TableCall: rows ── the argument's columns, by their names, cast to the parameters'
//!        └── twin ── the twin's plan over the same rows, if the function has one
//!        ▼  TableCallPlanner (extension planner)
//! TableCallExec, which asks the GPU service, or runs the twin
//! ```
//!
//! The table is a subquery in parentheses, or the name of a table: the planner's parser has no TABLE there. Its columns are found by
//! their names, and not by their places: a table may have others beside them, which are not read.

mod node;
mod planner;
mod relation;

pub use planner::TableCallPlanner;
pub use relation::OfTableCalls;
