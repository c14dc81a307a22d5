//! Starting the service.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headrace_flow::CancelToken;

use super::Failure;

/// How long the start may take.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How to start the service.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, besides the data directory and `--detach`.
    pub arguments: Vec<OsString>,
}

/// Starts the service, and waits until it listens.
pub(super) fn start_service(
    data: &Path,
    start: &Start,
    token: &CancelToken,
) -> Result<(), Failure> {
    let place = start.program.display();
    let mut command = Command::new(&start.program);
    command.args(&start.arguments).arg("--data").arg(data).arg("--detach");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn();
    let mut child =
        child.map_err(|cause| Failure::lost(format!("{place} cannot be started: {cause}")))?;
    let waited = wait(&mut child, token);
    if waited.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    match waited {
        Ok(true) => Ok(()),
        Ok(false) => {
            let mut text = String::new();
            // It has ended, and so has what it said.
            let said =
                child.stderr.take().map(|stderr| stderr.take(4096).read_to_string(&mut text));
            let text = said.and_then(Result::ok).map_or("", |_| text.trim());
            Err(Failure::lost(format!("{place} did not start: {text}")))
        }
        Err(cause) => Err(Failure::lost(format!("{place} did not start: {cause}"))),
    }
}

/// Whether the started process ended with success.
fn wait(child: &mut Child, token: &CancelToken) -> Result<bool, String> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) => {}
            Err(cause) => return Err(cause.to_string()),
        }
        if token.is_cancelled() {
            return Err("nobody wants it any more".into());
        }
        if started.elapsed() > START_PATIENCE {
            return Err(format!("it is not ready after {START_PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A failed start, remembered for a while: the next one would fail too, and take time.
#[derive(Debug)]
pub struct Failed(Option<(Instant, Failure)>);

impl Failed {
    /// None.
    pub const NONE: Self = Self(None);

    /// How long a failure is remembered.
    pub const MEMORY: Duration = Duration::from_secs(10);

    /// The failure, if it is recent.
    pub fn recent(&self) -> Option<&Failure> {
        self.0.as_ref().filter(|(at, _)| at.elapsed() < Self::MEMORY).map(|(_, failure)| failure)
    }

    /// Records a failure.
    pub fn note(&mut self, failure: Failure) {
        self.0 = Some((Instant::now(), failure));
    }
}
