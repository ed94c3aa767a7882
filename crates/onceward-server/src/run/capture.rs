//! The output of a command: passed on as it comes, and kept in order up to a limit.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use onceward::Outcome;
use onceward::core::hash::Digest;
use onceward::core::outcome::{Body, Verdict};
use sha2::Digest as _;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::frame::{self, CONTENT_TYPE, Stream};
use crate::output::{self, is_fault, say, write_err, write_out};

/// One read: what a Linux pipe holds by default.
const CHUNK: usize = 64 * 1024;

/// How long the pipes may stay open after the command has ended: something it left in the background holds them,
/// and will not be waited for.
const GRACE: Duration = Duration::from_secs(2);

/// How much is still read after the command has ended: the most that a pipe can hold, so all that the command
/// itself wrote, and not all that something in the background may go on to write.
const REST: usize = 1024 * 1024;

/// How long a reader may take for a piece once nobody wants to wait for it any more: one that reads at all is done by
/// then, and a terminal shows the last words of a command that Ctrl-C ended.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How long the pipes may stay open then: what the command wrote is in them already.
const SHORT_GRACE: Duration = Duration::from_millis(50);

/// How far the command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Running,
    /// It has ended; what it wrote is still passed on.
    Ended,
    /// It has ended, and we are asked to end as well: what it wrote is kept, and a reader is no longer waited for.
    Leaving,
}

/// What was written so far.
#[derive(Debug)]
pub(super) struct Capture {
    segments: Vec<(Stream, Vec<u8>)>,
    framed: usize,
    limit: usize,
    size: u64,
    hash: sha2::Sha256,
}

impl Capture {
    pub(super) fn new(limit: usize) -> Self {
        Self { segments: Vec::new(), framed: 0, limit, size: 0, hash: sha2::Sha256::new() }
    }

    fn add(&mut self, stream: Stream, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.hash.update(bytes);
        let joins = self.segments.last().is_some_and(|(last, _)| *last == stream);
        self.framed += bytes.len() + if joins { 0 } else { frame::HEADER };
        if self.framed > self.limit {
            // Never to be kept now, so it need not be held either.
            self.segments = Vec::new();
            return;
        }
        match self.segments.last_mut() {
            Some((last, kept)) if *last == stream => kept.extend_from_slice(bytes),
            _ => self.segments.push((stream, bytes.to_vec())),
        }
    }

    /// What every repeat is shown. Of an output over the limit, size and digest of all bytes in order.
    pub(super) fn outcome(self, verdict: Verdict, exit_code: u8) -> Outcome {
        let mut outcome = Outcome::of(verdict, CONTENT_TYPE, Vec::new()).with_status(i32::from(exit_code));
        outcome.body = if self.framed > self.limit {
            Body::TooLarge { size: self.size, digest: Digest::from_bytes(self.hash.finalize().into()) }
        } else {
            Body::Kept(frame::encode(self.segments.iter().map(|(stream, bytes)| (*stream, &bytes[..]))).into())
        };
        outcome
    }
}

/// A capture that both streams write to.
pub(super) type Shared = Arc<Mutex<Capture>>;

/// Passes one stream on until it ends, or until the command has ended and the grace is over. What cannot be passed on
/// any more is still kept.
pub(super) async fn pump(
    mut from: impl AsyncRead + Unpin,
    stream: Stream,
    capture: Shared,
    mut phase: watch::Receiver<Phase>,
) {
    let mut chunk = vec![0; CHUNK];
    let (mut grace, mut rest) = (GRACE, REST);
    let mut is_passed_on = true;
    loop {
        let asked = Instant::now();
        let read = tokio::select! {
            biased;
            read = from.read(&mut chunk) => read,
            () = over(&mut phase, grace) => return,
        };
        let length = match read {
            Ok(length) if length > 0 => length,
            _ => return,
        };
        let bytes = &chunk[..length];
        capture.lock().unwrap_or_else(PoisonError::into_inner).add(stream, bytes);
        if *phase.borrow() >= Phase::Ended {
            // Only waiting for the command counts, not a slow reader of ours.
            grace = grace.saturating_sub(asked.elapsed());
            rest = rest.saturating_sub(length);
        }
        if is_passed_on {
            is_passed_on = tokio::select! {
                biased;
                is_passed_on = pass_on(stream, bytes) => is_passed_on,
                () = reaches(&mut phase, Phase::Leaving, LAST_WORDS) => {
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

/// Writes to the stream of ours that the command meant.
pub(super) fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => write_out(bytes),
        Stream::Stderr => write_err(bytes),
    }
}

/// Whether more can be passed on.
async fn pass_on(stream: Stream, bytes: &[u8]) -> bool {
    let bytes = bytes.to_vec();
    let written = spawn_blocking(move || write(stream, &bytes)).await.unwrap_or_else(|error| Err(error.into()));
    match written {
        Ok(()) => return true,
        Err(error) if is_fault(&error) => {
            say(&format!("the output cannot be passed on: {error}; the command goes on, and its output is kept."));
        }
        Err(_) => {}
    }
    false
}

/// Nobody reads it. Whoever writes to stderr from here on would wait for ever, and we have things to say there.
fn abandon(stream: Stream) {
    if stream == Stream::Stderr {
        output::be_silent();
    }
}

async fn over(phase: &mut watch::Receiver<Phase>, grace: Duration) {
    let mut leaving = phase.clone();
    tokio::select! {
        () = reaches(phase, Phase::Ended, grace) => {}
        () = reaches(&mut leaving, Phase::Leaving, SHORT_GRACE.min(grace)) => {}
    }
}

/// The sender lives until the pumps have returned.
async fn reaches(phase: &mut watch::Receiver<Phase>, wanted: Phase, grace: Duration) {
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
    tokio::time::sleep(grace).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(capture: Capture) -> Body {
        capture.outcome(Verdict::Success, 0).body
    }

    #[test]
    fn what_follows_on_the_same_stream_joins_its_segment() {
        let mut capture = Capture::new(1000);
        capture.add(Stream::Stdout, b"a");
        capture.add(Stream::Stdout, b"b");
        capture.add(Stream::Stderr, b"c");
        let expected = frame::encode([(Stream::Stdout, &b"ab"[..]), (Stream::Stderr, b"c")]);
        assert_eq!(body(capture), Body::Kept(expected.into()));
    }

    #[test]
    fn an_output_over_the_limit_leaves_its_size_and_digest() {
        let limit = frame::HEADER + 4;
        let mut capture = Capture::new(limit);
        capture.add(Stream::Stdout, b"1234");
        let Body::Kept(kept) =
            body(Capture { segments: capture.segments.clone(), hash: capture.hash.clone(), ..capture })
        else {
            panic!("it is not over the limit yet")
        };
        assert_eq!(kept.len(), limit);
        capture.add(Stream::Stdout, b"5");
        capture.add(Stream::Stderr, b"6");
        let digest = onceward::core::hash::digest(b"123456");
        assert_eq!(body(capture), Body::TooLarge { size: 6, digest });
    }
}
