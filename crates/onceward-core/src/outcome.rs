//! What is kept of finished work and given to every repeat.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::hash::{Digest, Fields, digest};

/// Whether the effect took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The effect took place.
    Success,
    /// The effect did not take place, and the same request would fail the same way again.
    Failure,
}

/// The outcome of an intent: success or final failure, with what a repeat is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether the effect took place.
    pub verdict: Verdict,
    /// The surface's own status: an HTTP status, an exit code, or 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub status: i32,
    /// What the body is: a media type.
    pub content_type: String,
    /// Further headers that are safe to replay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The bytes themselves, exactly as they were given.
    pub body: Body,
}

/// The body of an outcome, or what is known of one that was too large to keep.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "BodyText", try_from = "BodyText")]
pub enum Body {
    /// The bytes, never re-serialised.
    Kept(Bytes),
    /// The work is done and will not run again, but its answer was over the limit.
    TooLarge {
        /// How many bytes there were.
        size: u64,
        /// Their SHA-256.
        digest: Digest,
    },
}

/// How a body is written in JSON: as text where it is text.
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

/// Both parts of a media type have at most 127 characters (RFC 6838), and a slash between them.
const LONGEST_MEDIA_TYPE: usize = 255;

/// The media type of a value that was serialised as JSON.
pub const JSON: &str = "application/json";

impl Outcome {
    /// A success whose answer is JSON text.
    pub fn success(body: impl Into<Bytes>) -> Self {
        Self::of(Verdict::Success, JSON, body)
    }

    /// A final failure whose answer is JSON text.
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
        }
    }

    /// The same outcome with the surface's own status.
    pub fn with_status(mut self, status: i32) -> Self {
        self.status = status;
        self
    }

    /// How many bytes of it count towards a limit: the body, the headers, and a media type that is longer than any real one.
    pub fn size(&self) -> usize {
        let body = match &self.body {
            Body::Kept(bytes) => bytes.len(),
            Body::TooLarge { .. } => 0,
        };
        body + self.header_size() + self.content_type.len().saturating_sub(LONGEST_MEDIA_TYPE)
    }

    fn header_size(&self) -> usize {
        self.headers.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The same outcome, without its contents when it is over `limit` bytes: the body is replaced by size and digest.
    /// Headers stay if they are within the limit by themselves, so that the digest of the outcome stays the same.
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
        if self.content_type.len() > LONGEST_MEDIA_TYPE {
            self.content_type = "application/octet-stream".to_owned();
        }
        self
    }

    /// The digest that a tombstone keeps: two outcomes with one digest are the same answer.
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
    fn a_body_over_the_limit_keeps_its_digest_so_the_outcome_stays_the_same_answer() {
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
    fn only_a_status_that_says_something_is_written() {
        let json = |status| serde_json::to_string(&Outcome::success("1").with_status(status)).unwrap();
        assert!(!json(0).contains("status"), "{}", json(0));
        assert!(json(3).contains("\"status\":3"), "{}", json(3));
    }

    #[test]
    fn bytes_that_are_no_text_survive_json() {
        let outcome = Outcome::of(Verdict::Success, "application/octet-stream", vec![0u8, 159, 146, 150]);
        let json = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome);
        assert!(serde_json::from_str::<Body>(r#"{"hex":"abc"}"#).is_err());
    }
}
