//! Limits how long a client may take until it is known whether it uses HTTP/1.1 or HTTP/2. The time-outs of both protocols
//! start only after that.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// HTTP/2 starts with this preface. Anything else is HTTP/1.1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub struct ProtocolTimeout<I> {
    stream: I,
    limit: Duration,
    /// How much of the preface has arrived, and the deadline for the rest; `None` once the protocol is known.
    undecided: Option<(usize, Option<Pin<Box<Sleep>>>)>,
}

impl<I> ProtocolTimeout<I> {
    pub fn new(stream: I, limit: Duration) -> Self {
        Self { stream, limit, undecided: Some((0, None)) }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for ProtocolTimeout<I> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        let Some((received, deadline)) = &mut this.undecided else { return read };
        if read.is_ready() {
            let bytes = buffer.filled().get(before..).unwrap_or_default();
            let rest = PREFACE.get(*received..).unwrap_or_default();
            *received += bytes.len();
            if bytes.len() >= rest.len() || !rest.starts_with(bytes) {
                this.undecided = None;
            }
            return read;
        }
        let deadline = deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.limit)));
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ProtocolTimeout<I> {
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

    /// Whether the connection times out when no more bytes follow these.
    async fn times_out(chunks: &[&[u8]]) -> bool {
        let (mut client, server) = tokio::io::duplex(64);
        let mut server = ProtocolTimeout::new(server, Duration::from_millis(50));
        let mut received = [0; 64];
        for chunk in chunks {
            client.write_all(chunk).await.unwrap();
            server.read_exact(&mut received[..chunk.len()]).await.unwrap();
        }
        let more = tokio::time::timeout(Duration::from_millis(200), server.read(&mut received)).await;
        matches!(more, Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut)
    }

    #[tokio::test]
    async fn a_client_that_does_not_reveal_its_protocol_times_out() {
        assert!(times_out(&[]).await);
        assert!(times_out(&[b"P"]).await);
        assert!(times_out(&[b"PRI * ", b"HTTP/2.0\r\n"]).await);
        assert!(!times_out(&[PREFACE]).await);
        assert!(!times_out(&[&PREFACE[..7], &PREFACE[7..]]).await);
        assert!(!times_out(&[b"GET / HTTP/1.0\r\n\r\n"]).await);
        assert!(!times_out(&[b"P", b"OST"]).await);
    }
}
