//! Hands a mail to a server. What matters is when a fault comes: until the final dot of the mail is sent, the server must not
//! deliver it (RFC 5321, 4.1.1.4), and from then on only its reply says whether it will.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use onceward_runtime::config::SmtpTls;
use onceward_runtime::egress::{Dialer, NotSent};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::CONNECT_TIMEOUT;
use super::letter::{Letter, masked};
use super::wire::{Reply, Wire, stuffed};

/// How long the farewell may take: the mail is already handed over.
const QUIT_TIMEOUT: Duration = Duration::from_millis(500);

/// The end of a dialogue.
#[derive(Debug)]
pub(super) enum Handed {
    /// The server took the mail, but not for these recipients, which are masked.
    Accepted { reply: Reply, refused: Vec<String> },
    /// The server refused at this step, so it does not deliver the mail.
    Rejected { step: Step, reply: Reply },
    /// There was no connection.
    NotSent(NotSent),
    /// The dialogue ended before the final dot, so the server does not deliver the mail.
    Broken(String),
    /// The dialogue ended after the final dot.
    Lost(String),
}

/// Where a dialogue was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Greeting,
    Hello,
    Encryption,
    Login,
    Sender,
    Recipients,
    Data,
    End,
}

impl Step {
    /// Whether a reply at this step is about the mail, and not about the connection or the login.
    pub(super) fn is_about_mail(self) -> bool {
        matches!(self, Self::Sender | Self::Recipients | Self::Data | Self::End)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Greeting => "as its greeting",
            Self::Hello => "to EHLO",
            Self::Encryption => "to STARTTLS",
            Self::Login => "to the login",
            Self::Sender => "to the sender",
            Self::Recipients => "to the recipients",
            Self::Data => "to DATA",
            Self::End => "to the mail",
        })
    }
}

/// The user and password, ready to be sent.
#[derive(Clone)]
pub(super) struct Login {
    user: String,
    password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Login")
    }
}

impl Login {
    pub(super) fn new(user: &str, password: &str) -> Self {
        Self { user: user.to_owned(), password: password.to_owned() }
    }
}

/// A mail server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) dialer: Dialer,
    pub(super) tls: SmtpTls,
    pub(super) login: Option<Login>,
}

/// Why a step ended the dialogue.
enum Stop {
    Rejected(Step, Reply),
    Io(io::Error),
    TimedOut,
    /// The server cannot do what the settings ask for.
    Unable(&'static str),
}

impl Server {
    /// Hands over a mail, over a connection of its own.
    pub(super) async fn hand_over(&self, letter: &Letter, deadline: Instant) -> Handed {
        let connect_by = deadline.min(Instant::now() + CONNECT_TIMEOUT);
        let stream = match self.dialer.connect(connect_by).await {
            Ok(stream) => stream,
            Err(why) => return Handed::NotSent(why),
        };
        // An address literal is a name that every client has (RFC 5321, 4.1.3).
        let name = stream.local_addr().map_or_else(|_| "[127.0.0.1]".to_owned(), |address| literal(&address));
        match self.tls {
            SmtpTls::None => self.talk(Dialogue::new(stream, name, deadline), true, letter).await,
            SmtpTls::Implicit => match self.dialer.handshake(stream, connect_by).await {
                Ok(stream) => self.talk(Dialogue::new(stream, name, deadline), true, letter).await,
                Err(why) => Handed::NotSent(why),
            },
            SmtpTls::Starttls => {
                let stream = match self.encrypted(Dialogue::new(stream, name.clone(), deadline)).await {
                    Ok(stream) => stream,
                    Err(stop) => return self.stopped(stop),
                };
                match self.dialer.handshake(stream, deadline).await {
                    Ok(stream) => self.talk(Dialogue::new(stream, name, deadline), false, letter).await,
                    Err(why) => Handed::NotSent(why),
                }
            }
        }
    }

    /// The dialogue until the TLS handshake.
    async fn encrypted(&self, mut dialogue: Dialogue<TcpStream>) -> Result<TcpStream, Stop> {
        dialogue.reply(Step::Greeting).await?;
        let hello = dialogue.hello().await?;
        if !hello.keywords().iter().any(|keyword| keyword == "STARTTLS") {
            return Err(Stop::Unable("does not offer STARTTLS"));
        }
        dialogue.command(Step::Encryption, "STARTTLS").await?;
        dialogue.wire.into_stream().map_err(Stop::Io)
    }

    async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut dialogue: Dialogue<S>,
        has_greeting: bool,
        letter: &Letter,
    ) -> Handed {
        let refused = match dialogue.until_data(self.login.as_ref(), has_greeting, letter).await {
            Ok(refused) => refused,
            Err(stop) => return self.stopped(stop),
        };
        let handed = match dialogue.end().await {
            Ok(reply) => Handed::Accepted { reply, refused },
            // A reply that refuses is proof, even after the final dot.
            Err(Stop::Rejected(step, reply)) => Handed::Rejected { step, reply },
            Err(stop) => Handed::Lost(format!("the answer to the mail was lost: {}", self.why(&stop))),
        };
        let _ = timeout(QUIT_TIMEOUT, dialogue.wire.write(b"QUIT\r\n")).await;
        handed
    }

    /// The dialogue ended before the final dot.
    fn stopped(&self, stop: Stop) -> Handed {
        match stop {
            Stop::Rejected(step, reply) => Handed::Rejected { step, reply },
            stop => Handed::Broken(self.why(&stop)),
        }
    }

    fn why(&self, stop: &Stop) -> String {
        match stop {
            Stop::Rejected(step, reply) => format!("{} answered {} {step}", self.dialer, reply.code),
            Stop::Io(error) => format!("{}: {error}", self.dialer),
            Stop::TimedOut => format!("{} did not answer in time", self.dialer),
            Stop::Unable(what) => format!("{} {what}", self.dialer),
        }
    }
}

/// A dialogue with its deadline.
struct Dialogue<S> {
    wire: Wire<S>,
    name: String,
    deadline: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Dialogue<S> {
    fn new(stream: S, name: String, deadline: Instant) -> Self {
        Self { wire: Wire::new(stream), name, deadline }
    }

    /// Everything before the final dot. Returns the recipients that were refused.
    async fn until_data(
        &mut self,
        login: Option<&Login>,
        has_greeting: bool,
        letter: &Letter,
    ) -> Result<Vec<String>, Stop> {
        if has_greeting {
            self.reply(Step::Greeting).await?;
        }
        let hello = self.hello().await?;
        if let Some(login) = login {
            self.log_in(login, &hello).await?;
        }
        self.command(Step::Sender, &format!("MAIL FROM:<{}>", letter.sender)).await?;
        let refused = self.recipients(letter).await?;
        if self.command(Step::Data, "DATA").await?.code != 354 {
            return Err(Stop::Unable("gave an answer to DATA that does not ask for the mail"));
        }
        self.write(&stuffed(&letter.message)).await?;
        Ok(refused)
    }

    /// Names the recipients. If one is refused for now, or all are, the mail is not sent to the others either: nothing has
    /// happened yet.
    async fn recipients(&mut self, letter: &Letter) -> Result<Vec<String>, Stop> {
        let (mut refused, mut last) = (Vec::new(), None);
        for recipient in &letter.recipients {
            match self.command(Step::Recipients, &format!("RCPT TO:<{recipient}>")).await {
                Ok(_) => {}
                Err(Stop::Rejected(step, reply)) if reply.code >= 500 => {
                    refused.push(format!("{} ({})", masked(recipient), reply.code));
                    last = Some(Stop::Rejected(step, reply));
                }
                Err(stop) => return Err(stop),
            }
        }
        match last {
            Some(stop) if refused.len() == letter.recipients.len() => Err(stop),
            _ => Ok(refused),
        }
    }

    /// Sends the final dot. From here on, only a reply says what happened: one that was there before is not about the mail.
    async fn end(&mut self) -> Result<Reply, Stop> {
        if !self.wire.has_read_all() {
            return Err(Stop::Unable("sent a reply to the mail before its end"));
        }
        self.write(b".\r\n").await?;
        let reply = self.reply(Step::End).await?;
        match reply.code {
            200..=299 => Ok(reply),
            _ => Err(Stop::Unable("gave an answer that says nothing about the mail")),
        }
    }

    async fn hello(&mut self) -> Result<Reply, Stop> {
        let hello = format!("EHLO {}", self.name);
        self.command(Step::Hello, &hello).await
    }

    async fn log_in(&mut self, login: &Login, hello: &Reply) -> Result<(), Stop> {
        let keywords = hello.keywords();
        let offered = keywords.iter().find_map(|keyword| keyword.strip_prefix("AUTH")).unwrap_or_default();
        let offers = |name: &str| offered.split([' ', '=']).any(|other| other == name);
        if offers("PLAIN") {
            let secret = BASE64_STANDARD.encode(format!("\0{}\0{}", login.user, login.password));
            self.command(Step::Login, &format!("AUTH PLAIN {secret}")).await?;
        } else if offers("LOGIN") {
            self.command(Step::Login, "AUTH LOGIN").await?;
            self.command(Step::Login, &BASE64_STANDARD.encode(&login.user)).await?;
            self.command(Step::Login, &BASE64_STANDARD.encode(&login.password)).await?;
        } else {
            return Err(Stop::Unable("offers neither AUTH PLAIN nor AUTH LOGIN"));
        }
        Ok(())
    }

    async fn command(&mut self, step: Step, command: &str) -> Result<Reply, Stop> {
        self.write(format!("{command}\r\n").as_bytes()).await?;
        self.reply(step).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        // A process that was stopped for long must not go on: another courier may have taken over.
        if Instant::now() >= self.deadline {
            return Err(Stop::TimedOut);
        }
        match timeout_at(self.deadline, self.wire.write(bytes)).await {
            Ok(written) => written.map_err(Stop::Io),
            Err(_) => Err(Stop::TimedOut),
        }
    }

    async fn reply(&mut self, step: Step) -> Result<Reply, Stop> {
        match timeout_at(self.deadline, self.wire.reply()).await {
            Ok(Ok(reply)) if reply.is_positive() => Ok(reply),
            Ok(Ok(reply)) => Err(Stop::Rejected(step, reply)),
            Ok(Err(error)) => Err(Stop::Io(error)),
            Err(_) => Err(Stop::TimedOut),
        }
    }
}

fn literal(address: &SocketAddr) -> String {
    match address.ip().to_canonical() {
        std::net::IpAddr::V4(address) => format!("[{address}]"),
        std::net::IpAddr::V6(address) => format!("[IPv6:{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_text_that_the_server_does_not_read_to_its_end_has_no_final_dot() {
        // What is written beyond this is waited for.
        let (near, mut far) = tokio::io::duplex(1024);
        let server = tokio::spawn(async move {
            far.write_all(b"220 a\r\n250 b\r\n250 c\r\n250 d\r\n354 e\r\n").await.unwrap();
            far.read_exact(&mut [0; 4096]).await.unwrap();
        });
        let (sender, recipients) = ("a@b.example".to_owned(), vec!["c@d.example".to_owned()]);
        let letter = Letter { id: String::new(), sender, recipients, message: vec![b'x'; 100_000] };
        let mut dialogue = Dialogue::new(near, "[127.0.0.1]".to_owned(), Instant::now() + Duration::from_secs(60));
        assert!(matches!(dialogue.until_data(None, true, &letter).await, Err(Stop::Io(_))));
        server.await.unwrap();
    }
}
