//! When to stop: the first TERM or INT asks every listener to finish what it has begun, the second ends it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Tells whoever holds it when it is time to stop. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<bool>);

/// Sends it.
#[derive(Debug)]
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    stop: watch::Sender<bool>,
}

impl Signals {
    /// From here on, neither signal ends the process by itself.
    pub(crate) fn catch() -> io::Result<(Self, Stop)> {
        let (stop, stopped) = watch::channel(false);
        let (term, int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok((Self { term, int, stop }, Stop(stopped)))
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
        self.stop.send_replace(true);
    }

    /// Stops without a signal: something failed.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Stop {
    /// Resolves when it is time to stop.
    pub(crate) async fn stopped(&mut self) {
        // A sender that is gone has stopped as well.
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }
}
