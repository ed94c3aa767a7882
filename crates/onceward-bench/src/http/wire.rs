//! Requests and responses as bytes. A request is built once and only its key changes; a response is parsed only as far as
//! needed to check it.

use super::case::KeyChoice;

pub(super) const PATH: &str = "/v1/charges";
pub(super) const JSON: &str = "application/json";

/// About the size of a small payment. The service echoes it.
const BODY: &str = r#"{"amount":4200,"currency":"eur","customer":"cus_NffrFeUfNV2Hib","description":"order 17","metadata":{"order":"17"}}"#;

/// The header with the key, which ends with a number of this many digits.
const KEY: &str = "Idempotency-Key: \"bench-";
const DIGITS: usize = 16;

/// A request, ready to send.
#[derive(Clone, Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
    /// The position of the number in the key.
    number: Option<usize>,
}

impl Request {
    /// A typical API request.
    pub(super) fn new(host: &str, keys: KeyChoice) -> Self {
        let mut text = format!(
            "POST {PATH} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: onceward-bench\r\nAccept: */*\r\n\
             Authorization: Bearer sk_test_4eC39HqLyjWDarjtT1zdp7dc\r\nContent-Type: {JSON}\r\n\
             Content-Length: {}\r\n",
            BODY.len()
        );
        let number = (keys != KeyChoice::None).then(|| {
            text.push_str(KEY);
            let at = text.len();
            text.push_str(&"0".repeat(DIGITS));
            text.push_str("\"\r\n");
            at
        });
        text.push_str("\r\n");
        text.push_str(BODY);
        Self { bytes: text.into_bytes(), number }
    }

    /// The bytes, with this number in the key.
    pub(super) fn numbered(&mut self, number: u64) -> &[u8] {
        if let Some(at) = self.number {
            let digits = self.bytes[at..at + DIGITS].iter_mut().rev();
            let mut rest = number;
            for digit in digits {
                *digit = b"0123456789abcdef"[(rest & 15) as usize];
                rest >>= 4;
            }
        }
        &self.bytes
    }
}

/// Checks the bytes received so far. `Ok(None)`: incomplete. `Ok(Some(length))`: the expected response, with this length.
/// `Err`: a wrong response.
pub(super) fn answer(bytes: &[u8], replayed: bool) -> Result<Option<usize>, String> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
    let mut lines = bytes[..head].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    if !lines.next().is_some_and(|line| line.starts_with(b"HTTP/1.1 200")) {
        return Err(format!("a response has another status than 200:\n{}", shown()));
    }
    let (mut length, mut repeat) = (None, false);
    for line in lines {
        if let Some(value) = after(line, b"content-length:") {
            length = std::str::from_utf8(value).ok().and_then(|value| value.parse::<usize>().ok());
        } else if let Some(value) = after(line, b"idempotent-replayed:") {
            repeat = value == b"true";
        }
    }
    if repeat != replayed {
        let what = if repeat { "is a replay and should not be" } else { "is not a replay and should be" };
        return Err(format!("a response {what}:\n{}", shown()));
    }
    let from = head + 4;
    match length {
        Some(length) if length != BODY.len() => Err(format!("a response has the wrong length:\n{}", shown())),
        None => Err(format!("a response has no length:\n{}", shown())),
        Some(length) if bytes.len() < from + length => Ok(None),
        Some(length) if bytes[from..] != *BODY.as_bytes() => {
            Err(format!("a response has {length} bytes that differ from the request:\n{}", shown()))
        }
        Some(length) => Ok(Some(from + length)),
    }
}

fn after<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_number_of_the_key_changes() {
        let mut request = Request::new("h:1", KeyChoice::Fresh);
        let first = String::from_utf8(request.numbered(0xbeef).to_vec()).unwrap();
        assert!(first.contains("Idempotency-Key: \"bench-000000000000beef\"\r\n"), "{first}");
        let second = String::from_utf8(request.numbered(u64::MAX).to_vec()).unwrap();
        assert_eq!(second.replace("ffffffffffffffff", "000000000000beef"), first);
        assert!(!String::from_utf8_lossy(Request::new("h:1", KeyChoice::None).numbered(7)).contains("Idempotency-Key"));
    }

    fn told(status: u16, headers: &str, body: &str) -> Vec<u8> {
        format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
    }

    #[test]
    fn a_response_is_accepted_when_it_is_complete() {
        let whole = told(200, "Server: x\r\n", BODY);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length], false), Ok(None), "{length}");
        }
        assert_eq!(answer(&whole, false), Ok(Some(whole.len())));
        let repeat = told(200, "idempotent-replayed: true\r\n", BODY);
        assert_eq!(answer(&repeat, true), Ok(Some(repeat.len())));
    }

    #[test]
    fn a_wrong_response_is_reported() {
        let other = BODY.replace("4200", "4201");
        for (bytes, replayed) in [
            (told(500, "", BODY), false),
            (told(200, "Idempotent-Replayed: true\r\n", BODY), false),
            (told(200, "", BODY), true),
            (told(200, "", &other), false),
            (told(200, "", "{}"), false),
            (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), false),
            ([told(200, "", BODY), b"more".to_vec()].concat(), false),
        ] {
            assert!(answer(&bytes, replayed).is_err(), "{}", String::from_utf8_lossy(&bytes));
        }
    }
}
