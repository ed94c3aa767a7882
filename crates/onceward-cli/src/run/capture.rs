//! The output of a command: forwarded as it arrives, and kept.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use onceward_runtime::output::{self, is_fault, say, write_err, write_out};
use onceward_runtime::process::capture::Capture;
use onceward_runtime::process::output_frame::Stream;

/// One read: the default capacity of a Linux pipe.
const CHUNK: usize = 64 * 1024;

/// How long the pipes may stay open after the command has ended: a background process holds them and is not waited for.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// How much is still read after the command has ended: the maximum capacity of a pipe, so all output of the command itself,
/// but not everything that a background process may still write.
const MAX_DRAINED_BYTES: usize = 1024 * 1024;

/// How long a reader may take for a chunk during shutdown: a reader that reads at all is done by then, and a terminal shows
/// the last output of a command that Ctrl-C ended.
const SHUTDOWN_WRITE_LIMIT: Duration = Duration::from_millis(200);

/// How long the pipes may stay open during shutdown: they already contain the output of the command.
const SHUTDOWN_DRAIN_LIMIT: Duration = Duration::from_millis(50);

/// The progress of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CommandProgress {
    Running,
    /// It has ended; its output is still forwarded.
    Ended,
    /// It has ended, and this process is asked to end as well: the output is kept, and readers are no longer waited for.
    ShuttingDown,
}

/// A capture that both streams write to.
pub(super) type SharedCapture = Arc<Mutex<Capture>>;

/// Forwards one stream until it ends, or until the command has ended and the drain limit is over. Output that can no longer
/// be forwarded is still kept.
pub(super) async fn pump(
    mut from: impl AsyncRead + Unpin,
    stream: Stream,
    capture: SharedCapture,
    mut phase: watch::Receiver<CommandProgress>,
) {
    let mut chunk = vec![0; CHUNK];
    let (mut grace, mut rest) = (DRAIN_LIMIT, MAX_DRAINED_BYTES);
    let mut is_forwarded = true;
    loop {
        let asked = Instant::now();
        let read = tokio::select! {
            biased;
            read = from.read(&mut chunk) => read,
            () = drain_limit(&mut phase, grace) => return,
        };
        let length = match read {
            Ok(length) if length > 0 => length,
            _ => return,
        };
        let bytes = &chunk[..length];
        capture.lock().unwrap_or_else(PoisonError::into_inner).add(stream, bytes);
        if *phase.borrow() >= CommandProgress::Ended {
            // Only time spent waiting for the command counts, not for a slow reader of our output.
            grace = grace.saturating_sub(asked.elapsed());
            rest = rest.saturating_sub(length);
        }
        if is_forwarded {
            is_forwarded = tokio::select! {
                biased;
                is_forwarded = forward(stream, bytes) => is_forwarded,
                () = reaches(&mut phase, CommandProgress::ShuttingDown, SHUTDOWN_WRITE_LIMIT) => {
                    abandon(stream);
                    false
                }
            };
        }
        if rest == 0 {
            return;
        }
    }
}

/// Writes to our stream of the same name.
pub(super) fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => write_out(bytes),
        Stream::Stderr => write_err(bytes),
    }
}

/// Forwards a chunk. Returns whether more can be forwarded.
async fn forward(stream: Stream, bytes: &[u8]) -> bool {
    let bytes = bytes.to_vec();
    let written = spawn_blocking(move || write(stream, &bytes)).await.unwrap_or_else(|error| Err(error.into()));
    match written {
        Ok(()) => return true,
        Err(error) if is_fault(&error) => {
            say(&format!("cannot forward the output: {error}; the command goes on, and its output is kept."));
        }
        Err(_) => {}
    }
    false
}

/// Gives up a stream that has no reader. Any further write to stderr would block forever, so messages are muted.
fn abandon(stream: Stream) {
    if stream == Stream::Stderr {
        output::mute();
    }
}

async fn drain_limit(phase: &mut watch::Receiver<CommandProgress>, grace: Duration) {
    let mut leaving = phase.clone();
    tokio::select! {
        () = reaches(phase, CommandProgress::Ended, grace) => {}
        () = reaches(&mut leaving, CommandProgress::ShuttingDown, SHUTDOWN_DRAIN_LIMIT.min(grace)) => {}
    }
}

/// Waits until the phase is reached, plus some time. The sender lives until the pumps have returned.
async fn reaches(phase: &mut watch::Receiver<CommandProgress>, wanted: CommandProgress, grace: Duration) {
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
    tokio::time::sleep(grace).await;
}
