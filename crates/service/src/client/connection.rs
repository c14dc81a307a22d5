//! The connection to the service: a running one, or one that is started.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use headrace_flow::CancelToken;
use headrace_ir::CudaFunction;

use super::start::{Start, start_service};
use super::{Failure, Wanted, surprised};
use crate::devices::Devices;
use crate::protocol::{
    self, Ask, Files, Frame, Hello, KeptTable, Mapped, Place, ProtocolError, Reply, Status,
};
use crate::{SOCKET_NAME, check_peer};

/// How long the service normally may take to identify itself: it has a thread for that alone.
pub const HELLO_PATIENCE: Duration = Duration::from_secs(5);

/// How long a service that another session has started may take until it listens.
const LISTEN_PATIENCE: Duration = Duration::from_millis(500);

/// How often it is started: others may end it meanwhile.
const STARTS_MAX: usize = 3;

/// A connection without requests so far.
#[derive(Debug)]
pub struct Connection {
    pub(super) socket: UnixStream,
    /// The service.
    pub service: Hello,
    /// Its process.
    pub pid: u32,
}

/// Whether the service is running.
enum Found {
    There(Connection),
    /// Nothing listens.
    Nobody(String),
}

impl Connection {
    /// Connects to the service of a data directory, normally the working directory, because the
    /// address has room for 108 bytes. `patience`: how long the service may take to identify
    /// itself.
    ///
    /// # Errors
    /// It is not running, does not answer, or rejects this client.
    pub fn open(data: &Path, patience: Duration, token: &CancelToken) -> Result<Self, Failure> {
        match find(data, patience, token)? {
            Found::There(connection) => Ok(connection),
            Found::Nobody(why) => Err(Failure {
                is_absence: true,
                ..Failure::lost(format!("the service does not run: {why}"))
            }),
        }
    }

    /// Connects to the service, and starts it if it does not run.
    ///
    /// # Errors
    /// It cannot be started, or rejects this client.
    pub fn open_or_start(data: &Path, start: &Start, token: &CancelToken) -> Result<Self, Failure> {
        let mut failure = Failure::lost("it was not tried");
        for _ in 0..STARTS_MAX {
            if let Found::There(connection) = find(data, HELLO_PATIENCE, token)? {
                return Ok(connection);
            }
            match start_service(data, start, token) {
                Ok(()) => failure = Failure::lost("the service was started, and is gone"),
                // Killed before it was ready, perhaps.
                Err(cause) => {
                    failure = cause;
                    continue;
                }
            }
            let started = Instant::now();
            // Another session's may be on its way.
            while started.elapsed() < LISTEN_PATIENCE && !token.is_cancelled() {
                if let Found::There(connection) = find(data, HELLO_PATIENCE, token)? {
                    return Ok(connection);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Err(failure)
    }

    /// The available GPUs.
    ///
    /// # Errors
    /// The service is gone.
    pub fn devices(self, token: &CancelToken) -> Result<Devices, Failure> {
        match self.ask(&Ask::Devices, token)? {
            Some(Frame { head: Reply::Devices(devices), .. }) => Ok(devices),
            other => Err(surprised(other)),
        }
    }

    /// What the service is doing.
    ///
    /// # Errors
    /// The service is gone.
    pub fn status(self, token: &CancelToken) -> Result<Status, Failure> {
        match self.ask(&Ask::Status, token)? {
            Some(Frame { head: Reply::Status(status), .. }) => Ok(*status),
            other => Err(surprised(other)),
        }
    }

    /// Whether a function in CUDA compiles, or the compiler's words.
    ///
    /// # Errors
    /// The service is gone.
    pub fn check_function(
        self,
        function: CudaFunction,
        token: &CancelToken,
    ) -> Result<Result<(), String>, Failure> {
        match self.ask(&Ask::CheckFunction(Box::new(function)), token)? {
            Some(Frame { head: Reply::Checked(checked), .. }) => Ok(checked),
            other => Err(surprised(other)),
        }
    }

    /// Whether a GPU would run a stage, or why not.
    ///
    /// # Errors
    /// The service is gone.
    pub fn place(self, place: Place, token: &CancelToken) -> Result<Result<(), String>, Failure> {
        match self.ask(&Ask::Place(Box::new(place)), token)? {
            Some(Frame { head: Reply::Placed(placed), .. }) => Ok(placed),
            other => Err(surprised(other)),
        }
    }

    /// Keeps a table in the memory of a GPU; answers all that are kept.
    ///
    /// # Errors
    /// The service is gone, or cannot keep it.
    pub fn keep(self, files: Files, token: &CancelToken) -> Result<Vec<KeptTable>, Failure> {
        tables(self.ask_long(&Ask::Keep(files), token)?)
    }

    /// Lets a kept table go.
    ///
    /// # Errors
    /// The service is gone, or keeps none of the name.
    pub fn release(self, name: &str, token: &CancelToken) -> Result<Vec<KeptTable>, Failure> {
        tables(self.ask(&Ask::Release(name.into()), token)?)
    }

    /// Maps columns of a kept table, all if none are named. They stay where they are as long as the lease lives.
    ///
    /// # Errors
    /// The service is gone, keeps none of the name, or not as its files are now.
    pub fn map(
        self,
        table: &str,
        columns: &[String],
        token: &CancelToken,
    ) -> Result<(Mapped, Lease), Failure> {
        let ask = Ask::Map { table: table.into(), columns: columns.into() };
        match self.ask(&ask, token)? {
            Some(Frame { head: Reply::Mapped(mapped), .. }) => {
                Ok((mapped, Lease { _socket: self.socket }))
            }
            other => Err(surprised(other)),
        }
    }

    /// A question whose answer may take as long as it is waited for.
    fn ask_long(&self, ask: &Ask, token: &CancelToken) -> Result<Option<Frame<Reply>>, Failure> {
        protocol::write(&mut &self.socket, ask, &[])?;
        Ok(protocol::read(&mut Wanted { socket: &self.socket, token, until: None })?)
    }

    /// A question that is answered from memory, or by opening a device.
    fn ask(&self, ask: &Ask, token: &CancelToken) -> Result<Option<Frame<Reply>>, Failure> {
        protocol::write(&mut &self.socket, ask, &[])?;
        let until = Some(Instant::now() + HELLO_PATIENCE);
        Ok(protocol::read(&mut Wanted { socket: &self.socket, token, until })?)
    }
}

/// What keeps mapped columns where they are, while it lives.
#[derive(Debug)]
pub struct Lease {
    _socket: UnixStream,
}

fn tables(frame: Option<Frame<Reply>>) -> Result<Vec<KeptTable>, Failure> {
    match frame {
        Some(Frame { head: Reply::Tables(tables), .. }) => Ok(tables),
        other => Err(surprised(other)),
    }
}

fn find(data: &Path, patience: Duration, token: &CancelToken) -> Result<Found, Failure> {
    let lost = |cause: io::Error| Failure::lost(format!("the service cannot be asked: {cause}"));
    let socket = match UnixStream::connect(data.join(SOCKET_NAME)) {
        Ok(socket) => socket,
        Err(cause) => {
            return match cause.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    Ok(Found::Nobody(cause.to_string()))
                }
                _ => Err(lost(cause)),
            };
        }
    };
    let pid = check_peer(&socket).map_err(lost)?;
    let asked = protocol::write(&mut &socket, &Ask::Hello(Hello::own()), &[]);
    let until = Some(Instant::now() + patience);
    let mut reader = Wanted { socket: &socket, token, until };
    let heard = asked.and_then(|()| protocol::read(&mut reader));
    match heard {
        Ok(Some(Frame { head: Reply::Hello(service), .. })) => {
            service.check().map_err(Failure::lost)?;
            Ok(Found::There(Connection { socket, service, pid }))
        }
        // It ended while this one was in its queue.
        Ok(None) => Ok(Found::Nobody("it just ended".into())),
        Err(ProtocolError::Io(cause)) if is_gone(&cause) => Ok(Found::Nobody(cause.to_string())),
        Err(error) => Err(error.into()),
        Ok(other) => Err(surprised(other)),
    }
}

fn is_gone(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}
