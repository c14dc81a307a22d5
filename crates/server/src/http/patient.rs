//! A stream whose other side must read: one that takes nothing for a while is broken.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long nothing may be taken.
const PATIENCE: Duration = Duration::from_secs(60);

/// The stream.
pub struct Patient<S> {
    inner: S,
    patience: Duration,
    /// While something waits to be taken.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub fn new(inner: S) -> Self {
        Self::of(inner, PATIENCE)
    }

    fn of(inner: S, patience: Duration) -> Self {
        Self { inner, patience, until: None }
    }

    /// What a step of writing came to: an error where it has waited too long.
    fn awaited<T>(
        &mut self,
        context: &mut Context<'_>,
        step: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if step.is_ready() {
            self.until = None;
            return step;
        }
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        ready!(until.as_mut().poll(context));
        until.as_mut().reset(Instant::now() + self.patience);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing is taken")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let step = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.awaited(context, step)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let step = Pin::new(&mut self.inner).poll_flush(context);
        self.awaited(context, step)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let step = Pin::new(&mut self.inner).poll_shutdown(context);
        self.awaited(context, step)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let step = Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        self.awaited(context, step)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn who_takes_nothing_is_left() {
        let (own, mut other) = duplex(8);
        let mut own = Patient::of(own, Duration::from_millis(200));
        own.write_all(b"12345678").await.unwrap();
        assert_eq!(own.write_all(b"9").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Slow is not nothing.
        let writes = async { own.write_all(&[7; 32]).await.unwrap() };
        let reads = async {
            let mut bytes = [0; 8];
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(120)).await;
                other.read_exact(&mut bytes).await.unwrap();
            }
        };
        tokio::join!(writes, reads);
    }
}
