//! Splits server-sent events without changing a byte.

use bytes::{Bytes, BytesMut};

/// The largest event. A larger one is forwarded in pieces and not parsed.
const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

/// One event, with the empty line at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event(pub(super) Bytes);

/// Turns bytes, in any pieces, into events.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    buffer: BytesMut,
    /// No end of an event was found before this offset.
    seen: usize,
}

impl EventParser {
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event.
    pub(super) fn next(&mut self) -> Option<Event> {
        if let Some(end) = self.end() {
            self.seen = 0;
            return Some(Event(self.buffer.split_to(end).freeze()));
        }
        if self.buffer.len() > MAX_EVENT_BYTES {
            self.seen = 0;
            return Some(Event(self.buffer.split().freeze()));
        }
        None
    }

    /// The incomplete rest at the end of the stream.
    pub(super) fn rest(&mut self) -> Option<Event> {
        self.seen = 0;
        (!self.buffer.is_empty()).then(|| Event(self.buffer.split().freeze()))
    }

    /// Where the first event ends: after an empty line, with any line ending.
    fn end(&mut self) -> Option<usize> {
        let bytes = &self.buffer[..];
        // An end is at most four bytes long.
        for at in self.seen.saturating_sub(3)..bytes.len() {
            let rest = &bytes[at..];
            let length = match rest {
                [b'\n', b'\n', ..] | [b'\r', b'\r', ..] => 2,
                [b'\n', b'\r', b'\n', ..] => 3,
                [b'\r', b'\n', b'\r', b'\n', ..] => 4,
                _ => continue,
            };
            return Some(at + length);
        }
        self.seen = bytes.len();
        None
    }
}

impl Event {
    /// An event with one message in it.
    pub(super) fn of(message: &[u8], id: Option<&str>) -> Self {
        let mut event = b"event: message\n".to_vec();
        if let Some(id) = id {
            event.extend_from_slice(format!("id: {id}\n").as_bytes());
        }
        put_data(&mut event, message);
        Self(event.into())
    }

    /// The same event with another message. All other fields stay.
    pub(super) fn with_message(&self, message: &[u8]) -> Self {
        let mut event = Vec::new();
        for line in self.0.split(|byte| matches!(byte, b'\n' | b'\r')) {
            if !line.is_empty() && !is_field(line, b"data") {
                event.extend_from_slice(line);
                event.push(b'\n');
            }
        }
        put_data(&mut event, message);
        Self(event.into())
    }

    /// The message; `None` for events without one, such as keep-alive comments.
    pub(super) fn data(&self) -> Option<Vec<u8>> {
        let lines: Vec<_> = self.fields("data").collect();
        (!lines.is_empty()).then(|| lines.join(&b'\n'))
    }

    /// The id with which a reader can resume after this event.
    pub(super) fn id(&self) -> Option<String> {
        let id = self.fields("id").last()?;
        String::from_utf8(id.to_vec()).ok().filter(|id| !id.is_empty())
    }

    /// The reconnect delay, in milliseconds.
    pub(super) fn retry(&self) -> Option<u64> {
        std::str::from_utf8(self.fields("retry").last()?).ok()?.parse().ok()
    }

    fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0.split(|byte| matches!(byte, b'\n' | b'\r')).filter_map(move |line| {
            let rest = line.strip_prefix(name.as_bytes())?;
            match rest {
                [] => Some(rest),
                [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
                _ => None,
            }
        })
    }
}

/// Whether a line belongs to this field.
fn is_field(line: &[u8], name: &[u8]) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(b":"))
}

/// Appends a message and the end of its event.
fn put_data(event: &mut Vec<u8>, message: &[u8]) {
    for line in message.trim_ascii_end().split(|byte| *byte == b'\n') {
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(line);
        event.push(b'\n');
    }
    event.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pieces: &[&str]) -> Vec<String> {
        let mut events = EventParser::default();
        let mut taken = Vec::new();
        for piece in pieces {
            events.put(piece.as_bytes());
            taken
                .extend(std::iter::from_fn(|| events.next()).map(|event| String::from_utf8(event.0.to_vec()).unwrap()));
        }
        taken.extend(events.rest().map(|event| format!("rest {}", String::from_utf8(event.0.to_vec()).unwrap())));
        taken
    }

    #[test]
    fn events_are_complete_wherever_the_stream_is_cut() {
        let text = "data: a\n\n: ping\r\n\r\nid: 7\ndata: b\ndata:c\n\nevent: x\rdata: d\r\rdata: e";
        let whole = parsed(&[text]);
        assert_eq!(whole.len(), 5);
        assert_eq!(whole.concat().replace("rest ", ""), text);
        for cut in 1..text.len() {
            // A lone CR at a cut may be the first half of CRLF.
            let pieces = parsed(&[&text[..cut], &text[cut..]]);
            assert_eq!(pieces.concat().replace("rest ", ""), text, "{cut}");
        }
        let bytes: Vec<_> = (0..text.len()).map(|at| &text[at..=at]).collect();
        assert_eq!(parsed(&bytes).concat().replace("rest ", ""), text);
    }

    #[test]
    fn fields_are_read_as_the_standard_says() {
        let event = Event(Bytes::from_static(b"id: 7\nretry: 250\ndata: b\r\ndata:c\ndatum: x\n\n"));
        assert_eq!(
            (event.data().unwrap(), event.id(), event.retry()),
            (b"b\nc".to_vec(), Some("7".to_owned()), Some(250))
        );
        assert_eq!(Event(Bytes::from_static(b": ping\n\n")).data(), None);
        let changed = event.with_message(b"{}\n");
        assert_eq!(changed.0, "id: 7\nretry: 250\ndatum: x\ndata: {}\n\n");
        let made = Event::of(b"{\"a\":1}\n", Some("9"));
        assert_eq!((made.data().unwrap(), made.id().unwrap()), (b"{\"a\":1}".to_vec(), "9".to_owned()));
    }
}
