//! The client's side of a relay: writes to it, counts its calls in progress, and records which responses it has got.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onceward::core::name::Tenant;
use onceward::plant::{Plant, planted};
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::super::call::CallSource;
use super::super::client::Client;
use super::super::delivery::OutgoingResponse;
use super::super::gate::{Gate, Request};
use super::super::in_progress::InProgress;
use super::super::lazy_ledger::LazyLedger;
use super::super::members::Members;
use super::super::message::{Id, RequestId};
use super::super::transport::Transport;
use super::connection::{ServerConnection, request_id};
use super::nonblocking_write::write_available;
use super::unread::has_read_everything;
use onceward_runtime::output;

/// The one client of a gateway that talks over stdin and stdout.
#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(crate) tenant: Tenant,
    pub(crate) ledger: Arc<LazyLedger>,
    /// What is known of the client.
    pub(crate) known: Client,
    /// Tells this process apart from others in front of the same server.
    connection: String,
    /// How many calls are in progress.
    in_progress: InProgress,
    /// Whether the client reads what is written. Locked while a line is being written.
    output: Arc<Mutex<bool>>,
    /// The last line was written without its end: a server ended in the middle of it.
    is_mid_line: AtomicBool,
}

impl ClientSession {
    /// The client may give up silently on a call that takes longer than `patience`.
    pub(crate) fn new(tenant: Tenant, connection: String, patience: Duration, ledger: Arc<LazyLedger>) -> Arc<Self> {
        Arc::new(Self {
            tenant,
            ledger,
            known: Client::new(patience),
            connection,
            in_progress: InProgress::default(),
            output: Arc::new(Mutex::new(true)),
            is_mid_line: AtomicBool::new(false),
        })
    }

    /// Writes a line to the client. Returns whether all of it was written: the server's responses are recorded also when the
    /// client has gone.
    pub(crate) async fn write(&self, mut line: Vec<u8>) -> bool {
        let mut is_open = Arc::clone(&self.output).lock_owned().await;
        if !*is_open {
            return false;
        }
        // The next message must not become a part of it.
        if self.is_mid_line.swap(!line.ends_with(b"\n"), Ordering::Relaxed) {
            line.insert(0, b'\n');
        }
        *is_open = match write_available(io::stdout(), &line) {
            Ok(written) if written == line.len() => true,
            // Another thread waits for a client that does not read now.
            Ok(written) => {
                spawn_blocking(move || output::write_out(&line[written..])).await.is_ok_and(|written| written.is_ok())
            }
            Err(_) => false,
        };
        *is_open
    }

    /// Closes stdout, so that the client sees the end as it would without the gateway.
    pub(crate) fn close_output() {
        if let Ok(nothing) = File::options().write(true).open("/dev/null") {
            let _ = nix::unistd::dup2_stdout(nothing);
        }
    }

    /// Runs work that the shutdown waits for.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let in_progress = self.in_progress.enter();
        tokio::spawn(async move {
            let _in_progress = in_progress;
            work.await;
        });
    }

    /// Waits until no call is in progress.
    pub(crate) async fn idle(&self) {
        self.in_progress.none().await;
    }

    /// The client says who it is, with the parameters of its first request.
    pub(crate) fn introduce(self: &Arc<Self>, parameters: &Members, is_modern: bool) {
        if self.known.is_introduced() {
            return;
        }
        self.known.introduce(parameters, is_modern);
        let session = Arc::clone(self);
        tokio::spawn(async move { session.known.recall(&session.ledger, &session.tenant).await });
    }

    /// A call of a tool that this client makes.
    pub(crate) fn request(&self, id: Id, written: Box<RawValue>, line: Bytes, members: Members) -> Request {
        let source = CallSource { client: self.known.name().to_owned(), connection: self.connection.clone() };
        let request = Request::new(self.tenant.clone(), id, written, line, members);
        Request { source, announces: self.known.announces(), ..request }
    }

    /// Carries a guarded call out and writes its response, as `to_client` translates it.
    pub(crate) async fn carry_out<L: Transport>(
        &self,
        server: &ServerConnection,
        request: &Request,
        transport: &Arc<L>,
        to_client: impl FnOnce(Vec<u8>) -> Vec<u8>,
    ) {
        self.known.cancellations_recorded().await;
        let response = server.gate.carry_out(request, transport).await;
        // A call that was not passed on lets those behind it go as well.
        transport.step_back();
        let is_wanted = server.pending().answered(&request_id(request.id.clone())) || planted(Plant::CancelledCounts);
        let Some(OutgoingResponse { line, receipt }) = response.filter(|_| is_wanted) else { return };
        if let Some(receipt) = &receipt {
            receipt.open.writing();
        }
        let is_written = self.write(to_client(line)).await;
        if let Some(receipt) = receipt.filter(|_| is_written) {
            self.known.response_written(&request.id, receipt);
        }
    }

    /// The client has cancelled a request. Does not wait for the ledger.
    pub(super) fn cancelled<'a>(self: &Arc<Self>, id: &Id, gates: impl Iterator<Item = &'a Gate>) {
        let request = RequestId { connection: self.connection.clone(), id: id.clone() };
        gates.for_each(|gate| gate.equals.cancel(&request));
        let (is_first, session) = (self.known.cancelled(id), Arc::clone(self));
        self.start(async move {
            session.known.cancellations_recorded().await;
            if is_first {
                session.known.remember(&session.ledger, &session.tenant).await;
            }
        });
    }

    /// The client sends nothing more. It has ended in order if it has read everything that was written to it.
    pub(super) async fn end(&self) {
        self.known.ends();
        self.known.ended(has_read_everything(io::stdout()).await).await;
    }

    /// The gateway is about to end: records which of the last responses the client has read.
    pub(super) async fn judge_last_responses(&self) {
        self.known.judge_last(has_read_everything(io::stdout())).await;
    }
}
