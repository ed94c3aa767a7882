//! Reads the client and every server, and hands each message to a router, which knows where it goes. All of it runs as tasks
//! of one thread, which also carries the guarded calls: a message that is passed on wakes no other thread.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::super::members::Members;
use super::super::message::{self, INVALID_REQUEST, Id, Message, PARSE_ERROR};
use super::client_session::ClientSession;
use super::connection::ServerConnection;
use super::lines::LineReader;
use super::shutdown::{Ended, wait_for_servers};
use super::{ServerProcess, cannot_start};
use onceward_runtime::exit::Fault;

/// How long reading may go on after the servers have ended: a process that one of them left behind may hold its pipe open.
const LAST_READ_LIMIT: Duration = Duration::from_secs(1);

/// Shutdown limit for recording the outcomes of the last calls.
pub(super) const RECORD_LIMIT: Duration = Duration::from_secs(15);

/// Knows where the messages of a client and its servers go.
pub(crate) trait Router: Send + Sync + 'static {
    fn client(&self) -> &Arc<ClientSession>;

    /// Every server, in the order of its number.
    fn servers(&self) -> impl Iterator<Item = &ServerConnection> + Send;

    /// Waits until another message of the client can be taken.
    fn ready(&self) -> impl Future<Output = ()> + Send;

    /// Takes a message of the client, which came as this line.
    fn client_message(self: &Arc<Self>, message: Message, line: Vec<u8>) -> impl Future<Output = ()> + Send;

    /// Takes a line of a server.
    fn server_line(&self, number: usize, line: Vec<u8>) -> impl Future<Output = ()> + Send;

    /// The client cancels a request. Returns the numbers of the servers that are to be told.
    fn cancel(self: &Arc<Self>, parameters: Option<&Members>, id: Option<&Id>) -> Vec<usize>;

    /// Passes a line of the client on to a server, as it is.
    fn pass(&self, number: usize, line: Vec<u8>) -> impl Future<Output = ()> + Send;

    /// A server sends nothing more.
    fn server_ended(&self, number: usize) -> impl Future<Output = ()> + Send;
}

/// Relays until every server has ended.
pub(crate) async fn relay<R: Router>(
    router: &Arc<R>,
    processes: Vec<ServerProcess>,
    signals: mpsc::Receiver<Signal>,
) -> Result<Ended, Fault> {
    let (mut children, mut readers) = (Vec::new(), Vec::new());
    for (number, process) in processes.into_iter().enumerate() {
        let (router, lines) = (Arc::clone(router), LineReader::new(process.output, "server").map_err(cannot_start)?);
        readers.push(tokio::spawn(async move { read_server(&*router, number, lines).await }));
        children.push(process.child);
    }
    let lines = client_input().and_then(|input| LineReader::new(input, "client")).map_err(cannot_start)?;
    let (gone, client_gone) = oneshot::channel();
    let reading = Arc::clone(router);
    tokio::spawn(async move {
        read_client(&reading, lines).await;
        reading.client().end().await;
        let _ = gone.send(());
    });
    let client = router.client();
    let close = || router.servers().for_each(ServerConnection::close_input);
    let ended = wait_for_servers(children, signals, client, client_gone, close).await;
    let _ = timeout(LAST_READ_LIMIT, join_all(readers)).await;
    for server in router.servers() {
        server.close();
    }
    if timeout(RECORD_LIMIT, client.idle()).await.is_err() {
        tracing::warn!("calls were in progress when the server ended; their outcomes are in doubt");
    }
    client.judge_last_responses().await;
    let _ = timeout(RECORD_LIMIT, client.ledger.close()).await;
    Ok(ended)
}

/// The other end of this pipe may be shared with the client's own processes, so its flags are left alone.
fn client_input() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

async fn read_client<R: Router>(router: &Arc<R>, mut lines: LineReader) {
    loop {
        router.ready().await;
        let Some(line) = lines.next().await else { return };
        let client = router.client();
        client.known.message_received();
        if message::has_carriage_return(&line) {
            let why = "a message must not contain a carriage return: some servers would read two messages";
            client.write(message::error(None, PARSE_ERROR, why)).await;
            continue;
        }
        match Message::read(&line) {
            Message::Notification { method, members } if method == "notifications/cancelled" => {
                cancel(router, &members, line).await;
            }
            Message::Ambiguous { id, why } => {
                let id = id.filter(|id| Id::read(id).is_some());
                client.write(message::error(id.as_deref(), INVALID_REQUEST, why)).await;
            }
            Message::NotJson => {
                client.write(message::error(None, PARSE_ERROR, "this line is not JSON, and was not passed on")).await;
            }
            message => router.client_message(message, line).await,
        }
    }
}

/// The client does not want a response, or no longer wanted it when it came.
async fn cancel<R: Router>(router: &Arc<R>, members: &Members, line: Vec<u8>) {
    let parameters = members.object("params");
    let id = parameters.as_ref().and_then(|parameters| parameters.get("requestId")).and_then(Id::read);
    // Before anything is waited for: a call that is being decided on must not be sent meanwhile.
    let told = router.cancel(parameters.as_ref(), id.as_ref());
    if let Some(id) = &id {
        router.client().cancelled(id, router.servers().map(|server| &*server.gate));
    }
    for number in told {
        router.pass(number, line.clone()).await;
    }
}

async fn read_server<R: Router>(router: &R, number: usize, mut lines: LineReader) {
    while let Some(line) = lines.next().await {
        router.server_line(number, line).await;
    }
    router.server_ended(number).await;
}

/// The error for a second request of one id: their responses could not be told apart.
pub(crate) fn duplicate_id(id: &RawValue) -> Vec<u8> {
    message::error(Some(id), INVALID_REQUEST, "another request with this id is in progress")
}
