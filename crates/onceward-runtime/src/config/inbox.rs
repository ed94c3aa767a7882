//! `[[inbox]]`: webhooks to receive, how each one is signed, and where its secrets are. The doc comments here become the
//! reference page.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use onceward::core::name::{Operation, Tenant};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::secret::Secret;
use super::signing::{HmacEncoding, HmacHash, HmacHeader, SignatureScheme, SignedTime, Signing, SigningSecret};
use super::values::Length;
use crate::exit::Fault;

/// What the providers' own libraries tolerate: clocks differ, and a delivery may wait in a queue.
const DEFAULT_TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// Longer than any clock is wrong by; a captured request could be replayed for as long.
const LONGEST_TOLERANCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Two while a secret is rotated; a few more for an endpoint that several accounts share. Each costs a hash of the body before
/// the sender is known.
const MAX_SECRETS: usize = 4;

/// A path is compared with every request.
const MAX_PATH_LENGTH: usize = 255;

/// Paths of the API and the gateway, which share the listener.
const TAKEN_PATHS: [&str; 4] = ["/v1/", "/.well-known/", "/healthz", "/readyz"];

/// One webhook to receive: its signature is verified, and the event is recorded once and then delivered.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Inbox {
    /// The path that the provider posts to. It must match exactly.
    #[schemars(extend("x-type" = "string", "x-default" = "required"))]
    pub path: String,
    /// How the provider signs.
    #[schemars(extend("x-default" = "required"))]
    pub scheme: SchemeName,
    /// Where the signing secret is: `"env:NAME"` or `"file:PATH"`; a list while the secret is rotated, at most 4. A relative path
    /// starts at the folder of this file.
    #[schemars(extend("x-type" = "reference to a secret, or a list", "x-default" = "required"))]
    #[schemars(with = "String")]
    pub secret: SecretReferences,
    /// The operation that an event becomes an intent of.
    #[schemars(extend("x-type" = "string", "x-default" = "required"))]
    pub operation: String,
    /// How far the signed time may be from the time of arrival, in both directions. At most `24h`. GitHub signs no time.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"5m\"`"))]
    pub tolerance: Option<Length>,
    /// The tenant that events belong to.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"default\"`"))]
    pub tenant: Option<String>,
    /// What is signed and where the signature is, for `scheme = "hmac"`.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub hmac: Option<HmacTable>,
}

/// A signature scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchemeName {
    /// `Stripe-Signature`.
    Stripe,
    /// `X-Hub-Signature-256`.
    Github,
    /// `X-Slack-Signature`.
    Slack,
    /// `webhook-signature` as in Standard Webhooks, also under Svix's names (`svix-signature`).
    StandardWebhooks,
    /// Any other header with an HMAC of the body: see `hmac`.
    Hmac,
}

/// An HMAC of the body in a header.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct HmacTable {
    /// The header with the signature.
    #[schemars(extend("x-type" = "string", "x-default" = "required"))]
    pub header: String,
    /// The hash: `sha256` or `sha512`. SHA-1 is refused.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"sha256\"`"))]
    pub hash: Option<String>,
    /// How the signature is written: `hex` or `base64`.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"hex\"`"))]
    pub encoding: Option<String>,
    /// What stands in front of the signature, such as `sha256=`.
    #[schemars(extend("x-type" = "string", "x-default" = "none"))]
    pub prefix: Option<String>,
    /// A header with the time of the delivery in seconds since 1970, which is signed in front of the body. Without one, a
    /// captured request can be replayed once its key is forgotten.
    #[schemars(extend("x-type" = "string", "x-default" = "none"))]
    pub timestamp_header: Option<String>,
    /// What is signed between the time and the body.
    #[schemars(extend("x-type" = "string", "x-default" = "`\".\"`"))]
    pub separator: Option<String>,
    /// The JSON pointer to the id of the event in the body. Without one, the digest of the body identifies the event.
    #[schemars(extend("x-type" = "JSON pointer", "x-default" = "none"))]
    pub id: Option<String>,
}

/// One reference to a secret, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretReferences(pub Vec<Secret>);

/// One webhook to receive, with its secrets.
#[derive(Clone, Debug)]
pub struct InboxSettings {
    pub path: String,
    pub operation: Operation,
    pub tenant: Tenant,
    pub signing: Signing,
}

impl Inbox {
    /// Checks that types cannot express: the number of the table, the field, and what is wrong.
    pub fn mistakes(inboxes: &[Self]) -> Vec<(usize, &'static str, String)> {
        let mut mistakes = Vec::new();
        let mut paths = BTreeMap::new();
        for (number, inbox) in inboxes.iter().enumerate() {
            mistakes.extend(inbox.wrong().into_iter().map(|(field, what)| (number, field, what)));
            if let Some(earlier) = paths.insert(inbox.path.as_str(), number) {
                mistakes.push((number, "path", format!("inbox[{earlier}] already has this path")));
            }
        }
        mistakes
    }

    fn wrong(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        wrong.extend(wrong_path(&self.path).map(|what| ("path", what)));
        if let Err(error) = Operation::new(&self.operation) {
            wrong.push(("operation", error.to_string()));
        }
        if let Some(Err(error)) = self.tenant.as_ref().map(Tenant::new) {
            wrong.push(("tenant", error.to_string()));
        }
        if self.tolerance.is_some_and(|length| length.0.is_zero() || length.0 > LONGEST_TOLERANCE) {
            wrong.push(("tolerance", "a tolerance is longer than 0 and at most 24h".to_owned()));
        }
        let signs_time = match &self.hmac {
            Some(hmac) => hmac.timestamp_header.is_some(),
            None => self.scheme != SchemeName::Github,
        };
        if self.tolerance.is_some() && !signs_time {
            wrong.push(("tolerance", "no time is signed here, so there is nothing to compare; remove it".to_owned()));
        }
        if self.secret.0.is_empty() || self.secret.0.len() > MAX_SECRETS {
            wrong.push(("secret", format!("write 1 to {MAX_SECRETS} references")));
        }
        if self.secret.0.iter().any(|secret| matches!(secret, Secret::Hashed(_))) {
            let what = "a hash is not enough to verify a signature: write \"env:NAME\" or \"file:PATH\"";
            wrong.push(("secret", what.to_owned()));
        }
        if let Err(what) = self.scheme() {
            wrong.push(("hmac", what));
        }
        wrong
    }

    /// Reads the secrets. A relative path starts at `folder`. `number` is the place of the table in the file.
    pub fn settings(&self, number: usize, folder: &Path) -> Result<InboxSettings, Fault> {
        let wrong = |field: &str, what: String| Fault::config(format!("inbox[{number}].{field}: {what}"));
        if let Some((field, what)) = self.wrong().into_iter().next() {
            return Err(wrong(field, what));
        }
        let scheme = self.scheme().map_err(|what| wrong("hmac", what))?;
        let mut secrets = Vec::new();
        for reference in &self.secret.0 {
            let text = reference.text(folder).map_err(|what| wrong("secret", what))?;
            secrets.push(SigningSecret::parse(&scheme, &text).map_err(|error| wrong("secret", error.to_string()))?);
        }
        let tenant = self.tenant.as_ref().map(Tenant::new).transpose();
        Ok(InboxSettings {
            path: self.path.clone(),
            operation: Operation::new(&self.operation).map_err(|error| wrong("operation", error.to_string()))?,
            tenant: tenant.map_err(|error| wrong("tenant", error.to_string()))?.unwrap_or_default(),
            signing: Signing {
                scheme,
                secrets,
                tolerance: self.tolerance.map_or(DEFAULT_TOLERANCE, |tolerance| tolerance.0),
            },
        })
    }

    fn scheme(&self) -> Result<SignatureScheme, String> {
        match (self.scheme, &self.hmac) {
            (SchemeName::Hmac, Some(table)) => table.header().map(SignatureScheme::Hmac),
            (SchemeName::Hmac, None) => {
                Err("scheme \"hmac\" needs this table: write `[inbox.hmac]`, and `header = \"…\"` below it".to_owned())
            }
            (_, Some(_)) => Err("only scheme \"hmac\" has this table; remove it, or change `scheme`".to_owned()),
            (SchemeName::Stripe, None) => Ok(SignatureScheme::Stripe),
            (SchemeName::Github, None) => Ok(SignatureScheme::Github),
            (SchemeName::Slack, None) => Ok(SignatureScheme::Slack),
            (SchemeName::StandardWebhooks, None) => Ok(SignatureScheme::StandardWebhooks),
        }
    }
}

impl HmacTable {
    fn header(&self) -> Result<HmacHeader, String> {
        let separator = self.separator.as_deref();
        let timestamp = match (&self.timestamp_header, separator) {
            (Some(header), separator) => Some(SignedTime::new(header, separator.unwrap_or("."))?),
            (None, Some(_)) => return Err("`separator` needs `timestamp_header`".to_owned()),
            (None, None) => None,
        };
        HmacHeader::new(
            &self.header,
            HmacHash::named(self.hash.as_deref().unwrap_or("sha256"))?,
            HmacEncoding::named(self.encoding.as_deref().unwrap_or("hex"))?,
            self.prefix.as_deref().unwrap_or_default(),
            timestamp,
            self.id.as_deref(),
        )
    }
}

fn wrong_path(path: &str) -> Option<String> {
    if !path.starts_with('/') || path.len() > MAX_PATH_LENGTH {
        return Some(format!("a path begins with `/` and has at most {MAX_PATH_LENGTH} characters"));
    }
    if let Some(unusable) = path.chars().find(|c| !c.is_ascii_graphic() || "*?#%{}\\".contains(*c)) {
        return Some(format!("{unusable:?} cannot be in this path, which must match exactly"));
    }
    // Proxies in front may tidy such a path up, and then it never matches.
    if path.contains("//") || path.split('/').any(|segment| segment == "." || segment == "..") {
        return Some("a path has no empty segments, `.` or `..`".to_owned());
    }
    let taken = TAKEN_PATHS.iter().find(|taken| path.starts_with(*taken))?;
    Some(format!("`{taken}` belongs to the API and the gateway; write for example `/hooks/stripe`"))
}

impl<'de> Deserialize<'de> for SecretReferences {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = SecretReferences;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"env:NAME\", \"file:PATH\", or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SecretReferences, E> {
                text.parse().map(|secret| SecretReferences(vec![secret])).map_err(E::custom)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<SecretReferences, A::Error> {
                let mut secrets = Vec::new();
                while let Some(secret) = list.next_element()? {
                    secrets.push(secret);
                }
                Ok(SecretReferences(secrets))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests;
