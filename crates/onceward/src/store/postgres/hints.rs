//! Hints to other processes that intents have ended, so that their waiting callers need not poll.
//!
//! A hint is sent after the commit, by a transaction of its own that nothing waits for: inside the commit, PostgreSQL would let all
//! commits with a notification wait for each other. Hints may be lost; callers go on polling.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio::time::{sleep, timeout};

use onceward_core::hash::Digest;

use super::connection::PrimaryConnection;
use super::pg_error::Fault;
use super::{OpenStore, random_id};
use crate::store::Error;

/// Ids that end within this time go out together.
const COLLECT_FOR: Duration = Duration::from_millis(5);

/// The most ids in one notification: PostgreSQL allows 8,000 bytes, and an id takes 64.
const MAX_IDS: usize = 120;

/// The most ids that wait, on either side; further ones are dropped, and their callers poll.
const QUEUE_LIMIT: usize = 4096;

/// How long the notification of the self-test may take.
const SELF_TEST: Duration = Duration::from_secs(2);

/// The pause before the next connection.
const RECONNECT_AFTER: Duration = Duration::from_secs(2);

/// The pause after a self-test that failed: the way to the server will hardly change.
const RETEST_AFTER: Duration = Duration::from_secs(300);

/// The process of the server that runs this statement.
const PROCESS: &str = "SELECT pg_backend_pid()";

/// How often an idle connection is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Sends and receives hints, on a thread with a connection of its own.
#[derive(Debug)]
pub(super) struct Hints {
    /// Dropped when the store is closed.
    outgoing: Mutex<Option<mpsc::Sender<Digest>>>,
    incoming: broadcast::Sender<Digest>,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Hints {
    pub(super) fn start(shared: &Arc<OpenStore>) -> Result<Self, Error> {
        let cannot = |error: std::io::Error| Error::Other(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let (outgoing, ended) = mpsc::channel(QUEUE_LIMIT);
        let incoming = broadcast::Sender::new(QUEUE_LIMIT);
        let thread = HintThread { shared: Arc::clone(shared), ended, incoming: incoming.clone() };
        let thread = std::thread::Builder::new()
            .name("onceward-pg-hint".to_owned())
            .spawn(move || runtime.block_on(thread.run()))
            .map_err(cannot)?;
        Ok(Self { outgoing: Mutex::new(Some(outgoing)), incoming, thread: Mutex::new(Some(thread)) })
    }

    /// Tells other processes that an intent has ended. Never waits.
    pub(super) fn ended(&self, id: Digest) {
        if let Some(outgoing) = &*self.outgoing.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = outgoing.try_send(id);
        }
    }

    /// The hints of other processes.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Digest> {
        self.incoming.subscribe()
    }

    pub(super) fn close(&self) {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

struct HintThread {
    shared: Arc<OpenStore>,
    ended: mpsc::Receiver<Digest>,
    incoming: broadcast::Sender<Digest>,
}

impl HintThread {
    async fn run(mut self) {
        loop {
            let (sender, mut received) = broadcast::channel(QUEUE_LIMIT);
            let pause = match PrimaryConnection::open(&self.shared.options, Some(sender)).await {
                Err(_) => RECONNECT_AFTER,
                Ok(connection) => match is_heard(&connection, &mut received, &self.shared).await {
                    Err(_) => RECONNECT_AFTER,
                    Ok(false) => {
                        tracing::debug!("notifications do not arrive, so waiting callers poll");
                        RETEST_AFTER
                    }
                    Ok(true) => match self.carry(&connection, received).await {
                        Err(_) => RECONNECT_AFTER,
                        Ok(()) => return,
                    },
                },
            };
            if self.discard(pause).await {
                return;
            }
        }
    }

    /// Sends and passes on hints until the connection is lost. `Ok` when the store is closed.
    async fn carry(
        &mut self,
        connection: &PrimaryConnection,
        received: broadcast::Receiver<String>,
    ) -> Result<(), Fault> {
        let incoming = self.incoming.clone();
        let passing = tokio::spawn(pass_on(received, incoming));
        let mut ids = Vec::new();
        loop {
            match timeout(LOOK_EVERY, self.ended.recv_many(&mut ids, MAX_IDS)).await {
                Ok(0) => {
                    passing.abort();
                    return Ok(());
                }
                Ok(_) => {
                    sleep(COLLECT_FOR).await;
                    while ids.len() < MAX_IDS
                        && let Ok(id) = self.ended.try_recv()
                    {
                        ids.push(id);
                    }
                    notify(connection, &ids.drain(..).map(|id| id.to_hex()).collect::<String>()).await?;
                }
                Err(_) if connection.is_closed() => return Err(Fault::NotConnected("closed".to_owned())),
                Err(_) => {}
            }
        }
    }

    /// Drops what should have been sent during a pause. True when the store is closed.
    async fn discard(&mut self, pause: Duration) -> bool {
        timeout(pause, async { while self.ended.recv().await.is_some() {} }).await.is_ok()
    }
}

/// Whether notifications reach this connection. A pooler accepts LISTEN, and then nothing arrives, or only by luck: while this client
/// has the same connection of the pool. So the test comes from a second connection, as those of other processes do.
async fn is_heard(
    connection: &PrimaryConnection,
    received: &mut broadcast::Receiver<String>,
    shared: &OpenStore,
) -> Result<bool, Fault> {
    let other = PrimaryConnection::open(&shared.options, None).await?;
    if is_pooled(connection, &other).await? {
        return Ok(false);
    }
    connection.simple("LISTEN onceward").await?;
    let is_heard = hears(&other, received).await;
    if !matches!(is_heard, Ok(true)) {
        // Otherwise another client of a pool gets the notifications.
        let _ = connection.simple("UNLISTEN *").await;
    }
    is_heard
}

/// Whether two connections take turns on those of a pool: one of them then has the server process that the other one had, or has
/// another one while that is held. LISTEN would stay behind in the pool, so that this is found out before it.
async fn is_pooled(connection: &PrimaryConnection, other: &PrimaryConnection) -> Result<bool, Fault> {
    let before = connection.simple(PROCESS).await?;
    other.simple("BEGIN").await?;
    let held = other.simple(PROCESS).await?;
    let after = connection.simple(PROCESS).await?;
    other.simple("COMMIT").await?;
    Ok(held == before || after != before)
}

/// Whether a notification from the other connection arrives.
async fn hears(other: &PrimaryConnection, received: &mut broadcast::Receiver<String>) -> Result<bool, Fault> {
    let nonce = random_id().map_err(Fault::Refused)?;
    let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    notify(other, &nonce).await?;
    let heard = async {
        loop {
            match received.recv().await {
                Ok(payload) if payload == nonce => return true,
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return false,
            }
        }
    };
    Ok(timeout(SELF_TEST, heard).await.unwrap_or(false))
}

/// Sends a notification whose commit does not wait for the disk: losing a hint is harmless. The payload is hex digits.
async fn notify(connection: &PrimaryConnection, payload: &str) -> Result<(), Fault> {
    let sql = format!("BEGIN; SET LOCAL synchronous_commit = off; NOTIFY onceward, '{payload}'; COMMIT");
    connection.simple(&sql).await.map(drop)
}

/// Passes the ids in notifications on to the ledger.
async fn pass_on(mut received: broadcast::Receiver<String>, incoming: broadcast::Sender<Digest>) {
    loop {
        match received.recv().await {
            Ok(payload) => {
                for digits in payload.as_bytes().chunks_exact(64) {
                    let id = std::str::from_utf8(digits).ok().and_then(Digest::from_hex);
                    id.map(|id| incoming.send(id));
                }
            }
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}
