//! One client's session: its statements, portals, transaction and settings.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use bytes::{BufMut, BytesMut};
use headrace_engine::failure::{Class, Failure};
use headrace_engine::sql::effect::Effect;
use headrace_engine::{GivenTables, Session};
use tokio::sync::{mpsc, watch};

use super::encode::Rows;
use super::out::Out;
use super::portal::{Portal, Source, State};
use super::settings::{PgSettings, is_told};
use super::wire::{Broken, Message, Of, put_text};
use super::words::{Command, CopyOptions};
use super::{catalog, types};
use crate::server::{LEVERS, Server, until};
use crate::statement::{Asker, Planned, plan, written};

/// Portals of one session.
const PORTALS_MAX: usize = 256;

/// Rows that are written before others have a chance.
const PIECE_ROWS: usize = 4096;

/// Why a message has no more answers.
#[derive(Debug)]
pub enum Stop {
    /// The client has gone.
    Gone,
    Failure(Failure),
    /// What only this protocol has: a SQLSTATE, and what is wrong.
    Refusal(&'static str, String),
}

pub(super) type Done<T> = Result<T, Stop>;

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

pub(super) fn refusal<T>(sqlstate: &'static str, text: impl Into<String>) -> Done<T> {
    Err(Stop::Refusal(sqlstate, text.into()))
}

/// Where a session is between BEGIN and COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    None,
    Open,
    Failed,
}

/// A statement that is kept by its name.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) sql: String,
    /// The types of its parameters.
    pub(super) types: Vec<u32>,
}

/// What a session hears from outside of it.
pub struct Signals {
    /// Counts the requests to cancel what runs.
    pub cancels: watch::Receiver<u64>,
    /// Its client has gone.
    pub gone: watch::Receiver<bool>,
    /// The server ends.
    pub ending: watch::Receiver<bool>,
}

impl Signals {
    /// Waits, unless the statement is cancelled or its client goes.
    pub(super) async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Done<T> {
        tokio::select! {
            biased;
            () = until(&mut self.gone) => Err(Stop::Gone),
            _ = self.cancels.changed() => {
                let failure = Failure::new(Class::Cancelled, "the statement was cancelled");
                Err(failure.hint("its user asked for that").into())
            }
            done = work => Ok(done),
        }
    }
}

pub struct PgSession {
    pub(super) server: Arc<Server>,
    pub(super) session: Session,
    asker: Asker,
    pub(super) settings: PgSettings,
    pub(super) statements: HashMap<String, Arc<Prepared>>,
    pub(super) portals: HashMap<String, Portal>,
    pub(super) transaction: Transaction,
    /// The transaction may not change anything.
    is_read_only: bool,
    /// It has changed something, which stays.
    has_written: bool,
    savepoints: Vec<String>,
    /// After an error nothing is done until Sync comes.
    is_skipping: bool,
    pub(super) out: Out,
    pub(super) signals: Signals,
}

impl PgSession {
    pub fn new(server: Arc<Server>, asker: Asker, out: Out, signals: Signals) -> Self {
        Self {
            session: server.session(),
            server,
            asker,
            settings: PgSettings::default(),
            statements: HashMap::new(),
            portals: HashMap::new(),
            transaction: Transaction::None,
            is_read_only: false,
            has_written: false,
            savepoints: Vec::new(),
            is_skipping: false,
            out,
            signals,
        }
    }

    /// The first messages of a session, with the settings that its client wants; `None`: one of them is refused.
    pub async fn welcome(
        mut self,
        wanted: Vec<(String, String)>,
        (pid, key): (i32, i32),
    ) -> Option<Self> {
        self.out.message(b'R', |out| out.put_i32(0));
        for (name, value) in wanted {
            let refused = match self.set(&name, Some(&value)).await {
                Ok(()) => continue,
                Err(Stop::Gone) => return None,
                Err(Stop::Failure(failure)) => (failure.sqlstate(), failure.cause),
                Err(Stop::Refusal(sqlstate, text)) => (sqlstate, text),
            };
            self.out.fatal(refused.0, &refused.1, None);
            self.out.close().await;
            return None;
        }
        for (name, value) in self.settings.told() {
            self.out.setting(name, &value);
        }
        self.out.setting("session_authorization", &self.asker.name);
        self.out.message(b'K', |out| {
            out.put_i32(pid);
            out.put_i32(key);
        });
        Some(self)
    }

    /// Answers messages until there are no more.
    pub async fn serve(mut self, mut inbox: mpsc::Receiver<Result<Message, Broken>>) {
        let done = self.answer_all(&mut inbox).await;
        if !matches!(done, Err(Stop::Gone)) {
            self.out.close().await;
        }
    }

    async fn answer_all(
        &mut self,
        inbox: &mut mpsc::Receiver<Result<Message, Broken>>,
    ) -> Done<()> {
        self.ready().await?;
        loop {
            let message = tokio::select! {
                message = inbox.recv() => message,
                () = until(&mut self.signals.ending) => {
                    self.out.fatal("57P01", "the server ends", None);
                    return Ok(());
                }
            };
            let message = match message {
                None | Some(Ok(Message::Terminate) | Err(Broken::Gone)) => return Ok(()),
                Some(Ok(message)) => message,
                Some(Err(Broken::Malformed(what))) => {
                    self.out.fatal("08P01", &format!("broken message: {what}"), None);
                    return Ok(());
                }
                Some(Err(Broken::TooLong { bytes, bytes_max })) => {
                    let text = format!("a message of {bytes} bytes; {bytes_max} are taken");
                    self.out.fatal("54000", &text, None);
                    return Ok(());
                }
            };
            if self.is_skipping && !matches!(message, Message::Sync) {
                continue;
            }
            self.signals.cancels.mark_unchanged();
            let is_extended = message.is_extended();
            match self.answer(message).await {
                Ok(()) => {}
                Err(Stop::Gone) => return Err(Stop::Gone),
                Err(stop) => {
                    self.tell(stop, None);
                    self.is_skipping = is_extended;
                    match is_extended {
                        // Who asks for no Sync waits for what went wrong.
                        true => self.out.flush().await?,
                        false => self.ready().await?,
                    }
                }
            }
        }
    }

    async fn answer(&mut self, message: Message) -> Done<()> {
        match message {
            Message::Query(text) => self.query(&text).await,
            Message::Parse { name, sql, types } => self.parse(name, sql, types).await,
            Message::Bind(bind) => self.bind(bind),
            Message::Describe(Of::Statement, name) => self.describe_statement(&name).await,
            Message::Describe(Of::Portal, name) => self.describe_portal(&name).await,
            Message::Execute { portal, rows_max } => self.execute(portal, rows_max).await,
            Message::Close(of, name) => {
                match of {
                    Of::Statement => drop(self.statements.remove(&name)),
                    Of::Portal => drop(self.portals.remove(&name)),
                }
                self.out.message(b'3', |_| {});
                Ok(())
            }
            Message::Sync => {
                self.is_skipping = false;
                if self.transaction == Transaction::None {
                    self.portals.retain(|_, portal| portal.cursor.is_some());
                }
                self.ready().await
            }
            Message::Flush => Ok(self.out.flush().await?),
            // Behind a refused COPY, a client sends what it had to copy.
            Message::CopyData | Message::CopyDone | Message::CopyFail => Ok(()),
            Message::Password(_) | Message::Terminate => refusal("08P01", "not now"),
        }
    }

    async fn ready(&mut self) -> Done<()> {
        let status = match self.transaction {
            Transaction::None => b'I',
            Transaction::Open => b'T',
            Transaction::Failed => b'E',
        };
        self.out.message(b'Z', |out| out.put_u8(status));
        Ok(self.out.flush().await?)
    }

    fn tell(&mut self, stop: Stop, position: Option<usize>) {
        match stop {
            Stop::Gone => {}
            Stop::Failure(failure) => self.out.failure(&failure, position),
            Stop::Refusal(sqlstate, text) => self.out.refusal(sqlstate, &text),
        }
        if self.transaction == Transaction::Open {
            self.transaction = Transaction::Failed;
        }
    }

    /// Waits, unless the statement is cancelled or its client goes.
    pub(super) async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Done<T> {
        self.signals.unless_stopped(work).await
    }

    /// Statements of one text, as psql sends them.
    async fn query(&mut self, text: &str) -> Done<()> {
        let found = self.session.statements(text).map_err(|error| Failure::of(&error, &LEVERS));
        let statements: Vec<(usize, String)> =
            found?.into_iter().map(|(at, sql)| (at, sql.to_string())).collect();
        if statements.is_empty() {
            self.out.message(b'I', |_| {});
        }
        for (at, sql) in statements {
            let done = self.run(&sql).await;
            if let Err(stop) = done {
                if matches!(stop, Stop::Gone) {
                    return Err(stop);
                }
                let position = position(text, at, &stop);
                self.tell(stop, position);
                break;
            }
        }
        if self.transaction == Transaction::None {
            self.portals.retain(|_, portal| portal.cursor.is_some());
        }
        self.ready().await
    }

    async fn run(&mut self, sql: &str) -> Done<()> {
        let mut portal = Portal::new(sql.to_string(), Vec::new());
        self.open(&mut portal).await?;
        let tag = portal.command.rows_tag();
        if let Command::Fetch { name, rows, is_move: false } = &portal.command {
            let Some(mut cursor) = self.portals.remove(name) else {
                return refusal("34000", format!("there is no cursor {name}"));
            };
            Box::pin(self.open(&mut cursor)).await?;
            self.put_columns(cursor.schema(), &[]);
            self.portals.insert(name.clone(), cursor);
            let count = self.fetch(name, *rows, Some(&[])).await?;
            self.out.complete(&format!("{tag} {count}"));
            return Ok(());
        }
        match &mut portal.state {
            State::Rows(source) => {
                let columns = types::described(&source.schema, &[]);
                self.out.columns(&columns);
                let (rows, _) = self.send(source, &[], None).await?;
                self.out.complete(&format!("{tag} {rows}"));
            }
            State::Done(tag) => self.out.complete(tag),
            State::Bound | State::Planned(_) => {}
        }
        Ok(())
    }

    /// Plans a statement, whatever catalog it asks.
    pub(super) async fn plan(&mut self, sql: &str) -> Done<Planned> {
        let (sql, given) = self.rewritten(sql).await?;
        let (server, session, asker) =
            (Arc::clone(&self.server), self.session.clone(), self.asker());
        let planned = plan(&server, &session, &asker, &sql, given);
        Ok(self.signals.unless_stopped(planned).await??)
    }

    /// A statement in the engine's words, with the tables of the catalog that it names.
    pub(super) async fn rewritten(&mut self, sql: &str) -> Done<(String, GivenTables)> {
        if !catalog::may_ask(sql) {
            return Ok((sql.to_string(), GivenTables::new()));
        }
        let about = catalog::About {
            settings: self.settings.clone(),
            user: self.asker.name.clone(),
            started: self.server.started,
        };
        let (session, text) = (self.session.clone(), sql.to_string());
        let server = Arc::clone(&self.server);
        let work = server.work.of(async move { catalog::rewritten(&session, &about, &text).await });
        let rewritten = self.signals.unless_stopped(work).await???;
        Ok(rewritten.unwrap_or_else(|| (sql.to_string(), GivenTables::new())))
    }

    /// Has a statement done as far as its first row.
    pub(super) async fn open(&mut self, portal: &mut Portal) -> Done<()> {
        let is_end =
            matches!(portal.command, Command::Commit | Command::Rollback | Command::RollbackTo(_));
        if self.transaction == Transaction::Failed && !is_end {
            return refusal(
                "25P02",
                "the transaction has failed: statements are ignored until its end",
            );
        }
        portal.state = match std::mem::replace(&mut portal.state, State::Bound) {
            State::Planned(planned) => self.begin(*planned, portal).await?,
            State::Bound => match &portal.command {
                Command::Engine(_) => {
                    let planned = self.plan(&portal.sql).await?;
                    self.begin(planned, portal).await?
                }
                _ => self.own(portal).await?,
            },
            opened => opened,
        };
        Ok(())
    }

    async fn begin(&mut self, planned: Planned, portal: &Portal) -> Done<State> {
        let running = self.unless_stopped(planned.begin()).await??;
        let mut source = Source::running(running);
        if portal.command.has_rows() {
            return Ok(State::Rows(source));
        }
        let count = self.drain(&mut source).await?;
        let is_write =
            matches!(self.session.effect(&portal.sql), Effect::Writes | Effect::Functions);
        self.has_written |= is_write && self.transaction == Transaction::Open;
        Ok(State::Done(portal.command.tag(&portal.sql, count)))
    }

    /// The rows that a statement says that it has written.
    async fn drain(&mut self, source: &mut Source) -> Done<Option<u64>> {
        let mut count = None;
        while let Some(batch) = self.unless_stopped(source.next(usize::MAX)).await? {
            count = written(&batch?).or(count);
        }
        Ok(count)
    }

    /// A statement of the protocol.
    async fn own(&mut self, portal: &mut Portal) -> Done<State> {
        let done = |tag: &str| Ok(State::Done(tag.to_string()));
        match portal.command.clone() {
            // The engine's.
            Command::Engine(_) => done("OK"),
            Command::Begin { is_read_only } => {
                match self.transaction {
                    Transaction::None => {
                        self.transaction = Transaction::Open;
                        self.is_read_only = is_read_only.unwrap_or_else(|| self.reads_by_default());
                    }
                    _ => self.out.warning("25001", "there is a transaction already"),
                }
                done("BEGIN")
            }
            Command::ReadOnly { is_read_only, of_session } => {
                if let (Some(is_read_only), true) = (is_read_only, of_session) {
                    let value = if is_read_only { "on" } else { "off" };
                    self.set("default_transaction_read_only", Some(value)).await?;
                } else if let Some(is_read_only) = is_read_only {
                    self.is_read_only = is_read_only;
                }
                done("SET")
            }
            Command::Commit => {
                let is_failed = self.transaction == Transaction::Failed;
                if self.transaction == Transaction::None {
                    self.out.warning("25P01", "there is no transaction");
                }
                self.end_transaction(is_failed);
                done(if is_failed { "ROLLBACK" } else { "COMMIT" })
            }
            Command::Rollback => {
                if self.transaction == Transaction::None {
                    self.out.warning("25P01", "there is no transaction");
                }
                self.end_transaction(true);
                done("ROLLBACK")
            }
            Command::Savepoint(name) => {
                self.needs_transaction()?;
                self.savepoints.push(name);
                done("SAVEPOINT")
            }
            Command::Release(name) => {
                self.needs_transaction()?;
                let at = self.savepoint(&name)?;
                self.savepoints.truncate(at);
                done("RELEASE")
            }
            Command::RollbackTo(name) => {
                self.needs_transaction()?;
                let at = self.savepoint(&name)?;
                self.savepoints.truncate(at + 1);
                self.warn_of_writes();
                self.transaction = Transaction::Open;
                done("ROLLBACK")
            }
            Command::Set { name, value } => {
                self.set(&name, value.as_deref()).await?;
                done("SET")
            }
            Command::Show(name) => match self.settings.get(&name) {
                Some(value) => Ok(State::Rows(Source::of(one_text(&name, &value)?))),
                None => {
                    let planned = self.plan(&portal.sql).await?;
                    self.begin(planned, portal).await
                }
            },
            Command::ResetAll => {
                self.reset().await?;
                done("RESET")
            }
            Command::DiscardAll => {
                self.statements.clear();
                self.portals.clear();
                self.reset().await?;
                done("DISCARD ALL")
            }
            Command::Declare { name, query_at, is_held } => {
                self.declare(portal, name, query_at, is_held).await?;
                done("DECLARE CURSOR")
            }
            Command::Fetch { name, rows, is_move: true } => {
                let count = self.fetch(&name, rows, None).await?;
                done(&format!("MOVE {count}"))
            }
            // Its rows are sent as they come.
            Command::Fetch { is_move: false, .. } => Ok(State::Bound),
            Command::Close(name) => {
                match name {
                    None => self.portals.retain(|_, portal| portal.cursor.is_none()),
                    Some(name) => {
                        if self.portals.remove(&name).is_none() {
                            return refusal("34000", format!("there is no cursor {name}"));
                        }
                    }
                }
                done("CLOSE CURSOR")
            }
            Command::Deallocate(None) => {
                self.statements.clear();
                done("DEALLOCATE ALL")
            }
            Command::Deallocate(Some(name)) => {
                if self.statements.remove(&name).is_none() {
                    // It may be one of PREPARE, which the engine keeps.
                    let planned = self.plan(&portal.sql).await?;
                    return self.begin(planned, portal).await;
                }
                done("DEALLOCATE")
            }
            Command::CopyOut { query, options } => {
                let rows = self.copy_out(&query, &options).await?;
                done(&format!("COPY {rows}"))
            }
            Command::Nothing(tag) => done(tag),
            Command::Refused(why) => Err(Failure::new(Class::Unsupported, why.to_string()).into()),
        }
    }

    fn needs_transaction(&self) -> Done<()> {
        match self.transaction {
            Transaction::None => refusal("25P01", "savepoints stand in transactions"),
            _ => Ok(()),
        }
    }

    /// Where a savepoint stands among those of the transaction.
    fn savepoint(&self, name: &str) -> Done<usize> {
        match self.savepoints.iter().rposition(|known| known == name) {
            Some(at) => Ok(at),
            None => refusal("3B001", format!("there is no savepoint {name}")),
        }
    }

    fn reads_by_default(&self) -> bool {
        let value = self.settings.get("default_transaction_read_only").unwrap_or_default();
        matches!(value.to_ascii_lowercase().as_str(), "on" | "true" | "1" | "yes")
    }

    /// Who asks, with what the transaction lets them do.
    fn asker(&self) -> Asker {
        let is_read_only = match self.transaction {
            Transaction::None => self.reads_by_default(),
            _ => self.is_read_only,
        };
        Asker { may_write: self.asker.may_write && !is_read_only, ..self.asker.clone() }
    }

    fn warn_of_writes(&mut self) {
        if self.has_written {
            let text = "what the transaction has changed stays: nothing is undone here";
            self.out.warning("0A000", text);
        }
    }

    fn end_transaction(&mut self, is_undone: bool) {
        if is_undone {
            self.warn_of_writes();
        }
        self.has_written = false;
        self.savepoints.clear();
        self.transaction = Transaction::None;
        self.portals.retain(|_, portal| portal.cursor == Some(true));
    }

    /// Changes a setting: the engine's first, which may refuse the value.
    pub async fn set(&mut self, name: &str, value: Option<&str>) -> Done<()> {
        let mut changed = self.settings.clone();
        let own = changed.set(name, value)?;
        if own.is_none() || name.eq_ignore_ascii_case("timezone") {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
            if !name.chars().all(is_plain) {
                return refusal("42704", format!("there is no setting {name}"));
            }
            let sql = match value {
                Some(value) => format!("SET {name} = '{}'", value.replace('\'', "''")),
                None => format!("RESET {name}"),
            };
            let planned = self.plan(&sql).await?;
            let running = self.unless_stopped(planned.begin()).await??;
            self.drain(&mut Source::running(running)).await?;
        }
        self.settings = changed;
        if let Some((shown, value)) = own
            && is_told(shown)
        {
            self.out.setting(shown, &value);
        }
        Ok(())
    }

    /// A session as it was at its beginning, over the same connection.
    async fn reset(&mut self) -> Done<()> {
        self.session = self.server.session();
        let before = self.settings.told();
        self.settings.reset();
        for ((name, now), (_, before)) in self.settings.told().into_iter().zip(before) {
            if now != before {
                self.out.setting(name, &now);
            }
        }
        Ok(())
    }

    async fn declare(
        &mut self,
        portal: &Portal,
        name: String,
        query_at: usize,
        is_held: bool,
    ) -> Done<()> {
        if self.portals.contains_key(&name) {
            return refusal("42P03", format!("there is a cursor {name} already"));
        }
        let mut cursor = Portal::new(portal.sql[query_at..].to_string(), Vec::new());
        if !cursor.command.has_rows() {
            return refusal("42P11", "a cursor is of a query");
        }
        // Outside of a transaction there is nothing that it could end with.
        cursor.cursor = Some(is_held || self.transaction == Transaction::None);
        cursor.state = State::Planned(Box::new(self.plan(&cursor.sql).await?));
        self.keep(name, cursor)
    }

    pub(super) fn keep(&mut self, name: String, portal: Portal) -> Done<()> {
        if self.portals.len() >= PORTALS_MAX && !self.portals.contains_key(&name) {
            return refusal(
                "53400",
                format!("a session has {PORTALS_MAX} cursors and portals at most"),
            );
        }
        self.portals.insert(name, portal);
        Ok(())
    }

    /// Steps over rows of a cursor, or sends them in these formats; how many.
    pub(super) async fn fetch(
        &mut self,
        name: &str,
        rows: Option<usize>,
        formats: Option<&[i16]>,
    ) -> Done<u64> {
        let Some(mut cursor) = self.portals.remove(name) else {
            return refusal("34000", format!("there is no cursor {name}"));
        };
        // Behind an error there is no cursor any more, and nothing of it runs.
        let taken = self.fetch_from(&mut cursor, rows, formats).await?;
        self.portals.insert(name.to_string(), cursor);
        Ok(taken)
    }

    async fn fetch_from(
        &mut self,
        cursor: &mut Portal,
        rows: Option<usize>,
        formats: Option<&[i16]>,
    ) -> Done<u64> {
        Box::pin(self.open(cursor)).await?;
        let State::Rows(source) = &mut cursor.state else {
            return refusal("34000", "the cursor has no rows");
        };
        self.unless_stopped(source.resume()).await??;
        let count = match formats {
            Some(formats) => self.send(source, formats, rows).await?.0,
            None => self.skip(source, rows).await?,
        };
        source.pause();
        Ok(count)
    }

    async fn skip(&mut self, source: &mut Source, rows: Option<usize>) -> Done<u64> {
        let (mut count, mut left) = (0, rows.unwrap_or(usize::MAX));
        while left > 0 {
            let Some(batch) = self.unless_stopped(source.next(left)).await? else { break };
            let rows = batch?.num_rows();
            (left, count) = (left - rows, count + rows as u64);
        }
        Ok(count)
    }

    async fn copy_out(&mut self, query: &str, options: &CopyOptions) -> Done<u64> {
        if !Command::of(query).has_rows() {
            return refusal("42601", "COPY TO STDOUT is of a table or of a query");
        }
        let planned = self.plan(query).await?;
        let running = self.unless_stopped(planned.begin()).await??;
        let mut source = Source::running(running);
        let described = types::described(&source.schema, &options.formats());
        // What fails before the first rows is an error and no copy.
        let mut next = self.unless_stopped(source.next(PIECE_ROWS)).await?.transpose()?;
        options.put_begin(&mut self.out.buffer, &source.schema);
        let (mut count, mut spare) = (0_u64, BytesMut::new());
        while let Some(batch) = next {
            let rows = Rows::of(&batch, &described).map_err(unwritten)?;
            for row in 0..batch.num_rows() {
                let put = options.put_row(
                    &mut self.out.buffer,
                    &rows,
                    row,
                    count == 0 && row == 0,
                    &mut spare,
                );
                put.ok_or_else(|| Failure::new(Class::Value, "a row of over 2 GiB"))?;
                self.signals.unless_stopped(self.out.flush_if_full()).await??;
            }
            count += batch.num_rows() as u64;
            next = self.unless_stopped(source.next(PIECE_ROWS)).await?.transpose()?;
        }
        options.put_end(&mut self.out.buffer, count == 0);
        Ok(count)
    }

    /// Sends rows, so many at most; how many, and whether there are no more.
    pub(super) async fn send(
        &mut self,
        source: &mut Source,
        formats: &[i16],
        rows_max: Option<usize>,
    ) -> Done<(u64, bool)> {
        let described = types::described(&source.schema, formats);
        let (mut count, mut left) = (0, rows_max.unwrap_or(usize::MAX));
        while left > 0 {
            let piece = source.next(left.min(PIECE_ROWS));
            let Some(batch) = self.unless_stopped(piece).await? else { return Ok((count, true)) };
            let batch = batch?;
            let rows = Rows::of(&batch, &described).map_err(unwritten)?;
            for row in 0..batch.num_rows() {
                rows.put(&mut self.out.buffer, row).map_err(unwritten)?;
                self.signals.unless_stopped(self.out.flush_if_full()).await??;
            }
            count += batch.num_rows() as u64;
            left -= batch.num_rows();
        }
        Ok((count, false))
    }
}

fn unwritten(error: arrow_schema::ArrowError) -> Failure {
    Failure::new(Class::Value, error.to_string())
}

pub(super) fn one_text(name: &str, value: &str) -> Result<RecordBatch, Failure> {
    let column: ArrayRef = Arc::new(StringArray::from(vec![value]));
    RecordBatch::try_from_iter([(name, column)]).map_err(unwritten)
}

/// The character, counted from 1, of the place in a text that a failure of a statement in it names.
fn position(text: &str, at: usize, stop: &Stop) -> Option<usize> {
    let Stop::Failure(Failure { place: Some(place), .. }) = stop else { return None };
    let statement = text.get(at..)?;
    let before: usize =
        statement.split_inclusive('\n').take(place.line.checked_sub(1)?).map(str::len).sum();
    let chars = text.get(..at + before)?.chars().count();
    Some(chars + place.column)
}

/// Tells that a minor version, or options, are not known here.
pub fn put_negotiation(out: &mut Out, options: &[&str]) {
    out.message(b'v', |out| {
        out.put_i32(3 << 16);
        out.put_i32(options.len() as i32);
        options.iter().for_each(|option| put_text(out, option));
    });
}
