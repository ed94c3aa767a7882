//! A front of the server that carries every connection, until it is told to close or to ignore them. It counts connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Carry,
    /// Connections are accepted and closed at once; those that were carried are closed.
    Close,
    /// Connections are accepted, and nothing is ever answered; those that were carried fall silent.
    Ignore,
}

/// A running front. It ends with this value.
#[derive(Debug)]
pub(super) struct Front {
    port: u16,
    mode: watch::Sender<Mode>,
    accepted: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Front {
    /// Starts a front of the server of a URL.
    pub(super) async fn start(url: &str) -> Self {
        let server = address(url);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mode, modes) = watch::channel(Mode::Carry);
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(client, server.clone(), modes.clone()));
            }
        });
        Self { port, mode, accepted, task: task.abort_handle() }
    }

    /// The same URL through this front.
    pub(super) fn url(&self, url: &str) -> String {
        url.replace(&address(url), &format!("127.0.0.1:{}", self.port))
    }

    /// Changes the mode, and forgets the count.
    pub(super) fn set(&self, mode: Mode) {
        self.accepted.store(0, Ordering::SeqCst);
        self.mode.send_replace(mode);
    }

    /// How many connections were accepted since.
    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

async fn serve(mut client: TcpStream, server: String, mut modes: watch::Receiver<Mode>) {
    let mode = *modes.borrow_and_update();
    if mode == Mode::Carry {
        let Ok(mut server) = TcpStream::connect(&server).await else { return };
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
            _ = modes.changed() => {}
        }
    }
    if *modes.borrow_and_update() == Mode::Ignore {
        // Held open until the front is told something else.
        let _ = modes.changed().await;
    }
}

/// `HOST:PORT` of a URL with both.
fn address(url: &str) -> String {
    let (_, rest) = url.rsplit_once('@').unwrap();
    rest.split_once('/').unwrap().0.to_owned()
}
