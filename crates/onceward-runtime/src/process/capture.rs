//! The output of a command, kept in order up to a limit.

use onceward::Outcome;
use onceward::core::hash::Digest;
use onceward::core::outcome::{Body, Verdict};
use sha2::Digest as _;

use super::output_frame::{self, CONTENT_TYPE, Stream};

/// The output so far.
#[derive(Debug)]
pub struct Capture {
    segments: Vec<(Stream, Vec<u8>)>,
    framed: usize,
    limit: usize,
    size: u64,
    hash: sha2::Sha256,
}

impl Capture {
    pub fn new(limit: usize) -> Self {
        Self { segments: Vec::new(), framed: 0, limit, size: 0, hash: sha2::Sha256::new() }
    }

    pub fn add(&mut self, stream: Stream, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.hash.update(bytes);
        let joins = self.segments.last().is_some_and(|(last, _)| *last == stream);
        self.framed += bytes.len() + if joins { 0 } else { output_frame::HEADER };
        if self.framed > self.limit {
            // Too large to keep, so it need not be held either.
            self.segments = Vec::new();
            return;
        }
        match self.segments.last_mut() {
            Some((last, kept)) if *last == stream => kept.extend_from_slice(bytes),
            _ => self.segments.push((stream, bytes.to_vec())),
        }
    }

    /// The beginning of one stream, at most `length` bytes of it. `None` if the output was over the limit.
    pub fn beginning(&self, stream: Stream, length: usize) -> Option<Vec<u8>> {
        let of_stream = self.segments.iter().filter(|(other, _)| *other == stream).flat_map(|(_, bytes)| bytes);
        (self.framed <= self.limit).then(|| of_stream.copied().take(length).collect())
    }

    /// The outcome for repeats. For an output over the limit: the size and the digest of all bytes in order.
    pub fn outcome(self, verdict: Verdict, exit_code: u8) -> Outcome {
        let mut outcome = Outcome::of(verdict, CONTENT_TYPE, Vec::new()).with_status(i32::from(exit_code));
        outcome.body = if self.framed > self.limit {
            Body::TooLarge { size: self.size, digest: Digest::from_bytes(self.hash.finalize().into()) }
        } else {
            Body::Kept(output_frame::encode(self.segments.iter().map(|(stream, bytes)| (*stream, &bytes[..]))).into())
        };
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(capture: Capture) -> Body {
        capture.outcome(Verdict::Success, 0).body
    }

    #[test]
    fn consecutive_output_on_one_stream_is_one_segment() {
        let mut capture = Capture::new(1000);
        capture.add(Stream::Stdout, b"a");
        capture.add(Stream::Stdout, b"b");
        capture.add(Stream::Stderr, b"c");
        let expected = output_frame::encode([(Stream::Stdout, &b"ab"[..]), (Stream::Stderr, b"c")]);
        assert_eq!(body(capture), Body::Kept(expected.into()));
    }

    #[test]
    fn an_output_over_the_limit_leaves_its_size_and_digest() {
        let limit = output_frame::HEADER + 4;
        let mut capture = Capture::new(limit);
        capture.add(Stream::Stdout, b"1234");
        let Body::Kept(kept) =
            body(Capture { segments: capture.segments.clone(), hash: capture.hash.clone(), ..capture })
        else {
            panic!("this is not over the limit yet")
        };
        assert_eq!(kept.len(), limit);
        capture.add(Stream::Stdout, b"5");
        capture.add(Stream::Stderr, b"6");
        let digest = onceward::core::hash::digest(b"123456");
        assert_eq!(body(capture), Body::TooLarge { size: 6, digest });
    }
}
