//! The scale factors that there are.

/// The smallest scale factor of a suite: 1,500 orders, 1,000 hits or compounds, 240 tickets of a store, or 100,000 rows
/// to join.
pub const SCALE_MIN: f64 = 0.001;
/// The largest scale factor of a suite: about 60 thousand million rows of the fact table, or 10, or 29, or 1,000.
pub const SCALE_MAX: f64 = 10_000.0;
