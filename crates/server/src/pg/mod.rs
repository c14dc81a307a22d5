//! PostgreSQL's protocol 3: what its clients, drivers and tools speak.
//!
//! ```text
//! socket ─ TLS? ─ startup ─ SCRAM ─► who ─┬─ reader: wire::Message ─► inbox ─► PgSession ─► Out ─► socket
//!                                         └─ gone, cancelled ─────────────────────┘│
//!                                                          words::Command ─► own, catalog or engine
//! ```
//!
//! - [`wire`]: messages. [`out`]: those to the client, and the patience with it. [`scram`]: proofs of passwords.
//! - [`session`]: simple queries, cursors, transactions, COPY to the client. [`extended`]: prepared statements and portals.
//! - [`words`]: which statements are the protocol's own. [`settings`]: settings that only its clients know.
//! - [`types`], [`encode`], [`decode`], [`copy`]: values as texts and as PostgreSQL's own bytes. [`inferred`]: types of parameters
//!   that a cast says.
//! - [`catalog`]: the system tables that drivers and tools ask for, made of the tables that there are.
//!
//! A transaction groups statements and undoes nothing: what is read are files, which others may replace at any time. Whoever rolls
//! back what has changed something is warned.
//!
//! The messages are read here and not by a library: that which there is believes the lengths that a stranger sends, and holds
//! the whole answer of an extended query before its first row is sent.

mod catalog;
mod copy;
mod decode;
mod encode;
mod extended;
mod inferred;
mod out;
mod portal;
mod scram;
mod session;
mod settings;
mod types;
mod wire;
mod words;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::{BufMut, Bytes, BytesMut};
use headrace_engine::failure::{Class, Failure};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};

pub use self::catalog::DATABASE;
use self::out::Out;
use self::scram::Exchange;
use self::session::{PgSession, Signals, put_negotiation};
use self::wire::{Broken, First, MESSAGE_BYTES_MAX, Message, STRANGER_BYTES_MAX};
pub use self::words::Command;
use crate::connections;
use crate::server::Server;
use crate::statement::Asker;
use crate::tls::Tls;
use crate::users::{self, Users};

/// How long a client may take to say who it is.
const STARTUP: Duration = Duration::from_secs(30);

/// Connections that may wait for their login at a time.
const STRANGERS_MAX: usize = 256;

/// Messages that wait for the one that is answered.
const INBOX: usize = 16;

/// The first byte of TLS, where a client does not ask for it before.
const TLS_HANDSHAKE: u8 = 0x16;

/// Settings that a client begins with.
type Wanted = Vec<(String, String)>;

/// Those who can be asked to stop what they do, by their process numbers.
type Sessions = Mutex<HashMap<i32, (i32, watch::Sender<u64>)>>;

/// The literals of the values of a row.
///
/// # Errors
/// Values that SQL has no literals for.
pub fn literals(batch: &RecordBatch, row: usize) -> Result<Vec<String>, Failure> {
    let described = types::described(&batch.schema(), &[]);
    let broken = |error: arrow_schema::ArrowError| Failure::new(Class::Value, error.to_string());
    let rows = encode::Rows::of(&batch.slice(row, 1), &described).map_err(broken)?;
    let mut spare = BytesMut::new();
    let columns = described.iter().enumerate();
    columns
        .map(|(nth, column)| {
            let text = rows.text(&mut spare, 0, nth).map(Bytes::copy_from_slice);
            decode::literal(column.oid, false, text.as_ref())
        })
        .collect()
}

/// The door.
pub struct PgDoor {
    server: Arc<Server>,
    tls: Option<Tls>,
    sessions: Sessions,
    places: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    ending: watch::Receiver<bool>,
}

impl PgDoor {
    pub fn new(
        server: Arc<Server>,
        tls: Option<Tls>,
        connections_max: usize,
        ending: watch::Receiver<bool>,
    ) -> Self {
        let places = Arc::new(Semaphore::new(connections_max));
        let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
        Self { server, tls, sessions: Mutex::default(), places, strangers, ending }
    }

    /// Takes connections until the server ends, and then waits for what they do.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        let ending = self.ending.clone();
        connections::each(listener, ending, |socket| Arc::clone(&self).connection(socket)).await;
    }

    async fn connection(self: Arc<Self>, socket: TcpStream) {
        // Whoever comes when there are so many of them is left at once.
        let Ok(stranger) = Arc::clone(&self.strangers).try_acquire_owned() else { return };
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        let begun = tokio::time::timeout(STARTUP, self.begin(socket, place.is_some()));
        let begun = begun.await;
        drop(stranger);
        if let Ok(Some((session, inbox))) = begun {
            session.serve(inbox).await;
        }
    }

    /// Negotiates TLS, and then who it is.
    async fn begin(
        &self,
        mut socket: TcpStream,
        has_place: bool,
    ) -> Option<(Guarded, mpsc::Receiver<Result<Message, Broken>>)> {
        let mut first = [0];
        if socket.peek(&mut first).await.ok()? == 1 && first == [TLS_HANDSHAKE] {
            let socket = self.tls.as_ref()?.accept(socket).await.ok()?;
            let (reader, writer) = tokio::io::split(socket);
            return self.startup(BufReader::new(reader), writer, has_place, None).await;
        }
        loop {
            match wire::read_first(&mut socket).await.ok()? {
                First::Tls => match &self.tls {
                    Some(tls) => {
                        socket.write_all(b"S").await.ok()?;
                        let socket = tls.accept(socket).await.ok()?;
                        let (reader, writer) = tokio::io::split(socket);
                        return self.startup(BufReader::new(reader), writer, has_place, None).await;
                    }
                    None => socket.write_all(b"N").await.ok()?,
                },
                First::Gss => socket.write_all(b"N").await.ok()?,
                first => {
                    let (reader, writer) = socket.into_split();
                    let reader = BufReader::new(reader);
                    return self.startup(reader, writer, has_place, Some(first)).await;
                }
            }
        }
    }

    async fn startup<R, W>(
        &self,
        mut reader: BufReader<R>,
        writer: W,
        has_place: bool,
        first: Option<First>,
    ) -> Option<(Guarded, mpsc::Receiver<Result<Message, Broken>>)>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let mut out = Out::new(Box::new(writer));
        let first = match first {
            Some(first) => first,
            None => wire::read_first(&mut reader).await.ok()?,
        };
        let (minor, parameters) = match first {
            First::Startup { minor, parameters } => (minor, parameters),
            First::Cancel { pid, key } => {
                self.cancel(pid, key);
                return None;
            }
            First::Tls | First::Gss => return None,
        };
        if !has_place {
            let hint = "--max-connections is the limit";
            out.fatal("53300", "there are too many connections", Some(hint));
            out.close().await;
            return None;
        }
        match self.settle(&mut reader, &mut out, minor, parameters).await {
            Ok((asker, wanted)) => self.open(reader, out, asker, wanted).await,
            Err(Refused { sqlstate, text, hint }) => {
                out.fatal(sqlstate, &text, hint);
                out.close().await;
                None
            }
        }
    }

    /// Who it is, and with which settings.
    async fn settle(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        out: &mut Out,
        minor: u16,
        parameters: Vec<(String, String)>,
    ) -> Result<(Asker, Wanted), Refused> {
        let unknown: Vec<&str> = parameters
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|n| n.starts_with("_pq_."))
            .collect();
        if minor > 0 || !unknown.is_empty() {
            put_negotiation(out, &unknown);
        }
        let given = |name: &str| {
            parameters.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
        };
        let Some(user) = given("user").filter(|user| !user.is_empty()) else {
            return Err(Refused::new("28000", "a name is needed"));
        };
        if let Some(users) = &self.server.users {
            proven(reader, out, users, user).await?;
        }
        let asker = Asker { name: user.to_string(), may_write: true };
        let mut wanted = given("options").map(options).transpose()?.unwrap_or_default();
        let others = parameters.iter().filter(|(name, _)| {
            let is_own = matches!(name.as_str(), "user" | "database" | "options" | "replication");
            !is_own && !name.starts_with("_pq_.")
        });
        wanted.extend(others.cloned());
        Ok((asker, wanted))
    }

    async fn open<R>(
        &self,
        reader: BufReader<R>,
        mut out: Out,
        asker: Asker,
        wanted: Wanted,
    ) -> Option<(Guarded, mpsc::Receiver<Result<Message, Broken>>)>
    where
        R: AsyncRead + Unpin + Send + 'static,
    {
        let (cancel, cancels) = watch::channel(0);
        let Some((pid, key)) = self.number(cancel) else {
            out.fatal("XX000", "the system has no random bytes for a key", None);
            out.close().await;
            return None;
        };
        let (sender, inbox) = mpsc::channel(INBOX);
        let (has_gone, gone) = watch::channel(false);
        let listening = tokio::spawn(listen(reader, sender, has_gone));
        let signals = Signals { cancels, gone, ending: self.ending.clone() };
        let session = PgSession::new(Arc::clone(&self.server), asker, out, signals);
        let session = session.welcome(wanted, (pid, key)).await?;
        Some((Guarded { session, _listening: Listening(listening) }, inbox))
    }

    /// A number for a session, and the key that cancels what it does.
    fn number(&self, cancel: watch::Sender<u64>) -> Option<(i32, i32)> {
        let key = i32::from_be_bytes(users::random().ok()?);
        let mut sessions = self.sessions.lock();
        // Those that have ended are forgotten here.
        sessions.retain(|_, (_, cancel)| !cancel.is_closed());
        let pid = (1..i32::MAX).find(|pid| !sessions.contains_key(pid))?;
        sessions.insert(pid, (key, cancel));
        Some((pid, key))
    }

    fn cancel(&self, pid: i32, key: i32) {
        let sessions = self.sessions.lock();
        if let Some((_, cancel)) = sessions.get(&pid).filter(|(own, _)| *own == key) {
            cancel.send_modify(|count| *count += 1);
        }
    }
}

/// A session, and the task that reads what its client says.
struct Guarded {
    session: PgSession,
    _listening: Listening,
}

impl Guarded {
    async fn serve(self, inbox: mpsc::Receiver<Result<Message, Broken>>) {
        let Self { session, _listening } = self;
        session.serve(inbox).await;
    }
}

/// Ends with its session.
struct Listening(tokio::task::JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads messages, beside the session that answers them: it hears of a client that has gone while a statement runs.
async fn listen<R: AsyncRead + Unpin>(
    mut reader: BufReader<R>,
    inbox: mpsc::Sender<Result<Message, Broken>>,
    has_gone: watch::Sender<bool>,
) {
    loop {
        let message = wire::read(&mut reader, MESSAGE_BYTES_MAX).await;
        if message == Err(Broken::Gone) {
            break;
        }
        let is_last = message.is_err();
        if inbox.send(message).await.is_err() || is_last {
            break;
        }
    }
    // What is broken is told before; then nobody listens any more.
    if !inbox.is_closed() {
        let mut rest = [0; 1024];
        while matches!(reader.read(&mut rest).await, Ok(1..)) {}
    }
    let _ = has_gone.send(true);
}

/// The settings of a client's options: `-c name=value`, or `--name=value`.
fn options(text: &str) -> Result<Wanted, Refused> {
    let mut words = text.split_whitespace();
    let mut wanted = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c").or_else(|| word.strip_prefix("--")) {
            Some("") => words.next(),
            other => other,
        };
        let pair = setting.and_then(|setting| setting.split_once('='));
        let refused = || Refused::new("42601", &format!("the option {word} is no -c name=value"));
        let (name, value) = pair.ok_or_else(refused)?;
        wanted.push((name.to_string(), value.to_string()));
    }
    Ok(wanted)
}

/// Why somebody is not let in.
struct Refused {
    sqlstate: &'static str,
    text: String,
    hint: Option<&'static str>,
}

impl Refused {
    fn new(sqlstate: &'static str, text: &str) -> Self {
        Self { sqlstate, text: text.to_string(), hint: None }
    }
}

/// Asks for a proof that the user knows the password.
async fn proven(
    reader: &mut (impl AsyncRead + Unpin),
    out: &mut Out,
    users: &Users,
    user: &str,
) -> Result<(), Refused> {
    let broken = || Refused::new("08P01", "no answer to the question for a password");
    let wrong = || Refused {
        sqlstate: "28P01",
        text: format!("the password of {user} is another, or there is no such user"),
        hint: Some(
            "the server's file of users has a line for each: headrace-server user NAME prints one",
        ),
    };
    out.message(b'R', |out| {
        out.put_i32(10);
        wire::put_text(out, scram::MECHANISM);
        out.put_u8(0);
    });
    let first = answer(reader, out).await.ok_or_else(broken)?;
    let first = initial(&first).ok_or_else(broken)?;
    let (exchange, text) = Exchange::begin(users.verifier(user), &first).ok_or_else(broken)?;
    out.message(b'R', |out| {
        out.put_i32(11);
        out.put_slice(text.as_bytes());
    });
    let last = answer(reader, out).await.ok_or_else(broken)?;
    let last = String::from_utf8(last.to_vec()).map_err(|_| broken())?;
    let text = exchange.end(&last).ok_or_else(wrong)?;
    out.message(b'R', |out| {
        out.put_i32(12);
        out.put_slice(text.as_bytes());
    });
    Ok(())
}

async fn answer(reader: &mut (impl AsyncRead + Unpin), out: &mut Out) -> Option<bytes::Bytes> {
    out.flush().await.ok()?;
    match wire::read(reader, STRANGER_BYTES_MAX).await.ok()? {
        Message::Password(answer) => Some(answer),
        _ => None,
    }
}

/// The text behind the mechanism that a client has chosen.
fn initial(answer: &[u8]) -> Option<String> {
    let rest = answer.strip_prefix(scram::MECHANISM.as_bytes())?.strip_prefix(&[0])?;
    let (length, text) = rest.split_at_checked(4)?;
    let length = i32::from_be_bytes(length.try_into().ok()?);
    (usize::try_from(length).ok()? == text.len()).then(|| String::from_utf8(text.to_vec()).ok())?
}
