//! One of the servers: how it is met, and what is said to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_ok;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::time::timeout;

use super::super::gate::Gate;
use super::super::link::{Answer, Link, NoAnswer};
use super::super::members::Members;
use super::super::message::{self, Id};
use super::super::stdio::{InTurn, Wire};
use super::era::{Between, Client, Era, MODERN};
use crate::output;

/// How long a server may take to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(25);

/// How long one that says nothing to the client's way of speaking is given before it is spoken to in the other one.
const SILENCE: Duration = Duration::from_secs(5);

/// How many lines may wait for a server to read them.
const UNSAID: usize = 1000;

/// One of the servers.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) gate: Arc<Gate>,
    pub(super) wire: Wire,
    met: OnceCell<Option<Met>>,
    /// What it is told, in order. Nobody waits here for one that does not read. Held while a turn is taken and put there:
    /// whoever writes them waits for the turns before the first of them, which must not be behind it.
    unsaid: Mutex<mpsc::Sender<(InTurn, Vec<u8>)>>,
    /// It has ended, or did not introduce itself.
    is_out: AtomicBool,
    /// It has let us wait in vain, and has said nothing since.
    is_late: AtomicBool,
    /// What it listed last, by the name of the list.
    lists: Mutex<HashMap<&'static str, Vec<Box<RawValue>>>>,
}

/// A server that has introduced itself.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) era: Era,
    pub(super) between: Mutex<Between>,
    /// What it said of itself.
    pub(super) said: Members,
}

impl Server {
    /// Must be called in a runtime.
    pub(super) fn new(name: String, gate: Arc<Gate>, wire: Wire) -> Self {
        let (is_out, is_late) = (AtomicBool::new(false), AtomicBool::new(false));
        let (unsaid, mut lines) = mpsc::channel::<(InTurn, Vec<u8>)>(UNSAID);
        tokio::spawn(async move {
            while let Some((way, line)) = lines.recv().await {
                way.pass(line).await;
            }
        });
        let (unsaid, lists) = (Mutex::new(unsaid), Mutex::default());
        Self { name, gate, wire, met: OnceCell::new(), unsaid, is_out, is_late, lists }
    }

    /// Tells it something, without waiting until it reads. `false` when too much waits for it already.
    pub(super) fn tell(&self, line: &[u8]) -> bool {
        let unsaid = held(&self.unsaid);
        unsaid.try_send((self.wire.in_turn(), line.to_vec())).is_ok()
    }

    pub(super) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed)
    }

    pub(super) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// It says something. Whether that was overdue.
    pub(super) fn speaks(&self) -> bool {
        self.is_late.swap(false, Ordering::Relaxed)
    }

    /// It says nothing more. Gives back whose requests it leaves unanswered.
    pub(super) fn end(&self) -> Vec<Id> {
        self.is_out.store(true, Ordering::Relaxed);
        self.wire.close()
    }

    /// What is known of it, if it was met.
    pub(super) fn met(&self) -> Option<&Met> {
        self.met.get().and_then(Option::as_ref)
    }

    /// Whether it was tried to meet it.
    pub(super) fn was_met(&self) -> bool {
        self.met.initialized()
    }

    /// How it has to be spoken to. One that was not met is spoken to as its client speaks.
    pub(super) fn between(&self) -> Between {
        self.met().map_or(Between::Same, |met| held(&met.between).clone())
    }

    /// Meets it, once. It is spoken to as the client speaks if it knows that, or else in its own way. One that does not
    /// introduce itself is left out.
    pub(super) async fn meet(&self, client: &Client) -> Option<&Met> {
        let meeting = async || {
            let met = timeout(INTRODUCTION, self.introduced(client)).await.ok().flatten();
            match &met {
                None => {
                    self.is_out.store(true, Ordering::Relaxed);
                    output::say(&format!("{} did not introduce itself, and is left out.", self.name));
                }
                Some(met) if met.era != client.era => {
                    let name = &self.name;
                    output::say(&format!(
                        "{name} does not speak the client's version of MCP: it cannot ask it anything."
                    ));
                }
                Some(_) => {}
            }
            met
        };
        self.met.get_or_init(meeting).await.as_ref()
    }

    async fn introduced(&self, client: &Client) -> Option<Met> {
        let (refused, was_refused) = oneshot::channel::<()>();
        let other = if client.era == Era::Modern { Era::Legacy } else { Era::Modern };
        let first = async {
            let said = self.introduction(client.era, client).await;
            if said.is_none() {
                drop(refused);
            }
            said.map(|said| (client.era, said)).ok_or(())
        };
        // It reads in order: whichever it hears first is what it answers, however late.
        let second = async {
            let _ = timeout(SILENCE, was_refused).await;
            self.introduction(other, client).await.map(|said| (other, said)).ok_or(())
        };
        let ((era, said), _) = select_ok([first.boxed(), second.boxed()]).await.ok()?;
        let met = Met { era, between: Mutex::new(Between::of(client, era)), said };
        match held(&met.between).clone() {
            Between::Same => {}
            Between::Bare => {
                self.tell(&message::ended(&message::told("notifications/initialized")));
            }
            // Changes of its lists are told only to those who listen.
            between @ Between::Enveloped(_) => {
                let mut parameters = Members::default();
                let all = ["toolsListChanged", "promptsListChanged", "resourcesListChanged"];
                let all: serde_json::Map<_, _> = all.map(|name| (name.to_owned(), json!(true))).into_iter().collect();
                parameters.set("notifications", &all);
                between.to_server(&mut parameters);
                let wire = self.wire.clone();
                tokio::spawn(async move { drop(wire.ask("subscriptions/listen", parameters).await) });
            }
        }
        Some(met)
    }

    /// What it says of itself, when it is asked in this way.
    async fn introduction(&self, era: Era, client: &Client) -> Option<Members> {
        match era {
            Era::Legacy => self.wire.ask("initialize", client.initialize()).await.ok()?.object("result"),
            Era::Modern => {
                let said = self.wire.ask("server/discover", client.discover()).await.ok()?.object("result")?;
                let versions = said.get("supportedVersions")?;
                let versions: Vec<String> = serde_json::from_str(versions.get()).ok()?;
                versions.iter().any(|version| version == MODERN).then_some(said)
            }
        }
    }

    /// Asks it something on behalf of the client, and waits for so long.
    pub(super) async fn answer_to(&self, method: &str, parameters: &Members, patience: Duration) -> Option<Members> {
        let mut parameters = parameters.clone();
        self.between().to_server(&mut parameters);
        let answer = timeout(patience, self.wire.ask(method, parameters)).await;
        if answer.is_err() && !self.is_late.swap(true, Ordering::Relaxed) {
            let name = &self.name;
            output::say(&format!(
                "{name} has not answered {method} in time, and is not waited for until it speaks again."
            ));
        }
        let answer = answer.ok()?.ok()?;
        Some(self.between().to_client(&answer).unwrap_or(answer))
    }

    /// Passes a request of the client on, as this server has to be spoken to.
    pub(super) fn pass(&self, members: &Members) -> bool {
        self.tell(&message::ended(&self.put(members)))
    }

    /// An answer to a call, as the client has to be spoken to.
    pub(super) fn put_to_client(&self, line: Vec<u8>) -> Vec<u8> {
        let between = self.between();
        if !matches!(between, Between::Enveloped(_)) {
            return line;
        }
        let answer = std::str::from_utf8(&line).ok().and_then(Members::read);
        answer.and_then(|answer| between.to_client(&answer)).map_or(line, |answer| message::ended(&answer))
    }

    /// What it listed last.
    pub(super) fn listed(&self, list: &str) -> Vec<Box<RawValue>> {
        held(&self.lists).get(list).cloned().unwrap_or_default()
    }

    pub(super) fn lists(&self, list: &'static str, items: &[Box<RawValue>]) {
        held(&self.lists).insert(list, items.to_vec());
    }

    /// A message as it has to be put to this server.
    fn put(&self, members: &Members) -> Members {
        let (between, mut members) = (self.between(), members.clone());
        if !matches!(between, Between::Same) {
            let mut parameters = members.object("params").unwrap_or_default();
            between.to_server(&mut parameters);
            members.set("params", &parameters);
        }
        members
    }
}

/// The way to a server for one call, which comes behind what was said to it before.
#[derive(Debug)]
pub(super) struct Lane {
    server: Arc<Server>,
    way: InTurn,
}

impl Lane {
    pub(super) fn to(server: &Arc<Server>) -> Self {
        Self { server: Arc::clone(server), way: server.wire.in_turn() }
    }
}

impl Link for Lane {
    async fn send(&self, id: &Id, line: Vec<u8>) -> Result<Answer, NoAnswer> {
        if self.server.is_out() {
            return Err(NoAnswer::NotSent("the server has ended, or did not introduce itself".to_owned()));
        }
        let line = match self.server.between() {
            Between::Same => line,
            _ => match std::str::from_utf8(&line).ok().and_then(Members::read) {
                Some(members) => message::ended(&self.server.put(&members)),
                None => line,
            },
        };
        self.way.send(id, line).await
    }

    fn step_back(&self) {
        self.way.step_back();
    }

    async fn ask(&self, method: &str, mut parameters: Members) -> Result<Members, NoAnswer> {
        self.server.between().to_server(&mut parameters);
        self.way.ask(method, parameters).await
    }
}

pub(super) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

    use super::super::super::books::Books;
    use super::super::super::call::Naming;
    use super::super::super::message::Message;
    use super::super::super::reply::Replies;
    use super::super::super::stdio::place;
    use super::*;

    fn server() -> (Arc<Server>, PipeReader) {
        let (reads, writes) = std::io::pipe().unwrap();
        let naming = Naming {
            server: "s".to_owned(),
            shown: String::new(),
            session: None,
            echo: Duration::ZERO,
            patience: Duration::ZERO,
            deadline: None,
        };
        let replies = Replies { notice: true, flags: String::new(), status: "status" };
        let books = Arc::new(Books::at("memory:", None));
        let (tools, owners, equals, lines) = Default::default();
        let gate = Gate { naming, tools, replies, books, owners, equals, lines };
        let wire = Wire::new(File::from(OwnedFd::from(writes)), "own-".to_owned());
        (Arc::new(Server::new("s".to_owned(), Arc::new(gate), wire)), reads)
    }

    fn client(era: Era) -> Client {
        Client::new(era, &Members::default())
    }

    /// A server that answers what it is asked as this says, or not at all.
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
                server.wire.waiting().take(&place(id), members, b"");
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
    async fn one_that_says_nothing_is_left_out_in_time() {
        let (server, _reads) = server();
        let began = Instant::now();
        assert!(server.meet(&client(Era::Modern)).await.is_none() && server.is_out());
        assert_eq!(began.elapsed().as_secs(), INTRODUCTION.as_secs());
        let sent = Lane::to(&server).send(&Id::Number("1".to_owned()), b"{}\n".to_vec()).await;
        assert!(matches!(sent, Err(NoAnswer::NotSent(_))));
    }

    #[tokio::test]
    async fn a_server_is_met_as_the_client_speaks_or_as_it_speaks_itself() {
        for (era, answer, expected) in [
            (Era::Modern, modern as fn(&str) -> Option<Value>, Era::Modern),
            (Era::Legacy, modern, Era::Modern),
            (Era::Legacy, legacy, Era::Legacy),
        ] {
            let (server, reads) = server();
            answers(&server, reads, answer);
            assert_eq!(server.meet(&client(era)).await.unwrap().era, expected);
            assert_eq!(matches!(server.between(), Between::Same), era == expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_says_nothing_to_what_it_does_not_know_is_met_all_the_same() {
        let (server, reads) = server();
        let (heard, first) = oneshot::channel();
        let wire = server.wire.clone();
        // Time stands still while this runs, and goes on as it is told to.
        let answering = spawn_blocking(move || {
            let (mut lines, mut line) = (BufReader::new(reads), String::new());
            lines.read_line(&mut line).unwrap();
            heard.send(std::mem::take(&mut line)).unwrap();
            lines.read_line(&mut line).unwrap();
            let Message::Request { id, method, .. } = Message::read(line.as_bytes()) else { panic!("{line}") };
            assert_eq!(method, "initialize");
            let answer = Members::read(r#"{"result":{"protocolVersion":"2025-06-18"}}"#).unwrap();
            wire.waiting().take(&place(id), answer, b"");
        });
        let meeting = tokio::spawn({
            let server = Arc::clone(&server);
            async move { server.meet(&client(Era::Modern)).await.map(|met| met.era) }
        });
        assert!(first.await.unwrap().contains("server/discover"));
        tokio::time::advance(SILENCE).await;
        assert_eq!(meeting.await.unwrap(), Some(Era::Legacy));
        answering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_lets_us_wait_is_late_until_it_speaks() {
        let (server, _reads) = server();
        assert!(server.answer_to("tools/list", &Members::default(), SILENCE).await.is_none());
        assert!(server.is_late() && server.speaks() && !server.is_late() && !server.speaks());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_that_does_not_read_keeps_nobody_waiting_and_is_told_no_more_than_so_much() {
        let (server, reads) = server();
        let line = [b"x".repeat(4000), b"\n".to_vec()].concat();
        let told = (0..UNSAID * 2).take_while(|_| server.tell(&line)).count();
        assert!((UNSAID..UNSAID + 100).contains(&told), "{told}");
        let lines = BufReader::new(reads).lines().take(told).map(Result::unwrap);
        assert_eq!(lines.filter(|read| read.len() == 4000).count(), told);
    }

    /// How long several take who tell it something at once, and much of it.
    async fn told_at_once() -> Duration {
        let (server, reads) = server();
        let (tellers, lines) = (4, 5000);
        let began = std::time::Instant::now();
        for _ in 0..tellers {
            let server = Arc::clone(&server);
            std::thread::spawn(move || {
                for _ in 0..lines {
                    while !server.tell(b"x\n") {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let read = spawn_blocking(move || BufReader::new(reads).lines().take(tellers * lines).count());
        assert_eq!(read.await.unwrap(), tellers * lines);
        began.elapsed()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn those_who_tell_it_something_at_once_do_not_wait_for_each_other() {
        // One that waits for a turn behind it does so for two seconds. A machine may be as slow for once.
        let mut took = Vec::new();
        for _ in 0..3 {
            took.push(told_at_once().await);
            if took.last() < Some(&Duration::from_millis(1900)) {
                return;
            }
        }
        panic!("{took:?}");
    }
}
