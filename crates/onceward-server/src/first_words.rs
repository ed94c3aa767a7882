//! A connection whose client has to say soon which HTTP it speaks. Nobody else has a limit for that: those of HTTP/1.1 and
//! HTTP/2 start when it is known which of them it is.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// What HTTP/2 starts with. Whoever says anything else speaks HTTP/1.1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) struct FirstWords<I> {
    stream: I,
    within: Duration,
    /// How much of the preface was heard, while it can become one; and until when it may.
    undecided: Option<(usize, Option<Pin<Box<Sleep>>>)>,
}

impl<I> FirstWords<I> {
    pub(crate) fn of(stream: I, within: Duration) -> Self {
        Self { stream, within, undecided: Some((0, None)) }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for FirstWords<I> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        let Some((heard, deadline)) = &mut this.undecided else { return read };
        if read.is_ready() {
            let words = buffer.filled().get(before..).unwrap_or_default();
            let rest = PREFACE.get(*heard..).unwrap_or_default();
            *heard += words.len();
            if words.len() >= rest.len() || !rest.starts_with(words) {
                this.undecided = None;
            }
            return read;
        }
        let deadline = deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.within)));
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for FirstWords<I> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What comes of waiting for more after these words: whether it is given up.
    async fn is_given_up(words: &[&[u8]]) -> bool {
        let (mut client, server) = tokio::io::duplex(64);
        let mut server = FirstWords::of(server, Duration::from_millis(50));
        let mut heard = [0; 64];
        for words in words {
            client.write_all(words).await.unwrap();
            server.read_exact(&mut heard[..words.len()]).await.unwrap();
        }
        let more = tokio::time::timeout(Duration::from_millis(200), server.read(&mut heard)).await;
        matches!(more, Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut)
    }

    #[tokio::test]
    async fn who_does_not_say_what_it_speaks_is_given_up() {
        assert!(is_given_up(&[]).await);
        assert!(is_given_up(&[b"P"]).await);
        assert!(is_given_up(&[b"PRI * ", b"HTTP/2.0\r\n"]).await);
        assert!(!is_given_up(&[PREFACE]).await);
        assert!(!is_given_up(&[&PREFACE[..7], &PREFACE[7..]]).await);
        assert!(!is_given_up(&[b"GET / HTTP/1.0\r\n\r\n"]).await);
        assert!(!is_given_up(&[b"P", b"OST"]).await);
    }
}
