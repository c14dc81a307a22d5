//! One connection, used by one thread.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::dsn::{self, Server};
use crate::error::{PgError, Result};
use crate::tls;

/// How soon a cancelled wait ends.
const CANCEL_POLL: Duration = Duration::from_millis(20);

/// How long the server may take to accept a cancel request.
const CANCEL_REQUEST: Duration = Duration::from_secs(1);

/// A connection with its driver. Nothing else runs in its thread while it waits.
pub(crate) struct Session {
    runtime: Runtime,
    client: Client,
    place: String,
    notices: Arc<Mutex<Vec<String>>>,
    tls: tls::Tls,
}

impl Session {
    /// Connects. A command line's session is silent and has no time limits.
    pub fn connect(server: &Server, cancel: &AtomicBool) -> Result<Session> {
        let place = dsn::place(&server.config);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| PgError::new(format!("cannot start a connection: {error}")))?;
        let notices = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&notices);
        let connecting = async {
            let (client, mut connection) = connect(server).await?;
            tokio::spawn(async move {
                // Its errors come to the client's own calls.
                while let Some(Ok(said)) = poll_fn(|context| connection.poll_message(context)).await
                {
                    if let AsyncMessage::Notice(notice) = said {
                        noted.lock().push(notice.message().to_string());
                    }
                }
            });
            Ok(client)
        };
        let client = runtime.block_on(until(cancel, connecting));
        let client = client.ok_or_else(PgError::cancelled)?.map_err(|error| {
            let failed = PgError::server(&place, &error);
            match failed.remedy.is_empty() {
                true => failed.remedy(
                    "--dsn, or PGHOST, PGPORT, PGUSER, PGDATABASE, say where the server is",
                ),
                false => failed,
            }
        })?;
        let tls = server.tls.clone();
        let session = Session { runtime, client, place, notices, tls };
        session.execute(
            cancel,
            "set statement_timeout = 0; set lock_timeout = 0; set idle_in_transaction_session_timeout = 0; \
             set client_encoding = 'UTF8'; set datestyle = 'ISO'; set intervalstyle = 'postgres'; \
             set extra_float_digits = 1; set bytea_output = 'hex'",
        )?;
        Ok(session)
    }

    /// The server and the database, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The server's notices since the last call.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock())
    }

    /// Statements without parameters and results.
    pub fn execute(&self, cancel: &AtomicBool, sql: &str) -> Result<()> {
        self.wait(cancel, "", self.client.batch_execute(sql))
    }

    /// The rows of a query.
    pub fn query(
        &self,
        cancel: &AtomicBool,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        self.wait(cancel, "", self.client.query(sql, parameters))
    }

    /// The columns of a query.
    pub fn describe(&self, cancel: &AtomicBool, place: &str, sql: &str) -> Result<Statement> {
        self.wait(cancel, place, self.client.prepare(sql))
    }

    /// The server's version as a number: 150020 is 15.20.
    pub fn version(&self, cancel: &AtomicBool) -> Result<i32> {
        self.number(cancel, "select pg_catalog.current_setting('server_version_num')::int4")
    }

    /// Bytes of a block.
    pub fn block_bytes(&self, cancel: &AtomicBool) -> Result<u64> {
        let bytes = self.number(cancel, "select pg_catalog.current_setting('block_size')::int4")?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    fn number(&self, cancel: &AtomicBool, sql: &str) -> Result<i32> {
        let rows = self.query(cancel, sql, &[])?;
        rows.first()
            .map(|row| row.get(0))
            .ok_or_else(|| PgError::new(format!("{}: no answer", self.place)))
    }

    /// Waits for the server's work; cancellation ends both.
    pub fn wait<T>(
        &self,
        cancel: &AtomicBool,
        place: &str,
        work: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let place = if place.is_empty() { &self.place } else { place };
        self.drive(cancel, async { work.await.map_err(|error| PgError::server(place, &error)) })
    }

    /// Like [`wait`](Self::wait), for work that may fail.
    pub fn drive<T>(
        &self,
        cancel: &AtomicBool,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.runtime.block_on(async {
            if let Some(done) = until(cancel, work).await {
                return done;
            }
            let request = self.client.cancel_token();
            // The server may be gone as well.
            let _ = tokio::time::timeout(
                CANCEL_REQUEST,
                request.cancel_query(self.tls.connector.clone()),
            )
            .await;
            Err(PgError::cancelled())
        })
    }

    /// For operations that only the library has.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

type Tried<S> =
    std::result::Result<(Client, tokio_postgres::Connection<Socket, S>), tokio_postgres::Error>;

/// The first mode that works. The next one is tried if the server, or TLS, refused it; the error is that of the
/// first.
async fn connect(server: &Server) -> Tried<<MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream> {
    let try_mode = |mode: SslMode| {
        let mut config = server.config.clone();
        config.ssl_mode(mode);
        let connector = server.tls.connector.clone();
        async move { config.connect(connector).await }
    };
    let (first, others) = server.tls.attempts.split_first().unwrap_or((&SslMode::Prefer, &[]));
    let first = try_mode(*first).await;
    let Err(failure) = &first else { return first };
    if failure.code().is_none_or(|code| *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION) {
        for mode in others {
            let other = try_mode(*mode).await;
            if other.is_ok() {
                return other;
            }
        }
    }
    first
}

/// The result of the work; `None` if it was cancelled first.
async fn until<T>(cancel: &AtomicBool, work: impl Future<Output = T>) -> Option<T> {
    let stopped = async {
        while !cancel.load(Ordering::Relaxed) {
            tokio::time::sleep(CANCEL_POLL).await;
        }
    };
    tokio::select! {
        done = work => Some(done),
        () = stopped => None,
    }
}
