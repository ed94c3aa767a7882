//! A proxy in front of PostgreSQL that strikes at one message of the protocol: it cuts the connection before or after it, or loses
//! everything from it on while the connection stays open.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The side that sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// What happens at the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The message and everything after it are lost, and both ends learn that at once.
    CutBefore,
    /// The message arrives, then as above.
    CutAfter,
    /// The message and everything after it in its direction are lost; the connection stays open.
    Swallow,
}

/// Strikes at the message with this number of its side, from 1, counted from the moment of arming over all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strike {
    pub(super) side: Side,
    pub(super) number: usize,
    pub(super) fault: Fault,
}

#[derive(Debug, Default)]
struct Plan {
    strike: Option<Strike>,
    struck: bool,
    from_client: usize,
    from_server: usize,
}

impl Plan {
    /// Counts a message. Returns what happens to it.
    fn count(&mut self, side: Side) -> Option<Fault> {
        let counter = match side {
            Side::Client => &mut self.from_client,
            Side::Server => &mut self.from_server,
        };
        *counter += 1;
        let number = *counter;
        let strike = self.strike.filter(|strike| !self.struck && strike.side == side && strike.number == number)?;
        self.struck = true;
        Some(strike.fault)
    }
}

/// A running proxy. It ends with this value.
#[derive(Debug)]
pub(super) struct Proxy {
    port: u16,
    plan: Arc<Mutex<Plan>>,
    task: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Starts a proxy in front of the server of a URL.
    pub(super) async fn start(url: &str) -> Self {
        let server = address(url);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let plan = Arc::new(Mutex::new(Plan::default()));
        let shared = Arc::clone(&plan);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(&server).await {
                    tokio::spawn(carry(client, server, Arc::clone(&shared)));
                }
            }
        });
        Self { port, plan, task: task.abort_handle() }
    }

    /// The same URL through this proxy.
    pub(super) fn url(&self, url: &str) -> String {
        url.replace(&address(url), &format!("127.0.0.1:{}", self.port))
    }

    /// Begins to count messages, and strikes once if told to.
    pub(super) fn arm(&self, strike: Option<Strike>) {
        *self.plan.lock().unwrap() = Plan { strike, ..Plan::default() };
    }

    /// How many messages each side has sent since, and whether the fault has struck.
    pub(super) fn counted(&self) -> (usize, usize, bool) {
        let plan = self.plan.lock().unwrap();
        (plan.from_client, plan.from_server, plan.struck)
    }
}

/// `HOST:PORT` of a URL with both.
fn address(url: &str) -> String {
    let (_, rest) = url.rsplit_once('@').unwrap();
    rest.split_once('/').unwrap().0.to_owned()
}

async fn carry(client: TcpStream, server: TcpStream, plan: Arc<Mutex<Plan>>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // One side that ends, ends the other.
    let (cut, _) = watch::channel(false);
    tokio::join!(
        pump(Side::Client, from_client, to_server, &plan, &cut),
        pump(Side::Server, from_server, to_client, &plan, &cut),
    );
}

async fn pump(
    side: Side,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    plan: &Mutex<Plan>,
    cut: &watch::Sender<bool>,
) {
    let mut is_cut = cut.subscribe();
    let mut is_first = side == Side::Client;
    loop {
        let message = tokio::select! {
            message = read(&mut from, is_first) => message,
            _ = is_cut.wait_for(|cut| *cut) => break,
        };
        let Some(message) = message else { break };
        is_first = false;
        let fault = plan.lock().unwrap().count(side);
        match fault {
            Some(Fault::CutBefore) => break,
            Some(Fault::Swallow) => {
                // The sender may go on sending; nothing of it arrives.
                tokio::select! {
                    _ = drain(&mut from) => {}
                    _ = is_cut.wait_for(|cut| *cut) => {}
                }
                break;
            }
            Some(Fault::CutAfter) => {
                let _ = to.write_all(&message).await;
                break;
            }
            None => {
                if to.write_all(&message).await.is_err() {
                    break;
                }
            }
        }
    }
    // An end instead of a reset, so that what was forwarded arrives.
    let _ = to.shutdown().await;
    cut.send_replace(true);
}

async fn drain(from: &mut OwnedReadHalf) {
    let mut lost = [0; 4096];
    while from.read(&mut lost).await.is_ok_and(|read| read > 0) {}
}

/// One message: a type, a length that counts itself, and the rest. The first one of a client has no type.
async fn read(from: &mut OwnedReadHalf, is_first: bool) -> Option<Vec<u8>> {
    let head = if is_first { 4 } else { 5 };
    let mut message = vec![0; head];
    from.read_exact(&mut message).await.ok()?;
    let length = u32::from_be_bytes(message[head - 4..].try_into().ok()?);
    let rest = usize::try_from(length).ok()?.checked_sub(4)?;
    message.resize(head + rest, 0);
    from.read_exact(&mut message[head..]).await.ok()?;
    Some(message)
}
