//! What a program adds to the command line that has a cluster.

use std::pin::Pin;

use headrace_engine::Session;

use crate::args::ClusterArgs;

/// What a program adds that has a cluster: this library knows none.
#[derive(Clone, Copy)]
pub struct ClusterDoor {
    /// Has a session's queries divided among a cluster.
    pub distribute: fn(&Session, &ClusterArgs) -> std::result::Result<(), String>,
    /// Waits, but not for long, until the cluster knows which queries are over.
    pub ended: fn() -> Pin<Box<dyn Future<Output = ()> + Send>>,
}
