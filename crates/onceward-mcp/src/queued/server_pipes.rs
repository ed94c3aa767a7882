//! Requests and responses over the pipes of a server that the courier has started. Says of each request whether the server can
//! have read it. Requests of the server are refused: there is no user whom it could ask.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::super::members::Members;
use super::super::message::{self, Id, Message};

/// The longest line. A larger result could not be kept either.
const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;

/// How many lines wait for a server that does not read.
const MAX_LINES_WAITING: usize = 64;

/// How long responses are still read from a server that has closed its stdin, or that was told to end.
const LAST_RESPONSES: Duration = Duration::from_secs(2);

/// How a request ended.
#[derive(Debug)]
pub(super) enum RequestEnd {
    /// The server's response, with a result or an error.
    Answered(Members),
    /// The server cannot have read it.
    NotSent(String),
    /// The server may have read it, and its response will not come.
    Lost(String),
}

/// The courier's end of the pipes. When it is dropped, the server's stdin is closed, which tells it to end.
#[derive(Debug)]
pub(super) struct ServerPipes {
    lines: mpsc::Sender<OutgoingLine>,
    waiting: WaitingRequests,
    numbers: AtomicU64,
}

/// A line for the server, and whom to tell whether it was written.
#[derive(Debug)]
struct OutgoingLine {
    line: Vec<u8>,
    written: Option<oneshot::Sender<Result<(), usize>>>,
}

/// The requests without a response, by id; `None` when no response can come.
#[derive(Clone, Debug)]
struct WaitingRequests(Arc<Mutex<Option<ResponseSenders>>>);

type ResponseSenders = HashMap<String, oneshot::Sender<Members>>;

impl WaitingRequests {
    fn all(&self) -> MutexGuard<'_, Option<ResponseSenders>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, id: &str) -> Option<oneshot::Receiver<Members>> {
        let (sender, receiver) = oneshot::channel();
        self.all().as_mut()?.insert(id.to_owned(), sender);
        Some(receiver)
    }

    fn take(&self, id: &str) -> Option<oneshot::Sender<Members>> {
        self.all().as_mut()?.remove(id)
    }

    fn close(&self) {
        drop(self.all().take());
    }
}

/// A request is forgotten when its caller no longer waits.
struct Expectation<'a>(&'a WaitingRequests, String);

impl Drop for Expectation<'_> {
    fn drop(&mut self) {
        drop(self.0.take(&self.1));
    }
}

impl ServerPipes {
    /// The pipes, and the work on them, which ends when the server has closed its stdout, and soon after the pipes were dropped.
    pub(super) fn new(stdin: ChildStdin, stdout: ChildStdout) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (sender, lines) = mpsc::channel(MAX_LINES_WAITING);
        let waiting = WaitingRequests(Arc::new(Mutex::new(Some(HashMap::new()))));
        let (responses, replies) = (waiting.clone(), sender.downgrade());
        let work = async move {
            let mut reading = std::pin::pin!(read_lines(stdout, &responses, &replies));
            tokio::select! {
                () = &mut reading => {}
                () = write_lines(stdin, lines) => {
                    let _ = timeout(LAST_RESPONSES, reading).await;
                }
            }
            responses.close();
        };
        (Self { lines: sender, waiting, numbers: AtomicU64::new(1) }, work)
    }

    /// Whether no response can come any more.
    pub(super) fn is_closed(&self) -> bool {
        self.waiting.all().is_none()
    }

    /// Makes a request. If the caller stops waiting, the server may still read it.
    pub(super) async fn request(&self, method: &str, parameters: &Members) -> RequestEnd {
        let id = format!("onceward-{}", self.numbers.fetch_add(1, Ordering::Relaxed));
        let Some(response) = self.waiting.expect(&id) else { return not_sent() };
        let _expectation = Expectation(&self.waiting, id.clone());
        let line = message::request(&id, method, parameters);
        let needed = line.trim_ascii_end().len();
        let (written, writing) = oneshot::channel();
        if self.lines.send(OutgoingLine { line, written: Some(written) }).await.is_err() {
            return not_sent();
        }
        match writing.await {
            // It never had its turn.
            Err(_) => return not_sent(),
            // No server can parse a line that lacks its last brace.
            Ok(Err(length)) if length < needed => return not_sent(),
            Ok(_) => {}
        }
        match response.await {
            Ok(response) => RequestEnd::Answered(response),
            Err(_) => RequestEnd::Lost("the server ended before it answered".to_owned()),
        }
    }

    /// Sends a notification without parameters.
    pub(super) async fn notify(&self, method: &str) {
        let line = message::to_line(&message::notification(method));
        let _ = self.lines.send(OutgoingLine { line, written: None }).await;
    }
}

fn not_sent() -> RequestEnd {
    RequestEnd::NotSent("the server has ended".to_owned())
}

/// Writes lines one after the other, until there are no more to come or the server has closed its stdin.
async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::Receiver<OutgoingLine>) {
    while let Some(OutgoingLine { line, written }) = lines.recv().await {
        let result = write(&mut stdin, &line).await;
        let is_over = result.is_err();
        if let Some(written) = written {
            let _ = written.send(result);
        }
        if is_over {
            return;
        }
    }
}

/// Writes all of the line, or returns how much was written.
async fn write(stdin: &mut ChildStdin, line: &[u8]) -> Result<(), usize> {
    let mut written = 0;
    while written < line.len() {
        match stdin.write(&line[written..]).await {
            Ok(0) | Err(_) => return Err(written),
            Ok(length) => written += length,
        }
    }
    Ok(())
}

/// Reads until the server closes its stdout, or sends a line that is too long.
async fn read_lines(stdout: ChildStdout, waiting: &WaitingRequests, replies: &mpsc::WeakSender<OutgoingLine>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        match (&mut stdout).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(length) if length as u64 == MAX_LINE_BYTES => {
                tracing::warn!("a server sent a line of more than {MAX_LINE_BYTES} bytes, and is ended");
                return;
            }
            Ok(_) => {}
        }
        let reply = match Message::read(&line) {
            Message::Response { id: Id::Text(id), members } => {
                if let Some(request) = waiting.take(&id) {
                    let _ = request.send(members);
                }
                continue;
            }
            Message::Request { written, method, .. } if method == "ping" => message::result(&written, &json!({})),
            Message::Request { written, method, .. } => {
                tracing::debug!(method, "refused a request of a server");
                message::error(Some(&written), -32601, "this call was queued, and there is no user who could be asked")
            }
            _ => continue,
        };
        // A server that asks without reading gets no replies.
        if let Some(replies) = replies.upgrade() {
            let _ = replies.try_send(OutgoingLine { line: reply, written: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// What becomes of a request to a server that is this shell script.
    async fn asked(script: &str) -> RequestEnd {
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut server = command.spawn().unwrap();
        let (pipes, work) = ServerPipes::new(server.stdin.take().unwrap(), server.stdout.take().unwrap());
        let work = tokio::spawn(work);
        let mut parameters = Members::default();
        // More than a pipe holds.
        parameters.set("text", &"x".repeat(1 << 20));
        let end = pipes.request("tools/call", &parameters).await;
        drop(pipes);
        server.wait().await.unwrap();
        work.await.unwrap();
        end
    }

    #[tokio::test]
    async fn a_response_is_matched_by_its_id_and_other_lines_are_skipped() {
        let answer = r#"{"jsonrpc":"2.0","id":"onceward-1","result":{"ok":true}}"#;
        let other = r#"{"jsonrpc":"2.0","id":"onceward-9","result":{}}"#;
        let end = asked(&format!("read -r line; echo junk; echo '{other}'; echo '{answer}'; cat > /dev/null")).await;
        assert!(matches!(&end, RequestEnd::Answered(members) if members.to_json() == answer), "{end:?}");
    }

    #[tokio::test]
    async fn a_server_that_ends_before_it_has_read_the_request_did_nothing() {
        for script in ["exit 0", "exec 0<&-; sleep 0.2", "head -c 1000 > /dev/null"] {
            let end = asked(script).await;
            assert!(matches!(end, RequestEnd::NotSent(_)), "{script}: {end:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_ends_after_it_has_read_the_request_may_have_acted() {
        let end = asked("read -r line").await;
        assert!(matches!(end, RequestEnd::Lost(_)), "{end:?}");
    }

    #[tokio::test]
    async fn a_request_of_the_server_is_refused_and_a_ping_is_answered() {
        let ask = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        let answer = r#"{"jsonrpc":"2.0","id":"onceward-1","result":{}}"#;
        let script = format!(
            "read -r call; echo '{}'; read -r refusal; echo '{}'; read -r pong; case \"$refusal$pong\" in *-32601*result*) \
             echo '{answer}';; esac",
            ask("elicitation/create"),
            ask("ping"),
        );
        let end = asked(&script).await;
        assert!(matches!(end, RequestEnd::Answered(_)), "{end:?}");
    }
}
