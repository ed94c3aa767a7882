//! How a webhook is signed: the scheme and its secrets, resolved from `[[inbox]]`. The verification itself is in the server.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderName;
use onceward::core::json::Pointer;

/// A shorter secret can be guessed: from a captured request, an attacker can try guesses without asking the server.
const MIN_SECRET: usize = 16;

/// Providers' secrets have 24 to 64 bytes; a longer text is something else.
const MAX_SECRET: usize = 512;

/// Some providers show their secrets without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A longer prefix or separator is a mistake.
const MAX_AFFIX: usize = 32;

/// What a webhook must be signed with.
#[derive(Clone, Debug)]
pub struct Signing {
    pub scheme: SignatureScheme,
    /// Any one of them may have signed: a secret is rotated by having the old and the new one here for a while.
    pub secrets: Vec<SigningSecret>,
    /// How far the signed time may be from the time of arrival, in both directions.
    pub tolerance: Duration,
}

/// How a provider signs.
#[derive(Clone, Debug)]
pub enum SignatureScheme {
    Stripe,
    Github,
    Slack,
    StandardWebhooks,
    Hmac(HmacHeader),
}

/// An HMAC of the body in a header.
#[derive(Clone, Debug)]
pub struct HmacHeader {
    pub header: HeaderName,
    pub hash: HmacHash,
    pub encoding: HmacEncoding,
    /// What stands in front of the signature.
    pub prefix: String,
    pub timestamp: Option<SignedTime>,
    /// The id of the event in the body.
    pub id: Option<Pointer>,
}

/// The time that is signed in front of the body.
#[derive(Clone, Debug)]
pub struct SignedTime {
    pub header: HeaderName,
    /// What is signed between the time and the body.
    pub separator: String,
}

/// The hash of an HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HmacHash {
    Sha256,
    Sha512,
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HmacEncoding {
    Hex,
    Base64,
}

/// The secret that a provider signs with. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

/// Why a text cannot be a signing secret. The message never shows the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSigningSecret {
    #[error("the secret has fewer than {MIN_SECRET} bytes, so it can be guessed; set a longer one at the provider")]
    TooShort,
    #[error("the secret has more than {MAX_SECRET} bytes; is this the right variable or file?")]
    TooLong,
    #[error("a Standard Webhooks secret is base64, usually after `whsec_`; copy it from the provider again")]
    NotBase64,
    #[error("this is a key pair of Standard Webhooks (`whpk_`, `whsk_`); only shared secrets (`whsec_`) are supported")]
    KeyPair,
}

impl HmacHeader {
    pub fn new(
        header: &str,
        hash: HmacHash,
        encoding: HmacEncoding,
        prefix: &str,
        timestamp: Option<SignedTime>,
        id: Option<&str>,
    ) -> Result<Self, String> {
        let header = header_name("header", header)?;
        if timestamp.as_ref().is_some_and(|timestamp| timestamp.header == header) {
            return Err("`timestamp_header` and `header` are the same header".to_owned());
        }
        if prefix.len() > MAX_AFFIX || !prefix.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
            return Err(format!("`prefix` has at most {MAX_AFFIX} characters, all of them visible ASCII"));
        }
        let id = id.map(Pointer::parse).transpose().map_err(|error| format!("`id`: {error}"))?;
        if id.as_ref().is_some_and(|id| id.segments().is_empty()) {
            return Err("`id` must point to a field of the body, as in \"/id\"".to_owned());
        }
        Ok(Self { header, hash, encoding, prefix: prefix.to_owned(), timestamp, id })
    }
}

impl SignedTime {
    pub fn new(header: &str, separator: &str) -> Result<Self, String> {
        // Without one, or with a digit, the time could end elsewhere in the same signed text.
        if separator.is_empty() || separator.len() > MAX_AFFIX || separator.contains(|c: char| c.is_ascii_digit()) {
            return Err(format!("`separator` has 1 to {MAX_AFFIX} characters, and none of them is a digit"));
        }
        Ok(Self { header: header_name("timestamp_header", header)?, separator: separator.to_owned() })
    }
}

impl HmacHash {
    /// SHA-1 is refused. No HMAC with it has been forged so far, but the hash itself is broken, and providers that still send it for
    /// old receivers, such as GitHub, send SHA-256 beside it: an attacker must not be the one who chooses between the two.
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "sha256" => Ok(Self::Sha256),
            "sha512" => Ok(Self::Sha512),
            "sha1" => {
                Err("`hash`: SHA-1 is broken and not supported; take the provider's header with SHA-256".to_owned())
            }
            _ => Err("`hash` is \"sha256\" or \"sha512\"".to_owned()),
        }
    }
}

impl HmacEncoding {
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "hex" => Ok(Self::Hex),
            "base64" => Ok(Self::Base64),
            _ => Err("`encoding` is \"hex\" or \"base64\"".to_owned()),
        }
    }
}

impl SigningSecret {
    /// The secret in the form that the provider shows it in. Only Standard Webhooks encodes it; Stripe's `whsec_…` is used as it
    /// is written.
    pub fn parse(scheme: &SignatureScheme, text: &str) -> Result<Self, InvalidSigningSecret> {
        let bytes = match scheme {
            SignatureScheme::StandardWebhooks => decoded(text)?,
            _ => text.as_bytes().to_vec(),
        };
        match bytes.len() {
            ..MIN_SECRET => Err(InvalidSigningSecret::TooShort),
            MIN_SECRET..=MAX_SECRET => Ok(Self(bytes)),
            _ => Err(InvalidSigningSecret::TooLong),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}

/// Some providers show the secret with the version of the signature in front: `v1,whsec_…`.
fn decoded(text: &str) -> Result<Vec<u8>, InvalidSigningSecret> {
    if text.starts_with("whpk_") || text.starts_with("whsk_") {
        return Err(InvalidSigningSecret::KeyPair);
    }
    let text = text.strip_prefix("v1,").unwrap_or(text);
    let text = text.strip_prefix("whsec_").unwrap_or(text);
    BASE64.decode(text).map_err(|_| InvalidSigningSecret::NotBase64)
}

fn header_name(field: &str, name: &str) -> Result<HeaderName, String> {
    name.parse().map_err(|_| format!("`{field}` is not the name of a header; write for example \"X-Signature\""))
}
