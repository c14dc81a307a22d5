//! The text of a failure: cause and place in one line, and the remedy.

use std::fmt;

use tokio_postgres::error::SqlState;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, PgError>;

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgError {
    /// What happened and where.
    pub cause: String,
    /// The remedy; empty if none is known.
    pub remedy: String,
    /// Its kind.
    pub kind: ErrorKind,
}

/// Kinds of failures, as in exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command line is wrong.
    Usage,
    /// The server, a value or a file.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl PgError {
    /// The server, a value or a file.
    pub fn new(cause: impl fmt::Display) -> PgError {
        PgError { cause: cause.to_string(), remedy: String::new(), kind: ErrorKind::Failed }
    }

    /// The command line is wrong.
    pub fn usage(cause: impl fmt::Display) -> PgError {
        PgError { kind: ErrorKind::Usage, ..PgError::new(cause) }
    }

    /// It was cancelled.
    pub fn cancelled() -> PgError {
        PgError { kind: ErrorKind::Cancelled, ..PgError::new("cancelled; nothing was left behind") }
    }

    /// Adds the remedy.
    pub fn remedy(mut self, remedy: impl fmt::Display) -> PgError {
        self.remedy = remedy.to_string();
        self
    }

    /// 1, 2 for a wrong command line, 130 after cancellation.
    pub fn exit_code(&self) -> i32 {
        match self.kind {
            ErrorKind::Failed => 1,
            ErrorKind::Usage => 2,
            ErrorKind::Cancelled => 130,
        }
    }

    /// An error of the server or the connection; `place` is the failed activity.
    pub(crate) fn server(place: &str, error: &tokio_postgres::Error) -> PgError {
        let Some(said) = error.as_db_error() else {
            let cause = format!("{place}: {}", with_sources(error));
            let remedy = remedy_of_connection(&cause);
            return PgError::new(cause).remedy(remedy);
        };
        let code = said.code().code();
        let mut cause = format!("{place}: {} (SQLSTATE {code})", said.message());
        if let Some(detail) = said.detail() {
            cause += &format!("; {detail}");
        }
        let remedy = said.hint().map(str::to_string).or_else(|| remedy_of(said.code()));
        PgError { remedy: remedy.unwrap_or_default(), ..PgError::new(cause) }
    }
}

/// If the server has no hint.
fn remedy_of(code: &SqlState) -> Option<String> {
    let remedy = match *code {
        SqlState::TOO_MANY_CONNECTIONS => "ask for fewer connections: --jobs 1",
        SqlState::INSUFFICIENT_PRIVILEGE => "connect as a role that may SELECT from it",
        SqlState::INVALID_PASSWORD => {
            "the password comes from the DSN, PGPASSWORD or ~/.pgpass (which nobody else may read)"
        }
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "see the server's pg_hba.conf; where it wants TLS: sslmode=require"
        }
        SqlState::T_R_SERIALIZATION_FAILURE => {
            "on a standby: raise max_standby_streaming_delay, or export from the primary"
        }
        _ => return None,
    };
    Some(remedy.to_string())
}

/// Of a connection that failed for its TLS; empty if none is known.
fn remedy_of_connection(cause: &str) -> &'static str {
    if cause.contains("server does not support TLS") {
        "the server has ssl = off: sslmode=prefer talks without TLS then"
    } else if cause.contains("invalid peer certificate") {
        "sslrootcert=FILE names the authority that vouches for the server; the host must have the name \
         that its certificate says; sslmode=require without a root.crt encrypts, whoever the server is"
    } else {
        ""
    }
}

/// The library's errors have details in their sources.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        source = cause.source();
    }
    text
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        match self.remedy.as_str() {
            "" => Ok(()),
            remedy => write!(f, "\n\nhint: {remedy}"),
        }
    }
}

impl std::error::Error for PgError {}
