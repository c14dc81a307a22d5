//! Tables that are kept in the memory of a GPU: `ALTER TABLE t SET (residence = 'gpu')`, and `CREATE TABLE t WITH
//! (residence = 'gpu') AS ..` in a session with a home.
//!
//! The table stays what its files are. The GPU service keeps its columns where queries and other processes find them, and
//! brings them again when it starts anew.

use std::path::PathBuf;

use datafusion::common::{Result, exec_datafusion_err, plan_datafusion_err, plan_err};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use headrace_flow::CancelToken;
use headrace_runner::GpuService;
use headrace_service::client::{Connection, Failure, HELLO_PATIENCE};
use headrace_service::place::user_folder;
use headrace_service::protocol::Files;

use crate::catalog::TableEntry;
use crate::error::blocking;
use crate::session::Session;
use crate::sql::altered::Residence;

/// The folder of the service that a session uses.
///
/// # Errors
/// It uses none.
fn service_folder(service: &GpuService) -> Result<PathBuf> {
    match service {
        GpuService::Auto => Ok(user_folder()),
        GpuService::At(folder) => Ok(folder.clone()),
        GpuService::Off => plan_err!(
            "tables are kept on a GPU by the GPU service, and this session uses none\n\
             hint: SET headrace.gpu_service = 'auto'"
        ),
    }
}

fn failed(failure: Failure) -> datafusion::common::DataFusionError {
    match failure.is_absence {
        true => exec_datafusion_err!("{failure}\nhint: headrace gpu-service start"),
        false => exec_datafusion_err!("{failure}"),
    }
}

impl Session {
    /// Whether a table that is about to be made can have its residence.
    ///
    /// # Errors
    /// It would have no files.
    pub(crate) fn check_residence(
        &self,
        residence: Option<Residence>,
        is_temporary: bool,
    ) -> Result<()> {
        let lasts = !is_temporary && self.home.folder().is_some();
        match residence {
            Some(Residence::Gpu) if !lasts => plan_err!(
                "a table in memory cannot be kept on a GPU: it has no files\n\
                 hint: open a folder (.open FOLDER), where CREATE TABLE writes files"
            ),
            Some(Residence::Gpu) => service_folder(&self.settings().gpu_service).map(drop),
            _ => Ok(()),
        }
    }

    /// Lets a table go that is dropped, if the service keeps it.
    pub(crate) async fn release_dropped(&self, logical: &LogicalPlan) -> Result<()> {
        let LogicalPlan::Ddl(DdlStatement::DropTable(drop)) = logical else { return Ok(()) };
        let Ok(folder) = service_folder(&self.settings().gpu_service) else { return Ok(()) };
        let name = drop.name.table().to_string();
        let work = move || {
            let token = CancelToken::new();
            if let Ok(service) = Connection::open(&folder, HELLO_PATIENCE, &token) {
                // It need not be one that is kept.
                let _ = service.release(&name, &token);
            }
            Ok(())
        };
        blocking(work).await
    }

    /// Keeps a table on a GPU, or no longer.
    ///
    /// # Errors
    /// It has no files that the service could read, there is no service, or no room.
    pub(crate) async fn set_residence(&self, name: &str, residence: Residence) -> Result<()> {
        let folder = service_folder(&self.settings().gpu_service)?;
        let table = self.tables.open(name).await?;
        let table = table.ok_or_else(|| plan_datafusion_err!("there is no table {name}"))?;
        let Some(entry) = table.downcast_ref::<TableEntry>() else {
            return plan_err!(
                "{name} is no table of Arrow files in place, which alone are kept on a GPU\n\
                 hint: CREATE TABLE .. AS in a folder that is open (.open), or headrace convert"
            );
        };
        let stream = entry.0.stream();
        let name = stream.name().to_string();
        let description = stream.source().description();
        let description = description.map_err(|why| plan_datafusion_err!("{name}: {why}"))?;
        let work = move || {
            // Whoever leaves meanwhile has asked for it: the service goes on.
            let token = CancelToken::new();
            let service = Connection::open(&folder, HELLO_PATIENCE, &token).map_err(failed)?;
            let kept = match residence {
                Residence::Gpu => service.keep(Files { name, description }, &token),
                Residence::Files => service.release(&name, &token),
            };
            kept.map(drop).map_err(failed)
        };
        blocking(work).await
    }
}
