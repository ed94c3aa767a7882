//! One of the servers: its handshake, and messages as this server understands them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_ok;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{OnceCell, oneshot};
use tokio::time::timeout;

use super::super::gate::Gate;
use super::super::members::Members;
use super::super::message::{self, Id};
use super::super::stdio::{OrderedTransport, ServerConnection};
use super::super::transport::{CallResponse, NoResponse, Transport};
use super::protocol_version::{ClientIntroduction, MODERN, ProtocolFamily, Translation};
use onceward_runtime::output;

/// How long a server may take for its handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(25);

/// How long a server that is silent on the client's protocol has before the other protocol is tried.
const FIRST_PROTOCOL_LIMIT: Duration = Duration::from_secs(5);

/// One of the servers.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) connection: ServerConnection,
    handshake: OnceCell<Option<Handshake>>,
    /// It has not ended, nor failed its handshake.
    is_available: AtomicBool,
    /// It did not answer in time, and has sent nothing since.
    is_late: AtomicBool,
    /// What it listed last, by the name of the list.
    lists: Mutex<HashMap<&'static str, Vec<Box<RawValue>>>>,
}

/// The handshake of a server.
#[derive(Debug)]
pub(super) struct Handshake {
    pub(super) family: ProtocolFamily,
    pub(super) translation: Mutex<Translation>,
    /// The result of `initialize` or `server/discover`.
    pub(super) result: Members,
}

impl Server {
    pub(super) fn new(name: String, connection: ServerConnection) -> Self {
        let (is_available, is_late) = (AtomicBool::new(true), AtomicBool::new(false));
        Self { name, connection, handshake: OnceCell::new(), is_available, is_late, lists: Mutex::default() }
    }

    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.connection.gate
    }

    pub(super) fn is_available(&self) -> bool {
        self.is_available.load(Ordering::Relaxed)
    }

    pub(super) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// The server has sent something. Returns whether it was late until now.
    pub(super) fn is_late_no_longer(&self) -> bool {
        self.is_late.swap(false, Ordering::Relaxed)
    }

    /// The server sends nothing more. Returns the ids of the requests that it leaves unanswered.
    pub(super) fn end(&self) -> Vec<Id> {
        self.is_available.store(false, Ordering::Relaxed);
        self.connection.close()
    }

    /// The handshake, if it has succeeded.
    pub(super) fn handshake_result(&self) -> Option<&Handshake> {
        self.handshake.get().and_then(Option::as_ref)
    }

    /// Whether the handshake was made, with success or without.
    pub(super) fn handshake_done(&self) -> bool {
        self.handshake.initialized()
    }

    /// How messages have to be translated. Before the handshake they stay as the client sends them.
    pub(super) fn translation(&self) -> Translation {
        self.handshake_result().map_or(Translation::None, |server| locked(&server.translation).clone())
    }

    /// Makes the handshake, once: with the client's protocol if the server knows it, or else with its own. A server that does
    /// not answer is left out.
    pub(super) async fn handshake(&self, client: &ClientIntroduction) -> Option<&Handshake> {
        let make = async || {
            let made = timeout(HANDSHAKE_LIMIT, self.make_handshake(client)).await.ok().flatten();
            let name = &self.name;
            match &made {
                None => {
                    self.is_available.store(false, Ordering::Relaxed);
                    output::say(&format!("{name} did not answer the handshake, and is left out."));
                }
                Some(server) if server.family != client.family => output::say(&format!(
                    "{name} does not speak the client's version of MCP: it cannot make requests of the client."
                )),
                Some(_) => {}
            }
            made
        };
        self.handshake.get_or_init(make).await.as_ref()
    }

    async fn make_handshake(&self, client: &ClientIntroduction) -> Option<Handshake> {
        let (refused, was_refused) = oneshot::channel::<()>();
        let other = match client.family {
            ProtocolFamily::Modern => ProtocolFamily::Legacy,
            ProtocolFamily::Legacy => ProtocolFamily::Modern,
        };
        let first = async {
            let result = self.ask_who(client.family, client).await;
            if result.is_none() {
                drop(refused);
            }
            result.map(|result| (client.family, result)).ok_or(())
        };
        // The server reads in order: it answers whichever it knows first, however late.
        let second = async {
            let _ = timeout(FIRST_PROTOCOL_LIMIT, was_refused).await;
            self.ask_who(other, client).await.map(|result| (other, result)).ok_or(())
        };
        let ((family, result), _) = select_ok([first.boxed(), second.boxed()]).await.ok()?;
        let translation = Translation::between(client, family);
        match &translation {
            Translation::None => {}
            Translation::StripEnvelope => {
                self.connection.queue(message::to_line(&message::notification("notifications/initialized")));
            }
            // A server of the modern protocol notifies only those who have subscribed.
            Translation::AddEnvelope(_) => {
                let mut parameters = Members::default();
                let all = ["toolsListChanged", "promptsListChanged", "resourcesListChanged"];
                let all: serde_json::Map<_, _> = all.map(|name| (name.to_owned(), json!(true))).into_iter().collect();
                parameters.set("notifications", &all);
                translation.to_server(&mut parameters);
                let connection = self.connection.clone();
                tokio::spawn(async move { drop(connection.ask("subscriptions/listen", parameters).await) });
            }
        }
        Some(Handshake { family, translation: Mutex::new(translation), result })
    }

    /// Asks the server who it is, in this protocol.
    async fn ask_who(&self, family: ProtocolFamily, client: &ClientIntroduction) -> Option<Members> {
        match family {
            ProtocolFamily::Legacy => {
                self.connection.ask("initialize", client.initialize()).await.ok()?.object("result")
            }
            ProtocolFamily::Modern => {
                let result = self.connection.ask("server/discover", client.discover()).await.ok()?.object("result")?;
                let versions = result.get("supportedVersions")?;
                let versions: Vec<String> = serde_json::from_str(versions.get()).ok()?;
                versions.iter().any(|version| version == MODERN).then_some(result)
            }
        }
    }

    /// Makes a request on behalf of the client. A server that takes longer than `limit` is late until it sends something.
    pub(super) async fn ask(&self, method: &str, parameters: &Members, limit: Duration) -> Option<Members> {
        let mut parameters = parameters.clone();
        self.translation().to_server(&mut parameters);
        let response = timeout(limit, self.connection.ask(method, parameters)).await;
        if response.is_err() && !self.is_late.swap(true, Ordering::Relaxed) {
            let name = &self.name;
            output::say(&format!(
                "{name} has not answered {method} in time, and is not waited for until it sends something."
            ));
        }
        let response = response.ok()?.ok()?;
        Some(self.translation().to_client(&response).unwrap_or(response))
    }

    /// Passes a request of the client on, translated for this server. Returns `false` when too much waits for it already.
    pub(super) fn queue_request(&self, members: &Members) -> bool {
        self.connection.queue(message::to_line(&self.translate_request(members)))
    }

    /// Translates the response to a call for the client. A replayed response is kept as the server sent it.
    pub(super) fn translate_response(&self, line: Vec<u8>) -> Vec<u8> {
        let translation = self.translation();
        if !matches!(translation, Translation::AddEnvelope(_)) {
            return line;
        }
        let response = std::str::from_utf8(&line).ok().and_then(Members::read);
        response
            .and_then(|response| translation.to_client(&response))
            .map_or(line, |response| message::to_line(&response))
    }

    /// What the server listed last.
    pub(super) fn last_list(&self, list: &str) -> Vec<Box<RawValue>> {
        locked(&self.lists).get(list).cloned().unwrap_or_default()
    }

    pub(super) fn keep_list(&self, list: &'static str, items: &[Box<RawValue>]) {
        locked(&self.lists).insert(list, items.to_vec());
    }

    fn translate_request(&self, members: &Members) -> Members {
        let (translation, mut members) = (self.translation(), members.clone());
        if !matches!(translation, Translation::None) {
            let mut parameters = members.object("params").unwrap_or_default();
            translation.to_server(&mut parameters);
            members.set("params", &parameters);
        }
        members
    }
}

/// The transport of one call to a server, which keeps its place behind the lines that came before it.
#[derive(Debug)]
pub(super) struct ServerTransport {
    server: Arc<Server>,
    ordered: OrderedTransport,
}

impl ServerTransport {
    /// For a line of so many bytes.
    pub(super) fn to(server: &Arc<Server>, bytes: usize) -> Self {
        Self { server: Arc::clone(server), ordered: server.connection.in_order(bytes) }
    }
}

impl Transport for ServerTransport {
    async fn send(&self, id: &Id, line: Vec<u8>) -> Result<CallResponse, NoResponse> {
        if !self.server.is_available() {
            return Err(NoResponse::NotSent("the server has ended, or did not answer the handshake".to_owned()));
        }
        let line = match self.server.translation() {
            Translation::None => line,
            _ => match std::str::from_utf8(&line).ok().and_then(Members::read) {
                Some(members) => message::to_line(&self.server.translate_request(&members)),
                None => line,
            },
        };
        self.ordered.send(id, line).await
    }

    fn step_back(&self) {
        self.ordered.step_back();
    }

    async fn ask(&self, method: &str, mut parameters: Members) -> Result<Members, NoResponse> {
        self.server.translation().to_server(&mut parameters);
        self.ordered.ask(method, parameters).await
    }
}

/// Locks a mutex, also after another thread panicked while it held it.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufRead, BufReader, PipeReader};
    use std::os::fd::OwnedFd;

    use serde_json::Value;
    use tokio::task::spawn_blocking;
    use tokio::time::Instant;

    use super::super::super::call::CallSettings;
    use super::super::super::lazy_ledger::LazyLedger;
    use super::super::super::message::Message;
    use super::super::super::reply::Replies;
    use super::super::super::stdio::request_id;
    use super::*;

    fn server() -> (Arc<Server>, PipeReader) {
        let (reads, writes) = std::io::pipe().unwrap();
        let settings = CallSettings {
            server: "s".to_owned(),
            tool_prefix: String::new(),
            session: None,
            echo: Duration::ZERO,
            patience: Duration::ZERO,
            deadline: None,
        };
        let replies = Replies { notice: true, flags: String::new(), status: "status" };
        let lazy_ledger = Arc::new(LazyLedger::at("memory:", None));
        let (tools, owners, equals, lines) = Default::default();
        let gate = Gate { settings, tools, replies, lazy_ledger, owners, equals, lines };
        let connection = ServerConnection::new(Arc::new(gate), File::from(OwnedFd::from(writes)), "own-".to_owned());
        (Arc::new(Server::new("s".to_owned(), connection)), reads)
    }

    fn client(family: ProtocolFamily) -> ClientIntroduction {
        ClientIntroduction::new(family, &Members::default())
    }

    /// Answers the requests of a server with what `answer` returns, or not at all.
    fn answers(server: &Arc<Server>, from: PipeReader, answer: fn(&str) -> Option<Value>) {
        let server = Arc::clone(server);
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines() {
                let Message::Request { id, written, method, .. } = Message::read(line.unwrap().as_bytes()) else {
                    continue;
                };
                let Some(Value::Object(answer)) = answer(&method) else { continue };
                let mut members = Members::read("{}").unwrap();
                members.set("id", &written);
                for (name, value) in answer {
                    members.set(&name, &value);
                }
                server.connection.pending().take(&request_id(id), members, b"");
            }
        });
    }

    fn modern(method: &str) -> Option<Value> {
        match method {
            "server/discover" => Some(json!({ "result": { "supportedVersions": ["2026-07-28"] } })),
            _ => Some(json!({ "error": {} })),
        }
    }

    fn legacy(method: &str) -> Option<Value> {
        (method == "initialize").then(|| json!({ "result": { "protocolVersion": "2025-06-18" } }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_is_left_out_in_time() {
        let (server, _reads) = server();
        let began = Instant::now();
        assert!(server.handshake(&client(ProtocolFamily::Modern)).await.is_none() && !server.is_available());
        assert_eq!(began.elapsed().as_secs(), HANDSHAKE_LIMIT.as_secs());
        let sent = ServerTransport::to(&server, 0).send(&Id::Number("1".to_owned()), b"{}\n".to_vec()).await;
        assert!(matches!(sent, Err(NoResponse::NotSent(_))));
    }

    #[tokio::test]
    async fn the_handshake_uses_the_protocol_of_the_client_or_else_that_of_the_server() {
        for (family, answer, expected) in [
            (ProtocolFamily::Modern, modern as fn(&str) -> Option<Value>, ProtocolFamily::Modern),
            (ProtocolFamily::Legacy, modern, ProtocolFamily::Modern),
            (ProtocolFamily::Legacy, legacy, ProtocolFamily::Legacy),
        ] {
            let (server, reads) = server();
            answers(&server, reads, answer);
            assert_eq!(server.handshake(&client(family)).await.unwrap().family, expected);
            assert_eq!(matches!(server.translation(), Translation::None), family == expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_on_the_first_protocol_is_asked_in_the_other() {
        let (server, reads) = server();
        let (read, first) = oneshot::channel();
        let connection = server.connection.clone();
        // The clock stands still while this runs.
        let answering = spawn_blocking(move || {
            let (mut lines, mut line) = (BufReader::new(reads), String::new());
            lines.read_line(&mut line).unwrap();
            read.send(std::mem::take(&mut line)).unwrap();
            lines.read_line(&mut line).unwrap();
            let Message::Request { id, method, .. } = Message::read(line.as_bytes()) else { panic!("{line}") };
            assert_eq!(method, "initialize");
            let answer = Members::read(r#"{"result":{"protocolVersion":"2025-06-18"}}"#).unwrap();
            connection.pending().take(&request_id(id), answer, b"");
        });
        let shaking = tokio::spawn({
            let server = Arc::clone(&server);
            async move { server.handshake(&client(ProtocolFamily::Modern)).await.map(|server| server.family) }
        });
        assert!(first.await.unwrap().contains("server/discover"));
        tokio::time::advance(FIRST_PROTOCOL_LIMIT).await;
        assert_eq!(shaking.await.unwrap(), Some(ProtocolFamily::Legacy));
        answering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_in_time_is_late_until_it_sends_something() {
        let (server, _reads) = server();
        assert!(server.ask("tools/list", &Members::default(), FIRST_PROTOCOL_LIMIT).await.is_none());
        assert!(server.is_late() && server.is_late_no_longer() && !server.is_late() && !server.is_late_no_longer());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_that_does_not_read_holds_up_no_task_and_gets_a_limited_number_of_lines() {
        let (server, reads) = server();
        let line = [b"x".repeat(4000), b"\n".to_vec()].concat();
        let mut queued = 0;
        while server.connection.queue(line.clone()) && queued < 5000 {
            queued += 1;
            tokio::task::yield_now().await;
        }
        assert!((1000..1100).contains(&queued), "{queued}");
        // The client's answer to a request of the server comes through all the same, behind the others.
        assert!(!server.connection.queue(b"request\n".to_vec()));
        server.connection.queue_always(b"answer\n".to_vec());
        let lines: Vec<String> = BufReader::new(reads).lines().take(queued + 1).map(Result::unwrap).collect();
        assert_eq!(lines.iter().filter(|read| read.len() == 4000).count(), queued);
        assert_eq!(lines.last().map(String::as_str), Some("answer"));
    }

    /// How long several tasks take that queue many lines at once.
    async fn queued_at_once() -> Duration {
        let (server, reads) = server();
        let (tasks, lines) = (4, 2000);
        let began = std::time::Instant::now();
        for _ in 0..tasks {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                for _ in 0..lines {
                    while !server.connection.queue(b"x\n".to_vec()) {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        let read = spawn_blocking(move || BufReader::new(reads).lines().take(tasks * lines).count());
        assert_eq!(read.await.unwrap(), tasks * lines);
        began.elapsed()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tasks_that_queue_lines_at_once_do_not_wait_for_each_other() {
        // A line that waits for one behind it does so for two seconds. A busy machine may be as slow a few times.
        let mut took = Vec::new();
        for _ in 0..6 {
            took.push(queued_at_once().await);
            if took.last() < Some(&Duration::from_millis(1900)) {
                return;
            }
        }
        panic!("{took:?}");
    }
}
