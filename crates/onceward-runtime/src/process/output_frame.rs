//! Encodes both output streams of a command as one body: segments in order, each with a stream number, a length and the
//! bytes. Pure.

use bytes::Bytes;

/// The media type of such a body.
pub const CONTENT_TYPE: &str = "application/vnd.onceward.run";

/// One byte for the stream and eight for the length, big-endian.
pub const HEADER: usize = 9;

/// An output stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout = 1,
    Stderr = 2,
}

/// Consecutive output on one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub stream: Stream,
    pub bytes: Bytes,
}

pub fn encode<'a>(segments: impl IntoIterator<Item = (Stream, &'a [u8])>) -> Vec<u8> {
    let mut body = Vec::new();
    for (stream, bytes) in segments {
        body.push(stream as u8);
        body.extend((bytes.len() as u64).to_be_bytes());
        body.extend(bytes);
    }
    body
}

/// The segments, or `None` if the body is not in this format.
pub fn decode(body: &Bytes) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut rest = body.clone();
    while !rest.is_empty() {
        if rest.len() < HEADER {
            return None;
        }
        let header = rest.split_to(HEADER);
        let stream = match header[0] {
            1 => Stream::Stdout,
            2 => Stream::Stderr,
            _ => return None,
        };
        let length = u64::from_be_bytes(header[1..].try_into().ok()?);
        let length = usize::try_from(length).ok().filter(|length| *length <= rest.len())?;
        segments.push(Segment { stream, bytes: rest.split_to(length) });
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_restores_the_order_and_every_byte() {
        let all: Vec<u8> = (0..=255).collect();
        let segments =
            [(Stream::Stdout, &all[..]), (Stream::Stderr, b"\n"), (Stream::Stdout, b""), (Stream::Stdout, b"x")];
        let decoded = decode(&encode(segments).into()).unwrap();
        let seen: Vec<_> = decoded.iter().map(|segment| (segment.stream, &segment.bytes[..])).collect();
        assert_eq!(seen, segments);
    }

    #[test]
    fn no_output_is_an_empty_body() {
        assert!(encode([]).is_empty());
        assert_eq!(decode(&Bytes::new()), Some(Vec::new()));
    }

    #[test]
    fn a_truncated_or_foreign_body_is_refused() {
        let body = encode([(Stream::Stdout, &b"hello"[..]), (Stream::Stderr, b"there")]);
        for cut in 1..body.len() {
            let whole = cut == HEADER + 5;
            assert_eq!(decode(&Bytes::copy_from_slice(&body[..cut])).is_some(), whole, "{cut}");
        }
        assert_eq!(decode(&Bytes::from_static(b"{\"a\":1}")), None);
        let mut endless = body.clone();
        endless[1..HEADER].fill(0xff);
        assert_eq!(decode(&endless.into()), None);
    }
}
