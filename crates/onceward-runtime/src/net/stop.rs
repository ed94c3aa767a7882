//! Shutdown: the first TERM or INT asks every listener to finish its requests, the second one ends the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Tells its holder when to stop. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Catches the signals and tells every [`Stop`].
#[derive(Debug)]
pub struct Signals {
    term: Signal,
    int: Signal,
    stop: watch::Sender<bool>,
}

impl Signals {
    /// Catches TERM and INT, so that they no longer end the process by themselves.
    pub fn catch() -> io::Result<(Self, Stop)> {
        let (stop, stopped) = watch::channel(false);
        let (term, int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok((Self { term, int, stop }, Stop(stopped)))
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
        self.stop.send_replace(true);
    }

    /// Stops without a signal, after a failure.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Stop {
    /// Waits until it is time to stop.
    pub async fn stopped(&mut self) {
        // A dropped sender means stop as well.
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }

    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }
}
