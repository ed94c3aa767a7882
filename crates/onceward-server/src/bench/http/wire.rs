//! Requests and answers as bytes. Requests are made once and only their key changes; of an answer as much is read as it
//! takes to know that it is the right one.

use super::case::Keys;

pub(super) const PATH: &str = "/v1/charges";
pub(super) const JSON: &str = "application/json";

/// About a small payment. The service sends it back.
const BODY: &str = r#"{"amount":4200,"currency":"eur","customer":"cus_NffrFeUfNV2Hib","description":"order 17","metadata":{"order":"17"}}"#;

/// The header whose value is the key, which ends with a number of this many digits.
const KEY: &str = "Idempotency-Key: \"bench-";
const DIGITS: usize = 16;

/// A request, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
    /// Where the number of its key is.
    number: Option<usize>,
}

impl Request {
    /// What any client of an API sends.
    pub(super) fn new(host: &str, keys: Keys) -> Self {
        let mut text = format!(
            "POST {PATH} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: onceward-bench\r\nAccept: */*\r\n\
             Authorization: Bearer sk_test_4eC39HqLyjWDarjtT1zdp7dc\r\nContent-Type: {JSON}\r\n\
             Content-Length: {}\r\n",
            BODY.len()
        );
        let number = (keys != Keys::None).then(|| {
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

/// Looks at what has come so far. `Ok(None)`: there is more to come. `Ok(Some(length))`: this many bytes are the answer
/// that was wanted. Otherwise, what is wrong with it.
pub(super) fn answer(bytes: &[u8], replayed: bool) -> Result<Option<usize>, String> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
    let mut lines = bytes[..head].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    if !lines.next().is_some_and(|line| line.starts_with(b"HTTP/1.1 200")) {
        return Err(format!("a request was not answered with 200:\n{}", shown()));
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
        let what = if repeat { "is a repeat and should not be" } else { "is not a repeat and should be" };
        return Err(format!("an answer {what}:\n{}", shown()));
    }
    let from = head + 4;
    match length {
        Some(length) if length != BODY.len() => Err(format!("an answer has another length:\n{}", shown())),
        None => Err(format!("an answer has no length:\n{}", shown())),
        Some(length) if bytes.len() < from + length => Ok(None),
        Some(length) if bytes[from..] != *BODY.as_bytes() => {
            Err(format!("{length} bytes came, not ours:\n{}", shown()))
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
        let mut request = Request::new("h:1", Keys::Fresh);
        let first = String::from_utf8(request.numbered(0xbeef).to_vec()).unwrap();
        assert!(first.contains("Idempotency-Key: \"bench-000000000000beef\"\r\n"), "{first}");
        let second = String::from_utf8(request.numbered(u64::MAX).to_vec()).unwrap();
        assert_eq!(second.replace("ffffffffffffffff", "000000000000beef"), first);
        assert!(!String::from_utf8_lossy(Request::new("h:1", Keys::None).numbered(7)).contains("Idempotency-Key"));
    }

    fn told(status: u16, headers: &str, body: &str) -> Vec<u8> {
        format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
    }

    #[test]
    fn an_answer_is_taken_when_all_of_it_is_there() {
        let whole = told(200, "Server: x\r\n", BODY);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length], false), Ok(None), "{length}");
        }
        assert_eq!(answer(&whole, false), Ok(Some(whole.len())));
        let repeat = told(200, "idempotent-replayed: true\r\n", BODY);
        assert_eq!(answer(&repeat, true), Ok(Some(repeat.len())));
    }

    #[test]
    fn a_wrong_answer_is_told() {
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
