//! The outcome of finished work, which is kept and replayed to every repeat.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::hash::{Digest, Fields, digest};

/// Whether the effect happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The effect happened.
    Success,
    /// The effect did not happen, and the same request would fail in the same way again.
    Failure,
}

/// The outcome of an intent: success or final failure, with the content that a repeat gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether the effect happened.
    pub verdict: Verdict,
    /// The surface's own status: an HTTP status, an exit code, or 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub status: i32,
    /// The media type of the body.
    pub content_type: String,
    /// Further headers that are safe to replay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body, byte for byte.
    pub body: Body,
    /// The id that the downstream gave the effect, by which it can be found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// The body of an outcome, or size and digest of a body that was too large to keep.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "BodyText", try_from = "BodyText")]
pub enum Body {
    /// The bytes, never re-serialised.
    Kept(Bytes),
    /// The work is done and will not run again, but its body was over the limit.
    TooLarge {
        /// The size in bytes.
        size: u64,
        /// Their SHA-256.
        digest: Digest,
    },
}

/// The JSON form of a body: text if it is valid UTF-8, hex otherwise.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BodyText {
    Text(String),
    Hex(String),
    TooLarge { size: u64, digest: Digest },
}

impl From<Body> for BodyText {
    fn from(body: Body) -> Self {
        match body {
            Body::TooLarge { size, digest } => Self::TooLarge { size, digest },
            Body::Kept(bytes) => match std::str::from_utf8(&bytes) {
                Ok(text) => Self::Text(text.to_owned()),
                Err(_) => Self::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            },
        }
    }
}

impl TryFrom<BodyText> for Body {
    type Error = &'static str;

    fn try_from(text: BodyText) -> Result<Self, Self::Error> {
        match text {
            BodyText::TooLarge { size, digest } => Ok(Self::TooLarge { size, digest }),
            BodyText::Text(text) => Ok(Self::Kept(Bytes::from(text))),
            BodyText::Hex(hex) => {
                let digits: Option<Vec<u8>> = hex.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
                let digits = digits.filter(|d| d.len() % 2 == 0).ok_or("a body in hex needs pairs of hex digits")?;
                Ok(Self::Kept(digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect()))
            }
        }
    }
}

/// Both parts of a media type have at most 127 characters (RFC 6838), with a slash between them.
const MAX_MEDIA_TYPE: usize = 255;

/// The ids of providers have a few dozen bytes. Longer values are not ids, and would make the index of a store slow.
pub const MAX_REFERENCE: usize = 255;

/// The media type of a value that was serialised as JSON.
pub const JSON: &str = "application/json";

impl Outcome {
    /// A success with a JSON body.
    pub fn success(body: impl Into<Bytes>) -> Self {
        Self::of(Verdict::Success, JSON, body)
    }

    /// A final failure with a JSON body.
    pub fn failure(body: impl Into<Bytes>) -> Self {
        Self::of(Verdict::Failure, JSON, body)
    }

    /// An outcome with a body of any type.
    pub fn of(verdict: Verdict, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self {
            verdict,
            status: 0,
            content_type: content_type.to_owned(),
            headers: Vec::new(),
            body: Body::Kept(body.into()),
            reference: None,
        }
    }

    /// The same outcome with the id that the downstream gave the effect. An id that is too long to be one is left out.
    pub fn with_reference(mut self, reference: Option<String>) -> Self {
        self.reference = reference.filter(|reference| !reference.is_empty() && reference.len() <= MAX_REFERENCE);
        self
    }

    /// The same outcome with the surface's own status.
    pub fn with_status(mut self, status: i32) -> Self {
        self.status = status;
        self
    }

    /// The number of bytes that count towards the limit: the body, the headers, and the excess of an overlong media type.
    pub fn size(&self) -> usize {
        let body = match &self.body {
            Body::Kept(bytes) => bytes.len(),
            Body::TooLarge { .. } => 0,
        };
        body + self.header_size() + self.content_type.len().saturating_sub(MAX_MEDIA_TYPE)
    }

    fn header_size(&self) -> usize {
        self.headers.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The same outcome, reduced if it is over `limit` bytes: the body is replaced by its size and digest. Headers stay if they
    /// are within the limit themselves, so that the digest of the outcome stays the same.
    pub fn within(mut self, limit: usize) -> Self {
        if self.size() <= limit {
            return self;
        }
        if let Body::Kept(bytes) = &self.body {
            self.body = Body::TooLarge { size: bytes.len() as u64, digest: digest(bytes) };
        }
        if self.header_size() > limit {
            self.headers = Vec::new();
        }
        if self.content_type.len() > MAX_MEDIA_TYPE {
            self.content_type = "application/octet-stream".to_owned();
        }
        self
    }

    /// The digest that a tombstone keeps: equal outcomes have equal digests.
    pub fn digest(&self) -> Digest {
        let verdict: &[u8] = match self.verdict {
            Verdict::Success => b"success",
            Verdict::Failure => b"failure",
        };
        let body = match &self.body {
            Body::Kept(bytes) => digest(bytes),
            Body::TooLarge { digest, .. } => *digest,
        };
        let fields = Fields::new()
            .field(b"outcome v1")
            .field(verdict)
            .field(self.status.to_be_bytes())
            .field(self.content_type.as_bytes())
            .field(body.as_bytes());
        self.headers
            .iter()
            .fold(fields, |fields, (name, value)| fields.field(name.as_bytes()).field(value.as_bytes()))
            .digest()
    }
}

fn is_zero(status: &i32) -> bool {
    *status == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_body_over_the_limit_does_not_change_the_digest_of_the_outcome() {
        let whole = Outcome::success(vec![b'x'; 10]);
        let cut = whole.clone().within(9);
        assert_eq!(cut.body, Body::TooLarge { size: 10, digest: digest(&[b'x'; 10]) });
        assert_eq!(cut.digest(), whole.digest());
        assert_eq!(whole.clone().within(10), whole);
    }

    #[test]
    fn headers_count_towards_the_limit_like_the_body() {
        let with_headers = |bytes: usize| {
            let mut outcome = Outcome::success("x");
            outcome.headers = vec![("name".into(), "v".repeat(bytes - 4))];
            outcome
        };
        assert_eq!(with_headers(9).within(10), with_headers(9));
        let cut = with_headers(10).within(10);
        assert_eq!(cut.body, Body::TooLarge { size: 1, digest: digest(b"x") });
        assert_eq!(cut.digest(), with_headers(10).digest());
        assert_eq!(with_headers(1000).within(10).headers, []);
        let typed = Outcome::of(Verdict::Success, &"t".repeat(300), "x").within(10);
        assert!(matches!(typed.body, Body::TooLarge { .. }) && typed.content_type.len() < 255);
    }

    #[test]
    fn verdict_status_type_headers_and_body_each_change_the_digest() {
        let base = Outcome::success("1");
        let mut header = base.clone();
        header.headers.push(("a".into(), "b".into()));
        let others = [
            Outcome::failure("1"),
            Outcome::success("2"),
            base.clone().with_status(1),
            Outcome::of(Verdict::Success, "text/plain", "1"),
            header,
        ];
        for other in others {
            assert_ne!(other.digest(), base.digest(), "{other:?}");
        }
    }

    #[test]
    fn a_status_of_zero_is_not_serialised() {
        let json = |status| serde_json::to_string(&Outcome::success("1").with_status(status)).unwrap();
        assert!(!json(0).contains("status"), "{}", json(0));
        assert!(json(3).contains("\"status\":3"), "{}", json(3));
    }

    #[test]
    fn a_binary_body_round_trips_through_json() {
        let outcome = Outcome::of(Verdict::Success, "application/octet-stream", vec![0u8, 159, 146, 150]);
        let json = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome);
        assert!(serde_json::from_str::<Body>(r#"{"hex":"abc"}"#).is_err());
    }
}
