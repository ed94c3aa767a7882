//! Lines and replies of SMTP (RFC 5321, 4.2), with a limit on everything that a server may send.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A reply has lines of at most 512 bytes and a few lines.
const MAX_REPLY: usize = 16 * 1024;

/// How much of a reply is kept.
const MAX_TEXT: usize = 1024;

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) code: u16,
    /// Its lines without their codes.
    pub(super) text: String,
}

impl Reply {
    /// Whether it is of the class that goes on: 2yz, or 3yz.
    pub(super) fn is_positive(&self) -> bool {
        (200..400).contains(&self.code)
    }

    /// The keywords of a reply to EHLO, in upper case.
    pub(super) fn keywords(&self) -> Vec<String> {
        self.text.lines().skip(1).map(str::to_ascii_uppercase).collect()
    }
}

/// A connection to a server.
pub(super) struct Wire<S> {
    stream: S,
    buffer: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// The stream itself, if the server has sent nothing that was not read: such bytes came before the encryption.
    pub(super) fn into_stream(self) -> io::Result<S> {
        if self.has_read_all() { Ok(self.stream) } else { Err(io::Error::other("the server sent data before TLS")) }
    }

    /// Whether the server has sent nothing that was not read.
    pub(super) fn has_read_all(&self) -> bool {
        self.buffer.is_empty()
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Reads a whole reply.
    pub(super) async fn reply(&mut self) -> io::Result<Reply> {
        let mut text = String::new();
        let mut read = 0;
        loop {
            let line = self.line(MAX_REPLY.saturating_sub(read)).await?;
            read += line.len();
            let invalid = || io::Error::other("the server does not speak SMTP");
            let (code, rest) = line.split_at_checked(3).ok_or_else(invalid)?;
            let is_code = code.bytes().all(|byte| byte.is_ascii_digit());
            let code =
                code.parse::<u16>().ok().filter(|code| is_code && (200..600).contains(code)).ok_or_else(invalid)?;
            if text.len() < MAX_TEXT {
                let separator = if text.is_empty() { "" } else { "\n" };
                text.push_str(separator);
                text.extend(rest.chars().skip(1).filter(|character| !character.is_control()).take(MAX_TEXT));
            }
            match rest.chars().next() {
                Some('-') => {}
                None | Some(' ') => return Ok(Reply { code, text }),
                Some(_) => return Err(invalid()),
            }
        }
    }

    async fn line(&mut self, limit: usize) -> io::Result<String> {
        loop {
            let end = self.buffer.iter().position(|byte| *byte == b'\n');
            if let Some(end) = end.filter(|end| *end < limit) {
                let line = self.buffer.split_to(end + 1);
                return Ok(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned());
            }
            if self.buffer.len() >= limit {
                return Err(io::Error::other("the reply of the server is too long"));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The text of a mail as it is sent: every line break is CRLF, so that no server finds an end in it that another one does not,
/// and a dot at the beginning of a line is doubled. Ends with a line break, and not yet with the final dot.
pub(super) fn stuffed(message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.len() + 64);
    let mut rest = message;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
        if rest[0] == b'.' {
            bytes.push(b'.');
        }
        bytes.extend_from_slice(&rest[..end]);
        bytes.extend_from_slice(b"\r\n");
        let is_pair = rest[end..].starts_with(b"\r\n");
        rest = &rest[(end + if is_pair { 2 } else { 1 }).min(rest.len())..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_contains_the_end_of_the_mail() {
        for (text, expected) in [
            ("a\r\n.\r\nMAIL", "a\r\n..\r\nMAIL\r\n"),
            ("a\n.\nMAIL", "a\r\n..\r\nMAIL\r\n"),
            ("a\r.\rMAIL\r", "a\r\n..\r\nMAIL\r\n"),
            ("a\r\r\n.", "a\r\n\r\n..\r\n"),
            (".", "..\r\n"),
            ("", ""),
            ("\r\n", "\r\n"),
        ] {
            assert_eq!(String::from_utf8(stuffed(text.as_bytes())).unwrap(), expected, "{text:?}");
        }
    }

    #[tokio::test]
    async fn replies_are_read_within_limits() {
        async fn read(text: &[u8]) -> Option<Reply> {
            let (near, mut far) = tokio::io::duplex(64 * 1024);
            far.write_all(text).await.unwrap();
            drop(far);
            Wire::new(near).reply().await.ok()
        }
        let reply = read(b"250-mail.example\r\n250-starttls\r\n250 AUTH plain\r\n").await.unwrap();
        assert_eq!((reply.code, reply.keywords()), (250, vec!["STARTTLS".to_owned(), "AUTH PLAIN".to_owned()]));
        assert_eq!(read(b"354\r\n").await, Some(Reply { code: 354, text: String::new() }));
        for text in
            ["", "250 o", "25\r\n", "HTTP/1.1 200\r\n", "999 no\r\n", "250_x\r\n", "+20 x\r\n", "\u{e9}\u{e9}50 x\r\n"]
        {
            assert_eq!(read(text.as_bytes()).await, None, "{text:?}");
        }
        assert_eq!(read("250-x\r\n".repeat(5_000).as_bytes()).await, None);
        assert_eq!(read("2".repeat(20_000).as_bytes()).await, None);
    }
}
