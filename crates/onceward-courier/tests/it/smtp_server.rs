//! A mail server that fails at a given step. A mail counts as delivered once its final dot has arrived, unless the server then
//! refuses it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::certificates;

/// What the server does at a step, in place of its usual reply. The last `FaultAt` that matches counts.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// Replies with this text.
    Reply(&'static str),
    /// Closes the connection. FaultAt the end of a mail, after it was delivered.
    Close,
    /// Says nothing more.
    Silence,
}

/// A fault when a line begins with this text. The greeting is `GREETING`, the end of a mail is `.`, and its text is `TEXT`.
pub(super) type FaultAt = (&'static str, Fault);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerTls {
    None,
    Starttls,
    Implicit,
}

/// A mail that was delivered.
#[derive(Clone, Debug, Default)]
pub(super) struct Mail {
    pub(super) recipients: Vec<String>,
    pub(super) text: String,
}

#[derive(Default)]
struct Seen {
    mails: Vec<Mail>,
    lines: Vec<String>,
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(tls: ServerTls, faults: &[FaultAt]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Seen>>::default();
        let (faults, kept) = (faults.to_vec(), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let session = Session { faults: faults.clone(), seen: Arc::clone(&kept) };
                tokio::spawn(async move {
                    match tls {
                        ServerTls::None => _ = session.serve(stream, true, false).await,
                        ServerTls::Implicit => {
                            if let Ok(stream) = certificates::accept(stream).await {
                                session.serve(stream, true, false).await;
                            }
                        }
                        ServerTls::Starttls => {
                            let Some(stream) = session.serve(stream, true, true).await else { return };
                            if let Ok(stream) = certificates::accept(stream).await {
                                session.serve(stream, false, false).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, seen, task }
    }

    pub(super) fn mails(&self) -> Vec<Mail> {
        self.seen.lock().unwrap().mails.clone()
    }

    /// Every line of every client, without the texts of mails.
    pub(super) fn lines(&self) -> Vec<String> {
        self.seen.lock().unwrap().lines.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Session {
    faults: Vec<FaultAt>,
    seen: Arc<Mutex<Seen>>,
}

impl Session {
    /// Serves until the client leaves. Returns the stream for the TLS handshake after STARTTLS.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, greets: bool, offers_tls: bool) -> Option<S> {
        let mut stream = BufReader::new(stream);
        if greets {
            self.answer(&mut stream, "GREETING", "220 mail.example ESMTP").await?;
        }
        let mut mail = Mail::default();
        loop {
            let line = read_line(&mut stream).await?;
            self.seen.lock().unwrap().lines.push(line.clone());
            let usual = match line.split([' ', ':']).next().unwrap_or_default() {
                "EHLO" if offers_tls => "250-mail.example\r\n250-STARTTLS\r\n250 SIZE 1000000",
                "EHLO" => "250-mail.example\r\n250 AUTH LOGIN PLAIN",
                "STARTTLS" => "220 go on",
                "AUTH" => "235 welcome",
                "MAIL" | "RCPT" => "250 ok",
                "DATA" => "354 go on",
                _ => "221 bye",
            };
            let reply = self.answer(&mut stream, &line, usual).await?;
            match line.split([' ', ':']).next().unwrap_or_default() {
                "STARTTLS" if reply.starts_with("220") => return Some(stream.into_inner()),
                "RCPT" if reply.starts_with("250") => mail.recipients.push(line.replace("RCPT TO:", "")),
                "DATA" if reply.starts_with("354") => {
                    mail.text = self.read_text(&mut stream).await?;
                    let delivers = !matches!(self.fault("."), Some(Fault::Reply(reply)) if !reply.starts_with('2'));
                    if delivers {
                        self.seen.lock().unwrap().mails.push(std::mem::take(&mut mail));
                    }
                    self.answer(&mut stream, ".", "250 queued as 7").await?;
                }
                "QUIT" => return None,
                _ => {}
            }
        }
    }

    async fn read_text<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: &mut BufReader<S>) -> Option<String> {
        let mut text = String::new();
        loop {
            let line = read_line(stream).await?;
            if line == "." {
                return Some(text);
            }
            if self.fault("TEXT").is_some() {
                return None;
            }
            text.push_str(line.strip_prefix('.').unwrap_or(&line));
            text.push('\n');
        }
    }

    fn fault(&self, line: &str) -> Option<Fault> {
        self.faults.iter().rev().find(|(at, _)| line.starts_with(at)).map(|(_, fault)| fault.clone())
    }

    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut BufReader<S>,
        line: &str,
        usual: &'static str,
    ) -> Option<&'static str> {
        let reply = match self.fault(line) {
            None => usual,
            Some(Fault::Reply(reply)) => reply,
            Some(Fault::Close) => return None,
            Some(Fault::Silence) => std::future::pending().await,
        };
        stream.write_all(format!("{reply}\r\n").as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        Some(reply)
    }
}

async fn read_line<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Option<String> {
    let mut line = String::new();
    match stream.read_line(&mut line).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
    }
}
