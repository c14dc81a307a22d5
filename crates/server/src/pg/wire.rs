//! Messages of PostgreSQL's protocol 3: read with every length checked, and written.
//!
//! A peer may say anything: no length that it gives is believed before its bytes are there, and nothing is kept for bytes
//! that have not come.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest message of one who has not said who he is.
pub const STRANGER_BYTES_MAX: usize = 10_000;

/// The longest message: a statement and its parameters.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// What a message has at most before its first bytes came.
const PIECE_BYTES: usize = 64 << 10;

/// Why a message cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// The other side has gone.
    Gone,
    /// It is longer than it may be.
    TooLong { bytes: usize, bytes_max: usize },
    /// Its bytes are no message.
    Malformed(&'static str),
}

/// The first message of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    Tls,
    Gss,
    Cancel { pid: i32, key: i32 },
    Startup { minor: u16, parameters: Vec<(String, String)> },
}

/// Whether a name is that of a statement or of a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Statement,
    Portal,
}

/// A message of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    Query(String),
    Parse { name: String, sql: String, types: Vec<u32> },
    Bind(Bind),
    Describe(Of, String),
    Execute { portal: String, rows_max: usize },
    Close(Of, String),
    Flush,
    Sync,
    Password(Bytes),
    CopyData,
    CopyDone,
    CopyFail,
    Terminate,
}

/// Values for the parameters of a statement.
#[derive(Debug, PartialEq, Eq)]
pub struct Bind {
    pub portal: String,
    pub statement: String,
    pub value_formats: Vec<i16>,
    pub values: Vec<Option<Bytes>>,
    pub result_formats: Vec<i16>,
}

impl Message {
    /// What the client will not have read before it sends Sync.
    pub fn is_extended(&self) -> bool {
        matches!(
            self,
            Self::Parse { .. }
                | Self::Bind(_)
                | Self::Describe(..)
                | Self::Execute { .. }
                | Self::Close(..)
        )
    }
}

type Read<T> = Result<T, Broken>;

/// So many bytes, which take memory as they come.
async fn exactly(reader: &mut (impl AsyncRead + Unpin), bytes: usize) -> Read<Bytes> {
    let mut body = BytesMut::with_capacity(bytes.min(PIECE_BYTES));
    let mut rest = reader.take(bytes as u64);
    while body.len() < bytes {
        match rest.read_buf(&mut body).await {
            Ok(0) | Err(_) => return Err(Broken::Gone),
            Ok(_) => {}
        }
    }
    Ok(body.freeze())
}

/// The bytes behind a length, which counts itself.
fn body_bytes(length: i32, bytes_max: usize) -> Read<usize> {
    let bytes = usize::try_from(length).ok().and_then(|length| length.checked_sub(4));
    let bytes = bytes.ok_or(Broken::Malformed("a length that there is not"))?;
    if bytes > bytes_max { Err(Broken::TooLong { bytes, bytes_max }) } else { Ok(bytes) }
}

/// The first message.
pub async fn read_first(reader: &mut (impl AsyncRead + Unpin)) -> Read<First> {
    let length = reader.read_i32().await.map_err(|_| Broken::Gone)?;
    let mut body = Body(exactly(reader, body_bytes(length, STRANGER_BYTES_MAX)?).await?);
    match (body.u16()?, body.u16()?) {
        (1234, 5679) => Ok(First::Tls),
        (1234, 5680) => Ok(First::Gss),
        // A longer key is that of protocol 3.2, which is not spoken here.
        (1234, 5678) => Ok(First::Cancel { pid: body.i32()?, key: body.i32()? }),
        (3, minor) => {
            let mut parameters = Vec::new();
            loop {
                let name = body.text()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, body.text()?));
            }
            Ok(First::Startup { minor, parameters })
        }
        _ => Err(Broken::Malformed("no protocol of PostgreSQL")),
    }
}

/// The next message.
pub async fn read(reader: &mut (impl AsyncRead + Unpin), bytes_max: usize) -> Read<Message> {
    let kind = reader.read_u8().await.map_err(|_| Broken::Gone)?;
    if !b"QPBDECHSpdcfXF".contains(&kind) {
        return Err(Broken::Malformed("a message of no kind"));
    }
    let length = reader.read_i32().await.map_err(|_| Broken::Gone)?;
    let body = exactly(reader, body_bytes(length, bytes_max)?).await?;
    parsed(kind, body)
}

fn parsed(kind: u8, body: Bytes) -> Read<Message> {
    let mut body = Body(body);
    let message = match kind {
        b'Q' => Message::Query(body.text()?),
        b'P' => Message::Parse {
            name: body.text()?,
            sql: body.text()?,
            types: body.many(4, |body| body.i32().map(|oid| oid as u32))?,
        },
        b'B' => Message::Bind(Bind {
            portal: body.text()?,
            statement: body.text()?,
            value_formats: body.many(2, Body::i16)?,
            values: body.many(4, Body::value)?,
            result_formats: body.many(2, Body::i16)?,
        }),
        b'D' => Message::Describe(body.of()?, body.text()?),
        b'C' => Message::Close(body.of()?, body.text()?),
        b'E' => Message::Execute {
            portal: body.text()?,
            rows_max: usize::try_from(body.i32()?).unwrap_or(0),
        },
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'X' => Message::Terminate,
        b'p' => return Ok(Message::Password(body.0)),
        b'd' => return Ok(Message::CopyData),
        b'c' => Message::CopyDone,
        b'f' => return Ok(Message::CopyFail),
        _ => return Err(Broken::Malformed("calls of functions by number are not answered")),
    };
    match body.0.is_empty() {
        true => Ok(message),
        false => Err(Broken::Malformed("a message that goes on behind its end")),
    }
}

/// What is left of a message.
struct Body(Bytes);

impl Body {
    fn short() -> Broken {
        Broken::Malformed("a message that ends early")
    }

    fn i16(&mut self) -> Read<i16> {
        self.0.try_get_i16().map_err(|_| Self::short())
    }

    fn u16(&mut self) -> Read<u16> {
        self.0.try_get_u16().map_err(|_| Self::short())
    }

    fn i32(&mut self) -> Read<i32> {
        self.0.try_get_i32().map_err(|_| Self::short())
    }

    fn text(&mut self) -> Read<String> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(Self::short)?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        let text = std::str::from_utf8(&text);
        text.map(str::to_string).map_err(|_| Broken::Malformed("a text that is not UTF-8"))
    }

    fn of(&mut self) -> Read<Of> {
        match self.0.try_get_u8() {
            Ok(b'S') => Ok(Of::Statement),
            Ok(b'P') => Ok(Of::Portal),
            _ => Err(Broken::Malformed("neither a statement nor a portal")),
        }
    }

    fn value(&mut self) -> Read<Option<Bytes>> {
        let Ok(bytes) = usize::try_from(self.i32()?) else { return Ok(None) };
        match bytes <= self.0.len() {
            true => Ok(Some(self.0.split_to(bytes))),
            false => Err(Self::short()),
        }
    }

    /// A count and so many, each of so many bytes or more.
    fn many<T>(&mut self, bytes: usize, one: impl Fn(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = usize::from(self.u16()?);
        if count * bytes > self.0.len() {
            return Err(Self::short());
        }
        (0..count).map(|_| one(self)).collect()
    }
}

/// A message that begins in the buffer; its length is known when it ends.
#[must_use]
pub struct Begun(usize);

/// Begins a message of a kind.
pub fn begin(out: &mut BytesMut, kind: u8) -> Begun {
    out.put_u8(kind);
    out.put_i32(0);
    Begun(out.len() - 4)
}

impl Begun {
    /// Ends the message; `false`: it is longer than a message can be, and it is taken back.
    pub fn end(self, out: &mut BytesMut) -> bool {
        match i32::try_from(out.len() - self.0) {
            Ok(length) => {
                out[self.0..self.0 + 4].copy_from_slice(&length.to_be_bytes());
                true
            }
            Err(_) => {
                out.truncate(self.0 - 1);
                false
            }
        }
    }
}

/// A message of a few bytes.
pub fn put(out: &mut BytesMut, kind: u8, body: impl FnOnce(&mut BytesMut)) {
    let begun = begin(out, kind);
    body(out);
    // What is longer was a statement before, which is much shorter.
    assert!(begun.end(out), "a message of over 2 GiB");
}

pub fn put_text(out: &mut BytesMut, text: &str) {
    // A zero ends it.
    out.put_slice(text.split('\0').next().unwrap_or_default().as_bytes());
    out.put_u8(0);
}

/// A column as a client is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub name: String,
    pub oid: u32,
    /// Bytes of a value; -1 where they differ.
    pub bytes: i16,
    pub modifier: i32,
    pub is_binary: bool,
}

pub fn put_columns(out: &mut BytesMut, columns: &[Described]) {
    put(out, b'T', |out| {
        out.put_u16(columns.len() as u16);
        for column in columns {
            put_text(out, &column.name);
            // Of no table that the client could look at, and no column of one.
            out.put_i32(0);
            out.put_i16(0);
            out.put_u32(column.oid);
            out.put_i16(column.bytes);
            out.put_i32(column.modifier);
            out.put_i16(i16::from(column.is_binary));
        }
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind], &(body.len() as i32 + 4).to_be_bytes()[..], body].concat()
    }

    async fn of(bytes: &[u8]) -> Read<Message> {
        read(&mut &*bytes, MESSAGE_BYTES_MAX).await
    }

    #[tokio::test]
    async fn messages_are_what_was_sent() {
        assert_eq!(of(&message(b'Q', b"select 1\0")).await, Ok(Message::Query("select 1".into())));
        let parse = Message::Parse { name: "s".into(), sql: "x".into(), types: vec![23] };
        assert_eq!(of(&message(b'P', b"s\0x\0\0\x01\0\0\0\x17")).await, Ok(parse));
        let bind = Message::Bind(Bind {
            portal: String::new(),
            statement: "s".into(),
            value_formats: vec![1],
            values: vec![Some(Bytes::from_static(b"ab")), None],
            result_formats: vec![],
        });
        let bytes = b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\0";
        assert_eq!(of(&message(b'B', bytes)).await, Ok(bind));
    }

    #[tokio::test]
    async fn whatever_is_sent_is_a_message_or_an_error() {
        // Every message cut at every byte, and with every byte changed.
        let whole = [
            message(b'Q', b"select 1\0"),
            message(b'P', b"s\0x\0\0\x01\0\0\0\x17"),
            message(b'B', b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\0"),
            message(b'D', b"Sx\0"),
            message(b'E', b"x\0\0\0\0\x05"),
        ];
        for bytes in &whole {
            for cut in 0..bytes.len() {
                assert_eq!(of(&bytes[..cut]).await, Err(Broken::Gone));
            }
            for at in 0..bytes.len() {
                for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] = value;
                    let _ = of(&changed).await;
                }
            }
        }
        let long = [b"Q".as_slice(), &i32::MAX.to_be_bytes()].concat();
        assert!(matches!(of(&long).await, Err(Broken::TooLong { .. })));
        for length in [0_i32, 3, -1] {
            let short = [b"Q".as_slice(), &length.to_be_bytes(), &[0; 16]].concat();
            assert!(matches!(of(&short).await, Err(Broken::Malformed(_))), "{length}");
        }
        assert!(matches!(of(b"GET / HTTP/1.1\r\n\r\n").await, Err(Broken::Malformed(_))));
    }

    #[tokio::test]
    async fn the_first_message_says_what_is_wanted() {
        let first = async |body: &[u8]| {
            let bytes = [&(body.len() as i32 + 4).to_be_bytes()[..], body].concat();
            read_first(&mut &*bytes).await
        };
        assert_eq!(first(&80_877_103_i32.to_be_bytes()).await, Ok(First::Tls));
        let startup = first(b"\0\x03\0\0user\0ada\0\0").await;
        let parameters = vec![("user".to_string(), "ada".to_string())];
        assert_eq!(startup, Ok(First::Startup { minor: 0, parameters }));
        assert!(matches!(first(b"\0\x03\0\0user").await, Err(Broken::Malformed(_))));
        assert!(matches!(first(b"\0\x02\0\0").await, Err(Broken::Malformed(_))));
        assert!(matches!(first(b"").await, Err(Broken::Malformed(_))));
    }
}
