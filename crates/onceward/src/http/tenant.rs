//! Finds the tenant of a request from its headers. A replay is answered without asking the upstream, so this check has to be
//! as good as the upstream's own.

use std::fmt;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName};
use http::request;

use crate::plant::{Plant, planted};
use onceward_core::hash::{Digest, digest, hmac};

use super::problem::{Kind, Problem};

/// Derives tenant names from credentials. Without a secret the name is a plain hash, and a reader of the ledger can confirm a
/// guess of a credential. With a secret, only a reader who knows the secret can.
#[derive(Clone, Default)]
pub struct TenantNames {
    secret: Option<Arc<[u8]>>,
}

impl TenantNames {
    /// Names keyed with this secret. With another secret, every credential becomes another tenant.
    pub fn keyed(secret: &[u8]) -> Self {
        Self { secret: Some(secret.into()) }
    }

    /// The name of the tenant whose credential has this digest: the first 128 bits, enough to make collisions infeasible.
    pub fn name(&self, prefix: &str, credential: Digest) -> String {
        let named = match &self.secret {
            Some(secret) => hmac(secret, credential.as_bytes()),
            None => credential,
        };
        format!("{prefix}{}", &named.to_hex()[..32])
    }
}

impl fmt::Debug for TenantNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantNames").field("keyed", &self.secret.is_some()).finish()
    }
}

/// A tenant name from a hash of the credential: for API keys that stay the same. `instead` is the advice in the problem for
/// credentials that change.
pub fn of_authorization(parts: &request::Parts, names: &TenantNames, instead: &str) -> Result<String, Problem> {
    let credential = of_header(parts, &AUTHORIZATION)?;
    let (scheme, token) = match credential.split_once(' ') {
        Some((scheme, token)) => (scheme.to_ascii_lowercase(), token.trim()),
        None => (String::new(), credential.as_str()),
    };
    let token = if planted(Plant::CallersShareKeys) { "" } else { token };
    let changing = if is_jwt(token) {
        "This is a JSON Web Token. A refreshed one"
    } else if is_paseto(token) {
        "This is a PASETO token. A refreshed one"
    } else if is_signed(&scheme) {
        "This credential is valid for one request. That of its retry"
    } else {
        return Ok(names.name("auth:", digest(format!("{scheme} {token}").as_bytes())));
    };
    let detail = format!("{changing} would be another tenant and would not find its earlier keys. {instead}");
    Err(Problem::because(Kind::BadCredential, detail))
}

/// Schemes whose credential is signed for each request, or negotiated again in each exchange.
const SIGNED: [&str; 10] =
    ["digest", "gnap", "hawk", "mac", "negotiate", "ntlm", "oauth", "scram-sha-1", "scram-sha-256", "signature"];

/// Parts of the names of schemes that sign each request, as clouds and home-made schemes call them.
const SIGNING: [&str; 5] = ["hmac", "sharedkey", "sharedaccesssignature", "aws4-", "goog4-"];

fn is_signed(scheme: &str) -> bool {
    // `AWS` alone is the older signature of S3.
    SIGNED.contains(&scheme) || scheme == "aws" || SIGNING.iter().any(|part| scheme.contains(part))
}

/// A PASETO token begins with its version and its purpose.
fn is_paseto(token: &str) -> bool {
    let mut parts = token.split('.');
    matches!(parts.next(), Some("v1" | "v2" | "v3" | "v4")) && matches!(parts.next(), Some("public" | "local"))
}

/// The single value of a header. The component that sets this header has to be trusted.
pub fn of_header(parts: &request::Parts, name: &HeaderName) -> Result<String, Problem> {
    let mut values = parts.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Err(Problem::because(Kind::NoCredential, format!("The header {name} is missing."))),
        (Some(value), None) => match value.to_str().map(str::trim) {
            Ok(value) if !value.is_empty() => Ok(value.to_owned()),
            _ => Err(Problem::because(Kind::BadCredential, format!("The header {name} cannot be read."))),
        },
        (Some(_), Some(_)) => Err(Problem::because(Kind::BadCredential, format!("The header {name} came twice."))),
    }
}

/// A JWT has three parts between dots, or five if it is encrypted. The first one is a JSON object in base64: `{"` encodes to
/// `eyJ` or `ew`.
fn is_jwt(token: &str) -> bool {
    let parts: Vec<&str> = token.split('.').collect();
    let base64 = |part: &&str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    matches!(parts.len(), 3 | 5) && parts.iter().all(base64) && (token.starts_with("eyJ") || token.starts_with("ew"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(credential: &str) -> Result<String, Kind> {
        let (parts, ()) = http::Request::post("/").header(AUTHORIZATION, credential).body(()).unwrap().into_parts();
        of_authorization(&parts, &TenantNames::default(), "").map_err(|problem| problem.kind)
    }

    #[test]
    fn a_secret_changes_tenant_names_and_is_not_shown() {
        let credential = digest(b"bearer sk_7");
        let [plain, one, other] = [TenantNames::default(), TenantNames::keyed(b"one"), TenantNames::keyed(b"other")];
        assert_eq!(plain.name("auth:", credential), format!("auth:{}", &credential.to_hex()[..32]));
        assert_eq!(one.name("auth:", credential), TenantNames::keyed(b"one").name("auth:", credential));
        assert_ne!(one.name("auth:", credential), plain.name("auth:", credential));
        assert_ne!(one.name("auth:", credential), other.name("auth:", credential));
        assert_ne!(one.name("auth:", credential), one.name("auth:", digest(b"bearer sk_8")));
        assert_eq!(one.name("", credential).len(), 32);
        assert!(!format!("{one:?}").contains("one"));
    }

    #[test]
    fn spellings_of_one_credential_are_one_tenant() {
        let one = of("Bearer sk_7").unwrap();
        for same in ["bearer sk_7", "BEARER  sk_7 "] {
            assert_eq!(of(same).as_ref(), Ok(&one), "{same}");
        }
        for other in ["Bearer SK_7", "Basic sk_7", "sk_7", "Bearer sk_7.x.y"] {
            assert_ne!(of(other).unwrap(), one, "{other}");
        }
    }

    #[test]
    fn a_credential_that_changes_with_each_request_is_refused() {
        for credential in [
            "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
            "Bearer eyJhbGciOiJkaXIifQ..aXY.dGV4dA.dGFn",
            "AWS4-HMAC-SHA256 Credential=AKID/20261116/eu/s/aws4_request, Signature=1",
            "Digest username=\"a\", nonce=\"1\"",
            "OAuth oauth_nonce=\"1\"",
            "Hawk id=\"1\", mac=\"2\"",
            "HMAC-SHA256 Credential=k&SignedHeaders=date&Signature=1",
            "EG1-HMAC-SHA256 client_token=1;signature=2",
            "SharedKey account:signature",
            "SharedAccessSignature sig=1&se=2",
            "AWS AKID:signature",
            "GOOG4-RSA-SHA256 Credential=1, Signature=2",
            "Bearer v4.public.eyJzdWIiOiIxIn0",
            "Bearer v2.local.abc",
        ] {
            assert_eq!(of(credential), Err(Kind::BadCredential), "{credential}");
        }
    }
}
