//! What the catalog tells of a session.

use chrono::{DateTime, Utc};

use crate::pg::settings::PgSettings;

/// The name of the one database, and of the owner of all there is.
pub const DATABASE: &str = "headrace";

/// What the catalog tells of a session.
#[derive(Clone, Debug)]
pub struct About {
    pub settings: PgSettings,
    pub user: String,
    /// When the server was started.
    pub started: DateTime<Utc>,
}
