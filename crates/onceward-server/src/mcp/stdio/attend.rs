//! Waits for servers to end, and looks after what is under way when their client goes or somebody asks us to end.

use std::io;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::books::Books;
use crate::process::pass_on_to_all;

/// How long servers are kept after their client is gone, so that calls that are under way come to their end.
const GOODBYE: Duration = Duration::from_secs(60);

/// How long calls that are under way keep a signal from the servers that asks them to end. Clients send one some seconds
/// after they have closed the pipe, and kill a few seconds later.
const LAST_CALLS: Duration = Duration::from_secs(10);

/// How many signals may wait to be passed on.
const SIGNALS: usize = 16;

/// What is looked after.
pub(in crate::mcp) struct UnderWay<'a> {
    /// How many calls there are.
    pub(in crate::mcp) busy: &'a watch::Sender<usize>,
    /// Where tasks are that go on after their calls were answered.
    pub(in crate::mcp) books: &'a Books,
}

/// One call that is under way, until this is dropped: also by a panic.
pub(in crate::mcp) struct Started(watch::Sender<usize>);

impl Started {
    pub(in crate::mcp) fn new(busy: &watch::Sender<usize>) -> Self {
        busy.send_modify(|busy| *busy += 1);
        Self(busy.clone())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.0.send_modify(|busy| *busy -= 1);
    }
}

/// How it ended.
pub(in crate::mcp) struct Ended {
    /// Of the server that was the last.
    pub(in crate::mcp) status: io::Result<ExitStatus>,
    /// The client went, or somebody asked us to end.
    pub(in crate::mcp) was_wanted: bool,
}

/// Waits for all of them. Their pipes are closed when the client is gone and nothing is under way any more.
pub(in crate::mcp) async fn attend(
    children: Vec<Child>,
    mut signals: mpsc::Receiver<Signal>,
    under_way: UnderWay<'_>,
    client_gone: oneshot::Receiver<()>,
    asked_to_end: impl Fn(),
    close: impl Fn(),
) -> Ended {
    let (to_all, _) = broadcast::channel(SIGNALS);
    let mut running = JoinSet::new();
    for child in children {
        running.spawn(one(child, to_all.subscribe()));
    }
    let (mut last, was_wanted) = (Err(io::ErrorKind::NotFound.into()), AtomicBool::new(false));
    let goodbye = async {
        let _ = client_gone.await;
        was_wanted.store(true, Ordering::Relaxed);
        let _ = timeout(GOODBYE, under_way.over()).await;
        close();
        std::future::pending::<()>().await;
    };
    tokio::pin!(goodbye);
    let mut busy = under_way.busy.subscribe();
    let mut asked: Option<Signal> = None;
    loop {
        let patience = async {
            match asked {
                Some(_) => drop(timeout(LAST_CALLS, idle(&mut busy)).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            status = running.join_next() => match status {
                Some(status) => last = status.unwrap_or_else(|error| Err(io::Error::other(error))),
                None => return Ended { status: last, was_wanted: was_wanted.load(Ordering::Relaxed) },
            },
            Some(signal) = signals.recv() => {
                let is_end = matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP);
                was_wanted.fetch_or(is_end, Ordering::Relaxed);
                if is_end {
                    asked_to_end();
                }
                // Asked twice, it is meant now.
                if is_end && asked.is_none() {
                    asked = Some(signal);
                } else {
                    let _ = to_all.send(signal);
                }
            }
            () = patience => {
                if let Some(signal) = asked.take() {
                    let _ = to_all.send(signal);
                }
            }
            () = &mut goodbye => {}
        }
    }
}

impl UnderWay<'_> {
    /// Nothing is any more.
    async fn over(&self) {
        idle(&mut self.busy.subscribe()).await;
        if let Ok(ledger) = self.books.ledger().await {
            ledger.idle().await;
        }
    }
}

/// Waits for a server, and passes signals on.
async fn one(mut child: Child, mut signals: broadcast::Receiver<Signal>) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status,
            Ok(signal) = signals.recv() => pass_on_to_all(&child, signal),
        }
    }
}

pub(in crate::mcp) async fn idle(busy: &mut watch::Receiver<usize>) {
    let _ = busy.wait_for(|busy| *busy == 0).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_panics_is_not_under_way_any_more() {
        let busy = watch::Sender::new(0);
        let started = Started::new(&busy);
        assert_eq!(*busy.borrow(), 1);
        let work = tokio::spawn(async move {
            let _started = started;
            panic!("on purpose");
        });
        assert!(work.await.is_err() && *busy.borrow() == 0);
    }
}
