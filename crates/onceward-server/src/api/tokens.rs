//! Who asks, and what they may. Tokens are kept as hashes, and every one of them is compared, in constant time: how long an
//! answer takes says nothing about how close a guess was.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::uri::Authority;
use onceward::core::hash::digest;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use subtle::ConstantTimeEq;

use super::Api;
use super::access::Noted;
use super::problem::{Kind, Problem};
use crate::config::{Bearer, Scope};

/// Everybody who has a token.
#[derive(Debug)]
pub(super) struct Tokens(Vec<Bearer>);

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) tenant: Tenant,
    noted: Arc<Noted>,
}

impl Caller {
    /// One of this tenant's intents; the access log names it, masked.
    pub(super) fn identity(&self, operation: &str, key: &str) -> Result<Identity, Problem> {
        let (operation, key) = (Operation::new(operation)?, Key::new(key)?);
        let identity = Identity { tenant: self.tenant.clone(), operation, key };
        self.note(&identity);
        Ok(identity)
    }

    /// Which intent it is about, for the access log.
    pub(super) fn note(&self, identity: &Identity) {
        let _ = self.noted.intent.set(identity.to_string());
    }

    /// What came of it, for the access log.
    pub(super) fn note_answer(&self, answer: &'static str) {
        let _ = self.noted.answer.set(answer);
    }
}

impl Tokens {
    pub(super) fn new(bearers: Vec<Bearer>) -> Self {
        Self(bearers)
    }

    fn caller(&self, parts: &Parts, needed: Scope) -> Result<Caller, Problem> {
        let noted = parts.extensions.get::<Arc<Noted>>().cloned().unwrap_or_default();
        let tenant = match self.0.is_empty() {
            true if is_local(parts) => Tenant::default(),
            true => return Err(Problem::new(Kind::WrongHost)),
            false => {
                let bearer = self.bearer(parts)?;
                let _ = noted.tenant.set(bearer.tenant.to_string());
                if !bearer.scopes.contains(&needed) {
                    let detail = format!("this needs a token with the scope `{}`", needed.as_str());
                    return Err(Problem::because(Kind::NotAllowed, detail));
                }
                bearer.tenant.clone()
            }
        };
        let _ = noted.tenant.set(tenant.to_string());
        Ok(Caller { tenant, noted })
    }

    fn bearer(&self, parts: &Parts) -> Result<&Bearer, Problem> {
        let mut given = parts.headers.get_all(AUTHORIZATION).iter();
        let token = given.next().and_then(|value| bearer_token(value.as_bytes()));
        let (Some(token), None) = (token, given.next()) else { return Err(Problem::new(Kind::NoToken)) };
        let hash = digest(token);
        let mut found = None;
        for bearer in &self.0 {
            if bool::from(bearer.hash.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(bearer);
            }
        }
        found.ok_or_else(|| Problem::new(Kind::NoToken))
    }
}

/// What follows `Bearer`, in any case, and some spaces.
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(6)?;
    let token = rest.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer") && rest.first() == Some(&b' ') && !token.is_empty()).then_some(token)
}

/// A page in a browser can reach this machine under a name of its own. What it cannot do is to leave that name out.
fn is_local(parts: &Parts) -> bool {
    let Some(host) = parts.headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

macro_rules! allowed {
    ($($(#[$doc:meta])* $name:ident: $scope:expr),+ $(,)?) => {$(
        $(#[$doc])*
        pub(super) struct $name(pub(super) Caller);

        impl FromRequestParts<Api> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
                api.0.tokens.caller(parts, $scope).map(Self)
            }
        }
    )+};
}

allowed! {
    /// A caller that may begin and finish.
    User: Scope::Use,
    /// A caller that may look.
    Reader: Scope::Read,
    /// A caller that may settle.
    Operator: Scope::Operate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_is_read() {
        assert_eq!(bearer_token(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer_token(b"bearer  abc "), Some(&b"abc"[..]));
        for bad in ["", "Bearer", "Bearer ", "Basic abc", "Bearerabc", "abc"] {
            assert_eq!(bearer_token(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        let local = |host: &str| {
            let (parts, ()) = http::Request::builder().header(HOST, host).body(()).unwrap().into_parts();
            is_local(&parts)
        };
        for host in ["localhost", "LOCALHOST:8787", "127.0.0.1:80", "[::1]:8787"] {
            assert!(local(host), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""] {
            assert!(!local(host), "{host}");
        }
    }
}
