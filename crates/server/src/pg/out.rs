//! What goes to the client.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use headrace_engine::failure::Failure;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::wire::{self, put, put_text};

/// Bytes that are kept before they are sent.
const FULL_BYTES: usize = 64 << 10;

/// Bytes that the buffer keeps when it is empty.
const KEPT_BYTES: usize = 1 << 20;

/// How long a client may take to read what it was sent, before others have to wait for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Messages for a client, and the way to it.
pub struct Out {
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    pub buffer: BytesMut,
}

impl Out {
    pub fn new(writer: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        Self { writer, buffer: BytesMut::new() }
    }

    /// Sends the buffer.
    ///
    /// # Errors
    /// The client has gone, or reads nothing.
    pub async fn flush(&mut self) -> io::Result<()> {
        while self.buffer.has_remaining() {
            let written = tokio::time::timeout(PATIENCE, self.writer.write_buf(&mut self.buffer));
            if written.await?? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        if self.buffer.capacity() > KEPT_BYTES {
            self.buffer = BytesMut::new();
        }
        tokio::time::timeout(PATIENCE, self.writer.flush()).await?
    }

    /// Sends the buffer when it is full.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn flush_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() < FULL_BYTES {
            return Ok(());
        }
        self.flush().await
    }

    /// Ends the connection.
    pub async fn close(&mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), async {
            let _ = self.flush().await;
            let _ = self.writer.shutdown().await;
        })
        .await;
    }

    pub fn message(&mut self, kind: u8, body: impl FnOnce(&mut BytesMut)) {
        put(&mut self.buffer, kind, body);
    }

    /// A statement is done.
    pub fn complete(&mut self, tag: &str) {
        self.message(b'C', |out| put_text(out, tag));
    }

    /// A setting is now this.
    pub fn setting(&mut self, name: &str, value: &str) {
        self.message(b'S', |out| {
            put_text(out, name);
            put_text(out, value);
        });
    }

    pub fn columns(&mut self, columns: &[wire::Described]) {
        wire::put_columns(&mut self.buffer, columns);
    }

    /// Tells something that is no error.
    pub fn warning(&mut self, sqlstate: &str, text: &str) {
        self.report(b'N', "WARNING", sqlstate, text, None, None);
    }

    /// Tells an error; `position` is that of the character in the text that was sent, from 1.
    pub fn failure(&mut self, failure: &Failure, position: Option<usize>) {
        let hint = failure.hint.as_deref();
        self.report(b'E', "ERROR", failure.sqlstate(), &failure.cause, hint, position);
    }

    /// Tells an error of this protocol alone.
    pub fn refusal(&mut self, sqlstate: &str, text: &str) {
        self.report(b'E', "ERROR", sqlstate, text, None, None);
    }

    /// Tells an error that ends the connection.
    pub fn fatal(&mut self, sqlstate: &str, text: &str, hint: Option<&str>) {
        self.report(b'E', "FATAL", sqlstate, text, hint, None);
    }

    fn report(
        &mut self,
        kind: u8,
        severity: &str,
        sqlstate: &str,
        text: &str,
        hint: Option<&str>,
        position: Option<usize>,
    ) {
        let position = position.map(|position| position.to_string());
        let fields = [
            (b'S', Some(severity)),
            (b'V', Some(severity)),
            (b'C', Some(sqlstate)),
            (b'M', Some(text)),
            (b'H', hint),
            (b'P', position.as_deref()),
        ];
        self.message(kind, |out| {
            for (field, value) in fields {
                if let Some(value) = value {
                    out.put_u8(field);
                    put_text(out, value);
                }
            }
            out.put_u8(0);
        });
    }
}
